import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { press, settle } from "./support/dom.js";
import { box, button, key, mount, sent, serve, text, texts, waitFor } from "./support/page.js";
import {
  ablationSpec,
  describeMethod,
  describeProgress,
  formatIncrease,
} from "../../playground/ui/static/inspect/ablation.js";
import {
  activationsSpec,
  formatResult,
  groupStages,
  nameColumn,
} from "../../playground/ui/static/inspect/activations.js";
import { headRolesSpec, PATTERNS } from "../../playground/ui/static/inspect/head_roles.js";
import { openSection } from "../../playground/ui/static/inspect/state.js";
import { patchingSpec, selectCorruption } from "../../playground/ui/static/inspect/patching.js";
import { store } from "../../playground/ui/static/shared/store.js";
import {
  attributionSpec,
  describeAttribution,
} from "../../playground/ui/static/inspect/attribution.js";
import { describeCell, logitLensSpec } from "../../playground/ui/static/inspect/logit_lens.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const LENS = {
  layers: ["embedding", "layer 1"],
  decoder_input: ["SOS", "5"],
  labels: ["5", "EOS"],
  target: ["5"],
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
  target_probability: [
    [0.2, 0.6],
    [0.9, 1],
  ],
};
const ATTRIBUTION = {
  position: 0,
  token: "5",
  baseline_token: "1",
  runner_up: "1",
  sum: 2,
  logit: 2,
  contributions: [
    { name: "token embedding", logit: -0.5 },
    { name: "cross-attention, layer 1, head 1", logit: 2.5 },
  ],
};
const byPattern = (value) => Object.fromEntries(Object.keys(PATTERNS).map((name) => [name, value]));
const makeHead = (kind, layer, clarity) => ({
  ...{ name: `${kind}-attention, layer ${layer}, head 1`, kind, layer, head: 1 },
  ...{ clarity, best: "previous", description: "attends" },
  patterns: { ...byPattern(0.1), previous: clarity, next: null },
  chance: { ...byPattern(0.1), next: null },
  ...{ entropy: 1, aligned: null, distance: null },
});
const SCORES = {
  ...{ step: 4, sequences: 256, lengths: [1, 10] },
  heads: [
    makeHead("encoder", 1, 0.2),
    makeHead("encoder", 2, 0.6),
    makeHead("cross", 1, 0.9),
    { ...makeHead("decoder", 1, 0.95), best: "uniform" },
  ],
};
const HEAD = "cross-attention, layer 1, head 1";
const ABLATION = {
  ...{ method: "mean", set: "single", step: 4, sequences: 512, lengths: [5, 5] },
  baseline: { exact_match: 1, log_probability: -0.1 },
  rows: [{ name: HEAD, exact_match: 0.5, log_probability: -2.1 }],
};
const ANSWER = {
  ...{ step: 4, source: ["3", "1", "EOS"], vocabulary: ["1", "2", "3"], target: ["1", "3"] },
};
const PATCHED = {
  ...{ corrupted_source: ["1", "1"], position: 1, clean_token: "3", corrupted_token: "1" },
  ...{ clean_logit_diff: 2, corrupted_logit_diff: -2 },
  heads: [{ name: HEAD, kind: "cross", layer: 1, head: 1, recovered_fraction: 0.8 }],
  pairs: 3,
  layers: [{ side: "source", rows: ["encoder layer 1"], restored: [[0.5]], lost: [[0.25]] }],
};
const makeStage = (block, name) => ({
  ...{
    block,
    name,
    formula: "x",
    shape: "S D = 2 × 2",
    words: "2 × 2",
    contribution: null,
    low: null,
    high: null,
  },
  ...{ file: "a.py", line: 1, text: "x = y" },
});
const FORWARD = {
  stages: [makeStage("source embedding", "tokens"), makeStage("source embedding", "sum")],
  chosen: {
    ...{ stage: 0, head: 0, heads: 0, truncation: "", most_likely: null, signed: true, max: 2 },
    ...{ axes: ["tokens", "dimensions"], rows: ["3", "EOS"], columns: ["0", "1"] },
    ...{
      weights: [
        [1, 2],
        [0, -1],
      ],
      possible: null,
    },
  },
};
let answers, views;

beforeEach(() => {
  answers = Promise.resolve();
  views = {
    heads: SCORES,
    ablation: ABLATION,
    patch: PATCHED,
  };
  serve({
    "inspect/view": async (payload) => {
      await answers;
      return views[payload.view];
    },
  });
});

async function show(spec, data) {
  spec.reset?.();
  await mount(html`<${spec.Component} data=${data} />`);
}

test("a cell of the logit lens has a sentence", () => {
  assert.equal(
    describeCell(LENS, 1, 0),
    "After layer 1, position 1: 5 (90.0 %), 1 (10.0 %). Target: 5, with probability 90.0 %.",
  );
  assert.match(describeCell({ ...LENS, target: null }, 0, 1), /^Before the first.*is unknown/);
});

test("an attribution names both sums", () => {
  assert.match(describeAttribution(ATTRIBUTION), /sum to \+2; .* 5 minus 1 is \+2\./);
  assert.match(describeAttribution({ ...ATTRIBUTION, baseline_token: null }), /softmax ignores/);
});

test("the arrow keys of the lens select a cell", async () => {
  await show(logitLensSpec, LENS);
  box.querySelector(".lens-cell[tabindex='0']").focus();
  press(document.activeElement, "ArrowRight");
  await settle();
  assert.match(text(".caption"), /^After layer 1, position 2/);
  assert.deepEqual(logitLensSpec.options().cell, [1, 1]);
});

test("an attribution is of a position, a token and a baseline", async () => {
  await show(attributionSpec, { ...LENS, ...ATTRIBUTION });
  assert.match(text(".attribution-message"), /^Position 1/);
  assert.match(text(".attribution-table tbody tr"), /head 1\s*\+2\.5/);
  assert.deepEqual(texts(".attribution-token option"), ["EOS", "1", "5 (target)"]);
  const select = (name, index) => {
    const field = box.querySelector(`.attribution-${name}`);
    field.selectedIndex = index;
    field.dispatchEvent(new window.Event("change", { bubbles: true }));
    return attributionSpec.options();
  };
  assert.deepEqual(select("baseline", 1), { position: 0, baseline_token: "" });
  assert.deepEqual(select("baseline", 0), { position: 0 }, "the runner-up again");
  assert.deepEqual(select("token", 1), { position: 0, token: "1" });
  assert.deepEqual(select("position", 1), { position: 1 }, "the target of another position");
});

const showSection = (name, spec, data) => {
  openSection.value = name;
  return show(spec, data);
};

test("the clearest heads come first, and those with uniform attention last", async () => {
  store.openModel("checkpoint:reverse");
  await showSection("heads", headRolesSpec, ANSWER);
  await waitFor(() => box.querySelector(".heads-table tbody"));
  const names = ["cross 1.1", "encoder 2.1", "encoder 1.1", "decoder 1.1"];
  assert.deepEqual(texts(".heads-table tbody td:first-child"), names);
  assert.match(text(".heads-table tbody tr"), /1\.44/, "an entropy of 1 nat, in bits");
});

test("the server measures the ablations of a model that the page does not run", async () => {
  store.openModel("checkpoint:reverse");
  await showSection("ablation", ablationSpec, ANSWER);
  await waitFor(() => text(".ablation-table tbody tr"));
  assert.match(text(".ablation-table tbody tr"), /^cross-.*1\.1\s*100 % → 50\.0 %\s*2\.000/);
  assert.match(text(".ablation-message"), /^Intact model: exact match 100 %.*by the server\.$/);
  assert.equal(button("Measure again"), undefined);
  assert.equal(box.querySelector(".ablation-table tbody button"), null);
  ablationSpec.restoreOptions({ method: "zero", set: "none" });
  assert.deepEqual(ablationSpec.options(), { method: "zero", set: "single" });
  ablationSpec.restoreOptions({ method: "mean" });
});

test("while a step is measured, the message names the step of the displayed result", () => {
  assert.match(describeProgress(null, 9, true), /^Measuring each component/);
  assert.equal(
    describeProgress(ABLATION, 9, true),
    "Measuring step 9; the table is that of step 4.",
  );
  assert.match(describeProgress(ABLATION, 9, false), /measured at step 4, now at step 9\.$/);
});

test("increases of the loss have the decimals of their column", () => {
  assert.deepEqual([46.52, -0.25, 0, 1e-4, -1e-4].map(formatIncrease), [
    "46.520",
    "−0.250",
    "0.000",
    "< 0.001",
    "> −0.001",
  ]);
});

test("patching has a section", async () => {
  store.openModel("checkpoint:reverse");
  await showSection("patch", patchingSpec, ANSWER);
  await waitFor(() => text(".patching-message").includes("recovers"));
  assert.match(text(".patching-table tbody tr"), /cross 1\.1\s*0\.80/);
  patchingSpec.restoreOptions({ position: 1, token: "2" });
  await waitFor(() => sent.at(-1)[1].options.source_position === 1);
  assert.match(text(".patching-layers"), /encoder layer 1\s*0\.50/);
  document.querySelector('[data-value="lost"]').click();
  await waitFor(() => /encoder layer 1\s*0\.25/.test(text(".patching-layers")));
});

test("sets and methods of an ablation have a sentence", () => {
  assert.match(describeMethod({ set: "keep", method: "mean" }), /^All heads except one.* its mean/);
});

test("a corruption replaces a token with another one", () => {
  const select = (position, token) => selectCorruption(ANSWER, { position, token });
  assert.deepEqual(select(0, "2"), { position: 0, token: "2" });
  assert.deepEqual(select(9, "1"), { position: 1, token: "2" });
});

test("the steps of the forward pass have one numbering", async () => {
  const [[block, members]] = groupStages(FORWARD.stages);
  assert.equal(block, "source embedding");
  assert.deepEqual(
    members.map((stage) => stage.index),
    [0, 1],
  );
  await showSection("trace", activationsSpec, FORWARD);
  assert.equal(text(".trace-progress"), "step 1 of 2");
  assert.match(text(".trace-list button[aria-current=true]"), /^1\. tokens/);
  button("Next →").click();
  assert.equal(activationsSpec.options().stage, "source embedding/sum");
});

test("in every text, rows and columns count from 1 and dimensions from 0", async () => {
  assert.equal(nameColumn(FORWARD.chosen, 1), "dimension 1");
  assert.equal(nameColumn({ ...FORWARD.chosen, axes: ["", "keys"] }, 1), "column 2 (1)");
  await showSection("trace", activationsSpec, FORWARD);
  const canvas = box.querySelector(".trace-tensor canvas");
  for (const each of ["ArrowRight", "ArrowRight"]) await key(canvas, each);
  await waitFor(() => /row 1 \(3\), dimension 1: 2\./.test(text(".trace-tensor figcaption")));
});

test("a heading has the digits of the readout", () => {
  assert.deepEqual([2.00462, -0.5, null].map(formatResult), ["2.0046", "−0.5", "−∞"]);
});
