import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { press, settle } from "./support/dom.js";
import { box, click, fill, mount, responses, sent, serve, text } from "./support/page.js";
import { DatasetPanel, describeCounts } from "../../playground/ui/static/train/dataset_panel.js";
import {
  gradio,
  onValueChange,
  panel,
  readInput,
  selectSource,
} from "../../playground/ui/static/train/dataset_state.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const REPORT = {
  sha256: "c1",
  n_pairs: 1200,
  vocab_size: 13,
  vocabulary: [..."abcdefghijklm"],
  split_on_spaces: false,
  source_lengths: [1, 3],
  target_lengths: [2, 2],
  n_held_out: 75,
  n_duplicates: 0,
  n_conflicts: 0,
  conflict_lines: [],
  preview: [
    [
      ["a", "b"],
      ["b", "a"],
    ],
  ],
};
const INITIAL = { ...panel };
let replies;

/** The action of each request: that of its payload, or an upload. */
const actions = () => sent.map(([, payload]) => payload.action ?? "upload");

beforeEach(async () => {
  Object.assign(panel, INITIAL);
  replies = { list: { datasets: [] } };
  serve({ datasets: REPORT, "datasets/action": ({ action }) => replies[action] });
  await mount(html`<${DatasetPanel} />`);
});
async function read() {
  panel.text = "ab\tba";
  await readInput();
  await settle();
}

test("the counts are in words, and what was left out has its reason", () => {
  const counts = new Map(describeCounts(REPORT).map(([name, value]) => [name, value]));
  assert.equal(counts.get("examples"), "1,200");
  assert.equal(counts.get("vocabulary"), "13 different characters: a b c d e f g h i j k l …");
  assert.equal(counts.get("sources"), "1 to 3 tokens");
  assert.equal(counts.get("targets"), "2 tokens");
  assert.equal(counts.has("repeated"), false);
  const others = { n_held_out: null, n_duplicates: 1, n_conflicts: 3, conflict_lines: [7, 1008] };
  const more = new Map(
    describeCounts({ ...REPORT, ...others }).map(([name, value]) => [name, value]),
  );
  assert.equal(more.get("held out"), "one in sixteen");
  assert.equal(more.get("repeated"), "1 example, left out");
  assert.equal(more.get("contradicting"), "3 examples, left out: line 7, 1,008 and more");
});

test("a pasted text is read, stored on the server and put into the form", async () => {
  const trigger = mock.fn();
  Object.assign(gradio, { trigger });
  await read();
  assert.equal(sent[0][1], "ab\tba");
  assert.equal(text(".preview tr"), "a b b a");
  await click(".use");
  assert.deepEqual(trigger.mock.calls[0].arguments, [
    "select",
    { index: 0, value: { sha256: "c1", min_length: 1, max_length: 3 } },
  ]);
  assert.equal(text(".use"), "Dataset in use");
  assert.equal(box.querySelector(".use").disabled, true);
});

test("an upload that the server no longer keeps is sent again, once", async () => {
  await read();
  replies.use = { error: "upload it first", retryable: true };
  await click(".use");
  assert.deepEqual(actions(), ["upload", "use", "upload", "use"]);
  assert.match(text(".problem"), /no longer has this dataset/);
});

test("rejected lines are listed beside the examples of the others", async () => {
  const summary = { ...REPORT, sha256: undefined };
  responses.datasets = {
    ...summary,
    error: "2 lines",
    lines: ["line 3 has no source"],
    n_rejected: 2,
  };
  await read();
  assert.equal(text(".problem"), "2 lines rejected:Line 3 has no source.And 1 more.");
  assert.equal(text(".preview tr"), "a b b a");
  assert.equal(box.querySelector(".use").disabled, true);
});

test("a later request replaces the report of an earlier one", async () => {
  const first = read();
  selectSource("hub");
  await first;
  assert.equal(panel.report, null);
  assert.ok(box.querySelector("[name=repo]"));
});

test("columns are sent once both are named", async () => {
  Object.assign(panel, { source: "hub", repo: " ada/words " });
  await settle();
  await fill("[name=sourceColumn]", "from");
  assert.deepEqual(sent, []);
  await fill("[name=targetColumn]", "to");
  assert.equal(sent[0][2]["X-Name"], "hub%3Aada%2Fwords");
  assert.equal(sent[0][2]["X-Columns"], "from%09to");
});

test("the tab key separates source and target, and then moves the focus", async () => {
  const area = box.querySelector("textarea");
  area.value = "ab";
  area.setSelectionRange(2, 2);
  press(area, "Tab");
  assert.equal(panel.text, "ab\t");
  press(area, "Tab");
  assert.equal(panel.text, "ab\t");
});

test("the dataset of the form is shown, and listed with those of the server", async () => {
  const stored = {
    sha256: "c1",
    n_pairs: 1,
    vocab_size: 9,
    vocabulary: [..."abcdefgh"],
    bytes: 10,
  };
  Object.assign(replies, { show: REPORT, list: { datasets: [stored] } });
  onValueChange({ owner: "o", sha256: "c1" });
  await settle();
  assert.equal(text(".use"), "Dataset in use");
  assert.equal(text(".open-dataset"), "1 example of a b c d e f g h …");
  replies.list = { datasets: [] };
  await click(".stored li .pg-button");
  assert.equal(box.querySelector(".stored").hidden, true);
});
