// The column beside the film: the server, the appliances (in the demo with buttons), and events.

import { byId, h, KeyedList, setAttribute, setText, type View } from "../dom";
import { FaultButtons, type Verb } from "../faults";
import type { ApplianceState, Fleet } from "../fleet";
import { toneOf } from "../palette";
import { wordsOf } from "../status/verdict";
import { bytes, position, text } from "../units";
import type { Delivery } from "./delivery";

const EVENTS_MAX = 60;

export interface Source {
  id: string;
  site: string;
  state: ApplianceState;
  bytes: number;
  controls: string | null | undefined;
}

function sourceView(id: string, onFault: (id: string, verb: Verb) => void): View<Source> {
  const site = h("span", { class: "source-site" });
  const served = h("span", { class: "source-bytes" });
  const state = h("span", { class: "state" });
  const faults = new FaultButtons(id, (verb) => onFault(id, verb));
  const swatch = h("span", { class: "swatch", "data-tone": toneOf(id) });
  const head = h("div", { class: "source-head" }, swatch, h("strong", {}, id), site, state);
  const root = h("li", { class: "source" }, head, served, faults.root);
  const update = (source: Source) => {
    setText(site, source.site);
    setText(state, wordsOf(source.state));
    setAttribute(root, "data-state", source.state);
    const some = source.bytes > 0;
    const what = some ? text(bytes(source.bytes)) : "nothing";
    setText(served, `${what} to this player`);
    faults.update(source.controls, source.state !== "healthy");
  };
  return { root, update };
}

export class Side {
  private readonly sources: KeyedList<Source>;
  private readonly events = byId("events");

  constructor(onFault: (id: string, verb: Verb) => void) {
    this.sources = new KeyedList(
      byId("sources"),
      ({ id }) => id,
      ({ id }) => sourceView(id, onFault),
    );
  }

  /** In the demo every appliance, so that each can be broken; else those that served this film. */
  showSources(fleet: Fleet, served: Record<string, number>): void {
    const controls = fleet.demo_controls;
    const all = fleet.sites.flatMap((site) =>
      site.appliances.map(({ id, state }): Source => {
        return { id, site: site.id, state, bytes: served[id] ?? 0, controls };
      }),
    );
    const shown = controls ? all : all.filter((source) => source.bytes > 0);
    this.sources.update(shown);
    byId("sources-none").hidden = shown.length > 0;
  }

  showServing(delivery: Delivery): void {
    const video = delivery.servingNow("video");
    const audio = delivery.servingNow("audio");
    const first = video ?? audio;
    setText(byId("served-name"), first ?? "nobody yet");
    setAttribute(byId("served-swatch"), "data-tone", first === null ? null : toneOf(first));
    if (first === null) return;
    const site = delivery.siteOf(first);
    const parts = site === null ? [] : [`site ${site}`];
    if (video && audio && video !== audio) parts.push(`sound from ${audio}`);
    setText(byId("served-detail"), parts.join(" · ") || "\u00a0");
  }

  event(at: number, what: string, mood: "bad" | "note"): void {
    const when = h("span", { class: "event-when" }, position(at));
    this.events.prepend(h("li", { "data-mood": mood }, when, h("span", {}, what)));
    while (this.events.children.length > EVENTS_MAX) this.events.lastElementChild?.remove();
  }
}
