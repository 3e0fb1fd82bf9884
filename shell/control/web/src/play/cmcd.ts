// What players say of themselves (CMCD, CTA-5004-A): what is told to all of them, and the words of
// a player that has none of its own.

/** Events that are sent: changes of state, errors, and each so many seconds. */
export const EVENTS = ["ps", "e", "t"] as const;
export const EVERY_S = 10;

/** What a player knows when it asks for something. */
export interface Words {
  sid: string;
  format: "hls" | "dash";
  /** The kind of the object and its duration, where they are known. */
  object?: { video: boolean; duration_s: number } | undefined;
  buffer_s: number;
  bits_per_second: number;
  measured_bits_per_second: number;
  /** It has not begun, or waits for media. */
  waits: boolean;
  /** It has run out of media since its last request. */
  starved: boolean;
}

const hundreds = (value: number): number => Math.round(value / 100) * 100;

/** The query argument of CMCD version 1, keys in alphabetical order. */
export function query(words: Words): string {
  const { object, bits_per_second: rate, measured_bits_per_second: measured } = words;
  const said: string[] = [];
  if (object) said.push(`bl=${hundreds(words.buffer_s * 1000)}`);
  if (object && rate) said.push(`br=${Math.round(rate / 1000)}`);
  if (words.starved) said.push("bs");
  if (object) said.push(`d=${Math.round(object.duration_s * 1000)}`);
  if (measured) said.push(`mtp=${hundreds(measured / 1000)}`);
  if (object) said.push(`ot=${object.video ? "v" : "a"}`);
  said.push(`sf=${words.format === "hls" ? "h" : "d"}`, `sid="${words.sid}"`);
  if (words.waits) said.push("su");
  return `CMCD=${encodeURIComponent(said.join(","))}`;
}

/** The same address with a query argument more. */
export const withQuery = (url: string, argument: string): string =>
  `${url}${url.includes("?") ? "&" : "?"}${argument}`;

/** An address as it was before the player put its words into it. */
export function withoutWords(url: URL): URL {
  if (!url.search.includes("CMCD=")) return url;
  const kept = url.search.slice(1).split("&").filter((part) => !part.startsWith("CMCD="));
  const plain = new URL(url);
  plain.search = kept.join("&");
  return plain;
}
