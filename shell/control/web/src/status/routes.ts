// What sites hear from their routers: a panel that is there once one of them hears anything.

import { byId, h, KeyedList, setAttribute, setText, type View } from "../dom";
import { get, rest, type Fleet, type Site } from "../fleet";
import { count, plural } from "../units";
import { siteUrl } from "./sites";
import type { RoutesAppliance, RoutesOut, RoutesSite } from "../../made/api";

/** A line about a site, and whether somebody should look at it. */
export interface Line {
  text: string;
  bad: boolean;
}

const POLL_MS = 10_000;

/** Sites of a large fleet that are named for prefixes without a second way. */
const SITES_SHOWN = 5;

/** Sessions that are down, by name; the others are counted. */
const DOWN_SHOWN = 4;
/** Prefixes without a second way, by name. */
const UNSHARED_SHOWN = 3;

const prefixes = (number: number): string => plural(number, "prefix", "prefixes");

/** Whom a site serves: its static prefixes, and what it hears. */
export function servesOf({ prefixes: given, prefix_count, routes }: Site): string {
  const left = Math.max(0, (prefix_count ?? 0) - given.length);
  const more = left ? [`${count(left)} more`] : [];
  const heard = routes == null ? [] : [`${prefixes(routes)} by BGP`];
  return [...given, ...more, ...heard].join(", ") || "no network yet";
}

const sessionsOf = (site: RoutesSite) =>
  site.appliances.flatMap(({ appliance, heard }) =>
    heard.sessions.map((session) => ({ appliance, ...session })),
  );

/** One line: its kind, what it hears, and how many of its sessions are up. */
export function factsOf(site: RoutesSite): string {
  const sessions = sessionsOf(site);
  const up = sessions.filter(({ state }) => state === "Established").length;
  const heard = site.prefixes == null ? "hears nothing" : prefixes(site.prefixes);
  return `${site.kind} · ${heard} · ${up} of ${plural(sessions.length, "session")} up`;
}

/** The appliances of a site hear nearly the same: the one that left out most stands for all. */
function leftOutOf(appliances: RoutesAppliance[]): Line[] {
  const sum = ({ heard }: RoutesAppliance) =>
    (heard.left_out ?? []).reduce((total, cause) => total + cause.count, 0);
  const most = [...appliances].sort((a, b) => sum(b) - sum(a))[0];
  const causes = (most?.heard.left_out ?? []).map(({ cause, count: number, examples }) => {
    const [first] = examples;
    const example = first ? ` (${first.prefix} of ${first.session})` : "";
    return `${count(number)} ${cause.replaceAll("_", " ")}${example}`;
  });
  return causes.length ? [{ text: `Left out: ${causes.join(", ")}`, bad: false }] : [];
}

/** What is wrong with it, then what was left out, then what depends on it alone. */
export function linesOf(site: RoutesSite): Line[] {
  const lines: Line[] = [];
  if (site.differ) {
    const each = site.appliances.map(({ appliance, heard }) => {
      return `${appliance} ${prefixes(heard.prefixes)}`;
    });
    lines.push({ text: `Its appliances hear different routes: ${each.join(", ")}`, bad: true });
  }
  for (const { appliance, heard } of site.appliances) {
    if (heard.error) lines.push({ text: `${appliance}: ${heard.error}`, bad: true });
  }
  const down = sessionsOf(site).filter(({ state }) => state !== "Established");
  for (const { appliance, name, state, last_error } of down.slice(0, DOWN_SHOWN)) {
    const why = last_error ? `, ${last_error}` : "";
    lines.push({ text: `${appliance}: session ${name} is ${state}${why}`, bad: true });
  }
  if (down.length > DOWN_SHOWN) {
    lines.push({ text: `${plural(down.length - DOWN_SHOWN, "more session")} down`, bad: true });
  }
  lines.push(...leftOutOf(site.appliances));
  if (site.unshared > 0) {
    const [verb, examples] = [site.unshared === 1 ? "has" : "have", site.unshared_examples];
    const more = site.unshared > UNSHARED_SHOWN ? ", …" : "";
    const shown = `${examples.slice(0, UNSHARED_SHOWN).join(", ")}${more}`;
    lines.push({ text: `${prefixes(site.unshared)} ${verb} no second way: ${shown}`, bad: false });
  }
  return lines;
}

function siteView(): View<RoutesSite> {
  const name = h("span", { class: "row-name" });
  const facts = h("span", { class: "row-facts" });
  const lines = h("ul", { class: "row-lines" });
  const list = new KeyedList<Line>(
    lines,
    ({ text }) => text,
    ({ text, bad }) => {
      const root = h("li", bad ? { "data-mood": "bad" } : {}, text);
      return { root, update: () => undefined };
    },
  );
  const update = (site: RoutesSite) => {
    setText(name, site.site);
    setText(facts, factsOf(site));
    setAttribute(facts, "title", site.place || null);
    list.update(linesOf(site));
  };
  return { root: h("li", { class: "row route" }, name, facts, lines), update };
}

/** Sites with prefixes that no other has a way to, those with most first. */
export function unsharedOf(sites: readonly Site[]): Site[] {
  const some = sites.filter(({ routes_unshared: count = 0 }) => count > 0);
  return some.sort((a, b) => (b.routes_unshared ?? 0) - (a.routes_unshared ?? 0));
}

/** What is left to say of them below the first. */
export function wordsOfUnshared(sites: readonly Site[]): string {
  const rest = sites.slice(SITES_SHOWN);
  const sum = rest.reduce((total, { routes_unshared: count = 0 }) => total + count, 0);
  return rest.length ? `and ${prefixes(sum)} of ${plural(rest.length, "more site")}` : "";
}

function unsharedView({ id }: Site): View<Site> {
  const facts = h("span", { class: "row-facts" });
  const name = h("span", { class: "row-name" }, h("a", { href: siteUrl(id) }, id));
  const update = ({ routes_unshared: count = 0 }: Site) => {
    setText(facts, `${prefixes(count)} ${count === 1 ? "has" : "have"} no second way`);
  };
  return { root: h("li", { class: "row route" }, name, facts), update };
}

export class RoutesPanel {
  private readonly panel = byId("routes-panel");
  private readonly rows: KeyedList<RoutesSite>;
  private readonly alone: KeyedList<Site>;
  private readonly more = h("p", { class: "nothing" });
  private wanted = false;
  private asking = false;

  /** Of one site, or of all. */
  constructor(private readonly site: string | null) {
    const [rows, alone] = [byId("routes"), h("ul", { class: "rows" })];
    this.rows = new KeyedList<RoutesSite>(rows, ({ site: of }) => of, siteView);
    this.alone = new KeyedList<Site>(alone, ({ id }) => id, unsharedView);
    this.panel.append(alone, this.more);
  }

  /** Of a fleet that is told in brief, each site's own page has it, but for the worst. */
  update(fleet: Fleet): void {
    const alone = fleet.brief ? unsharedOf(fleet.sites) : [];
    this.alone.update(alone.slice(0, SITES_SHOWN));
    const more = wordsOfUnshared(alone);
    setText(this.more, more);
    this.more.hidden = more === "";
    this.wanted = !fleet.brief && fleet.sites.some(({ routes }) => routes != null);
    if (!this.wanted) {
      this.rows.update([]);
      this.panel.hidden = alone.length === 0;
    } else if (!this.asking) void this.ask();
  }

  private async ask(): Promise<void> {
    this.asking = true;
    const query = this.site === null ? "" : `?${new URLSearchParams({ site: this.site })}`;
    const out = await get<RoutesOut>(`/v1/routes${query}`);
    if (out && this.wanted) {
      const sites = out.sites.filter(({ appliances }) => appliances.length > 0);
      this.rows.update(sites);
      this.panel.hidden = sites.length === 0;
    }
    await rest(POLL_MS);
    this.asking = false;
  }
}
