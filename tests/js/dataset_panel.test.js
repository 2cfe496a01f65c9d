import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { settle } from "./support/dom.js";
import {
  box,
  click,
  fill,
  mount,
  responses,
  sent,
  serve,
  text,
  texts,
  waitFor,
} from "./support/page.js";
import { DatasetPanel, describeCounts } from "../../playground/ui/static/train/dataset_panel.js";
import { panel, readInput, selectSource } from "../../playground/ui/static/train/dataset_state.js";
import { form } from "../../playground/ui/static/train/settings.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const REPORT = {
  sha256: "c1",
  recognized: "Text, separated by tabs; the first line is an example",
  has_names: false,
  columns: ["column 1", "column 2"],
  selected: ["column 1", "column 2"],
  n_rows: 1200,
  n_skipped: 0,
  skipped: [],
  n_normalized: 0,
  held_out_warning: "",
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
  store.owner.value = "";
  form.values = { dataset_sha256: "" };
  replies = { list: { datasets: [] } };
  serve({ datasets: REPORT, "datasets/action": ({ action }) => replies[action] });
  await mount(html`<${DatasetPanel} />`);
});
async function choose(name, value) {
  const select = box.querySelector(`[name=${name}]`);
  select.value = value;
  select.dispatchEvent(new Event("change", { bubbles: true }));
  await settle();
}
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
  const others = { n_held_out: 1234, n_duplicates: 1, n_conflicts: 3, conflict_lines: [7, 1008] };
  const more = new Map(
    describeCounts({ ...REPORT, ...others }).map(([name, value]) => [name, value]),
  );
  assert.equal(more.get("held out"), "1,234");
  assert.equal(more.get("repeated"), "1 example, left out");
  assert.equal(more.get("contradicting"), "3 examples, left out: line 7, 1,008 and more");
});

test("a pasted text is read, stored on the server and put into the form", async () => {
  await read();
  assert.equal(sent[0][1], "ab\tba");
  assert.equal(text(".preview tr"), "a b b a");
  await click(".use");
  assert.deepEqual(form.values, {
    task: "dataset",
    dataset_sha256: "c1",
    min_length: 1,
    max_length: 3,
  });
  assert.equal(text(".use"), "Dataset in use");
  assert.equal(box.querySelector(".use").disabled, true);
  await waitFor(() => sent.some(([route]) => route === "form/check")); // the form checks it
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
  assert.equal(
    text(".problem"),
    "2 rows cannot be used, more than half:Line 3 has no source.And 1 more.",
  );
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

const TABLE = { ...REPORT, has_names: true, columns: ["id", "from", "to"] };
const NEEDS_COLUMNS = { error: "there are 3 columns", columns: TABLE.columns };
const headers = () => sent.at(-1)[2];

test("columns are chosen from the names in the table, and sent once both are", async () => {
  responses.datasets = NEEDS_COLUMNS;
  await read();
  assert.deepEqual(texts("[name=sourceColumn] option"), ["Choose", "id", "from", "to"]);
  responses.datasets = { ...TABLE, selected: ["from", "to"] };
  await choose("sourceColumn", "from");
  assert.equal(sent.length, 1);
  await choose("targetColumn", "to");
  assert.equal(headers()["X-Columns"], "from%09to");
  responses.datasets = { ...TABLE, selected: ["to", "from"] };
  await choose("sourceColumn", "to"); // which was the target
  assert.equal(headers()["X-Columns"], "to%09from");
  assert.equal(box.querySelector("[name=targetColumn]").value, "from");
});

test("columns of another table are dropped, and the text is read again", async () => {
  Object.assign(panel, { sourceColumn: "from", targetColumn: "to" });
  responses.datasets = () => {
    const wasChosen = Boolean(headers()["X-Columns"]);
    return wasChosen ? { error: "no column from", columns: ["a", "b"] } : REPORT;
  };
  await read();
  assert.equal(sent.length, 2);
  assert.equal(text(".use"), "Use these 1,200 examples");
});

test("two columns without names are no choice, and the first line may have names", async () => {
  await read();
  assert.equal(text(".recognized"), REPORT.recognized + ".");
  assert.equal(box.querySelector("[name=sourceColumn]"), null);
  responses.datasets = {
    ...REPORT,
    has_names: true,
    columns: ["ab", "ba"],
    selected: ["ab", "ba"],
  };
  await click(".first-line [data-value=names]");
  assert.equal(headers()["X-First-Line"], "names");
  assert.equal(texts("[name=targetColumn] option").length, 2);
});

test("a configuration and a split are chosen, and sent with the token of the Hub tab", async () => {
  store.hubToken.value = " hf_typed ";
  responses.datasets = { error: "2 configurations", configs: ["de", "fr"] };
  Object.assign(panel, { source: "hub", repo: " hub:ada/words " });
  await readInput();
  await settle();
  assert.equal(headers()["X-Name"], "hub%3Aada%2Fwords");
  assert.equal(headers()["X-Hub-Token"], "hf_typed");
  responses.datasets = { error: "2 splits", splits: ["a b", "c"] };
  await choose("config", "fr");
  assert.equal(headers()["X-Config"], "fr");
  responses.datasets = REPORT;
  await choose("split", "a b");
  assert.equal(headers()["X-Split"], "a%20b");
  assert.ok(box.querySelector("[name=config]")); // to choose another one
  await choose("config", "de"); // whose splits are others
  assert.equal(headers()["X-Split"], "");
  await fill("[name=repo]", "ada/other");
  assert.equal(box.querySelector("[name=config]"), null);
  assert.equal(panel.report, null);
  store.hubToken.value = "";
});

test("the token stays here unless a dataset of the Hub is read", async () => {
  store.hubToken.value = "hf_typed";
  await read();
  assert.equal("X-Hub-Token" in headers(), false);
  store.hubToken.value = "";
});

test("rows that are left out and a small number of held-out examples are shown", async () => {
  responses.datasets = {
    ...REPORT,
    n_pairs: 398,
    n_rows: 400,
    n_skipped: 6,
    skipped: ["row 7 has no target"],
    n_normalized: 3,
    held_out_warning: "only 5 examples are held out",
  };
  await read();
  assert.equal(text(".left-out"), "6 of 400 rows are left out:Row 7 has no target.And 5 more.");
  assert.equal(text(".held-out-warning"), "Only 5 examples are held out.");
  assert.match(text(".counts"), /normalized3 examples written in another Unicode form/);
  assert.equal(text(".use"), "Use these 398 examples");
});

test("a pasted text is read at once", async () => {
  const area = box.querySelector("textarea");
  area.value = "ab\tba";
  const event = new Event("input", { bubbles: true });
  area.dispatchEvent(Object.assign(event, { inputType: "insertFromPaste" }));
  await settle();
  assert.deepEqual(actions(), ["upload"]);
});

test("the dataset of the form is shown, and listed with those of the server", async () => {
  const stored = {
    sha256: "c1",
    name: "words.csv",
    n_pairs: 1,
    vocab_size: 9,
    vocabulary: [..."abcdefgh"],
    bytes: 10,
  };
  Object.assign(replies, { show: REPORT, list: { datasets: [stored] } });
  store.owner.value = "o";
  form.values = { dataset_sha256: "c1" };
  await settle();
  assert.equal(text(".use"), "Dataset in use");
  assert.equal(text(".open-dataset"), "words.csv 1 example of a b c d e f g h …");
  replies.list = { datasets: [] };
  await click(".stored li .pg-button");
  assert.equal(box.querySelector(".stored").hidden, true);
});
