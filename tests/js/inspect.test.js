import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { canvasCalls, settle } from "./support/dom.js";
import { box, button, key, mount, serve, text, texts, waitFor } from "./support/page.js";
import { attentionSpec } from "../../playground/ui/static/inspect/attention.js";
import { layoutPoints, separateNames } from "../../playground/ui/static/inspect/embeddings.js";
import { describeUnit, meanRows } from "../../playground/ui/static/inspect/gates.js";
import { createOptions } from "../../playground/ui/static/inspect/section_parts.js";
import {
  refresh,
  showError,
  showResponseError,
} from "../../playground/ui/static/inspect/requests.js";
import {
  findSection,
  findSubView,
  Sections,
  selectView,
} from "../../playground/ui/static/inspect/sections.js";
import {
  notApplicable,
  openSection,
  prediction,
  problem,
  results,
  VIEWS,
} from "../../playground/ui/static/inspect/state.js";
import { TokenLinks } from "../../playground/ui/static/inspect/token_links.js";
import { Toolbar } from "../../playground/ui/static/inspect/toolbar.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

beforeEach(() => {
  serve();
  prediction.value = null;
  problem.value = { text: "", isTransient: false };
  store.input.value = null;
});

test("a model with private examples has the roles of its heads only, with the reason", async () => {
  const Component = () => html`<p class="roles"></p>`;
  store.tab.value = "inspect";
  addSections(() => ({ explain: "", Component }));
  const error = "the owner of this run keeps its examples private";
  serve({ "inspect/view": { error, code: "private" } });
  store.model.value = "watch:id";
  await mount(html`<${Toolbar} /><${Sections} />`);
  selectView("attention");
  await waitFor(() => notApplicable.value);
  assert.equal(text(".not-applicable"), "The owner of this run keeps its examples private.");
  assert.deepEqual(texts(".of-attention button"), ["Open Attention"]);
  selectView("heads");
  await waitFor(() => box.querySelector(".roles"));
  assert.equal(notApplicable.value, "");
  assert.equal(text(".problem"), "");
});

const SECTIONS = {
  attention: ["attention", "heads"],
  matters: ["ablation"],
  numbers: ["trace", "gates"],
};

/** Fill the tab with sections. */
function addSections(build) {
  for (const name of Object.keys(VIEWS)) delete VIEWS[name];
  for (const [subView, sections] of Object.entries(SECTIONS))
    for (const name of sections) VIEWS[name] = { subView, ...build(name) };
}

test("a link may name a section, and nothing else", () => {
  addSections((name) => ({ title: name }));
  assert.equal(findSection("ablation"), "ablation");
  for (const name of ["matters", "constructor", "__proto__", "", 3, null])
    assert.equal(findSection(name), null);
  assert.equal(findSubView("ablation").value, "matters");
});

test("options of a link are restored by their type", () => {
  const { options, restore } = createOptions({ mode: "a", layer: 0, text: "" });
  restore({ mode: 3, layer: 2, text: "b", other: 1 });
  assert.deepEqual(options.value, { mode: "a", layer: 2, text: "b" });
  restore({ layer: "2" });
  assert.equal(options.value.layer, 2);
});

const TOKENS = { kind: "encoder", queries: ["a", "b"], keys: ["x", "y"], titles: [] };
const HEADS = [
  { name: "head 1", weights: [1000, 0, 250, 750], color: 0 },
  { name: "head 2", weights: [250, 750, 1000, 0], color: 1 },
];

test("links of several heads are drawn, and described by head", async () => {
  canvasCalls.length = 0;
  await mount(html`<${TokenLinks} label="Layer 1, all heads" heads=${HEADS} ...${TOKENS} />`);
  assert.equal(canvasCalls.filter(([name]) => name === "bezierCurveTo").length, 6);
  assert.match(text("figcaption"), /^Point at a query/);
  await key("canvas", "ArrowDown");
  assert.equal(
    text("figcaption"),
    "Token 1 (a) attends to head 1: x (position 1) 1.000; " +
      "head 2: y (position 2) 0.750, x (position 1) 0.250.",
  );
});

test("heads, map and file of a response have its weights", async () => {
  const data = {
    ...{ kind: "cross", kinds: ["encoder", "decoder", "cross"], layers: 1, heads: 2 },
    ...{
      rows: ["a", "b"],
      columns: ["x", "y"],
      possible: [
        [1, 1],
        [1, 1],
      ],
    },
    weights: [HEADS.map(({ weights }) => weights)],
  };
  await mount(html`<${attentionSpec.Component} data=${data} />`);
  const heads = [...box.querySelectorAll(".head")];
  assert.deepEqual(
    heads.map((head) => head.getAttribute("aria-label")),
    ["Cross-attention, layer 1, head 1", "Cross-attention, layer 1, head 2"],
  );
  heads[1].click();
  await settle();
  assert.equal(text("h4"), "Layer 1, head 2");
  assert.match(text("figcaption"), /^Rows: the target token/);
  await key(".pg-heat-map canvas", "ArrowRight");
  assert.match(text("figcaption"), /Target 1 \(a\) attends to x \(position 1\) with weight 0\.250/);
  assert.deepEqual(attentionSpec.exportData(data).weights[0][0], [
    [1, 0],
    [0.25, 0.75],
  ]);
});

test("points of the projection are placed by their coordinates", () => {
  assert.deepEqual(
    layoutPoints([
      [-1, 0],
      [1, 0],
    ]),
    [
      [38, 190],
      [522, 190],
    ],
  );
});

test("the toolbar marks a wrong prediction, and shows the error of the input", async () => {
  prediction.value = { prediction: ["1", "EOS"], target: ["2", "EOS"], note: "" };
  problem.value = "Not a token.";
  await mount(html`<${Toolbar} />`);
  assert.equal(text(".answer"), "1 ✗");
  assert.equal(box.querySelector(".problem").textContent, "Not a token.");
  store.isInputInvalid.value = true;
  await settle();
  const answer = box.querySelector(".answer");
  assert.equal(answer.textContent.trim(), "1", "a mark would be about another input");
  assert.ok(answer.classList.contains("stale"));
  store.isInputInvalid.value = false;
  prediction.value = { prediction: ["1"], target: ["1", "EOS"], note: "" };
  await settle();
  assert.match(box.querySelector(".answer").textContent, /1\s*_\s*✗/, "EOS is missing");
});

test("overlapping names of the projection are separated", () => {
  const points = [
    [100, 50],
    [104, 52],
    [300, 52],
  ];
  assert.deepEqual(separateNames(points, ["5", "EOS", "9"]), [
    [100, 50],
    [104, 65],
    [300, 52],
  ]);
});

test("only an error of the input marks the input as invalid", () => {
  showError("this view needs another model");
  assert.deepEqual(
    [problem.value, store.isInputInvalid.value],
    ["This view needs another model.", false],
  );
  showError("not a token", "text");
  assert.equal(store.isInputInvalid.value, true);
  showError("");
  assert.deepEqual([problem.value, store.isInputInvalid.value], ["", false]);
});

test("a view that arrives after a newer request is dropped", async () => {
  const replies = [];
  serve({ "inspect/view": () => new Promise((resolve) => replies.push(resolve)) });
  store.tab.value = "inspect";
  VIEWS.lens = {};
  openSection.value = "lens";
  store.model.value = "checkpoint:copy";
  for (const count of [1, 2]) {
    refresh(0);
    await waitFor(() => replies.length === count);
  }
  replies[1]({ note: "new" });
  replies[0]({ note: "old" });
  await settle();
  assert.equal(results.value.lens.note, "new");
});

test("a section that the architecture lacks is a note in the section, not an error", () => {
  showResponseError({ error: "only recurrent models have gates", code: "not-applicable" });
  assert.deepEqual([notApplicable.value, problem.value], ["Only recurrent models have gates.", ""]);
  showResponseError({ error: "not a token", field: "text" });
  assert.deepEqual([notApplicable.value, problem.value], ["", "Not a token."]);
  showResponseError({});
  assert.deepEqual([notApplicable.value, problem.value], ["", ""]);
});

test("a section that the model lacks has buttons for those that it has", async () => {
  const Component = () => html`<i />`;
  addSections((title) => ({ title, explain: title + " explained", Component }));
  prediction.value = { prediction: [], target: null, note: "", views: ["attention", "gates"] };
  openSection.value = "ablation";
  showResponseError({ error: "needs another model", code: "not-applicable" });
  await mount(html`<${Sections} />`);
  assert.equal(box.querySelector(".explain"), null);
  assert.deepEqual(texts(".of-ablation button"), ["Open Attention", "Open Every number"]);
  assert.deepEqual(texts(".parts button"), [], "one part needs no choice");
  button("Open Every number").click();
  assert.equal(openSection.value, "gates");
  prediction.value = { ...prediction.value, views: ["attention", "heads", "trace"] };
  selectView("trace");
  await settle();
  assert.equal(text(".of-trace .explain"), "trace explained");
  prediction.value = { ...prediction.value, views: ["attention", "heads"] };
  openSection.value = "attention";
  await settle();
  assert.deepEqual(texts(".parts button"), ["attention", "heads"]);
});

test("gates have a row of means and a text for each unit", () => {
  const data = {
    stack: "encoder",
    layer: 0,
    tokens: ["3", "EOS"],
    quantity: "f",
    values: [
      [0.25, 1],
      [0, 0.5],
    ],
    quantities: [
      { name: "f", formula: "σ(W x)", meaning: "forget gate: it stays", means: [0.6, 1] },
    ],
  };
  assert.deepEqual(meanRows(data)[1], {
    name: "f, forget gate",
    values: ["0.60", "1.00"],
    title: "f = σ(W x); forget gate: it stays",
  });
  assert.equal(describeUnit(data, 1, 1), "f of unit 1 after EOS (position 2): 0.5.");
});
