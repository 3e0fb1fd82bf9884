// The page's first sentence: whether the fleet is well, and which appliances need a look.

import { appliancesOf, type Appliance, type Drive, type Fleet } from "../fleet";
import { bytes, duration, part, plural, text } from "../units";
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

/** With the number of appliances, and of sites, that need a look. */
function title(fleet: Fleet, ill: number, differing: number, fillingCount: number): string {
  const appliances = appliancesOf(fleet);
  const all = appliances.length;
  // Appliances first: a site is only as well as they are.
  for (const [kind, of, some] of [
    ["appliance", all, ill],
    ["site", fleet.sites.length, differing],
  ] as const) {
    const verb = some === 1 ? "needs" : "need";
    if (some) return `${some} of ${plural(of, kind)} ${verb} a look`;
  }
  const count = (wanted: Appliance["state"]) =>
    appliances.filter(({ state }) => state === wanted).length;
  const left = (["draining", "drained"] as const).filter(count);
  if (left.length) {
    const words = left.map((state) => `${count(state)} ${state}`).join(", ");
    return `${count("healthy")} of ${plural(all, "appliance")} healthy, ${words}`;
  }
  const healthy = all === 1 ? "The appliance is healthy" : `All ${all} appliances are healthy`;
  if (fillingCount === 0) return healthy;
  return `${healthy}, ${fillingCount === all && all > 1 ? "all" : fillingCount} filling`;
}

export function verdictOf(fleet: Fleet, warnings: readonly ViewersWarning[] = []): Verdict {
  const appliances = appliancesOf(fleet);
  if (appliances.length === 0) {
    const facts = fleet.sites.length ? `${plural(fleet.sites.length, "site")} registered` : "";
    return { mood: "empty", title: "No appliances yet", concerns: [], facts };
  }
  const ill: Concern[] = appliances.flatMap((one) => {
    const text = concernOf(one);
    return text ? [{ of: one.id, href: `#appliance-${one.id}`, text }] : [];
  });
  const stalling = warnings.map((warning) => {
    return { of: `site ${warning.site}`, href: "#viewers-title", text: wordsOfWarning(warning) };
  });
  const differing: Concern[] = fleet.sites
    .filter(({ routes_differ }) => routes_differ)
    .map(({ id }) => {
      const text = "its appliances hear different routes";
      return { of: `site ${id}`, href: `#site-${id}`, text };
    });
  const concerns = [...ill, ...differing];
  const fillingCount = appliances.filter(filling).length;
  const sum = (of: "bytes_held" | "bytes_wanted") =>
    appliances.reduce((total, one) => total + (one.report?.fill[of] ?? 0), 0);
  const [held, wanted] = [sum("bytes_held"), sum("bytes_wanted")];
  const facts = [
    plural(fleet.sites.length, "site"),
    plural(fleet.assets.length, "asset"),
    `${held < wanted ? part(held, wanted) : text(bytes(held))} held`,
    `generation\u00a0${fleet.generation}`,
  ].join(" · ");
  const all = [...concerns, ...stalling];
  const mood = all.length ? "trouble" : fillingCount ? "busy" : "well";
  const sites = warnings.map(({ site }) => site).join(", ");
  const first = title(fleet, ill.length, differing.length, fillingCount);
  const both = concerns.length ? `${first}, and viewers of ${sites}` : `Viewers of ${sites} stall`;
  return { mood, title: stalling.length ? both : first, concerns: all, facts };
}
