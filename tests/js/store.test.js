import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import "./support/dom.js";
import {
  loadJson,
  loadText,
  saveJson,
  saveText,
} from "../../playground/ui/static/shared/storage.js";
import { Store } from "../../playground/ui/static/shared/store.js";
import { effect } from "../../playground/ui/static/vendor/preact.js";

const RUN = { subject: "run:1", name: "reverse", status: "training", origin: "user" };
const CHECKPOINT = { subject: "checkpoint:copy", name: "copy", about: "Copy, 2 × 4" };
let store;

beforeEach(() => {
  localStorage.clear();
  store = new Store();
  store.setModels({
    runs: [RUN, { ...RUN, subject: "run:2", deleted: true }],
    checkpoints: [CHECKPOINT],
  });
});

test("models are runs and checkpoints, without deleted runs", () => {
  assert.deepEqual(
    store.models.value.map(({ value, label, group }) => [value, label, group]),
    [
      ["run:1", "reverse", "Your runs"],
      ["checkpoint:copy", "copy", "Checkpoints"],
    ],
  );
  assert.equal(store.find("run:1"), store.runs.value[0]);
  assert.equal(store.find("checkpoint:copy"), store.checkpoints.value[0]);
  assert.equal(store.find("run:2"), null);
});

test("the run of a lesson is listed only while it is open", () => {
  store.setModels({ runs: [RUN, { ...RUN, subject: "run:3", origin: "lesson" }], checkpoints: [] });
  const list = () => store.models.value.map(({ value }) => value);
  assert.deepEqual(list(), ["run:1"]);
  assert.equal(store.find("run:3").subject, "run:3");
  store.openModel("run:3");
  assert.deepEqual(list(), ["run:1", "run:3"]);
});

test("runs of lessons and experiments are listed only while they are open", () => {
  const runs = ["user", "lesson", "experiment"].map((origin, i) => ({
    ...RUN,
    subject: "run:" + i,
    origin,
  }));
  store.setModels({ runs, checkpoints: [] });
  const list = () => store.models.value.map(({ value }) => value);
  assert.deepEqual(list(), ["run:0"]);
  store.openModel("run:2");
  assert.deepEqual(list(), ["run:0", "run:2"]);
});

test("an equal response changes nothing", () => {
  const draw = mock.fn(() => store.models.value);
  effect(() => void draw());
  store.setModels({ runs: [{ ...RUN }], checkpoints: [CHECKPOINT] });
  assert.equal(draw.mock.callCount(), 1);
  store.setModels({ runs: [{ ...RUN, status: "done" }], checkpoints: [CHECKPOINT] });
  assert.equal(draw.mock.callCount(), 2);
  assert.equal(store.models.value[0].label, "reverse");
});

test("all tabs open the same model, and the browser remembers it", () => {
  store.openModel("checkpoint:copy", 20);
  assert.deepEqual([store.model.value, store.step.value], ["checkpoint:copy", 20]);
  const reopen = () => {
    const other = new Store();
    other.setModels({ runs: [RUN], checkpoints: [CHECKPOINT] });
    other.openRememberedModel("run:1");
    return other.model.value;
  };
  assert.equal(reopen(), "checkpoint:copy");
  store.openModel("watch:abc");
  assert.equal(reopen(), "checkpoint:copy");
  store.openModel("run:removed");
  assert.equal(reopen(), "run:1");
});

test("the address selects the model, step and sequence", () => {
  store.openModel("checkpoint:copy");
  store.readAddress("?tab=inspect&model=run:1&step=3&input=1+2");
  assert.deepEqual(
    [store.tab, store.model, store.step, store.input].map((each) => each.value),
    ["inspect", "run:1", 3, "1 2"],
  );
  assert.equal(
    store.buildAddress("https://example.org/"),
    "https://example.org/?tab=inspect&model=run%3A1&step=3&input=1+2",
  );
  store.readAddress("");
  assert.equal(store.model.value, "run:1");
});

test("the sequence is the typed one, or the one that the model suggests", () => {
  store.suggestedInput.value = "1 2 3";
  assert.equal(store.sequence.value, "1 2 3");
  store.setInput("4 5");
  assert.equal(store.sequence.value, "4 5");
  store.setInput("1 2 3");
  assert.equal(store.input.value, null);
});

test("another model has other steps", () => {
  store.openModel("run:1");
  store.weightSteps.value = [0, 10];
  store.openModel("run:1", 10);
  assert.deepEqual(store.weightSteps.value, [0, 10]);
  store.openModel("checkpoint:copy");
  assert.deepEqual(store.weightSteps.value, []);
});

test("a browser without storage works", () => {
  const denied = () => {
    throw new Error("denied");
  };
  const real = globalThis.localStorage;
  globalThis.localStorage = { getItem: denied, setItem: denied };
  store.openModel("run:1");
  store.openRememberedModel("checkpoint:copy");
  globalThis.localStorage = real;
  assert.equal(store.model.value, "checkpoint:copy");
});

test("the lists are polled for the owner", () => {
  const subscribe = mock.fn(() => ({ wake() {}, unsubscribe() {} }));
  store.subscribeToModels({ intervalMs: 1000 }, { subscribe });
  const [subscription] = subscribe.mock.calls[0].arguments;
  assert.equal(subscription.payload(), null);
  store.owner.value = "o";
  assert.deepEqual(subscription.payload(), { owner: "o" });
  subscription.onError(new Error("offline"));
  assert.equal(store.connectionError.value, "offline");
  subscription.onData({ runs: [], checkpoints: [] });
  assert.equal(store.connectionError.value, "");
  assert.deepEqual(store.models.value, []);
});

test("a response that is older than a command is dropped", async () => {
  const responses = [];
  const send = () => new Promise((resolve) => responses.push(resolve));
  const renamed = { runs: [{ ...RUN, name: "renamed" }], checkpoints: [] },
    old = { runs: [RUN], checkpoints: [] };
  const before = store.loadModels(send);
  const command = store.runCommand(async () => {
    const during = store.loadModels(send);
    responses[1](old);
    assert.equal(await during, null);
  });
  await command;
  const after = store.loadModels(send);
  responses[2](renamed);
  assert.equal(await after, renamed);
  responses[0](old);
  assert.equal(await before, null);
  assert.equal(store.runs.value[0].name, "renamed");
});

test("a command polls the lists at once, and drops the pending response", async () => {
  const wake = mock.fn(),
    subscribe = mock.fn(() => ({ wake, unsubscribe() {} }));
  store.owner.value = "o";
  store.subscribeToModels({ intervalMs: 1000 }, { subscribe });
  const { payload, onData } = subscribe.mock.calls[0].arguments[0];
  payload();
  await store.runCommand(async () => "done");
  assert.equal(wake.mock.callCount(), 1);
  onData({ runs: [], checkpoints: [] });
  assert.equal(store.models.value.length, 2);
  payload();
  onData({ runs: [], checkpoints: [] });
  assert.equal(store.models.value.length, 0);
});

test("a malformed stored value counts as none, and null removes a value", () => {
  assert.equal(saveText("test", "{"), true);
  assert.equal(loadJson("test"), null);
  saveJson("test", [1]);
  assert.deepEqual(loadJson("test"), [1]);
  saveText("test", null);
  assert.equal(loadText("test"), null);
});

test("values of a model that trains are not announced", () => {
  const store = new Store();
  store.model.value = "run:a";
  for (const [status, liveness] of [
    ["training", "off"],
    ["done", "polite"],
  ]) {
    store.runs.value = [{ subject: "run:a", status }];
    assert.equal(store.liveness.value, liveness);
  }
});
