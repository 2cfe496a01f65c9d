// The two charts of a training run: a score by step, and the loss on a logarithmic axis.
import { html } from "../vendor/preact.js";
import { LineChart } from "../shared/components/line_chart.js";
import { formatPercent, formatWholePercent } from "../shared/format.js";

/** @import { Series } from "../shared/types.js" */

const LOSS_OPTIONS = { label: "Loss", isLog: true, yRange: /** @type {any} */ ([null, null]) };
const optionsByLabel = new Map();

/** Return the options of a chart. They are cached, because new options draw the chart again. */
const scoreOptions = (label) => {
  if (!optionsByLabel.has(label))
    optionsByLabel.set(label, {
      label,
      yRange: [0, 1],
      formatY: formatPercent,
      formatTick: formatWholePercent,
      syncKey: "compare " + label,
    });
  return optionsByLabel.get(label);
};

/**
 * Return a series from rows, without the rows that have no value.
 * @param {string} label
 * @param {any[]} rows
 * @param {(row: any, index: number) => [number, number | null | undefined]} read returns step and
 *   value
 * @param {number} [color]
 * @returns {Series}
 */
export function toSeries(label, rows, read, color = 0) {
  const points = rows.map(read).filter(([, value]) => typeof value === "number");
  return {
    key: label,
    label,
    x: points.map(([step]) => step),
    y: points.map(([, value]) => value ?? null),
    color,
    hasPoints: points.length < 30,
  };
}

/** @param {{ scoreLabel: string, scores: Series[], losses: Series[] }} props */
export const TrainingCharts = ({ scoreLabel, scores, losses }) =>
  html`<div class="pg-halves pg-charts">
    <${LineChart} options=${scoreOptions(scoreLabel)} series=${scores} />
    <${LineChart} options=${LOSS_OPTIONS} series=${losses} />
  </div>`;
