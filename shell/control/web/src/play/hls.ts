// hls.js with its defaults, but for the buffer cap, its tries of a segment, and how long it stays
// away from an appliance that failed.

import Hls, { ErrorTypes, Events, type HlsConfig } from "hls.js";
import { EVENTS, EVERY_S } from "./cmcd";
import type { Engine, EngineOptions } from "./engine";
import { REFUSED, Tries } from "./tries";

const KINDS: Record<string, "video" | "audio"> = { main: "video", audio: "audio" };

/** For so long it does not go back to an appliance that failed: one answer of steering. */
const PENALTY_MS = 10_000;

/** The parts of its content steering that it has no public names for. */
interface Steering {
  penalizedPathways: Record<string, number>;
  updatePathwayPriority(priority: string[]): void;
}

/**
 * By itself it stays away for five minutes from an appliance that failed, whatever steering says:
 * appliances that are upgraded one after the other end a film for good.
 */
function forgiving(): Partial<HlsConfig> {
  const own = Hls.DefaultConfig.contentSteeringController as unknown as new (hls: Hls) => Steering;
  class Forgiving extends own {
    override updatePathwayPriority(priority: string[]): void {
      const now = performance.now();
      for (const [id, since] of Object.entries(this.penalizedPathways)) {
        if (PENALTY_MS < now - since) delete this.penalizedPathways[id];
      }
      super.updatePathwayPriority(priority);
    }
  }
  return {
    contentSteeringController:
      Forgiving as unknown as NonNullable<HlsConfig["contentSteeringController"]>,
  };
}

/**
 * By itself it leaves an appliance at the first connection that is refused or reset, and
 * stops for good when it has left them all. A process that is started again answers within a
 * second: six tries of 0.3 s wait for that.
 */
function patience(): Partial<HlsConfig> {
  const { default: policy } = Hls.DefaultConfig.fragLoadPolicy;
  const errorRetry: NonNullable<typeof policy.errorRetry> = {
    maxNumRetry: 6,
    retryDelayMs: 300,
    maxRetryDelayMs: 300,
    backoff: "linear",
    shouldRetry: (config, count, _timeout, response, retry) =>
      retry || (response?.code === 0 && count < (config?.maxNumRetry ?? 0)),
  };
  return { fragLoadPolicy: { default: { ...policy, errorRetry } } };
}

/** It says how it fares: with each request, and by events. */
const cmcd = (url: string): NonNullable<HlsConfig["cmcd"]> => ({
  version: 2,
  eventTargets: [{ url, events: [...EVENTS], interval: EVERY_S }],
});

export function start(options: EngineOptions): Engine {
  const { video, url, start_s, buffer_s, events_url, events } = options;
  if (!Hls.isSupported()) throw new Error("This browser has no Media Source Extensions.");
  const cap: Partial<HlsConfig> =
    buffer_s === null ? {} : { maxBufferLength: buffer_s, maxMaxBufferLength: buffer_s };
  const from = start_s > 0 ? { startPosition: start_s } : {};
  const hls = new Hls({
    ...cap,
    ...patience(),
    ...forgiving(),
    ...from,
    cmcd: cmcd(events_url),
  });
  const tries = new Tries();
  hls.on(Events.FRAG_LOADED, (_name, { frag }) => {
    const kind = KINDS[frag.type];
    if (!kind || frag.sn === "initSegment") return;
    const { start, duration, url } = frag;
    tries.came(url);
    const rungs = kind === "video" ? Math.max(1, hls.levels.length) : 1;
    events.segment({ kind, start, duration, url, rung: kind === "video" ? frag.level : 0, rungs });
  });
  hls.on(Events.ERROR, (_name, data) => {
    const url = data.frag?.url ?? data.url;
    if (data.type === ErrorTypes.NETWORK_ERROR && url) {
      tries.failedAt(url, data.response?.code ?? 0);
    }
    if (!data.fatal) return;
    const of = data.type === ErrorTypes.NETWORK_ERROR ? "network" : "media";
    events.trouble(`hls.js stopped on a ${of} error: ${data.details}`);
    if (of !== "network" || !hls.levels.length) return;
    if (!tries.again(() => hls.startLoad(), hls.pathways.length)) events.trouble(REFUSED);
  });
  hls.loadSource(url);
  hls.attachMedia(video);
  return {
    name: "hls.js",
    version: Hls.version,
    rendition() {
      const level = hls.levels[hls.currentLevel];
      return level ? { height: level.height, bits_per_second: level.bitrate } : null;
    },
    end() {
      tries.end();
      hls.destroy();
    },
  };
}
