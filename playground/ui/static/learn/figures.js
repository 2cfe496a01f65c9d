// The figures of measurements, drawn by the shared components.
import { html, useMemo } from "../vendor/preact.js";
import { BarList } from "../shared/components/bar_list.js";
import { DataTable } from "../shared/components/data_table.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { LineChart } from "../shared/components/line_chart.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import {
  formatMessage,
  formatNumber,
  formatPercent,
  formatWholePercent,
} from "../shared/format.js";

const MAX_SMALL_COLUMNS = 8; // of a map that fits beside another

const OUTPUT_COLUMNS = [
  { key: "target", label: "target" },
  {
    key: "prediction",
    label: "output",
    render: ({ prediction, target }) =>
      html`<${TokenStrip}
        label="output"
        tokens=${prediction.split(" ").filter(Boolean)}
        targets=${target.split(" ")}
      />`,
  },
].map((column) => ({ ...column, isSortable: false }));

/** Return the chart of a figure: its lines and options. */
export function buildChart({
  max,
  max_trained_length: trained,
  metric,
  series,
  title,
  x_label: xLabel,
}) {
  const isLoss = metric === "loss",
    xs = series.flatMap((each) => each.xs),
    hasLengths = xLabel === "length" && xs.length > 0,
    first = hasLengths ? Math.min(...xs) : 0;
  return {
    series: series.map((each, i) => ({
      key: each.label,
      label: each.label,
      x: each.xs,
      y: each.ys,
      color: each.color ?? i,
      hasPoints: xLabel === "length",
    })),
    options: {
      label: title,
      xLabel: xLabel ?? "step",
      isLog: isLoss,
      formatY: isLoss ? formatNumber : formatPercent,
      formatTick: isLoss ? formatNumber : formatWholePercent,
      xRange: [first, max ?? null],
      yRange: isLoss ? undefined : [Math.min(0, ...series.flatMap((each) => each.ys)), 1],
      restingX: hasLengths ? Math.max(...xs) : null,
      shaded: trained ? [first, trained] : undefined,
    },
  };
}

function Curves({ figure }) {
  const chart = useMemo(() => buildChart(figure), [figure]);
  return html`<${LineChart} ...${chart} />
    ${figure.note && html`<p class="pg-hint">${figure.note}</p>`}`;
}

/** Describe a cell: an attention weight, or the score of a head. */
export const describeCell = ({ columns, has_heads: hasHeads, rows, weights }, row, column) =>
  hasHeads
    ? formatMessage(`${rows[row]}, ${columns[column]}: ${formatPercent(weights[row][column])}`)
    : `${rows[row]} attends to ${columns[column]} with weight ` +
      `${weights[row][column].toFixed(3)}, position ${column + 1}.`;

const mapCaption = ({ caption, is_generated: isGenerated }) =>
  caption ??
  `Rows: ${isGenerated ? "generated tokens" : "decoder input tokens"} (queries). ` +
    "Columns: source tokens (keys).";

function AttentionMap({ figure }) {
  const data = useMemo(
    () => ({
      rows: figure.rows,
      columns: figure.columns,
      values: figure.weights,
      mask: figure.mask,
      selected: figure.selected,
      maxCellSize: figure.size ?? 34,
    }),
    [figure],
  );
  return html`<h4>${figure.title}</h4>
    <${HeatMapView}
      label=${figure.title}
      data=${data}
      caption=${mapCaption(figure)}
      describe=${(row, column) => describeCell(figure, row, column)}
    />`;
}

function Bars({ figure: { bars, title } }) {
  const items = bars.map(({ label, note, value }) => ({
    label,
    value,
    text: `${value.toFixed(2)} · ${note}`,
  }));
  return html`<h4>${title}</h4>
    <${BarList}
      label=${title}
      items=${items}
      max=${Math.max(1e-9, ...bars.map((bar) => bar.value))}
    />`;
}

const Outputs = ({ figure: { label = "input", rows, title } }) =>
  html`<${DataTable}
    caption=${title}
    isCaptionVisible
    columns=${[{ key: "input", label, isSortable: false }, ...OUTPUT_COLUMNS]}
    rows=${rows}
    rowKey=${(row) => row.input}
  />`;

const FIGURES = { curves: Curves, map: AttentionMap, bars: Bars, outputs: Outputs };

const isSmall = ({ columns, kind }) => kind === "map" && columns.length <= MAX_SMALL_COLUMNS;

/** The figures of a result, one below the other, or side by side with `isGrid`. */
export const Figures = ({ figures, isGrid = false }) =>
  html`<div class=${"pictures pg-charts" + (isGrid ? " maps" : "")}>
    ${figures.map(
      (figure, i) =>
        html`<div key=${figure.kind + i} class=${isSmall(figure) ? "small" : ""}>
          <${FIGURES[figure.kind]} figure=${figure} />
        </div>`,
    )}
  </div>`;
