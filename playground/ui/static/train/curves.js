// The curves of the open run and of its overlays: loss, and exact match.
import { Menu } from "../shared/components/menu.js";
import { ChartTools, useChart } from "../shared/components/line_chart.js";
import {
  formatCount,
  formatInteger,
  formatNumber,
  formatPercent,
  formatWholePercent,
} from "../shared/format.js";
import { nearestIndex, store } from "../shared/store.js";
import { LOSS_TITLE } from "../shared/strings.js";
import { computed, effect, html, untracked, useRef } from "../vendor/preact.js";
import { overlays } from "./data/overlays.js";
import { showStep } from "./data/snapshots.js";
import { isTabOpen, state, TARGET_SCORE } from "./state.js";

/** @import { Chart } from "../shared/chart.js" */
/** @import { Marker, Series } from "../shared/types.js" */
/**
 * Not every evaluation has a held-out loss.
 * @typedef {[
 *   step: number, exactMatch: number, tokenAccuracy: number, n: number,
 *   heldOutLoss?: number | null,
 * ]} Evaluation
 */

const HELD_OUT_LOSS = 4; // the column of an evaluation
const HELD_OUT_DASH = 2; // no other line of the loss chart has this pattern
const OPEN_RUN = "open"; // the key of its series
const NARROW_PAGE = "(max-width: 700px)";
const LOW_PAGE = "(max-height: 820px)";
const EMBED_REST = 280; // pixels of an embedded view besides the two charts

/** The last step of the open run on the axis: it grows in a few jumps, not with every point. */
function ownMaxStep() {
  const { step = 0, max_steps: maxSteps } = state.lastResponse,
    reached = Math.max(step, 1);
  if (["done", "checkpoint"].includes(state.status)) return reached; // others may resume
  if (maxSteps <= 1000) return Math.max(reached, maxSteps);
  let rounded = 1000;
  while (rounded < reached) rounded *= String(rounded)[0] === "2" ? 2.5 : 2;
  return Math.max(reached, Math.min(rounded, maxSteps || rounded));
}

/** The last step of the axis of all curves. */
export const axisMaxStep = computed(() =>
  Math.max(
    ownMaxStep(),
    ...[...overlays.value.values()].map(({ curve }) => curve?.steps.at(-1) ?? 0),
  ),
);

/** An embedded view fits its frame. */
function chartHeight() {
  if (document.documentElement.dataset.embed)
    return Math.max(90, Math.floor((innerHeight - EMBED_REST) / 2));
  if (matchMedia(NARROW_PAGE).matches) return 140;
  return matchMedia(LOW_PAGE).matches ? 104 : 140;
}

const chartOptions = () => ({
  height: chartHeight(),
  syncKey: "train",
  onSelect: (/** @type {number} */ step) => store.weightSteps.value.length > 1 && showStep(step),
});
const lossOptions = () => ({
  ...chartOptions(),
  label: "Loss",
  isLog: true,
  hasXLabel: false,
  emptyText: "The curve appears with the first step.",
  // The cursor of this chart follows that of the other one.
  onCursor: (/** @type {number | null} */ step) => {
    state.hoverStep = step;
  },
});
const scoreOptions = (/** @type {HTMLElement} */ legendBox) => ({
  ...chartOptions(),
  label: "Exact match",
  emptyText: "The first score appears after a few steps.",
  formatY: formatPercent,
  formatTick: formatWholePercent,
  legendBox,
  yRange: /** @type {[number, number]} */ ([0, 1]),
});

const runName = computed(
  () => (store.find(state.modelRef) || state.lastResponse).name || "this run",
);
/** The changes of settings during the run; a response without changes has the same ones. */
const changes = computed(
  () => /** @type {[number, string, any][] | undefined} */ (state.lastResponse.changes),
);

/**
 * Return a series of each overlay and of the open run.
 * @param {{ x: number[], y: (number | null)[] }} openRunPoints
 * @param {(curve: any) => { x: number[], y: (number | null)[] }} pointsOf
 * @returns {Series[]}
 */
function buildSeries(openRunPoints, pointsOf) {
  const others = [...overlays.value]
    .filter(([, overlay]) => overlay.curve)
    .map(([subject, { colorIndex, curve, name }]) => ({
      key: subject,
      label: name || "other run",
      color: colorIndex + 1,
      dash: colorIndex % 2,
      hasPoints: true,
      ...pointsOf(curve),
    }));
  const open = { key: OPEN_RUN, label: runName.value, color: "--pg-accent", hasPoints: true };
  return [...others, { ...open, ...openRunPoints }];
}

/** @param {Evaluation[]} evaluations @param {number} column */
const scorePoints = (evaluations, column) => ({
  x: evaluations.map((evaluation) => evaluation[0]),
  y: evaluations.map((evaluation) => evaluation[column] ?? null),
});

/**
 * Return the training loss of each run, and its held-out loss as a dashed line of the same color.
 * An overlay has one entry in the legend.
 * @param {Series[]} training
 * @param {boolean} hasOverlays
 * @returns {Series[]}
 */
export function withHeldOutLoss(training, hasOverlays) {
  return training.flatMap((series) => {
    const all = evaluationsOf(series.key),
      measured = all.filter((evaluation) => typeof evaluation[HELD_OUT_LOSS] === "number");
    if (all.length && !measured.length) return [series];
    const isOverlay = series.key !== OPEN_RUN,
      name = hasOverlays ? series.label + ", " : "";
    return [
      isOverlay ? series : { ...series, label: name + "training" },
      {
        ...scorePoints(measured, HELD_OUT_LOSS),
        key: series.key + " held-out",
        label: name + "held-out",
        partOf: isOverlay ? series.key : undefined,
        color: series.color,
        dash: HELD_OUT_DASH,
      },
    ];
  });
}

/** @param {string} key of a series @returns {Evaluation[]} */
const evaluationsOf = (key) =>
  key === OPEN_RUN ? state.evaluations : (overlays.value.get(key)?.curve.evaluations ?? []);

/** @returns {Series} */
const tokenSeries = () => ({
  key: "tokens",
  label: "token accuracy",
  color: "--pg-quiet",
  ...scorePoints(state.evaluations, 2),
});

/**
 * Return the vertical lines of a chart: the step on display, changes of the learning rate, and with
 * `hasTarget` the first score that reaches the target.
 */
function buildMarkers(hasTarget = false) {
  /** @type {Marker[]} */
  const markers = (changes.value ?? [])
    .filter(([step, setting]) => setting === "learning_rate" && step)
    .map(([step]) => ({ x: step, label: "learning rate" }));
  if (state.viewedStep !== null) markers.push({ x: state.viewedStep, color: "--pg-accent" });
  const solved = hasTarget && state.evaluations.find(([, score]) => score >= TARGET_SCORE);
  if (solved) markers.push({ x: solved[0], label: "99 %" });
  return markers;
}

/** The lines of the loss. @param {Chart} chart */
function buildLosses(chart) {
  const { lossCurve } = state,
    pointsOf = (curve) => ({ x: curve.steps, y: curve.loss }),
    curves = buildSeries(pointsOf(lossCurve), pointsOf);
  /** @type {any} */ (chart.plotBox).steps = lossCurve.steps; // for tests
  return withHeldOutLoss(curves, overlays.value.size > 0);
}

/** The scores of all runs; of the open one alone, its token accuracy, too. */
function buildScores() {
  const scores = buildSeries(scorePoints(state.evaluations, 1), (curve) =>
    scorePoints(curve.evaluations, 1),
  );
  return overlays.value.size ? scores : [tokenSeries(), ...scores];
}

/**
 * Draw a chart whenever its lines change, and else only its markers.
 * @param {Chart} chart
 * @param {string} name
 * @param {(chart: Chart) => Series[]} buildLines
 * @param {boolean} hasTarget
 */
function keepDrawn(chart, name, buildLines, hasTarget) {
  chart.plotBox.classList.add(name + "-chart");
  const endLines = effect(() => {
    if (!isTabOpen.value) return;
    const lines = buildLines(chart);
    chart.options.xRange = [0, axisMaxStep.value];
    untracked(() => chart.setData(lines, buildMarkers(hasTarget)));
  });
  const endMarkers = effect(() => {
    chart.options.restingX = state.viewedStep;
    chart.setMarkers(buildMarkers(hasTarget));
  });
  return () => {
    endLines();
    endMarkers();
  };
}

const evaluationSteps = computed(() => state.evaluations.map((each) => each[0]));

/** @param {number | null} step @returns {Evaluation | undefined} */
function evaluationAt(step) {
  const all = state.evaluations;
  if (step === null) return all[all.length - 1];
  if (!all.length || step < all[0][0]) return undefined;
  return all[nearestIndex(evaluationSteps.value, step)];
}

/** Return the step whose values the headings show, and its text; null selects the latest ones. */
function displayedStep() {
  const step = state.hoverStep ?? state.viewedStep;
  return {
    step,
    atStep: (/** @type {number} */ at) => (step === null ? "" : " at step " + formatInteger(at)),
  };
}

function LossValue() {
  const { step, atStep } = displayedStep(),
    { steps, loss } = state.lossCurve,
    at = step === null ? steps.length - 1 : nearestIndex(steps, step);
  return html`<output class="value loss-value" aria-live="off">
    ${steps.length ? formatNumber(loss[at]) + atStep(steps[at]) : ""}
  </output>`;
}

function ScoreValue() {
  const { step, atStep } = displayedStep(),
    evaluation = evaluationAt(step),
    title =
      evaluation &&
      `Of ${formatCount(evaluation[3], "held-out sequence")} at each evaluation; ` +
        `token accuracy ${formatPercent(evaluation[2])}`;
  return html`<output class="value score-value" aria-live="off" title=${title ?? ""}>
    ${
      evaluation
        ? `${formatPercent(evaluation[1])} of ${formatInteger(evaluation[3])}` +
          atStep(evaluation[0])
        : ""
    }
  </output>`;
}

export function Curves() {
  const legend = useRef(/** @type {HTMLElement | null} */ (null)),
    loss = useChart(lossOptions, (chart) => keepDrawn(chart, "loss", buildLosses, false)),
    score = useChart(
      () => scoreOptions(/** @type {HTMLElement} */ (legend.current)),
      (chart) => keepDrawn(chart, "score", buildScores, true),
    );
  return html`<div class="pg-row bar metric-bar" data-part="curves">
      <h3 title=${LOSS_TITLE}>Loss</h3>
      <${LossValue} />
      <${Menu} label="Files of the curves" isForm>
        <${ChartTools} title="Loss" chart=${loss.chart} />
        <${ChartTools} title="Exact match" chart=${score.chart} />
      <//>
    </div>
    <div ref=${loss.box} class="loss-box" data-part="curves"></div>
    <div class="pg-row bar" data-part="curves">
      <h3 title="Fraction of held-out sequences that free-running decoding predicts without error">
        Exact match
      </h3>
      <${ScoreValue} /><span class="score-legend" ref=${legend}></span>
    </div>
    <div ref=${score.box} class="score-box" data-part="curves"></div>`;
}
