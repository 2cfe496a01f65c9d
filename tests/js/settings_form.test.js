import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { settle } from "./support/dom.js";
import { box, click, fill, key, mount, responses, sent, serve, text } from "./support/page.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { announce } from "../../playground/ui/static/train/data/model_poll.js";
import {
  changedSettings,
  followSettingsLink,
  form,
  initForm,
  loadSettings,
} from "../../playground/ui/static/train/settings.js";
import { Buttons, SettingsForm } from "../../playground/ui/static/train/settings_form.js";
import { state } from "../../playground/ui/static/train/state.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const options = (...names) => names.map((name) => ({ value: name, label: "The " + name }));
const number = (name, hint) => ({ name, label: name, type: "number", step: 1, hint });
const FAST = { architecture: "transformer", n_heads: 4, cell: "gru", learning_rate: 0.003 };
const SCHEMA = {
  fields: {
    task: { name: "task", label: "Task", type: "select", options: options("reverse", "brackets") },
    min_length: number("min_length"),
    max_length: number("max_length"),
    architecture: {
      name: "architecture",
      label: "Model",
      type: "select",
      options: options("transformer", "recurrent"),
    },
    preset: {
      name: "preset",
      label: "Preset",
      type: "radio",
      options: options("fast", "one-head", "adam"),
    },
    device: { name: "device", label: "Device", type: "radio", options: options("auto", "cuda") },
    n_heads: number("n_heads", "Attention heads in each layer."),
    cell: { name: "cell", label: "Cell", type: "radio", options: options("gru", "lstm") },
    learning_rate: number("learning_rate", "Size of a step."),
    n_symbols: number("n_symbols", "Alphabet."),
    d_k: { ...number("d_k"), placeholder: "auto" },
  },
  groups: { Model: ["n_heads", "cell"], Training: ["learning_rate", "n_symbols", "d_k"] },
  defaults: {
    task: "reverse",
    dataset_sha256: "",
    min_length: 1,
    max_length: 10,
    preset: "fast",
    device: "auto",
    n_symbols: 10,
    d_k: 0,
    ...FAST,
  },
  size: "10 parameters.",
  preset_settings: Object.keys(FAST),
  model_settings: ["n_heads", "cell"],
  advanced_presets: ["adam"],
  presets: {
    fast: { description: "Learns within seconds.", values: FAST },
    "one-head": { description: "One head.", values: { ...FAST, n_heads: 1 } },
    adam: { description: "Adam.", values: { ...FAST, learning_rate: 0.001 } },
  },
  architectures: {
    transformer: { description: "Encoder and decoder.", settings: ["n_heads"], values: FAST },
    recurrent: {
      description: "Without attention.",
      settings: ["cell"],
      values: { ...FAST, architecture: "recurrent", learning_rate: 0.01 },
    },
  },
  tasks: {
    reverse: {
      description: "Reverse it.",
      example: "1 2 → 2 1",
      max_length: 10,
      has_symbols: true,
    },
    brackets: { description: "Balance.", example: "( → )", max_length: 16, has_symbols: false },
  },
};
const requestsTo = (route) => sent.filter(([name]) => name === route).map(([, payload]) => payload);
const control = (name) => box.querySelector(`#field-${name} :is(input, select)`);
const isVisible = (name) => !box.querySelector(`#field-${name}`).closest("[hidden]");
const visibleButtons = () =>
  [...box.querySelectorAll("#buttons button:not([hidden], #to-form)")].map((each) => each.id);
const choose = (name, value) => click(`#field-${name} input[value=${value}]`);
/** The delayed checks of the form, which `check` runs. */
const delayed = [];
const { setTimeout: startTimer } = globalThis;
globalThis.setTimeout = (run, ms, ...rest) =>
  ms === 200 ? delayed.push(run) : startTimer(run, ms, ...rest);
async function check() {
  for (const run of delayed.splice(0)) run();
  await settle();
}

beforeEach(async () => {
  delayed.length = 0;
  serve({ "form/check": { size: "20 parameters.", errors: {} } });
  initForm(SCHEMA);
  Object.assign(form, { errors: {}, message: "", presetHint: "", isStarting: false });
  store.owner.value = "o";
  Object.assign(state, { status: "checkpoint", lastResponse: {}, speed: "0" });
  announce("");
  store.server.value = { ...store.server.value, device: "Training on cpu, 2 cores" };
  await mount(html`<${Buttons} /><${SettingsForm} />`);
});

test("a preset, an architecture and Reset fill the form without a request", async () => {
  await choose("preset", "one-head");
  assert.equal(control("n_heads").value, "1");
  assert.match(text("#field-preset"), /One head\.$/);
  await fill(control("architecture"), "recurrent");
  assert.equal(control("learning_rate").value, "0.01");
  assert.deepEqual([isVisible("n_heads"), isVisible("cell")], [false, true]);
  assert.match(text("#field-preset"), /The default settings of this architecture\.$/);
  await fill(control("architecture"), "transformer");
  assert.equal(form.values.preset, "fast"); // it has the defaults of the transformer
  await fill(control("n_heads"), "8");
  await fill(control("learning_rate"), "0.5");
  assert.deepEqual(changedSettings(), ["n_heads", "learning_rate"]);
  assert.equal(box.querySelectorAll(".changed").length, 2);
  assert.equal(text("#settings-reset"), "Reset 2 changed settings");
  await click("#settings-reset");
  assert.deepEqual([control("n_heads").value, changedSettings()], ["4", []]);
  assert.equal(box.querySelector("#settings-reset").hidden, true);
  assert.deepEqual(sent, []);
});

test("an advanced preset is an option only while it is selected", async () => {
  const presets = () =>
    [...box.querySelectorAll("#field-preset input")].map((each) => each.value).join(" ");
  assert.equal(presets(), "fast one-head");
  await click("#settings-bar .pg-button");
  assert.equal(presets(), "fast one-head adam");
  assert.equal(form.values.learning_rate, 0.001);
});

test("a task sets the maximum length, unless another one was typed", async () => {
  await fill(control("task"), "brackets");
  assert.equal(form.values.max_length, 16);
  assert.equal(isVisible("n_symbols"), false);
  assert.match(text("#about-task"), /Balance/);
  await fill(control("max_length"), "12");
  await fill(control("task"), "reverse");
  assert.equal(form.values.max_length, 12);
  Object.assign(form, { values: { ...form.values, task: "dataset", dataset_sha256: "c1" } });
  await fill(control("task"), "brackets");
  const { min_length, max_length, dataset_sha256 } = form.values;
  assert.deepEqual([min_length, max_length, dataset_sha256], [1, 16, ""]);
});

test("a hidden field keeps its value, and a number the text that the user types", async () => {
  await fill(control("cell"), "lstm");
  await fill(control("n_heads"), "");
  assert.equal(form.values.n_heads, null);
  await fill(control("n_heads"), "08");
  assert.deepEqual([control("n_heads").value, form.values.n_heads], ["08", 8]);
  await choose("preset", "one-head");
  assert.equal(control("n_heads").value, "1");
});

test("an empty field with a word for 0 has the value 0", async () => {
  await mount(html`<${SettingsForm} />`);
  const field = box.querySelector("#field-d_k input");
  assert.deepEqual([field.value, field.placeholder], ["", "auto"]);
  await fill("#field-d_k input", "16");
  assert.equal(form.values.d_k, 16);
  await fill("#field-d_k input", "");
  assert.equal(form.values.d_k, 0);
  await fill("#field-n_symbols input", "");
  assert.equal(form.values.n_symbols, null);
});

test("the search shows the settings with all words, or that none matches", async () => {
  await fill("#settings-search", "HEADS layer");
  assert.deepEqual(["n_heads", "learning_rate"].map(isVisible), [true, false]);
  assert.equal(text("#settings-bar [role=status]"), "");
  await fill("#settings-search", "cell");
  assert.equal(text("#settings-bar [role=status]"), "No setting matches."); // of a transformer
  await fill("#settings-search", "");
  assert.equal(isVisible("learning_rate"), true);
});

test("Escape closes the panel of settings", async () => {
  const panel = box.querySelector("#advanced");
  panel.open = true;
  await key("#settings-search", "Escape");
  assert.equal(panel.open, false);
  assert.equal(document.activeElement, panel.querySelector("summary"));
});

test("the form offers no device without a GPU, but shows one of a link", async () => {
  assert.equal(isVisible("device"), false);
  Object.assign(form, { values: { ...form.values, device: "cuda" } });
  await settle();
  assert.equal(isVisible("device"), true);
});

test("the latest change is checked, and an earlier reply is ignored", async () => {
  let reply;
  responses["form/check"] = () => new Promise((resolve) => (reply = resolve));
  await fill(control("learning_rate"), "1");
  await fill(control("n_heads"), "5");
  await check();
  assert.deepEqual(requestsTo("form/check")[0].values.n_heads, 5);
  assert.equal(requestsTo("form/check").length, 1); // for two changes
  const late = reply;
  await fill(control("n_heads"), "4");
  late({ size: "", errors: { n_heads: "Heads is 5." } });
  await settle();
  assert.equal(text("#size"), "10 parameters.");
  await check();
  reply({ size: "20 parameters.", errors: {} });
  await settle();
  assert.equal(text("#size"), "20 parameters.");
});

test("the errors of the server stand beside their fields, and nothing starts", async () => {
  responses["form/start"] = { errors: { n_heads: "Heads is 5." } };
  await click("#train");
  assert.equal(text("#problem"), "Heads is 5.");
  assert.match(text("#field-n_heads"), /Heads is 5\.$/);
  assert.equal(box.querySelector("#size").hidden, true);
  assert.deepEqual(visibleButtons(), ["train"]);
  responses["form/start"] = { error: "all 3 places in the queue are taken" };
  await click("#train");
  assert.equal(text("#problem"), "Not started: All 3 places in the queue are taken.");
});

test("Train reacts at once, sends values and speed, and opens the run", async () => {
  let reply;
  responses["form/start"] = () => new Promise((resolve) => (reply = resolve));
  state.speed = "5";
  await click("#train");
  assert.deepEqual(visibleButtons(), ["pause", "another"]);
  await click("#another"); // while the first request is in progress
  assert.equal(requestsTo("form/start").length, 1);
  assert.deepEqual(requestsTo("form/start")[0], { owner: "o", values: SCHEMA.defaults, speed: 5 });
  reply({ subject: "run:1" });
  await settle();
  assert.equal(store.model.value, "run:1");
  store.openModel("");
});

test("Pause reacts at once, moves the focus, and returns after an error", async () => {
  Object.assign(state, { status: "training", lastResponse: { is_owner: true } });
  await settle();
  assert.deepEqual(visibleButtons(), ["pause", "stop", "another"]);
  let reply;
  responses["runs/action"] = () => new Promise((resolve) => (reply = resolve));
  box.querySelector("#pause").focus();
  await click("#pause");
  assert.deepEqual(visibleButtons(), ["resume", "step", "stop", "another"]);
  assert.equal(document.activeElement.id, "resume");
  reply({ error: "the run has ended" });
  await settle();
  assert.deepEqual(visibleButtons(), ["pause", "stop", "another"]);
});

test("settings of a run and of a link fill the form, or name the problem", async () => {
  responses["form/fill"] = { values: { ...FAST, task: "brackets", min_length: 1, max_length: 7 } };
  responses["runs/details"] = { settings: { task: "brackets" } };
  await loadSettings("run:1");
  await settle();
  assert.deepEqual(requestsTo("form/fill")[0], { settings: '{"task":"brackets"}' });
  assert.deepEqual([form.values.task, form.values.preset], ["brackets", "fast"]);
  assert.equal(
    text("#form-notice"),
    "The form now has the settings of this run: brackets, lengths 1 to 7. " +
      "Press Train to start a run.",
  );
  responses["form/fill"] = { error: "x is not a setting of a run" };
  history.replaceState(null, "", "?settings=x");
  await followSettingsLink();
  await settle();
  history.replaceState(null, "", "?");
  assert.equal(
    text("#problem"),
    "The form ignores the settings of this link: X is not a setting of a run.",
  );
});
