// Two minutes of samples, one a second: those that this page added up itself, and for the time
// before it was opened (or while it was hidden) those of control.

import { appliancesOf, type Fleet, type Sample } from "../fleet";
import type { Rates } from "./rates";
import { isServing } from "./verdict";

export const SPAN_S = 120;

/** Columns for a plot over `[now - SPAN_S, now]`; null where nothing is known. */
export interface Columns {
  at: number[];
  egress: (number | null)[];
  fill: (number | null)[];
  cpu: (number | null)[];
}

/** Adds up what is known of this second from the appliances that still report. */
export function sampleOf(fleet: Fleet, rates: Rates): Sample {
  const present = appliancesOf(fleet).flatMap(({ id, state, report }) =>
    report && isServing(state) ? [{ id, report }] : [],
  );
  const sum = (of: (one: (typeof present)[number]) => number) =>
    present.reduce((total, one) => total + of(one), 0);
  const cpu = sum(({ report }) => report.load.cpu_percent);
  return {
    at_unix_s: fleet.now_unix_s,
    egress_bits_per_second: sum(({ id }) => rates.egress(id)),
    cpu_percent: present.length ? cpu / present.length : 0,
    fill_bits_per_second: sum(({ report }) => report.fill.bits_per_second),
  };
}

export class History {
  private readonly own = new Map<number, Sample>();
  private readonly told = new Map<number, Sample>();

  add(fleet: Fleet, rates: Rates): void {
    const own = sampleOf(fleet, rates);
    if (appliancesOf(fleet).length) this.own.set(own.at_unix_s, own);
    // After a restart control has told nothing yet: what it told before still holds.
    for (const sample of fleet.history) this.told.set(sample.at_unix_s, sample);
    for (const samples of [this.own, this.told]) {
      for (const at of samples.keys()) {
        if (at < fleet.now_unix_s - SPAN_S) samples.delete(at);
      }
    }
  }

  columns(now: number): Columns {
    const columns: Columns = { at: [], egress: [], fill: [], cpu: [] };
    for (let at = now - SPAN_S; at <= now; at += 1) {
      // A poll that falls just beside a second's edge skips that second: no hole for that.
      const sample = this.own.get(at) ?? this.bridged(at) ?? this.told.get(at);
      columns.at.push(at);
      columns.egress.push(sample?.egress_bits_per_second ?? null);
      columns.fill.push(sample?.fill_bits_per_second ?? null);
      columns.cpu.push(sample?.cpu_percent ?? null);
    }
    return columns;
  }

  private bridged(at: number): Sample | undefined {
    return this.own.has(at + 1) ? this.own.get(at - 1) : undefined;
  }
}
