// ffmpeg and curl against the demo's own appliances, over TLS, while the one that serves them hangs
// or is killed: what docs/integrate/players.md says of them. Needs the programs of `cargo build`.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Fleet } from "../lib/fleet.mjs";
import { until, wait } from "./support.mjs";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const TARGET = process.env.CARGO_TARGET_DIR ?? path.join(ROOT, "target");
const AGAIN = ["-reconnect", "1", "-reconnect_on_network_error", "1", "-reconnect_delay_max", "4"];
const PACKETS = ["-c", "copy", "-t", "16", "-f", "framemd5", "-"];
/** The best rendition's file in the demo's film. */
const FILE = "r2.mp4";
/** The first byte that curl asks for, and its rate: the file takes it longer than the fault. */
const FROM = 1_000;
const RATE = "6M";

let folder;
let demo;
let about;
let fleet;

before(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "nearcast-clients-"));
  demo = spawn(path.join(TARGET, "debug", "nearcast"), ["demo", "--no-browser", "--json"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  for await (const line of createInterface({ input: demo.stdout })) {
    about = JSON.parse(line);
    break;
  }
  const room = path.dirname(about.service_token_file);
  about.authority = path.join(room, "authority.pem");
  const read = (file) => readFileSync(file, "utf8").trim();
  about.token = read(about.service_token_file);
  fleet = new Fleet(about.control, about.controls, read(about.token_file));
});

after(async () => {
  demo?.kill("SIGTERM");
  if (demo) await new Promise((resolve) => demo.once("exit", resolve));
  rmSync(folder, { recursive: true });
});

/** A new playback: {appliance, url} of the file by the nearest appliance, and the HLS entry. */
async function playback() {
  const headers = { authorization: `Bearer ${about.token}`, "content-type": "application/json" };
  const body = JSON.stringify({ asset: about.asset });
  const answer = await fetch(`${about.control}/v1/playbacks`, { method: "POST", headers, body });
  const { hls_url: hls, pathways } = await answer.json();
  const [{ appliance, base_url: base }] = pathways;
  return { appliance, url: base + FILE, hls: about.control + hls };
}

/** It hangs until its guard ends it and starts the next; or it is killed, and started again. */
async function fault(appliance, verb) {
  await fleet.order(appliance, verb);
  if (verb === "hang") {
    const condition = async () => {
      const all = await (await fetch(`${about.controls}/appliances`)).json();
      return all.find(({ id }) => id === appliance).condition;
    };
    // Woken before, it would go on.
    return until("its guard to end it", 5_000, async () => (await condition()) !== "hung");
  }
  await wait(1_000);
  await fleet.order(appliance, "restore");
}

/** Runs a program to its end, with a fault after `faultMs`; what it wrote to stdout. */
async function run(program, args, faultMs, act) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "ignore"] });
  let text = "";
  child.stdout.on("data", (piece) => (text += piece));
  const ended = new Promise((resolve) => child.once("close", resolve));
  if (act) await wait(faultMs).then(act);
  const over = setTimeout(() => child.kill("SIGKILL"), 60_000);
  assert.equal(await ended, 0, `${program} ended badly`);
  clearTimeout(over);
  return text;
}

const film = (name) => {
  const home = process.env.HOME;
  return path.join(home, ".cache/nearcast/demo/films/demo-2", name);
};
const quiet = ["-nostdin", "-loglevel", "error"];
/** The packets of a film as ffmpeg lists them: stream and digest. */
const packets = (text) =>
  text.split("\n").filter((line) => /^\d/.test(line)).map((line) => {
    const [stream, , , , , digest] = line.split(",");
    return `${stream} ${digest}`;
  });
const local = (name) =>
  packets(execFileSync("ffmpeg", [...quiet, "-i", film(name), ...PACKETS], { encoding: "utf8" }));

test("ffmpeg plays the HLS entry playlist over TLS", async () => {
  const { hls } = await playback();
  const got = packets(await run("ffmpeg", [...quiet, "-i", hls, ...PACKETS]));
  assert.deepEqual(got.filter((one) => one.startsWith("0")), local(FILE));
});

for (const verb of ["hang", "kill"]) {
  test(`ffmpeg reads a file on through a ${verb}, and every packet is the film's`, async () => {
    const { appliance, url } = await playback();
    const trust = ["-tls_verify", "1", "-ca_file", about.authority];
    const args = [...quiet, "-re", ...trust, ...AGAIN, "-i", url, ...PACKETS];
    const text = await run("ffmpeg", args, 4_000, () => fault(appliance, verb));
    assert.deepEqual(packets(text), local(FILE));
    await fleet.healthy(appliance, 30_000);
  });

  test(`curl has every byte of a range after a ${verb}`, async () => {
    const { appliance, url } = await playback();
    const to = path.join(folder, verb);
    const again = ["--retry", "8", "--retry-delay", "1", "--retry-all-errors"];
    const what = ["--range", `${FROM}-`, "--limit-rate", RATE, "--output", to, url];
    const told = ["--write-out", "%{http_code}"];
    const args = ["--silent", "--fail", "--location", "--cacert", about.authority];
    const act = () => fault(appliance, verb);
    const status = await run("curl", [...args, ...again, ...told, ...what], 3_000, act);
    assert.equal(status, "206");
    assert.ok(readFileSync(to).equals(readFileSync(film(FILE)).subarray(FROM)), "other bytes");
    await fleet.healthy(appliance, 30_000);
  });
}
