import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { makeBox, press, settle } from "./support/dom.js";
import {
  describeAttribution,
  describeCell,
  logitLensSpec,
} from "../../playground/ui/static/inspect/logit_lens.js";
import { html, render } from "../../playground/ui/static/vendor/preact.js";

const LENS = {
  layers: ["embedding", "layer 1"],
  decoder_input: ["SOS", "5"],
  right: ["5", "EOS"],
  answer: ["5"],
  vocabulary: ["EOS", "1", "5"],
  candidates: [
    [[["1", 0.5]], [["EOS", 0.6]]],
    [
      [
        ["5", 0.9],
        ["1", 0.1],
      ],
      [["EOS", 1]],
    ],
  ],
  of_right: [
    [0.2, 0.6],
    [0.9, 1],
  ],
};
const ATTRIBUTION = {
  position: 0,
  symbol: "5",
  against: "1",
  runner_up: "1",
  sum: 2,
  logit: 2,
  parts: [
    { name: "token embedding", logit: -0.5 },
    { name: "cross-attention, layer 1, head 1", logit: 2.5 },
  ],
};
let box, responses, sent;

beforeEach(() => {
  if (box) render(null, box);
  box = makeBox();
  sent = [];
  responses = { contributions: ATTRIBUTION };
  mock.restoreAll();
  mock.method(globalThis, "fetch", async (url, { body }) => {
    const payload = JSON.parse(body);
    sent.push(payload);
    return new Response(JSON.stringify(responses[payload.view] ?? {}));
  });
});

const wait = async (isDone) => {
  for (let i = 0; i < 100 && !isDone(); i++) await settle();
  assert.ok(isDone());
};
const text = (selector) => box.querySelector(selector)?.textContent.trim() ?? "";

async function show(spec, data) {
  spec.reset();
  render(html`<${spec.Component} data=${data} />`, box);
  await settle();
}

test("a cell of the logit lens has a sentence", () => {
  assert.equal(
    describeCell(LENS, 1, 0),
    "After layer 1, position 1: 5 (90.0 %), 1 (10.0 %). Target: 5, with probability 90.0 %.",
  );
  assert.match(describeCell({ ...LENS, answer: null }, 0, 1), /^Before the first.*is unknown/);
});

test("an attribution names both sums", () => {
  assert.match(describeAttribution(ATTRIBUTION), /sum to \+2; .* 5 minus 1 is \+2\./);
  assert.match(describeAttribution({ ...ATTRIBUTION, against: null }), /softmax ignores/);
});

test("the arrow keys of the lens select a position, and its attribution is loaded", async () => {
  await show(logitLensSpec, LENS);
  await wait(() => text(".lens-words").startsWith("Position 1"));
  assert.match(text(".lens-parts tbody tr"), /head 1\s*\+2\.5/);
  box.querySelector(".lens-cell[tabindex='0']").focus();
  press(document.activeElement, "ArrowRight");
  await wait(() => sent.at(-1).options.position === 1);
  assert.match(text(".caption"), /^After layer 1, position 2/);
  assert.deepEqual(logitLensSpec.options().at, [1, 1]);
  assert.equal(logitLensSpec.rows(LENS).length, 5 + 2);
});

test("a post-norm model has a lens but no attribution", async () => {
  responses.contributions = { error: "this is a post-norm model" };
  await show(logitLensSpec, LENS);
  await wait(() => text(".lens-words") === "This is a post-norm model.");
  assert.equal(box.querySelector(".lens-parts"), null);
});
