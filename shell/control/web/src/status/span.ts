// The choice of the plots' span. The last minutes come with the fleet; more is asked for apart.

import { h, setAttribute } from "../dom";
import { get, rest, type Fleet, type Sample } from "../fleet";
import { columnsOf, SPANS, type Columns, type SpanName } from "./history";

const POLL_MS = 30_000;

export class LongSpan {
  private readonly buttons: [SpanName, HTMLButtonElement][];
  private name: SpanName = "minutes";
  private samples: Sample[] = [];
  private now = 0;
  /** Counts choices: one that is over asks no more. */
  private turn = 0;

  /** `show` is called when there is something else to plot. Of one site there is no hour. */
  constructor(
    root: HTMLElement,
    private readonly site: string | null,
    private readonly show: () => void,
  ) {
    const names = (Object.keys(SPANS) as SpanName[]).filter((name) => !site || name !== "hour");
    this.buttons = names.map((name) => {
      const onclick = () => void this.choose(name);
      return [name, h("button", { type: "button", class: "button", onclick }, SPANS[name].label)];
    });
    root.append(...this.buttons.map(([, button]) => button));
    this.press();
  }

  /** None while the last minutes are wanted. */
  columns(): Columns | null {
    return this.name === "minutes" ? null : columnsOf(this.name, this.samples, this.now);
  }

  private press(): void {
    for (const [name, button] of this.buttons) {
      setAttribute(button, "aria-pressed", String(name === this.name));
    }
  }

  private async choose(name: SpanName): Promise<void> {
    [this.name, this.samples] = [name, []];
    this.press();
    await this.ask();
  }

  private async ask(): Promise<void> {
    const { name, site } = this;
    const turn = ++this.turn;
    const query = new URLSearchParams({ history: name, appliances_max: "0" });
    if (site) query.set("site", site);
    while (name !== "minutes") {
      const fleet = await get<Fleet>(`/v1/fleet?${query}`);
      if (turn !== this.turn) return;
      if (fleet) [this.samples, this.now] = [fleet.history, fleet.now_unix_s];
      this.show();
      await rest(POLL_MS);
      if (turn !== this.turn) return;
    }
    this.show();
  }
}
