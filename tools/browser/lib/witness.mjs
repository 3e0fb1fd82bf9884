// Runs inside the page, before any script of the page: sees every body that the page is given from
// an appliance, hashes it before the player gets hold of it, and samples whether the film moves.
// It believes nothing that the page says about itself.
//
// Serialized into the browser by addInitScript: uses nothing from outside its own braces.

export function witness() {
  const STALL_MS = 450;
  const SAMPLE_MS = 50;
  const wall = () => performance.timeOrigin + performance.now();
  const tell = (message) => void window.nearcastTell(message);
  const isMedia = (url) => /^\/t\/[^/]+\/[^/]+\/./.test(new URL(url).pathname);
  const hex = (digest) =>
    [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  let count = 0;

  /** One request to an appliance, from sending to its end. */
  class Watched {
    constructor(url, range) {
      this.id = count++;
      this.sawByte = false;
      tell({ what: "sent", id: this.id, at: wall(), url, range });
    }

    byte(url) {
      if (this.sawByte) return;
      this.sawByte = true;
      tell({ what: "byte", id: this.id, at: wall(), url });
    }

    /** The digest takes its copy now; the player may detach the buffer right after. */
    body(url, status, contentRange, bytes) {
      const [at, length] = [wall(), bytes.byteLength];
      crypto.subtle.digest("SHA-256", bytes).then((digest) => {
        const sha256 = hex(digest);
        tell({ what: "body", id: this.id, at, url, status, contentRange, bytes: length, sha256 });
      });
    }

    /** A body of a kind that cannot be looked into. */
    unread(url, status, why) {
      tell({ what: "unread", id: this.id, at: wall(), url, status, why });
    }

    failed(why, aborted = false) {
      tell({ what: "failed", id: this.id, at: wall(), why, aborted });
    }
  }

  /** What an XMLHttpRequest holds, as bytes; null if its kind does not tell. */
  const bytesOf = (xhr) => {
    if (xhr.response instanceof ArrayBuffer) return xhr.response;
    if (typeof xhr.response === "string") return new TextEncoder().encode(xhr.response);
    return null;
  };

  const NativeXhr = window.XMLHttpRequest;
  window.XMLHttpRequest = class XMLHttpRequest extends NativeXhr {
    #url = "";
    #range = null;
    #watched = null;
    #aborted = false;

    constructor() {
      super();
      // Registered first, so it runs before whatever the player registers.
      this.addEventListener("readystatechange", () => this.#changed());
    }

    open(method, url, ...rest) {
      this.#url = new URL(url, location.href).href;
      this.#range = null;
      this.#watched?.failed("it was opened anew", true);
      this.#watched = null;
      this.#aborted = false;
      return super.open(method, url, ...rest);
    }

    setRequestHeader(name, value) {
      if (name.toLowerCase() === "range") this.#range = value;
      return super.setRequestHeader(name, value);
    }

    send(body) {
      if (isMedia(this.#url)) this.#watched = new Watched(this.#url, this.#range);
      return super.send(body);
    }

    abort() {
      this.#aborted = true;
      super.abort();
    }

    #changed() {
      const watched = this.#watched;
      if (!watched) return;
      const url = this.responseURL || this.#url;
      const answered = 200 <= this.status && this.status < 300;
      if (this.readyState === 3 && answered) watched.byte(url);
      if (this.readyState !== 4) return;
      this.#watched = null;
      if (this.status === 0) return watched.failed("no complete answer", this.#aborted);
      const bytes = bytesOf(this);
      if (bytes === null) return watched.unread(url, this.status, `a ${this.responseType}`);
      if (answered && bytes.byteLength) watched.byte(url);
      watched.body(url, this.status, this.getResponseHeader("Content-Range"), bytes);
    }
  };

  /** The same response, its body seen as it is read. */
  const seen = (response, watched) => {
    const { status, statusText, headers, url } = response;
    if (!response.body) {
      watched.body(url, status, headers.get("Content-Range"), new ArrayBuffer(0));
      return response;
    }
    const pieces = [];
    const reader = response.body.getReader();
    const stream = new ReadableStream({
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (!done) {
            watched.byte(url);
            pieces.push(value.slice());
            return controller.enqueue(value);
          }
          const whole = new Uint8Array(await new Blob(pieces).arrayBuffer());
          watched.body(url, status, headers.get("Content-Range"), whole);
          controller.close();
        } catch (error) {
          watched.failed(String(error), error?.name === "AbortError");
          controller.error(error);
        }
      },
      cancel(reason) {
        watched.failed("the player let go of it", true);
        return reader.cancel(reason);
      },
    });
    const copy = new Response(stream, { status, statusText, headers });
    Object.defineProperty(copy, "url", { value: url });
    return copy;
  };

  const nativeFetch = window.fetch.bind(window);
  window.fetch = async (input, init) => {
    const given = input instanceof Request ? input : null;
    const url = new URL(given?.url ?? String(input), location.href).href;
    if (!isMedia(url)) return nativeFetch(input, init);
    const watched = new Watched(url, new Headers(init?.headers ?? given?.headers).get("range"));
    try {
      return seen(await nativeFetch(input, init), watched);
    } catch (error) {
      watched.failed(String(error), error?.name === "AbortError");
      throw error;
    }
  };

  /** The film's progress: time played, and each stall as {from, to} in wall time. */
  const film = { firstFrame: null, played: 0, stalls: [], ended: false };
  Object.defineProperty(window, "nearcastFilm", { value: film });
  let lastTime = 0;
  let lastMove = 0;
  let begun = false;
  let open = null;
  setInterval(() => {
    const video = document.querySelector("video");
    if (!video) return;
    const now = wall();
    const frames = video.getVideoPlaybackQuality().totalVideoFrames;
    if (film.firstFrame === null) {
      if (frames === 0) return;
      film.firstFrame = now;
      [lastTime, lastMove] = [video.currentTime, now];
    }
    film.ended = video.ended;
    const moved = video.currentTime !== lastTime;
    if (moved && !video.paused && !video.ended && !video.seeking) {
      begun = true;
      film.played += Math.max(0, Math.min(2, video.currentTime - lastTime));
    }
    // Once it has begun nobody pauses it: to a viewer a film that its player pauses, or that seeks
    // for long, stands still.
    if (moved || !begun || video.ended) {
      if (open) open.to = now;
      open = null;
      [lastTime, lastMove] = [video.currentTime, now];
    } else if (!open && now - lastMove >= STALL_MS) {
      open = { from: lastMove, to: null };
      film.stalls.push(open);
    }
  }, SAMPLE_MS);
}
