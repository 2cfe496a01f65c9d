import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import "./support/dom.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { initTabs } from "../../playground/ui/static/shell/tabs.js";

const NAMES = ["train", "inspect", "learn"];
const tab = (name) => document.getElementById("tab-" + name);
const visible = () => NAMES.filter((name) => !document.getElementById("panel-" + name).hidden);
let opened;

beforeEach(() => {
  const buttons = NAMES.map(
      (name) => `<button role="tab" id="tab-${name}" aria-controls="panel-${name}"></button>`,
    ),
    panels = NAMES.map((name) => `<div role="tabpanel" id="panel-${name}"></div>`);
  document.body.innerHTML = `<div id="tabs">${buttons.join("")}</div>${panels.join("")}`;
  opened = [];
  store.tab.value = "train";
  initTabs((name) => opened.push(name));
});

test("one tab is open and in the order of focus, and shows its panel", () => {
  for (const name of ["inspect", "learn"]) {
    tab(name).click();
    assert.equal(store.tab.value, name);
    assert.deepEqual(visible(), [name]);
    const states = NAMES.map((each) => [
      tab(each).getAttribute("aria-selected"),
      tab(each).tabIndex,
    ]);
    assert.deepEqual(
      states,
      NAMES.map((each) => (each === name ? ["true", 0] : ["false", -1])),
    );
  }
  assert.deepEqual(opened, ["train", "inspect", "learn"]);
});

test("arrow keys open the next tab, around the ends", () => {
  const press = (key) => {
    const event = new window.KeyboardEvent("keydown", { key, bubbles: true });
    tab(store.tab.value).dispatchEvent(event);
    return store.tab.value;
  };
  assert.deepEqual(["ArrowLeft", "ArrowRight", "ArrowRight", "a"].map(press), [
    "learn",
    "train",
    "inspect",
    "inspect",
  ]);
  assert.equal(document.activeElement, tab("inspect"));
});

test("the address opens a tab; one that does not exist is the first", () => {
  store.tab.value = "learn";
  assert.deepEqual(visible(), ["learn"]);
  store.tab.value = "admin";
  assert.deepEqual([store.tab.value, visible()], ["train", ["train"]]);
});
