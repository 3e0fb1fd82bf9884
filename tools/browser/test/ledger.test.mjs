// The checker alone: which answers it calls wrong.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { stallsBetween, whyInvalid } from "../selftest.mjs";
import { expectedSpan, faultOf, Ledger } from "../lib/ledger.mjs";

const folder = mkdtempSync(path.join(tmpdir(), "nearcast-ledger-"));
const FILE = Buffer.from(Array.from({ length: 1_000 }, (_, index) => (index * 7) % 251));
writeFileSync(path.join(folder, "r0.mp4"), FILE);
after(() => rmSync(folder, { recursive: true }));

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** An answer to `range` that holds `bytes`, as the witness would tell of it. */
const answer = (range, bytes, changes = {}) => ({
  url: "http://127.0.0.2:1/t/token/film-1/r0.mp4",
  range,
  status: range === null ? 200 : 206,
  contentRange: null,
  bytes: bytes.length,
  sha256: sha256(bytes),
  ...changes,
});

const fault = (...args) => faultOf(answer(...args), folder);

test("right answers are right", () => {
  assert.equal(fault(null, FILE), null);
  assert.equal(fault("bytes=0-99", FILE.subarray(0, 100)), null);
  assert.equal(fault("bytes=900-", FILE.subarray(900)), null);
  assert.equal(fault("bytes=-10", FILE.subarray(990)), null);
  assert.equal(fault("bytes=990-5000", FILE.subarray(990)), null);
  const stated = { contentRange: "bytes 0-99/1000" };
  assert.equal(fault("bytes=0-99", FILE.subarray(0, 100), stated), null);
  // A server may ignore a range and send all.
  assert.equal(fault("bytes=0-99", FILE, { status: 200 }), null);
});

test("one wrong bit is wrong", () => {
  const bytes = Buffer.from(FILE.subarray(0, 100));
  bytes[40] ^= 1;
  assert.match(fault("bytes=0-99", bytes), /other bytes/);
});

test("bytes of another place are wrong", () => {
  assert.match(fault("bytes=0-99", FILE.subarray(1, 101)), /other bytes/);
});

test("another length is wrong, nothing at all included", () => {
  assert.match(fault("bytes=0-99", FILE.subarray(0, 99)), /99 bytes instead of 100/);
  assert.match(fault("bytes=0-99", FILE.subarray(0, 101)), /101 bytes instead of 100/);
  assert.match(fault("bytes=0-99", FILE.subarray(0, 0)), /0 bytes instead of 100/);
  assert.match(fault("bytes=0-99", FILE.subarray(0, 100), { status: 200 }), /instead of 1000/);
});

test("a Content-Range that states another place is wrong", () => {
  const stated = { contentRange: "bytes 100-199/1000" };
  assert.match(fault("bytes=0-99", FILE.subarray(0, 100), stated), /Content-Range/);
});

test("a part without having been asked for one is wrong", () => {
  assert.match(fault(null, FILE.subarray(0, 100), { status: 206 }), /status 206/);
});

test("a file that the origin does not have is wrong, outside its folder too", () => {
  const url = "http://127.0.0.2:1/t/token/film-1/r9.mp4";
  assert.match(fault(null, FILE, { url }), /no such file/);
  const outside = "http://127.0.0.2:1/t/token/film-1/..%2f..%2fetc%2fpasswd";
  assert.match(fault(null, FILE, { url: outside }), /no such file/);
});

test("spans follow the range, within the file", () => {
  assert.deepEqual(expectedSpan("bytes=5-9", 206, 100), { first: 5, last: 9 });
  assert.deepEqual(expectedSpan("bytes=5-900", 206, 100), { first: 5, last: 99 });
  assert.equal(expectedSpan("bytes=0-1,3-4", 206, 100), null);
  assert.equal(expectedSpan("bytes=-", 206, 100), null);
});

test("a wrong answer is never counted as zero wrong bytes", () => {
  const ledger = new Ledger(folder);
  const { url, range } = answer("bytes=0-99", Buffer.alloc(0));
  ledger.hear({ what: "sent", id: 1, at: 1, url, range });
  ledger.hear({ what: "body", id: 1, at: 2, ...answer(range, Buffer.alloc(0)) });
  assert.equal(ledger.wrongBytes, 1);
  assert.equal(ledger.checkedResponses, 1);
});

test("first bytes count from requests that were sent after the moment, from elsewhere", () => {
  const ledger = new Ledger(folder);
  const url = (host) => `http://${host}/t/token/film-1/r0.mp4`;
  ledger.hear({ what: "sent", id: 1, at: 90, url: url("b:1"), range: null });
  ledger.hear({ what: "byte", id: 1, at: 110, url: url("b:1") });
  ledger.hear({ what: "sent", id: 2, at: 105, url: url("a:1"), range: null });
  ledger.hear({ what: "byte", id: 2, at: 115, url: url("a:1") });
  const fromElsewhere = (host) => host !== "a:1";
  assert.equal(ledger.firstByte(100, fromElsewhere), null);
  ledger.hear({ what: "sent", id: 3, at: 120, url: url("b:1"), range: null });
  ledger.hear({ what: "byte", id: 3, at: 130, url: url("b:1") });
  assert.equal(ledger.firstByte(100, fromElsewhere), 130);
});

test("stalls belong to the time in which they began, and lasting ones count until now", () => {
  const stalls = [{ from: 10, to: 20 }, { from: 30, to: null }];
  assert.deepEqual(stallsBetween(stalls, 0, 25, 100), { stalls: 1, stall_ms: 10 });
  assert.deepEqual(stallsBetween(stalls, 25, Infinity, 100), { stalls: 1, stall_ms: 70 });
});

test("a run that checked nothing, or let something escape, is not valid", () => {
  assert.match(whyInvalid({ checked_responses: 0, unchecked_responses: 0 }), /no response/);
  assert.match(whyInvalid({ checked_responses: 9, unchecked_responses: 1 }), /1 responses/);
  assert.equal(whyInvalid({ checked_responses: 9, unchecked_responses: 0 }), null);
});
