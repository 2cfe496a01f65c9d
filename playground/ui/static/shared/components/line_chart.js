import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { Chart } from "../chart.js";
import { thin, toTable } from "../chart_data.js";
import { toPng } from "../chart_options.js";
import { downloadBlob, downloadCsv } from "../csv.js";
import { DataTable } from "./data_table.js";

/** @import { ChartOptions, Marker, Series } from "../types.js" */

const MAX_TABLE_ROWS = 50;

/**
 * A chart with its tools: logarithmic axis, smoothing, table, CSV and PNG.
 * @param {{
 *   series: Series[],
 *   markers?: Marker[],
 *   options: ChartOptions,
 *   hasLog?: boolean,
 *   hasSmoothing?: boolean,
 * }} props
 */
export function LineChart({ series, markers = [], options, hasLog, hasSmoothing }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)),
    chart = useRef(/** @type {Chart | null} */ (null)),
    [isLog, setLog] = useState(options.isLog ?? false),
    [smoothing, setSmoothing] = useState(options.smoothing ?? 0),
    [hasTable, setTable] = useState(false);
  useEffect(() => {
    chart.current = new Chart(/** @type {HTMLElement} */ (box.current), options);
    return () => chart.current?.destroy();
  }, []);
  useEffect(() => {
    const current = /** @type {Chart} */ (chart.current);
    Object.assign(current.options, options, { isLog, smoothing });
    current.setData(series, markers);
  }, [series, markers, options, isLog, smoothing]);
  const name = options.label.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  const exportCsv = () => {
    const { header, rows } = toTable(series, options.xLabel ?? "step");
    downloadCsv(name + ".csv", [header, ...rows]);
  };
  const exportPng = async () => {
    const blob = chart.current && (await toPng(chart.current));
    if (blob) downloadBlob(name + ".png", blob);
  };
  return html`<figure class="pg-figure">
    <div ref=${box}></div>
    <figcaption class="pg-chart-tools">
      ${
        hasLog &&
        html`<label>
          <input type="checkbox" checked=${isLog} onChange=${() => setLog(!isLog)} /> log scale
        </label>`
      }
      ${
        hasSmoothing &&
        html`<label>
          smoothing
          <input
            type="range"
            min="0"
            max="0.99"
            step="0.01"
            value=${smoothing}
            onInput=${(/** @type {any} */ event) => setSmoothing(Number(event.currentTarget.value))}
          />
          <output>${smoothing.toFixed(2)}</output>
        </label>`
      }
      <span class="pg-spacer"></span>
      <button type="button" aria-expanded=${String(hasTable)} onClick=${() => setTable(!hasTable)}>
        Table
      </button>
      <button type="button" onClick=${exportCsv}>CSV</button>
      <button type="button" onClick=${exportPng}>PNG</button>
    </figcaption>
    ${hasTable && html`<${ChartTable} series=${series} options=${options} />`}
  </figure>`;
}

/** @param {{ series: Series[], options: ChartOptions }} props */
function ChartTable({ series, options }) {
  const { header, rows } = toTable(series, options.xLabel ?? "step"),
    format = options.formatY ?? String;
  const columns = header.map((label, i) => ({
    key: String(i),
    label,
    isNumber: true,
    isSortable: false,
    render: (/** @type {(number | null)[]} */ row) =>
      i === 0 ? row[0]?.toLocaleString("en") : row[i] === null ? "" : format(row[i]),
  }));
  return html`<${DataTable}
    caption=${
      rows.length > MAX_TABLE_ROWS
        ? `${options.label}: ${MAX_TABLE_ROWS} of ${rows.length} rows; the CSV file has all`
        : options.label
    }
    columns=${columns}
    rows=${thin(rows, MAX_TABLE_ROWS)}
    rowKey=${(/** @type {number[]} */ row) => String(row[0])}
  />`;
}
