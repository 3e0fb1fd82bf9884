// What the tests share: a short film, a pretend fleet, a page in Chromium.

import { execFileSync } from "node:child_process";
import { createHash, X509Certificate } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { startMock } from "../../../shell/control/web/dev/mock.mjs";
import { openChromium } from "../lib/chromium.mjs";
import { Ledger } from "../lib/ledger.mjs";
import { witness } from "../lib/witness.mjs";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

export const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A film of so many seconds, made once and kept under target/. */
export function film(seconds = 40) {
  const folder = path.join(ROOT, "target", `browser-film-${seconds}`);
  if (!existsSync(path.join(folder, "manifest.mpd"))) {
    const script = path.join(ROOT, "shell", "control", "web", "dev", "film.sh");
    execFileSync(script, [folder, String(seconds)], { stdio: "inherit" });
  }
  return folder;
}

/** Runs `action` with a pretend fleet (options of startMock), on ports that are free. */
export async function withMock(options, action) {
  const mock = await startMock(options);
  try {
    return await action(mock);
  } finally {
    await mock.close();
  }
}

/** Runs `action` with a page in a fresh Chromium (options of openChromium). */
export async function withPage(options, action) {
  const { browser, close } = await openChromium(options);
  try {
    return await action(browser.pages()[0] ?? (await browser.newPage()));
  } finally {
    // What a page asked last may be answered after it has closed: that is no fault of the test's.
    const leave = (page) => page.unrouteAll({ behavior: "ignoreErrors" }).catch(() => {});
    await Promise.all(browser.pages().map(leave));
    await close();
  }
}

/** Puts the witness into a page that is about to load; the ledger then fills. */
export async function watchWith(page, originDir) {
  const ledger = new Ledger(originDir);
  await page.exposeFunction("nearcastTell", (message) => ledger.hear(message));
  await page.addInitScript(witness);
  return ledger;
}

/** Waits until `done` is true; throws with `what` after `withinMs`. */
export async function until(what, withinMs, done) {
  const end = Date.now() + withinMs;
  while (Date.now() < end) {
    if (await done()) return;
    await wait(100);
  }
  throw new Error(`not within ${withinMs / 1000} s: ${what}`);
}

/** A self-signed certificate for 127.0.0.2 to .4, and the pin of its key. */
export function certificate() {
  const folder = mkdtempSync(path.join(tmpdir(), "nearcast-certificate-"));
  const [cert, key] = [path.join(folder, "cert.pem"), path.join(folder, "key.pem")];
  const names = [2, 3, 4].map((last) => `IP:127.0.0.${last}`).join(",");
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  const subject = ["-days", "2", "-subj", "/CN=pretend", "-addext", `subjectAltName=${names}`];
  execFileSync("openssl", ["req", "-x509", ...curve, ...subject, "-keyout", key, "-out", cert], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  const { publicKey } = new X509Certificate(readFileSync(cert));
  const der = publicKey.export({ type: "spki", format: "der" });
  const spki = createHash("sha256").update(der).digest("base64");
  return { cert, key, spki, remove: () => rmSync(folder, { recursive: true }) };
}
