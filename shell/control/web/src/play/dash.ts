// dash.js with its defaults, but for the buffer cap and its tries of a segment.

import * as dashjs from "dashjs";
import { leaveAbortable, type Interceptor } from "./abortable";
import { EVENTS, EVERY_S } from "./cmcd";
import { rungOf, type Engine, type EngineOptions } from "./engine";
import { REFUSED, Tries } from "./tries";

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
  error?: { code?: number; message?: string; data?: Answered } | string;
}

/** A request whose tries at an appliance all failed, and the last answer. */
interface Answered {
  request?: { type: string; url: string };
  response?: { status: number };
}

/**
 * By itself it tries four times, a second apart, before it leaves an appliance. One more try is
 * enough where a process is started again, which takes less than a second.
 */
const PATIENCE = {
  retryAttempts: { MediaSegment: 1, InitializationSegment: 1 },
  retryIntervals: { MediaSegment: 500, InitializationSegment: 500 },
};

/** After this event, as when room was made in the buffer, each lane looks for its next segment. */
function lookAgain(player: dashjs.MediaPlayerClass): void {
  // The declaration of `trigger` wants an event where it takes the name of one.
  const name = "bufferCleared" as unknown as dashjs.MediaPlayerEvent;
  const made = { hasEnoughSpaceToAppend: true, quotaExceeded: true, from: 0, to: 0 };
  player.trigger(name, made, {});
}

interface Model {
  getRequestInterceptors(): Interceptor[];
}

/** What is kept of its list of appliances that it has left, and what it is a part of. */
interface Left {
  parent: { reset(): void; initialize(): void };
  factory: { getSingletonInstance(context: object, name: "CustomParametersModel"): Model };
  context: object;
}

/**
 * By itself (5.2.1), once it has left all appliances it clears the list of those, and never adds to
 * it again: it would ask the first one for ever, however dead. Here it begins anew.
 */
function forgetful(this: Left): Pick<Left["parent"], "reset"> {
  const { reset, initialize } = this.parent;
  const model = this.factory.getSingletonInstance(this.context, "CustomParametersModel");
  leaveAbortable(model.getRequestInterceptors());
  return {
    reset() {
      reset();
      initialize();
    },
  };
}

export function start(options: EngineOptions): Engine {
  const { video, url, start_s, buffer_s, events_url, events } = options;
  const player = dashjs.MediaPlayer().create();
  player.extend("BlackListController", forgetful, true);
  player.initialize();
  player.updateSettings({ streaming: PATIENCE });
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
  const tries = new Tries();
  const { FRAGMENT_LOADING_COMPLETED, ERROR } = dashjs.MediaPlayer.events;
  player.on(FRAGMENT_LOADING_COMPLETED, (event: unknown) => {
    const { error, request } = event as Loaded;
    const { mediaType: kind, type, startTime, duration, url: asked } = request;
    if (error || type !== "MediaSegment" || (kind !== "video" && kind !== "audio")) return;
    tries.came(asked);
    const rates = player.getRepresentationsByType(kind).map(({ bandwidth }) => bandwidth);
    const rung = rungOf(rates, request.bandwidth ?? 0);
    events.segment({ kind, start: startTime, duration, url: asked, ...rung });
  });
  player.on(ERROR, (event: unknown) => {
    const { error } = event as Failed;
    const { request, response } = (typeof error === "object" && error.data) || {};
    if (request?.type.endsWith("Segment")) tries.failedAt(request.url, response?.status ?? 0);
    const why = typeof error === "object" ? (error.message ?? error.code) : error;
    events.trouble(`dash.js: ${why ?? "an error without a reason"}`);
  });
  // When its tries failed at all appliances it asks for nothing any more: this lets it ask again.
  player.on("urlResolutionFailed", () => {
    if (!tries.again(() => lookAgain(player))) events.trouble(REFUSED);
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
      tries.end();
      player.destroy();
    },
  };
}
