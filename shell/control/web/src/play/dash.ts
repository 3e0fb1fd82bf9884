// dash.js with its defaults, but for the buffer cap and its tries of a segment.

import * as dashjs from "dashjs";
import { EVENTS, EVERY_S } from "./cmcd";
import { rungOf, type Engine, type EngineOptions } from "./engine";

/** The part of FRAGMENT_LOADING_COMPLETED that is used here. */
interface Loaded {
  error?: unknown;
  request: {
    type: string;
    mediaType: string;
    startTime: number;
    duration: number;
    url: string;
    bandwidth?: number;
  };
}

interface Failed {
  error?: { code?: number; message?: string } | string;
}

/**
 * By itself it tries four times, a second apart, before it leaves an appliance. One more try is
 * enough where a process is started again, which takes less than a second.
 */
const TRIES = {
  retryAttempts: { MediaSegment: 1, InitializationSegment: 1 },
  retryIntervals: { MediaSegment: 500, InitializationSegment: 500 },
};

/** Between two rounds of tries that failed at all appliances. */
const TRY_AGAIN_MS = 500;

/** After this event, as when room was made in the buffer, each lane looks for its next segment. */
function lookAgain(player: dashjs.MediaPlayerClass): void {
  // The declaration of `trigger` wants an event where it takes the name of one.
  const name = "bufferCleared" as unknown as dashjs.MediaPlayerEvent;
  const made = { hasEnoughSpaceToAppend: true, quotaExceeded: true, from: 0, to: 0 };
  player.trigger(name, made, {});
}

export function start(options: EngineOptions): Engine {
  const { video, url, start_s, buffer_s, events_url, events } = options;
  const player = dashjs.MediaPlayer().create();
  player.initialize();
  player.updateSettings({ streaming: TRIES });
  // It says how it fares: with each request, and by events.
  const target = { enabled: true, url: events_url, events: [...EVENTS], interval: EVERY_S };
  const cmcd = { enabled: true, version: 2, eventTargets: [target] };
  player.updateSettings({ streaming: { cmcd } });
  if (buffer_s !== null) {
    const buffer = {
      bufferTimeDefault: buffer_s,
      bufferTimeAtTopQuality: buffer_s,
      bufferTimeAtTopQualityLongForm: buffer_s,
    };
    player.updateSettings({ streaming: { buffer } });
  }
  const { FRAGMENT_LOADING_COMPLETED, ERROR } = dashjs.MediaPlayer.events;
  player.on(FRAGMENT_LOADING_COMPLETED, (event: unknown) => {
    const { error, request } = event as Loaded;
    const { mediaType: kind, type, startTime, duration, url: asked } = request;
    if (error || type !== "MediaSegment" || (kind !== "video" && kind !== "audio")) return;
    const rates = player.getRepresentationsByType(kind).map(({ bandwidth }) => bandwidth);
    const rung = rungOf(rates, request.bandwidth ?? 0);
    events.segment({ kind, start: startTime, duration, url: asked, ...rung });
  });
  player.on(ERROR, (event: unknown) => {
    const { error } = event as Failed;
    const why = typeof error === "object" ? (error.message ?? error.code) : error;
    events.trouble(`dash.js: ${why ?? "an error without a reason"}`);
  });
  // When its tries failed at all appliances it asks for nothing any more: this lets it ask again.
  let again: ReturnType<typeof setTimeout> | undefined;
  player.on("urlResolutionFailed", () => {
    clearTimeout(again);
    again = setTimeout(lookAgain, TRY_AGAIN_MS, player);
  });
  player.attachView(video);
  player.setAutoPlay(false);
  player.attachSource(url, start_s > 0 ? start_s : undefined);
  return {
    name: "dash.js",
    version: player.getVersion(),
    rendition() {
      if (!player.isReady()) return null;
      const now = player.getCurrentRepresentationForType("video");
      return now ? { height: now.height ?? 0, bits_per_second: now.bandwidth } : null;
    },
    end() {
      clearTimeout(again);
      player.destroy();
    },
  };
}
