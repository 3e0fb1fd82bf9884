// One appliance: its state and why, what it serves, its drives and its fill.

import { h, KeyedList, setAttribute, setText, svg, type View } from "../dom";
import { FaultButtons } from "../faults";
import type { Appliance, Drive, Report } from "../fleet";
import { bitRate, bytes, count, duration, part, percent, plural, text } from "../units";
import { concernOf, isServing, wordsOf, troubleOf } from "./verdict";

/** An appliance, and the facts of the page that its card needs. */
export interface CardItem {
  appliance: Appliance;
  /** Bits per second that left it lately. */
  egress: number;
  controls: string | null | undefined;
  /** Control answers: ages and rates are current. */
  current: boolean;
}

const SPARK_POINTS = 60;
/** Characters of a drive's path. */
const PATH_SHOWN = 18;

/** Egress of the last minute as this page saw it; no axes, scaled to its own peak. */
class Spark {
  readonly root = svg("svg", {
    class: "spark",
    viewBox: `0 0 ${SPARK_POINTS - 1} 20`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  private readonly area = svg("path", { class: "spark-area" });
  private readonly line = svg("path", { class: "spark-line" });
  private values: (number | null)[] = [];
  private last = -Infinity;

  constructor() {
    this.root.append(this.area, this.line);
  }

  /** Adds a second; null where nothing is known of it. Longer pauses are gaps. */
  push(value: number | null): void {
    const now = performance.now();
    const missed = Math.min(SPARK_POINTS, Math.round((now - this.last) / 1_000) - 1);
    this.last = now;
    const between = Array(Math.max(0, missed)).fill(missed > 1 ? null : value);
    this.values = [...this.values, ...between, value].slice(-SPARK_POINTS);
    const top = Math.max(1, ...this.values.map((one) => one ?? 0)) * 1.08;
    const first = SPARK_POINTS - this.values.length;
    let [line, area] = ["", ""];
    let run: string[] = [];
    [...this.values, null].forEach((one, index) => {
      const x = first + index;
      if (one !== null) run.push(`${x} ${(19.5 - (one / top) * 19).toFixed(2)}`);
      else if (run.length) {
        line += `M${run.join("L")}`;
        area += `M${x - run.length} 20L${run.join("L")}L${x - 1} 20Z`;
        run = [];
      }
    });
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", area);
  }
}

/** A labelled bar: `label ▓▓▓░░ detail`. */
class Bar {
  readonly label = h("span", { class: "bar-label" });
  readonly detail = h("span", { class: "bar-detail" });
  readonly root: HTMLElement;
  private readonly fill = h("span", { class: "meter-fill" });
  private readonly meter: HTMLElement;

  constructor(role: "meter" | "progressbar", kind: string) {
    const attributes = { class: "meter", role, "aria-valuemin": 0, "aria-valuemax": 100 };
    this.meter = h("span", attributes, this.fill);
    this.root = h("div", { class: `bar-row ${kind}` }, this.label, this.detail, this.meter);
  }

  set(label: string, detail: string, share: number, mood: string): void {
    const shown = Math.max(0, Math.min(1, share)) * 100;
    setText(this.label, label);
    setText(this.detail, detail);
    this.fill.style.width = `${shown.toFixed(1)}%`;
    setAttribute(this.root, "data-mood", mood);
    setAttribute(this.meter, "aria-valuenow", shown.toFixed(0));
    setAttribute(this.meter, "aria-label", label);
    setAttribute(this.meter, "aria-valuetext", detail);
  }
}

/** The end of a long path, which is what tells an appliance's drives apart. */
export function shortPath(path: string): string {
  if (path.length <= PATH_SHOWN) return path;
  const parts = path.split("/");
  let short = parts.pop() ?? "";
  for (let next = parts.pop(); next; next = parts.pop()) {
    if (short.length + next.length + 3 > PATH_SHOWN) break;
    short = `${next}/${short}`;
  }
  return `…/${short}`;
}

function driveView(): View<Drive> {
  const bar = new Bar("meter", "drive");
  const update = (drive: Drive) => {
    const label = shortPath(drive.path);
    setAttribute(bar.label, "title", label === drive.path ? null : drive.path);
    const used = Math.max(0, drive.capacity_bytes - drive.free_bytes);
    const share = drive.capacity_bytes > 0 ? used / drive.capacity_bytes : 0;
    const trouble = troubleOf(drive);
    if (trouble) {
      bar.set(label, `${trouble}: ${drive.reason ?? "no reason given"}`, 1, "aside");
    } else {
      const mood = share > 0.95 ? "full" : "ok";
      bar.set(label, part(used, drive.capacity_bytes), share, mood);
    }
  };
  return { root: bar.root, update };
}

/** One figure of the card's row of four. */
class Figure {
  readonly root: HTMLElement;
  private readonly value = h("dd", {}, "–");

  constructor(label: string, title: string) {
    this.root = h("div", { class: "figure", title }, h("dt", {}, label), this.value);
  }

  set(value: string): void {
    setText(this.value, value);
  }
}

export class Card implements View<CardItem> {
  readonly root: HTMLElement;
  private readonly state = h("span", { class: "state" });
  private readonly line = h("p", { class: "card-line" });
  private readonly hint = h(
    "p",
    { class: "card-hint" },
    "Its configuration must name this control: ",
    h("code", {}, `[control] url = "${location.origin}"`),
  );
  private readonly where = h("span", { class: "card-where" });
  private readonly spark = new Spark();
  private readonly egress = new Figure("Egress", "Body bytes that left, mean of the last 5 s");
  private readonly cpu = new Figure("CPU", "Share of its worker cores in use");
  private readonly connections = new Figure("Connections", "Open now");
  private readonly errors = new Figure("Errors", "Requests answered with an error since start");
  private readonly drives: KeyedList<Drive>;
  private readonly drivesRoot = h("div", { class: "drives" });
  private readonly kind = h("p", { class: "card-kind" });
  private readonly fill = new Bar("progressbar", "fill");
  private readonly faults: FaultButtons;
  private readonly body: HTMLElement;

  constructor({ appliance }: CardItem) {
    const name = h("h3", { class: "card-name" }, appliance.id);
    const figures = [this.egress, this.cpu, this.connections, this.errors];
    this.faults = new FaultButtons(appliance.id);
    this.drives = new KeyedList(this.drivesRoot, (drive) => drive.path, driveView);
    this.body = h(
      "div",
      { class: "card-body" },
      this.spark.root,
      h("dl", { class: "figures" }, ...figures.map((figure) => figure.root)),
      this.drivesRoot,
      this.fill.root,
    );
    this.root = h(
      "article",
      {
        class: "card",
        id: `appliance-${appliance.id}`,
        tabindex: -1,
        "aria-label": `Appliance ${appliance.id}`,
      },
      h("div", { class: "card-head" }, name, this.where, this.state),
      this.line,
      this.kind,
      this.hint,
      this.body,
      this.faults.root,
    );
  }

  update({ appliance, egress, controls, current }: CardItem): void {
    const { report, state } = appliance;
    const fresh = current && isServing(state);
    setText(this.state, wordsOf(state));
    setAttribute(this.root, "data-state", state);
    setAttribute(this.root, "data-fresh", fresh ? "yes" : "no");
    setText(this.where, appliance.base_url?.replace(/^https?:\/\//, "") ?? "");
    setText(this.line, lineOf(appliance));
    const kind = kindOf(appliance);
    setText(this.kind, kind);
    this.kind.hidden = kind === "";
    setAttribute(this.root, "data-concern", concernOf(appliance) ? "" : null);
    if (current) this.spark.push(fresh ? egress : null);
    this.egress.set(fresh ? text(bitRate(egress)) : "–");
    this.body.hidden = report == null;
    this.hint.hidden = report != null;
    if (report) this.showReport(report, fresh);
    this.faults.update(controls, state !== "healthy");
  }

  private showReport(report: Report, fresh: boolean): void {
    const { load, fill } = report;
    this.cpu.set(fresh ? text(percent(load.cpu_percent)) : "–");
    this.connections.set(fresh ? count(load.connections) : "–");
    this.errors.set(count(load.request_errors));
    this.drives.update(report.drives);
    const share = fill.bytes_wanted > 0 ? fill.bytes_held / fill.bytes_wanted : 1;
    const done = fill.objects_held >= fill.objects_wanted;
    const objects = `${count(fill.objects_held)} of ${plural(fill.objects_wanted, "object")}`;
    if (fill.objects_wanted === 0) this.fill.set("Fill", "nothing wanted yet", 0, "idle");
    else if (done)
      this.fill.set("Fill", `complete, ${plural(fill.objects_held, "object")}`, 1, "ok");
    else {
      const rate = fresh ? ` · ${text(bitRate(fill.bits_per_second))}` : "";
      this.fill.set("Fill", `${objects} · ${text(percent(share * 100))}${rate}`, share, "busy");
    }
  }
}

/** The kind of machine, what it is able to do, and its tags; nothing if nobody said. */
export function kindOf(one: Appliance): string {
  const { profile = "none", profile_name: ownName = "", abilities, tags = [] } = one;
  const { throughput_bps: serves, capacity_bytes: holds, fill_bps: fetches } = abilities ?? {};
  const words = [
    ownName || (profile === "none" ? "" : profile),
    serves ? `serves ${text(bitRate(serves))}` : "",
    holds ? `holds ${text(bytes(holds))}` : "",
    fetches ? `fetches ${text(bitRate(fetches))}` : "",
    ...tags.map((tag) => `#${tag}`),
  ];
  return words.filter(Boolean).join(" · ");
}

const isPartial = (one: Appliance) => (one.share_permille ?? 1000) < 1000;

/** The share of its sessions that it takes, and what it is shortest of. */
function shareOf(one: Appliance): string {
  const share = text(percent((one.share_permille ?? 1000) / 10));
  return `Takes ${share} of its sessions for now${bottleneckOf(one)}`;
}

/** What it is shortest of, with a dot before. */
function bottleneckOf(one: Appliance): string {
  const [worst] = one.load ?? [];
  return worst ? ` · ${worst.name} ${text(percent(worst.permille / 10))} used` : "";
}

/** The line under the name: version and uptime of a well appliance, the fault of any other. */
export function lineOf(one: Appliance): string {
  const { report, state } = one;
  if (state === "healthy" && report) {
    const trouble = report.drives.some((drive) => troubleOf(drive));
    const up = duration(report.uptime_s);
    if (!trouble && isPartial(one)) return shareOf(one);
    if (!trouble) {
      const drain = one.drain ? ` · drains from ${clock(one.drain.from_unix_s)}` : "";
      const manifest = `manifest ${report.generation}${bottleneckOf(one)}`;
      return `version ${report.software} · up ${up} · ${manifest}${drain}`;
    }
  }
  const concern = concernOf(one) ?? "";
  const reason = one.reason?.trim() ?? "";
  if (state === "stale" || reason === "") return capital(concern || wordsOf(state));
  const until = one.drain?.until_unix_s;
  const drained = state === "draining" || state === "drained";
  return capital(reason) + (drained && until ? `; it serves again from ${clock(until)}` : "");
}

/** A minute of the clock, in UTC. */
const clock = (unix: number) =>
  `${new Date(unix * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;

const capital = (sentence: string) => sentence.charAt(0).toUpperCase() + sentence.slice(1);
