// Plays a film in many pages of one Chromium at once, each from an address of its own, and says how
// each went: for `nearcast-lab shaped`, which puts a slow link before each address.
//
//   node shaped.mjs < OPTIONS
//     {"spki": "BASE64,BASE64", "seconds": 45, "bitrates": {"180": 500000, …}, "sessions": [
//       {"player": "hls.js", "cmcd": true, "after_ms": 0, "base": "https://…"}, …]}
//
// Players have their defaults, but for CMCD, and begin so much after the start. The last line of
// stdout is one JSON list, in the order of the sessions: {player, cmcd, start_ms, stalls, stall_ms,
// played_s, mean_kbps, error}.
//   start_ms    from the call that loads the film, in a page that has the player, until it moves
//   stalls      it stood still for 450 ms or more after that, while it should have played
//   mean_kbps   of the pictures shown, by their height: over the time that was played
//   error       of the player, when it gave up; then the figures are those until the end

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { openChromium } from "./lib/chromium.mjs";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const MODULES = path.join(HERE, "../../shell/control/web/node_modules");
const SCRIPTS = {
  "hls.js": "hls.js/dist/hls.min.js",
  "dash.js": "dashjs/dist/modern/umd/dash.all.min.js",
  Shaka: "shaka-player/dist/shaka-player.compiled.js",
  "video.js": "video.js/dist/video.min.js",
};
const PAGE = `<!doctype html><video muted autoplay playsinline width="640" height="360"></video>`;

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Inside the page: begins to play, and samples how it goes. */
function begin({ player: name, cmcd, base, bitrates }) {
  const STALL_MS = 450;
  const SAMPLE_MS = 50;
  const STEP_MAX_S = 2;
  // The film's pictures are small, whatever they cost.
  const VHS = {
    overrideNative: true,
    limitRenditionByPlayerDimensions: false,
    useNetworkInformationApi: false,
  };
  const video = document.querySelector("video");
  const began = performance.now();
  const seen = { start_ms: null, stalls: 0, stall_ms: 0, played_s: 0, bits: 0, error: null };
  window.seen = seen;
  const fail = (error) => (seen.error ??= String(error?.message ?? error));
  let [lastTime, lastMove, still] = [0, began, false];
  window.stillFor = () => (still ? performance.now() - lastMove : 0);
  setInterval(() => {
    const now = performance.now();
    const step = video.currentTime - lastTime;
    const should = !video.ended && !video.seeking;
    if (0 < step) {
      if (seen.start_ms === null) seen.start_ms = now - began;
      else if (still) seen.stall_ms += now - lastMove;
      const played = Math.min(STEP_MAX_S, step);
      seen.played_s += played;
      seen.bits += played * (bitrates[video.videoHeight] ?? 0);
      [lastTime, lastMove, still] = [video.currentTime, now, false];
    } else if (seen.start_ms !== null && should && !still && STALL_MS <= now - lastMove) {
      still = true;
      seen.stalls += 1;
    }
  }, SAMPLE_MS);
  const start = {
    "hls.js"() {
      const hls = new Hls(cmcd ? { cmcd: {} } : {});
      hls.on(Hls.Events.ERROR, (_name, data) => data.fatal && fail(data.details));
      hls.loadSource(`${base}master.m3u8`);
      hls.attachMedia(video);
    },
    "dash.js"() {
      const player = dashjs.MediaPlayer().create();
      player.updateSettings({ streaming: { cmcd: { enabled: cmcd } } });
      player.on(dashjs.MediaPlayer.events.ERROR, ({ error }) => fail(error));
      player.initialize(video, `${base}manifest.mpd`, true);
    },
    async Shaka() {
      const player = new shaka.Player();
      player.configure("cmcd.enabled", cmcd);
      player.addEventListener("error", ({ detail }) => detail.severity === 2 && fail(detail.code));
      await player.attach(video);
      await player.load(`${base}manifest.mpd`);
    },
    "video.js"() {
      const player = videojs(video, { html5: { vhs: VHS } });
      player.on("error", () => fail(player.error()));
      player.src({ src: `${base}master.m3u8`, type: "application/x-mpegURL" });
    },
  };
  Promise.resolve(start[name]()).catch(fail);
}

/** On this machine: a page from elsewhere may not ask for addresses of a home. */
async function serve() {
  const server = createServer((_request, response) => {
    response.setHeader("content-type", "text/html");
    response.end(PAGE);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/`, server };
}

async function open(browser, url, session) {
  const page = await browser.newPage();
  await page.goto(url);
  await page.addScriptTag({ path: path.join(MODULES, SCRIPTS[session.player]) });
  return page;
}

async function result(page, { player, cmcd }) {
  const { bits, still, ...seen } = await page.evaluate(() => {
    return { ...window.seen, still: window.stillFor() };
  });
  const mean_kbps = seen.played_s ? Math.round(bits / seen.played_s / 1000) : 0;
  const round = (value) => (value === null ? null : Math.round(value));
  const [start_ms, stall_ms] = [round(seen.start_ms), round(seen.stall_ms + still)];
  const played_s = Math.round(seen.played_s * 10) / 10;
  return { player, cmcd, ...seen, start_ms, stall_ms, played_s, mean_kbps };
}

async function main() {
  const { spki, seconds, bitrates, sessions } = JSON.parse(readFileSync(0, "utf8"));
  const { url, server } = await serve();
  const viewport = { width: 700, height: 400 };
  const { browser, close } = await openChromium({ spki, viewport });
  try {
    const pages = [];
    for (const session of sessions) pages.push(await open(browser, url, session));
    const plays = async (page, at) => {
      await wait(sessions[at].after_ms);
      await page.evaluate(begin, { ...sessions[at], bitrates });
      await wait(seconds * 1000);
      const end = await result(page, sessions[at]);
      await page.close();
      return end;
    };
    console.log(JSON.stringify(await Promise.all(pages.map(plays))));
  } finally {
    await close();
    server.close();
  }
}

await main();
