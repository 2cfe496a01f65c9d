// The attention pattern of each head, measured on held-out sequences.
import { Button } from "../shared/components/buttons.js";
import { html, signal, useMemo } from "../vendor/preact.js";
import { ServerError } from "../shared/api.js";
import { DataTable } from "../shared/components/data_table.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { LineChart } from "../shared/components/line_chart.js";
import { Select } from "../shared/components/select.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatCount, formatInteger, formatMessage, formatNumber } from "../shared/format.js";
import { IDLE, isActive, Job } from "../shared/job.js";
import { store } from "../shared/store.js";
import { ATTENTION_KIND, MEASURE_AGAIN } from "../shared/strings.js";
import { createOptions, shade } from "./section_parts.js";
import { hasSteps } from "./local_views.js";
import { describeSample, findMeasurement, useMeasurement } from "./measurements.js";
import { requestView } from "./requests.js";

export const PATTERNS = {
  diagonal: "position i attends to position i",
  "anti-diagonal": "position i attends to position i counted from the end",
  previous: "position i attends to i − 1",
  next: "position i attends to i + 1",
  first: "every position attends to the first",
  last: "every position attends to EOS, the end of the source",
  uniform: "every position attends equally to all positions (score: overlap with uniform weights)",
};
const PATTERN_NAMES = Object.keys(PATTERNS);
const KIND_ORDER = ["cross", "encoder", "decoder"];
const KIND_OPTIONS = ["all", ...KIND_ORDER].map((value) => ({ value, label: value }));
const { options, choose, set, restore } = createOptions({ kind: "all", head: "" });

/** Return a short name such as "cross 2.1". */
export const shortHeadName = (head) => `${head.kind} ${head.layer}.${head.head}`;

/** Return the place of a head in the order of kinds, layers and heads. */
export const headOrder = ({ kind, layer, head }) =>
  1e4 * KIND_ORDER.indexOf(kind) + 100 * layer + head;

function describeScore(head, name) {
  const score = formatNumber(head.patterns[name]),
    chance = head.chance[name];
  if (name === "uniform") return `${score} overlap with a uniform row`;
  const baseline = chance === null ? "" : `; uniform attention: ${formatNumber(chance)}`;
  return `${score} of its attention: ${PATTERNS[name]}${baseline}`;
}

/** @returns {import("../shared/types.js").Column} */
const patternColumn = (name) => ({
  key: name,
  label: name,
  help: "Fraction of the attention weights: " + PATTERNS[name],
  isNumber: true,
  value: (head) => head.patterns[name],
  style: (head) =>
    head.patterns[name] === null || name === "uniform" ? "" : shade(head.patterns[name]),
  render: (head) =>
    head.patterns[name] === null
      ? html`<span title="Not possible for this attention type">–</span>`
      : html`<span
          class=${name === head.best ? "heads-best" : ""}
          title=${describeScore(head, name)}
          >${head.patterns[name].toFixed(2)}</span
        >`,
});

const numberColumn = (key, label, help, read = (head) => head[key]) => ({
  key,
  label,
  help,
  isNumber: true,
  value: read,
  render: (head) => read(head)?.toFixed(2) ?? "",
});

const COLUMNS = [
  {
    key: "name",
    label: "head",
    value: headOrder,
    render: (head) =>
      html`<button
        type="button"
        title=${head.name}
        aria-pressed=${String(head.name === options.value.head)}
        onClick=${() => set({ head: head.name })}
      >
        ${shortHeadName(head)}
      </button>`,
  },
  { key: "description", label: "role" },
  numberColumn(
    "clarity",
    "clarity",
    "Score on its clearest pattern: 0 like uniform attention, 1 all weight on the pattern",
  ),
  ...PATTERN_NAMES.map(patternColumn),
  numberColumn(
    "entropy",
    "entropy (bits)",
    "How evenly a query spreads its weights, on average; 0: all weight on one token",
    (head) => head.entropy / Math.LN2,
  ),
  numberColumn("aligned", "aligned", "Fraction on the source token that determines the target"),
  numberColumn("distance", "distance", "Mean distance from that token, in positions"),
];

const isUniform = (head) => head.best === "uniform";
// Clarity measures the overlap with a pattern; that of uniform heads is in the column "uniform".
const UNIFORM_COLUMNS = COLUMNS.filter(({ key }) => key !== "clarity");

const HeadTable = ({ caption, heads, ...rest }) =>
  html`<${DataTable}
    caption=${caption}
    class="heads-table picture"
    columns=${COLUMNS}
    rows=${heads}
    sortKey="clarity"
    ...${rest}
  />`;

const FoldedHeads = ({ class: className, suffix, heads, ...rest }) =>
  heads.length > 0 &&
  html`<details class=${className}>
    <summary>${formatCount(heads.length, "head")} ${suffix}</summary>
    <${HeadTable} caption=${"Heads " + suffix} heads=${heads} ...${rest} />
  </details>`;

function HeadRoles({ data: response }) {
  const { data, error, isStale } = useMeasurement("heads", {}, response),
    { kind, head: name } = options.value;
  const message = error
    ? formatMessage(error)
    : isStale
      ? "Measuring"
      : formatMessage(describeSample(data) + ", teacher-forced");
  const status = html`<${StatusMessage} kind=${error ? "error" : "info"} text=${message} />`;
  if (!data) return status;
  const heads = data.heads
      .filter((head) => kind === "all" || head.kind === kind)
      .sort((a, b) => headOrder(a) - headOrder(b)),
    clear = heads.filter((head) => head.is_clear && !isUniform(head)),
    uniform = heads.filter(isUniform),
    unclear = heads.filter((head) => !head.is_clear),
    byClarity = [...data.heads].sort(
      (a, b) => Number(isUniform(a)) - Number(isUniform(b)) || b.clarity - a.clarity,
    ),
    selected = data.heads.find((head) => head.name === name) ?? byClarity[0];
  return html`<div class="pg-row row">
      ${choose("kind", ATTENTION_KIND, KIND_OPTIONS, kind, set)} ${status}
    </div>
    <div class=${isStale ? "stale" : ""}>
      <${HeadTable}
        caption="Heads with a clear pattern"
        heads=${clear}
        emptyText="No head has a clear pattern yet."
      />
      <${FoldedHeads}
        class="heads-uniform"
        suffix="with uniform attention"
        heads=${uniform}
        columns=${UNIFORM_COLUMNS}
        sortKey="uniform"
      />
      <${FoldedHeads} class="heads-unclear" suffix="without a clear pattern" heads=${unclear} />
    </div>
    <${OverTraining} heads=${heads} head=${selected} />`;
}

const toRows = ({ step, heads }) =>
  heads.map((head) => ({
    step,
    kind: head.kind,
    layer: head.layer,
    head: head.head,
    ...Object.fromEntries(PATTERN_NAMES.map((name) => [name, head.patterns[name]])),
    entropy: head.entropy,
    aligned: head.aligned,
    distance: head.distance,
    pattern: head.description,
  }));

export const headRolesSpec = {
  subView: "attention",
  title: "Roles",
  explain:
    "How much of each head's attention follows a pattern, clearest first, as a fraction over " +
    "held-out sequences. Stronger colors: larger fraction.",
  request: "output",
  Component: HeadRoles,
  reset() {
    set({ head: "" });
    resetHistory();
  },
  options: () => options.value,
  restoreOptions(link) {
    restore(link);
    if (!KIND_OPTIONS.some(({ value }) => value === options.value.kind)) set({ kind: "all" });
  },
  exportData: () => ({ ...findMeasurement("heads")?.data, over_training: history.value }),
  rows() {
    const data = findMeasurement("heads")?.data;
    return [...(data ? toRows(data) : []), ...history.value.flatMap(toRows)];
  },
};

// The scores of the heads over training, measured one step at a time.

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

function resetHistory() {
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

function HeadChart({ head, selectedPattern }) {
  const scores = history.value,
    steps = scores.map(({ step }) => step);
  const { series, growth } = useMemo(() => {
    const rows = scores.map(({ heads }) => heads.find(({ name }) => name === head.name)),
      x = steps.map(toX),
      all = [...PATTERN_NAMES, "aligned"].map((name, color) => {
        const y = rows.map((row) => (name === "aligned" ? row.aligned : row.patterns[name]));
        return { key: name, label: name, x, y, color };
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
function PatternMap({ heads, head, selectedPattern }) {
  const scores = history.value;
  const data = useMemo(() => {
    const values = heads.map(({ name }) =>
      scores.map((each) => each.heads.find((row) => row.name === name).patterns[selectedPattern]),
    );
    return {
      rows: heads.map(shortHeadName),
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
        options=${PATTERN_NAMES.map((name) => ({ value: name, label: name }))}
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
      onSelect=${(row) => set({ head: heads[row].name })}
    />
  </div>`;
}

/** The scores over training, or why there are none. */
function OverTraining({ heads, head }) {
  const hasHistory = hasSteps() && store.weightSteps.value.length > 1,
    selectedPattern = pattern.value || head.best || "anti-diagonal";
  if (!hasHistory)
    return html`<h4 class="heads-when">Over training</h4>
      <p class="pg-hint">
        This model has only its latest weights. Train a run, or open one: it stores the weights of
        earlier steps.
      </p>`;
  return html`<h4 class="heads-when">Over training</h4>
    ${
      !isActive(job.state.value) &&
      html`<${Button} class="heads-measure" onClick=${measureHistory}>
        ${history.value.length ? MEASURE_AGAIN : "Measure over training"}
      <//>`
    }
    <${JobProgress} job=${job} />
    ${
      history.value.length > 1 &&
      html`<div class="pg-halves heads-two">
        <${HeadChart} head=${head} selectedPattern=${selectedPattern} />
        <${PatternMap} heads=${heads} head=${head} selectedPattern=${selectedPattern} />
      </div>`
    }`;
}
