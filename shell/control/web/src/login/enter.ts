// Getting in: with a token that somebody types, or with that of a link.

/** How it ended: in, or somebody was in before, or not in, and why. */
export type Entry = { is: "in" } | { is: "taken" } | { is: "out"; why: string };

type Ask = (path: string, init?: RequestInit) => Promise<Response>;

const PATH = "/v1/session";
const NO_ANSWER = "Control does not answer.";
export const TAKEN =
  "Somebody is logged in here already: this link changed nothing. To use it, log out first.";

/** Begins a session. */
export async function enter(token: string, ask: Ask): Promise<Entry> {
  try {
    const response = await ask(PATH, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token }),
      signal: AbortSignal.timeout(10_000),
    });
    if (response.ok) return { is: "in" };
    if (response.status === 401) return { is: "out", why: "This token is not known here." };
    const problem = (await response.json()) as { detail?: string };
    return { is: "out", why: problem.detail ?? `Control answered ${response.status}.` };
  } catch {
    return { is: "out", why: NO_ANSWER };
  }
}

/** The same with a link's token, which must not make somebody who is in into somebody else. */
export async function enterByLink(token: string, ask: Ask): Promise<Entry> {
  try {
    const session = await ask(PATH, { signal: AbortSignal.timeout(10_000) });
    if (session.status === 401) return await enter(token, ask);
    if (session.ok) return { is: "taken" };
    return { is: "out", why: `Control answered ${session.status}. Try again.` };
  } catch {
    return { is: "out", why: NO_ANSWER };
  }
}
