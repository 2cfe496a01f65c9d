import assert from "node:assert/strict";
import test from "node:test";

import {
  buildStacks,
  describeHead,
  describeWeights,
  firstPredictedRow,
  summarizeHead,
} from "../../playground/ui/static/train/diagram/structure.js";

const heads = (n) => Array.from({ length: n }, () => [1000]);
const layers = (n, h) => Array.from({ length: n }, () => heads(h));

test("an encoder-decoder has two stacks whose blocks name their modules", () => {
  const stacks = buildStacks(
    { architecture: "Transformer", n_layers: 2 },
    { encoder: layers(2, 4), decoder: layers(2, 4), cross: layers(2, 4) },
  );
  assert.deepEqual(
    stacks.map((stack) => [stack.side, stack.title, stack.layers.length]),
    [
      ["encoder", "Encoder", 2],
      ["decoder", "Decoder", 2],
    ],
  );
  assert.deepEqual(
    stacks[1].layers[1].map((block) => [block.component, block.heads]),
    [
      ["decoder_layers.1.self_attn", 4],
      ["decoder_layers.1.cross_attn", 4],
      ["decoder_layers.1.feed_forward", 0],
    ],
  );
});

test("a model with one stack is named by its architecture", () => {
  const [stack, ...others] = buildStacks(
    { architecture: "Decoder only", n_layers: 1 },
    { decoder: layers(1, 2) },
  );
  assert.equal(others.length, 0);
  assert.equal(stack.title, "Decoder only");
  assert.deepEqual(
    stack.layers[0].map((block) => block.component),
    ["layers.0.self_attn", "layers.0.feed_forward"],
  );
});

test("a recurrent model has cells, and attention only if it attends", () => {
  const info = { architecture: "Recurrent", n_layers: 2 };
  const [, plain] = buildStacks(info, {});
  assert.deepEqual(
    plain.layers.map(([block]) => block.kind),
    ["recurrent", "recurrent"],
  );
  const [, attentive] = buildStacks(info, { cross: layers(1, 1) });
  assert.deepEqual(
    attentive.layers.map(([block]) => block.kind),
    ["recurrent", "recurrent", "cross"],
  );
});

test("heads are named as in Inspect", () => {
  assert.equal(describeHead("cross", 1, 0, false), "Cross-attention, layer 2, head 1");
  assert.equal(describeHead("encoder", 0, 2, false), "Encoder self-attention, layer 1, head 3");
  assert.equal(describeHead("decoder", 0, null, true), "Self-attention, layer 1");
});

test("predictions stand at the queries that make them", () => {
  const probe = { target: ["5", "1", "EOS"] };
  assert.equal(firstPredictedRow("cross", 3, { axes: { cross: [] }, probe }), 0);
  assert.equal(firstPredictedRow("encoder", 3, { axes: { cross: [] }, probe }), null);
  assert.equal(firstPredictedRow("decoder", 5, { axes: {}, probe }), 2, "the source comes first");
  assert.equal(firstPredictedRow("encoder", 5, { axes: {}, probe }), 0);
  assert.equal(firstPredictedRow("decoder", 5, { axes: {}, probe: null }), null);
});

test("the summary of a head measures how concentrated its weights are", () => {
  const uniform = summarizeHead([250, 250, 250, 250], 1, 4),
    sharp = summarizeHead([0, 1000, 0, 0, 1000, 0, 0, 0], 2, 4);
  assert.equal(uniform.entropy, 2);
  assert.equal(uniform.maxWeight, 0.25);
  assert.equal(sharp.entropy, 0);
  assert.equal(sharp.maxWeight, 1);
});

test("the weights of a query are listed from the largest, without those near zero", () => {
  const weights = [700, 300, 0, 2, 8, 990];
  assert.equal(
    describeWeights(["3", "1", "EOS"], weights, 0),
    "3 (position 1) 0.700, 1 (position 2) 0.300",
  );
  assert.equal(
    describeWeights(["3", "1", "EOS"], weights, 1),
    "EOS (position 3) 0.990, 1 (position 2) 0.008",
  );
});
