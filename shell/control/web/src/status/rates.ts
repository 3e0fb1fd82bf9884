// Egress of each appliance, from its byte counter. The rate in a report covers only the time since
// the report before, and one that is never looked at is lost: a player that fetches a piece every
// four seconds may fall between all looks. Counters lose nothing.

import { appliancesOf, type Fleet } from "../fleet";

interface Reading {
  start_id: number;
  bytes: number;
  at_ms: number;
}

/** Over a longer time, a rate says little about this second. */
const SPAN_MAX_MS = 2_500;

export class Rates {
  private readonly readings = new Map<string, Reading>();
  private readonly rates = new Map<string, number>();

  /** Takes an answer of control that came at `now_ms`. */
  update(fleet: Fleet, now_ms: number): void {
    for (const { id, report, last_report_ms } of appliancesOf(fleet)) {
      if (!report) {
        this.readings.delete(id);
        this.rates.delete(id);
        continue;
      }
      const { egress_bytes: bytes, egress_bits_per_second: reported } = report.load;
      const reading = { start_id: report.start_id, bytes, at_ms: now_ms - (last_report_ms ?? 0) };
      const before = this.readings.get(id);
      const span = before ? reading.at_ms - before.at_ms : 0;
      const same = before?.start_id === reading.start_id && before.bytes <= bytes;
      // Ages are whole milliseconds: less than this apart, it is the same report.
      if (before && same && span < 50) continue;
      this.readings.set(id, reading);
      const counted = before && same && span <= SPAN_MAX_MS;
      this.rates.set(id, counted ? ((bytes - before.bytes) * 8_000) / span : reported);
    }
  }

  /** Bits per second that left this appliance lately; 0 if nothing is known. */
  egress(id: string): number {
    return this.rates.get(id) ?? 0;
  }
}
