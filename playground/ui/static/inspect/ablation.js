// Ablation of components: on held-out sequences, and on the input.
import { html, useMemo } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import {
  formatCount,
  formatInteger,
  formatMessage,
  formatNumber,
  formatPercent,
} from "../shared/format.js";
import { MEASURE_AGAIN } from "../shared/strings.js";
import { SignedBar } from "./cells.js";
import { describeSample, findMeasurement, measure, useMeasurement } from "./measurements.js";
import { createOptions } from "./options.js";

const METHODS = [
  { value: "zero", label: "zero", help: "zero, a value outside the training distribution" },
  {
    value: "mean",
    label: "mean",
    help: "its mean over the held-out sequences, which does not depend on the input",
  },
];
const SETS = [
  {
    value: "single",
    label: "single components",
    help: "Each head, each feed-forward network and the position vectors, one at a time",
  },
  { value: "groups", label: "groups", help: "All components of one group together" },
  { value: "keep", label: "keep only", help: "All heads except one, or except one group" },
];
const BAR_UNIT = 0.01; // nats; smaller increases have bars on a linear scale
const { options, set, update, restore } = createOptions({
  method: "zero",
  set: "single",
  keep: false,
  /** @type {string[]} the components that are ablated, or kept, on the input */
  components: [],
});

const isKeepOnly = () => options.value.set === "keep";
const isHead = (name) => name.includes("head ");
const measuredOptions = ({ method, set: which } = options.value) => ({ method, set: which });
const selectParts = (components) =>
  update({ components, keep: isKeepOnly() && components.length > 0 });

/** Describe the selected set and method in one line. */
export function describeMethod({ set: which, method }) {
  const find = (choices, value) => choices.find((each) => each.value === value).help;
  return (
    `${find(SETS, which)}. The output of each ablated component is replaced with ` +
    `${find(METHODS, method)}.`
  );
}

/** Return the rows of the table before the measurement, in the order of the model. */
export function listAblations({ components, groups }, which) {
  const single = components.map((name) => ({ name, components: [name] })),
    together = Object.entries(groups).map(([name, members]) => ({ name, components: members }));
  if (which === "groups") return together;
  if (which === "single") return single;
  return [...single, ...together].filter((row) => isHead(row.components[0]));
}

/** Describe a measurement, and the step if the model is further. */
function describeMeasurement(data, step) {
  const { exact_match: exactMatch, log_probability: logProbability } = data.baseline,
    fewer = data.is_reduced ? " (fewer than 512, because of the size of the model)" : "",
    age =
      data.step === step
        ? ""
        : `; measured at step ${formatInteger(data.step)}, now at step ${formatInteger(step)}`;
  return (
    `Intact model: exact match ${formatPercent(exactMatch)}, log-probability ` +
    `${formatNumber(logProbability)} nats, ${describeSample(data)}${fewer}${age}.`
  );
}

const shorten = (name) =>
  name.replace(
    /^(encoder|decoder|cross)(?: self)?-attention, layer (\d+), head (\d+)$/,
    "$1 $2.$3",
  );

/** Format an increase of the loss with the three decimals of its column. */
export function formatIncrease(nats) {
  const text = Math.abs(nats).toFixed(3);
  if (nats && text === "0.000") return nats > 0 ? "< 0.001" : "> −0.001";
  return (nats < 0 ? "−" : "") + text;
}

const toLogScale = (nats) => Math.sign(nats) * Math.log1p(Math.abs(nats) / BAR_UNIT);

const PENDING = html`<span class="pg-hint">…</span>`;

/** The columns of the table. Before the measurement, its cells have an ellipsis. */
function buildColumns(rows, baseline) {
  const selected = new Set(options.value.components),
    verb = isKeepOnly() ? "Keep" : "Ablate",
    lossIncrease = (row) => baseline.log_probability - row.log_probability,
    losses = baseline ? rows.map((row) => toLogScale(lossIncrease(row))) : [],
    range = { low: Math.min(0, ...losses), high: Math.max(1e-9, ...losses) };
  const toggle = ({ components }, isOn) =>
    selectParts(
      isOn
        ? [...new Set([...selected, ...components])]
        : [...selected].filter((name) => !components.includes(name)),
    );
  const nameColumn = {
    key: "name",
    label: isKeepOnly() ? "kept heads" : "ablated component",
    render: (row) =>
      html`<label class="ablation-name">
        <input
          type="checkbox"
          aria-label=${`${verb} ${row.name} on your sequence`}
          checked=${row.components.every((part) => selected.has(part))}
          onChange=${({ currentTarget }) => toggle(row, currentTarget.checked)}
        />
        <span class="ablation-full-name">${row.name}</span>
        <span class="ablation-short-name" aria-hidden="true">${shorten(row.name)}</span>
      </label>`,
  };
  const measured = [
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
      key: "bar",
      label: "loss increase (log scale)",
      isSortable: false,
      isOptional: true,
      render: (row) => html`<${SignedBar} value=${toLogScale(lossIncrease(row))} ...${range} />`,
    },
  ];
  const pending = { isSortable: false, render: () => PENDING };
  return [nameColumn, ...measured.map((column) => (baseline ? column : { ...column, ...pending }))];
}

/** The effect of each ablation on the held-out sequences, with a choice for the input. */
function Effects({ data, response }) {
  const { method, set: which } = options.value,
    rows = data?.rows ?? listAblations(response, which);
  return html`<${DataTable}
    key=${`${method} ${which} ${data ? data.step : ""}`}
    caption="Ablations"
    isCaptionHidden
    class="ablation-table picture"
    columns=${buildColumns(rows, data?.baseline)}
    rows=${rows}
    rowKey=${(row) => row.name}
  />`;
}

/** The output for the input, intact and ablated. */
function OnInput({ response: { intact, ablated, target, components } }) {
  const n = options.value.components.length,
    keepLabel = `kept ${n} of ${formatCount(components.filter(isHead).length, "head")}`,
    hint = n
      ? ""
      : isKeepOnly()
        ? "Select the heads to keep in the table."
        : "Select the components to ablate in the table.";
  const rows = [{ label: "intact", ...intact }];
  if (n) rows.push({ label: isKeepOnly() ? keepLabel : "ablated: " + n, ...ablated });
  const columns = [
    { key: "label", label: "model", isSortable: false },
    {
      key: "prediction",
      label: "output",
      isSortable: false,
      render: (row) =>
        html`<${TokenStrip}
          label="Output"
          tokens=${row.prediction}
          targets=${target ?? undefined}
        />`,
    },
    {
      key: "log_probability",
      label: "log-probability",
      help: target
        ? "Log-probability of the whole target of this sequence as decoder input, in nats"
        : "Log-probability of the output of the intact model in nats; the target is unknown",
      isNumber: true,
      isSortable: false,
      render: (row) => formatNumber(row.log_probability),
    },
  ];
  return html`<h4>On your sequence</h4>
    <${DataTable}
      caption="On your sequence"
      isCaptionHidden
      class="ablation-on-input picture"
      columns=${columns}
      rows=${rows}
      rowKey=${(row) => row.label}
    />
    ${hint && html`<p class="pg-hint">${hint}</p>`}
    ${
      n > 0 &&
      html`<button type="button" class="pg-button" onClick=${() => selectParts([])}>
        Restore all
      </button>`
    }`;
}

function AblationControls({ canMeasure, response }) {
  const { method, set: which } = options.value,
    request = measuredOptions();
  const onSetChange = (value) => {
    const isOtherKind = (value === "keep") !== isKeepOnly();
    update({ set: value, keep: false, ...(isOtherKind && { components: [] }) });
  };
  return html`<div class="row">
      <${SegmentedControl}
        label="Components to ablate"
        options=${SETS}
        value=${which}
        onChange=${onSetChange}
      />
      replaced with
      <${SegmentedControl}
        label="Replacement value"
        options=${METHODS}
        value=${method}
        onChange=${(value) => update({ method: value })}
      />
      ${
        canMeasure &&
        html`<button
          type="button"
          class="pg-button ablation-measure"
          onClick=${() => measure("ablation", request, response)}
        >
          ${MEASURE_AGAIN}
        </button>`
      }
    </div>
    <p class="pg-hint">${describeMethod(options.value)}</p>`;
}

/** Describe what the page measures, and how old the displayed result is. */
export function describeProgress(data, step, isMeasuring) {
  if (!data) return "Measuring each component; its effect appears in the table.";
  if (!isMeasuring) return describeMeasurement(data, step);
  return (
    `Measuring step ${formatInteger(step)}; the summary and the table are those of step ` +
    `${formatInteger(data.step)}.`
  );
}

function AblationView({ data: response }) {
  const request = useMemo(() => measuredOptions(), [options.value.method, options.value.set]),
    { data: latest, error, isBusy, isStale } = useMeasurement("ablation", request, response),
    // a result of other options has other rows
    data =
      isStale && (latest?.method !== request.method || latest?.set !== request.set) ? null : latest;
  const message = error
    ? formatMessage(error)
    : describeProgress(data, response.step, isBusy || isStale);
  return html`<div class="ablation-columns">
    <div>
      <${AblationControls} canMeasure=${Boolean(error)} response=${response} />
      <${StatusMessage} class="ablation-message" kind=${error ? "error" : "info"} text=${message} />
      <div class=${isStale && data ? "stale" : ""}>
        ${data && html`<p class="ablation-summary">${data.summary}</p>`}
        <${Effects} data=${data} response=${response} />
      </div>
    </div>
    <div><${OnInput} response=${response} /></div>
  </div>`;
}

/** Return the measurements of the selected method. */
const measured = () =>
  SETS.flatMap(({ value }) => {
    const request = measuredOptions({ ...options.value, set: value });
    return findMeasurement("ablation", request)?.data ?? [];
  });

export const ablationSpec = {
  subView: "heads",
  title: "Ablation",
  explain:
    "Replaces the output of a component and measures the effect on held-out sequences. The " +
    "log-probability of the target can change even where exact match does not.",
  request: "ablated-answer",
  Component: AblationView,
  reset: () => set({ components: [], keep: false }),
  options: () => options.value,
  restoreOptions(link) {
    const isOne = (choices, value) => choices.some((each) => each.value === value),
      { method, set: which } = options.value;
    restore({ ...link, components: Array.isArray(link.components) ? link.components : [] });
    if (!isOne(METHODS, options.value.method)) set({ method });
    if (!isOne(SETS, options.value.set)) set({ set: which });
    set({ components: options.value.components.filter((name) => typeof name === "string") });
  },
  exportData: (response) => ({ own: response, measured: measured() }),
  rows: () =>
    measured().flatMap((data) =>
      data.rows.map((row) => ({
        set: data.set,
        method: data.method,
        component: row.name,
        exact_match_before: data.baseline.exact_match,
        exact_match_after: row.exact_match,
        log_probability_before: data.baseline.log_probability,
        log_probability_after: row.log_probability,
        sequences: data.sequences,
        step: data.step,
      })),
    ),
};
