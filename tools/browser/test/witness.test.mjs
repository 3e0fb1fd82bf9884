// The checker in Chromium, with real players, against appliances that lie: it must notice each lie,
// and must not see any where there is none.

import assert from "node:assert/strict";
import { test } from "node:test";
import { film, until, wait, watchWith, withMock, withPage } from "./support.mjs";

const RESPONSES = 12;

/** Plays until a dozen answers were checked, with the same fault on every appliance. */
function playWith(player, fault) {
  const originDir = film();
  const faults = { a1: fault, a2: fault, a3: fault };
  return withMock({ film: originDir, faults }, (mock) =>
    withPage({}, async (page) => {
      const ledger = await watchWith(page, originDir);
      await page.goto(`${mock.url}/play?asset=film&player=${player}&buffer=12`);
      const enough = () => ledger.checkedResponses >= RESPONSES || ledger.wrongBytes > 0;
      await until("a dozen answers checked, or one found wrong", 20_000, enough);
      return ledger;
    }),
  );
}

for (const player of ["hls", "dash"]) {
  test(`${player}: honest appliances give no wrong byte`, async () => {
    const ledger = await playWith(player, undefined);
    assert.equal(ledger.wrongBytes, 0, ledger.faults.join("; "));
    assert.equal(ledger.unread, 0);
    assert.ok(ledger.checkedBytes > 100_000);
  });

  test(`${player}: one wrong bit in the sound is noticed`, async () => {
    const ledger = await playWith(player, { kind: "flip", path: "r3.mp4", offset: 30_000 });
    assert.ok(ledger.wrongBytes > 0);
    assert.match(ledger.faults[0], /^r3\.mp4 .*other bytes/);
  });
}

test("bytes of the next place are noticed", async () => {
  const ledger = await playWith("hls", { kind: "shift", path: "r3.mp4" });
  assert.match(ledger.faults[0], /^r3\.mp4 .*other bytes/);
});

test("an answer that is one byte short is noticed", async () => {
  const ledger = await playWith("hls", { kind: "short", path: "r3.mp4" });
  assert.match(ledger.faults[0], /^r3\.mp4 /);
});

test("a wrong bit in a playlist is noticed", async () => {
  const ledger = await playWith("hls", { kind: "flip", path: "media_3.m3u8", offset: 60 });
  assert.match(ledger.faults[0], /^media_3\.m3u8 /);
});

test("bodies read by fetch are checked too, in whole and in pieces", async () => {
  const originDir = film();
  const fault = { kind: "flip", path: "r0.mp4", offset: 1_000 };
  await withMock({ film: originDir, faults: { a2: fault } }, (mock) =>
    withPage({}, async (page) => {
      const ledger = await watchWith(page, originDir);
      await page.goto(`${mock.url}/`);
      const lengths = await page.evaluate(async ([good, bad]) => {
        const headers = { Range: "bytes=500-2499" };
        const whole = await (await fetch(good, { headers })).arrayBuffer();
        const reader = (await fetch(bad, { headers })).body.getReader();
        let pieces = 0;
        for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
          pieces += piece.value.byteLength;
        }
        return [whole.byteLength, pieces];
      }, mock.state.appliances.slice(0, 2).map(({ url }) => `${url}/t/token/film-1/r0.mp4`));
      assert.deepEqual(lengths, [2_000, 2_000]);
      await until("both bodies checked", 5_000, () => ledger.checkedResponses === 2);
      assert.equal(ledger.wrongBytes, 2_000);
    }),
  );
});

test("a film that stands still is a stall, for the witness and for the page", async () => {
  const originDir = film();
  await withMock({ film: originDir }, (mock) =>
    withPage({}, async (page) => {
      await watchWith(page, originDir);
      await page.goto(`${mock.url}/play?asset=film&player=hls&buffer=4`);
      const played = () => page.evaluate(() => window.nearcastFilm.played);
      await until("two seconds played", 15_000, async () => (await played()) > 2);
      for (const one of mock.state.appliances) await one.fault("hang");
      const stalls = () => page.evaluate(() => window.nearcastFilm.stalls.length);
      await until("the stall seen", 30_000, async () => (await stalls()) === 1);
      // The page samples on its own beat, a little before or after the witness.
      const metrics = () => page.evaluate(() => nearcast.metrics());
      await until("the page to see it", 2_000, async () => (await metrics()).stalls === 1);
      const { stall_ms: lost } = await metrics();
      assert.ok(lost >= 450, `${lost} ms`);
      for (const one of mock.state.appliances) await one.fault("restore");
      const over = () => page.evaluate(() => window.nearcastFilm.stalls[0].to !== null);
      await until("the film to go on", 30_000, over);
      await wait(500);
      assert.equal((await metrics()).stalls, 1);
    }),
  );
});
