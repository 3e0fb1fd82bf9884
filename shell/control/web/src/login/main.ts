// The login page: an API token for a session, whose cookie no script can read.

import { byId, setText } from "../dom";
import { backFrom, tokenFrom } from "./back";

const field = byId<HTMLInputElement>("token");
const button = byId<HTMLButtonElement>("submit");
const outcome = byId("outcome");

const NO_ANSWER = "Control does not answer.";

async function logIn(token: string): Promise<string | null> {
  try {
    const response = await fetch("/v1/session", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token }),
      signal: AbortSignal.timeout(10_000),
    });
    if (response.ok) return null;
    if (response.status === 401) return "This token is not known here.";
    const problem = (await response.json()) as { detail?: string };
    return problem.detail ?? `Control answered ${response.status}.`;
  } catch {
    return NO_ANSWER;
  }
}

async function submit(token: string): Promise<void> {
  button.disabled = true;
  setText(outcome, "");
  const refusal = await logIn(token);
  if (refusal === null) return location.replace(back);
  button.disabled = false;
  setText(outcome, refusal);
  field.select();
}

const back = backFrom(location.hash);
const given = tokenFrom(location.hash, location.hostname);
// A token stays neither in the address nor in the browser's history.
if (given) history.replaceState(null, "", `${location.pathname}#${back}`);

byId<HTMLFormElement>("form").addEventListener("submit", (event) => {
  event.preventDefault();
  void submit(field.value.trim());
});

/** A link must not make somebody who is logged in into somebody else. */
async function submitIfNobodyIsIn(token: string): Promise<void> {
  const session = await fetch("/v1/session", { signal: AbortSignal.timeout(10_000) });
  if (session.status === 401) return submit(token);
  if (session.ok) return location.replace(back);
  setText(outcome, `Control answered ${session.status}.`);
}

field.focus();
if (given) submitIfNobodyIsIn(given).catch(() => setText(outcome, NO_ANSWER));
