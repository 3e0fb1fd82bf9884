// What Chromium itself says of the answers of appliances, beside what the witness says from inside
// the page: an answer that one saw to its end and the other did not has escaped the check.

const LOOK_EVERY_MS = 50;

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const isMedia = (request) =>
  request.method() === "GET" && /^\/t\/[^/]+\/[^/]+\/./.test(new URL(request.url()).pathname);

export class Traffic {
  /** Answers with 2xx that came to their end. */
  finished = 0;
  /** Requests that a 307 sent on. */
  sentOn = 0;
  /** The same by URL. */
  #byUrl = new Map();
  /** Requests that have not. */
  #underWay = new Set();

  constructor(page) {
    page.on("request", (request) => {
      if (!isMedia(request)) return;
      this.#underWay.add(request);
      if (request.redirectedFrom()) this.sentOn += 1;
    });
    page.on("requestfailed", (request) => this.#underWay.delete(request));
    page.on("requestfinished", (request) => this.#end(request));
  }

  async #end(request) {
    if (!this.#underWay.has(request)) return;
    try {
      const status = (await request.response())?.status() ?? 0;
      if (200 <= status && status < 300) {
        this.finished += 1;
        this.#byUrl.set(request.url(), (this.#byUrl.get(request.url()) ?? 0) + 1);
      }
    } finally {
      this.#underWay.delete(request);
    }
  }

  /** Answers that Chromium saw to their end and the ledger has no account of. */
  unchecked(ledger) {
    const accounted = ledger.accounted();
    const escaped = [...this.#byUrl].map(([url, n]) => Math.max(0, n - (accounted.get(url) ?? 0)));
    return escaped.reduce((sum, count) => sum + count, 0);
  }

  /**
   * Takes the page off line for good, and waits until each request that it sent before has its end
   * in both books; false if one has none in time. To go off line cuts nothing short: what is under
   * way goes on, and an answer ends for Chromium before the witness has its digest, so that a count
   * at any moment of the clock could fall between the two.
   */
  async close(page, ledger, withinMs) {
    await page.context().setOffline(true);
    // Through the page and back: what it had sent until then is in the books now.
    await page.evaluate(() => null);
    const [asked, told] = [[...this.#underWay], ledger.underWay()];
    const isOver = () =>
      asked.every((request) => !this.#underWay.has(request)) &&
      told.every(({ outcome }) => outcome !== undefined);
    const end = performance.now() + withinMs;
    while (!isOver() && performance.now() < end) await wait(LOOK_EVERY_MS);
    return isOver();
  }
}
