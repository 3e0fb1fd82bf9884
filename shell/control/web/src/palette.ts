// A colour per appliance, the same on every page. Words stand beside it wherever it is used.

const TONES = 6;

/** Ids in the order in which they first appeared, so that a colour never changes hands. */
const known: string[] = [];

export function learnTones(ids: readonly string[]): void {
  for (const id of [...ids].sort()) if (!known.includes(id)) known.push(id);
}

/** For a `data-tone` attribute; the style sheet knows the colours. */
export function toneOf(id: string): string {
  if (!known.includes(id)) known.push(id);
  return String(known.indexOf(id) % TONES);
}
