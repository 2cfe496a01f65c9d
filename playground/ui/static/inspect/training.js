// The smoothed target of a token, and the learning rate over the steps.
import { html, useMemo } from "../vendor/preact.js";
import { LineChart } from "../shared/components/line_chart.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { formatInteger, formatNumber } from "../shared/format.js";
import { LEARNING_RATE } from "../shared/strings.js";
import { createOptions } from "./options.js";
import { Part, RowTable } from "./part.js";

const SCHEDULES = [
  { value: "paper", label: "Vaswani et al. 2017" },
  { value: "model", label: "This model" },
];
const X_MARGIN = 1.03; // the label of the last step needs space
const CHART = {
  label: LEARNING_RATE,
  xLabel: "step",
  height: 230,
  formatX: formatInteger,
};
const { options, update, restore, pick } = createOptions("training", {
  position: 0,
  schedule: "paper",
});

/** Return the rows of the table of targets: one column for each token of the vocabulary. */
export function targetRows({ names, one_hot: oneHot, smoothed, predicted }) {
  const format = (values) => values.map((value) => (value ? value.toFixed(4) : "0"));
  return [
    { name: "token", values: names },
    { name: "target without smoothing", values: format(oneHot) },
    { name: "target with smoothing", values: format(smoothed) },
    { name: "prediction of the model", values: format(predicted) },
  ];
}

/** Describe the losses of the position. */
export function describeLosses({ plain, smoothed, lowest }) {
  return (
    `Loss of this position: ${formatNumber(plain)} without smoothing, ${formatNumber(smoothed)} ` +
    `with it. With smoothing, no prediction has a loss below ${formatNumber(lowest)}, the ` +
    "entropy of the smoothed target; a more confident prediction has a higher loss."
  );
}

function SmoothedTarget({ data }) {
  const { labels, position, smoothing, names } = data;
  return html`<${Part}
    size="wide"
    title="Target of one position, without and with label smoothing"
    hint=${
      `Smoothing of ${smoothing} takes that much probability from the target token and spreads ` +
      `it over all ${names.length} tokens. Positions with PAD as their target do not count in ` +
      "the loss."
    }
  >
    <div class="row">
      <${SegmentedControl}
        label="Target token"
        options=${labels.map((label, at) => ({ value: String(at), label: `${at + 1}: ${label}` }))}
        value=${String(position)}
        onChange=${(value) => update({ position: Number(value) })}
      />
    </div>
    <${RowTable} class="training-targets" label="Targets" rows=${targetRows(data)} />
    <p class="hint">${describeLosses(data.losses)}</p>
  <//>`;
}

/** Return the lines of the chart. */
export const rateSeries = (rates) =>
  rates.map(({ label, steps, rates: y }, color) => ({ key: label, label, x: steps, y, color }));

/** Return the rows of the table of the highest rates. */
export const peakRows = (rates) => [
  { name: "highest rate", values: ["rate", "at step"] },
  ...rates.map(({ label, peak: [step, rate] }) => ({
    name: label,
    values: [formatNumber(rate), formatInteger(step)],
  })),
];

function Schedule({ data: { rates, schedule } }) {
  const series = useMemo(() => rateSeries(rates), [rates]),
    last = rates[0].steps.at(-1),
    chartOptions = { ...CHART, xRange: /** @type {[number, number]} */ ([0, last * X_MARGIN]) };
  return html`<${Part}
    size="wide"
    title=${LEARNING_RATE}
    hint="The paper's schedule rises linearly during the warm-up, and then falls with the inverse
      square root of the step: d_model^-0.5 · min(step^-0.5, step · warm-up^-1.5). Larger models
      get a lower rate, and a longer warm-up a lower peak."
  >
    <div class="row">
      <${SegmentedControl}
        label="Schedule"
        options=${SCHEDULES}
        value=${schedule}
        onChange=${(value) => update({ schedule: value })}
      />
    </div>
    <${LineChart} series=${series} options=${chartOptions} />
    <${RowTable} class="training-peaks" label="Peaks" rows=${peakRows(rates)} />
  <//>`;
}

const Training = ({ data }) =>
  html`<div class="parts">
    <${SmoothedTarget} data=${data} />
    <${Schedule} data=${data} />
  </div>`;

export const trainingSpec = {
  title: "Loss and learning rate",
  explain:
    "The target distribution in the loss of one position, and the learning rate at each step.",
  Component: Training,
  options: () => pick("position", "schedule"),
  restoreOptions: restore,
  reset: () => {
    options.value = { ...options.value, position: 0 };
  },
  rows: ({ labels, position, names, one_hot: oneHot, smoothed, predicted }) =>
    names.map((token, i) => ({
      position: position + 1,
      target: labels[position],
      token,
      one_hot: oneHot[i],
      smoothed: smoothed[i],
      predicted: predicted[i],
    })),
};
