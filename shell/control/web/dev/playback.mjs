// Entry playlists as control would write them, with just enough of the formats for an ffmpeg
// package: every pathway spelled out, best first, and content steering.

/** A multivariant playlist: each variant and audio group once per pathway. */
export function hlsEntry(master, pathways, steeringUrl) {
  const lines = master.split("\n").filter((line) => line.trim() !== "");
  const media = lines.filter((line) => line.startsWith("#EXT-X-MEDIA:"));
  const out = ["#EXTM3U", "#EXT-X-VERSION:7", "#EXT-X-INDEPENDENT-SEGMENTS"];
  out.push(
    `#EXT-X-CONTENT-STEERING:SERVER-URI="${steeringUrl}",PATHWAY-ID="${pathways[0].id}"`,
  );
  for (const { id, url } of pathways) {
    for (const line of media) {
      out.push(
        line
          .replace(/GROUP-ID="([^"]+)"/, `GROUP-ID="$1-${id}"`)
          .replace(/URI="([^"]+)"/, (_, uri) => `URI="${url}${uri}"`),
      );
    }
    for (const [index, line] of lines.entries()) {
      if (!line.startsWith("#EXT-X-STREAM-INF:")) continue;
      out.push(`${line.replace(/AUDIO="([^"]+)"/, `AUDIO="$1-${id}"`)},PATHWAY-ID="${id}"`);
      out.push(url + lines[index + 1].trim());
    }
  }
  return `${out.join("\n")}\n`;
}

/** An MPD: one BaseURL per pathway, and where to ask for their order. */
export function dashEntry(mpd, pathways, steeringUrl) {
  const urls = pathways.map(({ id, url }) => `<BaseURL serviceLocation="${id}">${url}</BaseURL>`);
  const steering =
    `<ContentSteering defaultServiceLocation="${pathways[0].id}" queryBeforeStart="false">` +
    `${steeringUrl}</ContentSteering>`;
  return mpd.replace(/(\s*)<Period\b/, (match, space) =>
    [...urls, steering].map((line) => space + line).join("") + match,
  );
}

/** The steering document, the same for HLS and DASH. */
export function steeringReply(order, reloadUrl, ttlSeconds) {
  return { VERSION: 1, TTL: ttlSeconds, "RELOAD-URI": reloadUrl, "PATHWAY-PRIORITY": order };
}
