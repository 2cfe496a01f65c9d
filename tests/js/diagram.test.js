import assert from "node:assert/strict";
import test from "node:test";

import { canvasCalls, settle } from "./support/dom.js";
import { box, click, key, mount, text, texts } from "./support/page.js";
import { describeWeights, findRole } from "../../playground/ui/static/shared/diagram/describe.js";
import { Diagram } from "../../playground/ui/static/shared/diagram/diagram.js";
import {
  buildLinks,
  buildStacks,
  describeHead,
  firstPredictedRow,
} from "../../playground/ui/static/shared/diagram/structure.js";
import { html, signal } from "../../playground/ui/static/vendor/preact.js";

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
      ["encoder", "Encoder: reads the input", 2],
      ["decoder", "Decoder: writes the output", 2],
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

test("the weights of a query are listed from the largest, without those near zero", () => {
  assert.equal(
    describeWeights(["3", "1", "EOS"], [0.002, 0.008, 0.99]),
    "EOS (position 3) 0.990, 1 (position 2) 0.008",
  );
});

/** Weights of a head whose queries read one key each. */
const oneHot = (keys, columns) =>
  keys.flatMap((key) => Array.from({ length: columns }, (_, i) => (i === key ? 1000 : 0)));

test("a head has a role if its weights follow a pattern on this input", () => {
  const role = (keys, columns, isCausal = false) =>
    findRole(oneHot(keys, columns), keys.length, columns, isCausal)?.name;
  assert.equal(role([0, 1, 2, 3], 4), "self");
  assert.equal(role([2, 1, 0, 3], 4), "mirror"); // the last key is EOS
  assert.equal(role([0, 0, 1, 2], 4), "previous");
  assert.equal(role([1, 2, 3, 0], 4), "next");
  assert.equal(role([0, 0, 0, 0], 4), "first");
  assert.equal(role([3, 3, 3, 3], 4), "last");
  assert.equal(role([0, 0, 1, 2], 4, true), "previous");
  assert.equal(role([2, 0, 2, 1], 4), undefined);
  assert.equal(findRole(Array(16).fill(250), 4, 4, false), null);
  assert.equal(role([0, 1], 2), undefined, "half of a row is chance");
});

const TOKENS = ["1", "2", "EOS"],
  AXES = [TOKENS, TOKENS],
  WEIGHTS = oneHot([1, 0, 2], 3),
  PASS = {
    axes: { encoder: AXES, decoder: AXES, cross: AXES },
    attention: { encoder: [[WEIGHTS]], decoder: [[WEIGHTS]], cross: [[WEIGHTS, WEIGHTS]] },
    contributions: { "decoder_layers.0.cross_attn": 0.5 },
    probe: { target: TOKENS, predicted: ["1", "1", "EOS"], probability: [900, 600, 1000] },
    source: TOKENS,
  },
  HEAD = { kind: "cross", layer: 0, head: 0 };

test("predicted tokens stand beside the target tokens only", () => {
  const links = (kind) => buildLinks(PASS, kind);
  assert.equal(links("encoder").output, null);
  assert.equal(links("cross").output, PASS.probe);
  assert.deepEqual(links("cross").titles, ["input", "target", "guess"]);
  const plain = buildLinks({ ...PASS, axes: {} }, "cross");
  assert.deepEqual([plain.queries, plain.keys], [TOKENS, TOKENS], "a model without attention");
});

/** Show the diagram of PASS, and return what it calls back. */
async function show(props = {}) {
  const calls = [],
    stacks = buildStacks({ architecture: "Transformer", n_layers: 1 }, PASS.attention);
  await mount(
    html`<${Diagram}
      stacks=${stacks}
      pass=${PASS}
      selected=${HEAD}
      row=${null}
      label="Links"
      onSelect=${(...head) => calls.push(head)}
      onBlock=${(block) => calls.push(block.component)}
      onRow=${(row) => calls.push(row)}
      ...${props}
    />`,
  );
  return calls;
}

test("a head has a number, its role, and its largest weight", async () => {
  await show();
  assert.deepEqual(texts("[data-kind=cross] .head-switch"), ["1", "2"]);
  assert.deepEqual(texts("[data-kind=cross] .head-role"), ["mirror", "mirror"]);
  const { title } = box.querySelector(".head");
  assert.match(title, /^Largest weight: 1\.00, .* 100 % of its attention is on the mirrored/);
  assert.equal(box.querySelectorAll(".owner").length, 1);
});

test("a row is highlighted in all maps whose queries it is one of", async () => {
  const painted = () =>
    canvasCalls
      .filter(([name]) => name === "putImageData")
      .map(([, [image]]) => [3, 15, 27].map((at) => image.data[at]).join());
  canvasCalls.length = 0;
  await show({ row: 1 });
  const quiet = "70,255,70",
    plain = "255,255,255";
  assert.deepEqual(painted().toSorted(), [plain, quiet, quiet, quiet]); // the encoder has others
  canvasCalls.length = 0;
  await show({ row: 7 }); // of a longer input
  assert.deepEqual(new Set(painted()), new Set([plain]));
  assert.equal(text(".head-role"), "mirror");
});

test("a map is painted again only if its weights or its row change", async () => {
  const props = signal({}),
    Changing = () => html`<${Diagram} ...${props.value} />`,
    nMaps = () => canvasCalls.filter(([name]) => name === "putImageData").length,
    copy = structuredClone(PASS),
    fixed = { stacks: buildStacks({ n_layers: 1 }, PASS.attention), selected: HEAD, row: null };
  props.value = { ...fixed, pass: PASS };
  await mount(html`<${Changing} />`);
  const change = async (/** @type {object} */ next) => {
    canvasCalls.length = 0;
    props.value = { ...props.value, ...next };
    await settle();
    return nMaps();
  };
  assert.equal(await change({ pass: copy }), 0);
  copy.attention.cross[0][1] = oneHot([0, 1, 2], 3);
  assert.equal(await change({ pass: { ...copy } }), 1);
  assert.deepEqual(texts("[data-kind=cross] .head-role"), ["mirror", "self"]);
  assert.equal(await change({ row: 1 }), 3); // all but the encoder's
});

test("clicks and keys select heads, blocks and rows", async () => {
  const calls = await show();
  await click("[data-kind=decoder] .head");
  await click("[data-kind=cross] .diagram-block-title");
  const links = box.querySelector(".diagram-canvas");
  await key(links, "ArrowDown");
  await key(links, "End");
  links.dispatchEvent(new Event("blur"));
  assert.deepEqual(calls, [["decoder", 0, 0], "decoder_layers.0.cross_attn", 0, 2, null]);
});

test("a block opens in place, with details that the page gives", async () => {
  const open = "decoder_layers.0.cross_attn";
  await show({ open, details: html`<p>what it does</p>` });
  assert.equal(text("[data-kind=cross] .diagram-details"), "what it does");
  assert.deepEqual(
    [...box.querySelectorAll("[aria-expanded=true]")].map((each) => each.textContent),
    ["Cross-attention0.50"],
  );
  await show({});
  assert.equal(box.querySelector("[aria-expanded]"), null, "where a click opens nothing");
});

test("the importance of parts takes the place of what blocks add", async () => {
  const positions = { kind: "source positions", layer: null, head: null },
    switches = { isOff: () => false, toggle() {}, nameOf: ({ kind }) => kind },
    importance = new Map([0, 1].map((head) => [`cross.0.${head}`, 0.5]));
  await show({ switches, importance, parts: [positions] });
  const bars = [...box.querySelectorAll(".importance")];
  assert.equal(bars.length, 4 + 2 + 1); // heads, feed-forward blocks, position vectors
  assert.equal(bars.filter(({ firstElementChild: bar }) => bar.style.width === "50%").length, 2);
  assert.equal(box.querySelector(".has-contribution"), null);
  assert.deepEqual(texts(".diagram-embedding > span:first-child"), [
    "token + position embedding",
    "token embedding",
  ]);
});
