// The inner parts of video.js's engine that are changed from outside, since it has no setting.

import { REFUSED, Tries } from "./tries";

/** The parts of VHS that it has no public names for. */
export interface Controller {
  contentSteeringController_?: Steering;
  main(): { playlists: Playlist[] };
  excludeThenChangePathway_(): void;
  load(): void;
}

export interface Steering {
  currentPathway: string | null;
  availablePathways_: Set<string>;
  steeringManifest: { priority?: string[]; ttl?: number };
  getAvailablePathways(): Set<string>;
  didDASHTagChange(): boolean;
  getPathway(): string | null;
  excludePathway(pathway: string): boolean;
  on(event: "content-steering", told: () => void): void;
}

/** One rendition by one pathway. */
export interface Playlist {
  excludeUntil?: number;
  lastExcludeReason_?: string;
}

/** A request that ended, and its answer. */
export interface Ended {
  uri: string;
  requestType?: string;
}
export interface Answer {
  statusCode?: number;
}

/** Notes what appliances answer that fail: segments and playlists, not steering. */
export function note(tries: Tries, { uri, requestType }: Ended, { statusCode = 0 }: Answer): void {
  if (requestType === "content-steering-manifest") return;
  if (statusCode < 200 || 300 <= statusCode) tries.failedAt(uri, statusCode);
  else if (requestType === "segment") tries.came(uri);
}

/** As long as steering has said nothing, one that failed comes back to VHS's list after this. */
const TTL_S = 10;

/**
 * VHS (3.17.5) takes a pathway off its list once all renditions of it failed, and stays on it until
 * steering's next answer. Here it goes on with the next of steering's list at once; and with those
 * that failed before, a while later, if there is no other.
 *
 * Renditions that failed are left out for a minute, and those of a pathway that it comes back to,
 * too: with all of them out it would ask nobody for anything. Here they are left out for the reason
 * that another pathway is chosen, and come back with theirs.
 */
export function leaveFailed(
  controller: Controller | undefined,
  tries: Tries,
  trouble: (what: string) => void,
): void {
  const steering = controller?.contentSteeringController_;
  if (!controller || !steering) return;
  const all = new Set(steering.availablePathways_);
  const come = () => {
    const { availablePathways_: left, steeringManifest } = steering;
    const next = (steeringManifest.priority ?? []).find((one) => left.has(one)) ?? [...left][0];
    if (next) steering.currentPathway = next;
    for (const one of controller.main().playlists) {
      if (!Number.isFinite(one.excludeUntil)) continue;
      [one.excludeUntil, one.lastExcludeReason_] = [Infinity, "content-steering"];
    }
  };
  steering.steeringManifest.ttl ??= TTL_S;
  // With DASH it takes a pathway that is off the list for a change of the MPD, and puts all on it
  // again: it would ask the first two in turn, a hundred times a second. Our MPDs do not change.
  steering.getAvailablePathways = () => all;
  steering.didDASHTagChange = () => false;
  let isOver = false;
  const exclude = steering.excludePathway.bind(steering);
  steering.excludePathway = (pathway) => {
    const was = exclude(pathway);
    if (tries.isWaiting) return was;
    const goOn = () => {
      if (steering.getPathway() === null) return; // Another film plays.
      come();
      controller.excludeThenChangePathway_();
      // It may have stopped at the rendition that it comes back to, which is no change to it.
      controller.load();
    };
    if (steering.availablePathways_.size) {
      come();
    } else if (tries.again(goOn, all.size)) {
      // Now, since an answer of steering that finds an empty list ends steering.
      for (const one of all) if (one !== pathway) steering.availablePathways_.add(one);
    } else {
      isOver = true;
      trouble(REFUSED);
    }
    return was;
  };
  // After VHS's own.
  steering.on("content-steering", () => {
    if (isOver || tries.isWaiting) return;
    come();
    controller.excludeThenChangePathway_();
  });
}
