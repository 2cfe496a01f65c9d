// Drawing.
// Up to eight curves: the accent colour for the open run, then the palette of Okabe and Ito for
// overlays. The colours differ in light and dark mode, and every second curve is dashed as well.
import { setUpCanvas } from "../shared/canvas.js";
import { cssVariable } from "../shared/palette.js";
import { formatCount, formatNumber, formatPercent } from "../shared/format.js";
import { state } from "./state.js";
import { overlays, TERMINAL_STATUSES } from "./status.js";
import { $ } from "./view.js";

export const SERIES_COLORS = [
  ["#d98200", "#ffb000"],
  ["#00795a", "#2fd6a5"],
  ["#b8478c", "#f08fc4"],
  ["#c0392b", "#ff7b61"],
  ["#6b7280", "#c3c8d1"],
  ["#7a5c00", "#d9c34a"],
  ["#5b3fc4", "#b7a4ff"],
];
export const overlayColor = (place) =>
  SERIES_COLORS[place][document.body.classList.contains("dark") ? 1 : 0];

// Minimum and maximum per pixel column: the cost depends on the width of the canvas only.
function decimate(values, x, width) {
  if (values.length <= 2 * width) return values;
  const columns = new Map();
  for (const v of values) {
    const at = Math.floor(x(v[0])),
      extremes = columns.get(at);
    if (!extremes) columns.set(at, [v, v]);
    else {
      if (v[1] < extremes[0][1]) extremes[0] = v;
      if (v[1] > extremes[1][1]) extremes[1] = v;
    }
  }
  return [...columns.values()].flatMap(([a, b]) => (a[0] < b[0] ? [a, b] : a === b ? [a] : [b, a]));
}

// The last step of the axis: it grows in a few jumps, not with every point.
export function axisMaxStep() {
  const step = state.lastResponse.step || 1,
    own = (() => {
      if (TERMINAL_STATUSES.includes(state.status)) return Math.max(step, 1);
      if (state.lastResponse.max_steps <= 1000) return Math.max(step, state.lastResponse.max_steps);
      let maxValue = 1000;
      while (maxValue < step) maxValue *= String(maxValue)[0] === "2" ? 2.5 : 2;
      return Math.max(step, Math.min(maxValue, state.lastResponse.max_steps || maxValue));
    })();
  return Math.max(
    own,
    ...[...overlays.values()].map(({ curve: c }) =>
      c && c.steps.length ? c.steps[c.steps.length - 1] : 0,
    ),
  );
}
const CHART_LEFT = 44,
  CHART_RIGHT = 8; // the timeline below uses the same margins

function paintChart(canvas, series, range, ticks, label) {
  const [c, width, height] = setUpCanvas(canvas);
  const left = CHART_LEFT,
    right = width - CHART_RIGHT,
    top = 8,
    bottom = height - 20,
    maxStep = axisMaxStep();
  const x = (step) => left + ((right - left) * step) / maxStep,
    y = (v) => bottom - ((bottom - top) * (v - range[0])) / (range[1] - range[0] || 1);
  c.font = "12px " + cssVariable("--font");
  c.textBaseline = "middle";
  c.lineWidth = 1;
  for (const [value, text] of ticks) {
    c.strokeStyle = cssVariable("--pg-grid");
    c.beginPath();
    c.moveTo(left, Math.round(y(value)) + 0.5);
    c.lineTo(right, Math.round(y(value)) + 0.5);
    c.stroke();
    c.fillStyle = cssVariable("--pg-quiet-text");
    c.textAlign = "right";
    c.fillText(text, left - 6, y(value));
  }
  c.textBaseline = "alphabetic";
  c.textAlign = "left";
  c.fillText("0", left, height - 4);
  c.textAlign = "right";
  c.fillText("step " + maxStep.toLocaleString("en"), right, height - 4);
  // Steps at which the learning rate was changed during training.
  for (const [step, setting] of state.lastResponse.changes || []) {
    if (setting !== "learning_rate" || !step) continue;
    c.strokeStyle = cssVariable("--pg-quiet");
    c.setLineDash([2, 3]);
    c.beginPath();
    c.moveTo(x(step), top);
    c.lineTo(x(step), bottom);
    c.stroke();
    c.setLineDash([]);
  }
  c.save();
  c.beginPath();
  c.rect(left - 4, top - 5, right - left + 8, bottom - top + 10);
  c.clip();
  for (const { values, colour: color, dots, dashed } of series) {
    c.strokeStyle = c.fillStyle = color;
    c.lineWidth = 1.6;
    c.lineJoin = "round";
    c.setLineDash(dashed ? [6, 3] : []);
    c.beginPath();
    decimate(values, x, right - left).forEach(([step, v], i) =>
      i ? c.lineTo(x(step), y(v)) : c.moveTo(x(step), y(v)),
    );
    c.stroke();
    c.setLineDash([]);
    if ((dots && values.length <= 40) || values.length === 1)
      for (const [step, v] of values) {
        c.beginPath();
        c.arc(x(step), y(v), 2, 0, 7);
        c.fill();
      }
  }
  c.restore();
  for (const [step, color] of [
    [state.viewedStep, "--pg-accent"],
    [state.hoverStep, "--pg-mark"],
  ]) {
    if (step === null) continue;
    c.strokeStyle = cssVariable(color);
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(Math.round(x(step)) + 0.5, top);
    c.lineTo(Math.round(x(step)) + 0.5, bottom);
    c.stroke();
  }
  canvas.toStep = (px) => Math.round(((px - left) / (right - left)) * maxStep);
  if (!state.pointCount && !TERMINAL_STATUSES.includes(state.status)) {
    c.fillStyle = cssVariable("--pg-quiet-text");
    c.textAlign = "center";
    c.fillText(label, (left + right) / 2, (top + bottom) / 2);
  }
}

export function paintCharts() {
  const log = $(".log").checked && state.selectedMetric !== "learning_rate",
    scale = log ? (v) => Math.log10(Math.max(v, 1e-9)) : (v) => v;
  const line = (c) => c.steps.map((step, i) => [step, scale(c[state.selectedMetric][i])]);
  const overlaid = [...overlays.values()].filter((o) => o.curve);
  const series = [
    ...overlaid.map((o) => ({
      values: line(o.curve),
      colour: overlayColor(o.place),
      dashed: o.place % 2,
    })),
    { values: line(state.metricCurve), colour: cssVariable("--pg-accent") },
  ];
  let low = log ? Infinity : 0,
    high = -Infinity;
  for (const { values } of series)
    for (const [, v] of values) {
      if (v < low) low = v;
      if (v > high) high = v;
    }
  if (high === -Infinity) {
    low = log ? -2 : 0;
    high = log ? 0.5 : state.selectedMetric === "loss" ? 3 : 0.01;
  }
  if (log) low = Math.min(low, high - 1.5);
  const ticks = [];
  if (log)
    for (let e = Math.floor(low); e <= Math.ceil(high); e++) {
      if (e >= low && e <= high + 0.1)
        ticks.push([e, e < -3 ? "1e" + e : String(+(10 ** e).toPrecision(1))]);
    }
  if (log && ticks.length < 3)
    for (const [e] of [...ticks, [Math.floor(low)]]) {
      const v = e + Math.log10(3);
      if (v >= low && v <= high + 0.1) ticks.push([v, formatNumber(3 * 10 ** e)]);
    }
  if (!log) {
    high = high * 1.05 || 1;
    const rough = high / 4,
      ten = 10 ** Math.floor(Math.log10(rough)),
      unit = ten * [1, 2, 5, 10].find((m) => m * ten >= rough);
    for (let v = 0; v <= high; v += unit) ticks.push([v, formatNumber(+v.toPrecision(6))]);
  }
  paintChart(
    $(".loss-chart"),
    series,
    [low - (log ? 0.1 : 0), high + (log ? 0.1 : 0)],
    ticks,
    "the curve appears with the first step",
  );
  const exact = (list) => list.map((s) => [s[0], s[1]]);
  paintChart(
    $(".score-chart"),
    [
      ...(overlaid.length
        ? []
        : [
            {
              values: state.evaluations.map((s) => [s[0], s[2]]),
              colour: cssVariable("--pg-quiet"),
            },
          ]),
      ...overlaid.map((o) => ({
        values: exact(o.curve.evaluations),
        colour: overlayColor(o.place),
        dashed: o.place % 2,
        dots: true,
      })),
      { values: exact(state.evaluations), colour: cssVariable("--pg-accent"), dots: true },
    ],
    [0, 1],
    [
      [0, "0"],
      [0.5, "50 %"],
      [1, "100 %"],
    ],
    "first score after a few steps",
  );
  $(".loss-chart").steps = state.metricCurve.steps; // tests read this property
  $(".legend").style.visibility = overlaid.length ? "hidden" : "";
  const markedStep = state.hoverStep === null ? state.viewedStep : state.hoverStep,
    at =
      markedStep === null
        ? state.metricCurve.steps.length - 1
        : nearestIndex(state.metricCurve.steps, markedStep);
  const atStep = (step) => (markedStep === null ? "" : " at step " + step.toLocaleString("en"));
  $(".loss-value").textContent =
    at >= 0 && state.metricCurve.steps.length
      ? formatNumber(state.metricCurve[state.selectedMetric][at]) +
        atStep(state.metricCurve.steps[at])
      : "";
  const q =
    state.evaluations.length && (markedStep === null || markedStep >= state.evaluations[0][0])
      ? state.evaluations[
          markedStep === null
            ? state.evaluations.length - 1
            : nearestIndex(
                state.evaluations.map((s) => s[0]),
                markedStep,
              )
        ]
      : null;
  $(".score-value").textContent = q ? formatPercent(q[1]) + atStep(q[0]) : "";
  $(".score-value").title = q
    ? "of " + formatCount(q[3], "held-out sequence") + "; token accuracy " + formatPercent(q[2])
    : "";
}
// Return the index of the value nearest to `step` in a sorted list; ties take the later one.
export function nearestIndex(sorted, step) {
  let low = 0,
    high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sorted[middle] <= step) low = middle;
    else high = middle - 1;
  }
  return low + 1 < sorted.length && sorted[low + 1] - step <= Math.abs(step - sorted[low])
    ? low + 1
    : low;
}
