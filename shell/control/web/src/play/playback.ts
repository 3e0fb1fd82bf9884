// Leave to play, which control gives: a service of one's own would ask for it and hand it on.

import type { PlaybackOut } from "../../made/api";
import { PLAYERS, type Parameters } from "./parameters";
import { Delays } from "./tries";

/** Of the answer to `POST /v1/playbacks`, what a player needs. */
export type Playback = Pick<PlaybackOut, "hls_url" | "dash_url" | "events_url">;

const TIMEOUT_MS = 10_000;

/** There is no playback now, and may be one later. */
class NotNow extends Error {}

/**
 * A new playback of this asset. Control is asked until it gives or refuses one: `waits` is told why
 * there is none yet, and a refusal throws why there will be none, both for people.
 */
export async function newPlayback(asset: string, waits: (why: string) => void): Promise<Playback> {
  const delays = new Delays();
  for (;;) {
    try {
      return await askOnce(asset);
    } catch (error) {
      if (!(error instanceof NotNow)) throw error;
      waits(error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, delays.next()));
  }
}

async function askOnce(asset: string): Promise<Playback> {
  let response: Response;
  try {
    response = await fetch("/v1/playbacks", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ asset }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    if (response.ok) return (await response.json()) as Playback;
  } catch {
    throw new NotNow("Control does not answer.");
  }
  if (response.status === 401) location.assign(`/login#${location.pathname}${location.search}`);
  if (response.status === 404) throw new Error(`Control knows no asset named ${asset}.`);
  const problem = (await response.json().catch(() => ({}))) as { detail?: string };
  const why = problem.detail ?? `It answered ${response.status}.`;
  const Kind = response.status < 500 && response.status !== 429 ? Error : NotNow;
  throw new Kind(`Control lets nobody play ${asset} now: ${why}`);
}

/** Where the player begins: an entry manifest that control writes for this playback. */
export function entryUrl(playback: Playback, { player, plain }: Parameters): string {
  const { format } = PLAYERS[player];
  const url = format === "hls" ? playback.hls_url : playback.dash_url;
  if (!url) throw new Error(`This asset has no ${format.toUpperCase()} entry manifest.`);
  return `${url}${plain ? "&plain=1" : ""}`;
}

/**
 * When to ask for a new playback: something was refused with 403, so the time of this one is over.
 * Once for each that brought a piece of the film; a new one that is refused at once is no remedy.
 */
export class Renewal {
  private brought = false;
  private underWay = false;

  /** A playback begins. */
  begins(): void {
    this.brought = false;
    this.underWay = false;
  }

  /** It brought a piece of the film. */
  brings(): void {
    this.brought = true;
  }

  /** Something was refused. `renew` once; `wait` while that is under way; or there is no hope. */
  refused(): "renew" | "wait" | "hopeless" {
    if (this.underWay) return "wait";
    if (!this.brought) return "hopeless";
    this.underWay = true;
    return "renew";
  }
}
