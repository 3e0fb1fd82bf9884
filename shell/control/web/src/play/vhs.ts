// The inner parts of video.js's engine that are changed from outside, since it has no setting.

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
  steeringManifest: { priority?: string[] };
  getPathway(): string | null;
  excludePathway(pathway: string): boolean;
  on(event: "content-steering", told: () => void): void;
}

/** One rendition by one pathway. */
export interface Playlist {
  excludeUntil?: number;
  lastExcludeReason_?: string;
}

/** Between two tries when all pathways failed. */
const TRY_AGAIN_MS = 500;

/**
 * VHS (3.17.5) takes a pathway off its list once all renditions of it failed, and stays on it until
 * steering's next answer. Here it goes on with the next of steering's list at once; and with one
 * that failed before, half a second later, if there is no other.
 *
 * Renditions that failed are left out for a minute, and those of a pathway that it comes back to,
 * too: with all of them out it would ask nobody for anything. Here they are left out for the reason
 * that another pathway is chosen, and come back with theirs.
 */
export function leaveFailed(controller: Controller | undefined): void {
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
  const exclude = steering.excludePathway.bind(steering);
  steering.excludePathway = (pathway) => {
    const was = exclude(pathway);
    if (steering.availablePathways_.size) {
      come();
    } else {
      setTimeout(() => {
        if (steering.getPathway() === null) return; // Another film plays.
        for (const one of all) if (one !== pathway) steering.availablePathways_.add(one);
        come();
        controller.excludeThenChangePathway_();
        // It may have stopped at the rendition that it comes back to, which is no change to it.
        controller.load();
      }, TRY_AGAIN_MS);
    }
    return was;
  };
  // After VHS's own.
  steering.on("content-steering", () => {
    come();
    controller.excludeThenChangePathway_();
  });
}
