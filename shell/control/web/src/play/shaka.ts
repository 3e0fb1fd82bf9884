// Shaka Player with its defaults, but for the buffer cap and its tries of what cannot be had. It
// plays HLS and DASH.

import shaka from "shaka-player";
import { EVENTS, EVERY_S } from "./cmcd";
import { rungOf, type Engine, type EngineOptions } from "./engine";
import { REFUSED, Tries } from "./tries";

/**
 * All that appliances read, and not `nor`, the next URL: for a minute Shaka leaves all appliances
 * that stand in a URL that failed, so those of its next URL, too.
 */
const SAID = "bl br bs cid d mtp ot pr rtp sf sid su tb v".split(" ");

export function start(options: EngineOptions): Engine {
  const { video, url, start_s, buffer_s, events_url, events } = options;
  shaka.polyfill.installAll();
  if (!shaka.Player.isBrowserSupported()) {
    throw new Error("This browser has no Media Source Extensions.");
  }
  const player = new shaka.Player();
  if (buffer_s !== null) player.configure("streaming.bufferingGoal", buffer_s);
  // It says how it fares: with each request, and by events.
  const target = { mode: "event", enabled: true, url: events_url, interval: EVERY_S };
  const more = { events: [...EVENTS], includeKeys: [], useHeaders: false };
  player.configure("cmcd", { enabled: true, version: 2, eventTargets: [{ ...target, ...more }] });
  player.configure("cmcd.includeKeys", SAID);
  // By itself it gives up for good after two tries of a film: they may fall into the second in
  // which an appliance is started again.
  const tries = new Tries();
  player.configure("streaming.failureCallback", () => {
    if (!tries.again(() => player.retryStreaming(0))) events.trouble(REFUSED);
  });
  player.configure("streaming.retryParameters", { maxAttempts: 4, baseDelay: 300 });
  // By itself it looks once a second whether there is something to fetch: with a full buffer a lane
  // may not be asked for 3 s, whatever happens to its appliance.
  player.configure("streaming.updateIntervalSeconds", 0.25);
  // By itself it leaves a rendition that failed out for half a minute, takes the error for handled,
  // and was seen never to ask for a segment again when that had happened to all of them.
  player.configure("streaming.maxDisabledTime", 0);
  // It keeps the beginning of a rendition that it fetched ahead in vain, and never asks again.
  player.configure("streaming.segmentPrefetchLimit", 0);
  askAll(player);
  noteFailures(player, tries);
  const fail = (error: unknown) => {
    const { code, category } = error as { code?: number; category?: number };
    events.trouble(`Shaka stopped on error ${code ?? "without a number"} (category ${category})`);
  };
  player.addEventListener("error", (event) => {
    const { detail } = event as unknown as { detail: shaka.util.Error };
    if (detail.severity === shaka.util.Error.Severity.CRITICAL) fail(detail);
  });
  player.getNetworkingEngine()?.registerResponseFilter((_type, response, context) => {
    const { segment, stream } = context ?? {};
    if (segment) tries.came(response.originalUri);
    const kind = stream?.type;
    if (!segment || !stream || (kind !== "video" && kind !== "audio")) return;
    // Other lists of streams have the same numbers of bits: the place in their order is the rung.
    const rates = player.getVariantTracks().map((track) => rateOf(track, kind));
    const [begin, end] = [segment.getStartTime(), segment.getEndTime()];
    const piece = { kind, start: begin, duration: end - begin, url: response.originalUri } as const;
    events.segment({ ...piece, ...rungOf(rates, stream.bandwidth ?? 0) });
  });
  void player
    .attach(video)
    .then(() => player.load(url, start_s > 0 ? start_s : null))
    .catch(fail);
  return {
    name: "Shaka",
    version: shaka.Player.version,
    rendition() {
      const now = player.getVariantTracks().find(({ active }) => active);
      return now ? { height: now.height ?? 0, bits_per_second: rateOf(now, "video") } : null;
    },
    end() {
      tries.end();
      return player.destroy();
    },
  };
}

/**
 * It asks only the first appliance for the beginning of a rendition, and none that it left, for a
 * minute, for anything: all that it knows are tried after those that it chose. O(appliances).
 */
function askAll(player: shaka.Player): void {
  const known = new Set<string>();
  player.getNetworkingEngine()?.registerRequestFilter((type, request) => {
    if (type !== shaka.net.NetworkingEngine.RequestType.SEGMENT) return;
    const first = request.uris[0];
    if (first === undefined) return;
    const chosen = request.uris.map((uri) => new URL(uri).origin);
    if (chosen.length > 1) for (const one of chosen) known.add(one);
    const path = first.slice(new URL(first).origin.length);
    for (const one of known) if (!chosen.includes(one)) request.uris.push(one + path);
  });
}

/** The parts of its event for one try of a request that failed. */
interface Failed {
  requestType: shaka.net.NetworkingEngine.RequestType;
  request: shaka.extern.Request & { attempt: number };
  error: { code: number } | null;
  httpResponseCode: number;
  /** By a time-out. */
  aborted: boolean;
}

/**
 * Notes what appliances answer that fail: segments, and the playlists of HLS. Shaka tells in the
 * same way that it aborts a request itself, or has no tries left.
 */
function noteFailures(player: shaka.Player, tries: Tries): void {
  const { SEGMENT, MANIFEST } = shaka.net.NetworkingEngine.RequestType;
  const { BAD_HTTP_STATUS, HTTP_ERROR, TIMEOUT } = shaka.util.Error.Code;
  player.addEventListener("downloadfailed", (event) => {
    const { requestType, request, error, httpResponseCode, aborted } = event as unknown as Failed;
    if (requestType !== SEGMENT && requestType !== MANIFEST) return;
    const isByServer = [BAD_HTTP_STATUS, HTTP_ERROR, TIMEOUT].some((code) => code === error?.code);
    if (!isByServer && !aborted) return;
    const url = request.uris[request.attempt % request.uris.length];
    if (url !== undefined) tries.failedAt(url, httpResponseCode);
  });
}

const rateOf = (track: shaka.extern.Track, kind: "video" | "audio"): number =>
  (kind === "video" ? track.videoBandwidth : track.audioBandwidth) ?? track.bandwidth;
