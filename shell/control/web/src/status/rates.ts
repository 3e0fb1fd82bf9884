// Egress of each appliance, from its byte counter, as the mean of some seconds. The rate in a
// report covers only the time since the report before, and one that is never looked at is lost: a
// player that fetches a piece every four seconds may fall between all looks. Counters lose
// nothing.

import { appliancesOf, type Fleet } from "../fleet";

interface Reading {
  start_id: number;
  bytes: number;
  at_ms: number;
}

/** Players fetch a piece every two to six seconds: over this time their bursts even out. */
const WINDOW_MS = 5_000;
/** After a longer time without a look (the page was hidden), readings begin anew. */
const GAP_MAX_MS = 2_500;
/** Ages are whole milliseconds: closer than this, it is the same report. */
const SAME_MS = 50;

export class Rates {
  private readonly readings = new Map<string, Reading[]>();
  private readonly rates = new Map<string, number>();

  /** Takes an answer of control that came at `now_ms`. */
  update(fleet: Fleet, now_ms: number): void {
    for (const { id, report, last_report_ms } of appliancesOf(fleet)) {
      if (!report) {
        this.readings.delete(id);
        this.rates.delete(id);
        continue;
      }
      const { start_id, load } = report;
      const at_ms = now_ms - (last_report_ms ?? 0);
      this.read(id, { start_id, bytes: load.egress_bytes, at_ms }, load.egress_bits_per_second);
    }
  }

  /** Bits per second that left this appliance lately; 0 if nothing is known. */
  egress(id: string): number {
    return this.rates.get(id) ?? 0;
  }

  private read(id: string, reading: Reading, reported: number): void {
    const before = this.readings.get(id) ?? [];
    const last = before.at(-1);
    const follows = last?.start_id === reading.start_id && last.bytes <= reading.bytes;
    const gap = last ? reading.at_ms - last.at_ms : 0;
    if (follows && gap < SAME_MS) return;
    const kept = follows && gap <= GAP_MAX_MS ? before : [];
    const from = reading.at_ms - WINDOW_MS - SAME_MS;
    const now = [...kept.filter(({ at_ms }) => at_ms >= from), reading];
    this.readings.set(id, now);
    const [first] = now;
    const span = first ? reading.at_ms - first.at_ms : 0;
    const counted = first && span > 0;
    this.rates.set(id, counted ? ((reading.bytes - first.bytes) * 8_000) / span : reported);
  }
}
