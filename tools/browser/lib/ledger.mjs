// The book of all requests to appliances: what was asked, when its first byte came, and whether its
// bytes are those of the origin's file.

import { createHash } from "node:crypto";
import { closeSync, existsSync, openSync, readSync, realpathSync, statSync } from "node:fs";
import path from "node:path";

const PLAYLIST = /\.(m3u8|mpd)$/;

/** Path of a media URL inside its asset version. */
export const pathOf = (url) =>
  decodeURIComponent(new URL(url).pathname.split("/").slice(4).join("/"));

/** The bytes that a right answer holds: {first, last} of a file of `size` bytes, or null. */
export function expectedSpan(range, status, size) {
  if (status === 200) return { first: 0, last: size - 1 };
  const match = /^bytes=(\d*)-(\d*)$/.exec(range ?? "");
  if (status !== 206 || !match || (match[1] === "" && match[2] === "")) return null;
  if (match[1] === "") return { first: Math.max(0, size - Number(match[2])), last: size - 1 };
  const last = match[2] === "" ? size - 1 : Math.min(Number(match[2]), size - 1);
  return { first: Number(match[1]), last };
}

function digestOf(file, { first, last }) {
  const bytes = Buffer.alloc(last - first + 1);
  const handle = openSync(file, "r");
  try {
    const got = readSync(handle, bytes, 0, bytes.length, first);
    if (got !== bytes.length) throw new Error(`${file} ended at ${first + got}`);
  } finally {
    closeSync(handle);
  }
  return createHash("sha256").update(bytes).digest("hex");
}

/** Why this body is not what the origin holds there; null if it is. */
export function faultOf(body, originDir) {
  const root = realpathSync(originDir);
  const file = path.join(root, pathOf(body.url));
  if (!file.startsWith(root + path.sep) || !existsSync(file)) return "no such file at the origin";
  const { size } = statSync(file);
  const span = expectedSpan(body.range, body.status, size);
  if (!span) return `status ${body.status} for range ${body.range}`;
  if (span.last < span.first) return `range ${body.range} lies outside the file`;
  const stated = `bytes ${span.first}-${span.last}/${size}`;
  if (body.status === 206 && body.contentRange !== null && body.contentRange !== stated) {
    return `Content-Range "${body.contentRange}" instead of "${stated}"`;
  }
  const length = span.last - span.first + 1;
  if (body.bytes !== length) return `${body.bytes} bytes instead of ${length}`;
  return body.sha256 === digestOf(file, span) ? null : `other bytes than ${stated}`;
}

export class Ledger {
  /** By id: {url, range, sent, byteAt, doneAt, status, bytes, outcome}. Bounded by one film. */
  requests = new Map();
  checkedResponses = 0;
  checkedBytes = 0;
  /** Bytes of responses that differ from the origin's or have another length. */
  wrongBytes = 0;
  /** The first few, in words. */
  faults = [];
  /** Answers with 4xx or 5xx. */
  statusErrors = 0;
  /** Answers whose bodies could not be looked at. */
  unread = 0;

  constructor(originDir) {
    this.originDir = originDir;
  }

  /** Takes one message of the witness. */
  hear(message) {
    if (message.what === "sent") {
      const { id, url, range, at } = message;
      this.requests.set(id, { url, range, sent: at, byteAt: null, doneAt: null });
      return;
    }
    const request = this.requests.get(message.id);
    if (!request) throw new Error(`the page told of request ${message.id}, which it never sent`);
    if (message.what === "byte") {
      request.byteAt = message.at;
      request.url = message.url;
      return;
    }
    request.doneAt = message.at;
    request.outcome = message.what;
    request.status = message.status ?? 0;
    request.bytes = message.bytes ?? 0;
    request.aborted = message.aborted ?? false;
    if (message.url) request.url = message.url;
    if (message.what === "unread") this.unread += 1;
    if (message.what === "body") this.#body({ ...message, range: request.range });
  }

  #body(body) {
    if (body.status >= 300) {
      this.statusErrors += body.status >= 400 ? 1 : 0;
      return;
    }
    this.checkedResponses += 1;
    this.checkedBytes += body.bytes;
    const fault = faultOf(body, this.originDir);
    if (fault === null) return;
    // An empty answer is wrong too: never count a wrong answer as nothing.
    this.wrongBytes += Math.max(1, body.bytes);
    if (this.faults.length < 10) this.faults.push(`${pathOf(body.url)} ${body.range}: ${fault}`);
  }

  /**
   * How often each URL was answered and looked at, or given up by the page itself: an answer that
   * nobody read needs no check.
   */
  accounted() {
    const counts = new Map();
    for (const { url, outcome, status, aborted } of this.requests.values()) {
      const isChecked = outcome === "body" && status < 300;
      if (isChecked || aborted) counts.set(url, (counts.get(url) ?? 0) + 1);
    }
    return counts;
  }

  /** Requests of whose end nothing was heard. */
  underWay() {
    return [...this.requests.values()].filter(({ outcome }) => outcome === undefined);
  }

  /** The first requests that were sent at or after `since`, at most so many. */
  sentSince(since, most) {
    return [...this.requests.values()].filter(({ sent }) => since <= sent).slice(0, most);
  }

  /** Requests for film and sound, without playlists. */
  media() {
    return [...this.requests.values()].filter(({ url }) => !PLAYLIST.test(pathOf(url)));
  }

  /** Body bytes per host of complete answers that ended at or after `since`. */
  bytesByHost(since = 0) {
    const sums = new Map();
    for (const request of this.media()) {
      if (request.outcome !== "body" || request.status >= 300 || request.doneAt < since) continue;
      const { host } = new URL(request.url);
      sums.set(host, (sums.get(host) ?? 0) + request.bytes);
    }
    return sums;
  }

  /**
   * When the first byte came of a request that was sent at or after `since`, to a host and for a
   * path that `wanted` accepts; null if none did.
   */
  firstByte(since, wanted) {
    const times = this.media()
      .filter(({ sent, byteAt }) => byteAt !== null && since <= sent)
      .filter(({ url }) => wanted(new URL(url).host, pathOf(url)))
      .map(({ byteAt }) => byteAt);
    return times.length ? Math.min(...times) : null;
  }
}
