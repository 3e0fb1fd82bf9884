// Where to go after the login: a path of ours, and of nobody else's.

/** The path that the hash of the login page names, or the status page. */
export function backFrom(hash: string): string {
  const path = hash.slice(1);
  return /^\/(?![/\\])[\w/?=&.~-]*$/.test(path) ? path : "/";
}
