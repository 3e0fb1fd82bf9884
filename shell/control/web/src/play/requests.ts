// Every request the page makes, whichever player makes it: XMLHttpRequest and fetch are watched
// from outside, so that both players are seen alike and neither is configured for it.

import { withoutWords } from "./cmcd";

export type Kind = "video" | "audio" | "other";

/** One finished request. Times are milliseconds since navigation started. */
export interface RequestRecord {
  t_ms: number;
  host: string;
  /** Path inside the asset version for media, else the whole path. */
  path: string;
  range: string | null;
  /** HTTP status; 0 when there was no answer, or the player gave up. */
  status: number;
  bytes: number;
  ms: number;
  /** From sending to the first byte of the body; null if none came. */
  first_byte_ms: number | null;
  kind: Kind;
  aborted: boolean;
}

const RING_SIZE = 512;
const MEDIA_PATH = /^\/t\/[^/]+\/[^/]+\/(.+)$/;
const PLAYLIST = /\.(m3u8|mpd)$/;

/** Path inside an asset version, or null for what is not on an appliance. */
export const mediaPath = (url: URL): string | null => MEDIA_PATH.exec(url.pathname)?.[1] ?? null;

/** Media bytes, as opposed to playlists. */
export const isMedia = (record: RequestRecord, url: URL): boolean =>
  mediaPath(url) !== null && !PLAYLIST.test(record.path);

/** A request under way. */
class Pending {
  private readonly started = performance.now();
  private firstByte: number | null = null;
  range: string | null = null;
  bytes = 0;
  aborted = false;

  constructor(private readonly url: URL) {}

  sawBytes(total: number): void {
    if (total > 0) this.firstByte ??= performance.now() - this.started;
    this.bytes = Math.max(this.bytes, total);
  }

  finish(status: number, landed: URL): RequestRecord {
    return {
      t_ms: this.started,
      host: landed.host,
      path: mediaPath(landed) ?? this.url.pathname,
      range: this.range,
      status,
      bytes: this.bytes,
      ms: performance.now() - this.started,
      first_byte_ms: this.firstByte,
      kind: "other",
      aborted: this.aborted,
    };
  }
}

export class RequestLog {
  private readonly ring: { record: RequestRecord; url: URL }[] = [];
  private readonly kinds = new Map<string, Kind>();
  private readonly landings = new Map<string, URL>();
  private readonly hostBytes = new Map<string, number>();

  constructor(private readonly onRecord: (record: RequestRecord, media: boolean) => void) {}

  /** Starts watching. Call before a player is loaded. */
  watch(): void {
    this.watchXhr();
    this.watchFetch();
  }

  /** A player knows what a file holds; its requests are named accordingly from then on. */
  learnKind(url: string, kind: Kind): void {
    this.kinds.set(new URL(url, location.href).pathname, kind);
  }

  /** Where a request for this URL ended, after redirects. */
  landed(url: string): URL {
    return this.landings.get(url) ?? new URL(url, location.href);
  }

  /** The latest requests, oldest first; at most 512. */
  records(): RequestRecord[] {
    return this.ring.map(({ record, url }) => ({ ...record, kind: this.kindOf(url) }));
  }

  /** Media bytes by host name and port. */
  bytesByHost(): ReadonlyMap<string, number> {
    return this.hostBytes;
  }

  private kindOf(url: URL): Kind {
    return this.kinds.get(url.pathname) ?? "other";
  }

  private add(pending: Pending, asked: URL, landed: URL, status: number): void {
    const record = pending.finish(status, landed);
    record.kind = this.kindOf(asked);
    this.ring.push({ record, url: asked });
    if (this.ring.length > RING_SIZE) this.ring.shift();
    const media = isMedia(record, asked);
    if (media && landed.href !== asked.href) this.landings.set(asked.href, landed);
    if (media && landed.href === asked.href) this.landings.delete(asked.href);
    if (media) {
      const sum = (this.hostBytes.get(landed.host) ?? 0) + record.bytes;
      this.hostBytes.set(landed.host, sum);
    }
    this.onRecord(record, media);
  }

  private watchXhr(): void {
    const log = this;
    const { open, setRequestHeader, send } = XMLHttpRequest.prototype;
    const asked = new WeakMap<XMLHttpRequest, { url: URL; range: string | null }>();
    XMLHttpRequest.prototype.open = function (this: XMLHttpRequest, ...args: unknown[]) {
      const url = withoutWords(new URL(String(args[1]), location.href));
      asked.set(this, { url, range: null });
      return open.apply(this, args as Parameters<typeof open>);
    } as typeof open;
    XMLHttpRequest.prototype.setRequestHeader = function (name, value) {
      const about = asked.get(this);
      if (about && name.toLowerCase() === "range") about.range = value;
      return setRequestHeader.call(this, name, value);
    };
    XMLHttpRequest.prototype.send = function (body) {
      const about = asked.get(this);
      if (about) log.follow(this, about.url, about.range);
      return send.call(this, body);
    };
  }

  private follow(xhr: XMLHttpRequest, url: URL, range: string | null): void {
    const pending = new Pending(url);
    pending.range = range;
    xhr.addEventListener("progress", (event) => pending.sawBytes(event.loaded));
    xhr.addEventListener("abort", () => (pending.aborted = true));
    // video.js aborts a request whose refusal it has just been told of, which takes its status.
    let refusal = 0;
    xhr.addEventListener("readystatechange", () => {
      if (xhr.readyState === XMLHttpRequest.HEADERS_RECEIVED && xhr.status >= 400) {
        refusal = xhr.status;
      }
    });
    xhr.addEventListener(
      "loadend",
      (event) => {
        pending.sawBytes(event.loaded);
        const landed = xhr.responseURL ? withoutWords(new URL(xhr.responseURL)) : url;
        this.add(pending, url, landed, xhr.status || refusal);
      },
      { once: true },
    );
  }

  private watchFetch(): void {
    const original = window.fetch.bind(window);
    window.fetch = async (input, init) => {
      const given = input instanceof Request ? input : null;
      const url = withoutWords(new URL(given?.url ?? String(input), location.href));
      if (mediaPath(url) === null) return original(input, init);
      const pending = new Pending(url);
      pending.range = new Headers(init?.headers ?? given?.headers).get("range");
      try {
        const response = await original(input, init);
        return this.counted(response, pending, url);
      } catch (error) {
        pending.aborted = (init?.signal ?? given?.signal)?.aborted ?? false;
        this.add(pending, url, url, 0);
        throw error;
      }
    };
  }

  /** The same response, its body counted as it is read. */
  private counted(response: Response, pending: Pending, url: URL): Response {
    const landed = response.url ? withoutWords(new URL(response.url)) : url;
    const done = () => this.add(pending, url, landed, response.status);
    if (!response.body) {
      done();
      return response;
    }
    let total = 0;
    const reader = response.body.getReader();
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        try {
          const { done: over, value } = await reader.read();
          if (over) {
            controller.close();
            return done();
          }
          pending.sawBytes((total += value.byteLength));
          controller.enqueue(value);
        } catch (error) {
          pending.aborted = true;
          done();
          controller.error(error);
        }
      },
      async cancel(reason) {
        pending.aborted = true;
        done();
        await reader.cancel(reason);
      },
    });
    const { status, statusText, headers } = response;
    const copy = new Response(body, { status, statusText, headers });
    Object.defineProperty(copy, "url", { value: response.url });
    return copy;
  }
}
