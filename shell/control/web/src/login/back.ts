// Where to go after the login: a path of ours, and of nobody else's. And the demo's way in.

/** The path that the hash of the login page names, or the status page. */
export function backFrom(hash: string): string {
  const path = hash.slice(1).replace(TOKEN, "");
  return /^\/(?![/\\])[\w/?=&.~-]*$/.test(path) ? path : "/";
}

/**
 * The token in front of that path, with which the demo's own address logs in: `#nc_../play`. Of
 * this machine's names only: elsewhere a link could log somebody in as somebody else.
 */
export function tokenFrom(hash: string, host: string): string | null {
  const here = host === "localhost" || host === "[::1]" || /^127(\.\d{1,3}){3}$/.test(host);
  return here ? (TOKEN.exec(hash.slice(1))?.[0] ?? null) : null;
}

const TOKEN = /^nc_\w+(?=\/|$)/;
