// The figures below the film.

import { h, setAttribute, setText } from "../dom";
import { bitRate, duration, plural, text } from "../units";
import type { Rendition } from "./engine";

export interface Figures {
  buffer_s: number;
  buffer_max_s: number | null;
  rendition: Rendition | null;
  stalls: number;
  stall_ms: number;
  moves: number;
  failovers: number;
  first_frame_ms: number | null;
}

class Tile {
  readonly root: HTMLElement;
  private readonly value = h("span", { class: "tile-value" }, "–");
  private readonly note = h("span", { class: "tile-note" }, "\u00a0");

  constructor(label: string) {
    const figure = h("dd", {}, this.value, this.note);
    this.root = h("div", { class: "tile" }, h("dt", {}, label), figure);
  }

  set(value: string, note: string, bad = false): void {
    setText(this.value, value);
    setText(this.note, note || "\u00a0");
    setAttribute(this.root, "data-bad", bad ? "" : null);
  }
}

const seconds = (s: number): string => `${s.toFixed(1)}\u00a0s`;

export class Tiles {
  private readonly buffer = new Tile("Buffer");
  private readonly rendition = new Tile("Quality");
  private readonly stalls = new Tile("Stalls");
  private readonly failovers = new Tile("Fail-overs");
  private readonly firstFrame = new Tile("First frame");

  constructor(root: HTMLElement) {
    const tiles = [this.buffer, this.rendition, this.stalls, this.failovers, this.firstFrame];
    root.append(...tiles.map((tile) => tile.root));
  }

  update(now: Figures): void {
    const cap = now.buffer_max_s === null ? "player's default" : `cap ${now.buffer_max_s}\u00a0s`;
    this.buffer.set(seconds(now.buffer_s), cap);
    const { rendition } = now;
    const rate = rendition ? text(bitRate(rendition.bits_per_second)) : "";
    this.rendition.set(rendition ? `${rendition.height}p` : "–", rate);
    const lost = now.stalls ? `${seconds(now.stall_ms / 1000)} lost` : "";
    this.stalls.set(String(now.stalls), lost, now.stalls > 0);
    const moves = now.moves ? `${plural(now.moves, "move")} in all` : "";
    this.failovers.set(String(now.failovers), moves);
    const first = now.first_frame_ms;
    const since = "after opening";
    if (first === null) this.firstFrame.set("–", "");
    else if (first < 10_000) this.firstFrame.set(`${first.toFixed(0)}\u00a0ms`, since);
    else this.firstFrame.set(duration(first / 1000), since);
  }
}
