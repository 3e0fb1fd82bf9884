// video.js with its defaults, but for the buffer cap, its controls (the browser's own do), a
// pathway that failed, which it would stay on, and the browser's estimate of the network, which it
// would go by in place of its own. Its engine, VHS, plays HLS and DASH.

import videojs from "video.js";
import { query, withQuery } from "./cmcd";
import { rungOf, type Engine, type EngineOptions } from "./engine";
import { Tries } from "./tries";
import { leaveFailed, note, type Answer, type Controller, type Ended } from "./vhs";

/** The event of VHS for a segment that has arrived. */
interface Loaded {
  metadata?: {
    segmentInfo?: {
      type: string;
      uri: string;
      start: number;
      duration: number;
      isMediaInitialization: boolean;
    };
  };
}

interface Rung {
  bandwidth: number;
  height?: number;
}

/** A segment of a playlist. */
interface Piece {
  resolvedUri?: string;
  duration: number;
  byterange?: { offset: number; length: number };
}

interface Asked {
  uri: string;
  headers?: Record<string, string>;
}

interface Vhs {
  bandwidth?: number;
  xhr?: {
    onRequest?: (hook: (asked: Asked) => Asked) => void;
    onResponse?: (hook: (ended: Ended, error: unknown, answer: Answer) => void) => void;
  };
  playlistController_?: Controller;
  representations?: () => Rung[];
  playlists?: { media(): { attributes?: { BANDWIDTH?: number }; segments?: Piece[] } | undefined };
}

const TYPES = { hls: "application/x-mpegURL", dash: "application/dash+xml" };

export function start({ video, url, start_s, buffer_s, events }: EngineOptions): Engine {
  const vhs = videojs as unknown as { Vhs: Record<string, number> };
  if (buffer_s !== null) {
    vhs.Vhs["GOAL_BUFFER_LENGTH"] = buffer_s;
    vhs.Vhs["MAX_GOAL_BUFFER_LENGTH"] = buffer_s;
    // It goes up only with so much in the buffer, which is 30 s as it comes: never, with less.
    vhs.Vhs["MAX_BUFFER_LOW_WATER_LINE"] = buffer_s / 2;
  }
  // A player that was here before has the element; it goes on with another source.
  const player =
    videojs.getPlayer(video) ??
    videojs(video, {
      controls: true,
      children: ["mediaLoader"],
      html5: { vhs: { overrideNative: true, useNetworkInformationApi: false } },
    });
  player.usingNativeControls(true);
  const engine = () => (player.tech(true) as unknown as { vhs?: Vhs } | undefined)?.vhs;
  const ladder = () => (engine()?.representations?.() ?? []).map(({ bandwidth }) => bandwidth);
  const now = () => engine()?.playlists?.media()?.attributes?.BANDWIDTH ?? 0;
  const loaded = (event: unknown) => {
    const info = (event as Loaded).metadata?.segmentInfo;
    if (!info || info.isMediaInitialization) return;
    const kind = info.type === "main" ? "video" : info.type;
    if (kind !== "video" && kind !== "audio") return;
    const rung = rungOf(kind === "video" ? ladder() : [], now());
    const { start: begin, duration, uri } = info;
    events.segment({ kind, start: begin, duration, url: uri, ...rung });
  };
  const failed = () => {
    const error = player.error();
    if (error) events.trouble(`video.js: ${error.message || `error ${error.code}`}`);
  };
  player.on("segmentloaded", loaded);
  player.on("error", failed);
  // It has no words of its own: they are put into its requests here.
  const sid = crypto.randomUUID();
  const said = { waits: true, starved: false };
  const speak = (asked: Asked): Asked => {
    const range = asked.headers?.["Range"];
    const isThis = ({ resolvedUri, byterange }: Piece): boolean => {
      const begins = !byterange || range?.startsWith(`bytes=${byterange.offset}-`) === true;
      return resolvedUri === asked.uri && begins;
    };
    const piece = engine()?.playlists?.media()?.segments?.find(isThis);
    const words = query({
      sid,
      format: url.includes(".mpd") ? "dash" : "hls",
      object: piece && { video: true, duration_s: piece.duration },
      buffer_s: Math.max(0, player.bufferedEnd() - (player.currentTime() ?? 0)),
      bits_per_second: now(),
      measured_bits_per_second: engine()?.bandwidth ?? 0,
      ...said,
    });
    if (piece) said.starved = false;
    return { ...asked, uri: withQuery(asked.uri, words) };
  };
  const waits = () => {
    said.starved = !said.waits && !player.seeking();
    said.waits = true;
  };
  const plays = () => void (said.waits = false);
  player.on("waiting", waits);
  player.on("playing", plays);
  const tries = new Tries();
  const hear = (ended: Ended, _error: unknown, answer: Answer) => note(tries, ended, answer);
  const hooks = () => {
    engine()?.xhr?.onRequest?.(speak);
    engine()?.xhr?.onResponse?.(hear);
  };
  player.on("xhr-hooks-ready", hooks);
  const ready = () => leaveFailed(engine()?.playlistController_, tries, events.trouble);
  player.on("loadedmetadata", ready);
  player.src({ src: url, type: url.includes(".mpd") ? TYPES.dash : TYPES.hls });
  if (start_s > 0) player.one("loadedmetadata", () => void player.currentTime(start_s));
  return {
    name: "video.js",
    version: (videojs as unknown as { VERSION: string }).VERSION,
    rendition() {
      const rate = now();
      const rung = engine()?.representations?.().find(({ bandwidth }) => bandwidth === rate);
      return rate ? { height: rung?.height ?? 0, bits_per_second: rate } : null;
    },
    end() {
      tries.end();
      player.off("waiting", waits);
      player.off("playing", plays);
      player.off("xhr-hooks-ready", hooks);
      player.off("segmentloaded", loaded);
      player.off("error", failed);
      player.off("loadedmetadata", ready);
      // Not reset: that would put another element in the place of this one.
      player.pause();
    },
  };
}
