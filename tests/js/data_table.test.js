import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { enter } from "./support/dom.js";
import { box, click, mount } from "./support/page.js";
import { Chart } from "../../playground/ui/static/shared/chart.js";
import { DataTable, sortRows } from "../../playground/ui/static/shared/components/data_table.js";
import { LineChart } from "../../playground/ui/static/shared/components/line_chart.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const ROWS = [
  { name: "copy", parameters: 80, best: 0.5 },
  { name: "reverse", parameters: 200, best: null },
  { name: "add", parameters: 90, best: 1 },
];
const COLUMNS = [
  { key: "name", label: "model" },
  { key: "parameters", label: "parameters", isNumber: true },
  { key: "best", label: "exact match", isNumber: true, render: (row) => row.best ?? "–" },
  {
    key: "link",
    label: "link",
    value: (row) => "=" + row.name,
    isSortable: false,
    isOptional: true,
  },
];
let files;

beforeEach(() => {
  files = [];
  mock.method(URL, "createObjectURL", (blob) => (files.push(blob), "blob:x"));
  mock.method(URL, "revokeObjectURL", () => {});
});
const names = () =>
  [...box.querySelectorAll("tbody tr")].map((row) => row.cells[0].textContent.trim());
const heading = (label) =>
  [...box.querySelectorAll("th button")].find((each) => each.textContent.trim() === label);

test("missing values are last in both directions", () => {
  const order = (direction) => sortRows(ROWS, COLUMNS[2], direction).map((row) => row.name);
  assert.deepEqual(order("ascending"), ["copy", "add", "reverse"]);
  assert.deepEqual(order("descending"), ["add", "copy", "reverse"]);
});

test("a heading sorts, and sorts the other way after a second click", async () => {
  await mount(
    html`<${DataTable}
      caption="Models"
      columns=${COLUMNS}
      rows=${ROWS}
      rowKey=${(row) => row.name}
    />`,
  );
  assert.deepEqual(names(), ["copy", "reverse", "add"]);
  await click(heading("parameters"));
  assert.deepEqual(names(), ["reverse", "add", "copy"]);
  assert.equal(box.querySelector("[aria-sort]").getAttribute("aria-sort"), "descending");
  await click(heading("parameters"));
  assert.deepEqual(names(), ["copy", "add", "reverse"]);
  await click(heading("model"));
  assert.deepEqual(names(), ["add", "copy", "reverse"]);
  assert.equal(box.querySelectorAll("[aria-sort]").length, 1);
  assert.equal(heading("link"), undefined);
});

test("a table has its caption and its actions", async () => {
  const actions = (row) => html`<button type="button">Open ${row.name}</button>`;
  await mount(
    html`<${DataTable}
      caption="Models"
      columns=${COLUMNS}
      rows=${ROWS}
      sortKey="parameters"
      actions=${actions}
      rowKey=${(row) => row.name}
    />`,
  );
  assert.equal(box.querySelector("[role=region]").getAttribute("aria-label"), "Models");
  assert.match(box.querySelector("tbody tr").textContent, /Open reverse/);
});

test("an empty table has a sentence instead", async () => {
  await mount(
    html`<${DataTable}
      caption="Models"
      columns=${COLUMNS}
      rows=${[]}
      rowKey=${String}
      emptyText="No models yet."
    />`,
  );
  assert.equal(box.textContent.trim(), "No models yet.");
});

test("a chart has a table, files and a logarithmic axis", async () => {
  const x = Array.from({ length: 120 }, (_, i) => i + 1);
  const series = [{ key: "a", label: "this run", x, y: x.map((i) => 1 / i), color: 0 }];
  const options = { label: "Training loss" };
  await mount(html`<${LineChart} series=${series} options=${options} hasLog />`);
  const button = (label) =>
    [...box.querySelectorAll("figcaption button")].find((each) => each.textContent === label);
  await click(button("Table"));
  assert.equal(box.querySelectorAll("tbody tr").length, 100);
  assert.match(box.textContent, /Show all 120 rows/);
  button("CSV").click();
  assert.match(await files[0].text(), /^step,this run\n1,1\n2,0.5\n/);
  await click(button("PNG"));
  assert.equal(files[1].type, "image/png");
  enter(box.querySelector("[type=checkbox]"), true);
  assert.match(
    box.querySelector(".pg-chart-plot").getAttribute("aria-label"),
    /^Training loss, latest/,
  );
});

test("a chart ends with its component", async () => {
  await mount(html`<${LineChart} series=${[]} options=${{ label: "Loss" }} />`);
  const destroy = mock.method(Chart.prototype, "destroy");
  await mount(null);
  assert.equal(destroy.mock.callCount(), 1);
});
