// The scores of the heads over training, measured one step at a time.
import { html, signal, useMemo } from "../vendor/preact.js";
import { ServerError } from "../shared/api.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { LineChart } from "../shared/components/line_chart.js";
import { Select } from "../shared/components/select.js";
import { formatInteger, formatNumber } from "../shared/format.js";
import { IDLE, isActive, Job } from "../shared/job.js";
import { MEASURE_AGAIN } from "../shared/strings.js";
import { store } from "../shared/store.js";
import { hasSteps } from "./local_views.js";
import { requestView } from "./requests.js";

const MAX_STEPS = 24;
const MIN_GROWTH = 0.1; // of a score that is worth a sentence
const CHART_OPTIONS = {
  label: "Scores over training",
  xLabel: "step (log scale)",
  height: 240,
  yRange: [0, 1],
  formatX: (x) => formatInteger(toStep(x)),
  formatY: (y) => y.toFixed(2),
};
// This page runs the job: it requests the scores of one step after the other.
const job = new Job();
/** The scores at each measured step. */
export const history = signal(/** @type {any[]} */ ([]));
const pattern = signal("");

const toX = (step) => Math.log(1 + step);
const toStep = (x) => Math.round(Math.exp(x) - 1);

/**
 * Select at most `count` of the sorted steps, about evenly spaced in log(1 + step), because most
 * changes happen early. The first and the last step are always included.
 * @param {number[]} steps
 */
export function selectSteps(steps, count = MAX_STEPS) {
  if (steps.length <= count) return steps;
  const last = steps.length - 1,
    [low, high] = [toX(steps[0]), toX(steps[last])],
    chosen = new Set([0, last]);
  for (let i = 1; i < count - 1; i++) {
    const target = toStep(low + ((high - low) * i) / (count - 1)),
      free = steps.map((_, at) => at).filter((at) => !chosen.has(at)),
      distance = (at) => Math.abs(steps[at] - target);
    chosen.add(free.reduce((best, at) => (distance(at) < distance(best) ? at : best)));
  }
  return [...chosen].sort((a, b) => a - b).map((at) => steps[at]);
}

export function resetHistory() {
  job.reset();
  history.value = [];
  pattern.value = "";
}

async function measureHistory() {
  const steps = selectSteps(store.weightSteps.value);
  job.retry = measureHistory;
  history.value = [];
  await job.track(async (number) => {
    for (const [done, step] of steps.entries()) {
      const progress = { done, total: steps.length, unit: "steps" };
      job.update({ ...IDLE, status: "working", message: "Measuring", ...progress });
      const scores = await requestView("heads", {}, { step });
      if (number !== job.number || job.isCancelled) throw new ServerError("cancelled");
      if (scores.error) throw new ServerError(scores.error, { canRetry: true });
      history.value = [...history.value, scores];
    }
  });
}

/** Say at which step a score reached half of its present value; empty without much growth. */
export function describeGrowth(name, steps, values) {
  const last = values.at(-1);
  if (last - values[0] <= MIN_GROWTH) return "";
  const half = values.findIndex((value) => value >= (values[0] + last) / 2);
  return ` Half of the increase on ${name} is reached at step ${formatInteger(steps[half])}.`;
}

/** The scores of one head as lines. */
function HeadChart({ head, selectedPattern, patterns }) {
  const scores = history.value,
    steps = scores.map(({ step }) => step);
  const { series, growth } = useMemo(() => {
    const rows = scores.map(({ heads }) => heads.find(({ name }) => name === head.name)),
      lines = [
        ...patterns.map((name) => [name, (row) => row.patterns[name]]),
        ["aligned", (row) => row.aligned],
      ],
      x = steps.map(toX),
      all = lines.map(([name, read], color) => {
        return { key: name, label: name, x, y: rows.map(read), color };
      }),
      best = all.find(({ key }) => key === selectedPattern);
    return {
      series: all.filter(({ y }) => y.every((value) => value !== null)),
      growth: best ? describeGrowth(selectedPattern, steps, best.y) : "",
    };
  }, [scores, head.name, selectedPattern]);
  const markers = useMemo(
    () => (store.step.value === null ? [] : [{ x: toX(store.step.value) }]),
    [store.step.value],
  );
  return html`<div class="heads-chart">
    <h4>${head.name[0].toUpperCase() + head.name.slice(1)}</h4>
    <${LineChart} series=${series} markers=${markers} options=${CHART_OPTIONS} />
    <p class="caption pg-quiet">Fraction of the attention on each pattern.${growth}</p>
  </div>`;
}

/** The scores of all heads on one pattern. A click on a row selects the head. */
function PatternMap({ heads, head, selectedPattern, patterns, onSelect, shortName }) {
  const scores = history.value;
  const data = useMemo(() => {
    const values = heads.map(({ name }) =>
      scores.map((each) => each.heads.find((row) => row.name === name).patterns[selectedPattern]),
    );
    return {
      rows: heads.map(shortName),
      columns: scores.map(({ step }) => String(step)),
      values,
      maxCellSize: 18,
      selected: heads.includes(head) ? [heads.indexOf(head), scores.length - 1] : null,
    };
  }, [scores, heads, head, selectedPattern]);
  return html`<div class="heads-map">
    <h4>
      <${Select}
        label="All heads: fraction on"
        class="heads-pattern"
        options=${patterns.map((name) => ({ value: name, label: name }))}
        value=${selectedPattern}
        onChange=${(name) => (pattern.value = name)}
      />
    </h4>
    <${HeatMapView}
      label=${"All heads: fraction on " + selectedPattern}
      data=${data}
      caption="Rows: heads as layer.head. Columns: steps. A click on a row selects its head."
      describe=${(row, column) =>
        `${heads[row].name} at step ${formatInteger(scores[column].step)}: ` +
        `${formatNumber(data.values[row][column])} of its attention on ${selectedPattern}.`}
      onSelect=${(row) => onSelect(heads[row].name)}
    />
  </div>`;
}

/** The scores over training, or why there are none. */
export function OverTraining({ heads, head, patterns, onSelect, shortName }) {
  const hasHistory = hasSteps() && store.weightSteps.value.length > 1,
    selectedPattern = pattern.value || head.best || "anti-diagonal",
    shared = { head, patterns, selectedPattern };
  if (!hasHistory)
    return html`<h4 class="heads-when">Over training</h4>
      <p class="pg-hint">
        This model has only its latest weights. Train a run, or open one: it stores the weights of
        earlier steps.
      </p>`;
  return html`<h4 class="heads-when">Over training</h4>
    ${
      !isActive(job.state.value) &&
      html`<button type="button" class="pg-button heads-measure" onClick=${measureHistory}>
        ${history.value.length ? MEASURE_AGAIN : "Measure over training"}
      </button>`
    }
    <${JobProgress} job=${job} />
    ${
      history.value.length > 1 &&
      html`<div class="pg-halves heads-two">
        <${HeadChart} ...${shared} />
        <${PatternMap} ...${shared} heads=${heads} onSelect=${onSelect} shortName=${shortName} />
      </div>`
    }`;
}
