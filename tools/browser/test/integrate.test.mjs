// The pages that docs/integrate gives to integrators, as they stand there.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { film, until, wait, watchWith, withMock, withPage } from "./support.mjs";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const PACKAGES = path.join(ROOT, "shell/control/web/node_modules");
const HLS = path.join(PACKAGES, "hls.js/dist/hls.min.js");

/** The pages, and the file that each gets from the network. */
const PAGES = {
  "hls.html": "hls.js/dist/hls.min.js",
  "dash.html": "dashjs/dist/modern/umd/dash.all.min.js",
  "shaka.html": "shaka-player/dist/shaka-player.compiled.js",
  "videojs.html": "video.js/dist/video.min.js",
};
const FILM_S = 60;
const KILL_AT_S = 3;
/** Longer than the buffers that the pages cap at 30 s, and a segment of 4 s. */
const PLAYED_ON_S = 35;
const BUFFER_S_MAX = 35;
const AWAY_MS = 2_000;
/** All appliances refuse for so long. */
const REFUSED_MS = 12_000;
/** Requests of a player that is refused everywhere: one round, of each lane and rendition. */
const REFUSED_MAX = 24;
/**
 * Requests while all are busy for so long. With a round each half second they were 72 to 85, 87 to
 * 90, 62 to 66, and 39 to 46 of video.js, which waits most by itself.
 */
const BUSY_MS = 27_000;
const BUSY_MAX = { "hls.html": 62, "dash.html": 50, "shaka.html": 48, "videojs.html": 39 };
/** Steering says nothing new for as long: players leave who died by themselves. */
const STEERING_TTL_S = 120;

const FOLDER = path.join(ROOT, "docs/integrate/pages");
const pageOf = (name) => readFileSync(path.join(FOLDER, name), "utf8");

/** Stands in for the integrator's service: it asks control, and hands on what the page needs. */
async function service(mock, route) {
  const body = JSON.stringify({ asset: "film" });
  const answer = await fetch(`${mock.url}/v1/playbacks`, { method: "POST", body });
  const { hls_url: hls, dash_url: dash } = await answer.json();
  const good_for_s = mock.state.grants.lastLifeS;
  await route.fulfill({ json: { hls_url: mock.url + hls, dash_url: mock.url + dash, good_for_s } });
}

/** A page of docs/integrate/pages, with the player's own file in the place of the network. */
async function openExample(page, mock, file) {
  await page.route("https://cdn.jsdelivr.net/**", (route) =>
    route.request().url().endsWith(".css") ? route.abort() : route.fulfill({ path: file }),
  );
  await page.route("**/api/playback?*", (route) => service(mock, route));
  await page.goto(`${mock.url}/example`);
}

const now = () => performance.timeOrigin + performance.now();

/** Kills the appliance that serves a player. The answer tells whether another one does by now. */
async function killServing(mock, ledger) {
  const last = ledger.media().findLast(({ outcome }) => outcome === "body");
  const { host } = new URL(last.url);
  await mock.state.appliances.find(({ url }) => new URL(url).host === host).fault("kill");
  const at = now();
  const isOther = ({ outcome, sent, url }) =>
    outcome === "body" && at <= sent && new URL(url).host !== host;
  return () => ledger.media().some(isOther);
}

/** What befalls the appliances, once a player has its buffer full; what must be seen afterwards. */
const FAULTS = {
  "the appliance that serves it dies": async (mock, ledger) => {
    const isElsewhere = await killServing(mock, ledger);
    return () => assert.ok(isElsewhere(), "another appliance serves it");
  },
  "all appliances die, and are back two seconds after it asked one": async (mock, ledger) => {
    const at = now();
    for (const one of mock.state.appliances) await one.fault("kill");
    const inVain = ({ outcome, aborted }) => outcome === "failed" && !aborted;
    await until("it to ask in vain", 15_000, () => ledger.sentSince(at).some(inVain));
    await wait(AWAY_MS);
    for (const one of mock.state.appliances) await one.fault("restore");
    const back = now();
    return () => assert.ok(ledger.bytesByHost(back).size > 0, "somebody serves it again");
  },
};

/** How far the page has played, and the seconds that it holds beyond that. */
const progress = (page) =>
  page.evaluate(() => {
    const { buffered, currentTime } = document.querySelector("video");
    const ahead = buffered.length ? buffered.end(buffered.length - 1) - currentTime : 0;
    return { ...window.nearcastFilm, ahead };
  });

/** Plays a page until its buffer is full. */
async function play(page) {
  await until("the film to be there", 15_000, () =>
    page.evaluate(() => document.querySelector("video")?.readyState >= 3),
  );
  await page.evaluate(() => document.querySelector("video").play());
  await until("it to play", 20_000, async () => (await progress(page)).played > KILL_AT_S);
}

const isTroubled = (page) => page.locator("#trouble").isVisible();

/** Plays a page through a fault, until nothing is left that it had before. */
async function playThrough(page, mock, ledger, act) {
  await play(page);
  const served = await act(mock, ledger);
  let most = 0;
  await until("it to play on", 70_000, async () => {
    const { played, ahead } = await progress(page);
    most = Math.max(most, ahead);
    return played > KILL_AT_S + PLAYED_ON_S;
  });
  assert.deepEqual([(await progress(page)).stalls, ledger.wrongBytes], [[], 0]);
  served();
  assert.ok(most <= BUFFER_S_MAX, `${most} s in its buffer`);
}

/** Lets all appliances answer with this status; gives the time when the player has met that. */
async function refuseAll(mock, ledger, status) {
  for (const one of mock.state.appliances) one.refuse(status);
  const at = now();
  const isMet = (request) => request.status === status;
  await until("it to be refused", 15_000, () => ledger.sentSince(at).some(isMet));
  return now();
}

/** Runs `action` with a page that plays, and whose every byte is looked at. */
async function withExample(name, action) {
  const [originDir, example] = [film(FILM_S), pageOf(name)];
  const options = { film: originDir, example, steeringTtlS: STEERING_TTL_S };
  await withMock(options, (mock) =>
    withPage({}, async (page) => {
      const ledger = await watchWith(page, originDir);
      await openExample(page, mock, path.join(PACKAGES, PAGES[name]));
      await action({ page, mock, ledger });
    }),
  );
}

// Most of their time is the film's: one fleet and Chromium each, two at once.
describe("the pages through faults", { concurrency: 2 }, () => {
  for (const name of Object.keys(PAGES)) {
    for (const [fault, act] of Object.entries(FAULTS)) {
      test(`${name} plays on when ${fault}`, () =>
        withExample(name, ({ page, mock, ledger }) => playThrough(page, mock, ledger, act)));
    }

    test(`${name} stops, and says so, when all appliances refuse the film`, () =>
      withExample(name, async ({ page, mock, ledger }) => {
        await play(page);
        assert.equal(await isTroubled(page), false);
        const at = await refuseAll(mock, ledger, 404);
        await wait(REFUSED_MS);
        const asked = ledger.sentSince(at).length;
        assert.ok(asked <= REFUSED_MAX, `${asked} requests`);
        assert.equal(await isTroubled(page), true);
      }));

    test(`${name} asks less and less often while all appliances are busy`, () =>
      withExample(name, async ({ page, mock, ledger }) => {
        await play(page);
        const at = await refuseAll(mock, ledger, 503);
        await wait(BUSY_MS);
        const asked = ledger.sentSince(at).length;
        assert.ok(asked <= BUSY_MAX[name], `${asked} requests`);
        assert.equal(await isTroubled(page), false);
        for (const one of mock.state.appliances) one.refuse(0);
        const back = now();
        await until("it is served again", 15_000, () => ledger.bytesByHost(back).size > 0);
        const isElsewhere = await killServing(mock, ledger);
        await until("another serves it when that one dies", 20_000, isElsewhere);
      }));
  }
});

test("playback.md shows the renewal of hls.html as it stands there", () => {
  const text = readFileSync(path.join(ROOT, "docs/integrate/playback.md"), "utf8");
  const [, shown] = /```js\n(const video = [^]*?)```/.exec(text);
  assert.ok(pageOf("hls.html").replaceAll(/^ {2}/gm, "").includes(shown));
});

test("the pages have the same words for when to ask again", () => {
  const part = (name) => /const REFUSALS[^]*?\n {2}}\n/.exec(pageOf(name))[0];
  assert.equal(new Set(Object.keys(PAGES).map(part)).size, 1);
});

/** As control says it: a problem document. */
const busy = (route) =>
  route.fulfill({ status: 503, json: { status: 503, title: "Service Unavailable" } });

/** How the service of hls.html answers when asked for the next playback, and how often it is. */
const RENEWALS = {
  "at once": { answers: [], times: 2 },
  "503, then as it should": { answers: [busy], times: 3 },
  "never, then as it should": { answers: [() => {}], times: 3 },
};

/** Plays hls.html, pauses for longer than its URLs are good, and resumes. */
async function resume(answers, action) {
  const options = { film: film(), tokenLivesS: [4], example: pageOf("hls.html") };
  await withMock(options, (mock) =>
    withPage({}, async (page) => {
      let asked = 0;
      await page.route("https://cdn.jsdelivr.net/**", (route) => route.fulfill({ path: HLS }));
      await page.route("**/api/playback?*", (route) => {
        asked += 1;
        const answer = 1 < asked && answers.shift();
        return answer ? answer(route) : service(mock, route);
      });
      await page.goto(`${mock.url}/example`);
      // The page may load anew upon "play", which ends the promise of that play with an AbortError.
      const video = (what) => page.evaluate((code) => {
        const element = document.querySelector("video");
        if (code === "time") return element.currentTime;
        if (code === "source") return element.src;
        element[code]()?.catch((error) => { if (error.name !== "AbortError") throw error; });
      }, what);
      await video("play");
      await until("a second played", 15_000, async () => (await video("time")) > 1);
      await video("pause");
      const [paused, source] = [await video("time"), await video("source")];
      await wait(5_000);
      const resumed = Date.now();
      await video("play");
      const isNew = async () => (await video("source")) !== source;
      await action({ page, video, paused, resumed, isNew, asked: () => asked });
    }),
  );
}

for (const [how, { answers, times }] of Object.entries(RENEWALS)) {
  test(`hls.html plays on after a long pause, its service answers ${how}`, () =>
    resume([...answers], async ({ page, video, paused, resumed, isNew, asked }) => {
      await until("there is a new playback", 20_000, isNew);
      // Meanwhile the film plays on, from what the last player had.
      const most = paused + (Date.now() - resumed) / 1_000;
      await until("it plays on", 20_000, async () => (await video("time")) > most + 2);
      assert.equal(asked(), times);
      const at = await video("time");
      const passed = (Date.now() - resumed) / 1_000;
      assert.ok(at <= paused + passed + 1, `from ${paused} s, ${passed} s later at ${at} s`);
      assert.equal(await isTroubled(page), false);
    }));
}

test("hls.html says so when its service refuses the next playback, and plays what it has", () =>
  resume([(route) => route.fulfill({ status: 403 })], async ({ page, video, paused, asked }) => {
    await page.locator("#trouble").waitFor();
    await until("it plays what it has", 10_000, async () => (await video("time")) > paused + 2);
    await wait(3_000);
    assert.equal(asked(), 2);
  }));
