// An exported page: typed text, switches, the right output, the score, the open block.
import { enter, settle } from "./support/dom.js";
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
const root = document.createElement("div");
root.id = "page";
document.body.append(root);
const page = await import("../../playground/ui/static/export/state.js"),
  [head, other] = page.parts.filter(({ kind, layer }) => kind === "cross" && layer === 1);
await import("../../playground/ui/static/export/page.js");
await settle();

const $ = (/** @type {string} */ selector) => /** @type {any} */ (root.querySelector(selector));
const texts = (/** @type {string} */ selector) =>
  [...root.querySelectorAll(selector)].map((each) => each.textContent.trim());
async function click(/** @type {string} */ selector) {
  $(selector).click();
  await settle();
}
async function type(/** @type {string} */ typed) {
  enter($("#input"), typed);
  await settle();
}

test("the output is compared token by token with the target, however long it is", () => {
  const expected = page.outputTokens.value.map((token) => token.expected);
  assert.deepEqual(expected.slice(0, 4), ["3", "2", "1", "EOS"]);
  assert.ok(page.hasTarget.value);
  const { predicted, target } = page.pass.value.probe;
  assert.equal(predicted.length, target.length);
  assert.equal($("output").children.length, expected.length);
});

test("a text that the model cannot read names the problem and keeps the last input", async () => {
  const before = page.pass.value;
  for (const [text, problem] of [
    ["", /^There is no token; type a sequence of 0–9\./],
    ["1 x", /“x” is not a token of this task; type a sequence of 0–9\./],
    ["1 ".repeat(99), /at most \d+ tokens/],
  ]) {
    await type(/** @type {string} */ (text));
    assert.match($("#problem").textContent, /** @type {RegExp} */ (problem));
    assert.equal($("#input").getAttribute("aria-invalid"), "true");
    assert.equal(page.pass.value, before);
  }
  await type("1 2 3");
  assert.equal($("#problem").textContent, "");
});

test("each part has a switch, a bar and a name", () => {
  const names = page.parts.map(page.switches.nameOf);
  assert.equal(new Set(names).size, names.length);
  for (const name of ["cross-attention 2.1", "encoder feed-forward 1", "input positions"])
    assert.ok($(`[role=switch][aria-label="${name}"]`), name);
  assert.equal(root.querySelectorAll(".diagram .importance").length, names.length);
});

test("a switch of several heads turns all off, then all on", async () => {
  const heads = [head, other],
    ofBlock = '[role=switch][aria-label="all 2 heads of cross-attention 2"]';
  page.switches.toggle([head]);
  await click(ofBlock);
  assert.ok(heads.every(page.switches.isOff));
  assert.equal(page.switchedOff.value.length, 2);
  assert.match(texts(".switch-state")[0], /^2 parts are off/);
  await click(ofBlock);
  assert.equal(page.switchedOff.value.length, 0);
});

test("a head that is off changes the picture under zero and under mean", async () => {
  const probabilities = () => page.pass.value.probe.probability.join(),
    seen = new Set([probabilities()]);
  page.switches.toggle([head]);
  await settle();
  seen.add(probabilities());
  page.method.value = "mean";
  await settle();
  seen.add(probabilities());
  page.method.value = "zero";
  page.switches.toggle([head]);
  assert.equal(seen.size, 3);
});

test("a block opens with its map and the scores of a query, and closes", async () => {
  await click("[data-kind=encoder] .diagram-block-title");
  assert.equal(page.selected.value.kind, "encoder");
  assert.match($(".open-block").textContent, /^Each token reads from all tokens/);
  await click(".pg-segments [data-value='2']");
  assert.equal(texts(".block-scores .query bdi")[0], "3");
  const weights = texts(".block-scores .weight").map(Number);
  assert.ok(Math.abs(weights.reduce((a, b) => a + b) - 1) < 0.01);
  assert.ok($(".open-block .pg-heat-map canvas"));
  await click("[data-kind=feed-forward] .diagram-block-title");
  assert.equal($(".block-scores"), null);
  await click("[data-kind=cross] .head");
  assert.equal($(".open-block"), null);
});

test("a token of the output that is pointed at is described and highlighted", async () => {
  const [, second] = $("output").children;
  second.dispatchEvent(new Event("pointerenter"));
  await settle();
  assert.equal(page.row.value, 1);
  assert.match($(".diagram-note").textContent, /^\s*Target 2 \(2\) attends to/);
  $("output").dispatchEvent(new Event("pointerleave"));
  await settle();
  assert.match($(".diagram-note").textContent, /^\s*Cross-attention, layer \d, head 1\./);
});

test("a later count of right outputs ends an earlier one", async () => {
  const first = page.measureScore();
  page.switches.toggle([head]);
  await Promise.all([first, page.measureScore()]);
  assert.deepEqual(page.score.value, { right: 0, measured: examples.length });
  page.switches.toggle([head]);
});

test("the importance of every part is measured, and is not negative", async () => {
  await page.measureAll();
  assert.equal(page.importance.value.size, page.parts.length);
  assert.ok([...page.importance.value.values()].every((loss) => loss >= 0));
});

test("the interval of a share is Wilson's", () => {
  const [low, high] = shareInterval(8, 10);
  assert.ok(Math.abs(low - 0.4902) < 1e-4 && Math.abs(high - 0.9433) < 1e-4);
  assert.ok(Math.abs(shareInterval(0, 256)[0]) < 1e-9);
});
