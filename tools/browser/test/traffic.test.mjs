// The end of a run, against a server that answers when it is told to.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { Traffic } from "../lib/traffic.mjs";
import { until, wait, watchWith, withPage } from "./support.mjs";

const FILE = Buffer.alloc(1_000, 7);
const WITHIN_MS = 20_000;

/** No digest of a body is made until `nearcastDigests()` is called. Runs inside the page. */
function hold() {
  const digest = crypto.subtle.digest.bind(crypto.subtle);
  const held = new Promise((resolve) => (window.nearcastDigests = resolve));
  crypto.subtle.digest = (...args) => held.then(() => digest(...args));
}

/** Runs `action` with {url, release()} of a server that keeps the second half of slow.mp4 back. */
async function withServer(action) {
  let release;
  const released = new Promise((resolve) => (release = resolve));
  const server = http.createServer(async (request, response) => {
    response.writeHead(200, request.url === "/" ? {} : { "Content-Length": FILE.length });
    if (request.url === "/") return response.end("<!doctype html>");
    response.write(FILE.subarray(0, 500));
    if (request.url.endsWith("slow.mp4")) await released;
    return response.end(FILE.subarray(500));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await action({ url: `http://127.0.0.1:${server.address().port}`, release });
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

/** Runs `action` with a page that has asked for both files, and the two books of it. */
async function withBoth(action) {
  const originDir = mkdtempSync(path.join(tmpdir(), "nearcast-traffic-"));
  for (const name of ["fast.mp4", "slow.mp4"]) writeFileSync(path.join(originDir, name), FILE);
  try {
    await withServer(({ url, release }) =>
      withPage({}, async (page) => {
        await page.addInitScript(hold);
        const [ledger, traffic] = [await watchWith(page, originDir), new Traffic(page)];
        await page.goto(`${url}/`);
        await page.evaluate(() => {
          for (const name of ["fast.mp4", "slow.mp4"]) {
            const request = new XMLHttpRequest();
            request.open("GET", `/t/token/film-1/${name}`);
            request.responseType = "arraybuffer";
            request.send();
          }
        });
        await until("the fast one to end", WITHIN_MS, () => traffic.finished === 1);
        await action({ page, ledger, traffic, release });
      }),
    );
  } finally {
    rmSync(originDir, { recursive: true });
  }
}

test("answers that are under way when a run ends are in both books before they are counted", () =>
  withBoth(async ({ page, ledger, traffic, release }) => {
    let isClosed = false;
    const closed = traffic.close(page, ledger, WITHIN_MS).finally(() => (isClosed = true));
    const isOffline = () => page.evaluate(() => !navigator.onLine);
    await until("the page to be off line", WITHIN_MS, isOffline);
    assert.equal(ledger.checkedResponses, 0, "the first has ended, and has no digest yet");
    release();
    await until("the slow one to end", WITHIN_MS, () => traffic.finished === 2);
    // Longer than the second that was once waited for, whatever was under way.
    await wait(1_500);
    assert.equal(isClosed, false);
    await page.evaluate(() => window.nearcastDigests());
    assert.equal(await closed, true);
    assert.deepEqual([traffic.finished, ledger.checkedResponses, ledger.wrongBytes], [2, 2, 0]);
  }));

test("an answer that never ends is waited for no longer than was said", () =>
  withBoth(async ({ page, ledger, traffic }) => {
    await page.evaluate(() => window.nearcastDigests());
    await until("the fast one's check", WITHIN_MS, () => ledger.checkedResponses === 1);
    assert.equal(await traffic.close(page, ledger, 200), false);
    assert.deepEqual([traffic.finished, ledger.checkedResponses], [1, 1]);
  }));

test("a request that is opened anew has come to its end", () =>
  withBoth(async ({ page, ledger, traffic }) => {
    await page.evaluate(() => {
      const request = new XMLHttpRequest();
      for (const name of ["slow.mp4", "fast.mp4"]) {
        request.open("GET", `/t/token/film-1/${name}?anew`);
        request.send();
      }
      window.nearcastDigests();
    });
    await until("it to end", WITHIN_MS, () => traffic.finished === 2);
    await until("its check", WITHIN_MS, () => ledger.checkedResponses === 2);
    assert.deepEqual(ledger.underWay().map(({ url }) => new URL(url).search), [""]);
  }));
