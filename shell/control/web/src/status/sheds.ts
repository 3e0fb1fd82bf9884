// Clients that were led past their nearest site: on its own page by version, and of a fleet the
// sites past which most were led. A panel that is there once some were.

import { byId, h, KeyedList, setText, type View } from "../dom";
import { get, rest } from "../fleet";
import { bytes, percent, text } from "../units";
import { siteUrl } from "./sites";
import type { ShedRow } from "../../made/api";

/** What players load of it elsewhere, in bytes, by class. */
export interface Shed {
  /** A site, or one of its versions. */
  name: string;
  site: boolean;
  content: number;
  health: number;
  before: number;
  /** What the site served itself; 0 of a version, of which nobody counts that. */
  none: number;
}

/** Control adds up what all its sites have. */
const POLL_MS = 10_000;
const SITES_SHOWN = 5;

/** One for each site and version, in the order of the rows; those with nothing to tell are not. */
export function shedsOf(rows: readonly ShedRow[]): Shed[] {
  const all = new Map<string, Shed>();
  for (const { by, name, version, class: of, reckoned_bytes } of rows) {
    const site = by === "site";
    const shown = site ? name : (version ?? name);
    const key = `${by} ${shown}`;
    const one = all.get(key) ?? { name: shown, site, content: 0, health: 0, before: 0, none: 0 };
    if (of === "content" || of === "health" || of === "before" || of === "none") {
      one[of] += reckoned_bytes;
    }
    all.set(key, one);
  }
  return [...all.values()].filter(({ content, health }) => content + health > 0);
}

/** By class, and the part of all that its clients load. */
export function factsOf({ content, health, before, none, site }: Shed): string {
  const missed = content + health;
  const all = missed + before + none;
  const share = site ? ` · ${text(percent((100 * missed) / all))} of what its clients load` : "";
  const classes = [
    ...(content ? [`${text(bytes(content))} for content`] : []),
    ...(health ? [`${text(bytes(health))} for health`] : []),
  ];
  return classes.join(", ") + share;
}

function shedView({ name, site }: Shed, linked: boolean): View<Shed> {
  const shown = site && linked ? h("a", { href: siteUrl(name) }, name) : name;
  const facts = h("span", { class: "row-facts" });
  const root = h("li", { class: "row route" }, h("span", { class: "row-name" }, shown), facts);
  return { root, update: (now) => setText(facts, factsOf(now)) };
}

export class ShedsPanel {
  private readonly panel = byId("sheds-panel");
  private readonly rows: KeyedList<Shed>;

  /** Of one site, or of all. */
  constructor(private readonly site: string | null) {
    this.rows = new KeyedList<Shed>(
      byId("sheds"),
      ({ site: isSite, name }) => `${isSite} ${name}`,
      (shed) => shedView(shed, site === null),
    );
    void this.ask();
  }

  private async ask(): Promise<never> {
    const query = this.site === null ? { worst: String(SITES_SHOWN) } : { site: this.site };
    for (;;) {
      const rows = await get<ShedRow[]>(`/v1/sheds?${new URLSearchParams(query)}`);
      const sheds = shedsOf(rows ?? []);
      if (rows) this.rows.update(sheds);
      if (rows) this.panel.hidden = sheds.length === 0;
      await rest(POLL_MS);
    }
  }
}
