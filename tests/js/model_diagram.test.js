import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { canvasCalls, press, settle } from "./support/dom.js";
import {
  box,
  click,
  key,
  mount,
  responses,
  sent,
  serve,
  text,
  texts,
  waitFor,
} from "./support/page.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { Curves } from "../../playground/ui/static/train/curves.js";
import { followModel } from "../../playground/ui/static/train/data/selection.js";
import { ModelDiagram } from "../../playground/ui/static/train/model_diagram.js";
import { followKeys } from "../../playground/ui/static/train/shortcuts.js";
import { state } from "../../playground/ui/static/train/state.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const TOKENS = ["1", "2"],
  AXES = { encoder: [TOKENS, TOKENS], decoder: [TOKENS, TOKENS], cross: [TOKENS, TOKENS] },
  PROBE = { target: TOKENS, predicted: ["1", "1"], probability: [900, 600] };

/** A snapshot of a model with two heads in each layer. */
function snapshotOf(step, nLayers = 2, weights = [900, 100, 200, 800]) {
  const layers = Array.from({ length: nLayers }, () => [weights.slice(), weights.slice()]),
    contributions = { "encoder_layers.0.self_attn": step / 10 };
  return {
    step,
    attention: { encoder: layers, decoder: layers, cross: layers },
    contributions,
    probe: PROBE,
    samples: [],
  };
}
const show = (snapshot) => Object.assign(state, { displayedSnapshot: snapshot });

beforeEach(async () => {
  serve({ "inspect/view": { error: "no scores here" } });
  store.tab.value = "train";
  Object.assign(state, {
    modelRef: "run:1",
    isFresh: false,
    status: "training",
    lastResponse: { step: 1, max_steps: 40, is_owner: true },
    probeInfo: { axes: AXES, source: TOKENS, architecture: "Transformer", default_input: "1 2" },
    selectedKind: "cross",
    hoverRow: null,
    typedPass: null,
  });
  show(snapshotOf(1));
  await mount(html`<${ModelDiagram} />`);
});
followModel();
const note = () => text(".diagram-note");
const headOf = (kind, layer, head) =>
  box.querySelector(`.head[data-kind=${kind}][data-layer="${layer}"][data-head="${head}"]`);

test("a new snapshot changes pictures and numbers, and replaces no element", async () => {
  const nodes = [...box.querySelectorAll("*")];
  assert.equal(nodes.filter((node) => node.matches(".head")).length, 12);
  assert.deepEqual(texts(".has-contribution .diagram-value"), ["0.10"]);
  const drawn = canvasCalls.length;
  show(snapshotOf(2));
  await settle();
  assert.ok(canvasCalls.length > drawn);
  assert.deepEqual(texts(".has-contribution .diagram-value"), ["0.20"]);
  assert.deepEqual(
    nodes.filter((node) => !node.isConnected),
    [],
  );
});

test("the last layer of a new model is selected; a click selects a head", async () => {
  assert.match(note(), /^Cross-attention, layer 2, head 1\./);
  await click(headOf("encoder", 0, 1));
  assert.match(note(), /^Encoder self-attention, layer 1, head 2\./);
  assert.equal(headOf("encoder", 0, 1).getAttribute("aria-pressed"), "true");
  show(snapshotOf(3, 1));
  await settle();
  assert.match(note(), /^Encoder self-attention, layer 1, head 1\./);
  Object.assign(state, { probeInfo: { ...state.probeInfo, axes: { encoder: AXES.encoder } } });
  show({ ...snapshotOf(3), attention: { encoder: snapshotOf(3).attention.encoder } });
  await settle();
  assert.match(note(), /^Self-attention, layer 2, head 1\./);
});

test("a block opens with the numbers of a query, and closes", async () => {
  const title = box.querySelectorAll(".diagram-block[data-kind=encoder] button")[0];
  await click(title);
  assert.match(text(".open-block"), /^Each token reads from all tokens of the input\./);
  await waitFor(() => /no scores here/i.test(text(".open-block")));
  assert.deepEqual(sent[0][1].options, { kind: "encoder", layer: 1, head: 0, query: 0 });
  await click(headOf("encoder", 1, 1)); // of the same block, which stays open
  assert.equal(title.getAttribute("aria-expanded"), "true");
  await click(headOf("cross", 1, 1));
  assert.equal(title.getAttribute("aria-expanded"), "false");
  assert.equal(box.querySelector(".open-block"), null);
});

test("the arrow keys read the rows of the links", async () => {
  const links = box.querySelector(".diagram-canvas");
  await key(links, "ArrowDown");
  assert.match(note(), /^Target 1 \(1\) attends to 1 \(position 1\) 0\.900, .* Prediction: 1 with/);
  await key(links, "End");
  assert.match(note(), /^Target 2 \(2\)/);
});

test("charts are not drawn while another tab is open", async () => {
  const curve = (...steps) => ({ steps, loss: steps });
  state.lossCurve = curve(1);
  await mount(html`<${Curves} />`);
  const drawnSteps = () => box.querySelector(".loss-chart").steps;
  assert.deepEqual(drawnSteps(), [1]);
  store.tab.value = "learn";
  state.lossCurve = curve(1, 2);
  assert.deepEqual(drawnSteps(), [1]);
  store.tab.value = "train";
  assert.deepEqual(drawnSteps(), [1, 2]);
});

test("the keys of Train have no effect in another tab", async () => {
  followKeys();
  responses["runs/action"] = {};
  store.tab.value = "learn";
  press(document.body, " ");
  store.tab.value = "train";
  assert.deepEqual(sent, []);
  press(document.body, " ");
  await waitFor(() => sent.some(([, payload]) => payload.action === "pause"));
  assert.equal(state.statusNote, "Pausing");
});
