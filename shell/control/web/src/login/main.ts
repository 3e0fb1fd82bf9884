// The login page: an API token for a session, whose cookie no script can read.

import { byId, h, setText } from "../dom";
import { backFrom, tokenFrom } from "./back";
import { enter, enterByLink, TAKEN } from "./enter";

/** Time to read that a link changed nothing. */
const READ_MS = 4_000;

const field = byId<HTMLInputElement>("token");
const button = byId<HTMLButtonElement>("submit");
const outcome = byId("outcome");

const back = backFrom(location.hash);
const given = tokenFrom(location.hash, location.hostname);
// A token stays neither in the address nor in the browser's history.
if (given) history.replaceState(null, "", `${location.pathname}#${back}`);

async function submit(token: string): Promise<void> {
  button.disabled = true;
  setText(outcome, "");
  const ask = (path: string, init?: RequestInit): Promise<Response> => fetch(path, init);
  // Also when it is tried again: it is still the link's.
  const entry = await (token === given ? enterByLink(token, ask) : enter(token, ask));
  if (entry.is === "in") return location.replace(back);
  if (entry.is === "taken") {
    field.value = "";
    setText(outcome, TAKEN);
    outcome.append(" ", h("a", { href: back }, "Go on"));
    setTimeout(() => location.replace(back), READ_MS);
    return;
  }
  button.disabled = false;
  setText(outcome, entry.why);
  // A link's token is not in the address any more: here it can be sent again.
  field.value = token;
  field.select();
}

byId<HTMLFormElement>("form").addEventListener("submit", (event) => {
  event.preventDefault();
  void submit(field.value.trim());
});

field.focus();
if (given) void submit(given);
