import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { canvasCalls, makeBox, press, settle } from "./support/dom.js";
import {
  HeatMap,
  labeledColumns,
  layoutHeatMap,
  maxValue,
} from "../../playground/ui/static/shared/heat_map.js";
import { paintScale } from "../../playground/ui/static/shared/components/heat_map_view.js";
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
let canvas, map, onHover, onSelect;

beforeEach(() => {
  canvas = document.createElement("canvas");
  makeBox().append(canvas);
  onHover = mock.fn();
  onSelect = mock.fn();
  canvasCalls.length = 0;
  map = new HeatMap(canvas, { label: "Attention", onHover, onSelect });
  map.setData(DATA);
});

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

const pixelsOf = () => canvasCalls.findLast(([name]) => name === "putImageData")[1][0].data;
const point = (kind, row, column) => {
  const { left, top, cellWidth, cellHeight } = layoutHeatMap(DATA, canvas.clientWidth);
  const event = new MouseEvent(kind, { bubbles: true });
  Object.defineProperties(event, {
    offsetX: { value: left + (column + 0.5) * cellWidth },
    offsetY: { value: top + (row + 0.5) * cellHeight },
  });
  canvas.dispatchEvent(event);
};

test("each cell is a pixel, and a cell without a value is transparent and hatched", () => {
  const data = pixelsOf();
  assert.deepEqual([...data.slice(0, 4)], [255, 255, 255, 255]);
  assert.equal(data[4 * 2 + 3], 0, "masked");
  assert.equal(data[4 * 4 + 3], 0, "missing");
  assert.equal(data[4 * 5 + 3], 255);
  assert.ok(canvasCalls.some(([name]) => name === "clip"));
  const labels = canvasCalls.filter(([name]) => name === "fillText").map(([, [text]]) => text);
  assert.deepEqual(labels, ["x", "y", "z", "a", "b"]);
});

test("invisible characters and whole emoji are in the labels", () => {
  const columns = ["\u200b", "👋".repeat(20)];
  map.setData({ rows: ["a"], columns, values: [[0.5, 1]] });
  const labels = canvasCalls.filter(([name]) => name === "fillText").map(([, [text]]) => text);
  assert.deepEqual(labels.slice(-3), ["U+200B", "👋".repeat(10), "a"]);
  assert.equal(map.describeValue(0, 0), "a, U+200B: 0.500");
});

test("the pointer reports a cell, and a click selects it", () => {
  point("pointermove", 0, 1);
  assert.deepEqual(onHover.mock.calls.at(-1).arguments, ["a, y: 0.500", [0, 1]]);
  point("pointermove", 1, 1);
  assert.deepEqual(onHover.mock.calls.at(-1).arguments, ["b, y: no value", [1, 1]]);
  point("pointermove", 0, 2);
  assert.match(onHover.mock.calls.at(-1).arguments[0], /^a cannot attend to z here/);
  point("click", 1, 2);
  point("click", 7, 2);
  assert.deepEqual(
    onSelect.mock.calls.map((call) => call.arguments),
    [[1, 2]],
  );
  canvas.dispatchEvent(new Event("pointerleave"));
  assert.deepEqual(onHover.mock.calls.at(-1).arguments, ["", null]);
});

test("arrow keys move within the map, and Enter selects", () => {
  press(canvas, "Enter");
  assert.equal(onSelect.mock.callCount(), 0);
  for (const key of ["ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowRight"])
    press(canvas, key);
  press(canvas, "Enter");
  assert.deepEqual(onSelect.mock.calls[0].arguments, [0, 1]);
  assert.equal(canvas.getAttribute("aria-label"), "Attention. a, y: 0.500");
  canvas.dispatchEvent(new Event("blur"));
  assert.equal(canvas.getAttribute("aria-label"), "Attention. 2 rows × 3 columns");
});

test("a smaller map loses a cursor outside of it", () => {
  press(canvas, "ArrowRight");
  press(canvas, "ArrowDown");
  map.setData({ rows: ["a"], columns: ["x"], values: [[0.5]], selected: [0, 0] });
  assert.equal(map.cursor, null);
  assert.ok(canvasCalls.filter(([name]) => name === "strokeRect").length >= 2);
});

test("long names of columns are vertical, and crowded labels are thinned", () => {
  const columns = Array.from({ length: 60 }, (_, i) => "column " + i);
  canvasCalls.length = 0;
  map.setData({ rows: ["a"], columns, values: [columns.map(() => 0.1)] });
  const labels = canvasCalls.filter(([name]) => name === "fillText");
  assert.ok(canvasCalls.some(([name]) => name === "rotate"));
  assert.ok(labels.length < 40);
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

test("a change of the theme draws again until that ends", async () => {
  const stop = map.observe();
  canvasCalls.length = 0;
  document.documentElement.classList.add("dark");
  await settle();
  assert.ok(canvasCalls.length > 0);
  stop();
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
