// The login page: an API token for a session, whose cookie no script can read.

import { byId, setText } from "../dom";
import { backFrom } from "./back";

const field = byId<HTMLInputElement>("token");
const button = byId<HTMLButtonElement>("submit");
const outcome = byId("outcome");

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
    return "Control does not answer.";
  }
}

byId<HTMLFormElement>("form").addEventListener("submit", (event) => {
  event.preventDefault();
  button.disabled = true;
  setText(outcome, "");
  void logIn(field.value.trim()).then((refusal) => {
    if (refusal === null) {
      location.replace(backFrom(location.hash));
      return;
    }
    button.disabled = false;
    setText(outcome, refusal);
    field.select();
  });
});

field.focus();
