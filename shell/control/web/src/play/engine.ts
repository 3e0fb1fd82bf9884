// The interface between the page and its players.

import type { Kind } from "./requests";

/** A piece of the film that arrived. */
export interface Segment {
  kind: Kind;
  /** Position in the film, seconds. */
  start: number;
  duration: number;
  /** As asked for, before redirects. */
  url: string;
  /** Quality, 0 the lowest, of `rungs`. */
  rung: number;
  rungs: number;
}

/** The place of a rate, bits per second, among those of its kind. */
export function rungOf(rates: number[], rate: number): Pick<Segment, "rung" | "rungs"> {
  const ladder = [...new Set(rates)].sort((a, b) => a - b);
  return { rung: Math.max(0, ladder.indexOf(rate)), rungs: Math.max(1, ladder.length) };
}

export interface Rendition {
  height: number;
  bits_per_second: number;
}

export interface Engine {
  name: "hls.js" | "dash.js" | "Shaka" | "video.js";
  version: string;
  rendition(): Rendition | null;
  /** Lets go of the video element, for the next one to take once that is done. */
  end(): void | Promise<void>;
}

export interface EngineEvents {
  segment(segment: Segment): void;
  /** The player met an error that may end the film. Whether it does, the film shows. */
  trouble(what: string): void;
}

export interface EngineOptions {
  video: HTMLVideoElement;
  url: string;
  /** Where to begin in the film, seconds. */
  start_s: number;
  /** Most seconds to hold ahead; the player's own default when null. */
  buffer_s: number | null;
  /** Where the player sends its own word of what its viewer feels (CMCD version 2). */
  events_url: string;
  events: EngineEvents;
}

export type StartEngine = (options: EngineOptions) => Engine;
