import assert from "node:assert/strict";
import { test } from "node:test";

import { makeBox } from "./support/dom.js";
import {
  filterSettings,
  initSettingsSearch,
} from "../../playground/ui/static/shell/settings_search.js";

const matches = () =>
  [...document.querySelectorAll("#advanced > [id^=field-]:not(.no-match)")].map((each) => each.id);

test("the settings are filtered by name, label and help", () => {
  makeBox().innerHTML = `<div id="advanced"><input id="settings-search" />
    <div id="field-n_heads">Heads: attention heads in each layer</div>
    <div id="field-dropout">Dropout: share of activations</div></div>`;
  const panel = document.querySelector("#advanced");
  filterSettings(panel, "HEADS layer");
  assert.deepEqual(matches(), ["field-n_heads"]);
  filterSettings(panel, "n_h");
  assert.deepEqual(matches(), ["field-n_heads"]);
  initSettingsSearch();
  const box = document.querySelector("#settings-search");
  box.value = "activations";
  box.dispatchEvent(new Event("input", { bubbles: true }));
  assert.deepEqual(matches(), ["field-dropout"]);
  filterSettings(panel, "");
  assert.equal(matches().length, 2);
});
