// The curves of the open run and of its overlays: loss, and exact match.
import { html, render } from "../vendor/preact.js";
import { Chart } from "../shared/chart.js";
import { nearestIndex } from "../shared/chart_data.js";
import { setText } from "../shared/dom.js";
import { ChartTools } from "../shared/components/chart_tools.js";
import { formatCount, formatInteger, formatNumber, formatPercent } from "../shared/format.js";
import { resolveColor } from "../shared/palette.js";
import { scheduleRender } from "./rendering.js";
import { state } from "./state.js";
import { METRICS, overlays, TERMINAL_STATUSES } from "./status.js";
import { showStep } from "./timeline.js";
import { $, root } from "./view.js";

export const MAX_OVERLAYS = 7; // as many as the palette has colours besides that of the open run
export const overlayColor = (colorIndex) => resolveColor(colorIndex + 1);
const TARGET_SCORE = 0.99;
const NARROW_PAGE = "(max-width: 700px)";
const EMBED_REST = 256; // pixels of an embedded view besides the two charts
const formatTick = (fraction) => Math.round(100 * fraction) + " %";
let charts = null;
let evaluationSteps = [];
// What the charts display, to leave them alone while it does not change.
let drawn = { lines: "", markers: "" };

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

/** An embedded view fits its frame. */
function chartHeight() {
  if (document.documentElement.dataset.embed)
    return Math.max(90, Math.floor((innerHeight - EMBED_REST) / 2));
  return matchMedia(NARROW_PAGE).matches ? 140 : 124;
}

/** Build the charts in the page. */
export function initCharts() {
  const height = chartHeight(),
    common = {
      height,
      syncKey: "train",
      onSelect: (step) => state.weightSteps.length > 1 && showStep(step),
    };
  charts = {
    loss: new Chart($(".loss-box"), {
      ...common,
      label: "Loss",
      hasXLabel: false,
      emptyText: "The curve appears with the first step.",
      // The cursor of this chart follows that of the other one.
      onCursor: (step) => {
        state.hoverStep = step;
        scheduleRender();
      },
    }),
    score: new Chart($(".score-box"), {
      ...common,
      label: "Exact match",
      emptyText: "The first score appears after a few steps.",
      formatY: formatPercent,
      formatTick,
      legendBox: $(".score-legend"),
      yRange: [0, 1],
    }),
  };
  charts.loss.plotBox.classList.add("loss-chart");
  charts.score.plotBox.classList.add("score-chart");
  const tools = { "Upper curve": charts.loss, "Exact match": charts.score };
  render(
    Object.entries(tools).map(
      ([title, chart]) => html`<${ChartTools} title=${title} chart=${{ current: chart }} />`,
    ),
    $(".chart-tools"),
  );
}

const runName = () =>
  (state.runs.find((run) => run.subject === state.modelRef) || state.lastResponse).name ||
  "this run";

/** Return a series of each overlay and of the open run. */
function buildSeries(own, ofOverlay) {
  const others = [...overlays]
    .filter(([, overlay]) => overlay.curve)
    .map(([subject, { colorIndex, curve, name }]) => ({
      key: subject,
      label: name || "other run",
      color: colorIndex + 1,
      dash: colorIndex % 2,
      hasPoints: true,
      ...ofOverlay(curve),
    }));
  return [
    ...others,
    { key: "open", label: runName(), color: "--pg-accent", hasPoints: true, ...own },
  ];
}

const scorePoints = (evaluations, column) => ({
  x: evaluations.map((evaluation) => evaluation[0]),
  y: evaluations.map((evaluation) => evaluation[column]),
});
const tokenSeries = () => ({
  key: "tokens",
  label: "token accuracy",
  color: "--pg-quiet",
  ...scorePoints(state.evaluations, 2),
});

/**
 * Return the vertical lines of a chart: the step on display, changes of the learning rate, and, if
 * asked for, the first score that reaches the target.
 */
function buildMarkers(hasTarget = false) {
  const markers = (state.lastResponse.changes || [])
    .filter(([step, setting]) => setting === "learning_rate" && step)
    .map(([step]) => ({ x: step, label: "learning rate" }));
  if (state.viewedStep !== null) markers.push({ x: state.viewedStep, color: "--pg-accent" });
  const solved = hasTarget && state.evaluations.find(([, score]) => score >= TARGET_SCORE);
  if (solved) markers.push({ x: solved[0], label: "99 %" });
  return markers;
}

export function paintCharts() {
  const isLog = $(".log").checked && state.selectedMetric !== "learning_rate",
    smoothing = Number($(".smoothing").value),
    metric = state.selectedMetric,
    maxStep = axisMaxStep();
  const lines = JSON.stringify([
    [state.modelRef, state.pollGeneration, state.pointCount, state.evaluations.length, maxStep],
    [metric, isLog, smoothing, runName()],
    [...overlays].map(([subject, { curve, name }]) => [subject, name, curve?.steps.length]),
  ]);
  const markers = JSON.stringify([state.viewedStep, state.lastResponse.changes]);
  if (lines !== drawn.lines) {
    const common = { xRange: [0, maxStep], restingX: state.viewedStep };
    Object.assign(charts.loss.options, common, {
      label: METRICS[metric][0],
      isLog,
      smoothing,
      yRange: isLog ? undefined : [0, null],
    });
    Object.assign(charts.score.options, common);
    paintLines(metric);
  } else if (markers !== drawn.markers) {
    for (const chart of Object.values(charts)) {
      chart.options.restingX = state.viewedStep;
      chart.setMarkers(buildMarkers(chart === charts.score));
    }
  }
  drawn = { lines, markers };
  renderValues(state.hoverStep ?? state.viewedStep);
}

function paintLines(metric) {
  const curveOf = (curve) => ({ x: curve.steps, y: curve[metric] }),
    scores = buildSeries(scorePoints(state.evaluations, 1), (curve) =>
      scorePoints(curve.evaluations, 1),
    );
  charts.loss.setData(buildSeries(curveOf(state.metricCurve), curveOf), buildMarkers());
  charts.score.setData(overlays.size ? scores : [tokenSeries(), ...scores], buildMarkers(true));
  charts.loss.plotBox.steps = state.metricCurve.steps; // tests read this property
  root.classList.toggle("has-overlays", overlays.size > 0);
}

/** Write the values at a step into the headings; null selects the latest ones. */
function renderValues(step) {
  const { steps } = state.metricCurve,
    atStep = (at) => (step === null ? "" : " at step " + formatInteger(at)),
    at = step === null ? steps.length - 1 : nearestIndex(steps, step);
  setText(
    $(".loss-value"),
    steps.length
      ? formatNumber(state.metricCurve[state.selectedMetric][at]) + atStep(steps[at])
      : "",
  );
  const evaluation = evaluationAt(step);
  setText(
    $(".score-value"),
    evaluation ? formatPercent(evaluation[1]) + atStep(evaluation[0]) : "",
  );
  $(".score-value").title = evaluation
    ? `of ${formatCount(evaluation[3], "held-out sequence")}; ` +
      `token accuracy ${formatPercent(evaluation[2])}`
    : "";
}
function evaluationAt(step) {
  const all = state.evaluations;
  if (step === null) return all[all.length - 1];
  if (!all.length || step < all[0][0]) return undefined;
  if (all.length !== evaluationSteps.length || all.at(-1)[0] !== evaluationSteps.at(-1))
    evaluationSteps = all.map((each) => each[0]);
  return all[nearestIndex(evaluationSteps, step)];
}
