// Writes made/api.ts: the types of what the pages get, from the schemas of control's OpenAPI
// document. Run by `npm run check`. A test of control keeps the snapshot of them up to date, and
// has the list of the answers that pages read (src/api/document.rs).

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = path.dirname(fileURLToPath(import.meta.url));
const SNAPSHOT = "../src/api/snapshots/control__api__document__tests__schemas.snap";

const BASIC = {
  boolean: "boolean",
  integer: "number",
  null: "null",
  number: "number",
  string: "string",
};

/** A schema as a type. Fails on what it does not know, so that nothing becomes `any` unnoticed. */
function typeOf(schema) {
  const { $ref, type, enum: values, oneOf, allOf, items, properties, additionalProperties } =
    schema;
  if ($ref) return $ref.replace("#/components/schemas/", "");
  if (values) return values.map((value) => JSON.stringify(value)).join(" | ");
  if (allOf) return allOf.map(typeOf).join(" & ");
  if (oneOf) return oneOf.map(typeOf).join(" | ");
  if (Array.isArray(type)) return type.map((one) => typeOf({ ...schema, type: one })).join(" | ");
  if (type === "array") return `(${typeOf(items)})[]`;
  if (type === "object" && properties) return objectOf(schema);
  if (type === "object" && additionalProperties) {
    return `Record<string, ${typeOf(additionalProperties)}>`;
  }
  if (type in BASIC) return BASIC[type];
  throw new Error(`types.mjs knows no type for ${JSON.stringify(schema)}`);
}

function objectOf({ properties, required = [] }) {
  const fields = Object.entries(properties).map(([name, schema]) => {
    const optional = required.includes(name) ? "" : "?";
    return `${commentOf(schema, "  ")}  ${JSON.stringify(name)}${optional}: ${typeOf(schema)};`;
  });
  return `{\n${fields.join("\n")}\n}`;
}

const commentOf = ({ description }, indent) =>
  description ? `${indent}/** ${description.replaceAll("\n", " ").replaceAll("*/", "")} */\n` : "";

const snapshot = readFileSync(path.join(ROOT, SNAPSHOT), "utf8");
// After the head that insta writes.
const schemas = JSON.parse(snapshot.slice(snapshot.indexOf("\n---\n", 4) + 5));
const types = Object.entries(schemas).map(
  ([name, schema]) => `${commentOf(schema, "")}export type ${name} = ${typeOf(schema)};\n`,
);
mkdirSync(path.join(ROOT, "made"), { recursive: true });
writeFileSync(path.join(ROOT, "made/api.ts"), types.join("\n"));
