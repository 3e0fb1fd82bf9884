import assert from "node:assert/strict";
import { test } from "node:test";
import { query, withoutWords, withQuery } from "../src/play/cmcd";
import { Delivery } from "../src/play/delivery";
import { pageUrl, readParameters } from "../src/play/parameters";
import { entryUrl, Renewal } from "../src/play/playback";
import { Progress, type Playable } from "../src/play/progress";
import type { RequestRecord } from "../src/play/requests";
import { Delays, Tries } from "../src/play/tries";
import { appliance, fleet } from "./support";

const playing = (currentTime: number, changes: Partial<Playable> = {}): Playable => {
  return { currentTime, paused: false, ended: false, seeking: false, ...changes };
};

/** Samples every 50 ms from 1,000 ms on; `at` gives the video for each. */
function run(milliseconds: number, at: (t: number) => Playable): Progress {
  const progress = new Progress();
  progress.firstFrame(1_000, at(0));
  for (let t = 50; t <= milliseconds; t += 50) progress.sample(1_000 + t, at(t));
  return progress;
}

test("a player's words stand in its address, and out of it again", () => {
  const words = query({
    sid: "x",
    format: "hls",
    object: { video: true, duration_s: 4.004 },
    buffer_s: 21.34,
    bits_per_second: 3_200_400,
    measured_bits_per_second: 48_123_000,
    waits: true,
    starved: true,
  });
  const said = 'bl=21300,br=3200,bs,d=4004,mtp=48100,ot=v,sf=h,sid="x",su';
  assert.equal(decodeURIComponent(words), `CMCD=${said}`);
  for (const url of ["https://a/t/x/v.mp4", "https://a/t/x/v.mp4?a=b%20c&d"]) {
    assert.equal(withoutWords(new URL(withQuery(url, words))).href, url);
  }
});

test("a film that moves has no stall, and its time is counted", () => {
  const progress = run(10_000, (t) => playing(t / 1_000));
  assert.equal(progress.stalls, 0);
  assert.ok(Math.abs(progress.playedS - 10) < 1e-6);
});

test("450 ms without progress is a stall, 400 are not", () => {
  assert.equal(run(2_000, (t) => playing(Math.min(t, 1_600) / 1_000)).stalls, 0);
  const stalled = run(2_000, (t) => playing(Math.min(t, 1_500) / 1_000));
  assert.equal(stalled.stalls, 1);
  assert.equal(stalled.stalled, true);
  assert.equal(stalled.stallMs(3_000), 500);
});

test("a stall counts once, however long, and ends when the film moves", () => {
  const at = (t: number) => (t < 2_000 ? t : Math.max(2_000, t - 5_000)) / 1_000;
  const progress = run(9_000, (t) => playing(at(t)));
  assert.equal(progress.stalls, 1);
  assert.equal(progress.stalled, false);
  assert.ok(Math.abs(progress.stallMs(10_000) - 5_100) < 101, `${progress.stallMs(10_000)}`);
});

test("standing still on purpose is no stall", () => {
  for (const why of [{ paused: true }, { ended: true }, { seeking: true }]) {
    assert.equal(run(5_000, () => playing(3, why)).stalls, 0);
  }
});

test("a busy main thread is no stall if the film moved meanwhile", () => {
  const progress = new Progress();
  progress.firstFrame(0, playing(0));
  progress.sample(50, playing(0.05));
  progress.sample(950, playing(0.95));
  assert.equal(progress.stalls, 0);
});

test("a film that begins anew and is resumed where it was has not played in between", () => {
  const progress = new Progress();
  progress.firstFrame(0, playing(0));
  for (const [at, time] of [[50, 0.05], [100, 0.1], [150, 0], [200, 12], [250, 12.05]] as const) {
    progress.sample(at, playing(time));
  }
  assert.ok(Math.abs(progress.playedS - 0.15) < 1e-6, `${progress.playedS}`);
});

test("before the first frame nothing is a stall", () => {
  const progress = new Progress();
  for (let t = 0; t < 5_000; t += 50) progress.sample(t, playing(0));
  assert.equal(progress.stalls, 0);
});

const failed = (host: string, changes: Partial<RequestRecord> = {}): RequestRecord => ({
  t_ms: 0,
  host,
  path: "r0.mp4",
  range: null,
  status: 0,
  bytes: 0,
  ms: 10,
  first_byte_ms: null,
  kind: "video",
  aborted: false,
  ...changes,
});

test("a move after a failure is a fail-over, any other is not", () => {
  const delivery = new Delivery();
  delivery.learn(fleet([appliance("a1"), appliance("a2"), appliance("a3")]));
  assert.equal(delivery.arrived("video", "a1.example:8443", 0), null);
  assert.equal(delivery.note(failed("a1.example:8443"), 1_000), true);
  const move = delivery.arrived("video", "a2.example:8443", 2_000);
  assert.deepEqual(move, { kind: "video", from: "a1", to: "a2", failed: true });
  const steered = delivery.arrived("video", "a3.example:8443", 3_000);
  assert.equal(steered?.failed, false);
  assert.deepEqual([delivery.moves, delivery.failovers], [2, 1]);
});

test("sound moves are told but not counted twice", () => {
  const delivery = new Delivery();
  delivery.arrived("audio", "x:1", 0);
  assert.equal(delivery.arrived("audio", "y:1", 1)?.kind, "audio");
  assert.equal(delivery.moves, 0);
});

test("giving up on a silent server is a failure, changing the mind is not", () => {
  const delivery = new Delivery();
  assert.equal(delivery.note(failed("x:1", { aborted: true, ms: 10_000 }), 0), true);
  assert.equal(delivery.note(failed("x:1", { aborted: true, ms: 200 }), 0), false);
  assert.equal(delivery.note(failed("x:1", { status: 404 }), 0), true);
  assert.equal(delivery.note(failed("x:1", { status: 206, bytes: 10 }), 0), false);
});

test("bytes of both listeners are one appliance's", () => {
  const delivery = new Delivery();
  const one = appliance("a1");
  if (one.report) one.report.plain_url = "http://a1.example:8480";
  delivery.learn(fleet([one]));
  const sums = new Map([["a1.example:8443", 5], ["a1.example:8480", 7], ["elsewhere:1", 1]]);
  assert.deepEqual(delivery.bytesByAppliance(sums), { a1: 12, "elsewhere:1": 1 });
});

test("the address says what to play, and nonsense is ignored", () => {
  const asked = readParameters("?asset=my%20film&player=dash&plain=1&buffer=12");
  assert.deepEqual(asked, { asset: "my film", player: "dash", plain: true, buffer_s: 12 });
  const nothing = { asset: null, player: "hls", plain: false, buffer_s: null };
  assert.deepEqual(readParameters("?player=vlc&plain=yes&buffer=-3"), nothing);
  assert.deepEqual(readParameters("?asset=&buffer=NaN"), nothing);
  assert.equal(readParameters("?buffer=1e9").buffer_s, 600);
});

test("addresses lead back to the same parameters", () => {
  const parameters = { asset: "a&b", player: "dash" as const, plain: true, buffer_s: 12 };
  const [, query = ""] = pageUrl(parameters).split("?");
  assert.deepEqual(readParameters(`?${query}`), parameters);
});

test("a player begins where the playback says", () => {
  const events_url = "https://c/events/v1/x";
  const playback = { hls_url: "/v1/play/film.m3u8?grant=x", dash_url: null, events_url };
  const hls = readParameters("?asset=film");
  assert.equal(entryUrl(playback, hls), "/v1/play/film.m3u8?grant=x");
  assert.equal(entryUrl(playback, { ...hls, plain: true }), "/v1/play/film.m3u8?grant=x&plain=1");
  assert.throws(() => entryUrl(playback, { ...hls, player: "dash" }), /no DASH entry manifest/);
});

test("a playback that brought something is renewed once, and one that did not never", () => {
  const renewal = new Renewal();
  renewal.begins();
  assert.equal(renewal.refused(), "hopeless");
  renewal.brings();
  assert.equal(renewal.refused(), "renew");
  assert.equal(renewal.refused(), "wait");
  renewal.brings();
  assert.equal(renewal.refused(), "wait");
  renewal.begins();
  assert.equal(renewal.refused(), "hopeless");
});

test("tries are 0.5 s to 8 s apart and up to half more by chance, 0.5 s after success", () => {
  const delays = new Delays();
  const next = (length: number, chance: number) =>
    Array.from({ length }, () => delays.next(chance));
  assert.deepEqual(next(6, 0), [500, 1_000, 2_000, 4_000, 8_000, 8_000]);
  assert.deepEqual(next(1, 1), [12_000]);
  delays.reset();
  assert.deepEqual(next(2, 1), [750, 1_500]);
});

test("asking again is vain once the last answer of all was a refusal", (context) => {
  context.mock.timers.enable(["setTimeout"]);
  context.mock.method(Math, "random", () => 0);
  const tries = new Tries();
  let asked = 0;
  const again = () => tries.again(() => (asked += 1), 2);
  const [a, b] = ["https://a/t/x/v.mp4", "https://b/t/x/v.mp4"];
  assert.equal(again(), true, "nothing is known");
  tries.failedAt(a, 404);
  assert.equal(again(), true, "only one of two was asked");
  context.mock.timers.tick(500);
  assert.equal(asked, 1, "one try at a time");
  tries.failedAt(b, 0);
  assert.equal(again(), true, "one gave no answer");
  context.mock.timers.tick(999);
  assert.equal(asked, 1);
  context.mock.timers.tick(1);
  assert.equal(asked, 2);
  tries.came(b);
  tries.failedAt(b, 503);
  assert.equal(again(), true);
  context.mock.timers.tick(500);
  assert.equal(asked, 3, "soon again after a segment");
  tries.failedAt(b, 410);
  assert.equal(again(), false);
  context.mock.timers.tick(60_000);
  assert.equal(asked, 3);
});
