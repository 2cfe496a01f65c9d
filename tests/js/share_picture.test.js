// The picture of a model for others, painted from its data.
import assert from "node:assert/strict";
import test from "node:test";
import { canvasCalls } from "./support/dom.js";

const { paintCard } = await import("../../playground/ui/static/train/share_picture.js");

const axes = {
    cross: [
      ["2", "1", "EOS"],
      ["1", "2", "EOS"],
    ],
  },
  weights = [0, 1000, 0, 980, 20, 0, 0, 0, 1000],
  probe = { target: ["2", "1", "EOS"], predicted: ["2", "2", "EOS"], probability: [9, 9, 9] },
  pass = { step: 200, axes, source: ["1", "2"], attention: { cross: [[weights]] }, probe },
  card = {
    name: "my run",
    hasPartsOff: false,
    result: "Learned reverse in 70 steps, 9 s: 99.2 % of 2,000 unseen sequences right",
    address: "example.org/play",
    evaluations: [
      [10, 0.1, 0.4, 256],
      [70, 0.99, 1, 256],
      [200, 1, 1, 256],
    ],
    lastStep: 200,
    head: "cross-attention 1.1",
    selected: { kind: "cross", layer: 0, head: 0 },
  };

/** Paint the card, and return its calls by the name of the method. */
function paint(changes = {}, passChanges = {}) {
  canvasCalls.length = 0;
  paintCard(document.createElement("canvas"), { ...card, ...changes }, { ...pass, ...passChanges });
  const calls = (method) => canvasCalls.filter(([name]) => name === method).map(([, args]) => args);
  return { texts: calls("fillText").map(([text]) => text), calls };
}

test("the card has name, sentence, address, example, links and curve", () => {
  const { texts, calls } = paint();
  for (const text of [card.name, card.result, card.head, card.address, "200 steps", "100 %"])
    assert.ok(texts.includes(text), text);
  assert.equal(texts.slice(3, 9).join(" "), "1 2 EOS 2 2 EOS"); // the output, not the target
  assert.equal(calls("bezierCurveTo").length, 4);
  assert.equal(calls("lineTo").length, 3);
});

test("at an earlier step the card has what was right until then", () => {
  const { texts, calls } = paint({}, { step: 70 });
  assert.ok(texts.includes("70 steps · 99.0 % of 256 unseen sequences right"), texts.join());
  assert.ok(!texts.includes(card.result));
  assert.equal(calls("lineTo").length, 2);
});

test("with parts off during training they are on the card, not on frames of a clip", () => {
  const without = { hasPartsOff: true, result: "Without head 1: 3 of 64 unseen inputs right" };
  const own = paint(without, { step: 70, isFromEngine: true });
  assert.ok(own.texts.includes(without.result));
  assert.ok(!paint(without, { step: 70 }).texts.includes(without.result));
});

test("a model without scores, attention or examples has a card", () => {
  const { texts, calls } = paint({ result: "", evaluations: [] }, { attention: {}, probe: null });
  assert.ok(texts.includes("200 steps"));
  assert.equal(calls("bezierCurveTo").length + calls("arc").length, 0);
});
