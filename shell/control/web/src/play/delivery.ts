// The delivery of a film: the appliance behind a host name, the one that serves now, and how often
// that changed.

import { appliancesOf, type Fleet } from "../fleet";
import type { Kind, RequestRecord } from "./requests";

/** A change counts as a fail-over if a request to the old appliance failed this shortly before. */
const BLAME_MS = 60_000;

export interface Move {
  kind: Kind;
  from: string;
  to: string;
  /** The old appliance had just failed; otherwise steering (or the player) preferred another. */
  failed: boolean;
}

export class Delivery {
  private readonly byHost = new Map<string, string>();
  private readonly sites = new Map<string, string>();
  private readonly serving = new Map<Kind, string>();
  private readonly failedAt = new Map<string, number>();
  moves = 0;
  failovers = 0;

  learn(fleet: Fleet): void {
    for (const site of fleet.sites) {
      for (const { id } of site.appliances) this.sites.set(id, site.id);
    }
    for (const { id, base_url, report } of appliancesOf(fleet)) {
      for (const url of [base_url, report?.base_url, report?.plain_url]) {
        if (url && URL.canParse(url)) this.byHost.set(new URL(url).host, id);
      }
    }
  }

  /** The appliance behind a host; the host itself while the fleet is not known. */
  applianceAt(host: string): string {
    return this.byHost.get(host) ?? host;
  }

  siteOf(appliance: string): string | null {
    return this.sites.get(appliance) ?? null;
  }

  servingNow(kind: Kind): string | null {
    return this.serving.get(kind) ?? null;
  }

  /** Notes a failure, so that a move away from there is known for a fail-over. */
  note(record: RequestRecord, now: number): boolean {
    // Players give up on a silent server by aborting; one that brought nothing failed too.
    const silent = record.aborted && record.bytes === 0 && record.ms > 3_000;
    const failed = (!record.aborted && record.status === 0) || record.status >= 400 || silent;
    if (failed) this.failedAt.set(this.applianceAt(record.host), now);
    return failed;
  }

  /** A piece of the film came from this host. Returns what changed, if anything did. */
  arrived(kind: Kind, host: string, now: number): Move | null {
    const to = this.applianceAt(host);
    const from = this.serving.get(kind);
    this.serving.set(kind, to);
    if (from === undefined || from === to) return null;
    const failed = now - (this.failedAt.get(from) ?? -Infinity) < BLAME_MS;
    if (kind === "video") {
      this.moves += 1;
      if (failed) this.failovers += 1;
    }
    return { kind, from, to, failed };
  }

  bytesByAppliance(byHost: ReadonlyMap<string, number>): Record<string, number> {
    const sums: Record<string, number> = {};
    for (const [host, bytes] of byHost) {
      const id = this.applianceAt(host);
      sums[id] = (sums[id] ?? 0) + bytes;
    }
    return sums;
  }
}
