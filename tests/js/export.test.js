// The state of an exported page: typed text, switches, the right output, the score.
import "./support/dom.js";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { shareInterval } from "../../playground/ui/static/engine/parts.js";

const FOLDER = new URL("../data/engine/", import.meta.url),
  golden = JSON.parse(readFileSync(new URL("default.json", FOLDER), "utf8")),
  weights = readFileSync(new URL("default.safetensors", FOLDER)).toString("base64"),
  examples = golden.cases.map(({ source, labels }) => ({ source, labels }));

const element = (/** @type {string} */ id, /** @type {string} */ text) => {
  const script = document.createElement("script");
  Object.assign(script, { id, type: "text/plain", textContent: text });
  document.body.append(script);
};
element("weights", weights);
element(
  "data",
  JSON.stringify({
    architecture: golden.architecture,
    model: golden.model,
    task: "reverse",
    symbols: [..."0123456789"],
    n_symbols: 10,
    accepts: "0–9",
    max_tokens: 6,
    input: "1 2 3",
    examples,
  }),
);
globalThis.requestAnimationFrame = (/** @type {any} */ callback) => setTimeout(callback);
const page = await import("../../playground/ui/static/export/state.js"),
  [head, other] = page.parts.filter(({ kind, layer }) => kind === "cross" && layer === 1);

test("the right output of a built-in task is its target, with EOS", () => {
  assert.deepEqual(page.reference.value, { tokens: [6, 5, 4, 2], isTarget: true });
});

test("a text that the model cannot read names the problem and keeps the last input", () => {
  const before = page.picture.value.axes.cross[1];
  for (const [text, problem] of [
    ["", /^Type a sequence of 0–9/],
    ["1 x", /“x” is not a token of this task; use 0–9/],
    ["1 ".repeat(99), /at most \d+ tokens/],
  ]) {
    page.type(/** @type {string} */ (text));
    assert.match(page.problem.value, /** @type {RegExp} */ (problem));
    assert.deepEqual(page.picture.value.axes.cross[1], before);
  }
  page.type("1 2 3");
  assert.equal(page.problem.value, "");
});

test("a wrong output is compared token by token, however long it is", () => {
  const { tokens } = page.reference.value,
    tokenRows = page.outputTokens.value;
  assert.ok(tokenRows.length >= tokens.length);
  assert.deepEqual(
    tokenRows.slice(0, 3).map((token) => token.expected),
    ["3", "2", "1"],
  );
  const { predicted, target } = page.picture.value.output;
  assert.equal(predicted.length, target.length);
});

test("parts are heads, blocks and position vectors, with one name each", () => {
  const names = page.parts.map(page.switches.nameOf);
  assert.equal(new Set(names).size, names.length);
  for (const name of ["cross-attention 2.1", "encoder feed-forward 1", "input positions"])
    assert.ok(names.includes(name), name);
});

test("a switch of several heads turns all off, then all on", () => {
  const heads = [head, other];
  page.switches.toggle([head]);
  page.switches.toggle(heads);
  assert.ok(heads.every(page.switches.isOff));
  assert.equal(page.switchedOff.value.length, 2);
  page.switches.toggle(heads);
  assert.equal(page.switchedOff.value.length, 0);
});

test("a head that is off changes the picture under zero and under mean", () => {
  const probabilities = () => page.picture.value.output.probability.join(),
    seen = new Set([probabilities()]);
  page.switches.toggle([head]);
  seen.add(probabilities());
  page.method.value = "mean";
  seen.add(probabilities());
  page.method.value = "zero";
  page.switches.toggle([head]);
  assert.equal(seen.size, 3);
});

test("a later count of right outputs ends an earlier one", async () => {
  const first = page.measureScore();
  await Promise.all([first, page.measureScore()]);
  assert.equal(page.score.value?.measured, examples.length);
});

test("the importance of every part is measured, and is not negative", async () => {
  await page.measureImportance();
  assert.equal(page.importance.value.size, page.parts.length);
  assert.ok([...page.importance.value.values()].every((loss) => loss >= 0));
});

test("the interval of a share is Wilson's", () => {
  const [low, high] = shareInterval(8, 10);
  assert.ok(Math.abs(low - 0.4902) < 1e-4 && Math.abs(high - 0.9433) < 1e-4);
  assert.ok(Math.abs(shareInterval(0, 256)[0]) < 1e-9);
});
