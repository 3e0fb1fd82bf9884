// What players do beside the faults of the self-test: an appliance sends them on with 307, one
// after the other is started again, and their media URLs end while they play. Bytes are compared.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { film, until, wait, watchWith, withMock, withPage } from "./support.mjs";

const PLAYERS = ["hls", "dash", "shaka-dash", "videojs-hls"];
const BUFFER_S = 8;
/** Steering says nothing new for as long: what players do, they do by themselves. */
const STEERING_TTL_S = 120;
/** An appliance is away for so long, and the next one goes so long after it is back. */
const AWAY_MS = 1_000;
const BETWEEN_MS = 3_000;
/** All are away for so long: longer than dash.js tries. */
const ALL_AWAY_MS = 3_000;
/** All refuse for so long, and are asked in one round: each for all lanes and renditions. */
const REFUSED_MS = 12_000;
const REFUSED_MAX = 40;
/** A new playback begins from where the last one stood: the picture may stand so long, ms. */
const RENEWAL_MS_MAX = 2_500;

/** Plays with this player, each byte looked at; `action` gets what there is to ask. */
function watching(player, options, action) {
  const originDir = film();
  return withMock({ film: originDir, steeringTtlS: STEERING_TTL_S, ...options }, (mock) =>
    withPage({}, async (page) => {
      const ledger = await watchWith(page, originDir);
      const sentOn = [];
      page.on("request", (request) => {
        if (request.redirectedFrom()) sentOn.push(request.url());
      });
      await page.goto(`${mock.url}/play?asset=film&player=${player}&buffer=${BUFFER_S}`);
      const seen = () => page.evaluate(() => ({ ...window.nearcastFilm }));
      const state = () => page.evaluate(() => window.nearcast.state());
      const isPlayed = (far) => async () => (await seen()).played > far;
      const played = (far) => until(`${far} s played`, 60_000, isPlayed(far));
      await played(1);
      await action({ mock, ledger, sentOn, seen, state, played });
      assert.equal(ledger.wrongBytes, 0, JSON.stringify(ledger.faults));
    }),
  );
}

// Most of their time is the film's: one fleet and Chromium each, two at once.
describe("players", { concurrency: 2 }, () => {
  for (const player of PLAYERS) {
    test(`${player} is sent on, each appliance is started again, then all: no stall`, () =>
      watching(player, {}, async ({ mock, ledger, sentOn, seen, state, played }) => {
        const [first, second] = mock.state.appliances;
        first.sendOnTo(second);
        await until("it to be sent on", 15_000, () => sentOn.length >= 2);
        assert.ok(sentOn.every((url) => url.startsWith(second.url)), sentOn[0]);
        for (const one of mock.state.appliances) {
          await one.fault("kill");
          await wait(AWAY_MS);
          await one.fault("restore");
          await wait(BETWEEN_MS);
        }
        for (const one of mock.state.appliances) await one.fault("kill");
        await wait(ALL_AWAY_MS);
        for (const one of mock.state.appliances) await one.fault("restore");
        const asked = performance.timeOrigin + performance.now();
        await played((await seen()).played + BUFFER_S + 2);
        assert.ok(ledger.bytesByHost(asked).size > 0, "somebody serves it");
        assert.deepEqual((await seen()).stalls, []);
        assert.equal((await state()).trouble, null);
      }));
  }

  for (const player of [...PLAYERS, "videojs-dash", "shaka-hls"]) {
    test(`${player} plays on when its media URLs end while it plays`, () =>
      watching(player, { tokenLivesS: [5] }, async ({ ledger, seen, state, played }) => {
        await played(18);
        const { renewals, trouble } = await state();
        assert.deepEqual([renewals, trouble], [1, null]);
        assert.ok(ledger.statusErrors >= 1, "it was refused");
        // By the clock: to the witness a film that begins anew seeks, and does not stall.
        const { firstFrame, played: length } = await seen();
        const stood = performance.timeOrigin + performance.now() - firstFrame - length * 1_000;
        assert.ok(stood <= RENEWAL_MS_MAX, `it stood for ${stood} ms`);
      }));

    test(`${player} stops, and the page says so, when all appliances refuse the film`, () =>
      watching(player, {}, async ({ mock, ledger, state, played }) => {
        await played(2);
        for (const one of mock.state.appliances) one.refuse(404);
        const at = performance.timeOrigin + performance.now();
        const isMet = ({ status }) => status === 404;
        await until("it to be refused", 15_000, () => ledger.sentSince(at).some(isMet));
        await wait(REFUSED_MS);
        const asked = ledger.sentSince(at).length;
        assert.ok(asked <= REFUSED_MAX, `${asked} requests`);
        assert.match((await state()).trouble, /./);
        await wait(REFUSED_MS);
        assert.equal(ledger.sentSince(at).length, asked, "it asks nobody any more");
      }));
  }
});
