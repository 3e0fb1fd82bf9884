// The inner parts of video.js's engine that are changed from outside, since it has no setting.

/** The parts of VHS that it has no public names for. */
export interface Steering {
  currentPathway: string | null;
  availablePathways_: Set<string>;
  steeringManifest: { priority?: string[] };
  getPathway(): string | null;
  excludePathway(pathway: string): boolean;
}

/**
 * VHS (3.17.5) takes a pathway off its list once all renditions of it failed, and stays on it until
 * steering's next answer. Here it goes on with the next of steering's list at once.
 */
export function leaveFailed(steering: Steering | undefined): void {
  if (!steering) return;
  const exclude = steering.excludePathway.bind(steering);
  steering.excludePathway = (pathway) => {
    const was = exclude(pathway);
    const { availablePathways_: left, steeringManifest } = steering;
    const next = (steeringManifest.priority ?? []).find((one) => left.has(one)) ?? [...left][0];
    if (steering.getPathway() === pathway && next) steering.currentPathway = next;
    return was;
  };
}
