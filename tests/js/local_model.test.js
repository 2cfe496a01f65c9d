// The model that the page runs itself: what it requests, and what switches change.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, beforeEach, test } from "node:test";

import { settle } from "./support/dom.js";
import { box, click, mount, responses, sent, serve, text, waitFor } from "./support/page.js";
import "./support/worker.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { runsInBrowser } from "../../playground/ui/static/train/data/engine.js";
import { followSelection } from "../../playground/ui/static/train/data/model_poll.js";
import { predict } from "../../playground/ui/static/train/data/predict.js";
import { followModel, trainView } from "../../playground/ui/static/train/data/selection.js";
import { messages } from "../../playground/ui/static/train/messages.js";
import { ModelDiagram } from "../../playground/ui/static/train/model_diagram.js";
import { NOTHING_OFF, state } from "../../playground/ui/static/train/state.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const FOLDER = new URL("../data/engine/", import.meta.url),
  golden = JSON.parse(readFileSync(new URL("default.json", FOLDER), "utf8")),
  bytes = readFileSync(new URL("default.safetensors", FOLDER)),
  examples = golden.cases.map(({ source, labels }) => ({ source, labels })),
  description = {
    architecture: golden.architecture,
    model: golden.model,
    task: "reverse",
    symbols: [..."0123456789"],
    n_symbols: 10,
    max_tokens: 6,
    lengths: [1, 5],
    examples,
  },
  ALL = ["encoder", "decoder", "cross"];

const routes = () => sent.map(([route]) => route);
const weightsOf = (/** @type {number} */ step) =>
  new Response(bytes, { headers: { "X-Step": String(step) } });

/** A snapshot of the server: maps of one weight, so that they differ from those of the page. */
const snapshotOf = (/** @type {number} */ step) => ({
  step,
  attention: Object.fromEntries(
    ALL.map((kind) => [
      kind,
      [
        [[1], [1]],
        [[1], [1]],
      ],
    ]),
  ),
  contributions: {},
  probe: { target: ["3"], predicted: ["3"], probability: [1] },
  samples: [],
});
const show = (/** @type {number} */ step) => (state.displayedSnapshot = snapshotOf(step));

followModel();
followSelection();
let count = 0; // of opened models: each test has one of its own
beforeEach(async () => {
  serve({
    "runs/model": description,
    "runs/predict": { prediction: ["0"], target: ["0"], note: "of the server" },
    weights: () => weightsOf(state.displayedSnapshot.step),
  });
  store.tab.value = "train";
  store.input.value = null;
  store.suggestedInput.value = "1 2 3";
  Object.assign(state, {
    modelRef: `run:${++count}`,
    isFresh: false,
    status: "done",
    lastResponse: { step: 4, right: "own", series_id: 7 },
    probeInfo: {
      axes: Object.fromEntries(ALL.map((kind) => [kind, [["3"], ["1"]]])),
      source: ["1", "2", "3"],
      architecture: "Transformer",
      default_input: "1 2 3",
      n_layers: 2,
      in_browser: true,
    },
    viewedStep: null,
    typedPass: null,
    switchedOff: NOTHING_OFF,
    switchScore: null,
    parts: null,
    importance: null,
    ablationMethod: "zero",
    selectedKind: "cross",
  });
  show(4);
  await mount(html`<${ModelDiagram} />`);
});
after(() => serve());

/** Type, and wait for the answer of the page. @param {string} input */
async function type(input) {
  store.input.value = input;
  await waitFor(() => state.typedPass?.source.join(" ") === input);
}
const toggle = (/** @type {string} */ name) => click(`[role=switch][aria-label="${name}"]`);
const isScored = () => state.switchScore?.measured === examples.length;

test("typed text needs the weights once, and no request afterwards", async () => {
  sent.length = 0;
  await type("1 2");
  assert.deepEqual(routes().toSorted(), ["runs/model", "weights"]);
  await type("4 5");
  assert.equal(sent.length, 2);
  assert.equal(state.typedPass.step, 4);
  assert.deepEqual(state.prediction.target, ["5", "4"]);
  assert.equal(state.switchScore, null); // nothing was switched
});

test("a text that is no input goes to the server, which explains why", async () => {
  responses["runs/predict"] = { error: "'x' is not a token" };
  store.input.value = "x";
  await waitFor(() => routes().includes("runs/predict"));
  await waitFor(() => store.isInputInvalid.value);
  assert.equal(state.typedPass, null);
  await toggle("cross-attention 2.1"); // the picture is that of the suggested input
  await waitFor(() => state.typedPass?.source.join(" ") === "1 2 3");
  assert.equal(state.prediction, null);
});

test("a switch changes picture, output and score, and back again", async () => {
  const head = "cross-attention 2.1",
    map = () => state.typedPass.attention.cross[1][0].join();
  assert.equal(box.querySelectorAll("[role=switch]").length, 12 + 4 + 6);
  await toggle(head);
  await waitFor(isScored);
  assert.match(text("[role=status]"), /^cross-attention 2\.1 is off: this output is wrong\./);
  assert.match(text(".switch-score"), /^0 of 2 unseen inputs right *95 % interval: 0 % to 66 %$/);
  const intact = map();
  await toggle("encoder feed-forward 1");
  await waitFor(() => map() !== intact);
  assert.match(text("[role=status]"), /^2 parts are off/);
  assert.equal(box.querySelectorAll(".off.diagram-block, .off.head-cell").length, 2);
  await click(".switch-row button");
  await waitFor(() => state.typedPass === null); // the snapshot is on display again
  assert.deepEqual(state.prediction.off, []); // an answer of the page, not of the server
  assert.match(text("[role=status]"), /^All parts are on/);
});

test("from the first key on, each part has a bar of its importance", async () => {
  const bars = () => box.querySelectorAll(".importance").length,
    nParts = 12 + 4 + 2; // heads, feed-forward blocks, position vectors
  assert.equal(bars() + box.querySelectorAll(".diagram-embedding [role=switch]").length, 0);
  await type("1 2");
  await waitFor(() => state.importance?.size === nParts);
  await settle();
  assert.equal(bars(), nParts);
  const under = state.importance;
  assert.ok([...under.values()].some((share) => share > 0));
  await toggle("cross-attention 2.1");
  await waitFor(isScored);
  assert.equal(state.importance, under); // each part alone, whatever is off
  await click("input[type=radio]:not(:checked)");
  await waitFor(() => state.importance !== under && state.importance?.size === nParts);
  state.status = "training"; // its weights change faster than the parts are measured
  await predict();
  assert.equal(state.importance, null);
});

test("position vectors have a switch, and an address", async () => {
  await type("1 2");
  await waitFor(() => state.parts);
  await settle();
  await toggle("input positions");
  await waitFor(() => state.prediction?.off.length);
  assert.match(text("[role=status]"), /^input positions is off/);
  assert.equal(trainView.read().off, "source positions");
  state.switchedOff = NOTHING_OFF;
  trainView.apply(new URLSearchParams("off=source positions,cross.2.1,cross.9.1"));
  store.model.value = state.modelRef;
  await waitFor(() => state.prediction?.off.length === 2); // which the model has
  assert.equal(trainView.read().off, "source positions,cross.2.1");
});

test("the mean takes the place of zeros", async () => {
  await toggle("cross-attention 2.1");
  await waitFor(isScored);
  const probabilities = () => state.typedPass.probe.probability.join(),
    underZero = probabilities();
  await click("input[type=radio]:not(:checked)");
  await waitFor(() => probabilities() !== underZero);
  assert.match(text(".switch-hint:last-child"), /is its mean/);
});

test("while the model trains, weights are requested once a second at most", async () => {
  state.status = "training";
  await type("1 2");
  show(5);
  await predict();
  assert.equal(state.typedPass.step, 4);
  assert.equal(routes().filter((route) => route === "weights").length, 1);
  state.status = "done";
  await predict();
  assert.equal(state.typedPass.step, 5);
});

test("a viewer of a model on private data gets neither score nor mean", async () => {
  state.lastResponse = { ...state.lastResponse, right: "use" };
  await settle();
  assert.equal(box.querySelector(".switch-score, fieldset"), null);
});

test("a model that the browser lacks, or cannot run, has no switches", async () => {
  const switches = () => box.querySelectorAll("[role=switch]").length;
  state.probeInfo = { ...state.probeInfo, in_browser: false };
  await settle();
  assert.equal(switches(), 0);
  state.probeInfo = { ...state.probeInfo, in_browser: true };
  await settle();
  serve({
    "runs/model": { ...description, architecture: "recurrent" },
    "runs/predict": { prediction: ["0"], target: ["0"] },
    weights: () => weightsOf(4),
  });
  await toggle("cross-attention 2.1");
  await waitFor(() => !runsInBrowser.value);
  await waitFor(() => state.prediction?.prediction.join() === "0");
  assert.equal(switches(), 0);
});

test("a failure of the Worker is reported, and the model stays in the browser", async () => {
  const messageOf = () => messages.prediction.text;
  responses["runs/model"] = { ...description, symbols: null };
  store.input.value = "1 2";
  await waitFor(() => /does not run in this browser .*; reload the page/.test(messageOf()));
  assert.ok(runsInBrowser.value);
  assert.ok(!routes().includes("runs/predict"));
  responses["runs/model"] = description;
  state.modelRef = `run:${++count}`;
  await type("4 5");
  assert.equal(messageOf(), "");
});

test("an open block shows how the engine computes the weights of a query", async () => {
  await type("1 2");
  const title = box.querySelector(".diagram-block[data-kind=cross] .diagram-block-title");
  await click(title);
  await waitFor(() => box.querySelector(".block-scores table"));
  assert.ok(!routes().includes("inspect/view"));
  const weights = [...box.querySelectorAll(".block-scores .weight")].map((each) =>
    Number(each.textContent),
  );
  assert.ok(Math.abs(weights.reduce((a, b) => a + b) - 1) < 0.01);
  const before = text(".block-scores table");
  await toggle("encoder feed-forward 1");
  await waitFor(() => text(".block-scores table") !== before);
});

test("a search competes with the user for the smallest set, and the result is copied", async () => {
  // The outputs of the model are the targets, so all are right.
  const outputs = golden.cases.map(({ source, output }) => ({ source, labels: output }));
  responses["runs/model"] = { ...description, examples: outputs };
  responses["runs/details"] = { share_id: "shared" };
  Object.assign(state, { modelRef: "run:game", switchScore: null });
  box.querySelector(".smallest-set").dispatchEvent(new Event("toggle"));
  await waitFor(() => text(".own-result") === "You: 0 of 16 parts off ✓");
  await click(".smallest-set button");
  await waitFor(() => /^A search: \d+ of 16 off$/.test(text(".smallest-set [role=status]")));
  await toggle("cross-attention 2.1");
  await waitFor(isScored);
  await waitFor(() => /^You: 1 of 16 parts off, \d+ % right/.test(text(".own-result")));
  let copied = "";
  const writeText = async (/** @type {string} */ content) => void (copied = content);
  Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
  store.addView("train", trainView);
  store.model.value = state.modelRef;
  box.querySelectorAll(".smallest-set button")[1].click();
  await waitFor(() => copied);
  const [title, ...lines] = copied.split("\n");
  assert.match(title, /1 of 16 parts off, .*\(a search: \d+ of 16 off\)$/);
  assert.deepEqual(lines.slice(0, 4), ["🟦🟦 🟦", "🟦🟦 🟦", "🟦🟦 🟦🟦 🟦", "🟦🟦 ⬛🟦 🟦"]);
  const link = new URL(lines[4]).searchParams;
  assert.deepEqual([link.get("model"), link.get("off")], ["watch:shared", "cross.2.1"]);
});
