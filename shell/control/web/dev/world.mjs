// Writes src/status/world.ts, the outline of the continents on the status page's map, from a
// TopoJSON file of Natural Earth's land at 1:110m, which is in the public domain:
//
//   npm pack world-atlas@2.0.2 && tar xzf world-atlas-2.0.2.tgz
//   node dev/world.mjs package/land-110m.json
//
// Degrees become the map's units, east to the right and south down, rounded to a half: at the
// largest size of the map that is a pixel. What is smaller than a few of those is left out, and
// Antarctica, where no site stands.

import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const STEP = 0.5;
const SOUTH = -58;
/** In square degrees. */
const AREA_MIN = 1.5;

const [file] = process.argv.slice(2);
if (!file) throw new Error("usage: node dev/world.mjs land-110m.json");
const topology = JSON.parse(readFileSync(file, "utf8"));
const { scale, translate } = topology.transform;

/** The points of an arc, by its number; those of ~number are turned around. */
function arc(number) {
  let [x, y] = [0, 0];
  const points = topology.arcs[number < 0 ? ~number : number].map(([dx, dy]) => {
    [x, y] = [x + dx, y + dy];
    return [x * scale[0] + translate[0], y * scale[1] + translate[1]];
  });
  return number < 0 ? points.reverse() : points;
}

/** A ring in the map's units, without points that rounding has made one. */
function ring(arcs) {
  const points = arcs.flatMap((number, index) => arc(number).slice(index ? 1 : 0));
  // A ring that goes over the 180th degree goes on there: the map has it in one piece.
  let turn = 0;
  const whole = points.map(([east, north], index) => {
    const before = points[index - 1]?.[0] ?? east;
    if (Math.abs(east - before) > 180) turn += east < before ? 360 : -360;
    return [east + turn, north];
  });
  const middle = whole.reduce((sum, [east]) => sum + east, 0) / whole.length;
  const back = middle < -180 ? 360 : 0;
  const unit = (degrees) => Math.round(degrees / STEP) * STEP;
  const rounded = whole.map(([east, north]) => [unit(east + back), -unit(Math.max(north, SOUTH))]);
  return rounded.filter((at, index) => {
    const before = rounded[index - 1];
    return !before || at[0] !== before[0] || at[1] !== before[1];
  });
}

function area(points) {
  const next = (index) => points[(index + 1) % points.length];
  const twice = points.reduce((sum, [x, y], at) => sum + x * next(at)[1] - next(at)[0] * y, 0);
  return Math.abs(twice) / 2;
}

/** Relative steps are shorter than places. */
function drawn([first, ...rest]) {
  let [x, y] = first;
  const steps = rest.map(([toX, toY]) => {
    const step = `${toX - x} ${toY - y}`;
    [x, y] = [toX, toY];
    return step;
  });
  const d = `M${first.join(" ")}l${steps.join(" ")}z`;
  return d.replaceAll(" -", "-").replace(/(?<![0-9])0\./g, ".");
}

const rings = topology.objects.land.geometries.flatMap(({ arcs }) => arcs.flat()).map(ring);
const isSouth = (points) => points.every(([, y]) => y >= -SOUTH);
const shown = rings.filter((points) => !isSouth(points) && area(points) > AREA_MIN);
const d = shown.map(drawn).join("");
const lines = d.match(/.{1,90}(?=[M l-]|$)/g).map((piece) => `  "${piece}"`);
const text = `// The continents as the path of an SVG in degrees east and south. Made by
// dev/world.mjs of Natural Earth 4.1 (1:110m land, public domain).

export const WORLD =
${lines.join(" +\n")};
`;
const here = path.dirname(fileURLToPath(import.meta.url));
writeFileSync(path.join(here, "..", "src", "status", "world.ts"), text);
console.error(`${shown.length} outlines, ${d.length} characters`);
