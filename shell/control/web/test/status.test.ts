import assert from "node:assert/strict";
import { test } from "node:test";
import { silent } from "../src/fleet";
import { History, sampleOf, SPAN_S } from "../src/status/history";
import { concernOf, verdictOf } from "../src/status/verdict";
import { appliance, fleet, report } from "./support";

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
  const both = { state: "stale", last_report_ms: 65_000, report: report({ drives }) };
  assert.equal(of(both), "silent for 1 min, drive /d/1 set aside");
});

test("stale appliances do not count into the present figures", () => {
  const sample = sampleOf(fleet([appliance("a1"), appliance("a2", { state: "stale" })]));
  assert.equal(sample.egress_bits_per_second, 1_000);
  assert.equal(sample.cpu_percent, 10);
});

test("control's history wins over own samples, which fill its gaps", () => {
  const history = new History();
  history.add(fleet([appliance("a1")], { now_unix_s: 998 }));
  history.add(fleet([appliance("a1")], { now_unix_s: 999 }));
  const rates = { egress_bits_per_second: 5, cpu_percent: 1, fill_bits_per_second: 0 };
  const told = { at_unix_s: 999, ...rates };
  history.add(fleet([appliance("a1")], { now_unix_s: 1_000, history: [told] }));
  assert.deepEqual(history.columns(1_000).egress.slice(-4), [null, 1_000, 5, 1_000]);
});

test("one missed second is bridged, two are a gap", () => {
  const history = new History();
  for (const now of [990, 992, 995]) history.add(fleet([appliance("a1")], { now_unix_s: now }));
  const { at, egress } = history.columns(995);
  assert.equal(at.length, SPAN_S + 1);
  assert.deepEqual(egress.slice(-6), [1_000, 1_000, 1_000, null, null, 1_000]);
});

test("samples older than the plot are forgotten", () => {
  const history = new History();
  history.add(fleet([appliance("a1")], { now_unix_s: 100 }));
  history.add(fleet([appliance("a1")], { now_unix_s: 1_000 }));
  assert.deepEqual(history.columns(100).egress.at(-1), null);
});

test("control is silent only after some seconds of failures", () => {
  assert.equal(silent({ fleet: null, age_ms: 1_000, failure: "refused" }), false);
  assert.equal(silent({ fleet: null, age_ms: 5_000, failure: "refused" }), true);
  // A page that slept: the latest answer is old, but nothing failed.
  assert.equal(silent({ fleet: null, age_ms: 60_000, failure: null }), false);
});
