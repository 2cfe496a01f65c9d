import assert from "node:assert/strict";
import { after, beforeEach, mock, test } from "node:test";

import { settle } from "./support/dom.js";
import {
  box,
  click,
  fill,
  key,
  mount,
  responses,
  sent,
  serve,
  submit,
  text,
  unmount,
  waitFor,
} from "./support/page.js";
import { fromPretrained, tokenNames } from "../../playground/ui/static/compare/attention.js";
import {
  AttentionPanel,
  describeMap,
  describeSharedKeys,
  isFirstHidden,
  withoutFirst,
} from "../../playground/ui/static/compare/attention_panel.js";
import {
  Benchmark,
  describeResults,
  form,
  validateNewModel,
} from "../../playground/ui/static/compare/benchmark.js";
import { Examples, listModels } from "../../playground/ui/static/compare/benchmark_examples.js";
import {
  addRows,
  buildRows,
  describePairs,
  describePending,
  describeScore,
  emptyResults,
  exportData,
  formatSeconds,
  loadResults,
  results,
  saveResults,
  sortedRows,
} from "../../playground/ui/static/compare/benchmark_table.js";
import {
  describePlan,
  describeTraining,
  Finetuning,
  thinSteps,
} from "../../playground/ui/static/compare/finetune.js";
import {
  describeDownloads,
  describeModelCost,
  hasChatTemplate,
  loadModelFacts,
  retryConnection,
  validateModelName,
} from "../../playground/ui/static/compare/models.js";
import {
  describeError,
  localPathsAllowed,
  outage,
  reportOutage,
} from "../../playground/ui/static/compare/jobs.js";
import { toRequest } from "../../playground/ui/static/compare/pipeline.js";
import { describeLane, placeLanes, Race } from "../../playground/ui/static/compare/race.js";
import { Pretrained, SECTIONS } from "../../playground/ui/static/compare/pretrained.js";
import {
  applyLink,
  compareView,
  createForm,
  section,
  selectedModel,
  sharedParams,
  view,
} from "../../playground/ui/static/compare/state.js";
import { buildPanel } from "../../playground/ui/static/compare/generation.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const REVERSE = { subject: "checkpoint:reverse", name: "reverse", about: "", parameters: 171_597 };
const COPY = { ...REVERSE, subject: "checkpoint:copy", name: "copy" };

beforeEach(() => {
  const recorded = { rows: [], request: null, result: null, machine: "" };
  serve({
    "jobs/submit": { job: "j" },
    "ui/static/compare/benchmark.json": recorded,
    "ui/static/compare/continue.json": recorded,
  });
  outage.value = "";
  store.owner.value = "owner";
});
// Jobs that no test waits for end with this response.
after(() => {
  unmount();
  mock.restoreAll();
  globalThis.fetch = async () => new Response(JSON.stringify({ error: "the tests have ended" }));
});

test("a link stores the fields of forms, and never a job", () => {
  const stored = { "job-table": { id: "old" } };
  const fields = { table: { n: 33 }, "job-table": { id: "x" }, other: 1 };
  applyLink(
    new URLSearchParams({ section: "table", part: "fill", fields: JSON.stringify(fields) }),
    stored,
  );
  assert.deepEqual(stored, { table: { n: 33 }, view: "table", section: "fill" });
  applyLink(new URLSearchParams("fields=5"), stored);
  store.openModel("checkpoint:copy");
  store.setModels({ runs: [], checkpoints: [REVERSE, COPY] });
  assert.equal(selectedModel.value.name, "copy");
  store.model.value = "run:deleted";
  assert.equal(selectedModel.value.name, "reverse");
  view.value = "benchmark";
  form.set("n", 33);
  store.addView("compare", { ...compareView, link: () => sharedParams("table") });
  store.tab.value = "compare";
  const params = new URL(store.buildViewLink()).searchParams;
  assert.equal(params.get("section"), "benchmark");
  assert.equal(params.get("model"), "checkpoint:reverse");
  assert.equal(JSON.parse(params.get("fields")).table.n, 33);
  assert.equal(sharedParams("").fields, null);
});

test("a form takes stored values of the right kind only", () => {
  const fields = { "free-odd": { text: "a", top_k: "7", model: { a: 1 } } };
  applyLink(new URLSearchParams({ fields: JSON.stringify(fields) }));
  const values = createForm("free-odd", { text: "x", top_k: 5, model: "gpt2", seed: 1 });
  assert.deepEqual(values.value, { text: "a", top_k: "7", model: "gpt2", seed: 1 });
  values.set("seed", "3");
  assert.equal(values.value.seed, "3");
});

test("a name that is no Hub id is rejected with the accepted form", () => {
  for (const name of ["gpt2", "user/name", "tuned:gpt2-reverse", "/models/bert", "a.b/c_d-1"])
    assert.equal(validateModelName(name), "", name);
  for (const name of ["not a name!!", "a/b/c", "a--b", "x".repeat(97), "a/b.git", ""])
    assert.match(validateModelName(name), /is no model name; enter user\/name, or a name such as/);
  const models = ["a", "b", "c", "d", "e", "f"].map((name) => ({ name }));
  assert.match(validateNewModel("", models), /^Enter user\/name/);
  assert.match(validateNewModel("a", models), /already in the list/);
  assert.match(validateNewModel("g", models), /limit is 6 models/);
  assert.equal(validateNewModel("g", []), "");
});

test("an outage is reported once, and the fields state that the model is not local", async () => {
  const code = "hub_unreachable";
  const error = "the Hub (https://hub.example) cannot be reached: Name or service not known";
  const offline =
    "There is no connection to the Hub, and bert is not on this machine. Try again later, or " +
    "enter the path of a folder with a model.";
  assert.equal(describeError("ada/x is not on the Hub"), "ada/x is not on the Hub");
  assert.equal(describeError(error), error); // the code decides, not the text
  assert.equal(describeError(error, code, "bert"), offline);
  assert.match(describeError("503", "hub_unavailable"), /^The Hub does not respond, and the model/);
  reportOutage("");
  assert.equal(outage.value, "");
  reportOutage(code);
  assert.equal(outage.value, "No internet connection. Local models still work.");
  reportOutage("hub_unavailable");
  assert.equal(outage.value, "The Hub does not respond. Local models still work.");

  const chat = { memory: 3e8, has_chat_template: true };
  responses["jobs/poll"] = {
    status: "done",
    result: {
      folders: false,
      models: [
        {
          ...{ name: "gpt2", location: "hub", bytes: 5e8, parameters: 1e8, message: "" },
          memory: 7e8,
        },
        {
          name: "tuned:a",
          location: "directory",
          bytes: 1e6,
          parameters: 1000,
          message: "",
          ...chat,
        },
        { name: "bert", location: "", bytes: null, parameters: null, message: error, code },
      ],
    },
  };
  await loadModelFacts(["gpt2", " tuned:a", "bert", "not a name!!"]);
  assert.deepEqual(sent[0][1].request.models, ["gpt2", "tuned:a", "bert"]);
  assert.equal(outage.value, "No internet connection. Local models still work.");
  responses["jobs/poll"].result.models[2].message = "";
  await retryConnection();
  assert.equal(outage.value, "");
  responses["jobs/poll"].result.models[2].message = error;
  await retryConnection();
  assert.equal(
    describeModelCost("gpt2").text,
    "500 MB to download, once; 100,000,000 parameters; 700 MB of memory",
  );
  const facts = "Fine-tuned here: 1,000 parameters, 1.0 MB, 300 MB of memory";
  assert.equal(describeModelCost("tuned:a").text, facts);
  assert.deepEqual(["tuned:a", "gpt2", "unknown"].map(hasChatTemplate), [true, false, false]);
  assert.deepEqual(describeModelCost("bert"), {
    // the shared instance accepts no folders
    text: offline.replace(
      "enter the path of a folder with a model",
      "choose a model on this machine",
    ),
    isError: false,
  });
  assert.deepEqual(describeModelCost("unknown"), { text: "", isError: false });
  assert.equal(describeDownloads(["gpt2", "tuned:a"]), "Downloads 500 MB first, once: gpt2.");
  assert.equal(describeDownloads(["tuned:a"]), "No download needed.");
  assert.equal(describeDownloads(["gpt2", "bert"]), "Skipped, because not on this machine: bert.");
  assert.match(validateModelName("/models/bert"), /such as gpt2\.$/, "folders are not allowed");
});

const REQUEST = { models: ["gpt2"], n: 2, shots: 1, of: "checkpoint:reverse" };
const model = (index, name, rest = {}) => ({
  kind: "model",
  index,
  model: name,
  description: "pretrained",
  decoding: "",
  n: 2,
  finished: true,
  exact_match: 0.5,
  exact_match_low: 0.1,
  exact_match_high: 0.9,
  ...rest,
});
const example = (index, name, number, correct) => ({
  kind: "example",
  index,
  model: name,
  number,
  source: "3 1",
  target: "1 3",
  raw_output: correct ? "1 3" : "3",
  prediction: correct ? ["1", "3"] : ["3"],
  correct,
  seconds: 0.1,
  prompt: "Input: 3 1",
});
const SETTINGS = {
  ...{ kind: "settings", caption: "Fair", note: "a note", request: { n: 2 } },
  few_shot_examples: [["1 2", "2 1"]],
};
const ROWS = [
  SETTINGS,
  model(0, "chance", { description: "baseline" }),
  model(5, "gpt2"),
  model(4, "reverse", { exact_match: 1 }),
  example(4, "reverse", 1, true),
  example(5, "gpt2", 1, false),
  example(4, "reverse", 2, true),
];
const evaluate = () => addRows(emptyResults(), ROWS, REQUEST);

test("the results are the newest rows, in the order of the request", () => {
  const state = evaluate();
  assert.deepEqual(
    sortedRows(state).map(([id, row]) => [id, row.model]),
    [
      ["4", "reverse"],
      ["gpt2", "gpt2"],
      ["0", "chance"],
    ],
  );
  const retry = { ...REQUEST, retry: "gpt2" };
  const again = addRows(
    state,
    [
      SETTINGS,
      model(4, "reverse"),
      model(5, "gpt2", { exact_match: 0.75 }),
      example(5, "gpt2", 1, true),
    ],
    retry,
  );
  assert.deepEqual(Object.keys(again.rows), ["0", "4", "gpt2"]);
  assert.deepEqual([again.rows[4].exact_match, again.rows.gpt2.exact_match], [1, 0.75]);
  assert.deepEqual(
    again.examples.gpt2.map((each) => each.correct),
    [true],
  );
  assert.equal(state.rows.gpt2.exact_match, 0.5, "the earlier state is unchanged");
});

test("failed models do not count", () => {
  const rows = [
    SETTINGS,
    model(4, "reverse"),
    model(5, "bert"),
    model(6, "gpt2", { error: "no" }),
    example(4, "reverse", 1, true),
  ];
  const state = addRows(emptyResults(), rows, REQUEST);
  assert.equal(describeResults(state), "Evaluated: 1 example, 2 models and the baselines.");
});

test("results of another model are marked", async () => {
  results.value = evaluate();
  results.value.settings = { ...SETTINGS, request: { n: 2, name: "reverse" } };
  store.setModels({ runs: [], checkpoints: [REVERSE, COPY] });
  store.model.value = "checkpoint:copy";
  await mount(html`<${Benchmark} />`);
  assert.equal(
    text(".other-model"),
    "These results are of reverse. Press Run evaluation for copy.",
  );
  assert.ok(box.querySelector(".pg-old .sheet"));
  assert.equal(text(".of-benchmark .run"), "Run evaluation");
  store.model.value = "checkpoint:reverse";
  await settle();
  assert.equal(box.querySelector(".other-model"), null);
  assert.equal(text(".of-benchmark .run"), "Run again");
});

test("a recorded benchmark is drawn until one has run here", async () => {
  results.value = emptyResults();
  store.model.value = "checkpoint:copy";
  const rows = [SETTINGS, model(4, "reverse"), example(4, "reverse", 1, true)];
  responses["ui/static/compare/benchmark.json"] = { rows, request: REQUEST, machine: "2 cores" };
  await mount(html`<${Benchmark} />`);
  await waitFor(() => text(".main-part").startsWith("Recorded: 2 cores"));
  assert.equal(text(".of-benchmark .run"), "Run it here");
  assert.equal(box.querySelector(".pg-old"), null);
  results.value = addRows(results.value, rows, REQUEST);
  await settle();
  assert.doesNotMatch(text(".main-part"), /Recorded/);
  store.model.value = "checkpoint:reverse";
});

test("a recorded text is drawn until one was generated here", async () => {
  section.value = "continue";
  const row = { n: 1, id: 5, word: "Paris", text: "Paris", probability: 0.9, candidates: [] },
    result = { model: "smol", parameters: 1000, prompt: "Capital: ", ended: "end", notes: [] };
  responses["ui/static/compare/continue.json"] = { rows: [row], result, machine: "2 cores" };
  await mount(html`<${Pretrained} />`);
  await waitFor(() => text(".pipeline-output").startsWith("Recorded: 2 cores"));
  assert.equal(text(".part-continue .run"), "Run it here");
  responses["jobs/poll"] = { status: "done", rows: [{ ...row, text: "Rome" }], cursor: 1, result };
  await submit(".part-continue form");
  await waitFor(() => text(".generated-text").includes("Rome"));
  assert.equal(text(".part-continue .run"), "Generate text");
  assert.doesNotMatch(text(".pipeline-output"), /Recorded/);
});

test("a folder that does not exist stays in the field with the error", async () => {
  localPathsAllowed.value = true;
  form.set("models", []);
  responses["jobs/poll"] = {
    status: "done",
    result: {
      folders: true,
      models: [{ name: "/none", location: "", message: "there is no folder '/none'", code: "" }],
    },
  };
  await mount(html`<${Benchmark} />`);
  const field = box.querySelector(".add-model input");
  await fill(field, "/none");
  await submit(".add-model");
  await waitFor(() => box.querySelector(".add-model .pg-error"));
  assert.equal(text(".add-model .pg-error"), "There is no folder '/none'.");
  assert.equal(field.value, "/none");
  assert.deepEqual(form.value.models, []);
});

test("the results are exported, stored, and read again", () => {
  const state = evaluate();
  assert.equal(exportData(state).examples.length, 3);
  assert.deepEqual(exportData(state).rows[0].model, "reverse");
  results.value = state;
  saveResults();
  results.value = emptyResults();
  loadResults();
  assert.deepEqual(results.value, state);
  for (const odd of ["{", "null", "", '{"settings":{},"rows":7}']) {
    localStorage.setItem("transformer-playground-compare-table", odd);
    loadResults();
    assert.deepEqual(results.value, emptyResults());
  }
});

test("the table has the models that wait above the baselines", () => {
  const request = { ...REQUEST, models: ["gpt2", "later", "last"] };
  const state = addRows(emptyResults(), ROWS, request);
  const rows = buildRows(state, request, { unit: "bytes", done: 1e6, total: 2e6 });
  assert.deepEqual(
    rows.map((row) => row.model),
    ["reverse", "gpt2", "later", "last", "chance"],
  );
  assert.equal(rows[2].description, "downloading, 1.0 MB of 2.0 MB");
  assert.equal(rows[3].description, "queued");
  assert.equal(describePending({ unit: "" }, true), "running");
  assert.match(
    describeScore(ROWS[2], { key: "exact_match", count: (row) => row.n }),
    /^50\.0 % of 2; 95 % interval 10\.0 % to 90\.0 %$/,
  );
  assert.equal(describePairs(ROWS[2]), "");
  assert.equal(
    describePairs({ only_this: 1, only_checkpoint: 1200, p_value: 0.00001 }),
    "Only this model is right on 1 example, only yours on 1,200: p < 0.001",
  );
  assert.match(describePairs({ only_this: 0, only_checkpoint: 3, p_value: 0.25 }), /p = 0\.25$/);
  assert.deepEqual([null, 0.0001, 0.012, 1.25].map(formatSeconds), [
    "",
    "< 1 ms",
    "12 ms",
    "1.3 s",
  ]);
});

test("the examples have the predictions of the selected model", async () => {
  results.value = evaluate();
  assert.deepEqual(listModels(results.value), [
    { value: "4", label: "reverse: 2 of 2 right" },
    { value: "gpt2", label: "gpt2: 0 of 1 right" },
  ]);
  await mount(html`<${Examples} />`);
  assert.equal(box.querySelectorAll(".items tbody tr").length, 2);
  const select = box.querySelector(".predictions-of");
  select.selectedIndex = 1;
  select.dispatchEvent(new window.Event("change", { bubbles: true }));
  await settle();
  assert.match(text(".items tbody tr"), /^3 1\s*1 3\s*3\s*_?\s*✗/);
  assert.match(text("pre"), /^1 2\s+→\s+2 1/);
});

test("the form of the benchmark rejects names and evaluates the selected models", async () => {
  results.value = emptyResults();
  const result = { models: [], folders: true };
  responses["jobs/poll"] = { status: "done", result, rows: ROWS, cursor: ROWS.length };
  form.set("models", [
    { name: "gpt2", on: true },
    { name: "bert-base-uncased", on: false },
  ]);
  form.set("n", "3");
  await mount(html`<${Benchmark} />`);
  const name = box.querySelector(".add-model input");
  await fill(name, "not a name!!");
  await submit(".add-model");
  assert.match(text(".add-model .pg-error"), /^not a name!! is no model name/);
  assert.equal(form.value.models.length, 2);
  await submit(".pg-form");
  await waitFor(() => text(".job")?.includes("Evaluated"));
  const [, payload] = sent.find(([, sentPayload]) => sentPayload?.kind === "benchmark");
  assert.deepEqual(payload.request.models, ["gpt2"]);
  assert.equal(payload.request.n, 3);
  assert.equal(payload.subject, "checkpoint:reverse");
  assert.equal(text(".job"), "✓ Evaluated: 2 examples, 2 models and the baselines.");
  assert.equal(box.querySelectorAll(".sheet tbody tr").length, 3);
});

test("a fine-tuned model and its origin are compared in the benchmark", async () => {
  results.value = emptyResults();
  const rows = [0, 100].map((step) => ({ step, loss: 1, exact_match: step / 100, eval_size: 2 }));
  const training = { from: "gpt2", model: "tuned/reverse", steps: 100, seconds: 2 },
    result = { ...training, models: [], folders: true, parts: {} };
  responses["jobs/poll"] = { status: "done", result, rows, cursor: 2 };
  await mount(html`<${Finetuning} />`);
  await submit(".pg-form");
  await waitFor(() => box.querySelector(".compare-in-benchmark"));
  assert.match(
    text(".verdict"),
    /^gpt2: exact match 0 % before fine-tuning, 100 % after 100 steps/,
  );
  await click(".compare-in-benchmark");
  assert.equal(view.value, "benchmark");
  await waitFor(() => sent.some(([, sentPayload]) => sentPayload?.kind === "benchmark"));
  const [, payload] = sent.find(([, sentPayload]) => sentPayload?.kind === "benchmark");
  assert.deepEqual(payload.request.models, ["gpt2", "tuned/reverse"]);
});

test("every section of the pretrained models can be drawn", async () => {
  responses["jobs/poll"] = { status: "failed", message: "no model" };
  await mount(html`<${Pretrained} />`);
  for (const { name, title } of SECTIONS) {
    section.value = name;
    await settle();
    assert.equal(text(".parts [aria-pressed=true]"), title);
    assert.ok(box.querySelector(`[class*=part-${name}]`), name);
  }
  section.value = "constructor";
  await settle();
  assert.equal(text(".parts [aria-pressed=true]"), SECTIONS[0].title);
});

test("a request has numbers, without empty ones, and names without blanks", () => {
  const fields = [
    { name: "model0" },
    { name: "text" },
    { name: "n", type: "number" },
    { name: "epochs", type: "number" },
  ];
  assert.deepEqual(toRequest(fields, { model0: " gpt2 ", text: " a", n: "5", epochs: "" }), {
    model: "gpt2",
    text: " a",
    n: 5,
  });
});

test("fill-mask shows the tokens and the predictions", async () => {
  section.value = "fill";
  responses["jobs/poll"] = {
    status: "done",
    result: {
      model: "bert-base-uncased",
      parameters: 1000,
      tokens: [{ word: "the", token: "the", id: 5 }],
      masks: [{ position: 0, candidates: [{ word: "paris", probability: 0.9, text: "paris" }] }],
      notes: ["a note"],
    },
  };
  await mount(html`<${Pretrained} />`);
  await submit(".part-fill form");
  await waitFor(() => box.querySelector(".pg-bars"));
  assert.match(text(".pg-bars"), /paris ?90\.0 %/);
  assert.match(text(".job"), /Model: bert-base-uncased, 1,000 parameters/);
  assert.equal(box.querySelector(".part-fill").dataset.status, "done");
});

test("tokens of a tokenizer of bytes are joined to letters", () => {
  const result = {
    text: "a é",
    tokens: ["a", "ĠÃ©"],
    spans: [
      [0, 1],
      [1, 3],
    ],
  };
  assert.deepEqual(tokenNames(result), ["a", "·é"]);
  const words = {
    text: "a b",
    tokens: ["a", "##b"],
    spans: [
      [0, 1],
      [2, 3],
    ],
  };
  assert.deepEqual(tokenNames(words), ["a", "##b"]);
});

test("a panel of attention shows a head, and a row of the map selects a token", async () => {
  const weights = btoa(
    String.fromCharCode(...new Uint8Array(new Int16Array([1000, 0, 500, 500]).buffer)),
  );
  const data = fromPretrained({
    text: "a b",
    tokens: ["a", "b"],
    spans: [
      [0, 1],
      [2, 3],
    ],
    kind: "causal",
    mask: [
      [true, false],
      [true, true],
    ],
    layers: 1,
    heads: 1,
    layer: 1,
    head: 1,
    model: "gpt2",
    weights,
  });
  await mount(html`<${AttentionPanel} index=${0} data=${data} />`);
  assert.equal(box.querySelector("section").dataset.drawn, "map gpt2 1.1");
  assert.equal(text("h4"), "Layer 1, head 1 of gpt2");
  const map = box.querySelector(".pg-heat-map canvas");
  await key(map, "ArrowRight");
  assert.equal(text("figcaption"), "a (position 1) attends to a (position 1) with weight 1.000.");
  await key(map, "Enter");
  assert.equal(text("h4"), "a (position 1) in every head of layer 1 of gpt2");
  const own = { isOwn: true, kinds: ["encoder", "cross"], kind: "encoder" };
  assert.match(describeMap(own, "map"), /Rows: source tokens.*sums to one\.$/);
  isFirstHidden.value = true;
  await settle();
  await key(box.querySelector(".pg-heat-map canvas"), "ArrowRight");
  assert.match(
    text("figcaption"),
    /b \(position 2\) attends to b \(position 2\) with weight 1\.000/,
  );
  isFirstHidden.value = false;
});

test("without its first token, each row of a map sums to one again", () => {
  const names = ["a", "b", "c"],
    weights = [[[1000, 0, 0, 900, 100, 0, 800, 50, 150]]],
    { data, all } = withoutFirst(
      { rows: names, columns: names, possible: null, layers: 1, heads: 1 },
      weights,
    );
  assert.deepEqual([data.rows, data.start], [["b", "c"], 1]);
  assert.deepEqual(
    all[0][0].map((weight) => Math.round(weight)),
    [1000, 0, 250, 750],
  );
});

test("heads that share their keys are named", () => {
  const shared =
    "share their keys and values, and differ in their queries (grouped-query attention).";
  assert.equal(describeSharedKeys({ heads: 9, kv_heads: 3 }, 5), `Heads 4 to 6 ${shared}`);
  assert.equal(describeSharedKeys({ heads: 4, kv_heads: 1 }, 3), `Heads 1 to 4 ${shared}`);
  assert.equal(describeSharedKeys({ heads: 4, kv_heads: 4 }, 3), "");
  assert.equal(describeSharedKeys({ heads: 4 }, 3), "");
});

test("the memory and the outcome of fine-tuning", () => {
  const plan = { bytes: 2e9, free_bytes: 4e9, fits: true, parts: { activations: 1 } };
  assert.equal(describePlan(plan), "Needs about 2.0 GB of memory; 4.0 GB are free.");
  assert.match(describePlan({ ...plan, fits: false, parts: {} }), /plus activations.*not enough/);
  const request = { model: "gpt2" };
  const rows = [
    { kind: "memory", bytes: 1 },
    { kind: "step", step: 0, exact_match: 0, eval_size: 8 },
    { kind: "step", step: 12, loss: 1, exact_match: 0.5, eval_size: 8 },
  ];
  assert.equal(
    describeTraining({ request, rows, result: null }),
    "gpt2: exact match 0 % before fine-tuning, 50.0 % after 12 steps, of 8 held-out sequences.",
  );
  assert.match(
    describeTraining({ request, rows, result: { from: "gpt2", model: "tuned:x", note: "" } }),
    /It is saved as tuned:x\.$/,
  );
  assert.equal(describeTraining({ request, rows: [], result: null }), "");
  assert.equal(thinSteps(rows).length, 2);
  const steps = Array.from({ length: 1000 }, (_, step) => ({ step, loss: 1 }));
  assert.equal(thinSteps(steps).length, 334);
});

test("attention of a translation has the tokens of its kind", () => {
  const tokens = (...names) => names.map((token) => ({ token })),
    result = {
      model: "t5",
      text: "one two",
      source: tokens("▁one", "▁two", "</s>"),
      start: { token: "<pad>" },
      generated: tokens("▁eins", "▁zwei"),
      attention: { cross: { layers: 2 }, encoder: { layers: 3 }, decoder: { layers: 2 } },
    };
  const cross = buildPanel(result, "cross"),
    encoder = buildPanel(result, "encoder"),
    decoder = buildPanel(result, "decoder");
  assert.deepEqual(
    [cross.rows, cross.columns],
    [
      ["·eins", "·zwei"],
      ["·one", "·two", "</s>"],
    ],
  );
  assert.deepEqual([encoder.rows, encoder.layers], [encoder.columns, 3]);
  assert.deepEqual(decoder.columns, ["<pad>", "·eins"]);
  assert.deepEqual(decoder.possible, [
    [1, 0],
    [1, 1],
  ]);
});

test("lanes that have reached 99 % are placed by their CPU time", () => {
  const row = (lane, seconds, has_reached = false) => ({
    lane,
    seconds,
    has_reached,
    exact_match: has_reached ? 0.995 : 0.5,
  });
  const all = [row(0, 1), row(1, 1), row(0, 2.2, true), row(1, 2.1, true), row(2, 2)],
    states = placeLanes(4, all);
  assert.deepEqual(
    states.map(({ place }) => place),
    [2, 1, 0, 0],
  );
  assert.deepEqual(states.map(describeLane), [
    "2nd: 99 % after 2.2 s",
    "1st: 99 % after 2.1 s",
    "50.0 %",
    "",
  ]);
});

test("a stored race is drawn until one has run here", async () => {
  const described = (title) => ({
    seed: 0,
    lanes: ["a", "b"].map((name) => ({ name, title: title + name, parameters: 9 })),
    choices: { transformer: "Transformer", "one-head": "One head" },
    source: ["1", "2"],
    target: ["2", "1"],
  });
  const row = { lane: 0, step: 5, seconds: 1.5, exact_match: 1, output: ["2", "1"] };
  mock.method(globalThis, "matchMedia", () => ({ matches: true }));
  responses["ui/static/compare/race.json"] = {
    ...described("stored "),
    machine: "2 cores",
    rows: [{ ...row, has_reached: true }],
  };
  await mount(html`<${Race} />`);
  await waitFor(() => text(".winner-note")?.startsWith("stored a is first with seed 0"));
  assert.equal(box.querySelectorAll(".lane").length, 2);
  responses["jobs/submit"] = { job: "j" };
  responses["jobs/poll"] = {
    status: "done",
    rows: [{ ...row, lane: 1, has_reached: true }],
    cursor: 1,
    result: described("own "),
    partial: {},
  };
  await click(box.querySelector(".run"));
  await waitFor(() => text(".winner-note")?.startsWith("own b is first with seed 0"));
  const [, { kind, request }] = sent.find(([, payload]) => payload?.kind === "race");
  assert.deepEqual([kind, request.seed, request.lanes.length], ["race", 0, 4]);
});
