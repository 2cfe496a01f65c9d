// Ablation of components on held-out sequences.
import { Button } from "../shared/components/buttons.js";
import { html } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatInteger, formatMessage, formatNumber, formatPercent } from "../shared/format.js";
import { store } from "../shared/store.js";
import { formatParts } from "../engine/parts.js";
import { createOptions, barColumn } from "./section_parts.js";
import { describeSample, findMeasurement, measure, useMeasurement } from "./measurements.js";

const METHODS = [
  { value: "zero", label: "zero", help: "zero, a value outside the training distribution" },
  {
    value: "mean",
    label: "mean",
    help:
      "its mean at each position over the held-out sequences; this removes what depends on the " +
      "tokens, but the model may never produce this value",
  },
  {
    value: "resample",
    label: "resample",
    help:
      "its output on another held-out sequence of the same lengths, a value that the model " +
      "produces itself. The diagram cannot show it, and position vectors do not change",
  },
];
const SETS = [
  {
    value: "single",
    label: "single components",
    help:
      "Each head, each feed-forward network and the position vectors, one at a time, and all " +
      "heads of little effect together",
  },
  { value: "groups", label: "groups", help: "All components of one group together" },
  { value: "keep", label: "keep only", help: "All heads except one, or except one group" },
];
const BAR_UNIT = 0.01; // nats; smaller increases have bars on a linear scale
const { options, choose, set, restore } = createOptions({ method: "mean", set: "single" });

export function describeMethod({ set: which, method }) {
  const find = (choices, value) => choices.find((each) => each.value === value).help;
  return (
    `${find(SETS, which)}. The output of each ablated component is replaced with ` +
    `${find(METHODS, method)}.`
  );
}

function describeMeasurement(data, step) {
  const { exact_match: exactMatch, log_probability: logProbability } = data.baseline,
    fewer = data.is_reduced ? " (fewer than 512, because of the size of the model)" : "",
    source = data.isLocal ? "" : ", measured by the server",
    age =
      data.step === step
        ? ""
        : `; measured at step ${formatInteger(data.step)}, now at step ${formatInteger(step)}`;
  return (
    `Intact model: exact match ${formatPercent(exactMatch)}, log-probability ` +
    `${formatNumber(logProbability)} nats, ${describeSample(data)}${fewer}${source}${age}.`
  );
}

const shorten = (name) =>
  name.replace(
    /^(encoder|decoder|cross)(?: self)?-attention, layer (\d+), head (\d+)$/,
    "$1 $2.$3",
  );

export function formatIncrease(nats) {
  const text = Math.abs(nats).toFixed(3);
  if (nats && text === "0.000") return nats > 0 ? "< 0.001" : "> −0.001";
  return (nats < 0 ? "−" : "") + text;
}

const toLogScale = (nats) => Math.sign(nats) * Math.log1p(Math.abs(nats) / BAR_UNIT);

/** @param {import("../engine/types.js").Component[]} off */
const openInDiagram = (off) =>
  store.open("train", { off: formatParts(off), means: options.value.method });

// The name of an ablation; a click shows it in the diagram, which has no switch for positions, and
// no other sequence to resample.
const Name = ({ row: { name, off } }) => {
  const { method } = options.value,
    names = html`<span class="ablation-full-name">${name}</span>
      <span class="ablation-short-name">${shorten(name)}</span>`;
  if (!off || method === "resample" || off.some(({ layer }) => layer === null)) return names;
  const title = "Switch off in the diagram, for your input";
  return html`<button type="button" title=${title} onClick=${() => openInDiagram(off)}>
    ${names}
  </button>`;
};

function buildColumns(rows, baseline) {
  const lossIncrease = (row) => baseline.log_probability - row.log_probability;
  return [
    {
      key: "name",
      label: options.value.set === "keep" ? "kept heads" : "ablated component",
      render: (row) => html`<${Name} row=${row} />`,
    },
    {
      key: "exact_match",
      label: "exact match",
      help: "Held-out sequences with a completely correct output, before and after the ablation",
      isNumber: true,
      render: (row) =>
        html`<span class="ablation-baseline">${formatPercent(baseline.exact_match)} → </span
          >${formatPercent(row.exact_match)}`,
    },
    {
      key: "lost",
      label: "loss increase (nats)",
      help: "Mean decrease of the log-probability (natural logarithm) of the whole target",
      isNumber: true,
      value: lossIncrease,
      render: (row) => formatIncrease(lossIncrease(row)),
    },
    {
      ...barColumn("loss increase (log scale)", rows, (row) => toLogScale(lossIncrease(row)), 1e-9),
      isOptional: true,
    },
  ];
}

const Effects = ({ data: { method, set: which, step, rows, baseline } }) =>
  html`<${DataTable}
    key=${`${method} ${which} ${step}`}
    caption="Ablations"
    class="ablation-table picture"
    columns=${buildColumns(rows, baseline)}
    rows=${rows}
  />`;

function AblationControls({ canMeasure, response }) {
  const { method, set: which } = options.value;
  return html`<div class="pg-row row">
      ${choose("set", "Components to ablate", SETS, which, set)} replaced with
      ${choose("method", "Replacement value", METHODS, method, set)}
      ${
        canMeasure &&
        html`<${Button}
          class="ablation-measure"
          onClick=${() => measure("ablation", options.value, response)}
        >
          Measure again
        <//>`
      }
    </div>
    <p class="pg-hint">${describeMethod(options.value)}</p>`;
}

/** Describe what the page measures, and how old the displayed result is. */
export function describeProgress(data, step, isMeasuring, progress) {
  if (!data && progress) return `Measuring: ${progress.data.rows.length} of ${progress.total}`;
  if (!data) return "Measuring each component";
  if (!isMeasuring) return describeMeasurement(data, step);
  return (
    `Measuring step ${formatInteger(step)}; the table is that of step ` +
    `${formatInteger(data.step)}.`
  );
}

function AblationView({ data: response }) {
  const request = options.value,
    measurement = useMeasurement("ablation", request, response),
    { data: latest, error, isBusy, isStale, progress } = measurement,
    // a result of other options has other rows
    isOther = latest?.method !== request.method || latest?.set !== request.set,
    data = isStale && isOther ? null : latest;
  const message = error
    ? formatMessage(error)
    : describeProgress(data, response.step, isBusy || isStale, progress);
  return html`<${AblationControls} canMeasure=${Boolean(error)} response=${response} />
    <${StatusMessage} class="ablation-message" kind=${error ? "error" : "info"} text=${message} />
    <div class=${isStale && data ? "stale" : ""}>
      ${(data ?? progress) && html`<${Effects} data=${data ?? progress.data} />`}
    </div>`;
}

const measured = () =>
  SETS.flatMap(({ value }) => {
    const request = { ...options.value, set: value };
    return findMeasurement("ablation", request)?.data ?? [];
  });

export const ablationSpec = {
  subView: "matters",
  title: "Ablation",
  explain:
    "Replaces the output of a component and measures the effect on held-out sequences. The " +
    "log-probability of the target can change even where exact match does not. A click on a " +
    "component switches it off in the diagram, for your input.",
  request: "output",
  isLocal: true,
  Component: AblationView,
  options: () => options.value,
  restoreOptions(link) {
    const isOne = (choices, value) => choices.some((each) => each.value === value),
      before = options.value;
    restore(link);
    if (!isOne(METHODS, options.value.method)) set({ method: before.method });
    if (!isOne(SETS, options.value.set)) set({ set: before.set });
  },
  exportData: (response) => ({ own: response, measured: measured() }),
};
