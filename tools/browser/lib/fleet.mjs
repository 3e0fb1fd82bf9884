// The fleet under test: who is where, who is well, and the demo's orders to break and mend.

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const host = (url) => (url ? new URL(url).host : null);

export class Fleet {
  #broken = new Set();
  #hosts = new Map();

  /** `token` is a viewer's; none where control is open. */
  constructor(controlUrl, controlsUrl, token) {
    this.headers = token ? { authorization: `Bearer ${token}` } : {};
    this.controlUrl = controlUrl.replace(/\/$/, "");
    this.controlsUrl = controlsUrl.replace(/\/$/, "");
  }

  async appliances() {
    const signal = AbortSignal.timeout(5_000);
    const { headers } = this;
    const response = await fetch(`${this.controlUrl}/v1/fleet`, { signal, headers });
    if (!response.ok) throw new Error(`control answered ${response.status} for /v1/fleet`);
    const { sites } = await response.json();
    return sites.flatMap(({ id: site, appliances }) => appliances.map((one) => ({ ...one, site })));
  }

  /** Host name and port to appliance id, for both listeners; what was once known stays known. */
  async hosts() {
    for (const { id, base_url: base, report } of await this.appliances()) {
      for (const url of [base, report?.base_url, report?.plain_url]) {
        if (url) this.#hosts.set(host(url), id);
      }
    }
    return this.#hosts;
  }

  /** The site of each appliance. */
  async sites() {
    return new Map((await this.appliances()).map(({ id, site }) => [id, site]));
  }

  async order(id, verb) {
    if (verb !== "restore" && verb !== "near") this.#broken.add(id);
    const url = `${this.controlsUrl}/appliances/${encodeURIComponent(id)}/${verb}`;
    const signal = AbortSignal.timeout(15_000);
    const response = await fetch(url, { method: "POST", signal });
    if (!response.ok) throw new Error(`the demo answered ${response.status} to ${verb} ${id}`);
    if (verb === "restore") this.#broken.delete(id);
  }

  /** Waits until control calls the appliance healthy. Returns how long that took, ms. */
  async healthy(id, withinMs) {
    const started = performance.now();
    let state = "unknown";
    while (performance.now() - started < withinMs) {
      const found = (await this.appliances()).find((one) => one.id === id);
      state = found?.state ?? "not registered";
      if (state === "healthy") return performance.now() - started;
      await wait(200);
    }
    throw new Error(`${id} is ${state}, not healthy, ${withinMs / 1000} s after its restore`);
  }

  /** Mends what was broken and not mended, however the run ended. */
  async mend() {
    for (const id of this.#broken) await this.order(id, "restore");
  }
}
