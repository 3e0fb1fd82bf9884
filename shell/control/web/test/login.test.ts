import assert from "node:assert/strict";
import { test } from "node:test";
import { backFrom, tokenFrom } from "../src/login/back";
import { enter, enterByLink } from "../src/login/enter";

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

/** Control, as it answers to a look and to a login; and what it was asked. */
function control(look: number, login: number, body: object = {}) {
  const asked: string[] = [];
  const ask = async (path: string, init: RequestInit = {}): Promise<Response> => {
    asked.push(`${init.method ?? "GET"} ${path} ${init.body ?? ""}`.trim());
    const status = init.method === "POST" ? login : look;
    if (status === 0) throw new TypeError("no network");
    return new Response(JSON.stringify(body), { status });
  };
  return { ask, asked };
}

const POST = 'POST /v1/session {"token":"nc_a_b"}';

test("a link logs in who is not, and says so to who is", async () => {
  const nobody = control(401, 200);
  assert.deepEqual(await enterByLink("nc_a_b", nobody.ask), { is: "in" });
  assert.deepEqual(nobody.asked, ["GET /v1/session", POST]);
  const somebody = control(200, 200);
  assert.deepEqual(await enterByLink("nc_a_b", somebody.ask), { is: "taken" });
  assert.deepEqual(somebody.asked, ["GET /v1/session"], "the token is not even sent");
});

test("a link whose answer does not come may be tried again", async () => {
  for (const [look, login] of [[503, 200], [0, 200], [401, 503], [401, 0]] as const) {
    const first = await enterByLink("nc_a_b", control(look, login).ask);
    assert.equal(first.is, "out", `${look} ${login}`);
    assert.match((first as { why: string }).why, /^Control (answered 503|does not answer)/);
    assert.deepEqual(await enterByLink("nc_a_b", control(401, 200).ask), { is: "in" });
  }
});

test("who types a token hears what control says of it", async () => {
  const typed = control(200, 401);
  const why = "This token is not known here.";
  assert.deepEqual(await enter("nc_a_b", typed.ask), { is: "out", why });
  assert.deepEqual(typed.asked, [POST], "whoever is in: it is the one who types");
  const detail = "too many failed attempts from this address: wait";
  const waiting = control(401, 429, { detail });
  assert.deepEqual(await enter("nc_a_b", waiting.ask), { is: "out", why: detail });
});
