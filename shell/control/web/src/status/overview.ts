// All sites: the map, a search, and a list with the worst first.

import { byId, h, KeyedList, setAttribute, setText, type View } from "../dom";
import { get, type Fleet, type Site } from "../fleet";
import { count, plural } from "../units";
import { WorldMap } from "./map";
import { cellsOf, found, moodOf, ordered, siteUrl, wordsOfPlace, type Spot } from "./sites";

/** Rows at first, and more with each wish. */
const ROWS = 20;

function rowView({ id }: Site): View<Site> {
  const cell = (kind: string) => h("td", { class: `sites-${kind}` });
  const [place, appliances, headroom, egress] = [
    cell("place"),
    cell("appliances"),
    cell("headroom"),
    cell("egress"),
  ];
  const name = h("th", { scope: "row" }, h("a", { href: siteUrl(id) }, id));
  const root = h("tr", {}, name, place, appliances, headroom, egress);
  const update = (site: Site) => {
    const cells = cellsOf(site);
    setText(place, wordsOfPlace(site.place) || "–");
    setText(appliances, cells.appliances);
    setText(headroom, cells.headroom);
    setText(egress, cells.egress);
    setAttribute(root, "data-mood", moodOf(site));
  };
  return { root, update };
}

export class Overview {
  private readonly panel = byId("overview");
  private readonly map = new WorldMap((spot) => this.choose(spot));
  private readonly search = h("input", {
    type: "search",
    id: "site-search",
    placeholder: "Search sites and appliances",
    "aria-label": "Search sites and appliances",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => this.searched(),
    onfocus: () => void this.learn(),
  });
  private readonly spot = h("button", {
    type: "button",
    class: "button",
    onclick: () => {
      this.choose(null);
      if (!this.search.hidden) this.search.focus();
    },
  });
  private readonly said = h("p", { class: "overview-said", role: "status" });
  private readonly rows = h("tbody");
  private readonly list = new KeyedList<Site>(this.rows, ({ id }) => id, rowView);
  private readonly table: HTMLElement;
  private readonly more = h("button", {
    type: "button",
    class: "button more",
    onclick: () => this.showMore(),
  });
  private sites: Site[] = [];
  private chosen: Set<string> | null = null;
  private shown = ROWS;
  private appliances: Map<string, string[]> | null = null;

  /** `onChoice` is called when other sites are chosen on the map. */
  constructor(private readonly onChoice: () => void) {
    const heads = ["Site", "Place", "Appliances", "Headroom", "Egress"].map((text) =>
      h("th", { scope: "col", class: `sites-${text.toLowerCase()}` }, text),
    );
    const head = h("thead", {}, h("tr", {}, ...heads));
    this.table = h("table", { class: "sites-table" }, head, this.rows);
    const tools = h("div", { class: "overview-tools" }, this.search, this.spot, this.said);
    this.spot.hidden = true;
    this.panel.append(this.map.root, tools, this.table, this.more);
  }

  /** It is there for a fleet with places, and its list for one that is too large for cards. */
  update(fleet: Fleet): void {
    this.sites = fleet.sites;
    this.map.update(fleet.sites);
    const listed = fleet.brief ?? false;
    this.panel.hidden = !listed && this.map.root.hidden;
    for (const part of [this.search, this.table, this.said]) part.hidden = !listed;
    if (listed) this.show();
    else this.more.hidden = true;
  }

  /** True if the map does not leave it out. */
  isChosen(site: string): boolean {
    return this.chosen?.has(site) ?? true;
  }

  /** The focus goes to the first of the new rows: the button may be gone. */
  private showMore(): void {
    const before = this.shown;
    this.shown += ROWS;
    this.show();
    this.rows.children[before]?.querySelector("a")?.focus();
  }

  private show(): void {
    const all = found(this.sites, this.search.value, this.appliances ?? undefined);
    const wanted = ordered(all.filter(({ id }) => this.isChosen(id)));
    this.list.update(wanted.slice(0, this.shown));
    const left = wanted.length - Math.min(this.shown, wanted.length);
    this.more.hidden = left === 0;
    setText(this.more, `Show ${count(Math.min(ROWS, left))} more of ${count(left)}`);
    const part = wanted.length < this.sites.length;
    const of = part ? `${count(wanted.length)} of ` : "";
    setText(this.said, `${of}${plural(this.sites.length, "site")}`);
  }

  private searched(): void {
    this.shown = ROWS;
    this.show();
  }

  /** A spot of one site leads to its page; one of many leaves these, in the list or as cards. */
  private choose(spot: Spot | null): void {
    const [first, second] = spot?.sites ?? [];
    if (first && !second) return location.assign(siteUrl(first.id));
    this.chosen = spot && new Set(spot.sites.map(({ id }) => id));
    this.spot.hidden = spot === null;
    setText(this.spot, `${plural(spot?.sites.length ?? 0, "site")} of the map ×`);
    setAttribute(this.spot, "aria-label", "Show sites of the whole map again");
    this.shown = ROWS;
    if (!this.table.hidden) this.show();
    this.onChoice();
  }

  /** The names of appliances are asked for once, when somebody is about to search. */
  private async learn(): Promise<void> {
    if (this.appliances) return;
    this.appliances = new Map();
    const all = await get<{ id: string; site: string }[]>("/v1/appliances");
    if (!all) this.appliances = null;
    for (const { id, site } of all ?? []) {
      const names = this.appliances?.get(site);
      if (names) names.push(id);
      else this.appliances?.set(site, [id]);
    }
    if (!this.table.hidden) this.show();
  }
}
