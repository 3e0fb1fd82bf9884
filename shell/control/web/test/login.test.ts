import assert from "node:assert/strict";
import { test } from "node:test";
import { backFrom, tokenFrom } from "../src/login/back";

test("the way back is a path of ours", () => {
  assert.equal(backFrom("#/play?asset=film&player=hls"), "/play?asset=film&player=hls");
  assert.equal(backFrom("#/"), "/");
  const elsewhere = ["#//evil.example", "#/\\\\evil.example", "#https://evil.example"];
  for (const bad of ["", "#", ...elsewhere, "#javascript:1"]) {
    assert.equal(backFrom(bad), "/", bad);
  }
});

test("a token in the address logs in on this machine only", () => {
  const token = "nc_0123456789ab_ff";
  const hash = `#${token}/play?asset=film`;
  for (const host of ["127.0.0.1", "127.0.0.9", "localhost", "[::1]"]) {
    assert.equal(tokenFrom(hash, host), token);
  }
  for (const host of ["control.example", "127.0.0.1.example", "10.0.0.1", "localhost.example"]) {
    assert.equal(tokenFrom(hash, host), null, host);
  }
  assert.equal(backFrom(hash), "/play?asset=film");
  assert.equal(backFrom(`#${token}`), "/");
  assert.equal(backFrom(`#${token}//evil.example`), "/");
  for (const none of ["#/", "#/play", "", "#nc_", "#nc_a?b"]) {
    assert.equal(tokenFrom(none, "localhost"), null, none);
  }
});
