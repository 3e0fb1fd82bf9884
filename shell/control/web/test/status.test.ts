import assert from "node:assert/strict";
import { test } from "node:test";
import { silent } from "../src/fleet";
import { columnsOf, History, sampleOf, SPAN_S } from "../src/status/history";
import { Rates } from "../src/status/rates";
import { factsOf, linesOf, servesOf, unsharedOf, wordsOfUnshared } from "../src/status/routes";
import { factsOf as factsOfShed, shedsOf } from "../src/status/sheds";
import { aboutOf, moodOfStep, stepsOf, wordsOfDay } from "../src/status/site";
import { wordsOf as wordsOfIsp } from "../src/status/isp";
import * as sites from "../src/status/sites";
import { kindOf, lineOf, shortPath } from "../src/status/card";
import { moreThan } from "../src/status/tables";
import { concernOf, outageOf, verdictOf } from "../src/status/verdict";
import type { RoutesSite } from "../made/api";
import { cellsOf, rowsOf, wordsOf } from "../src/status/viewers";
import { appliance, fleet, heard, report, routesSite, viewersRow } from "./support";

const plain = (value: string) => value.replaceAll("\u00a0", " ");
const filling = { ...report().fill, objects_held: 1, bytes_held: 40 };

test("the first sentence says how the fleet is", () => {
  const title = (...args: Parameters<typeof fleet>) => plain(verdictOf(fleet(...args)).title);
  assert.equal(title([]), "No appliances yet");
  assert.equal(title([appliance("a1")]), "The appliance is healthy");
  assert.equal(title([appliance("a1"), appliance("a2")]), "All 2 appliances are healthy");
  const one = appliance("a1", { report: report({ fill: filling }) });
  assert.equal(title([one, appliance("a2")]), "All 2 appliances are healthy, 1 filling");
  const stale = appliance("a2", { state: "stale", last_report_ms: 14_200 });
  assert.equal(title([one, stale]), "1 of 2 appliances needs a look");
  const draining = appliance("a2", { state: "draining" });
  assert.equal(title([appliance("a1"), draining]), "1 of 2 appliances healthy, 1 draining");
  const drained = appliance("a3", { state: "drained" });
  const both = "1 of 3 appliances healthy, 1 draining, 1 drained";
  assert.equal(title([appliance("a1"), draining, drained]), both);
});

test("a site whose appliances hear different routes wants a look after all appliances", () => {
  const differing = (one: ReturnType<typeof appliance>) => {
    const now = fleet([one]);
    for (const site of now.sites) site.routes_differ = true;
    return verdictOf(now);
  };
  const { title, concerns, mood } = differing(appliance("a1"));
  assert.deepEqual([plain(title), mood], ["1 of 1 site needs a look", "trouble"]);
  assert.deepEqual(concerns, [
    { of: "site s1", href: "#site-s1", text: "its appliances hear different routes" },
  ]);
  const worse = differing(appliance("a1", { state: "unhealthy" }));
  assert.equal(plain(worse.title), "1 of 1 appliance needs a look");
  assert.equal(worse.concerns.length, 2);
});

test("a site's own page says what was said of it", () => {
  const [site] = fleet([appliance("a1")]).sites;
  assert.ok(site);
  assert.equal(aboutOf(site), "exchange · UTC");
  const said = { time_zone: "Asia/Tokyo", uplink_bps: 10e9, manifest_cluster: "north" };
  const about = aboutOf({ ...site, ...said, fill_cluster: "jp" });
  const expected = "exchange · Asia/Tokyo · uplink 10.0 Gb/s · planned with north · filled with jp";
  assert.equal(plain(about), expected);
});

test("what a site hears is told in a line, and what is wrong with it in others", () => {
  const lines = (site: RoutesSite) =>
    linesOf(site).map(({ text, bad }) => `${bad ? "!" : " "} ${plain(text)}`);
  const facts = (site: RoutesSite) => plain(factsOf(site));
  const up = { name: "isp_a", state: "Established", routes: 52_431 };
  const well = routesSite({ a1: heard(52_431, [up]) });
  assert.equal(facts(well), "embedded · 52,431 prefixes · 1 of 1 session up");
  assert.deepEqual(lines(well), []);

  const last_error = "Socket: Connection refused";
  const down = { name: "isp_a", state: "Active", last_error };
  const examples = ["21.9.0.0/20", "21.9.64.0/20", "21.10.0.0/22", "2a0b:9::/32"];
  const appliances = { a1: heard(52_431, [up]), a2: heard(1, [down]) };
  const unshared = { unshared: 12, unshared_examples: examples };
  const ill = { ...routesSite(appliances), differ: true, ...unshared };
  assert.equal(facts(ill), "embedded · 52,431 prefixes · 1 of 2 sessions up");
  assert.deepEqual(lines(ill), [
    "! Its appliances hear different routes: a1 52,431 prefixes, a2 1 prefix",
    "! a2: session isp_a is Active, Socket: Connection refused",
    "  12 prefixes have no second way: 21.9.0.0/20, 21.9.64.0/20, 21.10.0.0/22, …",
  ]);
  const one = { ...well, unshared: 1, unshared_examples: ["21.9.0.0/20"] };
  assert.deepEqual(lines(one), ["  1 prefix has no second way: 21.9.0.0/20"]);

  const error = "BIRD does not answer";
  const many = lines(routesSite({ a3: { ...heard(7, Array(9).fill(down)), error } }));
  assert.deepEqual([many[0], many[5]], ["! a3: BIRD does not answer", "! 5 more sessions down"]);
});

test("of what is left out the appliance tells that left out most", () => {
  const out = (cause: string, count: number, prefix: string) => {
    return { cause, why: "in words", count, examples: [{ prefix, session: "isp_b" }] };
  };
  const left_out = [out("too_long", 1, "21.1.1.0/25"), out("default", 2, "0.0.0.0/0")];
  const less = [out("too_long", 1, "21.1.1.0/25")];
  const site = routesSite({
    a1: { ...heard(7, []), left_out: less },
    a2: { ...heard(7, []), left_out },
  });
  assert.deepEqual(linesOf(site), [
    {
      text: "Left out: 1 too long (21.1.1.0/25 of isp_b), 2 default (0.0.0.0/0 of isp_b)",
      bad: false,
    },
  ]);
});

test("of a large fleet the sites are named whose prefixes have no second way", () => {
  const all = [3, 0, 1_200, 40, 7, 5, 1].map((count, at) => {
    return siteAt(`s${at}`, "", {}, count ? { routes_unshared: count } : {});
  });
  const found = unsharedOf(all);
  assert.deepEqual(found.map(({ id }) => id), ["s2", "s3", "s4", "s5", "s0", "s6"]);
  assert.equal(plain(wordsOfUnshared(found)), "and 1 prefix of 1 more site");
  assert.equal(wordsOfUnshared(found.slice(0, 5)), "");
});

test("a site tells whom it serves", () => {
  const [site] = fleet([]).sites;
  assert.ok(site);
  assert.equal(servesOf(site), "no network yet");
  assert.equal(plain(servesOf({ ...site, routes: 1 })), "1 prefix by BGP");
  const both = { ...site, prefixes: ["10.0.0.0/8"], routes: 7 };
  assert.equal(plain(servesOf(both)), "10.0.0.0/8, 7 prefixes by BGP");
  const some = servesOf({ ...both, prefix_count: 1_235 });
  assert.equal(plain(some), "10.0.0.0/8, 1,234 more, 7 prefixes by BGP");
});

test("sites and versions are told with the bytes that others served their clients", () => {
  const row = (by: string, name: string, of: string, bytes: number, version?: string) => {
    const rest = { begun: 0, answers: 1, reckoned_bytes: bytes };
    return { by, name, class: of, ...rest, ...(version ? { version } : {}) };
  };
  const rows = [
    row("site", "s1", "none", 60e9),
    row("site", "s1", "content", 30e9),
    row("site", "s1", "health", 10e9),
    row("site", "s2", "none", 5e9),
    row("site", "s2", "before", 5e9),
    row("site_version", "s1", "content", 30e9, "film-1"),
    row("site_version", "s1", "later", 30e9, "film-1"),
  ];
  const told = shedsOf(rows);
  assert.deepEqual(told.map(({ name }) => name), ["s1", "film-1"], "s2 missed nothing");
  const facts = told.map((one) => plain(factsOfShed(one)));
  assert.deepEqual(facts, [
    "30.0 GB for content, 10.0 GB for health · 40 % of what its clients load",
    "30.0 GB for content",
  ]);
});

test("what control leaves out of a list is counted below it", () => {
  assert.equal(plain(moreThan(100, 123, "error")), "and 23 more errors");
  assert.equal(plain(moreThan(100, 101, "asset")), "and 1 more asset");
  assert.equal(moreThan(7, 7, "error"), "");
  assert.equal(moreThan(7, undefined, "error"), "");
});

test("a site whose viewers stall is named in the first sentence", () => {
  const warning = { site: "s1", since_s: 74, stalled_share: 0.034, usual_share: 0, stalls: 41 };
  const well = verdictOf(fleet([appliance("a1")]), [warning]);
  assert.equal(well.title, "Viewers of s1 stall");
  assert.equal(well.mood, "trouble");
  const links = well.concerns.map(({ of, href }) => [of, href]);
  assert.deepEqual(links, [["site s1", "#viewers-title"]]);
  const stale = verdictOf(fleet([appliance("a1", { state: "stale" })]), [warning]);
  assert.equal(plain(stale.title), "1 of 1 appliance needs a look, and viewers of s1");
  assert.equal(
    plain(wordsOf(warning)),
    "viewers stall: 3.4 % of the last minute in 41 stalls, usual is 0 %",
  );
});

test("rows of viewers say what is known, those with most of them first", () => {
  const rows = [
    viewersRow("a", { watched_ms: 10 }),
    viewersRow("b", { watched_ms: 20, stalled_share: 0.0123, start_ms: 840, stalls: 2 }),
    viewersRow("c", {}),
  ];
  assert.deepEqual(rowsOf(rows, "site", 5).map(({ name }) => name), ["b", "a"]);
  assert.equal(rowsOf(rows, "asset", 5).length, 0);
  const cells = cellsOf(rows[1]!.recent);
  assert.equal(plain(cells.stalled), "1.2 %");
  assert.equal(plain(cells.start), "0.8 s");
  assert.equal(cells.bitrate, "–");
  assert.equal(cells.rates, "– / –");
});

test("a concern names each thing that is wrong", () => {
  const [ok, other] = report().drives;
  assert.ok(ok && other);
  const drives = [ok, { ...other, state: "set_aside" as const, reason: "slow" }];
  const of = (changes: object) => plain(concernOf(appliance("a1", changes)) ?? "none");
  assert.equal(of({}), "none");
  assert.equal(of({ state: "draining" }), "none");
  assert.equal(of({ state: "drained" }), "none");
  assert.equal(of({ state: "never_seen", report: null, last_report_ms: null }), "never seen");
  assert.equal(of({ state: "unhealthy" }), "unhealthy");
  assert.equal(of({ report: report({ drives }) }), "drive /d/1 set aside");
  const hung = { ...ok, hung: true, reason: "it has not answered for 12 s" };
  assert.equal(of({ report: report({ drives: [hung, other] }) }), "drive /d/0 hung");
  const each = report({ drives: [hung, ...drives] });
  assert.equal(of({ report: each }), "drive /d/1 set aside, drive /d/0 hung");
  assert.equal(of({ report: report({ drives: [hung, hung] }) }), "2 drives hung");
  const both = { state: "stale", last_report_ms: 65_000, report: report({ drives }) };
  assert.equal(of(both), "silent for 1 min, drive /d/1 set aside");
});

test("stale appliances do not count into the present figures", () => {
  const both = fleet([appliance("a1"), appliance("a2", { state: "stale" })]);
  const sample = sampleOf(both, ratesOf(both));
  assert.equal(sample.egress_bits_per_second, 1_000);
  assert.equal(sample.cpu_percent, 10);
});

test("own samples win over control's history, which fills their gaps", () => {
  const history = new History();
  const rest = { egress_bits_per_second: 5, cpu_percent: 1, fill_bits_per_second: 0 };
  const told = [997, 998, 999].map((at_unix_s) => ({ at_unix_s, ...rest }));
  add(history, { now_unix_s: 999, history: told });
  add(history, { now_unix_s: 1_000 });
  assert.deepEqual(history.columns(1_000).egress.slice(-5), [null, 5, 5, 1_000, 1_000]);
});

test("one missed second is bridged, two are a gap", () => {
  const history = new History();
  for (const now of [990, 992, 995]) add(history, { now_unix_s: now });
  const { at, egress } = history.columns(995);
  assert.equal(at.length, SPAN_S + 1);
  assert.deepEqual(egress.slice(-6), [1_000, 1_000, 1_000, null, null, 1_000]);
});

test("samples older than the plot are forgotten", () => {
  const history = new History();
  add(history, { now_unix_s: 100 });
  add(history, { now_unix_s: 1_000 });
  assert.deepEqual(history.columns(100).egress.at(-1), null);
});

test("control is silent only after some seconds of failures", () => {
  const sight = { fleet: null, missing: false, refusal: null };
  assert.equal(silent({ ...sight, age_ms: 1_000, failure: "refused" }), false);
  assert.equal(silent({ ...sight, age_ms: 5_000, failure: "refused" }), true);
  // A page that slept: the latest answer is old, but nothing failed.
  assert.equal(silent({ ...sight, age_ms: 60_000, failure: null }), false);
});

test("what control says of a failure is on the page", () => {
  const sight = { fleet: null, missing: false, age_ms: 5_000, failure: "the director hangs" };
  assert.equal(outageOf({ ...sight, refusal: null })[0], "Control does not answer.");
  const said = outageOf({ ...sight, refusal: "the director hangs" });
  assert.deepEqual(said, ["Control cannot tell.", "the director hangs"]);
});

const counted = (egress_bytes: number, last_report_ms: number, start_id = 1) => {
  const one = appliance("a1", { last_report_ms, report: report({ start_id }) });
  if (one.report) one.report.load.egress_bytes = egress_bytes;
  return fleet([one]);
};

test("rates come from counters, so nothing between two looks is lost", () => {
  const rates = new Rates();
  rates.update(counted(1_000_000, 200), 10_000);
  assert.equal(rates.egress("a1"), 1_000, "the first look believes the report");
  rates.update(counted(2_000_000, 200), 11_000);
  assert.equal(rates.egress("a1"), 8_000_000);
  rates.update(counted(2_000_000, 230), 11_030);
  assert.equal(rates.egress("a1"), 8_000_000, "the same report again changes nothing");
  rates.update(counted(2_000_000, 200), 12_000);
  assert.equal(rates.egress("a1"), 4_000_000, "the mean of what is known");
});

test("bursts of a player even out over five seconds, and then are forgotten", () => {
  const rates = new Rates();
  const seen: number[] = [];
  for (let second = 0; second < 20; second += 1) {
    // 1 MB every fourth second until the twelfth.
    const pieces = Math.floor(Math.min(second, 12) / 4);
    rates.update(counted(pieces * 1_000_000, 0), second * 1_000);
    seen.push(rates.egress("a1"));
  }
  assert.ok(seen.slice(5, 13).every((rate) => rate > 1_000_000 && rate < 4_000_000), `${seen}`);
  assert.equal(seen.at(-1), 0);
});

test("a restart, or a long time between looks, falls back to the report", () => {
  const rates = new Rates();
  rates.update(counted(1_000_000, 0), 10_000);
  rates.update(counted(5_000, 0, 2), 11_000);
  assert.equal(rates.egress("a1"), 1_000);
  rates.update(counted(9_000_000, 0, 2), 21_000);
  assert.equal(rates.egress("a1"), 1_000);
  assert.equal(rates.egress("nobody"), 0);
});

test("a card says when a drain begins and when it ends", () => {
  const line = (changes: object) => plain(lineOf(appliance("a1", changes)));
  const drain = { from_unix_s: 1_800_000_000, until_unix_s: 1_800_001_800 };
  assert.match(line({ drain }), / · manifest \d+ · drains from 2027-01-15 08:00 UTC$/);
  assert.doesNotMatch(line({ drain: null }), /drain/);
  const reason = "an operator has it drained";
  const drained = { state: "drained", reason, drain };
  const until = "; it serves again from 2027-01-15 08:30 UTC";
  assert.equal(line(drained), `An operator has it drained${until}`);
  const open = { ...drain, until_unix_s: null };
  assert.equal(line({ ...drained, drain: open }), "An operator has it drained");
});

test("a card says the kind of machine, what it is able to do, and its tags", () => {
  const kind = (changes: object) => plain(kindOf(appliance("a1", changes)));
  const abilities = { throughput_bps: 90e9, capacity_bytes: 0, fill_bps: 3e8 };
  const said = { profile: "flash", abilities, tags: ["loan", "rack-7"] };
  assert.equal(kind(said), "flash · serves 90.0 Gb/s · fetches 300 Mb/s · #loan · #rack-7");
  assert.equal(kind({ profile_name: "edge-100", tags: ["loan"] }), "edge-100 · #loan");
  assert.equal(kind({}), "", "nobody said");
});

test("long drive paths are cut at the front, where they are alike", () => {
  assert.equal(shortPath("/d/0"), "/d/0");
  assert.equal(shortPath("/srv/film/nearcast/demo/a1/drive0"), "…/demo/a1/drive0");
  assert.equal(shortPath("/srv/a-name-that-is-long-alone"), "…/a-name-that-is-long-alone");
});

function ratesOf(now: ReturnType<typeof fleet>): Rates {
  const rates = new Rates();
  rates.update(now, 0);
  return rates;
}

function add(history: History, changes: Parameters<typeof fleet>[1]): void {
  const now = fleet([appliance("a1")], changes);
  history.add(now, ratesOf(now));
}

const siteAt = (id: string, place: string, summary: object = {}, more: object = {}) => ({
  ...fleet([]).sites[0]!,
  id,
  place,
  summary: { appliances: 5, healthy: 5, headroom_percent: 70, ...summary },
  ...more,
});

test("sites that are near to each other are one spot, as ill as the worst of them", () => {
  const all = [
    siteAt("a", "52.5,13.4 DE DE-BE Berlin"),
    siteAt("b", "52.6,13.5", { ill: 1 }),
    siteAt("c", "-33.9,151.2 AU"),
    siteAt("d", "DE"),
  ];
  const spots = sites.spotsOf(all);
  assert.deepEqual(spots.map((spot) => [spot.sites.length, spot.mood]), [[2, "bad"], [1, "ok"]]);
  assert.deepEqual([spots[1]?.x, spots[1]?.y], [151.2, 33.9]);
  const words = plain(sites.wordsOfMap(all));
  assert.equal(words, "A map of 3 of 4 sites, 1 of which needs a look");
});

test("the worst sites come first, then those that send most", () => {
  const all = [
    siteAt("well", "", { egress_bits_per_second: 1 }),
    siteAt("busier", "", { egress_bits_per_second: 9 }),
    siteAt("tight", "", { headroom_percent: 4 }),
    siteAt("ill", "", { ill: 2, healthy: 3 }),
    siteAt("empty", "", { appliances: 0, healthy: 0, headroom_percent: null }),
  ];
  const order = sites.ordered(all).map(({ id }) => id);
  assert.deepEqual(order, ["ill", "tight", "busier", "well", "empty"]);
  assert.deepEqual(sites.cellsOf(all[3]!).appliances, "3 of 5 healthy, 2 need a look");
  assert.equal(sites.cellsOf(all[4]!).headroom, "–");
});

test("a search finds sites by name, place and appliance, all words of it", () => {
  const all = [siteAt("de-01", "52.5,13.4 DE DE-BE Berlin"), siteAt("fr-01", "FR FR-IDF Paris")];
  const names = new Map([["fr-01", ["edge-7"]]]);
  const find = (text: string) => sites.found(all, text, names).map(({ id }) => id);
  assert.deepEqual(find(" "), ["de-01", "fr-01"]);
  assert.deepEqual(find("BERLIN"), ["de-01"]);
  assert.deepEqual(find("paris edge"), ["fr-01"]);
  assert.deepEqual(find("paris de-"), []);
});

test("a place is told as its city and country, whatever of it is known", () => {
  const told = {
    "52.5,13.4 DE DE-BE Berlin": "Berlin, DE",
    "40.7,-74 US US-NY New York": "New York, US",
    "DE Bad Homburg": "Bad Homburg, DE",
    "FR Aix-en-Provence": "Aix-en-Provence, FR",
    "US-style Town": "US-style Town",
    "New York": "New York",
    "DE DE-BE": "DE",
    "-33.9,151.2 AU": "AU",
    "52.5,13.4": "",
    "": "",
  };
  for (const [place, words] of Object.entries(told)) {
    assert.equal(sites.wordsOfPlace(place), words, place);
  }
});

test("a fleet that is told in brief is judged by its sums", () => {
  const ill = appliance("a1", { state: "stale", last_report_ms: 14_200 });
  const all = [
    siteAt("s1", "", { appliances: 1_500, healthy: 1_400, ill: 100 }, { appliances: [ill] }),
    siteAt("s2", "", { appliances: 500, healthy: 500, cpu_percent: 20 }),
  ];
  const { title, concerns } = verdictOf(fleet([], { sites: all, brief: true }));
  assert.equal(plain(title), "100 of 2,000 appliances need a look");
  assert.deepEqual(concerns.map(({ of, href }) => [of, href]), [
    ["a1", "/?site=s1#appliance-a1"],
    ["99", "#overview"],
  ]);
  const sample = sampleOf(fleet([], { sites: all, brief: true }), new Rates());
  assert.equal(Math.round(sample.cpu_percent * 100), 526, "weighed by who serves");
});

const step = (at_unix_s: number, healthy: number) => {
  const rest = { egress_bits_per_second: 5, cpu_percent: 1, fill_bits_per_second: 0 };
  return { at_unix_s, healthy, appliances: 5, ...rest };
};

test("a day is plotted in ten minutes, and told in a sentence", () => {
  const now = 200_000;
  const samples = [step(198_600, 5), step(199_200, 3), step(199_800, 5)];
  const { at, egress, span_s } = columnsOf("day", samples, now);
  assert.deepEqual([at.length, at.at(-1), span_s], [145, 199_800, 86_400]);
  assert.deepEqual(egress.slice(-4), [null, 5, 5, 5]);
  const steps = stepsOf(samples, now);
  assert.equal(steps.length, 144);
  const words = plain(wordsOfDay(steps, now));
  assert.equal(words, "Not all were healthy for 10 min; at the worst 3 of 5, 13 min ago.");
  const well = plain(wordsOfDay(stepsOf([step(199_800, 5)], now), now));
  assert.equal(well, "All were healthy for 10 min.");
  assert.equal(wordsOfDay(stepsOf([], now), now), "Nothing is known of the last day yet.");
});

test("an appliance that was drained is not told as one that was lost", () => {
  const now = 200_000;
  const drained = { ...step(199_200, 3), leaving: 2 };
  const steps = stepsOf([drained, step(199_800, 5)], now);
  assert.deepEqual(steps.slice(-2).map(moodOfStep), ["busy", "ok"]);
  const words = "All were well for 20 min, some of them drained for 10 min.";
  assert.equal(plain(wordsOfDay(steps, now)), words);
  const both = [{ ...drained, healthy: 2 }, step(199_800, 5)];
  assert.equal(moodOfStep(both[0]!), "bad");
  const lost =
    "Not all were healthy for 10 min; at the worst 2 of 5, 13 min ago. " +
    "Some were drained for 10 min.";
  assert.equal(plain(wordsOfDay(stepsOf(both, now), now)), lost);
});

test("of an ISP's client the page says where it is sent, by those who are offered", () => {
  const isp = { site: "s1", isp: "isp1", client: "21.1.1.1", prefixes: [] };
  const words = (...candidates: [string, string, number | null][]) =>
    wordsOfIsp(
      { ...isp, condition: "announced" },
      { candidates: candidates.map(([appliance, site, rank]) => ({ appliance, site, rank })) },
    );
  assert.equal(
    words(["a9", "s1", null], ["a3", "s2", 1], ["a1", "s1", 2]),
    "A client of isp1 (21.1.1.1) is sent to site s2: a3, a1.",
  );
  assert.equal(words(["a9", "s1", null]), "A client of isp1 (21.1.1.1) is sent nowhere now.");
});
