// Plays a film in Chromium while the appliance that serves it is killed, and later hung, and checks
// every byte the page was given against the origin's files. For one player; run it once per player.
//
//   node selftest.mjs '{"control_url": "http://127.0.0.1:8080", "controls_url": "http://…",
//     "asset": "film", "origin_dir": "DIR", "spki": "BASE64", "chromium": "/usr/bin/chromium",
//     "player": "hls.js", "buffer_s": 12, "plain": false, "screenshots_dir": "DIR"}'
//
// or the same JSON on stdin: better with `token`, a viewer's API token, which control asks for
// unless it is open. `spki`, `chromium`, `buffer_s`, `plain` and `screenshots_dir` may be
// left out, and so may `before_kill_s` (15) and `after_kill_s` (31). With `any_server` a sibling
// may answer by the address of the one that was killed: its bytes count. Without `planned` no site
// is brought near and no appliance stopped by plan, where nobody takes such orders. Progress goes
// to stderr; the last line of stdout is one JSON object. Exit code 0 means that the run was valid,
// not that its figures are good: the caller judges those. On an invalid run that object has an
// "error".
//
// How the figures come about (times in ms, all on this machine's clock):
//   failover_ms   from just before the kill order is sent, until each lane (video, audio) that the
//                 killed appliance was serving had the first byte of a media body from another
//                 appliance, of a request sent after that moment
//   failover_first_ms  the same, until the first such lane had
//   steering_ms   from just before another site was made the viewer's, until each lane had such a
//                 byte from an appliance of that site
//   stop_ms       from just before the serving appliance was told to stop, until each lane had such
//                 a byte from another
//   hang_failover_ms   from just before the hang, until each lane that the hung appliance was
//                 serving had such a byte from whichever appliance, also from the process that
//                 comes after the one that hung
//   stalls        the film stood still for 450 ms or more while it should have played, from the
//                 first frame until the hang; counted by the witness, not by the page
//   hang.stalls   the same after the hang, until more was played than was buffered when it came
//   wrong_bytes   bytes of all complete answers that differ from the origin's file at the place
//                 asked for, or have another length; answers cut short are failures, not wrong;
//                 null when some were not looked at

import { readFileSync, mkdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { openChromium } from "./lib/chromium.mjs";
import { Fleet } from "./lib/fleet.mjs";
import { Ledger, pathOf } from "./lib/ledger.mjs";
import { Traffic } from "./lib/traffic.mjs";
import { witness } from "./lib/witness.mjs";

const PLAYERS = {
  "hls.js": "hls",
  "dash.js": "dash",
  Shaka: "shaka-dash",
  "video.js": "videojs-hls",
  "Shaka, HLS": "shaka-hls",
  "video.js, DASH": "videojs-dash",
};
const DEFAULTS = {
  buffer_s: 12,
  plain: false,
  planned: true,
  before_kill_s: 15,
  after_kill_s: 31,
};
const LOGIN_WITHIN_MS = 15_000;
const FIRST_FRAME_WITHIN_MS = 30_000;
const BEFORE_KILL_WITHIN_MS = 60_000;
/** With trouble on the page, and no frame yet, not waited for longer. */
const TROUBLE_MS = 8_000;
/** Playing that long after the kill may take this much longer than it lasts, if it stalls. */
const AFTER_KILL_WITHIN_MS = 90_000;
const HEALTHY_WITHIN_MS = 30_000;
const MOVE_WITHIN_MS = 45_000;
/** Played on after a move, to see whether it lasts. */
const AFTER_MOVE_S = 5;
/** Playing on may take this much longer than it lasts, if it stalls. */
const AFTER_MOVE_WITHIN_MS = 45_000;
/** At the end, for answers that are under way. Players give up on one after 10 s. */
const UNDER_WAY_MS = 15_000;
/** A hang is only tried with this much of the film left. */
const HANG_NEEDS_S = 25;
/** Requests that are told when a player did not go on. */
const TOLD_MAX = 40;
/** Who served in this time before a fault is serving when it comes. */
const SERVING_MS = 12_000;

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const wall = () => performance.timeOrigin + performance.now();
const round = (value, places = 0) => Number(value.toFixed(places));
const messageOf = (error) => (error instanceof Error ? error.message : String(error));
const say = (text) => console.error(`selftest: ${text}`);

/** One film in one page, with all that is needed to watch it. */
class Viewing {
  constructor(options, page, fleet, ledger) {
    Object.assign(this, { options, page, fleet, ledger });
  }

  film() {
    return this.page.evaluate(() => {
      const video = document.querySelector("video");
      const { firstFrame, played, stalls, ended } = window.nearcastFilm;
      const left = video.duration - video.currentTime;
      const broken = video.error?.message ?? null;
      return { firstFrame, played, stalls, ended, left, broken };
    });
  }

  metrics() {
    return this.page.evaluate(() => window.nearcast.metrics());
  }

  /** Asks four times a second until `done` says so; false when the time is over. */
  async until(withinMs, done) {
    const end = performance.now() + withinMs;
    while (performance.now() < end) {
      if (await done()) return true;
      await wait(250);
    }
    return false;
  }

  /** Plays until so much was played since, or the film is over. */
  playedOn(since, seconds, withinMs) {
    return this.until(withinMs, async () => {
      const { played, ended, broken } = await this.film();
      return ended || broken !== null || played - since >= seconds;
    });
  }

  /** Appliance that the latest piece of film came from, and the lanes it serves. */
  async serving() {
    const hosts = await this.fleet.hosts();
    const since = wall() - SERVING_MS;
    const lanes = await this.lanes();
    const latest = new Map();
    const whole = this.ledger.media().filter(({ outcome, status, doneAt }) => {
      return outcome === "body" && status < 300 && doneAt >= since;
    });
    for (const { url } of whole.sort((a, b) => a.doneAt - b.doneAt)) {
      const { host } = new URL(url);
      if (!hosts.has(host)) throw new Error(`media came from ${host}, which is no appliance's`);
      latest.set(lanes(url), hosts.get(host));
    }
    // What no player named (say, the head of a file that it never played from) is no lane.
    if (latest.size > 1) latest.delete("other");
    const id = latest.get("video") ?? latest.get("audio") ?? latest.get("other");
    if (!id) throw new Error(`no film came in the last ${SERVING_MS / 1000} s`);
    const served = [...latest].filter(([, by]) => by === id).map(([lane]) => lane);
    return { id, lanes: served, hosts };
  }

  /** Which lane a media URL belongs to; only the player knows. */
  async lanes() {
    const { requests } = await this.metrics();
    const known = new Map(requests.map(({ path, kind }) => [path, kind]));
    return (url) => known.get(new URL(url).pathname.split("/").slice(4).join("/")) ?? "other";
  }

  /**
   * First bytes after `since` from appliances that are `asked`, over the lanes: {first, all} in ms;
   * null: none.
   */
  async moved({ lanes, hosts }, since, asked) {
    const laneOf = await this.lanes();
    const times = lanes.map((lane) => {
      const isMeant = (host, path) =>
        asked(hosts.get(host)) && laneOf(`http://any/t/t/v/${encodeURI(path)}`) === lane;
      return this.ledger.firstByte(since, isMeant);
    });
    const came = times.filter((time) => time !== null);
    return {
      first: came.length ? Math.min(...came) - since : null,
      all: came.length && came.length === times.length ? Math.max(...came) - since : null,
    };
  }

  /** Says what was asked for since, and what the page told its viewer. */
  async tell(since) {
    const hosts = await this.fleet.hosts();
    for (const { url, sent, byteAt, doneAt, outcome } of this.ledger.sentSince(since, TOLD_MAX)) {
      const [at, byte, done] = [sent, byteAt, doneAt].map((time) => time && round(time - since));
      const { host } = new URL(url);
      const who = hosts.get(host) ?? host;
      say(`  ${at} ms: ${who} ${pathOf(url)}, byte ${byte}, ${outcome ?? "under way"} ${done}`);
    }
    const events = this.page.locator("#events");
    say(`the page says: ${(await events.innerText()).replaceAll("\n", " | ")}`);
  }

  async shoot(name) {
    const { screenshots_dir: dir, player } = this.options;
    if (!dir) return;
    mkdirSync(dir, { recursive: true });
    await this.page.screenshot({ path: path.join(dir, `${player}-${name}.png`) });
  }
}

/** Stalls that began in [from, to), and the time lost to them until `now`. */
export function stallsBetween(stalls, from, to, now) {
  const inside = stalls.filter((stall) => from <= stall.from && stall.from < to);
  const lost = inside.reduce((sum, stall) => sum + (stall.to ?? now) - stall.from, 0);
  return { stalls: inside.length, stall_ms: round(lost) };
}

async function playUntilFirstFrame(viewing) {
  const started = performance.now();
  let trouble = null;
  let came = false;
  await viewing.until(FIRST_FRAME_WITHIN_MS, async () => {
    came = (await viewing.film()).firstFrame !== null;
    ({ trouble } = await viewing.page.evaluate(() => window.nearcast.state()));
    const hopeless = trouble !== null && performance.now() - started > TROUBLE_MS;
    return came || hopeless;
  });
  if (came) return;
  const waited = round((performance.now() - started) / 1000);
  throw new Error(`no frame within ${waited} s: ${trouble ?? "the page does not say why"}`);
}

/** Plays until so much was played; without that a run has nothing to say. */
async function playOn(viewing, seconds) {
  let film = await viewing.film();
  await viewing.until(BEFORE_KILL_WITHIN_MS, async () => {
    film = await viewing.film();
    return film.broken !== null || film.played >= seconds;
  });
  if (film.broken !== null) throw new Error(`the film broke before any fault: ${film.broken}`);
  if (film.played < seconds) {
    const within = `${BEFORE_KILL_WITHIN_MS / 1000} s`;
    throw new Error(`${round(film.played, 1)} of ${seconds} s were played within ${within}`);
  }
}

/** Plays, kills who serves, plays on. */
async function killPhase(viewing) {
  const { fleet, options } = viewing;
  await playOn(viewing, options.before_kill_s);
  const target = await viewing.serving();
  const { buffer_s: buffer, first_frame_ms: firstFrame } = await viewing.metrics();
  await viewing.shoot("playing");
  const before = await viewing.film();
  const killed = wall();
  await fleet.order(target.id, "kill");
  say(`killed ${target.id} (${target.lanes.join(", ")}) with ${round(buffer, 1)} s of buffer`);
  await viewing.playedOn(before.played, options.after_kill_s, AFTER_KILL_WITHIN_MS);
  const after = await viewing.film();
  const isMeant = (id) => options.any_server || id !== target.id;
  const moved = await viewing.moved(target, killed, isMeant);
  await viewing.shoot("after-kill");
  say(`failed over in ${moved.all === null ? "no" : round(moved.all)} ms`);
  await fleet.order(target.id, "restore");
  const restored = await fleet.healthy(target.id, HEALTHY_WITHIN_MS);
  say(`${target.id} healthy again ${round(restored)} ms after its restore`);
  return {
    killed: target.id,
    first_frame_ms: round(firstFrame),
    buffer_s_at_kill: round(buffer, 2),
    played_after_kill_s: round(after.played - before.played, 2),
    failover_ms: moved.all === null ? null : round(moved.all),
    failover_first_ms: moved.first === null ? null : round(moved.first),
    restore_ms: round(restored),
  };
}

/**
 * Gives `order` for the appliance that serves now, waits until each lane has bytes of an appliance
 * that `isMeant`, and plays on a little; with `outlasts`, until more was played than was buffered.
 */
async function moveBy(viewing, target, order, isMeant, outlasts = false) {
  const { buffer_s: buffer } = await viewing.metrics();
  const before = await viewing.film();
  const at = wall();
  await order();
  let moved = { first: null, all: null };
  await viewing.until(MOVE_WITHIN_MS, async () => {
    moved = await viewing.moved(target, at, isMeant);
    return moved.all !== null || (await viewing.film()).ended;
  });
  // What was in the buffer plays whatever happens.
  const from = outlasts ? before : await viewing.film();
  const seconds = AFTER_MOVE_S + (outlasts ? buffer : 0);
  if (moved.all !== null) await viewing.playedOn(from.played, seconds, AFTER_MOVE_WITHIN_MS);
  const { stalls, played: until } = await viewing.film();
  say(moved.all === null ? "nobody went on" : `gone on in ${round(moved.all)} ms`);
  if (moved.all === null) await viewing.tell(at);
  return {
    at,
    figures: {
      appliance: target.id,
      lanes: target.lanes,
      buffer_s: round(buffer, 2),
      played_on_s: round(until - before.played, 2),
      ...stallsBetween(stalls, at, Infinity, wall()),
      moved: moved.first !== null,
      first_ms: moved.first === null ? null : round(moved.first),
      all_ms: moved.all === null ? null : round(moved.all),
    },
  };
}

/** Brings another site near the viewer, stops who serves there by plan, and undoes both. */
async function plannedPhase(viewing) {
  const { fleet } = viewing;
  const sites = await fleet.sites();
  const before = await viewing.serving();
  const home = sites.get(before.id);
  const [other, site] = [...sites].find(([, site]) => site !== home) ?? [];
  if (!other) throw new Error("all appliances are at one site: nowhere to steer to");
  say(`steers from ${before.id} to site ${site}`);
  const near = () => fleet.order(other, "near");
  const { figures: steering } = await moveBy(viewing, before, near, (id) => sites.get(id) === site);
  const target = await viewing.serving();
  say(`stops ${target.id} by plan`);
  const order = () => fleet.order(target.id, "stop");
  const { figures: stop } = await moveBy(viewing, target, order, (id) => id !== target.id);
  await fleet.order(target.id, "restore");
  await fleet.healthy(target.id, HEALTHY_WITHIN_MS);
  await fleet.order(before.id, "near");
  return { steering_ms: steering.all_ms, steering, stop_ms: stop.all_ms, stop };
}

/** Stops the process that serves now, without ending it, and waits until the film is served. */
async function hangPhase(viewing) {
  const { fleet } = viewing;
  const start = await viewing.film();
  if (start.ended || start.left < HANG_NEEDS_S) {
    const why = `only ${round(start.left, 1)} s of the film were left`;
    return { hung: wall(), figures: { tried: false, why, stalls: 0, stall_ms: 0, moved: false } };
  }
  const target = await viewing.serving();
  say(`hangs ${target.id} (${target.lanes.join(", ")})`);
  const order = () => fleet.order(target.id, "hang");
  const { at: hung, figures } = await moveBy(viewing, target, order, () => true, true);
  await viewing.shoot("after-hang");
  await fleet.order(target.id, "restore");
  await fleet.healthy(target.id, HEALTHY_WITHIN_MS);
  return { hung, figures: { tried: true, ...figures } };
}

/** Media bytes by appliance, as the witness counted them. */
async function bytesByAppliance(viewing) {
  const hosts = await viewing.fleet.hosts();
  const sums = {};
  for (const [host, bytes] of viewing.ledger.bytesByHost()) {
    const id = hosts.get(host) ?? host;
    sums[id] = (sums[id] ?? 0) + bytes;
  }
  return sums;
}

/** Why figures cannot be believed; null if they can. */
export function whyInvalid({ checked_responses: checked, unchecked_responses: escaped }) {
  if (checked === 0) return "no response was checked";
  if (escaped > 0) return `${escaped} responses escaped the check`;
  return null;
}

/** A page with the witness in it, and what Chromium itself says of it. */
async function openPage(browser, ledger) {
  const page = browser.pages()[0] ?? (await browser.newPage());
  const seen = { traffic: new Traffic(page), errors: [] };
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  await page.exposeFunction("nearcastTell", (message) => ledger.hear(message));
  await page.addInitScript(witness);
  return { page, seen };
}

/** What the checker found so far. */
function findings(ledger, seen) {
  return {
    wrong_bytes: ledger.wrongBytes,
    checked_responses: ledger.checkedResponses,
    checked_bytes: ledger.checkedBytes,
    unchecked_responses: seen.traffic.unchecked(ledger),
    status_errors: ledger.statusErrors,
    sent_on: seen.traffic.sentOn,
    faults: ledger.faults,
    page_errors: seen.errors.slice(0, 5),
  };
}

async function measure(options, browser, fleet, ledger) {
  const { page, seen } = await openPage(browser, ledger);
  const query = new URLSearchParams({
    asset: options.asset,
    player: PLAYERS[options.player],
    buffer: String(options.buffer_s),
    ...(options.plain ? { plain: "1" } : {}),
  });
  const viewing = new Viewing(options, page, fleet, ledger);
  // The address logs the page in, as the one that the demo prints does.
  const login = options.token ? `/login#${options.token}` : "";
  await page.goto(`${fleet.controlUrl}${login}/play?${query}`);
  const isThere = ({ pathname }) => pathname === "/play";
  await page.waitForURL(isThere, { timeout: LOGIN_WITHIN_MS });
  await playUntilFirstFrame(viewing);
  const version = await page.evaluate(() => window.nearcast.version);
  const kill = await killPhase(viewing);
  say(`${options.player} ${version}: first frame after ${kill.first_frame_ms} ms`);
  const planned = options.planned ? await plannedPhase(viewing) : {};
  const { hung, figures: hang } = await hangPhase(viewing);
  const film = await viewing.film();
  const { stalls, stall_ms: stallMs } = stallsBetween(film.stalls, 0, hung, wall());
  const isOver = await seen.traffic.close(page, ledger, UNDER_WAY_MS);
  if (!isOver) say(`after ${UNDER_WAY_MS / 1000} s some requests still had no end`);
  const result = {
    name: options.player,
    version,
    played_s: round(film.played, 2),
    ...kill,
    ...planned,
    stalls,
    stall_ms: stallMs,
    bytes_by_appliance: await bytesByAppliance(viewing),
    hang_failover_ms: hang.all_ms ?? null,
    hang,
    ...findings(ledger, seen),
  };
  const error = whyInvalid(result);
  if (!error) return result;
  // What was not looked at may be wrong: no zero for that.
  return { ...result, wrong_bytes: result.wrong_bytes || null, error };
}

function readOptions() {
  const text = process.argv[2] ?? readFileSync(0, "utf8");
  const options = { ...DEFAULTS, ...JSON.parse(text) };
  const needed = ["control_url", "controls_url", "asset", "origin_dir", "player"];
  const missing = needed.filter((key) => !options[key]);
  if (missing.length) throw new Error(`missing in the options: ${missing.join(", ")}`);
  const known = Object.keys(PLAYERS).join("; ");
  if (!PLAYERS[options.player]) throw new Error(`no player "${options.player}": ${known}`);
  return options;
}

/**
 * Runs one viewing from options to result; always mends the fleet and ends Chromium. A result with
 * an "error" is not valid, but says what was found until then.
 */
export async function selftest(given) {
  const options = { ...DEFAULTS, ...given };
  const { control_url: control, controls_url: controls, token } = options;
  const fleet = new Fleet(control, controls, token);
  const ledger = new Ledger(options.origin_dir);
  const { browser, close } = await openChromium({
    executable: options.chromium,
    spki: options.spki,
    viewport: { width: 1280, height: 900 },
  });
  try {
    return await measure(options, browser, fleet, ledger);
  } catch (error) {
    const { wrongBytes: wrong_bytes, checkedResponses: checked_responses, faults } = ledger;
    const found = { wrong_bytes: wrong_bytes || null, checked_responses, faults };
    return { name: options.player, error: messageOf(error), ...found };
  } finally {
    await close();
    await fleet.mend();
  }
}

async function main() {
  let result;
  try {
    result = await selftest(readOptions());
  } catch (error) {
    result = { name: "unknown", error: messageOf(error) };
  }
  if (result.error) say(`not valid: ${result.error}`);
  console.log(JSON.stringify(result));
  process.exitCode = result.error ? 1 : 0;
}

if (fileURLToPath(import.meta.url) === process.argv[1]) await main();
