// What the Inspect tab computes without the server.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { beforeEach, test } from "node:test";

import { box, button, click, mount, sent, serve, text, texts, waitFor } from "./support/page.js";
import "./support/worker.js";
import { measureLocally } from "../../playground/ui/static/inspect/local_views.js";
import { attentionView, listAblations } from "../../playground/ui/static/inspect/engine_views.js";
import { ablationSpec } from "../../playground/ui/static/inspect/ablation.js";
import { attentionSpec } from "../../playground/ui/static/inspect/attention.js";
import { refresh } from "../../playground/ui/static/inspect/requests.js";
import { hasSection, Sections, selectView } from "../../playground/ui/static/inspect/sections.js";
import { openSection, results, VIEWS } from "../../playground/ui/static/inspect/state.js";
import { unsupported } from "../../playground/ui/static/shared/local_model.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const FOLDER = new URL("../data/engine/", import.meta.url),
  golden = JSON.parse(readFileSync(new URL("default.json", FOLDER), "utf8")),
  bytes = readFileSync(new URL("default.safetensors", FOLDER)),
  description = {
    architecture: golden.architecture,
    model: golden.model,
    task: "reverse",
    symbols: [..."0123456789"],
    n_symbols: 10,
    max_tokens: 6,
    lengths: [1, 5],
    examples: golden.cases.map(({ source, labels }) => ({ source, labels })),
  },
  OF_SERVER = { prediction: ["0"], target: ["0"], note: "of the server", step: 4, views: [] };

Object.assign(VIEWS, {
  attention: attentionSpec,
  ablation: ablationSpec,
  trace: { subView: "numbers" },
});
let count = 0; // of opened models: each test has one of its own
beforeEach(() => {
  store.tab.value = "inspect";
  serve({
    "runs/model": description,
    "inspect/view": { ...OF_SERVER, error: "of the server" },
    weights: () => new Response(bytes, { headers: { "X-Step": "4" } }),
  });
  store.openModel(`checkpoint:${++count}`);
  store.weightSeries.value = 7;
  store.latestStep.value = 4;
  store.input.value = null;
  results.value = {};
  openSection.value = "attention";
});
/** The rows of the measured ablations with the selected method. */
const measuredRows = () => ablationSpec.exportData({}).measured.flatMap(({ rows }) => rows);
const routes = () => sent.map(([route]) => route).toSorted();

test("the server answers until the first key, and then the page", async () => {
  await refresh(0);
  assert.deepEqual(routes(), ["inspect/view"]);
  store.setInput("1 2");
  await refresh(0);
  assert.deepEqual(routes(), ["inspect/view", "runs/model", "weights"]);
  const { attention } = results.value;
  assert.equal(attention.step, 4);
  assert.deepEqual(attention.target, ["2", "1", "EOS"]);
  assert.deepEqual(attention.columns, ["1", "2", "EOS"]);
  assert.equal(attention.weights.length, attention.layers);
  assert.equal(attention.weights[0][0].length, attention.rows.length * attention.columns.length);
  store.setInput("3");
  await refresh(0);
  assert.equal(sent.length, 3);
  assert.equal(results.value.attention.columns[0], "3");
});

test("a text that is no input goes to the server, which explains why", async () => {
  store.setInput("x");
  await refresh(0);
  assert.ok(routes().includes("inspect/view"));
});

test("a model that does not run goes to the server", async () => {
  serve({
    "runs/model": { ...description, architecture: "recurrent" },
    "inspect/view": { ...OF_SERVER, weights: "", layers: 0, heads: 0, rows: [], columns: [] },
    weights: () => new Response(bytes, { headers: { "X-Step": "4" } }),
  });
  store.setInput("1 2");
  await refresh(0);
  assert.equal(results.value.attention.note, "of the server");
  assert.equal(unsupported.value, store.model.value);
  assert.ok(!hasSection("ablation"));
});

test("ablations are measured without the server, and open in the diagram", async () => {
  await mount(html`<${Sections} />`);
  selectView("ablation");
  await waitFor(() => text(".ablation-message").startsWith("Intact model"));
  assert.ok(!routes().includes("inspect/view"));
  const n = (await componentsOf()).length,
    rows = texts(".ablation-table tbody tr").length;
  assert.ok([n, n + 1].includes(rows)); // with all heads of little effect
  assert.match(text(".ablation-message"), /over 2 held-out sequences of 1 to 5 tokens\.$/);
  const increases = measuredRows().map((row) => row.log_probability);
  assert.deepEqual(
    increases,
    increases.toSorted((a, b) => a - b),
  );
  await click(
    [...box.querySelectorAll(".ablation-table tbody button")].find((each) =>
      each.textContent.includes("cross-attention, layer 2, head 1"),
    ),
  );
  assert.equal(store.tab.value, "train");
  assert.deepEqual(store.readView(), { off: "cross.2.1", means: "mean" });
});

test("a resampled component has another effect, and opens no diagram", async () => {
  await mount(html`<${Sections} />`);
  selectView("ablation");
  await waitFor(() => text(".ablation-message").startsWith("Intact model"));
  const before = measuredRows().map((row) => row.log_probability);
  await click(button("resample"));
  await waitFor(() => measuredRows().length > 0);
  const rows = measuredRows();
  assert.ok(!rows.some(({ name }) => name.endsWith("positions")));
  assert.ok(rows.some((row) => !before.includes(row.log_probability)));
  assert.equal(box.querySelector(".ablation-table tbody button"), null);
  ablationSpec.restoreOptions({ method: "mean" });
});

test("the table of ablations grows row by row", async () => {
  const sizes = /** @type {number[]} */ ([]);
  const table = await measureLocally({ method: "zero", set: "groups" }, ({ total, data }) => {
    assert.ok(data.rows.length < total);
    sizes.push(data.rows.length);
  });
  assert.deepEqual(sizes, [...table.rows.keys()]);
});

test("an ablation needs the examples of the model", async () => {
  serve({
    "runs/model": { ...description, examples: [] },
    "inspect/view": { error: "of the server" },
    weights: () => new Response(bytes, { headers: { "X-Step": "4" } }),
  });
  await mount(html`<${Sections} />`);
  selectView("ablation");
  await waitFor(() => text(".ablation-message") === "Of the server.");
});

async function componentsOf() {
  const { buildModel } = await import("../../playground/ui/static/engine/model.js"),
    { readSafetensors } = await import("../../playground/ui/static/engine/safetensors.js"),
    tensors = readSafetensors(new Uint8Array(bytes).buffer);
  return buildModel(golden.architecture, golden.model, tensors).components();
}

test("ablations have the names of the server, by set", async () => {
  const components = await componentsOf(),
    names = (set, method = "mean") =>
      listAblations(components, set, method).map(({ name }) => name);
  assert.ok(names("single").includes("decoder feed-forward, layer 2"));
  assert.ok(names("groups").includes("cross-attention, layer 1"));
  assert.ok(names("groups").includes("encoder feed-forward, every layer"));
  assert.ok(!names("keep").some((name) => name.includes("feed-forward")));
  const [first] = listAblations(components, "keep", "mean"),
    heads = components.filter(({ head }) => head !== null);
  assert.equal(first.off.length, heads.length - 1);
});

test("the attention of a causal model is its only view", () => {
  const answer = { attention: { decoder: [[[1000, 0, 400, 600]]] }, prediction: [], target: [] },
    view = attentionView(
      {
        ...answer,
        axes: {
          decoder: [
            ["a", "b"],
            ["a", "b"],
          ],
        },
      },
      "cross",
    );
  assert.equal(view.kind, "decoder");
  assert.deepEqual(view.weights[0][0], [1000, 0, 400, 600]);
  assert.deepEqual(view.views, ["attention"]);
});
