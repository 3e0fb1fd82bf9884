// The pages that docs/integrate gives to integrators, as they stand there.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
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
const KILL_AT_S = 1;
const PLAYED_ON_S = 12;
/** Steering says nothing new for as long: players leave who died by themselves. */
const STEERING_TTL_S = 120;

/** The one page among the examples. */
function examplePage() {
  const text = readFileSync(path.join(ROOT, "docs/integrate/playback.md"), "utf8");
  return /```html\n([^]*?)```/.exec(text)[1];
}

/** Stands in for the integrator's service: it asks control, and hands on what the page needs. */
async function service(mock, route) {
  const body = JSON.stringify({ asset: "film" });
  const answer = await fetch(`${mock.url}/v1/playbacks`, { method: "POST", body });
  const { hls_url: hls, dash_url: dash } = await answer.json();
  const [url, good_for_s] = [mock.url + hls, mock.state.grants.lastLifeS];
  await route.fulfill({ json: { url, good_for_s, hls_url: url, dash_url: mock.url + dash } });
}

/** A page of docs/integrate/pages, with the player's own file in the place of the network. */
async function openExample(page, mock, file) {
  await page.route("https://cdn.jsdelivr.net/**", (route) =>
    route.request().url().endsWith(".css") ? route.abort() : route.fulfill({ path: file }),
  );
  await page.route("**/api/playback?*", (route) => service(mock, route));
  await page.goto(`${mock.url}/example`);
}

for (const [name, file] of Object.entries(PAGES)) {
  test(`${name} plays on when the appliance that serves it dies`, async () => {
    const [originDir, folder] = [film(), path.join(ROOT, "docs/integrate/pages")];
    const example = readFileSync(path.join(folder, name), "utf8");
    await withMock({ film: originDir, example, steeringTtlS: STEERING_TTL_S }, (mock) =>
      withPage({}, async (page) => {
        const ledger = await watchWith(page, originDir);
        await openExample(page, mock, path.join(PACKAGES, file));
        await until("the film to be there", 15_000, () =>
          page.evaluate(() => document.querySelector("video")?.readyState >= 3),
        );
        await page.evaluate(() => document.querySelector("video").play());
        const state = () => page.evaluate(() => ({ ...window.nearcastFilm }));
        await until("it to play", 20_000, async () => (await state()).played > KILL_AT_S);
        const hosts = new Map(mock.state.appliances.map((one) => [new URL(one.url).host, one]));
        const last = ledger.media().findLast(({ outcome }) => outcome === "body");
        await hosts.get(new URL(last.url).host).fault("kill");
        const end = KILL_AT_S + PLAYED_ON_S;
        await until("it to play on", 40_000, async () => (await state()).played > end);
        assert.deepEqual([(await state()).stalls.length, ledger.wrongBytes], [0, 0]);
        assert.ok(ledger.bytesByHost().size >= 2, "another appliance went on");
      }),
    );
  });
}

test("the documented page plays on after a pause longer than its URLs are good", async () => {
  const example = `<!doctype html>${examplePage()}`;
  await withMock({ film: film(), tokenLivesS: [4], example }, (mock) =>
    withPage({}, async (page) => {
      let asked = 0;
      await page.route("https://cdn.jsdelivr.net/**", (route) => route.fulfill({ path: HLS }));
      await page.route("**/api/playback?*", (route) => {
        asked += 1;
        return service(mock, route);
      });
      await page.goto(`${mock.url}/example`);
      const video = (what) => page.evaluate((code) => {
        const element = document.querySelector("video");
        return code === "time" ? element.currentTime : element[code]();
      }, what);
      await until("a second played", 15_000, async () => (await video("time")) > 1);
      await video("pause");
      const paused = await video("time");
      await wait(5_000);
      await video("play");
      await until("it plays on", 20_000, async () => (await video("time")) > paused + 3);
      assert.equal(asked, 2);
      assert.ok((await video("time")) < paused + 8, "from where it was");
    }),
  );
});
