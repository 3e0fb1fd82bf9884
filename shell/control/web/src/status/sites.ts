// Sites as a map and a list show them: where, how well, in which order, and which a search finds.

import type { Site, SiteSummary } from "../fleet";
import { bitRate, count, percent, plural, text } from "../units";

export type Mood = "bad" | "busy" | "ok" | "idle";

/** A place on the map: some sites that are too near to each other to be told apart. */
export interface Spot {
  key: string;
  /** Degrees east and south. */
  x: number;
  y: number;
  sites: Site[];
  mood: Mood;
}

/** Sites within a square of so many degrees are one spot: less is no finger's width on a laptop. */
const CELL = 4;
/** Less headroom than this is told by colour, percent. */
const TIGHT = 10;

/** A site's own page. */
export const siteUrl = (site: string): string => `/?${new URLSearchParams({ site })}`;

/** As control tells it, all of it. */
type Summary = Required<SiteSummary>;

const NONE: Summary = {
  appliances: 0,
  healthy: 0,
  leaving: 0,
  ill: 0,
  filling: 0,
  egress_bits_per_second: 0,
  fill_bits_per_second: 0,
  cpu_percent: 0,
  headroom_percent: null,
  bytes_held: 0,
  bytes_wanted: 0,
};

export const summaryOf = (site: Site): Summary => ({ ...NONE, ...site.summary });

/** The sums of all sites. */
export function totalOf(sites: readonly Site[]): Summary {
  const total = { ...NONE };
  let cpu = 0;
  for (const site of sites) {
    const one = summaryOf(site);
    for (const key of Object.keys(total) as (keyof Summary)[]) {
      if (key !== "headroom_percent") total[key] += one[key];
    }
    cpu += one.cpu_percent * (one.healthy + one.leaving);
  }
  return { ...total, cpu_percent: cpu / Math.max(1, total.healthy + total.leaving) };
}

export function moodOf(site: Site): Mood {
  const { appliances, ill, headroom_percent: headroom } = summaryOf(site);
  if (ill > 0 || site.routes_differ) return "bad";
  if (appliances === 0) return "idle";
  return headroom != null && headroom < TIGHT ? "busy" : "ok";
}

const RANK: Record<Mood, number> = { bad: 0, busy: 1, ok: 2, idle: 3 };

const worst = (moods: Mood[]): Mood =>
  moods.reduce((most, one) => (RANK[one] < RANK[most] ? one : most), "idle");

/** Degrees north and east; null if nobody said. */
export function pointOf({ place = "" }: Site): { north: number; east: number } | null {
  const [, north, east] = /^(-?[\d.]+),(-?[\d.]+)/.exec(place) ?? [];
  return north && east ? { north: Number(north), east: Number(east) } : null;
}

/** A place as control writes it: degrees, country, region and city, or some of them. */
const PLACE = /^(?:\S+,\S+(?: |$))?(?:([A-Z]{2})(?: |$))?(?:[A-Z]{2}-[^ ]{1,3}(?: |$))?(.*)$/;

/** City and country, those that are known; else the region says nothing to most people. */
export const wordsOfPlace = (place = ""): string => {
  const [, country, city] = PLACE.exec(place) ?? [];
  return [city, country].filter(Boolean).join(", ");
};

/** Worst first, then those that send most. */
export function ordered(sites: readonly Site[]): Site[] {
  const all = sites.map((site) => {
    return { site, rank: RANK[moodOf(site)], egress: summaryOf(site).egress_bits_per_second };
  });
  const byName = (a: Site, b: Site) => (a.id < b.id ? -1 : 1);
  return all
    .sort((a, b) => a.rank - b.rank || b.egress - a.egress || byName(a.site, b.site))
    .map(({ site }) => site);
}

/** The places of all that say where they are. */
export function spotsOf(sites: readonly Site[]): Spot[] {
  const cells = new Map<string, { site: Site; north: number; east: number }[]>();
  for (const site of sites) {
    const point = pointOf(site);
    if (!point) continue;
    const key = [point.north, point.east].map((at) => Math.floor(at / CELL)).join(" ");
    const cell = cells.get(key);
    if (cell) cell.push({ site, ...point });
    else cells.set(key, [{ site, ...point }]);
  }
  return [...cells].map(([key, all]) => {
    const mean = (of: (one: (typeof all)[number]) => number) =>
      all.reduce((sum, one) => sum + of(one), 0) / all.length;
    const mood = worst(all.map(({ site }) => moodOf(site)));
    const [x, y] = [mean(({ east }) => east), -mean(({ north }) => north)];
    return { key, x, y, sites: all.map(({ site }) => site), mood };
  });
}

/** Sites whose name, kind or place has all of the words, or one of whose appliances is named so. */
export function found(
  sites: readonly Site[],
  search: string,
  appliances: ReadonlyMap<string, readonly string[]> = new Map(),
): Site[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [...sites];
  return sites.filter((site) => {
    const about = `${site.id} ${site.kind} ${site.place}`.toLowerCase();
    const names = appliances.get(site.id) ?? [];
    return words.every((word) => about.includes(word) || names.some((id) => id.includes(word)));
  });
}

/** What a row says of a site. */
export function cellsOf(site: Site): { appliances: string; headroom: string; egress: string } {
  const { appliances, healthy, leaving, ill, headroom_percent, ...rest } = summaryOf(site);
  const notes = [
    ...(ill ? [`${count(ill)} ${ill === 1 ? "needs" : "need"} a look`] : []),
    ...(leaving ? [`${count(leaving)} draining`] : []),
    ...(site.routes_differ ? ["routes differ"] : []),
  ];
  const well = healthy === appliances ? `${count(appliances)} healthy` : "";
  const part = well || `${count(healthy)} of ${count(appliances)} healthy`;
  return {
    appliances: [appliances ? part : "none", ...notes].join(", "),
    headroom: headroom_percent == null ? "–" : text(percent(headroom_percent)),
    egress: text(bitRate(rest.egress_bits_per_second)),
  };
}

/** What the map shows, for those who do not see it. */
export function wordsOfMap(sites: readonly Site[]): string {
  const placed = sites.filter((site) => pointOf(site)).length;
  const ill = sites.filter((site) => moodOf(site) === "bad").length;
  const rest = ill ? `, ${count(ill)} of which ${ill === 1 ? "needs" : "need"} a look` : "";
  const of = placed === sites.length ? "all " : `${count(placed)} of `;
  return `A map of ${of}${plural(sites.length, "site")}${rest}`;
}
