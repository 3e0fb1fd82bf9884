// Leave to play, which control gives: a service of one's own would ask for it and hand it on.

import type { PlaybackOut } from "../../made/api";
import { PLAYERS, type Parameters } from "./parameters";

/** Of the answer to `POST /v1/playbacks`, what a player needs. */
export type Playback = Pick<PlaybackOut, "hls_url" | "dash_url" | "events_url">;

const TIMEOUT_MS = 10_000;

/** A new playback of this asset. Says why there is none, for people. */
export async function newPlayback(asset: string): Promise<Playback> {
  let response: Response;
  try {
    response = await fetch("/v1/playbacks", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ asset }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } catch {
    throw new Error("Control does not answer.");
  }
  if (response.status === 401) location.assign(`/login#${location.pathname}${location.search}`);
  if (response.ok) return (await response.json()) as Playback;
  if (response.status === 404) throw new Error(`Control knows no asset named ${asset}.`);
  const problem = (await response.json().catch(() => ({}))) as { detail?: string };
  const why = problem.detail ?? `It answered ${response.status}.`;
  throw new Error(`Control lets nobody play ${asset} now: ${why}`);
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
