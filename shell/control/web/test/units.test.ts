import assert from "node:assert/strict";
import { test } from "node:test";
import { bitRate, bytes, duration, percent, plural } from "../src/units";
import { position, roundUp, short, text } from "../src/units";
import { leaveAbortable, type Asked } from "../src/play/abortable";
import { Tries } from "../src/play/tries";
import { leaveFailed, note, type Playlist } from "../src/play/vhs";

const plain = (value: string) => value.replaceAll("\u00a0", " ");

test("rates and sizes have three digits and the unit that fits", () => {
  const cases: [number, string][] = [
    [0, "0 b/s"],
    [7, "7 b/s"],
    [999, "999 b/s"],
    [1_000, "1.00 kb/s"],
    [12_345, "12.3 kb/s"],
    [123_456, "123 kb/s"],
    [999_400, "999 kb/s"],
    [999_600, "1.00 Mb/s"],
    [1_420_000_000, "1.42 Gb/s"],
    [-5, "0 b/s"],
  ];
  for (const [rate, wanted] of cases) assert.equal(plain(text(bitRate(rate))), wanted);
  assert.equal(plain(text(bytes(1.92e12))), "1.92 TB");
  assert.equal(plain(short(bitRate(5e9))), "5 Gb/s");
  assert.equal(plain(short(bitRate(2.5e9))), "2.5 Gb/s");
});

test("percentages have a decimal only while they are small", () => {
  assert.deepEqual([0, 0.04, 9.9, 9.96, 50].map((share) => percent(share).value), [
    "0",
    "0.0",
    "9.9",
    "10",
    "50",
  ]);
});

test("durations use two units at most", () => {
  const cases: [number, string][] = [
    [0, "0 s"],
    [59.9, "59 s"],
    [60, "1 min"],
    [3_599, "59 min"],
    [3_600, "1 h"],
    [7_500, "2 h 5 min"],
    [90_000, "1 d 1 h"],
    [-3, "0 s"],
  ];
  for (const [seconds, wanted] of cases) assert.equal(plain(duration(seconds)), wanted);
});

test("positions in a film look like a clock", () => {
  assert.deepEqual([0, 7, 67, 599, 3_600, 3_765].map(position), [
    "0:00",
    "0:07",
    "1:07",
    "9:59",
    "1:00:00",
    "1:02:45",
  ]);
});

test("axes end at 1, 2 or 5 times a power of ten", () => {
  assert.deepEqual([0, 0.3, 1, 1.1, 4.9, 5, 51, 1e9].map(roundUp), [1, 0.5, 1, 2, 5, 5, 100, 1e9]);
});

test("one is singular", () => {
  assert.deepEqual([0, 1, 2_000].map((value) => plain(plural(value, "object"))), [
    "0 objects",
    "1 object",
    "2,000 objects",
  ]);
});

/** What is changed of VHS, with three pathways of one rendition each. */
function vhs() {
  const steering = {
    currentPathway: "a1" as string | null,
    availablePathways_: new Set(["a1", "a2", "a3"]),
    steeringManifest: { priority: ["a1", "a3", "a2"] },
    getAvailablePathways: () => steering.availablePathways_,
    didDASHTagChange: () => true,
    getPathway: () => steering.currentPathway,
    excludePathway: (pathway: string) => steering.availablePathways_.delete(pathway),
    on: (_event: string, told: () => void) => (steering.told = told),
    told: () => {},
  };
  const playlists: Playlist[] = [{}, { excludeUntil: Date.now() + 60_000 }, {}];
  const changes: (string | null)[] = [];
  const excludeThenChangePathway_ = () => void changes.push(steering.currentPathway);
  const main = () => ({ playlists });
  const loads: (string | null)[] = [];
  const load = () => void loads.push(steering.currentPathway);
  const controller = { contentSteeringController_: steering, main };
  const [tries, troubles] = [new Tries(), [] as string[]];
  const tell = (what: string) => void troubles.push(what);
  leaveFailed({ ...controller, excludeThenChangePathway_, load }, tries, tell);
  return { steering, playlists, changes, loads, tries, troubles };
}

test("video.js goes on with the next pathway of steering's list when one failed", (context) => {
  context.mock.timers.enable(["setTimeout"]);
  context.mock.method(Math, "random", () => 0);
  const { steering, changes, loads } = vhs();
  steering.excludePathway("a2");
  assert.equal(steering.currentPathway, "a1", "another one failed");
  steering.excludePathway("a1");
  assert.equal(steering.currentPathway, "a3");
  steering.excludePathway("a3");
  assert.equal(steering.currentPathway, "a3", "there is no other");
  const left = [...steering.availablePathways_];
  assert.deepEqual(left, ["a1", "a2"], "an answer of steering that finds none would end it");
  context.mock.timers.tick(499);
  assert.deepEqual([changes, loads], [[], []]);
  context.mock.timers.tick(1);
  assert.deepEqual([changes, loads], [["a1"], ["a1"]], "one that failed before is tried again");
});

test("video.js asks nobody any more when all refused it, whatever steering says", (context) => {
  context.mock.timers.enable(["setTimeout"]);
  const { steering, changes, loads, tries, troubles } = vhs();
  for (const id of ["a1", "a3", "a2"]) {
    note(tries, { uri: `https://${id}/v.mp4`, requestType: "segment" }, { statusCode: 404 });
    steering.excludePathway(id);
  }
  context.mock.timers.tick(60_000);
  steering.told();
  assert.deepEqual([changes, loads, troubles.length], [[], [], 1]);
});

test("video.js leaves renditions out for their pathway, and not for a minute", () => {
  const { steering, playlists, changes } = vhs();
  steering.told();
  const steered = { excludeUntil: Infinity, lastExcludeReason_: "content-steering" };
  assert.deepEqual(playlists, [{}, steered, {}]);
  assert.deepEqual(changes, ["a1"]);
});

test("what is done to a copy of a request is done to the request: it can be aborted", async () => {
  const copy = (asked: Asked) => {
    return { ...asked, url: "u?CMCD=1", customData: { ...asked.customData } };
  };
  const interceptors = [copy];
  leaveAbortable(interceptors);
  leaveAbortable(interceptors);
  const asked = { url: "u", customData: { request: 7 } };
  const passed = await interceptors[0]!(asked);
  assert.equal(passed, asked);
  Object.assign(passed.customData, { abort: true });
  assert.deepEqual(asked, { url: "u?CMCD=1", customData: { request: 7, abort: true } });
});
