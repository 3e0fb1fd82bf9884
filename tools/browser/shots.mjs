// Screenshots of both pages in every state that matters, against the pretend control plane, for
// people to look at: node shots.mjs OUT [--film DIR] [--only NAME]
//
// Build the pages first (npm run build in shell/control/web).

import { mkdirSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { startMock } from "../../shell/control/web/dev/mock.mjs";
import { openChromium } from "./lib/chromium.mjs";

const LAPTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
const STATUS = [
  ["lively", LAPTOP, "light"],
  ["lively", LAPTOP, "dark"],
  ["lively", PHONE, "light"],
  ["lively", PHONE, "dark"],
  ["filling", LAPTOP, "light"],
  ["filling", PHONE, "dark"],
  ["faults", LAPTOP, "light"],
  ["faults", LAPTOP, "dark"],
  ["faults", PHONE, "light"],
  ["routes", LAPTOP, "light"],
  ["routes", PHONE, "dark"],
  ["empty", LAPTOP, "light"],
  ["empty", PHONE, "dark"],
  ["no-assets", LAPTOP, "light"],
  ["large", LAPTOP, "light"],
  ["large", PHONE, "light"],
  ["placed", LAPTOP, "light"],
  ["placed", PHONE, "light"],
  ["placed", PHONE, "dark"],
  ["huge", LAPTOP, "light"],
  ["huge", LAPTOP, "dark"],
  ["huge", PHONE, "light"],
  ["huge", LAPTOP, "light", "/?site=de-01", "site"],
  ["huge", PHONE, "dark", "/?site=de-01", "site"],
];
const PLAYER = [
  ["hls", LAPTOP, "light"],
  ["dash", LAPTOP, "dark"],
  ["hls", PHONE, "dark"],
];

const nameOf = (size) => (size === PHONE ? "phone" : "laptop");
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    film: { type: "string" },
    only: { type: "string", default: "" },
  },
});
const [out = "shots"] = positionals;
mkdirSync(out, { recursive: true });

async function withPage(size, scheme, action) {
  const scale = size === PHONE ? 2 : 1;
  const { browser, close } = await openChromium({
    viewport: size,
    deviceScaleFactor: scale,
    colorScheme: scheme,
  });
  try {
    await action(browser.pages()[0] ?? (await browser.newPage()));
  } finally {
    await close();
  }
}

/** Opens the page of a mock, lets `action` bring it where it is to be, and takes the picture. */
async function shoot(what, [size, scheme], options, action, fullPage = true) {
  const name = `${what}-${nameOf(size)}-${scheme}`;
  if (!name.includes(values.only)) return;
  const mock = await startMock(options);
  try {
    await withPage(size, scheme, async (page) => {
      await action(page, mock);
      await page.screenshot({ path: path.join(out, `${name}.png`), fullPage });
    });
  } finally {
    await mock.close();
  }
  console.error(name);
}

for (const [scenario, size, scheme, at = "/", name = scenario] of STATUS) {
  const options = { scenario, controls: scenario === "lively" };
  await shoot(`status-${name}`, [size, scheme], options, async (page, mock) => {
    await page.goto(mock.url + at);
    await wait(12_000);
  });
}
for (const size of [LAPTOP, PHONE]) {
  const silence = async (page, mock) => {
    await page.goto(mock.url);
    await wait(9_000);
    await mock.close();
    await wait(6_000);
  };
  await shoot("status-silent", [size, "light"], {}, silence, false);
}
for (const [player, ...look] of values.film ? PLAYER : []) {
  const play = async (page, mock) => {
    await page.goto(`${mock.url}/play?asset=film&player=${player}&buffer=12&plain=1`);
    await wait(22_000);
    await page.getByRole("button", { name: "Kill a1" }).click();
    await page.mouse.move(0, 0);
    await wait(25_000);
    await page.evaluate(() => scrollTo(0, 0));
  };
  await shoot(`play-${player}`, look, { film: values.film }, play, false);
}
