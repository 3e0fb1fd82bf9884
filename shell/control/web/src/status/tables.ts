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

/** How many more there are than control told, in words; nothing if it told all. */
export function moreThan(told: number, all: number | undefined, one: string): string {
  const more = (all ?? 0) - told;
  return more > 0 ? `and ${plural(more, `more ${one}`)}` : "";
}

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
  private readonly note = h("p", { class: "nothing" });

  constructor(
    root: HTMLElement,
    empty: (Node | string)[],
    keyOf: (item: T) => string,
    create: (item: T) => View<T>,
  ) {
    this.rows = new KeyedList(this.list, keyOf, create);
    this.empty = h("p", { class: "nothing" }, ...empty);
    root.append(this.list, this.empty, this.note);
  }

  /** `more` is said below the last row. */
  update(items: T[], more: string): void {
    this.rows.update(items);
    setText(this.note, more);
    this.note.hidden = more === "";
    this.list.hidden = items.length === 0;
    this.empty.hidden = items.length > 0;
  }
}

export class Tables {
  private readonly assets: Listing<AssetItem>;
  private readonly errors: Listing<ErrorItem>;
  private readonly more: HTMLButtonElement;
  private latest: ErrorItem[] = [];
  private untold = "";
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
    const { assets, asset_count, errors, error_count } = fleet;
    const more = moreThan(assets.length, asset_count, "asset");
    this.assets.update(assets.map((asset) => ({ asset, demo })), more);
    this.untold = moreThan(errors.length, error_count, "error");
    const newestFirst = [...errors].sort((a, b) => b.at_unix_s - a.at_unix_s);
    this.latest = newestFirst.map((error) => ({ error, now: fleet.now_unix_s }));
    this.showErrors();
  }

  private showErrors(): void {
    const count = this.latest.length;
    const few = count <= ERRORS_SHOWN;
    const shown = this.all ? this.latest : this.latest.slice(0, ERRORS_SHOWN);
    this.errors.update(shown, this.all || few ? this.untold : "");
    this.more.hidden = few;
    const all = this.untold ? `${count}, ${this.untold}` : `all ${count}`;
    setText(this.more, this.all ? "Show the latest only" : `Show ${all}`);
    setAttribute(this.more, "aria-expanded", String(this.all));
  }
}
