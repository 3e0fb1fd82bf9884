// The page that docs/integrate/playback.md gives to integrators, as it stands there.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { film, until, wait, withMock, withPage } from "./support.mjs";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const HLS = path.join(ROOT, "shell/control/web/node_modules/hls.js/dist/hls.min.js");

/** The one page among the examples. */
function examplePage() {
  const text = readFileSync(path.join(ROOT, "docs/integrate/playback.md"), "utf8");
  return /```html\n([^]*?)```/.exec(text)[1];
}

/** Stands in for the integrator's service: it asks control, and hands on what the page needs. */
async function service(mock, route) {
  const body = JSON.stringify({ asset: "film" });
  const answer = await fetch(`${mock.url}/v1/playbacks`, { method: "POST", body });
  const { hls_url: url } = await answer.json();
  await route.fulfill({ json: { url: mock.url + url, good_for_s: mock.state.grants.lastLifeS } });
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
