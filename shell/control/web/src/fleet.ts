// The fleet by control's word (`GET /v1/fleet`), and the loop that asks for it.

import type { FleetAppliance as Appliance, FleetOut as Fleet } from "../made/api";

export type {
  ApplianceState,
  SiteSummary,
  Drive,
  FleetAppliance as Appliance,
  FleetAsset as Asset,
  FleetError,
  FleetOut as Fleet,
  FleetSample as Sample,
  FleetSite as Site,
  Report,
} from "../made/api";

/** Control at one moment: its last answer, and whether it still answers. */
export interface Sight {
  fleet: Fleet | null;
  /** Milliseconds since control last answered, or since the page opened. */
  age_ms: number;
  /** Why the latest request failed; null if it did not. */
  failure: string | null;
  /** What control says of it, if it answered. */
  refusal: string | null;
  /** Control answers, and knows no site of the name that was asked for. */
  missing: boolean;
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

/** Of a fleet with more appliances the page shows sites, and asks less often the more there are. */
export const CARDS_MAX = 100;
const SITES_PER_S = 400;

/** Waits so long; then, while nobody looks at the page, until somebody does, or for `hiddenMs`. */
export async function rest(ms: number, hiddenMs = Infinity): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
  if (!document.hidden) return;
  const over = new AbortController();
  await new Promise((resolve) => {
    if (hiddenMs !== Infinity) setTimeout(resolve, hiddenMs);
    document.addEventListener("visibilitychange", resolve, { signal: over.signal });
  });
  over.abort();
}

/** None if there is no such site. */
async function ask(query: string): Promise<Fleet | null> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const response = await fetch(`/v1/fleet?${query}`, { signal, cache: "no-store" });
  // The login has ended, or the token is gone: the page cannot go on without one.
  if (response.status === 401) location.assign(`/login#${location.pathname}${location.search}`);
  const isOfSite = new URLSearchParams(query).has("site");
  if (isOfSite && [400, 404].includes(response.status)) return null;
  if (!response.ok) throw new Refusal(await wordsOf(response));
  return (await response.json()) as Fleet;
}

/** Control answers, and not with what was asked for. */
class Refusal extends Error {}

async function wordsOf(response: Response): Promise<string> {
  const problem = (await response.json().catch(() => ({}))) as { detail?: unknown };
  const { detail } = problem;
  return typeof detail === "string" ? detail : `control answered ${response.status}`;
}

/** What to ask for: one site, or all that can be shown. */
export const queryOf = (site: string | null): string =>
  site === null ? `appliances_max=${CARDS_MAX}` : String(new URLSearchParams({ site }));

/**
 * Asks for the fleet once a second, one request at a time, and calls `show` after each answer or
 * failure.
 */
export async function watchFleet(query: string, show: (sight: Sight) => void): Promise<never> {
  let fleet: Fleet | null = null;
  let answered = performance.now();
  let missing = false;
  for (;;) {
    const started = performance.now();
    let failure: string | null = null;
    let refusal: string | null = null;
    try {
      fleet = await ask(query);
      answered = performance.now();
      missing = fleet === null;
    } catch (error) {
      failure = error instanceof Error ? error.message : String(error);
      if (error instanceof Refusal) refusal = failure;
    }
    show({ fleet, age_ms: performance.now() - answered, failure, refusal, missing });
    const many = fleet?.brief ? fleet.sites.length / SITES_PER_S : 1;
    const pause = POLL_MS * Math.max(1, many) - (performance.now() - started);
    await rest(Math.max(100, pause), POLL_HIDDEN_MS);
  }
}

/** An answer of control; null if there is none, or it refuses. */
export async function get<T>(path: string): Promise<T | null> {
  try {
    const response = await fetch(path, { cache: "no-store" });
    return response.ok ? ((await response.json()) as T) : null;
  } catch {
    return null;
  }
}

/** Tells the demo to break or mend an appliance. */
export const order = (controls: string, appliance: string, verb: string): Promise<void> =>
  post(controls, `appliances/${encodeURIComponent(appliance)}/${verb}`, verb);

/** Tells the demo to let the ISP of a site withdraw or announce its clients. */
export const orderRoute = (controls: string, site: string, verb: string): Promise<void> =>
  post(controls, `routes/${encodeURIComponent(site)}/${verb}`, verb);

async function post(controls: string, path: string, verb: string): Promise<void> {
  const url = `${controls.replace(/\/$/, "")}/${path}`;
  const response = await fetch(url, { method: "POST", signal: AbortSignal.timeout(10_000) });
  if (!response.ok) throw new Error(`the demo answered ${response.status} to "${verb}"`);
}
