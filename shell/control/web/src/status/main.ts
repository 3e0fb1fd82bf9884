// The status page: one look says whether the fleet is well, a second one where it is not.

import { byId, h, KeyedList, setAttribute, setText, type View } from "../dom";
import {
  appliancesOf,
  queryOf,
  silent,
  watchFleet,
  type Appliance,
  type Fleet,
  type Sight,
  type Site,
} from "../fleet";
import { bitRate, duration, percent, plural } from "../units";
import { Card, type CardItem } from "./card";
import { ContentPanel } from "./content";
import { History, type Columns } from "./history";
import { Overview } from "./overview";
import { Plot } from "./plot";
import { Rates } from "./rates";
import { IspPanel } from "./isp";
import { RoutesPanel, servesOf } from "./routes";
import { showSession } from "./session";
import { ShedsPanel } from "./sheds";
import { aboutOf, SitePage } from "./site";
import { siteUrl } from "./sites";
import { LongSpan } from "./span";
import { Tables } from "./tables";
import { outageOf, verdictOf, type Concern, type Verdict } from "./verdict";
import { Viewers, watchViewers, type ViewersWarning } from "./viewers";

/** From this many appliances on, cards leave out what is well. */
const DENSE_FROM = 13;

/** Small sites stand side by side: a site takes as many of these columns as it has appliances. */
const COLUMNS = 3;

interface SiteItem {
  site: Site;
  controls: string | null | undefined;
  assets: Fleet["assets"];
  current: boolean;
}

function siteView({ site }: SiteItem): View<SiteItem> {
  const title = h("h2", {}, only ? site.id : h("a", { href: siteUrl(site.id) }, site.id));
  const facts = h("p", { class: "site-facts" });
  const grid = h("div", { class: "cards" });
  const nobody = h("p", { class: "nothing" }, "No appliance is registered here.");
  const cards = new KeyedList<CardItem>(
    grid,
    ({ appliance }) => appliance.id,
    (item) => new Card(item),
  );
  const isp = new IspPanel(site.id);
  const root = h(
    "section",
    { class: "site", id: `site-${site.id}`, "aria-label": `Site ${site.id}` },
    h("div", { class: "site-head" }, title, facts),
    isp.root,
    grid,
    nobody,
  );
  const update = ({ site: now, controls, assets, current }: SiteItem) => {
    isp.update(controls, assets);
    const serves = servesOf(now);
    const kind = only ? `${aboutOf(now)} · ` : now.kind === "embedded" ? "embedded · " : "";
    setText(facts, `${kind}${plural(now.appliances.length, "appliance")} · serves ${serves}`);
    const item = (appliance: Appliance) => {
      return { appliance, egress: rates.egress(appliance.id), controls, current };
    };
    cards.update(now.appliances.map(item));
    setAttribute(facts, "title", serves);
    const columns = Math.min(COLUMNS, Math.max(1, now.appliances.length));
    setAttribute(root, "data-columns", String(columns));
    nobody.hidden = now.appliances.length > 0;
  };
  return { root, update };
}

const gauges = {
  egress: new Plot({
    label: "Egress",
    hint: "Body bytes that left all appliances, mean of 5 s",
    tone: "--egress",
    format: bitRate,
    floor: 1e6,
  }),
  cpu: new Plot({
    label: "CPU",
    hint: "Share of their worker cores in use, mean of all appliances",
    tone: "--cpu",
    format: percent,
    floor: 10,
    ceiling: 100,
  }),
  fill: new Plot({
    label: "Fill",
    hint: "What all appliances fetch to hold it",
    tone: "--fill",
    format: bitRate,
    floor: 1e6,
  }),
};
byId("gauges").append(gauges.egress.root, gauges.cpu.root, gauges.fill.root);

/** The one site that the page is of; null for all. */
const only = new URLSearchParams(location.search).get("site") || null;
const history = new History();
const span = new LongSpan(byId("span"), only, () => showGauges());
const overview = only ? null : new Overview(() => latest && showSites(...latest));
if (only) new SitePage(only);
const rates = new Rates();
const routes = new RoutesPanel(only);
new ShedsPanel(only);
new ContentPanel(only);
const tables = new Tables(byId("assets"), byId("errors"));
const viewers = new Viewers(byId("viewers"));
let warnings: readonly ViewersWarning[] = [];
const sites = new KeyedList<SiteItem>(byId("sites"), ({ site }) => site.id, siteView);
const title = byId("verdict");
const detail = byId("verdict-detail");
const facts = h("span", {});
const concerns = h("span", { class: "concerns" });
detail.replaceChildren(concerns, facts);
const concernList = new KeyedList<Concern>(
  concerns,
  ({ of }) => of,
  ({ of, href }) => {
    const link = h("a", { class: "concern", href });
    return { root: link, update: ({ text }) => setText(link, `${of}: ${text}`) };
  },
);
const outageText = h("span", {});
// Hidden from screen readers: it changes every second, and the alert would be read out each time.
const outageAge = h("span", { "aria-hidden": "true" });
const outageHead = h("strong", {});
byId("outage").append(outageHead, outageText, outageAge);
for (const slot of document.querySelectorAll("[data-origin]")) setText(slot, location.origin);

function showVerdict(verdict: Verdict, current: boolean, ageMs: number): void {
  setText(title, verdict.title);
  setAttribute(title, "data-mood", current ? verdict.mood : "unknown");
  concernList.update(verdict.concerns);
  const shown = current ? verdict.facts : `as it was ${duration(ageMs / 1000)} ago`;
  setText(facts, verdict.concerns.length ? "" : shown || "\u00a0");
  document.title = verdict.concerns.length ? `(${verdict.concerns.length}) Nearcast` : "Nearcast";
}

let now = 0;
/** What is shown, and whether control answers. */
let latest: [Fleet, boolean] | null = null;
/** Where the page's address points, until it is there. */
let wanted = location.hash;

/** The plots, over the span that was chosen. */
function showGauges(): void {
  const columns: Columns = span.columns() ?? history.columns(now);
  gauges.egress.update(columns, columns.egress);
  gauges.cpu.update(columns, columns.cpu);
  gauges.fill.update(columns, columns.fill);
}

/** Cards, of the sites that were chosen on the map. */
function showSites(fleet: Fleet, current: boolean): void {
  const controls = fleet.demo_controls;
  const shown = fleet.sites.filter(({ id }) => overview?.isChosen(id) ?? true);
  byId("sites").hidden = fleet.brief ?? false;
  const { assets } = fleet;
  if (!fleet.brief) sites.update(shown.map((site) => ({ site, controls, assets, current })));
}

/** Goes where the address points: it was not there yet when the browser looked for it. */
function arrive(): void {
  const target = wanted && document.getElementById(wanted.slice(1));
  wanted = "";
  if (!target) return;
  target.scrollIntoView();
  target.focus({ preventScroll: true });
}

function showMissing(): void {
  setText(title, `There is no site named ${only}`);
  setAttribute(title, "data-mood", "unknown");
  concernList.update([]);
  setText(facts, "Its name may be another, or it was removed.");
  document.title = "Nearcast";
  for (const part of ["gauges", "span", "welcome", "fleet"]) byId(part).hidden = true;
}

function showFleet(fleet: Fleet, current: boolean, ageMs: number): void {
  const appliances = appliancesOf(fleet);
  const somebody = appliances.length > 0 || (fleet.brief ?? false);
  rates.update(fleet, performance.now() - ageMs);
  history.add(fleet, rates);
  now = fleet.now_unix_s;
  showGauges();
  byId("gauges").hidden = !somebody;
  byId("span").hidden = !somebody;
  byId("welcome").hidden = somebody;
  byId("fleet").hidden = !somebody;
  const density = appliances.length >= DENSE_FROM ? "dense" : null;
  setAttribute(byId("sites"), "data-density", density);
  latest = [fleet, current];
  overview?.update(fleet);
  showSites(fleet, current);
  tables.update(fleet);
  routes.update(fleet);
  const stalling = warnings.filter(({ site }) => only === null || site === only);
  const verdict = verdictOf(fleet, stalling);
  showVerdict(only ? { ...verdict, title: `${only}: ${verdict.title}` } : verdict, current, ageMs);
  arrive();
}

function showFreshness(sight: Sight): void {
  const quiet = silent(sight);
  const fresh = !quiet && (sight.fleet !== null || sight.missing);
  setAttribute(byId("freshness"), "data-live", fresh ? "yes" : "no");
  const age = duration(sight.age_ms / 1000);
  setText(byId("freshness-text"), fresh ? "live" : sight.fleet ? `${age} old` : "connecting");
  setAttribute(document.body, "data-silent", quiet ? "" : null);
  const outage = byId("outage");
  outage.hidden = !quiet;
  if (!quiet) return;
  const [head, words] = outageOf(sight);
  setText(outageHead, `${head} `);
  setText(outageText, words);
  setText(outageAge, ` Last answer ${age} ago.`);
  outageAge.hidden = sight.fleet === null;
}

void watchFleet(queryOf(only), (sight) => {
  showFreshness(sight);
  if (sight.missing) showMissing();
  else if (sight.fleet) showFleet(sight.fleet, !silent(sight), sight.age_ms);
  else if (silent(sight)) setText(title, `Nothing is known about ${only ?? "the fleet"}`);
});

void watchViewers((out) => {
  warnings = out.warnings;
  viewers.update(out);
});

void showSession();
