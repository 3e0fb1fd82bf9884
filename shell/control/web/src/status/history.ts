// Two minutes of samples, one a second: those that this page added up itself, and for the time
// before it was opened (or while it was hidden) those of control.

import { appliancesOf, type Fleet, type Sample } from "../fleet";
import { totalOf } from "./sites";
import type { Rates } from "./rates";
import { isServing } from "./verdict";

export const SPAN_S = 120;

/** A longer span, of which control has samples as far apart as this. */
export const SPANS = {
  minutes: { span_s: SPAN_S, step_s: 1, label: "2 min" },
  hour: { span_s: 3_600, step_s: 30, label: "Hour" },
  day: { span_s: 86_400, step_s: 600, label: "Day" },
} as const;
export type SpanName = keyof typeof SPANS;

/** Columns for a plot over `[now - span_s, now]`; null where nothing is known. */
export interface Columns {
  span_s: number;
  at: number[];
  egress: (number | null)[];
  fill: (number | null)[];
  cpu: (number | null)[];
}

/** Adds up what is known of this second from the appliances that still report. */
export function sampleOf(fleet: Fleet, rates: Rates): Sample {
  if (fleet.brief) {
    const { cpu_percent, ...sums } = totalOf(fleet.sites);
    const { egress_bits_per_second, fill_bits_per_second } = sums;
    const rest = { egress_bits_per_second, fill_bits_per_second };
    return { at_unix_s: fleet.now_unix_s, cpu_percent, ...rest };
  }
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

function push(columns: Columns, at: number, sample: Sample | undefined): void {
  columns.at.push(at);
  columns.egress.push(sample?.egress_bits_per_second ?? null);
  columns.fill.push(sample?.fill_bits_per_second ?? null);
  columns.cpu.push(sample?.cpu_percent ?? null);
}

/** Control's samples of a longer span. */
export function columnsOf(name: SpanName, samples: readonly Sample[], now: number): Columns {
  const { span_s, step_s } = SPANS[name];
  const columns: Columns = { span_s, at: [], egress: [], fill: [], cpu: [] };
  const by = new Map(samples.map((sample) => [sample.at_unix_s, sample]));
  const last = now - (now % step_s);
  for (let at = last - span_s; at <= last; at += step_s) push(columns, at, by.get(at));
  return columns;
}

export class History {
  private readonly own = new Map<number, Sample>();
  private readonly told = new Map<number, Sample>();

  add(fleet: Fleet, rates: Rates): void {
    const own = sampleOf(fleet, rates);
    if (appliancesOf(fleet).length || fleet.brief) this.own.set(own.at_unix_s, own);
    // After a restart control has told nothing yet: what it told before still holds.
    for (const sample of fleet.history) this.told.set(sample.at_unix_s, sample);
    for (const samples of [this.own, this.told]) {
      for (const at of samples.keys()) {
        if (at < fleet.now_unix_s - SPAN_S) samples.delete(at);
      }
    }
  }

  columns(now: number): Columns {
    const columns: Columns = { span_s: SPAN_S, at: [], egress: [], fill: [], cpu: [] };
    for (let at = now - SPAN_S; at <= now; at += 1) {
      // A poll that falls just beside a second's edge skips that second: no hole for that.
      const sample = this.own.get(at) ?? this.bridged(at) ?? this.told.get(at);
      push(columns, at, sample);
    }
    return columns;
  }

  private bridged(at: number): Sample | undefined {
    return this.own.has(at + 1) ? this.own.get(at - 1) : undefined;
  }
}
