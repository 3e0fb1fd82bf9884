// Two minutes of samples, one a second: those of control, and where it has none (it was restarted,
// or did not answer) those that this page added up itself from the appliances' reports.

import { appliancesOf, type Fleet, type Sample } from "../fleet";

export const SPAN_S = 120;

/** Columns for a plot over `[now - SPAN_S, now]`; null where nothing is known. */
export interface Columns {
  at: number[];
  egress: (number | null)[];
  fill: (number | null)[];
  cpu: (number | null)[];
}

/** Adds up what the appliances that still report say of this second. */
export function sampleOf(fleet: Fleet): Sample {
  const loads = appliancesOf(fleet).flatMap(({ state, report }) =>
    report && (state === "healthy" || state === "draining") ? [report] : [],
  );
  const sum = (of: (report: (typeof loads)[number]) => number) =>
    loads.reduce((total, report) => total + of(report), 0);
  return {
    at_unix_s: fleet.now_unix_s,
    egress_bits_per_second: sum((report) => report.load.egress_bits_per_second),
    cpu_percent: loads.length ? sum((report) => report.load.cpu_percent) / loads.length : 0,
    fill_bits_per_second: sum((report) => report.fill.bits_per_second),
  };
}

export class History {
  private readonly samples = new Map<number, Sample>();

  add(fleet: Fleet): void {
    const own = sampleOf(fleet);
    if (appliancesOf(fleet).length) this.samples.set(own.at_unix_s, own);
    for (const sample of fleet.history) this.samples.set(sample.at_unix_s, sample);
    for (const at of this.samples.keys()) {
      if (at < fleet.now_unix_s - SPAN_S) this.samples.delete(at);
    }
  }

  get latest(): Sample | undefined {
    return this.samples.get(Math.max(...this.samples.keys()));
  }

  columns(now: number): Columns {
    const columns: Columns = { at: [], egress: [], fill: [], cpu: [] };
    for (let at = now - SPAN_S; at <= now; at += 1) {
      // A poll that falls just beside a second's edge skips that second: no hole for that.
      const sample = this.samples.get(at) ?? this.bridged(at);
      columns.at.push(at);
      columns.egress.push(sample?.egress_bits_per_second ?? null);
      columns.fill.push(sample?.fill_bits_per_second ?? null);
      columns.cpu.push(sample?.cpu_percent ?? null);
    }
    return columns;
  }

  private bridged(at: number): Sample | undefined {
    return this.samples.has(at + 1) ? this.samples.get(at - 1) : undefined;
  }
}
