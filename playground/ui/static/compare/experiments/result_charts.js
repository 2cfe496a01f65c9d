// The charts of the open experiment.
import { html } from "../../vendor/preact.js";
import { toSeries } from "../../shared/chart_data.js";
import { LineChart } from "../../shared/components/line_chart.js";
import {
  formatCount,
  formatInteger,
  formatPercent,
  formatWholePercent,
} from "../../shared/format.js";
import { TRAINING_LOSS } from "../../shared/strings.js";
import { labelSettings, lines } from "./state.js";
/** @import { Series } from "../../shared/types.js" */

const HEIGHT = 210;
const PERCENT_AXIS = {
  yRange: /** @type {[number, number]} */ ([0, 1.02]),
  formatY: formatPercent,
  formatTick: formatWholePercent,
};
const LIVE_DASH = 2;
const NO_CURVES = "No run has been evaluated yet.";
const NO_LENGTHS = "The lines appear after a run is finished and evaluated at all lengths.";

/** Return the name of a line. A number has its setting, so that it does not look like a result. */
function labelLine({ label, short }) {
  const isNumber = !Number.isNaN(Number(short));
  return labelSettings(isNumber ? label : short);
}

/**
 * Return the lines of one quantity: the median with the range over the finished seeds, and the
 * curves so far of the seeds that train.
 * @param {any[]} variants
 * @param {Map<string, number>} lines the color of each line, by the label of its variant
 * @param {"curve" | "loss"} quantity @returns {Series[]}
 */
export function buildSeries(variants, lines, quantity) {
  return variants.flatMap((variant) => {
    const color = lines.get(variant.label);
    if (color === undefined) return [];
    const { steps, median, low, high } = variant[quantity],
      name = labelLine(variant),
      line = { key: variant.label, label: name, x: steps, y: median, low, high, color },
      live = (variant.live ?? []).map((run) =>
        toSeries(`${name}, seed ${run.seed} so far`, run[quantity], color, {
          key: `${variant.label}/${run.seed}`,
          dash: LIVE_DASH,
        }),
      );
    return steps.length || !live.length ? [line, ...live] : live;
  });
}

/**
 * Return the line of one scheme over the lengths: the median with the range over seeds, or a single
 * seed with its 95 % interval.
 * @param {any} row @param {number} color @returns {Series}
 */
export function buildLengthSeries(row, color) {
  const line = {
    key: row.label,
    label: labelSettings(row.label),
    x: row.lengths,
    y: row.median,
    color,
  };
  if (row.n !== 1) return { ...line, low: row.low, high: row.high };
  const scores = new Map(
      row.runs.find((run) => run.scores.length).scores.map((score) => [score.length, score]),
    ),
    pick = (bound) => row.lengths.map((length) => scores.get(length)?.[bound] ?? null);
  return { ...line, low: pick("low"), high: pick("high") };
}

function describeLengths({ n_requested: n, rows }) {
  return (
    `Up to ${formatCount(n, "held-out sequence")} of each length; ` +
    (rows.some((row) => row.n === 1)
      ? "bands are 95 % intervals for a single seed, otherwise the full range over seeds."
      : "the line is the median over seeds, the band the full range.") +
    " Shaded: training lengths."
  );
}

function LengthCharts({ lengths }) {
  const { rows, trained, max_length: maxLength } = lengths,
    [first, last] = trained,
    visible = rows
      .map((row, i) => ({ row, color: lines.value.get(lengths.labels[i]) ?? -1 }))
      .filter((each) => each.color >= 0);
  return html`<div class="by-length-chart">
    <${LineChart}
      series=${visible.map((each) => buildLengthSeries(each.row, each.color))}
      options=${{
        ...PERCENT_AXIS,
        label: "Exact match by length",
        xLabel: "length",
        height: HEIGHT,
        xRange: [1, Math.max(2, maxLength)],
        shaded: [Math.max(1, first), last],
        emptyText: NO_LENGTHS,
      }}
    />
    <p class="pg-hint">${describeLengths(lengths)}</p>
  </div>`;
}

export function ResultCharts({ results: { results, lengths } }) {
  const { variants } = results,
    hasLive = variants.some((variant) => variant.live?.length),
    // Runs may end early, at an exact match.
    lastOf = ({ steps, curve }) => (hasLive ? steps : (curve?.steps.at(-1) ?? steps)),
    last = Math.max(1, ...variants.map(lastOf)),
    isOneSeed = !variants.some((variant) => variant.planned > 1),
    options = {
      height: HEIGHT,
      xRange: /** @type {[number, number]} */ ([0, last]),
      formatX: formatInteger,
      syncKey: "experiments",
      emptyText: NO_CURVES,
    };
  return html`${
      lengths &&
      html`<${LengthCharts}
        lengths=${{ ...lengths, labels: variants.map((variant) => variant.label) }}
      />`
    }
    <div class="pg-halves pg-charts">
      <div class="score-chart">
        <${LineChart}
          series=${buildSeries(variants, lines.value, "curve")}
          options=${{ ...options, ...PERCENT_AXIS, label: "Exact match" }}
        />
      </div>
      <div class="loss-chart">
        <${LineChart}
          series=${buildSeries(variants, lines.value, "loss")}
          options=${{ ...options, label: TRAINING_LOSS, isLog: true }}
          hasLog
        />
      </div>
    </div>
    <p class="pg-hint">
      ${isOneSeed ? "One seed each." : "Line: median over the finished seeds; band: full range."}
      ${hasLive && " Dotted: runs that train."}
    </p>`;
}
