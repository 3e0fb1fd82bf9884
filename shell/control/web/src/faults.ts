// The demo's buttons: break an appliance and mend it. Only shown where control names a place that
// takes such orders.

import { h, setAttribute, setText } from "./dom";
import { order } from "./fleet";

const VERBS = [
  { verb: "kill", label: "Kill", hint: "End its process: connections reset at once" },
  { verb: "hang", label: "Hang", hint: "Stop its process: connections stay open, nothing comes" },
  { verb: "restore", label: "Restore", hint: "Start or continue it" },
] as const;

export type Verb = (typeof VERBS)[number]["verb"];

/** Three buttons for one appliance. Called back with what was ordered, when it was done. */
export class FaultButtons {
  readonly root: HTMLElement;
  private readonly outcome = h("p", { class: "faults-outcome", role: "status" });
  private readonly buttons: HTMLButtonElement[];
  private controls = "";

  constructor(
    private readonly appliance: string,
    private readonly onDone: (verb: Verb) => void = () => {},
  ) {
    this.buttons = VERBS.map(({ verb, label, hint }) =>
      h(
        "button",
        {
          type: "button",
          class: "button",
          title: hint,
          "aria-label": `${label} ${appliance}`,
          "data-verb": verb,
          onclick: () => void this.run(verb),
        },
        label,
      ),
    );
    const group = { class: "faults-buttons", role: "group", "aria-label": `Break ${appliance}` };
    this.root = h("div", { class: "faults" }, h("div", group, ...this.buttons), this.outcome);
    this.root.hidden = true;
  }

  update(controls: string | null | undefined, needsRestore: boolean): void {
    this.controls = controls ?? "";
    this.root.hidden = this.controls === "";
    const restore = this.buttons[2];
    if (restore) setAttribute(restore, "data-wanted", needsRestore ? "" : null);
  }

  private async run(verb: Verb): Promise<void> {
    for (const button of this.buttons) button.disabled = true;
    try {
      await order(this.controls, this.appliance, verb);
      setText(this.outcome, "");
      this.onDone(verb);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      setText(this.outcome, `Not done: ${why}`);
    } finally {
      for (const button of this.buttons) button.disabled = false;
    }
  }
}
