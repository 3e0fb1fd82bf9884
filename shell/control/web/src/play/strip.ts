// The film as a strip: each piece in the colour of the appliance that it came from, its height the
// quality, a line for where the film is, and marks for what was broken when.

import { h, setAttribute, setText, svg } from "../dom";
import { toneOf } from "../palette";
import { position } from "../units";
import type { Segment } from "./engine";

/** A longer film is shown through a window of this length. */
const WINDOW_S = 180;
const VIDEO_LANE = { top: 0, height: 40 };
const AUDIO_LANE = { top: 45, height: 9 };
const HEIGHT = 54;
/** Where in the window the playhead rests while it slides. */
const REST = 0.7;
const PIECES_MAX = 2_000;
const MARKS_MAX = 20;

interface Piece {
  at: number;
  end: number;
  source: string;
  element: SVGElement;
}

interface Mark {
  at: number;
  element: HTMLElement;
}

export class Strip {
  private readonly pieces = new Map<string, Piece>();
  private readonly marks: Mark[] = [];
  private readonly art = svg("svg", { class: "strip-art", preserveAspectRatio: "none" });
  private readonly lanes = svg("g");
  private readonly head = h("span", { class: "strip-head" });
  private readonly flags = h("div", { class: "strip-flags" });
  private readonly times = [h("span"), h("span"), h("span")];
  private readonly frame: HTMLElement;
  private from = 0;
  private span = WINDOW_S;

  constructor(root: HTMLElement) {
    const names = h("div", { class: "strip-names", "aria-hidden": "true" }, h("span", {}, "video"));
    names.append(h("span", {}, "audio"));
    this.art.append(this.lanes);
    this.frame = h("div", { class: "strip-frame", role: "img" }, this.flags, this.head);
    this.frame.append(this.art);
    const times = h("div", { class: "strip-times", "aria-hidden": "true" }, ...this.times);
    root.append(names, this.frame, times);
    this.show(0, Number.NaN);
  }

  /** Adds a piece, or replaces it: the latest source of a stretch is the one that is played. */
  add(segment: Segment, source: string): void {
    const lane = segment.kind === "audio" ? AUDIO_LANE : VIDEO_LANE;
    const key = `${segment.kind} ${segment.start.toFixed(2)}`;
    const share = segment.kind === "audio" ? 1 : (segment.rung + 1) / segment.rungs;
    const height = lane.height * Math.max(0.3, share);
    const element = this.pieces.get(key)?.element ?? svg("rect", { rx: 0 });
    setAttribute(element, "data-tone", toneOf(source));
    setAttribute(element, "x", segment.start.toFixed(3));
    setAttribute(element, "width", Math.max(0.05, segment.duration - 0.3).toFixed(3));
    setAttribute(element, "y", (lane.top + lane.height - height).toFixed(1));
    setAttribute(element, "height", height.toFixed(1));
    this.lanes.append(element);
    const end = segment.start + segment.duration;
    this.pieces.delete(key);
    this.pieces.set(key, { at: segment.start, end, source, element });
    if (this.pieces.size <= PIECES_MAX) return;
    const [oldest] = this.pieces.keys();
    if (oldest === undefined) return;
    this.pieces.get(oldest)?.element.remove();
    this.pieces.delete(oldest);
  }

  /** Notes what happened while the film was at `at`. */
  mark(at: number, label: string, bad: boolean): void {
    const flag = { class: "strip-flag", "data-bad": bad };
    const element = h("span", flag, h("span", {}, label));
    this.flags.append(element);
    this.marks.push({ at, element });
    if (this.marks.length > MARKS_MAX) this.marks.shift()?.element.remove();
    this.place();
  }

  show(now: number, duration: number): void {
    const known = Number.isFinite(duration) && duration > 0;
    this.span = known ? Math.min(duration, WINDOW_S) : WINDOW_S;
    const furthest = known ? Math.max(0, duration - this.span) : Number.MAX_VALUE;
    this.from = Math.min(furthest, Math.max(0, now - this.span * REST));
    setAttribute(this.art, "viewBox", `${this.from.toFixed(2)} 0 ${this.span} ${HEIGHT}`);
    this.head.style.left = this.left(now);
    const labels = [this.from, this.from + this.span / 2, this.from + this.span].map(position);
    this.times.forEach((element, index) => setText(element, labels[index] ?? ""));
    this.place();
    setAttribute(this.frame, "aria-label", this.summary());
  }

  private left(at: number): string {
    return `${(((at - this.from) / this.span) * 100).toFixed(3)}%`;
  }

  private place(): void {
    for (const { at, element } of this.marks) {
      element.style.left = this.left(at);
      element.hidden = at < this.from || at > this.from + this.span;
      setAttribute(element, "data-late", at > this.from + this.span * 0.85 ? "" : null);
    }
  }

  /** The strip in words: "Video from a1 0:00 to 0:44, a2 0:44 to 1:20". */
  private summary(): string {
    const video = [...this.pieces].filter(([key]) => key.startsWith("video"));
    video.sort(([, a], [, b]) => a.at - b.at);
    const runs: { source: string; at: number; end: number }[] = [];
    for (const [, { source, at, end }] of video) {
      const last = runs.at(-1);
      if (last?.source === source) last.end = end;
      else runs.push({ source, at, end });
    }
    if (runs.length === 0) return "No piece of the film has arrived yet";
    const words = runs.map(({ source, at, end }) => {
      return `${source} ${position(at)} to ${position(end)}`;
    });
    return `Video from ${words.slice(-8).join(", ")}`;
  }
}
