// The session: its name, the way out, and for admins the latest changes.

import { byId, h, KeyedList, setAttribute, setText, type View } from "../dom";
import { get, rest } from "../fleet";
import { duration } from "../units";
import type { AuditLine as Line, AuditOut, SessionOut as Session } from "../../made/api";

const AUDIT_MS = 10_000;
const AUDIT_SHOWN = 8;

function lineView(): View<Line> {
  const when = h("time", { class: "row-when" });
  const who = h("span", { class: "row-who" });
  const what = h("span", { class: "row-what" });
  const update = (line: Line) => {
    setText(when, `${duration(Math.max(0, Date.now() / 1000 - line.at_unix_s))} ago`);
    setAttribute(when, "datetime", new Date(line.at_unix_s * 1000).toISOString());
    setText(who, line.name ?? `nobody · ${line.peer ?? ""}`);
    const outcome = line.outcome == null ? "no outcome" : String(line.outcome);
    const said = line.summary ? ` · ${line.summary}` : "";
    setText(what, `${line.method} ${line.target} · ${outcome}${said}`);
    const refused = line.outcome == null || line.outcome >= 400;
    setAttribute(what, "data-mood", refused ? "bad" : null);
  };
  return { root: h("li", { class: "row audit" }, when, who, what), update };
}

async function logOut(): Promise<void> {
  await fetch("/v1/session", { method: "DELETE" }).catch(() => undefined);
  location.assign("/login");
}

/** Shows who is logged in, and to admins what was changed. */
export async function showSession(): Promise<void> {
  const session = await get<Session>("/v1/session");
  if (!session || session.open) return;
  const name = h("span", { class: "who-name" }, `${session.name} · ${session.role}`);
  const button = h("button", { class: "button", type: "button", onclick: () => void logOut() });
  setText(button, "Log out");
  const who = byId("who");
  who.replaceChildren(name, button);
  who.hidden = false;
  if (session.role !== "admin") return;
  const list = new KeyedList<Line>(byId("audit"), ({ id }) => String(id), lineView);
  for (;;) {
    const page = await get<AuditOut>(`/v1/audit?limit=${AUDIT_SHOWN}`);
    if (page) {
      list.update(page.lines);
      byId("audit-panel").hidden = page.lines.length === 0;
    }
    await rest(AUDIT_MS);
  }
}
