import assert from "node:assert/strict";
import { before, beforeEach, mock, test } from "node:test";

import "./support/dom.js";
import { connectAddress } from "../../playground/ui/static/shared/address.js";
import { Store } from "../../playground/ui/static/shared/store.js";
import { signal } from "../../playground/ui/static/vendor/preact.js";

let store;

/** Return to an earlier address, as the Back button does. */
function goTo(search) {
  history.replaceState(null, "", "/space/" + search);
  window.dispatchEvent(new window.Event("popstate"));
}

before(() => {
  globalThis.addEventListener = window.addEventListener.bind(window);
});

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
  localStorage.clear();
  delete document.documentElement.dataset.tab;
  history.replaceState(null, "", "/space/");
  store = new Store();
});

test("another tab or model is a new entry of the history", () => {
  connectAddress(store);
  store.openModel("checkpoint:reverse"); // the first model is part of the first entry
  const first = history.length;
  store.openModel("checkpoint:copy");
  assert.equal(location.search, "?tab=train&model=checkpoint%3Acopy");
  store.tab.value = "inspect";
  assert.equal(location.search, "?tab=inspect&model=checkpoint%3Acopy");
  assert.equal(history.length, first + 2);
});

test("a step and a sequence replace the address once they rest", async () => {
  connectAddress(store);
  store.openModel("run:1");
  const entries = history.length;
  for (const step of [1, 2, 3]) store.step.value = step;
  store.setInput("1 2");
  assert.equal(location.search, "?tab=train&model=run%3A1");
  mock.timers.tick(400);
  assert.equal(location.search, "?tab=train&model=run%3A1&step=3&input=1+2");
  assert.equal(history.length, entries);
});

test("the address keeps its step while recorded steps are played", async () => {
  connectAddress(store);
  store.openModel("checkpoint:reverse");
  store.isPlaying.value = true;
  store.step.value = 0;
  mock.timers.tick(400);
  assert.equal(location.search, "?tab=train&model=checkpoint%3Areverse");
  store.isPlaying.value = false; // paused
  mock.timers.tick(400);
  assert.equal(location.search, "?tab=train&model=checkpoint%3Areverse&step=0");
});

test("the Back button restores tab, model and step", async () => {
  connectAddress(store);
  store.openModel("checkpoint:reverse");
  goTo("?tab=learn&model=checkpoint%3Acopy&step=4");
  assert.deepEqual(
    [store.tab.value, store.model.value, store.step.value],
    ["learn", "checkpoint:copy", 4],
  );
  const entries = history.length;
  store.openModel("checkpoint:reverse");
  assert.equal(history.length, entries + 1);
});

test("the first address opens its tab, an empty one the Train tab", async () => {
  history.replaceState(null, "", "/space/?tab=inspect");
  connectAddress(store);
  assert.equal(store.tab.value, "inspect");
  history.replaceState(null, "", "/space/");
  connectAddress((store = new Store()));
  assert.equal(store.tab.value, "train");
  history.replaceState(null, "", "/space/");
  document.documentElement.dataset.tab = "learn"; // the user was faster than the modules
  connectAddress((store = new Store()));
  assert.equal(store.tab.value, "learn");
  delete document.documentElement.dataset.tab;
  history.replaceState(null, "", "/space/?model=reverse");
  connectAddress((store = new Store()));
  assert.equal(store.tab.value, "train");
});

/** A tab with one section and its head. */
function addInspect() {
  const section = signal("attention"),
    head = signal(null);
  store.addView("inspect", {
    read: () => ({ section: section.value, head: head.value }),
    apply: (params) => {
      section.value = params.get("section") ?? "attention";
      head.value = params.get("head");
    },
  });
  return { section, head };
}

test("the state of a tab is in its address, its links and the history", () => {
  history.replaceState(null, "", "/space/?tab=inspect&model=run:1&section=lens&head=2.1");
  connectAddress(store);
  const first = history.length,
    { section, head } = addInspect();
  assert.deepEqual([section.value, head.value], ["lens", "2.1"]);
  const before = location.search;
  section.value = "trace";
  head.value = null;
  mock.timers.tick(400);
  assert.equal(location.search, "?tab=inspect&model=run%3A1&section=trace");
  assert.equal(history.length, first + 1);
  assert.equal(
    store.buildLink({ model: "watch:a" }),
    location.origin + "/space/?section=trace&tab=inspect&model=watch%3Aa",
  );
  goTo(before); // Back stays in the tab
  assert.deepEqual([store.tab.value, section.value, head.value], ["inspect", "lens", "2.1"]);
  store.tab.value = "hub";
  assert.equal(location.search, "?tab=hub&model=run%3A1");
});

test("a tab that is not loaded yet gets what another tab opens", () => {
  connectAddress(store);
  store.open("inspect", { model: "run:1", step: 3, input: "1 2", section: "lens", head: "1.2" });
  assert.equal(store.step.value, 3);
  assert.match(location.search, /section=lens&head=1.2/);
  const { section, head } = addInspect();
  assert.deepEqual([section.value, head.value], ["lens", "1.2"]);
  store.open("inspect", { model: "run:2" });
  assert.deepEqual([section.value, head.value], ["lens", "1.2"]);
  store.open("inspect", { section: "trace" });
  assert.deepEqual([section.value, head.value], ["trace", "1.2"]);
});
