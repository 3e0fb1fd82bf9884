// A site's own page, beside what each page has: its day, and the versions that it holds.

import { byId, h, KeyedList, setAttribute, setText, svg, type View } from "../dom";
import { get, rest, type Fleet, type Sample, type Site } from "../fleet";
import { bitRate, count, duration, plural, text } from "../units";
import { SPANS } from "./history";
import { wordsOfPlace, type Mood } from "./sites";

type Held = NonNullable<Site["held"]>[number];

const STEP_S = SPANS.day.step_s;
const STEPS = 144;
const POLL_MS = 60_000;

/** A day of health: for each ten minutes how many were healthy when the fewest were. */
export function stepsOf(samples: readonly Sample[], now: number): (Sample | null)[] {
  const by = new Map(samples.map((sample) => [sample.at_unix_s, sample]));
  const last = now - (now % STEP_S);
  return Array.from({ length: STEPS }, (_, at) => by.get(last - (STEPS - 1 - at) * STEP_S) ?? null);
}

/** Appliances that were neither healthy nor drained, which is an operator's wish. */
const gone = ({ healthy = 0, leaving = 0, appliances = 0 }: Sample) =>
  Math.max(0, appliances - healthy - leaving);

export const moodOfStep = (step: Sample | null): Mood =>
  step === null ? "idle" : gone(step) > 0 ? "bad" : step.leaving ? "busy" : "ok";

/** The day in a sentence. */
export function wordsOfDay(steps: readonly (Sample | null)[], now: number): string {
  const known = steps.filter((step) => step !== null);
  if (known.length === 0) return "Nothing is known of the last day yet.";
  const ill = known.filter((step) => gone(step) > 0);
  const drained = known.filter((step) => step.leaving).length;
  if (ill.length === 0) {
    const some = drained ? `, some of them drained for ${duration(drained * STEP_S)}` : "";
    const all = drained ? "well" : "healthy";
    return `All were ${all} for ${duration(known.length * STEP_S)}${some}.`;
  }
  const worst = ill.reduce((most, one) => (gone(one) > gone(most) ? one : most));
  const ago = duration(Math.max(0, now - worst.at_unix_s));
  const fewest = `${count(worst.healthy ?? 0)} of ${count(worst.appliances ?? 0)}`;
  const time = duration(ill.length * STEP_S);
  const some = drained ? ` Some were drained for ${duration(drained * STEP_S)}.` : "";
  return `Not all were healthy for ${time}; at the worst ${fewest}, ${ago} ago.${some}`;
}

class DayOfHealth {
  readonly root: HTMLElement;
  private readonly picture = svg("svg", {
    class: "day",
    viewBox: `0 0 ${STEPS} 24`,
    preserveAspectRatio: "none",
    role: "img",
  });
  private readonly bars: SVGElement[];
  private readonly words = h("p", { class: "day-words" });

  constructor() {
    this.bars = Array.from({ length: STEPS }, (_, x) => svg("rect", { x, width: 0.8 }));
    this.picture.append(...this.bars);
    const ends = h("p", { class: "day-ends" }, "a day ago", h("span", {}, "now"));
    this.root = h("div", {}, this.words, this.picture, ends);
  }

  update(samples: readonly Sample[], now: number): void {
    const steps = stepsOf(samples, now);
    const words = wordsOfDay(steps, now);
    setText(this.words, words);
    setAttribute(this.picture, "aria-label", words);
    steps.forEach((step, at) => {
      const bar = this.bars[at];
      if (!bar) return;
      const { healthy = 0, appliances = 0 } = step ?? {};
      const height = step ? Math.max(2, (24 * healthy) / Math.max(1, appliances)) : 2;
      setAttribute(bar, "height", height.toFixed(1));
      setAttribute(bar, "y", (24 - height).toFixed(1));
      setAttribute(bar, "data-mood", moodOfStep(step));
    });
  }
}

function heldView({ version }: Held): View<Held> {
  const copies = h("span", { class: "row-copies" });
  const root = h("li", { class: "row held" }, h("span", { class: "row-name" }, version), copies);
  const update = (held: Held) => setText(copies, plural(held.copies, "copy", "copies"));
  return { root, update };
}

export class SitePage {
  private readonly day = new DayOfHealth();
  private readonly rows = h("ul", { class: "rows" });
  private readonly list = new KeyedList<Held>(this.rows, ({ version }) => version, heldView);
  private readonly note = h("p", { class: "nothing" });

  constructor(private readonly site: string) {
    byId("day").append(this.day.root);
    byId("held").append(this.rows, this.note);
    for (const panel of ["day-panel", "held-panel", "site-back"]) byId(panel).hidden = false;
    for (const panel of ["assets-panel", "viewers-panel"]) byId(panel).hidden = true;
    void this.ask();
  }

  private async ask(): Promise<never> {
    const query = new URLSearchParams({ site: this.site, history: "day" });
    for (;;) {
      const fleet = await get<Fleet>(`/v1/fleet?${query}`);
      if (fleet) this.show(fleet);
      await rest(POLL_MS);
    }
  }

  private show(fleet: Fleet): void {
    const [site] = fleet.sites;
    this.day.update(fleet.history, fleet.now_unix_s);
    const held = site?.held ?? [];
    this.list.update(held);
    const more = (site?.held_count ?? 0) - held.length;
    this.note.hidden = held.length > 0 && more === 0;
    const some = more ? `and ${plural(more, "more version")}` : "";
    setText(this.note, held.length ? some : "No version is here wholly yet.");
  }
}

/** What a site is, in a line. What a small fleet does not say is not there. */
export function aboutOf(site: Site): string {
  const { kind, open, place, time_zone: zone = "UTC", uplink_bps: uplink } = site;
  const what = kind === "embedded" ? `embedded${open ? ", serves all" : ""}` : "exchange";
  const line = uplink ? `uplink ${text(bitRate(uplink))}` : "";
  const planned = site.manifest_cluster ? `planned with ${site.manifest_cluster}` : "";
  const filled = site.fill_cluster ? `filled with ${site.fill_cluster}` : "";
  return [what, wordsOfPlace(place), zone, line, planned, filled].filter(Boolean).join(" · ");
}
