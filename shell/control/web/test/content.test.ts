import assert from "node:assert/strict";
import { test } from "node:test";
import * as content from "../src/status/content";
import type { FillAppliance, FillSite, PlanOut, PopularItem, Popularity } from "../made/api";

const plain = (value: string) => value.replaceAll("\u00a0", " ");
const NOW = 1_800_000_000;

test("a day's savings are the bytes served for each that was fetched", () => {
  const rates = { egress_bits_per_second: 8e9, fill_bits_per_second: 8e8 };
  const sample = { at_unix_s: NOW, ...rates, cpu_percent: 0 };
  const savings = content.savingsOf([sample, { ...sample, fill_bits_per_second: 0 }], 600);
  assert.deepEqual(savings, { served: 1.2e12, fetched: 6e10 });
  assert.equal(
    plain(content.wordsOfSavings(savings)),
    "In the last day 1.20 TB were served and 60.0 GB fetched: 20 bytes served for each byte " +
      "fetched.",
  );
  const none = content.wordsOfSavings({ served: 5e9, fetched: 0 });
  assert.equal(plain(none), "In the last day 5.00 GB were served and 0 B fetched.");
});

const plan: PlanOut = {
  number: 7,
  refused: [],
  comes: 0,
  comes_bytes: 0,
  goes: 0,
  goes_bytes: 0,
  appliances: [],
  at_origin: 0,
  staying: 0,
  waiting: 0,
  missing: 0,
  pins_missing: [],
  bans_unkept: [],
  pins: 0,
  bans: 0,
  launches: 0,
  carried_out: [],
};

test("what operators say is told with the pins that are not kept", () => {
  assert.equal(content.wordsOfWishes(plan), "");
  const said = { ...plan, pins: 12, launches: 1 };
  assert.equal(plain(content.wordsOfWishes(said)), "Operators say: 12 pins, 1 launch.");
  const missing = { ...said, bans: 1, pins_missing: ["film-1 is pinned, and has no room"] };
  assert.equal(
    plain(content.wordsOfWishes(missing)),
    "Operators say: 12 pins, 1 ban, 1 launch. film-1 is pinned, and has no room.",
  );
  const stays = { ...plan, bans: 1, bans_unkept: ["ban not kept: last copy of film-1"] };
  assert.equal(
    plain(content.wordsOfWishes(stays)),
    "Operators say: 1 ban. ban not kept: last copy of film-1.",
  );
});

test("a plan is told by its reasons if it is refused, and else by what it moved", () => {
  assert.equal(
    content.wordsOfPlan(plan, NOW),
    "No plan has moved anything since control began.",
  );
  const moved = { comes: 1, comes_bytes: 2e9, goes: 3, goes_bytes: 4e9 };
  const carried_out = [{ at_unix_s: NOW - 7_200, ...moved }];
  const last = { ...plan, missing: 2, staying: 5, carried_out };
  assert.equal(
    plain(content.wordsOfPlan(last, NOW)),
    "The last plan that moved anything, 2 h ago: 1 copy comes (2.00 GB), 3 go (4.00 GB). " +
      "2 items lack copies, 5 items stay until others have them.",
  );
  const refused = { ...last, refused: ["too much"], goes_bytes: 5e12 };
  assert.equal(
    plain(content.wordsOfPlan(refused, NOW)),
    "The last plan is refused: too much. 0 B would come and 5.00 TB go. " +
      "If it is meant: nearcast plan make --force 7. " +
      "2 items lack copies, 5 items stay until others have them.",
  );
});

function site(name: string, missing: number, changes: Partial<FillSite> = {}): FillSite {
  const one: FillAppliance = {
    appliance: `${name}-1`,
    bytes_wanted: 100e9,
    bytes_missing: missing,
    bits_per_second: 1e9,
    rate_max_bps: null,
    outside_max_bps: null,
    has_other_rules: false,
    ready_unix_s: missing ? NOW + 5_400 : null,
  };
  const open = { is_open: true, paused_until_unix_s: null, next_change_unix_s: null };
  const about = { site: name, windows: "always", by_policy: true, time_zone: "UTC" };
  return { ...about, ...open, appliances: [one], ...changes };
}

test("a site's fill says how far it is, whether it is open, and when all is there", () => {
  const facts = (of: FillSite) => plain(content.fillOf(of, NOW).facts);
  assert.equal(facts(site("s1", 0)), "100 GB of 100 GB · open");
  const closed = { is_open: false, next_change_unix_s: NOW + 3_600 };
  assert.equal(
    facts(site("s1", 40e9, closed)),
    "60.0 GB of 100 GB · closed for 1 h · in 1 h 30 min",
  );
  const paused = { paused_until_unix_s: 2 ** 53 - 1 };
  assert.equal(plain(content.stateOf(site("s1", 0, paused), NOW)), "paused");
  const stuck = site("s1", 40e9);
  stuck.appliances.forEach((one) => (one.ready_unix_s = null));
  assert.equal(facts(stuck), "60.0 GB of 100 GB · open · time not known");
  assert.equal(content.fillOf(stuck, NOW).share, 0.6);
  const silent = { ...site("s1", 0), appliances: [] };
  assert.equal(facts(silent), "not known · open");
  assert.equal(content.fillOf(silent, NOW).share, 0);
});

test("sites that lack most come first", () => {
  const sites = [site("b", 0), site("a", 0), site("c", 5)];
  const names = content.sitesOf({ sites }, NOW).map((of) => of.site);
  assert.deepEqual(names, ["c", "a", "b"]);
});

const item = (expected_bytes: number, len_bytes: number): PopularItem => {
  const rest = { item: 1, version: "film", rendition: 0, peak_bps: 0, popularity_permille: 0 };
  return { ...rest, expected_bytes, len_bytes };
};

const known: Popularity = {
  region: "-",
  regions: ["-"],
  day_unix_s: NOW,
  known_until_unix_s: NOW,
  days_known: 9,
  day_before_bytes: 0,
  cut_bytes: 0,
  expected_bytes: 100e9,
  items: 40,
  top: [item(40e9, 1e9), item(30e9, 1e9), item(10e9, 2e9)],
};

test("a curve of popularity goes from nothing to what the listed items have", () => {
  assert.deepEqual(content.curveOf(known.top, known.expected_bytes), [
    [0, 0],
    [0.25, 0.4],
    [0.5, 0.7],
    [1, 0.8],
  ]);
  assert.equal(
    plain(content.wordsOfCurve(known)),
    "Viewers will be sent 100 GB of 40 items on the next day, as 9 days before it say; half of " +
      "it of 2 items, which take 2.00 GB.",
  );
  assert.match(content.wordsOfCurve({ ...known, expected_bytes: 0 }), /^Nothing is expected/);
});

test("ways to forecast are told by what their stores would have served", () => {
  const ways = [{ name: "week_ago", off_bytes: 1, hit_bytes: [25, 50] }];
  const backtest = { days: 7, came_bytes: 100, room_bytes: [1, 2], ways };
  const [row] = content.backtestOf(backtest);
  assert.equal(row?.name, "As a week before");
  assert.deepEqual(row?.cells.map(plain), ["25 %", "50 %"]);
});
