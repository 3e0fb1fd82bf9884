// The parameters in the page's address, and addresses with others.

/** The players that the page has: how people know each, and the manifest that it begins with. */
export const PLAYERS = {
  hls: { label: "hls.js", format: "hls" },
  dash: { label: "dash.js", format: "dash" },
  "shaka-dash": { label: "Shaka", format: "dash" },
  "shaka-hls": { label: "Shaka, HLS", format: "hls" },
  "videojs-hls": { label: "video.js", format: "hls" },
  "videojs-dash": { label: "video.js, DASH", format: "dash" },
} as const;

export type Player = keyof typeof PLAYERS;

export interface Parameters {
  asset: string | null;
  player: Player;
  /** Use the appliances' listeners without TLS (loopback demonstrations only). */
  plain: boolean;
  /** Buffer cap in seconds; the player's own default when null. */
  buffer_s: number | null;
}

const BUFFER_MAX_S = 600;

export function readParameters(search: string): Parameters {
  const query = new URLSearchParams(search);
  const buffer = Number(query.get("buffer"));
  const known = Number.isFinite(buffer) && buffer > 0;
  return {
    asset: query.get("asset") || null,
    player: playerNamed(query.get("player")),
    plain: query.get("plain") === "1",
    buffer_s: known ? Math.min(buffer, BUFFER_MAX_S) : null,
  };
}

const playerNamed = (name: string | null): Player =>
  name !== null && Object.hasOwn(PLAYERS, name) ? (name as Player) : "hls";

/** Address of this page with other parameters. */
export function pageUrl({ asset, player, plain, buffer_s }: Parameters): string {
  const query = new URLSearchParams();
  if (asset) query.set("asset", asset);
  query.set("player", player);
  if (plain) query.set("plain", "1");
  if (buffer_s !== null) query.set("buffer", String(buffer_s));
  return `/play?${query}`;
}
