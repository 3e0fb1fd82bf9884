// The player page: a film, who delivers it, and how well. Sets `window.nearcast` for tests.

import { byId, h, setAttribute, setText } from "../dom";
import type { Verb } from "../faults";
import { appliancesOf, get, queryOf, rest, silent, watchFleet } from "../fleet";
import type { ApplianceState, Fleet, Sight } from "../fleet";
import { learnTones } from "../palette";
import { wordsOf } from "../status/verdict";
import { duration } from "../units";
import { Delivery } from "./delivery";
import type { Engine, Segment, StartEngine } from "./engine";
import { pageUrl, PLAYERS, readParameters, type Player } from "./parameters";
import { entryUrl, newPlayback, Renewal } from "./playback";
import { bufferAhead, watchProgress } from "./progress";
import { RequestLog, type RequestRecord } from "./requests";
import { Side } from "./side";
import { Strip } from "./strip";
import { Tiles } from "./tiles";

const SHOW_MS = 250;
const WHOLE_MS = 60_000;
/** Media URLs up to the path in the asset: a token has no place on a screen. */
const MEDIA_PREFIX = /https?:\/\/[^/\s]+\/t\/[^/\s]+\/[^/\s]+\//g;
/** A failure that took this long was no refusal but silence. */
const SILENT_MS = 3_000;
/** A failed host is named once in this time, not per request. */
const NAME_AGAIN_MS = 10_000;

const DONE: Record<Verb, string> = { kill: "killed", hang: "hung", restore: "restored" };
const ENGINES: Record<Player, () => Promise<{ start: StartEngine }>> = {
  hls: () => import("./hls"),
  dash: () => import("./dash"),
  "shaka-dash": () => import("./shaka"),
  "shaka-hls": () => import("./shaka"),
  "videojs-hls": importVideojs,
  "videojs-dash": importVideojs,
};

/** The page permits no styles in its text, and needs none of video.js: the browser has controls. */
function importVideojs() {
  Object.assign(window, { VIDEOJS_NO_DYNAMIC_STYLE: true });
  return import("./videojs");
}

const parameters = readParameters(location.search);
const video = byId<HTMLVideoElement>("video");
const delivery = new Delivery();
const log = new RequestLog(onRequest);
const progress = watchProgress(video);
const strip = new Strip(byId("strip"));
const tiles = new Tiles(byId("tiles"));
const side = new Side(onFault);
const renewal = new Renewal();
const named = new Map<string, number>();
/** When this page ordered a fault, per appliance: what follows of it is no news. */
const ordered = new Map<string, number>();
const states = new Map<string, ApplianceState>();
let engine: Engine | null = null;
let fleet: Fleet | null = null;
/** All of a fleet that is told in brief each second. */
let whole: Fleet | null = null;
let isLarge = false;
let asset = parameters.asset;
let trouble: string | null = null;
let started = false;
/** An appliance gave no answer at all. */
let refused = false;
let suggested = false;
let told = false;
let renewals = 0;
/** Where this playback begins in the film, and whether it is to move as soon as it can. */
let begunAt = 0;
let willMove = false;

/** Where the film is, also while a new playback has not brought anything yet. */
const position = () => (video.readyState === 0 ? begunAt : video.currentTime);

function onFault(id: string, verb: Verb): void {
  ordered.set(id, performance.now());
  strip.mark(video.currentTime, `${id} ${DONE[verb]}`, verb !== "restore");
  side.event(video.currentTime, `${id} ${DONE[verb]} from this page`, "note");
}

function onRequest(record: RequestRecord, media: boolean): void {
  const now = performance.now();
  const entry = record.path.startsWith("/v1/play/");
  const file = media || delivery.siteOf(delivery.applianceAt(record.host)) !== null;
  if ([401, 403].includes(record.status) && (entry || file)) return onRefusal();
  if (entry && record.status >= 400) {
    return setTrouble(`Control gave no playlist. It answered ${record.status}.`);
  }
  if (!delivery.note(record, now)) return;
  const who = delivery.applianceAt(record.host);
  if (!media && delivery.siteOf(who) === null) return;
  if (now - (named.get(who) ?? -Infinity) < NAME_AGAIN_MS) return;
  named.set(who, now);
  const quick = !record.aborted && record.ms < SILENT_MS;
  const how = record.status !== 0 ? record.status : quick ? "no connection" : "no answer";
  side.event(position(), `${who} failed a request (${how})`, "bad");
  if (record.status === 0) refused = true;
}

/** This playback's time is over: a longer pause than its media URLs are good for, mostly. */
function onRefusal(): void {
  const next = renewal.refused();
  if (next === "hopeless") setTrouble("This film is refused, and so was a new playback of it.");
  // Not from within the player's own request.
  if (next === "renew") setTimeout(() => void renew(), 0);
}

function onSegment(segment: Segment): void {
  clearTrouble();
  renewal.brings();
  log.learnKind(segment.url, segment.kind);
  const { host } = log.landed(segment.url);
  const source = delivery.applianceAt(host);
  strip.add(segment, source);
  const move = delivery.arrived(segment.kind, host, performance.now());
  if (move) {
    const why = move.failed ? "after a failure" : "steered";
    const what = `${move.kind} moved from ${move.from} to ${move.to} (${why})`;
    side.event(position(), what, "note");
  }
  side.showServing(delivery);
}

/** Remembers what is wrong; it is shown where the film should be as long as that does not move. */
function setTrouble(what: string, remedy?: Node): void {
  trouble = what.replaceAll(MEDIA_PREFIX, "");
  byId("trouble").replaceChildren(h("p", {}, trouble), ...(remedy ? [remedy] : []));
}

function clearTrouble(): void {
  trouble = null;
  byId("trouble").hidden = true;
}

function showTrouble(): void {
  const moving = progress.firstFrameMs !== null && !progress.stalled;
  byId("trouble").hidden = trouble === null || moving;
}

function showWaiting(now: number): void {
  const since = progress.stalledSince;
  byId("waiting").hidden = since === null || trouble !== null;
  if (since === null) return;
  setText(byId("waiting"), `Waiting for data, ${duration((now - since) / 1000)}`);
}

/** A person's own browser does not know the demo's certificates. */
function suggestPlain(): void {
  if (!refused || suggested || parameters.plain || !fleet) return;
  if (progress.firstFrameMs !== null) return;
  if (!appliancesOf(fleet).some(({ report }) => report?.plain_url)) return;
  suggested = true;
  const href = pageUrl({ ...parameters, asset, plain: true });
  const link = h("a", { class: "button", href }, "Play over plain HTTP");
  setTrouble("This browser may not trust the demo's certificates.", link);
}

/** Tells the demo, which prints it, how long a person waited for the first frame. Once. */
function tellFirstFrame(): void {
  const controls = fleet?.demo_controls;
  const ms = progress.firstFrameMs;
  if (told || ms === null || !controls) return;
  told = true;
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ ms });
  // Nobody waits for the answer, and a demo that has ended needs no telling.
  fetch(`${controls}/first-frame`, { method: "POST", headers, body }).catch(() => {});
}

async function play(): Promise<void> {
  willMove = false;
  try {
    await video.play();
  } catch (error) {
    if (!(error instanceof DOMException) || error.name !== "NotAllowedError") return;
    video.muted = true;
    byId("unmute").hidden = false;
    await video.play().catch(() => {});
  }
}

async function start(name: string): Promise<void> {
  started = true;
  asset = name;
  setText(byId("title"), name);
  document.title = `${name} · Nearcast`;
  await begin(name, () => [0, true]);
}

/** Goes on with a new playback where the last one stands by then; still paused if it is. */
async function renew(): Promise<void> {
  side.event(position(), "this playback's time was over: a new one goes on", "note");
  renewals += 1;
  await begin(asset ?? "", () => [position(), willMove || !video.paused]);
}

/** The last player keeps what it has until there is a playback for the next one. */
async function begin(name: string, where: () => [at: number, moving: boolean]): Promise<void> {
  const forget = new AbortController();
  try {
    const { start: startEngine } = await ENGINES[parameters.player]();
    const playback = await newPlayback(name, setTrouble);
    const url = new URL(entryUrl(playback, parameters), location.href).href;
    const [at, moving] = [begunAt, willMove] = where();
    await engine?.end();
    engine = null;
    if (moving) {
      const once = { once: true, signal: forget.signal };
      video.addEventListener("loadeddata", () => void play(), once);
    }
    const events = { segment: onSegment, trouble: (what: string) => trouble ?? setTrouble(what) };
    renewal.begins();
    const { events_url } = playback;
    const { buffer_s } = parameters;
    engine = startEngine({ video, url, start_s: at, buffer_s, events_url, events });
    Object.assign(nearcast, { player: engine.name, version: engine.version });
  } catch (error) {
    forget.abort();
    setTrouble(error instanceof Error ? error.message : String(error));
  }
}

/** Marks where an appliance that serves this film was lost, or came back, in control's eyes. */
function noteStates(now: Fleet, served: Record<string, number>): void {
  const time = performance.now();
  for (const { id, state } of appliancesOf(now)) {
    const before = states.get(id);
    states.set(id, state);
    const news = before !== undefined && before !== state && (served[id] ?? 0) > 0;
    if (!news || time - (ordered.get(id) ?? -Infinity) < NAME_AGAIN_MS) continue;
    const bad = state !== "healthy";
    strip.mark(video.currentTime, `${id} ${wordsOf(state)}`, bad);
    side.event(video.currentTime, `control calls ${id} ${wordsOf(state)}`, "note");
  }
}

function showChoices(now: Fleet): void {
  const select = byId<HTMLSelectElement>("asset");
  const ids = now.assets.map(({ id }) => id);
  byId("asset-choice").hidden = ids.length < 2;
  const shown = [...select.options].map(({ value }) => value).join("\n");
  if (shown !== ids.join("\n")) {
    select.replaceChildren(...ids.map((id) => h("option", { value: id }, id)));
  }
  if (asset && document.activeElement !== select) select.value = asset;
}

function linkPlayers(): void {
  const players = Object.keys(PLAYERS) as Player[];
  const links = players.map((player) => {
    const href = pageUrl({ ...parameters, asset, player });
    const here = parameters.player === player ? "true" : undefined;
    return h("a", { href, "aria-current": here }, PLAYERS[player].label);
  });
  byId("player-choice").replaceChildren(...links);
}

/** Of a large fleet the names and states of all are asked for once a minute, and not a second. */
async function watchWhole(): Promise<never> {
  for (;;) {
    whole = (await get<Fleet>("/v1/fleet")) ?? whole;
    await rest(WHOLE_MS);
  }
}

function onSight(sight: Sight): void {
  const fresh = sight.fleet !== null && !silent(sight);
  setAttribute(byId("freshness"), "data-live", fresh ? "yes" : "no");
  setText(byId("freshness-text"), fresh ? "live" : "control is silent");
  if (!sight.fleet) return;
  if (sight.fleet.brief && !isLarge) void watchWhole();
  isLarge ||= sight.fleet.brief ?? false;
  fleet = isLarge && whole ? whole : sight.fleet;
  learnTones(appliancesOf(fleet).map(({ id }) => id));
  delivery.learn(fleet);
  const served = delivery.bytesByAppliance(log.bytesByHost());
  noteStates(fleet, served);
  side.showSources(fleet, served);
  side.showServing(delivery);
  showChoices(fleet);
  if (started) return;
  const first = fleet.assets[0]?.id;
  if (!first) {
    const what = "There is nothing to play yet: bring in a film with nearcast ingest.";
    if (trouble !== what) setTrouble(what);
    return;
  }
  clearTrouble();
  void start(first).then(linkPlayers);
}

function show(): void {
  const now = performance.now();
  suggestPlain();
  tellFirstFrame();
  showTrouble();
  showWaiting(now);
  strip.show(video.currentTime, video.duration);
  tiles.update({
    buffer_s: bufferAhead(video),
    buffer_max_s: parameters.buffer_s,
    rendition: engine?.rendition() ?? null,
    stalls: progress.stalls,
    stall_ms: progress.stallMs(now),
    moves: delivery.moves,
    failovers: delivery.failovers,
    first_frame_ms: progress.firstFrameMs,
  });
}

const nearcast = {
  player: PLAYERS[parameters.player].label as string,
  version: "",
  state: () => ({
    asset,
    paused: video.paused,
    ended: video.ended,
    muted: video.muted,
    stalled: progress.stalled,
    serving: { video: delivery.servingNow("video"), audio: delivery.servingNow("audio") },
    rendition: engine?.rendition() ?? null,
    moves: delivery.moves,
    failovers: delivery.failovers,
    renewals,
    trouble,
  }),
  metrics: () => ({
    played_s: progress.playedS,
    stalls: progress.stalls,
    stall_ms: progress.stallMs(performance.now()),
    buffer_s: bufferAhead(video),
    first_frame_ms: progress.firstFrameMs,
    current_time: video.currentTime,
    bytes_by_appliance: delivery.bytesByAppliance(log.bytesByHost()),
    requests: log.records(),
  }),
};
Object.assign(window, { nearcast });

byId("unmute").addEventListener("click", () => {
  video.muted = false;
  byId("unmute").hidden = true;
});
video.addEventListener("volumechange", () => {
  if (!video.muted) byId("unmute").hidden = true;
});
byId<HTMLSelectElement>("asset").addEventListener("change", ({ target }) => {
  const chosen = (target as HTMLSelectElement).value;
  location.href = pageUrl({ ...parameters, asset: chosen });
});

log.watch();
linkPlayers();
void watchFleet(queryOf(null), onSight);
setInterval(show, SHOW_MS);
show();
if (asset) void start(asset);
