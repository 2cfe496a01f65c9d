import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { canvasCalls, settle } from "./support/dom.js";
import { box, key, mount } from "./support/page.js";
import { html } from "../../playground/ui/static/vendor/preact.js";
import {
  labeledColumns,
  layoutHeatMap,
  maxValue,
} from "../../playground/ui/static/shared/heat_map.js";
import {
  HeatMapView,
  paintScale,
} from "../../playground/ui/static/shared/components/heat_map_view.js";
import { toRows, unpackWeights } from "../../playground/ui/static/shared/attention_weights.js";
import { colorScale, dashOf, resolveColor } from "../../playground/ui/static/shared/palette.js";

const DATA = {
  rows: ["a", "b"],
  columns: ["x", "y", "z"],
  values: [
    [0, 0.5, 1],
    [0.25, null, 0],
  ],
  mask: [
    [true, true, false],
    [true, true, true],
  ],
};
let canvas, onHover, onSelect;
const show = async (data) => {
  canvasCalls.length = 0;
  await mount(
    html`<${HeatMapView} label="Attention" data=${data} onHover=${onHover} onSelect=${onSelect} />`,
  );
  canvas = box.querySelector("canvas");
};

beforeEach(async () => {
  onHover = mock.fn();
  onSelect = mock.fn();
  await show(DATA);
});
const labelOf = () => canvas.getAttribute("aria-label").replace("Attention. ", "");
const labels = () => canvasCalls.filter(([name]) => name === "fillText").map(([, [text]]) => text);

test("columns have labels if neighbors fit, and the last one always has", () => {
  const widthOf = (name) => 7 * name.length;
  assert.deepEqual(labeledColumns(["SOS", "5", "1", "4"], 26, widthOf), [0, 1, 2, 3]);
  const steps = ["0", "10", "20", "50", "100", "200"];
  assert.deepEqual(labeledColumns(steps, 20, widthOf), [0, 2, 5]);
  assert.deepEqual(labeledColumns(steps, 1, widthOf), [0, 5]);
  assert.deepEqual(labeledColumns(["a"], 1, widthOf), [0]);
  const sequence = [..."5555555555", "EOS"]; // whose label is wider than its column
  assert.deepEqual(labeledColumns(sequence, 10, widthOf), [0, 2, 4, 6, 10]);
});

const point = async (kind, row, column) => {
  const { left, top, cellWidth, cellHeight } = layoutHeatMap(DATA, canvas.clientWidth);
  const event = new MouseEvent(kind, { bubbles: true });
  Object.defineProperties(event, {
    offsetX: { value: left + (column + 0.5) * cellWidth },
    offsetY: { value: top + (row + 0.5) * cellHeight },
  });
  canvas.dispatchEvent(event);
  await settle();
};

test("each cell is a pixel, and a cell without a value is transparent and hatched", () => {
  const { data } = canvasCalls.find(([name]) => name === "putImageData")[1][0];
  assert.deepEqual([...data.slice(0, 4)], [255, 255, 255, 255]);
  assert.equal(data[4 * 2 + 3], 0, "masked");
  assert.equal(data[4 * 4 + 3], 0, "missing");
  assert.equal(data[4 * 5 + 3], 255);
  assert.ok(canvasCalls.some(([name]) => name === "clip"));
  assert.deepEqual(labels(), ["x", "y", "z", "a", "b"]);
});

test("invisible characters and whole emoji are in the labels", async () => {
  const columns = ["\u200b", "👋".repeat(20)];
  await show({ rows: ["a"], columns, values: [[0.5, 1]] });
  assert.deepEqual(labels(), ["U+200B", "👋".repeat(10), "a"]);
  await key(canvas, "ArrowRight");
  assert.equal(labelOf(), "a, U+200B: 0.500");
});

test("the pointer reports a cell, and a click selects it", async () => {
  await point("pointermove", 0, 1);
  assert.deepEqual([labelOf(), onHover.mock.calls.at(-1).arguments], ["a, y: 0.500", [[0, 1]]]);
  await point("pointermove", 1, 1);
  assert.equal(labelOf(), "b, y: no value");
  await point("pointermove", 0, 2);
  assert.match(labelOf(), /^a cannot attend to z here/);
  await point("click", 1, 2);
  await point("click", 7, 2);
  assert.deepEqual(
    onSelect.mock.calls.map((call) => call.arguments),
    [[1, 2]],
  );
  canvas.dispatchEvent(new Event("pointerleave"));
  await settle();
  assert.deepEqual(onHover.mock.calls.at(-1).arguments, [null]);
});

test("arrow keys move within the map, and Enter selects", async () => {
  await key(canvas, "Enter");
  assert.equal(onSelect.mock.callCount(), 0);
  for (const each of ["ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowRight"])
    await key(canvas, each);
  await key(canvas, "Enter");
  assert.deepEqual(onSelect.mock.calls[0].arguments, [0, 1]);
  assert.equal(labelOf(), "a, y: 0.500");
  canvas.dispatchEvent(new Event("blur"));
  await settle();
  assert.equal(labelOf(), "2 rows × 3 columns");
});

test("a smaller map loses a cursor outside of it", async () => {
  await key(canvas, "ArrowRight");
  await key(canvas, "ArrowDown");
  assert.match(labelOf(), /^b, x/);
  await show({ rows: ["a"], columns: ["x"], values: [[0.5]], selected: [0, 0] });
  assert.equal(labelOf(), "1 rows × 1 columns");
});

test("long names of columns are vertical, and crowded labels are thinned", async () => {
  const columns = Array.from({ length: 60 }, (_, i) => "column " + i);
  await show({ rows: ["a"], columns, values: [columns.map(() => 0.1)] });
  assert.ok(canvasCalls.some(([name]) => name === "rotate"));
  assert.ok(labels().length < 40);
});

test("the strongest color is 1, the largest signed value or the given one", () => {
  assert.equal(maxValue(DATA), 1);
  assert.equal(maxValue({ ...DATA, isSigned: true, values: [[-3, 2, null]] }), 3);
  assert.equal(maxValue({ ...DATA, max: 7 }), 7);
});

test("colors depend on the theme and differ for both signs", () => {
  assert.deepEqual(colorScale(1)(0), [255, 255, 255]);
  assert.deepEqual(colorScale(1, false, "dark")(0), [24, 27, 33]);
  assert.deepEqual(colorScale(2, true)(-2), [178, 82, 0]);
  assert.deepEqual(colorScale(2, true)(9), [24, 90, 160]);
  assert.deepEqual(colorScale(0)(1), colorScale(1)(1));
  assert.equal(resolveColor("#123456"), "#123456");
  assert.equal(resolveColor(9), resolveColor(1));
  assert.notDeepEqual(dashOf({ color: 9 }), dashOf({ color: 1 }));
  assert.deepEqual(dashOf({ color: "--pg-accent" }), []);
  assert.deepEqual(dashOf({ color: "--pg-accent", dash: 1 }), [7, 3]);
});

test("the scale is drawn", () => {
  canvasCalls.length = 0;
  paintScale(canvas, 1, true);
  assert.ok(canvasCalls.some(([name]) => name === "fillRect"));
});

test("a change of the theme draws again until the map is removed", async () => {
  canvasCalls.length = 0;
  document.documentElement.classList.add("dark");
  await settle();
  assert.ok(canvasCalls.length > 0);
  await mount(null);
  canvasCalls.length = 0;
  document.documentElement.classList.remove("dark");
  await settle();
  assert.equal(canvasCalls.length, 0);
});

test("weights are thousandths in two bytes, head after head", () => {
  const weights = btoa(
    String.fromCharCode(...new Uint8Array(new Int16Array([0, 500, 1000, -1]).buffer)),
  );
  const [[first, second]] = unpackWeights({ weights, layers: 1, heads: 2 });
  assert.deepEqual(
    [[...first], [...second]],
    [
      [0, 500],
      [1000, -1],
    ],
  );
  assert.deepEqual(toRows([0, 500, 1000, 250], 2), [
    [0, 0.5],
    [1, 0.25],
  ]);
});
