// Style sheets take font sizes, gaps, radii and colors from shared/theme.css.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const FOLDER = new URL("../../playground/", import.meta.url);
const SHEETS = readdirSync(FOLDER, { recursive: true })
  .filter((path) => path.endsWith(".css") && !path.includes("vendor/"))
  .map((path) => ({ path, text: readFileSync(new URL(path, FOLDER), "utf8") }));
const RAW = {
  "font size": /\bfont(-size)?:[^;]*\d(px|pt)\b[^;]*/g,
  gap: /\bgap:[^;]*\d(px|r?em)\b[^;]*/g,
  radius: /\b[a-z-]*radius: [\d.]+(px|r?em)[^;]*/g,
  color: /: [^;{]*(#[0-9a-f]{3,8}\b|\b(rgb|hsl)a?\(|\b(white|black)\b(?!-))[^;]*/g,
};
const theme = SHEETS.find(({ path }) => path.endsWith("shared/theme.css")).text;
const others = SHEETS.filter(({ text }) => text !== theme);

for (const [kind, pattern] of Object.entries(RAW))
  test(`no style sheet but the theme has a ${kind} of its own`, () => {
    assert.deepEqual(
      others.flatMap(({ path, text }) => (text.match(pattern) ?? []).map((raw) => [path, raw])),
      [],
    );
  });

test("only what is hidden is important", () => {
  const important = SHEETS.flatMap(({ text }) => text.match(/.*\{[^{}]*!important/g) ?? []);
  assert.deepEqual(important, ["[hidden] {\n  display: none !important"]);
});

test("style sheets use the variables of the theme, and no others of that name", () => {
  const declared = new Set(SHEETS.flatMap(({ text }) => text.match(/--pg-[\w-]+(?=:)/g) ?? [])),
    used = new Set(SHEETS.flatMap(({ text }) => text.match(/(?<=var\()--pg-[\w-]+/g) ?? []));
  const fromScripts = ["--pg-heads", "--pg-weight"];
  assert.deepEqual(
    [...used].filter((name) => !declared.has(name) && !fromScripts.includes(name)),
    [],
  );
  assert.deepEqual(
    (theme.match(/--pg-[\w-]+(?=:)/g) ?? []).filter((name) => !used.has(name)),
    [],
  );
});
