// hls.js with its defaults, but for the buffer cap and its tries of a segment.

import Hls, { ErrorTypes, Events, type HlsConfig } from "hls.js";
import type { Engine, EngineOptions } from "./engine";

const KINDS: Record<string, "video" | "audio"> = { main: "video", audio: "audio" };

/**
 * By itself it leaves an appliance at the first connection that is refused or reset, for five
 * minutes, and stops for good when it has left them all. A process that is started again answers
 * within a second: six tries of 0.3 s wait for that.
 */
function tries(): Partial<HlsConfig> {
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

export function start({ video, url, start_s, buffer_s, events }: EngineOptions): Engine {
  if (!Hls.isSupported()) throw new Error("This browser has no Media Source Extensions.");
  const cap: Partial<HlsConfig> =
    buffer_s === null ? {} : { maxBufferLength: buffer_s, maxMaxBufferLength: buffer_s };
  const hls = new Hls({ ...cap, ...tries(), ...(start_s > 0 ? { startPosition: start_s } : {}) });
  hls.on(Events.FRAG_LOADED, (_name, { frag }) => {
    const kind = KINDS[frag.type];
    if (!kind || frag.sn === "initSegment") return;
    const { start, duration, url } = frag;
    const rungs = kind === "video" ? Math.max(1, hls.levels.length) : 1;
    events.segment({ kind, start, duration, url, rung: kind === "video" ? frag.level : 0, rungs });
  });
  hls.on(Events.ERROR, (_name, data) => {
    if (!data.fatal) return;
    const of = data.type === ErrorTypes.NETWORK_ERROR ? "network" : "media";
    events.trouble(`hls.js stopped on a ${of} error: ${data.details}`);
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
    end: () => hls.destroy(),
  };
}
