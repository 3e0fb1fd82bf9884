// What control says about the fleet (`GET /v1/fleet`), and the loop that asks for it.

export type ApplianceState = "healthy" | "stale" | "never_seen" | "draining" | "unhealthy";

export interface Drive {
  id: string;
  path: string;
  state: "ok" | "set_aside";
  reason?: string | null;
  capacity_bytes: number;
  free_bytes: number;
  objects: number;
  /** In use, and silent. */
  hung?: boolean;
}

/** An appliance's latest report; the fields that the pages show. */
export interface Report {
  /** Another value means that counters began anew. */
  start_id: number;
  uptime_s: number;
  software: string;
  base_url: string;
  plain_url?: string | null;
  generation: number;
  load: {
    serving: boolean;
    connections: number;
    connections_max: number;
    egress_bits_per_second: number;
    egress_max_bits_per_second: number;
    egress_bytes: number;
    requests: number;
    request_errors: number;
    cpu_percent: number;
  };
  drives: Drive[];
  fill: {
    objects_wanted: number;
    objects_held: number;
    bytes_wanted: number;
    bytes_held: number;
    bits_per_second: number;
  };
}

export interface Appliance {
  id: string;
  state: ApplianceState;
  reason?: string | null;
  /** Seconds in this state. */
  since_s?: number | null;
  /** Age of the last report, milliseconds. */
  last_report_ms?: number | null;
  report: Report | null;
  objects_held: number;
  weight: number;
  base_url?: string | null;
}

export interface Site {
  id: string;
  prefixes: string[];
  appliances: Appliance[];
}

export interface Asset {
  id: string;
  current_version?: string | null;
  files: number;
  bytes: number;
  copies_wanted: number;
  copies_complete: number;
  entries: { path: string; format: string }[];
}

export interface FleetError {
  at_unix_s: number;
  appliance: string;
  room: string;
  text: string;
}

/** One second of the whole fleet. */
export interface Sample {
  at_unix_s: number;
  egress_bits_per_second: number;
  cpu_percent: number;
  fill_bits_per_second: number;
}

export interface Fleet {
  now_unix_s: number;
  generation: number;
  sites: Site[];
  assets: Asset[];
  errors: FleetError[];
  history: Sample[];
  /** Where the demo takes orders to break things; absent outside the demo. */
  demo_controls?: string | null;
}

/** What is known at one moment: the last answer, and whether control still answers. */
export interface Sight {
  fleet: Fleet | null;
  /** Milliseconds since control last answered, or since the page opened. */
  age_ms: number;
  /** Why the latest request failed; null if it did not. */
  failure: string | null;
}

const POLL_MS = 1_000;
const POLL_HIDDEN_MS = 10_000;
const TIMEOUT_MS = 2_500;

/** Control counts as not answering after this long without an answer. */
export const SILENT_AFTER_MS = 3_500;

export const silent = (sight: Sight): boolean =>
  sight.failure !== null && sight.age_ms > SILENT_AFTER_MS;

export const appliancesOf = (fleet: Fleet): Appliance[] =>
  fleet.sites.flatMap((site) => site.appliances);

async function ask(): Promise<Fleet> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const response = await fetch("/v1/fleet", { signal, cache: "no-store" });
  // The login has ended, or the token is gone: the page cannot go on without one.
  if (response.status === 401) location.assign(`/login#${location.pathname}${location.search}`);
  if (!response.ok) throw new Error(`control answered ${response.status}`);
  return (await response.json()) as Fleet;
}

/** Asks once a second, one request at a time, and calls `show` after each answer or failure. */
export function watchFleet(show: (sight: Sight) => void): void {
  let fleet: Fleet | null = null;
  let answered = performance.now();
  const turn = async () => {
    const started = performance.now();
    let failure: string | null = null;
    try {
      fleet = await ask();
      answered = performance.now();
    } catch (error) {
      failure = error instanceof Error ? error.message : String(error);
    }
    show({ fleet, age_ms: performance.now() - answered, failure });
    const pause = document.hidden ? POLL_HIDDEN_MS : POLL_MS;
    setTimeout(turn, Math.max(100, pause - (performance.now() - started)));
  };
  void turn();
}

/** Tells the demo to break or mend an appliance. */
export async function order(controls: string, appliance: string, verb: string): Promise<void> {
  const url = `${controls.replace(/\/$/, "")}/appliances/${encodeURIComponent(appliance)}/${verb}`;
  const response = await fetch(url, { method: "POST", signal: AbortSignal.timeout(10_000) });
  if (!response.ok) throw new Error(`the demo answered ${response.status} to "${verb}"`);
}
