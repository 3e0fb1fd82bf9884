import assert from "node:assert/strict";
import { test } from "node:test";
import { backFrom } from "../src/login/back";

test("the way back is a path of ours", () => {
  assert.equal(backFrom("#/play?asset=film&player=hls"), "/play?asset=film&player=hls");
  assert.equal(backFrom("#/"), "/");
  const elsewhere = ["#//evil.example", "#/\\\\evil.example", "#https://evil.example"];
  for (const bad of ["", "#", ...elsewhere, "#javascript:1"]) {
    assert.equal(backFrom(bad), "/", bad);
  }
});
