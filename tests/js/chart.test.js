import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { canvasCalls, makeBox, press, settle } from "./support/dom.js";
import { Chart } from "../../playground/ui/static/shared/chart.js";
import {
  alignColumns,
  listColumns,
  nearestValue,
  thin,
  toTable,
} from "../../playground/ui/static/shared/chart_data.js";
import { nearestIndex } from "../../playground/ui/static/shared/store.js";
import { formatNumber } from "../../playground/ui/static/shared/format.js";
import {
  buildPlotOptions,
  formatTicks,
  logTicks,
  toPng,
  yRange,
} from "../../playground/ui/static/shared/chart_options.js";

const LOSS = {
  key: "a",
  label: "this run",
  x: [1, 2, 3, 4],
  y: [4, 2, 1, 0.5],
  color: "--pg-accent",
};
const OTHER = { key: "b", label: "other", x: [2, 4, 6], y: [3, 2, 1], color: 1 };
const BAND = { ...OTHER, low: [2, 1, 0], high: [4, 3, 2] };
let chart, box;

beforeEach(() => {
  chart?.destroy();
  box = makeBox();
  chart = new Chart(box, { label: "Loss" });
  canvasCalls.length = 0;
});

const legend = () =>
  [...box.querySelectorAll(".pg-legend-line")].map((each) =>
    each.textContent.trim().replace(/\s+/g, " "),
  );
const plotBox = () => box.querySelector(".pg-chart-plot");

function change(chart, options) {
  Object.assign(chart.options, options);
  chart.setData(chart.series, chart.markers);
}

test("a long line is drawn with its extremes, and the table has every point", () => {
  const n = 20_000,
    x = Array.from({ length: n }, (_, i) => i),
    y = x.map((i) => (i === 7001 ? 9 : i === 12_003 ? -9 : Math.sin(i)));
  chart.setData([{ ...LOSS, x, y }]);
  const [drawn, values] = chart.data;
  assert.ok(drawn.length <= 1001);
  assert.deepEqual(
    [drawn[0], drawn.at(-1)].map((at) => Math.floor(at / 40)),
    [0, 499],
  );
  assert.deepEqual([Math.max(...values), Math.min(...values)], [9, -9]);
  assert.equal(toTable([{ ...LOSS, x, y }], "step").rows.length, n);
});

test("a line that is part of another one has no entry of its own in the legend", () => {
  const part = { ...OTHER, key: "c", label: "other, held-out", partOf: "b" };
  chart.setData([LOSS, OTHER, part]);
  assert.deepEqual(legend(), ["this run 0.5", "other 1"]);
});

test("series with other positions are aligned, and a logarithm has no values below 0", () => {
  const columns = listColumns([LOSS, OTHER]);
  const [x, a, b] = alignColumns(columns, {});
  assert.deepEqual(x, [1, 2, 3, 4, 6]);
  assert.deepEqual([...a], [4, 2, 1, 0.5, undefined]);
  assert.deepEqual([...b], [undefined, 3, undefined, 2, 1]);
  const zero = listColumns([{ ...LOSS, y: [1, 0, -1, 2] }]);
  assert.deepEqual([...alignColumns(zero, { isLog: true })[1]], [1, null, null, 2]);
});

test("a band has its limits below its line", () => {
  const kinds = listColumns([LOSS, BAND]).map(({ series, kind }) => series.key + " " + kind);
  assert.deepEqual(kinds, ["a line", "b high", "b low", "b line"]);
});

test("the nearest value and position are found", () => {
  assert.equal(nearestValue([undefined, null, 5, 7], 0), 5);
  assert.equal(nearestValue([undefined], 0), null);
  assert.equal(nearestIndex([1, 5, 9], 4), 1);
  assert.equal(nearestIndex([1, 5, 9], 3), 1);
  assert.equal(nearestIndex([1, 5, 9], 100), 2);
});

test("a table has a row per position", () => {
  assert.deepEqual(toTable([LOSS, BAND], "step"), {
    header: ["step", "this run", "other (high)", "other (low)", "other"],
    rows: [
      [1, 4, null, null, null],
      [2, 2, 4, 2, 3],
      [3, 1, null, null, null],
      [4, 0.5, 3, 1, 2],
      [6, null, 2, 0, 1],
    ],
  });
  assert.deepEqual(toTable([], "step"), { header: ["step"], rows: [] });
  assert.deepEqual(thin([1, 2, 3, 4, 5], 3), [1, 3, 5]);
});

test("new values keep the plot, and a new line builds another", async () => {
  chart.setData([LOSS]);
  await settle();
  const { plot } = chart;
  chart.setData([{ ...LOSS, x: [1, 2, 3, 4, 5], y: [4, 2, 1, 0.5, 0.25] }]);
  await settle();
  assert.equal(chart.plot, plot);
  assert.ok(canvasCalls.some(([name]) => name === "stroke"));
  chart.setData([LOSS, OTHER]);
  assert.notEqual(chart.plot, plot);
});

test("arrow keys move the cursor and report the values", async () => {
  const onCursor = mock.fn(),
    onSelect = mock.fn();
  Object.assign(chart.options, { onCursor, onSelect });
  chart.setData([LOSS, OTHER]);
  await settle();
  const live = box.querySelector("[aria-live]");
  press(plotBox(), "ArrowLeft");
  await settle();
  assert.equal(live.textContent, "Loss, step 6: this run 0.5; other 1");
  press(plotBox(), "Home");
  await settle();
  assert.equal(live.textContent, "Loss, step 1: this run 4; other 3");
  assert.deepEqual(legend(), ["this run 4", "other 3"]);
  press(plotBox(), "ArrowRight");
  press(plotBox(), "Enter");
  assert.deepEqual(onSelect.mock.calls.at(-1).arguments, [2]);
  press(plotBox(), "End");
  assert.deepEqual(onCursor.mock.calls.at(-1).arguments, [6]);
  plotBox().dispatchEvent(new Event("blur"));
  await settle();
  assert.deepEqual(onCursor.mock.calls.at(-1).arguments, [null]);
  assert.equal(press(plotBox(), "a"), true, "other keys keep their effect");
});

test("a click selects the position at the cursor", async () => {
  const onSelect = mock.fn();
  change(chart, { onSelect });
  chart.setData([LOSS]);
  await settle();
  const { over } = chart.plot,
    clientX = Math.round(chart.plot.valToPos(3, "x"));
  const send = (kind) => over.dispatchEvent(new MouseEvent(kind, { clientX, clientY: 20 }));
  chart.setCursor(2);
  await settle();
  send("click");
  assert.equal(onSelect.mock.callCount(), 0);
  send("mousemove");
  send("mousedown");
  send("mouseup");
  await settle();
  send("click");
  assert.deepEqual(onSelect.mock.calls[0].arguments, [3]);
});

test("the axes have margins, fixed limits and most of a decade", () => {
  chart.options.isLog = false;
  assert.deepEqual(yRange(chart, 0, 10), [-0.5, 10.5]);
  assert.deepEqual(yRange(chart, null, null), [0, 1]);
  chart.options.yRange = [0, null];
  assert.deepEqual(yRange(chart, 2, 2), [0, 2.1]);
  chart.options.isLog = true;
  const [low, high] = yRange(chart, 0.9, 1);
  assert.ok(high / low > 6 && high > 1);
  assert.deepEqual(yRange(chart, null, null), [0.01, 1]);
  chart.options.xRange = [0, 100];
  assert.deepEqual(chart.xLimits(), [0, 100]);
});

test("a logarithmic chart with bands, markers and a shaded part is drawn", async () => {
  change(chart, { isLog: true, shaded: [1, 2], syncKey: "all" });
  chart.setData([{ ...LOSS, hasPoints: true }, BAND], [{ x: 3, label: "99 %" }, { x: 100 }]);
  await settle();
  const texts = canvasCalls.filter(([name]) => name === "fillText").map(([, [text]]) => text);
  assert.ok(texts.includes("99 %"));
  assert.ok(canvasCalls.some(([name]) => name === "fillRect"));
  assert.ok(canvasCalls.some(([name]) => name === "fill"));
});

test("a chart without data has a text instead", () => {
  chart.setData([]);
  assert.equal(box.querySelector(".pg-chart-empty").textContent, chart.options.emptyText);
  assert.match(plotBox().getAttribute("aria-label"), /^Loss: no values yet/);
  press(plotBox(), "ArrowLeft");
  chart.setData([LOSS]);
  assert.equal(box.querySelector(".pg-chart-empty").textContent, "");
});

test("a hidden tab builds the plot when it has a size, and a resize keeps it", async () => {
  let width = 0;
  Object.defineProperty(chart.plotBox, "clientWidth", { get: () => width });
  chart.setData([LOSS]);
  assert.equal(chart.plot, null);
  chart.fit();
  width = 400;
  chart.fit();
  const { plot } = chart;
  assert.equal(plot.width, 400);
  width = 500;
  chart.fit();
  assert.equal(chart.plot, plot);
  assert.equal(plot.width, 500);
});

test("a change of the theme draws again", async () => {
  chart.setData([OTHER]);
  await settle();
  canvasCalls.length = 0;
  document.documentElement.classList.add("dark");
  await settle();
  assert.ok(canvasCalls.length > 0);
  assert.match(box.querySelector(".pg-legend line").getAttribute("stroke"), /ffb000/);
  document.documentElement.classList.remove("dark");
});

test("the picture has the title, the names of the lines and the address", async () => {
  assert.equal(await toPng(chart), null);
  chart.setData([LOSS, OTHER]);
  await settle();
  canvasCalls.length = 0;
  const blob = await toPng(chart);
  assert.equal(blob.type, "image/png");
  const texts = canvasCalls.filter(([name]) => name === "fillText").map(([, [text]]) => text);
  assert.deepEqual(texts, ["Loss", "this run", "other", location.host + location.pathname]);
});

test("a logarithmic axis has few ticks for any limits", () => {
  assert.deepEqual(logTicks(0.00437, 3.3), [0.01, 0.1, 1]);
  assert.deepEqual(logTicks(0.03, 1.2), [0.05, 0.1, 0.2, 0.5, 1]);
  assert.deepEqual(logTicks(1e-5, 1e-3), [1e-5, 1e-4, 1e-3]);
});

test("the ticks of an axis of integers are integers", () => {
  const increments = () => buildPlotOptions(chart).axes[0].incrs;
  assert.deepEqual(increments().slice(0, 5), [1, 2, 5, 10, 20]);
  chart.options.formatX = String;
  assert.equal(increments(), undefined);
});

test("the ticks of an axis are all plain numbers, or all have an exponent", () => {
  assert.deepEqual(formatTicks([0.001, 0.1, null, 10], formatNumber), ["0.001", "0.1", "", "10"]);
  assert.deepEqual(formatTicks([0, 2e-4, 0.001, 1], formatNumber), ["0", "2e-4", "1e-3", "1e0"]);
  assert.deepEqual(formatTicks([0, 1e-4], String), ["0", "0.0001"]);
});

test("without a cursor the legend has the values at the resting position", async () => {
  change(chart, { restingX: 2 });
  chart.setData([LOSS]);
  await settle();
  assert.deepEqual(legend(), ["this run 2"]);
  assert.match(plotBox().getAttribute("aria-label"), /^Loss, step 2: this run 2/);
});
