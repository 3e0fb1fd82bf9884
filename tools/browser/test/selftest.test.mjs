// The whole run, shortened, over TLS with a pinned key, against pretend appliances.

import assert from "node:assert/strict";
import { test } from "node:test";
import { selftest } from "../selftest.mjs";
import { certificate, film, withMock } from "./support.mjs";

test("a short run measures a kill and a hang, and mends the fleet", async () => {
  const originDir = film();
  const tls = certificate();
  try {
    await withMock({ film: originDir, tls }, async (mock) => {
      const options = {
        control_url: mock.url,
        controls_url: mock.url,
        asset: "film",
        origin_dir: originDir,
        spki: tls.spki,
        player: "hls.js",
        planned: false,
        before_kill_s: 4,
        after_kill_s: 8,
      };
      const result = await selftest(options);
      assert.equal(result.error, undefined);
      assert.equal(result.name, "hls.js");
      assert.ok(result.checked_responses > 10, JSON.stringify(result));
      assert.equal(result.wrong_bytes, 0);
      assert.equal(result.stalls, 0);
      assert.ok(result.failover_ms > 0 && result.failover_ms < 8_000, `${result.failover_ms}`);
      assert.ok(result.played_after_kill_s >= 8);
      assert.ok(Object.keys(result.bytes_by_appliance).length >= 2);
      assert.equal(result.hang.tried, true);
      assert.ok(mock.state.appliances.every(({ healthy }) => healthy));
    });
  } finally {
    tls.remove();
  }
});

test("a wrong byte shows in the result of a run", async () => {
  const originDir = film();
  // In the minor version of the file's brand, where no player looks: the film plays on.
  const fault = { kind: "flip", path: "r3.mp4", offset: 15 };
  const faults = { a1: fault, a2: fault, a3: fault };
  await withMock({ film: originDir, faults }, async (mock) => {
    const result = await selftest({
      control_url: mock.url,
      controls_url: mock.url,
      asset: "film",
      origin_dir: originDir,
      player: "hls.js",
      planned: false,
      before_kill_s: 3,
      after_kill_s: 3,
    });
    assert.ok(result.wrong_bytes > 0, JSON.stringify(result));
    assert.match(result.faults[0], /^r3\.mp4/);
    assert.equal(result.error, undefined);
  });
});

test("a run without a film is not valid, and says so", async () => {
  await withMock({ film: film() }, async (mock) => {
    const page = { control_url: mock.url, controls_url: mock.url, player: "hls.js" };
    const result = await selftest({ ...page, asset: "nothing", origin_dir: film() });
    assert.match(result.error, /no frame within/);
    assert.equal(result.checked_responses, 0);
    assert.equal(result.wrong_bytes, null);
  });
});
