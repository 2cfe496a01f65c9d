import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { toCsv } from "../../playground/ui/static/shared/download.js";
import * as format from "../../playground/ui/static/shared/format.js";

const vectors = JSON.parse(
  readFileSync(new URL("../data/format_vectors.json", import.meta.url), "utf8"),
);
const FORMATTERS = {
  percent: format.formatPercent,
  bytes: format.formatBytes,
  duration: format.formatDuration,
  age: format.formatAge,
  count: (input) => format.formatCount(...input),
  number: format.formatNumber,
  token: format.formatToken,
  csv: (cell) => toCsv([[cell]]).replace(/\n$/, ""),
};

test("every kind of vector has a formatter", () => {
  assert.deepEqual(Object.keys(vectors).sort(), Object.keys(FORMATTERS).sort());
});

for (const [kind, pairs] of Object.entries(vectors))
  for (const [input, output] of pairs)
    test(`${kind} ${JSON.stringify(input)} is ${output}`, () => {
      assert.equal(FORMATTERS[kind](input), output);
    });

test("a message is a sentence, and a name keeps its case", () => {
  assert.equal(format.formatMessage("the server is busy"), "The server is busy.");
  assert.equal(format.formatMessage("gpt2 is not cached!"), "gpt2 is not cached!");
  assert.equal(format.formatMessage(""), "");
});
