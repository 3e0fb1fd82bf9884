// The fleet's sites on a map of the world. The list beside it says the same, and is the way for who
// has no pointer: so the map is one picture for them, with its own words.

import { h, KeyedList, setAttribute, setText, svg, type View } from "../dom";
import type { Site } from "../fleet";
import { count, plural } from "../units";
import { cellsOf, spotsOf, wordsOfMap, type Spot } from "./sites";
import { WORLD } from "./world";

/** It begins where the sea is: east of Alaska's islands comes Siberia's end. */
const [WEST, NORTH, WIDTH, HEIGHT] = [-169, -84, 360, 142];
/** Radius of one site, and the most that many can have. */
const [SMALL, LARGE] = [2.1, 6];

export class WorldMap {
  readonly root: HTMLElement;
  private readonly picture = svg("svg", {
    viewBox: `${WEST} ${NORTH} ${WIDTH} ${HEIGHT}`,
    role: "img",
  });
  private readonly spots: KeyedList<Spot>;
  private readonly missing = h("p", { class: "nothing" });

  /** `choose` is told of a spot that was clicked. */
  constructor(choose: (spot: Spot) => void) {
    const marks = svg("g");
    this.picture.append(svg("path", { class: "map-land", d: WORLD }), marks);
    this.spots = new KeyedList<Spot>(
      marks,
      ({ key }) => key,
      () => spotView(choose),
    );
    this.root = h("div", { class: "map" }, this.picture, this.missing);
  }

  update(sites: readonly Site[]): void {
    const spots = spotsOf(sites);
    this.root.hidden = spots.length === 0;
    if (this.root.hidden) return;
    // Large ones below: a small one is never covered.
    this.spots.update(spots.sort((a, b) => b.sites.length - a.sites.length));
    setAttribute(this.picture, "aria-label", wordsOfMap(sites));
    const placed = spots.reduce((sum, spot) => sum + spot.sites.length, 0);
    const left = sites.length - placed;
    this.missing.hidden = left === 0;
    const be = left === 1 ? "is" : "are";
    setText(this.missing, `${plural(left, "site")} ${be} not on it: nobody said where.`);
  }
}

/** A site by its figures, several by their number and the names of the first. */
function wordsOf({ sites }: Spot): string {
  const [first] = sites;
  if (!first) return "";
  const { appliances, headroom, egress } = cellsOf(first);
  if (sites.length === 1) return `${first.id}: ${appliances}, headroom ${headroom}, ${egress}`;
  const names = sites.slice(0, 4).map(({ id }) => id);
  return `${count(sites.length)} sites: ${names.join(", ")}${sites.length > 4 ? ", …" : ""}`;
}

function spotView(choose: (spot: Spot) => void): View<Spot> {
  const [title, circle, number] = [svg("title"), svg("circle"), svg("text")];
  const root = svg("g", { class: "map-spot" });
  root.append(title, circle, number);
  let shown: Spot;
  root.addEventListener("click", () => choose(shown));
  const update = (spot: Spot) => {
    shown = spot;
    const many = spot.sites.length;
    setAttribute(root, "data-mood", spot.mood);
    const x = spot.x < WEST ? spot.x + 360 : spot.x;
    setAttribute(root, "transform", `translate(${x.toFixed(1)} ${spot.y.toFixed(1)})`);
    const radius = Math.min(LARGE, SMALL + Math.log2(many) * 0.8);
    setAttribute(circle, "r", radius.toFixed(1));
    setText(number, many > 1 ? count(many) : "");
    setText(title, wordsOf(spot));
  };
  return { root, update };
}
