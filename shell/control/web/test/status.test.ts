import assert from "node:assert/strict";
import { test } from "node:test";
import { silent } from "../src/fleet";
import { History, sampleOf, SPAN_S } from "../src/status/history";
import { Rates } from "../src/status/rates";
import { shortPath } from "../src/status/card";
import { concernOf, verdictOf } from "../src/status/verdict";
import { cellsOf, leftOut, rowsOf, wordsOf } from "../src/status/viewers";
import { appliance, fleet, report, viewersRow } from "./support";

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

test("networks that are left out are counted", () => {
  const out = { now_unix_s: 0, rows: [], warnings: [], networks_left_out: 0 };
  assert.equal(leftOut(out), "");
  assert.match(plain(leftOut({ ...out, networks_left_out: 1 })), /^No room for 1 more network of/);
  assert.match(plain(leftOut({ ...out, networks_left_out: 12 })), /for 12 more networks of sites:/);
});

test("a concern names each thing that is wrong", () => {
  const [ok, other] = report().drives;
  assert.ok(ok && other);
  const drives = [ok, { ...other, state: "set_aside" as const, reason: "slow" }];
  const of = (changes: object) => plain(concernOf(appliance("a1", changes)) ?? "none");
  assert.equal(of({}), "none");
  assert.equal(of({ state: "draining" }), "none");
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
  assert.equal(silent({ fleet: null, age_ms: 1_000, failure: "refused" }), false);
  assert.equal(silent({ fleet: null, age_ms: 5_000, failure: "refused" }), true);
  // A page that slept: the latest answer is old, but nothing failed.
  assert.equal(silent({ fleet: null, age_ms: 60_000, failure: null }), false);
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
