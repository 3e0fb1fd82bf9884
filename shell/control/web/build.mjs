// Builds the pages into dist/: index.html, play.html and assets/ with hashed names, nothing inline,
// nothing from elsewhere. Run by `npm run build`.

import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = path.dirname(fileURLToPath(import.meta.url));
const DIST = path.join(ROOT, "dist");
const PAGES = ["index", "play", "login"];

rmSync(DIST, { recursive: true, force: true });
const result = await build({
  absWorkingDir: ROOT,
  entryPoints: [
    { in: "src/status/main.ts", out: "index" },
    { in: "src/play/main.ts", out: "play" },
    { in: "src/login/main.ts", out: "login" },
    { in: "src/style/login.css", out: "login" },
    { in: "src/style/index.css", out: "index" },
    { in: "src/style/play.css", out: "play" },
    { in: "src/icon.svg", out: "icon" },
  ],
  outdir: "dist/assets",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2022"],
  minify: true,
  legalComments: "none",
  loader: { ".woff2": "file", ".svg": "copy" },
  metafile: true,
});

/** Hashed file name of an entry point: `assetOf("src/status/main.ts")`. */
function assetOf(entry) {
  if (entry === "licences") return licenceFile;
  const found = Object.entries(result.metafile.outputs).find(([, o]) => o.entryPoint === entry);
  if (found) return path.basename(found[0]);
  const copied = Object.keys(result.metafile.outputs).find((name) =>
    path.basename(name).startsWith(`${path.parse(entry).name}-`),
  );
  if (!copied) throw new Error(`esbuild wrote nothing for ${entry}`);
  return path.basename(copied);
}

/** Every package that ends up in a bundle, with those inside dash.js: its licence, in full. */
function licences() {
  const { packages } = JSON.parse(readFileSync(path.join(ROOT, "package-lock.json"), "utf8"));
  const bundled = Object.entries(packages).filter(([folder, { dev }]) => folder && !dev);
  const texts = bundled.map(([folder, { version, license }]) => {
    const name = folder.replace(/^.*node_modules\//, "");
    const files = readdirSync(path.join(ROOT, folder));
    const file = files.find((one) => /^licen[cs]e/i.test(one));
    const text = file ? readFileSync(path.join(ROOT, folder, file), "utf8").trim() : "";
    return `${name} ${version} (${license})\n\n${text}\n`;
  });
  return texts.join(`\n${"-".repeat(80)}\n\n`);
}

const licenceText = licences();
const licenceHash = createHash("sha256").update(licenceText).digest("hex").slice(0, 8);
const licenceFile = `licences-${licenceHash}.txt`;
writeFileSync(path.join(DIST, "assets", licenceFile), licenceText);

const SLOT = /\{\{([^}]+)\}\}/g;
for (const page of PAGES) {
  const template = readFileSync(path.join(ROOT, "src", `${page}.html`), "utf8");
  const html = template.replace(SLOT, (_, entry) => `/assets/${assetOf(entry.trim())}`);
  writeFileSync(path.join(DIST, `${page}.html`), html);
}

const total = Object.values(result.metafile.outputs).reduce((sum, { bytes }) => sum + bytes, 0);
const count = Object.keys(result.metafile.outputs).length;
console.error(`dist: ${PAGES.length} pages, ${count} assets, ${Math.round(total / 1000)} kB`);
