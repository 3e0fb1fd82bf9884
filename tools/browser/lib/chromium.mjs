// Chromium as every run here wants it: headless, a profile of its own, nothing in the background.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { chromium } from "playwright-core";

const QUIET = [
  "--no-sandbox",
  "--autoplay-policy=no-user-gesture-required",
  "--mute-audio",
  "--no-first-run",
  "--no-default-browser-check",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-default-apps",
  "--disable-extensions",
  "--disable-sync",
  "--disable-domain-reliability",
  "--disable-breakpad",
  "--metrics-recording-only",
  "--no-pings",
];

/**
 * Opens Chromium with an empty profile. Options: executable, spki (base64 SHA-256 of the public key
 * whose certificates are to be believed), and those of a playwright context. `close()` ends it and
 * removes the profile.
 */
export async function openChromium({ executable = "/usr/bin/chromium", spki, ...context } = {}) {
  const profile = mkdtempSync(path.join(tmpdir(), "nearcast-browser-"));
  const remove = () => rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  const pin = spki ? [`--ignore-certificate-errors-spki-list=${spki}`] : [];
  try {
    const browser = await chromium.launchPersistentContext(profile, {
      executablePath: executable,
      headless: true,
      args: [...QUIET, ...pin],
      ...context,
    });
    const close = async () => {
      await browser.close().catch(() => {});
      remove();
    };
    return { browser, close };
  } catch (error) {
    remove();
    throw error;
  }
}
