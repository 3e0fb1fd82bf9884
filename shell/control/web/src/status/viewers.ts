// What viewers felt in the last ten minutes, by site, asset, network and player.

import { h, KeyedList, setAttribute, setText, svg, type View } from "../dom";
import { rest } from "../fleet";
import type { ViewersFigures, ViewersOut, ViewersRow, ViewersWarning } from "../../made/api";
import { bitRate, count, duration, percent, plural, short, text } from "../units";

export type { ViewersOut, ViewersWarning } from "../../made/api";

const POLL_MS = 2_000;
const POLL_HIDDEN_MS = 20_000;
const TIMEOUT_MS = 2_500;

/** By what rows are told apart, in their order, and how many of each are shown. */
export const GROUPS = [
  { by: "site", title: "Site", most: 12 },
  { by: "asset", title: "Asset", most: 6 },
  { by: "network", title: "Network", most: 6 },
  { by: "player", title: "Player", most: 9 },
] as const;

/** Who told it, for people. */
const SOURCES: Record<string, string> = {
  requests: "told with requests",
  events: "told by events",
  estimate: "estimated by the server",
};

const COLUMNS = [
  ["Playbacks", "Begun or joined"],
  ["Start-up", "Mean from the first request, or the wish to play, to the first frame"],
  ["Stalls", "Times that the picture stood still for want of media"],
  ["Stalled", "Share of the time of watching and stalling"],
  ["Bitrate", "Mean, and one bar for each of the last ten minutes"],
  ["Buffer", "Mean of what players had in store when they asked"],
  ["Sent / measured", "Mean rate of responses, and what players measured"],
] as const;

const NONE = "–";

const seconds = (ms: number | null | undefined): string =>
  ms == null ? NONE : `${(ms / 1000).toFixed(ms < 9_950 ? 1 : 0)}\u00a0s`;

const share = (part: number | null | undefined): string =>
  part == null ? NONE : text(percent(part * 100));

const rate = (bits: number | null | undefined): string =>
  bits == null ? NONE : short(bitRate(bits));

export interface Cells {
  playbacks: string;
  start: string;
  stalls: string;
  stalled: string;
  bitrate: string;
  buffer: string;
  rates: string;
}

/** What a row shows. */
export function cellsOf(recent: ViewersFigures): Cells {
  return {
    playbacks: count(recent.playbacks),
    start: seconds(recent.start_ms),
    stalls: count(recent.stalls),
    stalled: share(recent.stalled_share),
    bitrate: rate(recent.bits_per_second),
    buffer: seconds(recent.buffer_ms),
    rates: `${rate(recent.sent_bits_per_second)} / ${rate(recent.measured_bits_per_second)}`,
  };
}

/** Rows of a group that have something to show, those with most viewers first. */
export function rowsOf(rows: readonly ViewersRow[], by: string, most: number): ViewersRow[] {
  const seen = ({ recent }: ViewersRow) => recent.watched_ms + recent.stalled_ms;
  const alive = rows.filter((row) => row.by === by && (seen(row) > 0 || row.recent.playbacks > 0));
  return alive.sort((a, b) => seen(b) - seen(a)).slice(0, most);
}

/** In words, for the warning and the page's first sentence. */
export const wordsOf = ({ stalled_share, usual_share, stalls }: ViewersWarning): string =>
  `viewers stall: ${share(stalled_share)} of the last minute in ${plural(stalls, "stall")}, ` +
  `usual is ${share(usual_share)}`;

const BAR = { width: 4, gap: 1, height: 16 };

function rowView(): View<ViewersRow> {
  const source = h("span", { class: "viewers-source" });
  const name = h("span", {});
  const cells = COLUMNS.map(() => h("td", {}));
  const bars = svg("svg", {
    class: "viewers-bars",
    width: 10 * (BAR.width + BAR.gap),
    height: BAR.height,
    "aria-hidden": "true",
  });
  const figure = h("span", {});
  cells[4]?.append(figure, bars);
  const root = h("tr", {}, h("th", { scope: "row" }, name, source), ...cells);
  const update = (row: ViewersRow) => {
    setText(name, row.name);
    setText(source, SOURCES[row.source] ?? row.source);
    setAttribute(root, "data-source", row.source);
    const { recent } = row;
    const shown = cellsOf(recent);
    const { playbacks, start, stalls, stalled, bitrate, buffer, rates } = shown;
    [playbacks, start, stalls, stalled, null, buffer, rates].forEach((value, at) => {
      const cell = cells[at];
      if (cell && value !== null) setText(cell, value);
    });
    setText(figure, bitrate);
    const mood = (recent.stalled_share ?? 0) >= 0.01 ? "bad" : null;
    for (const at of [2, 3]) if (cells[at]) setAttribute(cells[at], "data-mood", mood);
    const most = Math.max(1, ...row.bitrates.map((bits) => bits ?? 0));
    bars.replaceChildren(
      ...row.bitrates.map((bits, at) => {
        const height = Math.max(1, Math.round(((bits ?? 0) / most) * BAR.height));
        const x = at * (BAR.width + BAR.gap);
        return svg("rect", { x, y: BAR.height - height, width: BAR.width, height });
      }),
    );
  };
  return { root, update };
}

interface Group {
  by: string;
  title: string;
  rows: ViewersRow[];
}

function groupView({ title }: Group): View<Group> {
  const heading = COLUMNS.map(([label, hint]) => h("th", { scope: "col", title: hint }, label));
  const root = h("tbody", {}, h("tr", {}, h("th", { scope: "col" }, title), ...heading));
  const body = h("tbody", {});
  const rows = new KeyedList<ViewersRow>(body, ({ name, source }) => `${source} ${name}`, rowView);
  // The list owns all children of its parent: the heading stands in a body of its own.
  const both = h("table", { class: "viewers-table" }, root, body);
  return { root: both, update: (group) => rows.update(group.rows) };
}

/** The panel. */
export class Viewers {
  private readonly warnings: KeyedList<ViewersWarning>;
  private readonly groups: KeyedList<Group>;
  private readonly empty: HTMLElement;

  constructor(root: HTMLElement) {
    const list = h("div", { role: "status" });
    const tables = h("div", {
      class: "viewers-tables",
      // It scrolls where the window is narrow, by keys, too.
      tabindex: 0,
      role: "group",
      "aria-label": "Tables of viewers",
    });
    this.empty = h(
      "p",
      { class: "nothing" },
      "Nobody has watched in the last ten minutes. What players say of themselves (CMCD) is " +
        "summed up here.",
    );
    this.warnings = new KeyedList<ViewersWarning>(
      list,
      ({ site }) => site,
      () => {
        const line = h("p", { class: "viewers-warning" });
        const update = (warning: ViewersWarning) => {
          const since = `for ${duration(warning.since_s)}`;
          setText(line, `Site ${warning.site}: ${wordsOf(warning)} (${since}).`);
        };
        return { root: line, update };
      },
    );
    this.groups = new KeyedList<Group>(tables, ({ by }) => by, groupView);
    root.append(list, tables, this.empty);
  }

  update(out: ViewersOut): void {
    this.warnings.update(out.warnings);
    const groups = GROUPS.map(({ by, title, most }) => {
      return { by, title, rows: rowsOf(out.rows, by, most) };
    });
    const shown = groups.filter(({ rows }) => rows.length);
    this.groups.update(shown);
    this.empty.hidden = shown.length > 0;
  }
}

/** Asks every two seconds, one request at a time. A failure changes nothing: the page shows it. */
export async function watchViewers(show: (viewers: ViewersOut) => void): Promise<never> {
  for (;;) {
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      const response = await fetch("/v1/viewers", { signal, cache: "no-store" });
      if (response.ok) show((await response.json()) as ViewersOut);
    } catch {
      // Control does not answer, which the page says by itself.
    }
    await rest(POLL_MS, POLL_HIDDEN_MS);
  }
}
