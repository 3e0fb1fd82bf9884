// The page's first sentence: whether the fleet is well, and which appliances need a look.

import { appliancesOf, type Appliance, type Drive, type Fleet, type Sight } from "../fleet";
import { bytes, count, duration, part, plural, text } from "../units";
import { totalOf } from "./sites";
import { wordsOf as wordsOfWarning, type ViewersWarning } from "./viewers";

export interface Concern {
  /** Its name, or that of a site. */
  of: string;
  /** Where it is on the page. */
  href: string;
  text: string;
}

export interface Verdict {
  mood: "well" | "busy" | "trouble" | "empty";
  title: string;
  /** One for each appliance or site that needs a look; empty when all is well. */
  concerns: Concern[];
  /** One line of facts about the fleet. */
  facts: string;
}

/** A head and a sentence while control does not tell how the fleet is. */
export function outageOf({ fleet, refusal }: Sight): [string, string] {
  if (refusal !== null) return ["Control cannot tell.", refusal];
  const words = fleet
    ? "Appliances go on serving, and films go on playing."
    : "Is nearcast-control running?";
  return ["Control does not answer.", words];
}

export const wordsOf = (state: Appliance["state"]): string => state.replace("_", " ");

/** Why nothing is read from a drive now; null if it serves. */
export function troubleOf(drive: Drive): "set aside" | "hung" | null {
  if (drive.state !== "ok") return "set aside";
  return drive.hung ? "hung" : null;
}

/** Whether it reports and can serve. To be drained is a wish, not a fault. */
export const isServing = (state: Appliance["state"]): boolean =>
  state === "healthy" || state === "draining" || state === "drained";

/** Why this appliance needs a look; null if it does not. */
export function concernOf(one: Appliance): string | null {
  const reports: string[] = [];
  if (one.state === "stale" && one.last_report_ms != null) {
    reports.push(`silent for ${duration(one.last_report_ms / 1000)}`);
  } else if (!isServing(one.state)) {
    reports.push(wordsOf(one.state));
  }
  const drives = one.report?.drives ?? [];
  for (const trouble of ["set aside", "hung"] as const) {
    const [first, ...rest] = drives.filter((drive) => troubleOf(drive) === trouble);
    if (!first) continue;
    const which = rest.length ? plural(rest.length + 1, "drive") : `drive ${first.path}`;
    reports.push(`${which} ${trouble}`);
  }
  return reports.length ? reports.join(", ") : null;
}

/** Whether objects are still missing on a healthy appliance. */
export const filling = (one: Appliance): boolean =>
  one.state === "healthy" &&
  one.report != null &&
  one.report.fill.objects_held < one.report.fill.objects_wanted;

/** How many appliances there are, and of each kind. */
interface Counts {
  all: number;
  ill: number;
  healthy: number;
  draining: number;
  drained: number;
  filling: number;
  held: number;
  wanted: number;
}

function countsOf(fleet: Fleet): Counts {
  if (fleet.brief) {
    const total = totalOf(fleet.sites);
    const { appliances: all, ill, healthy, leaving: draining, filling: some } = total;
    const [held, wanted] = [total.bytes_held, total.bytes_wanted];
    return { all, ill, healthy, draining, drained: 0, filling: some, held, wanted };
  }
  const appliances = appliancesOf(fleet);
  const those = (of: (one: Appliance) => boolean) => appliances.filter(of).length;
  const sum = (of: "bytes_held" | "bytes_wanted") =>
    appliances.reduce((total, one) => total + (one.report?.fill[of] ?? 0), 0);
  return {
    all: appliances.length,
    ill: those((one) => concernOf(one) !== null),
    healthy: those(({ state }) => state === "healthy"),
    draining: those(({ state }) => state === "draining"),
    drained: those(({ state }) => state === "drained"),
    filling: those(filling),
    held: sum("bytes_held"),
    wanted: sum("bytes_wanted"),
  };
}

/** With the number of appliances, and of sites, that need a look. */
function title(fleet: Fleet, counts: Counts, differing: number): string {
  const { all, ill } = counts;
  // Appliances first: a site is only as well as they are.
  for (const [kind, of, some] of [
    ["appliance", all, ill],
    ["site", fleet.sites.length, differing],
  ] as const) {
    const verb = some === 1 ? "needs" : "need";
    if (some) return `${count(some)} of ${plural(of, kind)} ${verb} a look`;
  }
  const left = (["draining", "drained"] as const).filter((state) => counts[state]);
  if (left.length) {
    const words = left.map((state) => `${counts[state]} ${state}`).join(", ");
    return `${count(counts.healthy)} of ${plural(all, "appliance")} healthy, ${words}`;
  }
  const healthy =
    all === 1 ? "The appliance is healthy" : `All ${count(all)} appliances are healthy`;
  if (counts.filling === 0) return healthy;
  return `${healthy}, ${counts.filling === all && all > 1 ? "all" : count(counts.filling)} filling`;
}

/** Concerns beyond these are counted: the list of sites has them first. */
const CONCERNS_SHOWN = 12;

export function verdictOf(fleet: Fleet, warnings: readonly ViewersWarning[] = []): Verdict {
  const counts = countsOf(fleet);
  if (counts.all === 0) {
    const facts = fleet.sites.length ? `${plural(fleet.sites.length, "site")} registered` : "";
    return { mood: "empty", title: "No appliances yet", concerns: [], facts };
  }
  const ill: Concern[] = fleet.sites.flatMap((site) =>
    site.appliances.flatMap((one) => {
      const text = concernOf(one);
      const page = fleet.brief ? `/?${new URLSearchParams({ site: site.id })}` : "";
      return text ? [{ of: one.id, href: `${page}#appliance-${one.id}`, text }] : [];
    }),
  );
  const stalling = warnings.map((warning) => {
    return { of: `site ${warning.site}`, href: "#viewers-title", text: wordsOfWarning(warning) };
  });
  const differing: Concern[] = fleet.sites
    .filter(({ routes_differ }) => routes_differ)
    .map(({ id }) => {
      const text = "its appliances hear different routes";
      const page = fleet.brief ? `/?${new URLSearchParams({ site: id })}` : "";
      return { of: `site ${id}`, href: `${page}#site-${id}`, text };
    });
  const concerns = [...ill, ...differing];
  const { held, wanted } = counts;
  const facts = [
    plural(fleet.sites.length, "site"),
    plural(fleet.asset_count || fleet.assets.length, "asset"),
    `${held < wanted ? part(held, wanted) : text(bytes(held))} held`,
    `generation\u00a0${fleet.generation}`,
  ].join(" · ");
  const all = [...concerns, ...stalling];
  const mood = all.length || counts.ill ? "trouble" : counts.filling ? "busy" : "well";
  const sites = warnings.map(({ site }) => site).join(", ");
  const first = title(fleet, counts, differing.length);
  const both = concerns.length ? `${first}, and viewers of ${sites}` : `Viewers of ${sites} stall`;
  const most = fleet.brief ? CONCERNS_SHOWN : all.length;
  const shown = all.slice(0, most);
  const more = counts.ill - ill.length + (all.length - shown.length);
  if (more > 0) shown.push({ of: count(more), href: "#overview", text: "more" });
  return { mood, title: stalling.length ? both : first, concerns: shown, facts };
}
