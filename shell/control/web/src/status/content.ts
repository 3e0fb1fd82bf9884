// What lies where, and what moves: tonight's plan, fill by site, what viewers are expected to
// watch, and how much of what they were sent had to be fetched.

import { byId, h, KeyedList, setAttribute, setText, svg, type View } from "../dom";
import { get, rest, type Fleet, type Sample } from "../fleet";
import { bytes, count, duration, part, percent, plural, text } from "../units";
import { SPANS } from "./history";
import { siteUrl } from "./sites";
import type {
  BacktestOut,
  CarriedOutPlan,
  FillAppliance,
  FillOut,
  FillSite,
  PlanOut,
  PopularItem,
  Popularity,
} from "../../made/api";

const POLL_MS = 10_000;
/** A sample of the day is as long as ten of these. */
const POLL_DAY_MS = 60_000;
/** Of more sites control is asked less often. */
const SITES_PER_POLL = 200;
/** A forecast is worked out for whoever asks, and changes once an hour. */
const POLL_POPULARITY_MS = 600_000;
/** Sites that lack something are shown first. */
const SITES_SHOWN = 12;
const PLANS_SHOWN = 14;
/** Items of the curve: control lists as many at most. */
const ITEMS = 10_000;
/** Until somebody says otherwise. */
const NEVER = 2 ** 53 - 1;

/** Bytes served and fetched in the samples of a day. */
export function savingsOf(samples: readonly Sample[], step_s: number) {
  const sum = (of: "egress_bits_per_second" | "fill_bits_per_second") =>
    samples.reduce((all, one) => all + (one[of] * step_s) / 8, 0);
  return { served: sum("egress_bits_per_second"), fetched: sum("fill_bits_per_second") };
}

/** The same in a sentence. */
export function wordsOfSavings({ served, fetched }: ReturnType<typeof savingsOf>): string {
  if (served === 0 && fetched === 0) return "Nothing was served or fetched in the last day.";
  const out = text(bytes(served));
  const both = `In the last day ${out} were served and ${text(bytes(fetched))} fetched`;
  if (fetched === 0 || served === 0) return `${both}.`;
  const times = served / fetched;
  const each = times < 10 ? times.toFixed(1) : count(Math.round(times));
  return `${both}: ${each} bytes served for each byte fetched.`;
}

/** What operators say of versions, and which of it is not kept; nothing if they say nothing. */
export function wordsOfWishes(plan: PlanOut): string {
  const { pins, bans, launches, pins_missing, bans_unkept } = plan;
  const said = [
    ...(pins ? [plural(pins, "pin")] : []),
    ...(bans ? [plural(bans, "ban")] : []),
    ...(launches ? [plural(launches, "launch", "launches")] : []),
  ];
  const all = said.length ? `Operators say: ${said.join(", ")}.` : "";
  const unkept = [...pins_missing, ...bans_unkept].map((why) => `${why}.`);
  return [all, ...unkept].filter(Boolean).join(" ");
}

/** What the last plan came to. */
export function wordsOfPlan(plan: PlanOut, now: number): string {
  const { refused, carried_out, missing, at_origin, staying } = plan;
  const few = `${plural(missing, "item lacks", "items lack")} copies`;
  const lacks = [
    ...(missing ? [few] : []),
    ...(at_origin ? [`${plural(at_origin, "item")} at the origin alone`] : []),
    ...(staying ? [`${plural(staying, "item stays", "items stay")} until others have them`] : []),
  ];
  const state = lacks.length ? ` ${lacks.join(", ")}.` : "";
  if (refused.length) {
    const [comes, goes] = [plan.comes_bytes, plan.goes_bytes].map((of) => text(bytes(of)));
    const moves = `${comes} would come and ${goes} go`;
    const force = `If it is meant: nearcast plan make --force ${plan.number}.`;
    return `The last plan is refused: ${refused.join("; ")}. ${moves}. ${force}${state}`;
  }
  const last = carried_out.at(-1);
  if (!last) return `No plan has moved anything since control began.${state}`;
  const ago = duration(Math.max(0, now - last.at_unix_s));
  return `The last plan that moved anything, ${ago} ago: ${movesOf(last)}.${state}`;
}

const movesOf = ({ comes, comes_bytes, goes, goes_bytes }: CarriedOutPlan): string =>
  `${plural(comes, "copy comes", "copies come")} (${text(bytes(comes_bytes))}), ` +
  `${plural(goes, "goes", "go")} (${text(bytes(goes_bytes))})`;

/** The state of a site's fill. */
export function stateOf(site: FillSite, now: number): string {
  const paused = site.paused_until_unix_s;
  if (paused != null) {
    return paused === NEVER ? "paused" : `paused for ${duration(paused - now)}`;
  }
  const next = site.next_change_unix_s;
  const word = site.is_open ? "open" : "closed";
  return next == null ? word : `${word} for ${duration(next - now)}`;
}

const sum = (all: readonly FillAppliance[], of: "bytes_wanted" | "bytes_missing") =>
  all.reduce((total, one) => total + (one[of] ?? 0), 0);

/** When all will be there, in words; nothing if nothing is missing. */
function readyOf({ appliances }: FillSite, now: number): string {
  const lacking = appliances.filter(({ bytes_missing }) => bytes_missing);
  if (!lacking.length) return "";
  const ready = lacking.map(({ ready_unix_s }) => ready_unix_s);
  if (ready.some((at) => at == null)) return "time not known";
  return `in ${duration(Math.max(...ready.map((at) => at ?? 0)) - now)}`;
}

/** What a site holds of what it should, in words and as a share. */
export function fillOf(site: FillSite, now: number) {
  const wanted = sum(site.appliances, "bytes_wanted");
  const held = wanted - sum(site.appliances, "bytes_missing");
  const known = site.appliances.some(({ bytes_wanted }) => bytes_wanted != null);
  const share = wanted ? held / wanted : Number(known);
  const facts = [known ? part(held, wanted) : "not known", stateOf(site, now), readyOf(site, now)];
  return { share, lacks: wanted - held, facts: facts.filter(Boolean).join(" · ") };
}

/** Sites that lack most first; of equal ones by name. */
export function sitesOf({ sites }: FillOut, now: number): FillSite[] {
  const lacks = new Map(sites.map((site) => [site.site, fillOf(site, now).lacks]));
  const of = ({ site }: FillSite) => lacks.get(site) ?? 0;
  return [...sites].sort((a, b) => of(b) - of(a) || a.site.localeCompare(b.site));
}

/** Room and expected bytes of the best items together, each as a share; begins at nothing. */
export function curveOf(top: readonly PopularItem[], expected: number): [number, number][] {
  const room = top.reduce((all, { len_bytes }) => all + len_bytes, 0);
  let [len, served] = [0, 0];
  const points = top.map(({ len_bytes, expected_bytes }): [number, number] => {
    [len, served] = [len + len_bytes, served + expected_bytes];
    return [len / Math.max(1, room), served / Math.max(1, expected)];
  });
  return [[0, 0], ...points];
}

/** How few items have half of what is expected. */
export function wordsOfCurve({ top, expected_bytes, items, days_known }: Popularity): string {
  if (!expected_bytes) return "Nothing is expected: appliances tell each hour what they sent.";
  const known = `as ${plural(days_known, "day")} before it say`;
  let served = 0;
  const half = top.findIndex((item) => (served += item.expected_bytes) * 2 >= expected_bytes);
  const what = `${text(bytes(expected_bytes))} of ${plural(items, "item")}`;
  const all = `Viewers will be sent ${what} on the next day, ${known}`;
  if (half < 0) return `${all}.`;
  const room = top.slice(0, half + 1).reduce((len, item) => len + item.len_bytes, 0);
  return `${all}; half of it of ${plural(half + 1, "item")}, which take ${text(bytes(room))}.`;
}

const WAYS: Record<string, string> = {
  forecast: "The forecast",
  yesterday: "As the day before",
  week_ago: "As a week before",
  known: "Had it been known",
};

/** For each way what stores of each size would have served of what came. */
export function backtestOf({ ways, came_bytes }: BacktestOut): { name: string; cells: string[] }[] {
  const share = (hit: number) => text(percent((100 * hit) / Math.max(1, came_bytes)));
  return ways.map(({ name, hit_bytes }) => {
    return { name: WAYS[name] ?? name, cells: hit_bytes.map(share) };
  });
}

const ROOMS = ["1 %", "5 %", "10 %", "20 %", "50 %"];
const WIDTH = 320;
const HEIGHT = 120;

function fillView({ site }: FillSite): View<{ of: FillSite; now: number }> {
  const facts = h("span", { class: "row-facts" });
  const bar = h("span", { class: "meter-fill" });
  const all = h("span", { class: "meter", "aria-hidden": "true" }, bar);
  const name = h("a", { href: siteUrl(site) }, site);
  const windows = h("span", { class: "row-version" });
  const root = h(
    "li",
    { class: "row filling" },
    h("span", { class: "row-name" }, name),
    h("span", { class: "row-lines" }, facts, windows, all),
  );
  const update = ({ of, now }: { of: FillSite; now: number }) => {
    const { share, facts: words } = fillOf(of, now);
    setText(facts, words);
    const zone = of.zone_unknown ? `${of.time_zone}, not known here: UTC` : of.time_zone;
    setText(windows, of.windows === "always" ? "at any hour" : `${of.windows} ${zone}`);
    bar.style.width = `${(100 * share).toFixed(1)}%`;
  };
  return { root, update };
}

/** Each plan that moved something as a bar, by what it brought. */
class Churn {
  readonly root: HTMLElement;
  private readonly picture = svg("svg", { class: "churn", height: 28, role: "img" });

  constructor() {
    const caption = h("p", { class: "day-ends" }, "Bytes that came by each of the last plans");
    this.root = h("div", {}, this.picture, caption);
  }

  update(plans: readonly CarriedOutPlan[]): void {
    const shown = plans.slice(-PLANS_SHOWN);
    const most = Math.max(1, ...shown.map(({ comes_bytes }) => comes_bytes));
    setAttribute(this.picture, "width", String(PLANS_SHOWN * 10));
    const when = ({ at_unix_s }: CarriedOutPlan) => new Date(at_unix_s * 1000).toISOString();
    const words = shown.map((plan) => `${when(plan)}: ${movesOf(plan)}`);
    setAttribute(this.picture, "aria-label", `Plans that moved something. ${words.join(". ")}`);
    this.picture.replaceChildren(
      ...shown.map(({ comes_bytes }, at) => {
        const height = Math.max(2, (28 * comes_bytes) / most);
        const bar = svg("rect", { x: at * 10, y: 28 - height, width: 8, height });
        const title = svg("title");
        title.textContent = words[at] ?? "";
        bar.append(title);
        return bar;
      }),
    );
    this.root.hidden = shown.length === 0;
  }
}

class Curve {
  readonly root: HTMLElement;
  private readonly words = h("p", {});
  private readonly line = svg("path", { "vector-effect": "non-scaling-stroke" });
  private readonly picture = svg("svg", {
    class: "curve",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": "Not asked for yet",
  });
  private readonly table = h("table", { class: "viewers-table" });
  private readonly regions = h("select", { "aria-label": "Region" });
  private readonly button = h("button", { type: "button", class: "button" }, "Test the last week");
  private region = "";

  constructor() {
    this.picture.append(this.line);
    this.button.onclick = () => void this.test();
    this.regions.onchange = () => void this.choose(this.regions.value);
    const ends = h("p", { class: "day-ends" }, "no room", h("span", {}, "room for all of these"));
    const axes = "Share of what is expected, by the room that the most wanted items take";
    const note = h("p", { class: "day-ends" }, axes);
    const tools = h("p", { class: "curve-tools" }, this.regions, this.button);
    const table = h("div", { class: "viewers-tables", tabindex: 0, role: "group" }, this.table);
    setAttribute(table, "aria-label", "Forecasts of the last week");
    this.root = h("div", {}, this.words, note, this.picture, ends, tools, table);
    // A forecast is work for control: nobody asks for it who does not look at it.
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      seen.disconnect();
      void this.watch();
    });
    seen.observe(this.root);
  }

  private async watch(): Promise<never> {
    for (;;) {
      await this.ask(false);
      await rest(POLL_POPULARITY_MS);
    }
  }

  private async choose(region: string): Promise<void> {
    this.region = region;
    this.table.replaceChildren();
    await this.ask(false);
  }

  private async test(): Promise<void> {
    this.button.disabled = true;
    await this.ask(true);
    this.button.disabled = false;
  }

  private async ask(backtest: boolean): Promise<void> {
    const query = new URLSearchParams({ most: String(ITEMS) });
    if (this.region) query.set("region", this.region);
    if (backtest) query.set("backtest", "true");
    const known = await get<Popularity>(`/v1/popularity?${query}`);
    if (known) this.show(known);
    else setText(this.words, "Control is asked for another forecast now: this one comes later.");
  }

  private show(known: Popularity): void {
    this.region = known.region;
    const regions = known.regions.includes(known.region) ? known.regions : [known.region];
    const option = (value: string) => {
      const name = value === "-" ? "sites in no cluster" : value;
      return h("option", { value, selected: value === known.region }, name);
    };
    this.regions.replaceChildren(...regions.map(option));
    this.regions.hidden = regions.length < 2;
    const words = wordsOfCurve(known);
    setText(this.words, words);
    setAttribute(this.picture, "aria-label", words);
    const points = curveOf(known.top, known.expected_bytes);
    const at = ([x, y]: [number, number]) =>
      `${(x * WIDTH).toFixed(1)} ${(HEIGHT * (1 - Math.min(1, y))).toFixed(1)}`;
    setAttribute(this.line, "d", `M${points.map(at).join("L")}`);
    if (known.backtest) this.showTest(known.backtest);
  }

  private showTest(backtest: BacktestOut): void {
    const heads = ["Served of the last week, with room for", ...ROOMS];
    const head = h("tr", {}, ...heads.map((words) => h("th", { scope: "col" }, words)));
    const rows = backtestOf(backtest).map(({ name, cells }) =>
      h("tr", {}, h("th", { scope: "row" }, name), ...cells.map((cell) => h("td", {}, cell))),
    );
    this.table.replaceChildren(h("tbody", {}, head), h("tbody", {}, ...rows));
  }
}

export class ContentPanel {
  private readonly savings = h("p", {});
  private readonly plan = h("p", { role: "status" });
  private readonly wishes = h("p", {});
  private readonly churn = new Churn();
  private readonly rows = h("ul", { class: "rows" });
  private readonly sites: KeyedList<{ of: FillSite; now: number }>;
  private readonly more = h("p", { class: "nothing" });
  private readonly ofSite: Record<string, string>;
  /** Of the clock here control's is ahead by so many seconds. */
  private ahead = 0;

  /** Of one site, or of all. */
  constructor(private readonly site: string | null) {
    this.sites = new KeyedList(
      this.rows,
      ({ of }) => of.site,
      ({ of }) => fillView(of),
    );
    const content = byId("content");
    content.append(this.savings);
    if (site === null) content.append(this.plan, this.wishes, this.churn.root);
    content.append(this.rows, this.more);
    if (site === null) {
      byId("tomorrow").append(new Curve().root);
      byId("tomorrow-panel").hidden = false;
    }
    this.ofSite = site === null ? {} : { site };
    void this.watchDay();
    void this.watch();
  }

  private async watchDay(): Promise<never> {
    const day = new URLSearchParams({ history: "day", appliances_max: "0", ...this.ofSite });
    for (;;) {
      const fleet = await get<Fleet>(`/v1/fleet?${day}`);
      if (fleet) {
        this.ahead = fleet.now_unix_s - Date.now() / 1000;
        setText(this.savings, wordsOfSavings(savingsOf(fleet.history, SPANS.day.step_s)));
      }
      await rest(POLL_DAY_MS);
    }
  }

  private async watch(): Promise<never> {
    for (;;) {
      const fill = await get<FillOut>(`/v1/fill?${new URLSearchParams(this.ofSite)}`);
      const plan = this.site === null ? await get<PlanOut>("/v1/plan") : null;
      const now = Date.now() / 1000 + this.ahead;
      if (plan) this.showPlan(plan, now);
      if (fill) this.showFill(fill, now);
      if (fill) byId("content-panel").hidden = fill.sites.length === 0;
      await rest(POLL_MS * Math.max(1, (fill?.sites.length ?? 0) / SITES_PER_POLL));
    }
  }

  private showPlan(plan: PlanOut, now: number): void {
    setText(this.plan, wordsOfPlan(plan, now));
    setAttribute(this.plan, "data-mood", plan.refused.length ? "bad" : null);
    const wishes = wordsOfWishes(plan);
    setText(this.wishes, wishes);
    const isUnkept = plan.pins_missing.length + plan.bans_unkept.length > 0;
    setAttribute(this.wishes, "data-mood", isUnkept ? "bad" : null);
    this.wishes.hidden = wishes === "";
    this.churn.update(plan.carried_out);
  }

  private showFill(fill: FillOut, now: number): void {
    const sites = sitesOf(fill, now);
    this.sites.update(sites.slice(0, SITES_SHOWN).map((of) => ({ of, now })));
    const more = sites.length - SITES_SHOWN;
    setText(this.more, more > 0 ? `and ${plural(more, "more site")}` : "");
    this.more.hidden = more <= 0;
  }
}
