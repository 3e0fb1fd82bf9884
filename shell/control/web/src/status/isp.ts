// The demo's button of a site in an ISP's network: its router withdraws its clients, or announces
// them again, and the page shows where they are sent. Only there where control names a place that
// takes such orders, and that place knows the site.

import { h, setAttribute, setText } from "../dom";
import { get, orderRoute, rest, type Fleet } from "../fleet";

/** What the demo tells of an ISP. */
export interface Isp {
  site: string;
  isp: string;
  /** One of its clients. */
  client: string;
  prefixes: string[];
  condition: "announced" | "withdrawn";
}

interface Explained {
  candidates: { appliance: string; site: string; rank?: number | null }[];
}

const POLL_MS = 500;

/** The site that is first for a client, and all who are offered. */
export function wordsOf({ isp, client }: Isp, explained: Explained | null): string {
  const offered = (explained?.candidates ?? []).filter(({ rank }) => rank != null);
  const [first] = offered;
  if (!first) return `A client of ${isp} (${client}) is sent nowhere now.`;
  const all = offered.map(({ appliance }) => appliance).join(", ");
  return `A client of ${isp} (${client}) is sent to site ${first.site}: ${all}.`;
}

/** One site's ISP, for as long as the page is open. */
export class IspPanel {
  readonly root: HTMLElement;
  private readonly words = h("p", { class: "isp-words" });
  private readonly lead = h("p", { class: "isp-lead", role: "status" });
  private readonly outcome = h("p", { class: "faults-outcome", role: "status" });
  private readonly button = h("button", { type: "button", class: "button" });
  private controls = "";
  private asset: string | null = null;
  private asking = false;
  private isp: Isp | null = null;

  constructor(private readonly site: string) {
    this.button.onclick = () => void this.press();
    this.root = h("div", { class: "isp" }, this.words, this.button, this.lead, this.outcome);
    this.root.hidden = true;
  }

  update(controls: string | null | undefined, assets: Fleet["assets"]): void {
    this.controls = controls ?? "";
    this.asset = assets[0]?.id ?? null;
    if (this.controls !== "" && !this.asking) void this.ask();
  }

  private async ask(): Promise<void> {
    this.asking = true;
    const all = await get<Isp[]>(`${this.controls}/routes`);
    const isp = all?.find(({ site }) => site === this.site) ?? null;
    if (isp) await this.show(isp);
    this.root.hidden = isp === null;
    // A demo without ISPs gets none later.
    if (all && !isp) return;
    await rest(POLL_MS);
    this.asking = false;
    if (isp) void this.ask();
  }

  private async show(isp: Isp): Promise<void> {
    this.isp = isp;
    const announced = isp.condition === "announced";
    const verb = announced ? "announces" : "has withdrawn";
    setText(this.words, `${isp.isp} ${verb} ${isp.prefixes.join(", ")}`);
    setText(this.button, announced ? "Withdraw" : "Announce");
    setAttribute(this.button, "data-verb", announced ? "withdraw" : "announce");
    setAttribute(this.button, "aria-label", `${announced ? "Withdraw" : "Announce"} ${isp.isp}`);
    if (this.asset === null) return;
    const query = new URLSearchParams({ asset: this.asset, client: isp.client });
    const explained = await get<Explained>(`/v1/explain?${query}`);
    setText(this.lead, wordsOf(isp, explained));
  }

  private async press(): Promise<void> {
    const { isp } = this;
    if (!isp) return;
    this.button.disabled = true;
    try {
      const verb = isp.condition === "announced" ? "withdraw" : "announce";
      await orderRoute(this.controls, this.site, verb);
      setText(this.outcome, "");
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      setText(this.outcome, `Not done: ${why}`);
    } finally {
      this.button.disabled = false;
    }
  }
}
