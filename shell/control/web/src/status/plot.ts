// One small plot of the fleet's last minutes, or of a longer span, with its figure above it.

import uPlot from "uplot";
import { h, setAttribute, setText } from "../dom";
import { duration, roundUp, short, text, type Quantity } from "../units";
import type { Columns } from "./history";

/** Below this width of the plot there is no room for an axis, CSS pixels. */
const NARROW = 240;
const AXIS_WIDTH = 62;
const FONT = "11px 'Inter Variable', system-ui, sans-serif";

export interface PlotOptions {
  label: string;
  /** What exactly is shown. */
  hint: string;
  /** Name of the CSS custom property with the line's colour. */
  tone: string;
  format: (value: number) => Quantity;
  /** The axis reaches at least up to here. */
  floor: number;
  /** The axis never reaches further than this. */
  ceiling?: number;
}

const probe = document.body.appendChild(h("span", { hidden: true }));

/** A colour of the style sheet as a canvas knows it: that of the light or of the dark scheme. */
function css(name: string): string {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

/** The largest value of a column; 0 if it has none. */
export const peak = (values: (number | null)[]): number =>
  values.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);

export class Plot {
  readonly root: HTMLElement;
  private readonly value = h("span", { class: "gauge-value" }, "–");
  private readonly unit = h("span", { class: "gauge-unit" });
  private readonly note = h("span", { class: "gauge-note" }, "\u00a0");
  private readonly canvas = h("div", { class: "gauge-plot", role: "img" });
  private readonly chart: uPlot;
  private readonly from = h("span", {}, "2 min ago");
  private at: number[] = [];
  private values: (number | null)[] = [];
  private hovered: number | null = null;
  private top = 1;
  private narrow = false;

  constructor(private readonly options: PlotOptions) {
    this.root = h(
      "div",
      { class: "gauge", title: options.hint },
      h("h2", { class: "gauge-label" }, options.label),
      h("p", { class: "gauge-now" }, this.value, this.unit, this.note),
      this.canvas,
      h("p", { class: "gauge-span", "aria-hidden": "true" }, this.from, h("span", {}, "now")),
    );
    this.top = options.floor;
    this.chart = new uPlot(this.settings(), [[], []], this.canvas);
    new ResizeObserver(([entry]) => {
      const { width, height } = entry?.contentRect ?? { width: 0, height: 0 };
      this.narrow = width < NARROW;
      if (width > 0) this.chart.setSize({ width: Math.floor(width), height: Math.floor(height) });
    }).observe(this.canvas);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", () => this.chart.redraw(false));
  }

  update({ at, span_s }: Columns, values: (number | null)[]): void {
    const { floor, ceiling, label, format } = this.options;
    this.at = at;
    this.values = values;
    setText(this.from, `${duration(span_s)} ago`);
    const most = peak(values);
    this.top = Math.min(ceiling ?? Infinity, roundUp(Math.max(floor, most)));
    const now = at.at(-1) ?? 0;
    this.chart.batch(() => {
      this.chart.setData([at, values], false);
      this.chart.setScale("x", { min: now - span_s, max: now });
      this.chart.setScale("y", { min: 0, max: this.top });
    });
    const latest = values.findLast((value) => value !== null);
    const words = latest == null ? "nothing known" : text(format(latest));
    setAttribute(
      this.canvas,
      "aria-label",
      `${label}: ${words}; highest of the last ${duration(span_s)} ${text(format(most))}`,
    );
    this.caption();
  }

  /** The figure above the plot: now, or the second under the pointer. */
  private caption(): void {
    const latest = this.values.findLast((value) => value !== null);
    const pointed = this.hovered === null ? null : (this.values[this.hovered] ?? null);
    const shown = pointed ?? latest;
    const quantity = shown == null ? { value: "–", unit: "" } : this.options.format(shown);
    setText(this.value, quantity.value);
    setText(this.unit, quantity.unit);
    const ago = (this.at.at(-1) ?? 0) - (this.at[this.hovered ?? -1] ?? 0);
    const highest = peak(this.values);
    if (pointed !== null) setText(this.note, ago === 0 ? "now" : `${duration(ago)} ago`);
    else if (highest > 0) setText(this.note, `highest ${text(this.options.format(highest))}`);
    else setText(this.note, "\u00a0");
  }

  private settings(): uPlot.Options {
    const { tone, format } = this.options;
    const grid = { stroke: () => css("--line"), width: 1 };
    const axis = { font: FONT, stroke: () => css("--muted"), grid, ticks: { show: false } };
    return {
      width: 320,
      height: 88,
      padding: [7, 0, 4, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { time: false }, y: { range: () => [0, this.top] } },
      axes: [
        { show: false },
        {
          ...axis,
          side: 1,
          size: () => (this.narrow ? 0 : AXIS_WIDTH),
          gap: 6,
          splits: () => [0, this.top / 2, this.top],
          values: (_u, splits) =>
            splits.map((value) => (this.narrow ? "" : value ? short(format(value)) : "0")),
        },
      ],
      series: [
        {},
        {
          stroke: () => css(tone),
          fill: () => css(`${tone}-wash`),
          width: 1.75,
          points: { show: false },
          spanGaps: false,
        },
      ],
      hooks: {
        setCursor: [
          (chart) => {
            this.hovered = chart.cursor.idx ?? null;
            this.caption();
          },
        ],
      },
    };
  }
}
