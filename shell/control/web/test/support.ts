// A fleet to try things on: everything well unless changed.

import type {
  RoutesHeard as Heard,
  RoutesSession as Session,
  RoutesSite,
  ViewersFigures,
  ViewersRow,
} from "../made/api";
import type { Appliance, Fleet, Report, Site } from "../src/fleet";

export function report(changes: Partial<Report> = {}): Report {
  return {
    start_id: 1,
    sequence: 1,
    uptime_s: 60,
    software: "0.1.0",
    base_url: "https://127.0.0.2:8443",
    generation: 1,
    load: {
      serving: true,
      connections: 3,
      connections_max: 100,
      egress_bits_per_second: 1_000,
      egress_max_bits_per_second: 0,
      egress_bytes: 0,
      requests: 0,
      request_errors: 0,
      cpu_percent: 10,
    },
    drives: [
      { id: "0", path: "/d/0", state: "ok", capacity_bytes: 100, free_bytes: 50, objects: 1 },
      { id: "1", path: "/d/1", state: "ok", capacity_bytes: 100, free_bytes: 50, objects: 1 },
    ],
    fill: {
      objects_wanted: 2,
      objects_held: 2,
      bytes_wanted: 100,
      bytes_held: 100,
      bits_per_second: 0,
    },
    ...changes,
  };
}

export function appliance(id: string, changes: Partial<Appliance> = {}): Appliance {
  return {
    id,
    state: "healthy",
    since_s: 60,
    report: report(),
    objects_held: 2,
    weight: 1,
    last_report_ms: 500,
    base_url: `https://${id}.example:8443`,
    ...changes,
  };
}

export function fleet(appliances: Appliance[], changes: Partial<Fleet> = {}): Fleet {
  const sites: Site[] = [
    { id: "s1", prefixes: [], kind: "exchange", place: "", open: false, appliances },
  ];
  const rest = { assets: [], errors: [], history: [] };
  return { now_unix_s: 1_000, generation: 1, sites, ...rest, ...changes };
}

/** What one appliance hears. */
export function heard(prefixes: number, sessions: Partial<Session>[]): Heard {
  const session = { name: "isp_a", state: "Active", peering: "public" } as const;
  const counts = { routes: 0, believed: 0, filtered: 0 };
  const all = sessions.map((one) => ({ ...session, ...counts, ...one }));
  return { digest: `${prefixes}-00`, prefixes, sessions: all };
}

/** A site with what its appliances hear; the first of them is believed. */
export function routesSite(heardBy: Record<string, Heard>): RoutesSite {
  const appliances = Object.entries(heardBy).map(([id, of]) => ({ appliance: id, heard: of }));
  const prefixes = appliances[0]?.heard.prefixes ?? null;
  const about = { kind: "embedded", place: "", open: false } as const;
  const rest = { digest: null, differ: false, unshared: 0, unshared_examples: [] };
  return { site: "s1", ...about, prefixes, ...rest, appliances };
}

/** A site's viewers, of whom nothing is known unless said. */
export function viewersRow(name: string, changes: Partial<ViewersFigures>): ViewersRow {
  const recent: ViewersFigures = {
    playbacks: 0,
    moved: 0,
    starts: 0,
    starts_slow: 0,
    stalls: 0,
    stalled_ms: 0,
    stalls_unmeasured: 0,
    watched_ms: 0,
    cut: 0,
    failed: 0,
    ...changes,
  };
  const minutes = { bitrates: [], stalled_ms: [] };
  return { by: "site", name, source: "requests", recent, total: recent, ...minutes };
}
