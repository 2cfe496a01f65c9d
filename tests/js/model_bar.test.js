import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { enter, press, settle } from "./support/dom.js";
import { box, mount } from "./support/page.js";
import { hasModelBar, ModelBar } from "../../playground/ui/static/shell/model_bar.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const RUNS = [
  { subject: "run:1", name: "first", status: "done" },
  { subject: "run:2", name: "of a lesson", status: "done", origin: "lesson" },
];
beforeEach(async () => {
  store.setModels({ runs: RUNS, checkpoints: [{ subject: "checkpoint:copy", name: "copy" }] });
  store.openModel("run:1");
  store.input.value = null;
  await mount(html`<${ModelBar} />`);
});

const $ = (selector) => box.querySelector(selector);
const names = () => [...$(".subject").options].map((option) => option.textContent.trim());

test("the select has the models except hidden runs", async () => {
  assert.deepEqual(names(), ["first", "copy"]);
  enter($(".subject"), "checkpoint:copy");
  assert.equal(store.model.value, "checkpoint:copy");
  store.openModel("run:2");
  await settle();
  assert.ok(names().includes("of a lesson"));
});

test("a shared run has an option of its own", async () => {
  store.openModel("watch:abc");
  await settle();
  assert.equal(names()[0], "a shared run");
  store.modelName.value = "theirs";
  await settle();
  assert.equal(names()[0], "theirs");
});

test("the slider selects stored steps; the last one means the latest", async () => {
  assert.equal($(".step"), null);
  store.weightSteps.value = [0, 10, 50];
  store.latestStep.value = 60;
  await settle();
  assert.equal($(".step-words").textContent, "latest, 60");
  enter($(".step"), "12");
  assert.equal(store.step.value, 10);
  await settle();
  assert.equal($(".step-words").textContent, "10");
  press($(".step"), "ArrowLeft");
  assert.equal(store.step.value, 0);
  enter($(".step"), "50");
  assert.equal(store.step.value, null);
  press($(".step"), "Home");
  assert.equal(store.step.value, null);
});

test("the input is typed for all tabs", async () => {
  const field = $(".sequence");
  assert.equal(field.value, store.suggestedInput.value);
  enter(field, "7 8");
  assert.equal(store.input.value, "7 8");
  assert.equal(store.inputModel, "run:1");
  store.isInputInvalid.value = true;
  await settle();
  assert.equal(field.getAttribute("aria-invalid"), "true");
});

test("only Train replays the recording of a checkpoint", async () => {
  store.openModel("checkpoint:copy");
  store.weightSteps.value = [0, 10];
  store.latestStep.value = 10;
  store.tab.value = "inspect";
  await settle();
  assert.equal($(".step"), null);
  assert.equal($(".step-words").textContent, "latest, 10");
  store.tab.value = "train";
  await settle();
  assert.ok($(".step"));
});

test("Compare uses the model of the bar, but neither its step nor its input", async () => {
  store.tab.value = "compare";
  await settle();
  assert.ok($(".subject"));
  assert.equal($(".page-bar-step"), null);
  assert.equal($(".sequence"), null);
  store.tab.value = "train";
});

test("the bar belongs to the tabs that use it", () => {
  const tabs = ["train", "inspect", "compare", "learn", "hub", null];
  const tabsWithBar = tabs.filter((tab) => {
    store.tab.value = tab;
    return hasModelBar();
  });
  assert.deepEqual(tabsWithBar, ["train", "inspect", "compare", null]);
});
