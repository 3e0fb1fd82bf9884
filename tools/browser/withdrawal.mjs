// Presses the button of a site's page in a demo with ISPs: routes are withdrawn and announced
// again, and clients have to follow.
//
//   node withdrawal.mjs   with the JSON of selftest.mjs on stdin; `control_url` is a door of isp1
//
// Progress goes to stderr; the last line of stdout is one JSON object:
//   withdraw_ms, announce_ms            from just before the button is pressed, until control's
//                                       explanation for a client of isp1 begins with the other site
//   page_withdraw_ms, page_announce_ms  the same, until the page says so
//   before, withdrawn, after            whom the explanation named, best first, each time
//   playback                            the first server of a new playback's media, each time

import { readFileSync } from "node:fs";
import path from "node:path";
import { openChromium } from "./lib/chromium.mjs";

const SITE = "s1";
const OTHER = "s2";
const WITHIN_MS = 20_000;
const LOOK_EVERY_MS = 20;

const options = JSON.parse(readFileSync(0, "utf8"));
const { control_url: base, token, asset, chromium, spki, screenshots_dir: shots } = options;
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const say = (text) => console.error(`withdrawal: ${text}`);

async function offered(client) {
  const query = new URLSearchParams({ asset, client });
  const headers = { authorization: `Bearer ${token}` };
  const response = await fetch(`${base}/v1/explain?${query}`, { headers });
  if (!response.ok) throw new Error(`control answered ${response.status} to explain`);
  const { candidates } = await response.json();
  return candidates.filter(({ rank }) => rank !== null && rank !== undefined);
}

async function until(what, done) {
  const began = performance.now();
  while (!(await done())) {
    const late = performance.now() - began > WITHIN_MS;
    if (late) throw new Error(`${what} took over ${WITHIN_MS} ms`);
    await wait(LOOK_EVERY_MS);
  }
}

/** Presses it, and waits until control and the page lead to `site`. */
async function press(page, verb, client, site) {
  const lead = page.locator(".isp-lead").first();
  const began = performance.now();
  await page.locator(`.isp .button[data-verb="${verb}"]`).first().click();
  let control_ms = null;
  let page_ms = null;
  await until(`${verb}, until clients are led to ${site}`, async () => {
    const [first] = await offered(client);
    if (control_ms === null && first?.site === site) control_ms = performance.now() - began;
    const shown = (await lead.textContent()) ?? "";
    if (page_ms === null && shown.includes(`site ${site}:`)) page_ms = performance.now() - began;
    return control_ms !== null && page_ms !== null;
  });
  const [control, shown] = [control_ms, page_ms].map((ms) => ms.toFixed(0));
  say(`${verb}: control after ${control} ms, the page after ${shown} ms`);
  if (shots) await page.screenshot({ path: path.join(shots, `isp-${verb}.png`) });
  return [Math.round(control_ms), Math.round(page_ms)];
}

/** The site's server that a new playback of a client of isp1 begins with. */
async function playback(page) {
  const entry = await page.evaluate(async (asset) => {
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ asset });
    const made = await fetch("/v1/playbacks", { method: "POST", headers, body });
    const { hls_url } = await made.json();
    return (await fetch(`${hls_url}&plain=1`)).text();
  }, asset);
  const media = entry.match(/https?:\/\/(127\.0\.0\.[2-9])\b/);
  if (!media) throw new Error(`the entry playlist names no server:\n${entry}`);
  return media[1];
}

async function run() {
  const { browser, close } = await openChromium({ executable: chromium, spki });
  try {
    const page = browser.pages()[0] ?? (await browser.newPage());
    await page.goto(`${base}/login#${token}/?site=${SITE}`);
    await page.locator(".isp .button").first().waitFor({ timeout: WITHIN_MS });
    const told = await (await fetch(`${options.controls_url}/routes`)).json();
    const { client } = told.find(({ site }) => site === SITE);
    const names = async () => (await offered(client)).map(({ appliance }) => appliance);
    await until(`clients of ${SITE}'s ISP at ${SITE}`, async () => {
      return (await offered(client))[0]?.site === SITE;
    });
    const result = { before: await names(), playback: [await playback(page)] };
    [result.withdraw_ms, result.page_withdraw_ms] = await press(page, "withdraw", client, OTHER);
    result.withdrawn = await names();
    result.playback.push(await playback(page));
    [result.announce_ms, result.page_announce_ms] = await press(page, "announce", client, SITE);
    result.after = await names();
    result.playback.push(await playback(page));
    return result;
  } finally {
    await close();
  }
}

try {
  console.log(JSON.stringify(await run()));
} catch (error) {
  console.log(JSON.stringify({ error: error instanceof Error ? error.message : String(error) }));
  process.exitCode = 1;
}
