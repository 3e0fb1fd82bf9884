// A pretend control plane, to design the pages without a fleet.
//
//   npm run build && npm run mock -- [--port 18200] [--scenario lively]
//       serves dist/ and an invented /v1/fleet that moves every second
//   npm run mock -- --film DIR [--media-port 18243] [--tls DIR]
//       adds three pretend appliances on 127.0.0.2, .3 and .4 which serve the HLS and DASH files of
//       DIR (see film.sh), so the player page plays, and the fault buttons kill, stop and restart
//       those processes for real
//
// Tests import startMock() instead.

import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { dashEntry, hlsEntry, steeringReply } from "./playback.mjs";
import {
  fillOf,
  fleetAt,
  fleetWith,
  planOf,
  popularityOf,
  routesOf,
  scenarioNames,
  shedsOf,
  viewersAt,
} from "./scenarios.mjs";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const DIST = path.join(HERE, "..", "dist");
const MEDIA_HOSTS = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];
const STALE_AFTER_MS = 1_500;
const STEERING_TTL_S = 10;
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
  ".woff2": "font/woff2",
};

/** A media.mjs process that can be killed, stopped and started again. */
class PretendAppliance {
  constructor(id, options) {
    this.id = id;
    this.options = options;
    this.samples = [];
    this.lastReport = 0;
  }

  start() {
    this.child = spawn(
      process.execPath,
      [path.join(HERE, "media.mjs"), JSON.stringify(this.options)],
      { stdio: ["ignore", "inherit", "inherit", "ipc"] },
    );
    return new Promise((resolve, reject) => {
      this.child.once("error", reject);
      this.child.once("exit", (code) => reject(new Error(`media.mjs ended (${code})`)));
      this.child.on("message", (message) => {
        this.lastReport = Date.now();
        // After a restart it has the port that it had.
        if (message.port) return resolve(Object.assign(this.options, message));
        this.samples = [...this.samples.slice(-3), { at: Date.now(), ...message }];
      });
    });
  }

  async fault(verb) {
    if (verb === "kill") this.child.kill("SIGKILL");
    if (verb === "hang") this.child.kill("SIGSTOP");
    if (verb !== "restore") return;
    this.child.kill("SIGCONT");
    if (this.child.exitCode !== null || this.child.signalCode !== null) await this.start();
  }

  /** Sends each request on to another one. */
  sendOnTo(other) {
    this.child.send({ sendTo: other.url });
  }

  /** Answers each request with this status; 0 ends that. */
  refuse(status) {
    this.child.send({ refuse: status });
  }

  get url() {
    const { tls, host, port } = this.options;
    return `${tls ? "https" : "http"}://${host}:${port}`;
  }

  get silentMs() {
    return Date.now() - this.lastReport;
  }

  get healthy() {
    return this.silentMs < STALE_AFTER_MS;
  }

  bitsPerSecond() {
    const [first, last] = [this.samples[0], this.samples.at(-1)];
    if (!first || last.at === first.at || !this.healthy) return 0;
    return Math.max(0, ((last.sentBytes - first.sentBytes) * 8_000) / (last.at - first.at));
  }

  stop() {
    this.child?.kill("SIGKILL");
  }
}

const answer = (response, status, type, body) =>
  response
    .writeHead(status, {
      "Content-Type": type,
      "Cache-Control": "no-store",
      "Access-Control-Allow-Origin": "*",
      "Access-Control-Allow-Headers": "content-type",
    })
    .end(body);

const json = (response, status, body) =>
  answer(response, status, "application/json", JSON.stringify(body));

function serveFile(response, file) {
  if (!file.startsWith(DIST) || !existsSync(file)) return json(response, 404, { status: 404 });
  const type = TYPES[path.extname(file)] ?? "application/octet-stream";
  response.writeHead(200, { "Content-Type": type }).end(readFileSync(file));
}

/** Lays what the pretend appliances really do over the invented fleet. */
function overlay(fleet, appliances) {
  for (const one of fleet.sites.flatMap((site) => site.appliances)) {
    const real = appliances.find((candidate) => candidate.id === one.id);
    if (!real || !one.report) continue;
    one.base_url = one.report.base_url = one.report.plain_url = real.url;
    one.last_report_ms = real.silentMs;
    one.report.load.egress_bits_per_second = real.bitsPerSecond();
    one.report.load.egress_bytes = real.samples.at(-1)?.sentBytes ?? 0;
    one.report.start_id = real.child.pid;
    one.report.load.connections = real.samples.at(-1)?.connections ?? 0;
    if (!real.healthy) {
      one.state = "stale";
      one.reason = `no report for ${Math.round(real.silentMs / 1000)} s`;
      one.since_s = Math.floor((real.silentMs - STALE_AFTER_MS) / 1000);
    }
  }
}

/** Grants that were given out, each with how long its media URLs are good. */
class Grants {
  constructor({ tokenLivesS = [], grantsOver = 0 }) {
    Object.assign(this, { lives: [...tokenLivesS], over: grantsOver, given: new Map() });
  }

  /** A new one; the first `grantsOver` are over at once. */
  give() {
    const grant = `pretend-grant-${this.given.size + 1}`;
    this.lastLifeS = this.lives.shift() ?? 3_600;
    this.given.set(grant, { over: this.over-- > 0, lifeMs: this.lastLifeS * 1_000 });
    return grant;
  }

  /** 0 for a good one, else the status that it is refused with. */
  refusal(grant) {
    const known = this.given.get(grant);
    if (!known) return 401;
    return known.over ? 403 : 0;
  }

  /** A token that ends when it should. */
  token(grant) {
    return `pretend-token-${Date.now() + this.given.get(grant).lifeMs}`;
  }
}

function playRoutes(state) {
  const pathways = (token) =>
    [...state.appliances]
      .sort((a, b) => Number(b.healthy) - Number(a.healthy))
      .map(({ id, url }) => ({ id, url: `${url}/t/${token}/film-1/` }));
  const steerUrl = () => `${state.url}/steer/v1/pretend-session`;
  return (url, response) => {
    const grant = url.searchParams.get("grant");
    const refusal = state.grants.refusal(grant);
    if (refusal) return json(response, refusal, { status: refusal, detail: "no good grant" });
    const read = (name) => readFileSync(path.join(state.film, name), "utf8");
    const all = pathways(state.grants.token(grant));
    if (url.pathname.endsWith(".m3u8")) {
      const body = hlsEntry(read("master.m3u8"), all, steerUrl());
      return answer(response, 200, "application/vnd.apple.mpegurl", body);
    }
    const body = dashEntry(read("manifest.mpd"), all, steerUrl());
    return answer(response, 200, "application/dash+xml", body);
  };
}

/** Leave to play the one film. */
async function givePlayback(state, request, response) {
  let text = "";
  for await (const piece of request) text += piece;
  const { asset } = JSON.parse(text);
  if (asset !== "film") return json(response, 404, { status: 404, detail: "no such asset" });
  const grant = state.grants.give();
  const url = (ending) => `/v1/play/film.${ending}?grant=${grant}`;
  const events_url = `${state.url}/events/v1/pretend-session`;
  return json(response, 200, { hls_url: url("m3u8"), dash_url: url("mpd"), events_url });
}

function handler(state) {
  const play = playRoutes(state);
  return async (request, response) => {
    const url = new URL(request.url, "http://any");
    const name = url.pathname;
    const fault = /^\/appliances\/([^/]+)\/(kill|hang|restore)$/.exec(name);
    if (fault && request.method === "POST") {
      const target = state.appliances.find(({ id }) => id === fault[1]);
      if (!target) return json(response, 404, { title: `no appliance ${fault[1]}` });
      await target.fault(fault[2]);
      return json(response, 200, { appliance: fault[1], done: fault[2] });
    }
    if (request.method === "OPTIONS") return json(response, 200, {});
    // It has no ISPs.
    if (name === "/routes") return json(response, 200, []);
    if (name === "/first-frame" && request.method === "POST") return json(response, 200, {});
    if (name === "/v1/fleet") {
      const fleet = fleetWith(state.scenario, Date.now() / 1000, url.searchParams);
      const only = url.searchParams.get("site");
      if (only !== null && fleet.sites.length === 0) {
        return json(response, 404, { title: `no site ${only} is registered` });
      }
      overlay(fleet, state.appliances);
      if (state.controls) fleet.demo_controls = state.url;
      return json(response, 200, fleet);
    }
    if (name === "/v1/appliances") {
      const { sites } = fleetAt(state.scenario, Date.now() / 1000);
      const all = sites.flatMap(({ id: site, appliances }) =>
        appliances.map(({ id }) => ({ id, site })),
      );
      return json(response, 200, all);
    }
    if (name === "/v1/routes") {
      const out = routesOf(state.scenario);
      const only = url.searchParams.get("site");
      out.sites = out.sites.filter(({ site }) => only === null || site === only);
      return json(response, 200, out);
    }
    if (name === "/v1/sheds") return json(response, 200, shedsOf(state.scenario, url.searchParams));
    if (name === "/v1/fill") {
      return json(response, 200, fillOf(state.scenario, url.searchParams.get("site")));
    }
    if (name === "/v1/plan") return json(response, 200, planOf(state.scenario));
    if (name === "/v1/popularity") {
      const { searchParams: query } = url;
      return json(response, 200, popularityOf(query.get("region"), query.has("backtest")));
    }
    if (name === "/v1/viewers") return json(response, 200, viewersAt(state.scenario, Date.now()));
    if (name === "/v1/playbacks" && request.method === "POST" && state.film) {
      return givePlayback(state, request, response);
    }
    if (/^\/v1\/play\/film\./.test(name) && state.film) return play(url, response);
    if (name.startsWith("/events/v1/")) return json(response, 200, {});
    if (name.startsWith("/steer/v1/")) {
      const order = state.appliances.filter(({ healthy }) => healthy).map(({ id }) => id);
      return json(response, 200, steeringReply(order, state.url + name, state.steeringTtlS));
    }
    if (name === "/example" && state.example) {
      return response.writeHead(200, { "Content-Type": TYPES[".html"] }).end(state.example);
    }
    if (name === "/" || name === "/play") {
      return serveFile(response, path.join(DIST, name === "/" ? "index.html" : "play.html"));
    }
    return serveFile(response, path.join(DIST, path.posix.normalize(name)));
  };
}

const listen = (server, port, host) =>
  new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => resolve(server.address().port));
  });

async function startAppliances(options) {
  const { film: dir, tls, faults, mediaPort: port = 0 } = options;
  const appliances = MEDIA_HOSTS.map((host, index) => {
    const id = `a${index + 1}`;
    return new PretendAppliance(id, { host, port, dir, tls, fault: faults?.[id] });
  });
  try {
    await Promise.all(appliances.map((one) => one.start()));
  } catch (error) {
    for (const one of appliances) one.stop();
    throw error;
  }
  return appliances;
}

/**
 * Starts the pretend control plane, and with `film` three pretend appliances.
 * Options: port and mediaPort (0 for any that are free), scenario, film, tls ({cert, key} files),
 * controls, faults (per appliance id, see media.mjs), tokenLivesS (of the first playbacks' media
 * URLs, else an hour), grantsOver (how many grants are over as soon as they are given), example (a
 * page to serve at /example), steeringTtlS. Returns {url, state, close()}.
 */
export async function startMock(options = {}) {
  const state = {
    scenario: options.scenario ?? "lively",
    film: options.film,
    controls: options.controls ?? Boolean(options.film),
    grants: new Grants(options),
    example: options.example,
    steeringTtlS: options.steeringTtlS ?? STEERING_TTL_S,
    appliances: [],
  };
  const handle = handler(state);
  const server = http.createServer((request, response) => {
    handle(request, response).catch((error) => json(response, 500, { title: String(error) }));
  });
  state.url = `http://127.0.0.1:${await listen(server, options.port ?? 0, "127.0.0.1")}`;
  const close = async () => {
    for (const one of state.appliances) one.stop();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  try {
    if (options.film) state.appliances = await startAppliances(options);
  } catch (error) {
    await close();
    throw error;
  }
  return { url: state.url, state, close };
}

async function main() {
  const { values } = parseArgs({
    options: {
      port: { type: "string", default: "18200" },
      scenario: { type: "string", default: "lively" },
      film: { type: "string" },
      "media-port": { type: "string", default: "0" },
      tls: { type: "string" },
      controls: { type: "boolean", default: false },
    },
  });
  if (!scenarioNames.includes(values.scenario)) {
    throw new Error(`no scenario "${values.scenario}": take one of ${scenarioNames.join(", ")}`);
  }
  const tls = values.tls && {
    cert: path.join(values.tls, "cert.pem"),
    key: path.join(values.tls, "key.pem"),
  };
  const port = Number(values.port);
  const controls = values.controls || undefined;
  const mediaPort = Number(values["media-port"]);
  const mock = await startMock({ ...values, controls, port, mediaPort, tls });
  console.error(`${mock.url}/ (${values.scenario})${values.film ? `, ${mock.url}/play` : ""}`);
  process.once("SIGINT", () => mock.close());
  process.once("SIGTERM", () => mock.close());
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
