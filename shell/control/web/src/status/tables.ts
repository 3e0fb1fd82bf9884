// The two lists below the appliances: assets and errors.

import { h, KeyedList, setAttribute, setText, type View } from "../dom";
import type { Asset, Fleet, FleetError } from "../fleet";
import { bytes, duration, plural, text } from "../units";

interface AssetItem {
  asset: Asset;
  demo: boolean;
}

/** Players for the entry formats an asset has. */
const PLAYERS = [
  { format: "hls", player: "hls", label: "HLS" },
  { format: "dash", player: "dash", label: "DASH" },
];

/** In the demo a short buffer makes a failure felt at once, which is the point of it. */
const DEMO_BUFFER_S = 12;

const ERRORS_SHOWN = 6;

function playUrl(asset: string, player: string, demo: boolean): string {
  const query = new URLSearchParams({ asset, player });
  if (demo) query.set("buffer", String(DEMO_BUFFER_S));
  return `/play?${query}`;
}

function assetView({ asset }: AssetItem): View<AssetItem> {
  const size = h("span", {});
  const version = h("span", { class: "row-version" });
  const facts = h("span", { class: "row-facts" }, size, version);
  const copies = h("span", { class: "row-copies" });
  const links = h("span", { class: "row-links" });
  const name = h("span", { class: "row-name" }, asset.id);
  const root = h("li", { class: "row asset" }, name, facts, copies, links);
  const linkList = new KeyedList<{ label: string; href: string }>(
    links,
    ({ label }) => label,
    ({ label }) => {
      const about = `Play ${label}: ${asset.id}`;
      const link = h("a", { class: "button", "aria-label": about }, `Play ${label}`);
      return { root: link, update: ({ href }) => setAttribute(link, "href", href) };
    },
  );
  const update = ({ asset: now, demo }: AssetItem) => {
    setText(size, `${plural(now.files, "file")} · ${text(bytes(now.bytes))}`);
    setText(version, now.current_version ?? "no version yet");
    const short = now.copies_complete < now.copies_wanted;
    setText(copies, `${now.copies_complete} of ${plural(now.copies_wanted, "copy", "copies")}`);
    setAttribute(copies, "data-mood", short ? "busy" : "ok");
    const formats = new Set(now.entries.map(({ format }) => format.toLowerCase()));
    const playable = PLAYERS.filter(({ format }) => formats.has(format));
    linkList.update(
      playable.map(({ label, player }) => ({ label, href: playUrl(now.id, player, demo) })),
    );
  };
  return { root, update };
}

interface ErrorItem {
  error: FleetError;
  now: number;
}

function errorView(): View<ErrorItem> {
  const when = h("time", { class: "row-when" });
  const who = h("span", { class: "row-who" });
  const what = h("span", { class: "row-what" });
  const update = ({ error, now }: ErrorItem) => {
    setText(when, `${duration(now - error.at_unix_s)} ago`);
    setAttribute(when, "datetime", new Date(error.at_unix_s * 1000).toISOString());
    setText(who, `${error.appliance} · ${error.room}`);
    setText(what, error.text);
  };
  return { root: h("li", { class: "row error" }, when, who, what), update };
}

/** A list that says something when it is empty. */
class Listing<T> {
  private readonly list = h("ul", { class: "rows" });
  private readonly rows: KeyedList<T>;
  private readonly empty: HTMLElement;

  constructor(
    root: HTMLElement,
    empty: (Node | string)[],
    keyOf: (item: T) => string,
    create: (item: T) => View<T>,
  ) {
    this.rows = new KeyedList(this.list, keyOf, create);
    this.empty = h("p", { class: "nothing" }, ...empty);
    root.append(this.list, this.empty);
  }

  update(items: T[]): void {
    this.rows.update(items);
    this.list.hidden = items.length === 0;
    this.empty.hidden = items.length > 0;
  }
}

export class Tables {
  private readonly assets: Listing<AssetItem>;
  private readonly errors: Listing<ErrorItem>;
  private readonly more: HTMLButtonElement;
  private latest: ErrorItem[] = [];
  private all = false;

  constructor(assets: HTMLElement, errors: HTMLElement) {
    const ingest = h("code", {}, "nearcast ingest DIR --asset film --source URL/");
    this.assets = new Listing<AssetItem>(
      assets,
      ["Nothing to play yet. Bring in a film: ", ingest],
      ({ asset }) => asset.id,
      assetView,
    );
    this.errors = new Listing<ErrorItem>(
      errors,
      ["No appliance reports an error."],
      ({ error }) => `${error.at_unix_s} ${error.appliance} ${error.room} ${error.text}`,
      errorView,
    );
    const toggle = () => {
      this.all = !this.all;
      this.showErrors();
    };
    this.more = h("button", { type: "button", class: "button more", onclick: toggle });
    errors.append(this.more);
  }

  update(fleet: Fleet): void {
    const demo = Boolean(fleet.demo_controls);
    this.assets.update(fleet.assets.map((asset) => ({ asset, demo })));
    const newestFirst = [...fleet.errors].sort((a, b) => b.at_unix_s - a.at_unix_s);
    this.latest = newestFirst.map((error) => ({ error, now: fleet.now_unix_s }));
    this.showErrors();
  }

  private showErrors(): void {
    const count = this.latest.length;
    this.errors.update(this.all ? this.latest : this.latest.slice(0, ERRORS_SHOWN));
    this.more.hidden = count <= ERRORS_SHOWN;
    setText(this.more, this.all ? "Show the latest only" : `Show all ${count}`);
    setAttribute(this.more, "aria-expanded", String(this.all));
  }
}
