import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { Chart } from "../chart.js";
import { toTable } from "../chart_data.js";
import { toPng } from "../chart_options.js";
import { downloadBlob, downloadFile, toCsv } from "../download.js";
import { DataTable } from "./data_table.js";
/** @import { ChartOptions, Marker, Series } from "../types.js" */

/**
 * Create a chart in the element of `box`, once. It ends with its component.
 * @param {() => ChartOptions} createOptions
 * @param {(chart: Chart) => (() => void) | void} [onCreate] may return what ends with the chart
 */
export function useChart(createOptions, onCreate = () => {}) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)),
    chart = useRef(/** @type {Chart | null} */ (null));
  useEffect(() => {
    const created = new Chart(/** @type {HTMLElement} */ (box.current), createOptions()),
      end = onCreate(created);
    chart.current = created;
    return () => {
      end?.();
      created.destroy();
    };
  }, []);
  return { box, chart };
}

/**
 * A chart with its tools: logarithmic axis, table, CSV and PNG.
 * @param {{ series: Series[], markers?: Marker[], options: ChartOptions, hasLog?: boolean }} props
 */
export function LineChart({ series, markers = [], options, hasLog }) {
  const { box, chart } = useChart(() => options),
    [isLog, setLog] = useState(options.isLog ?? false);
  useEffect(() => {
    const current = /** @type {Chart} */ (chart.current);
    Object.assign(current.options, options, { isLog });
    current.setData(series, markers);
  }, [series, markers, options, isLog]);
  return html`<figure class="pg-figure">
    <div ref=${box}></div>
    <figcaption class="pg-chart-tools">
      ${
        hasLog &&
        html`<label>
          <input type="checkbox" checked=${isLog} onChange=${() => setLog(!isLog)} /> log scale
        </label>`
      }
      <span class="pg-spacer"></span>
      <${ChartTools} chart=${chart} />
    </figcaption>
  </figure>`;
}

/**
 * Buttons for the table and the files of a chart. The table has the data of the moment at which it
 * was opened.
 * @param {{ chart: { current: Chart | null }, title?: string }} props
 */
export function ChartTools({ chart, title = "" }) {
  const [table, setTable] = useState(/** @type {ReturnType<typeof toTable> | null} */ (null));
  const read = () => {
    const { series, options } = /** @type {Chart} */ (chart.current);
    return {
      name: options.label.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-"),
      table: toTable(series, options.xLabel),
    };
  };
  const exportCsv = () => {
    const { name, table } = read();
    downloadFile(name + ".csv", toCsv([table.header, ...table.rows]));
  };
  const exportPng = async () => {
    const blob = chart.current && (await toPng(chart.current));
    if (blob) downloadBlob(read().name + ".png", blob);
  };
  return html`<span class="pg-chart-tools" role="group" aria-label=${"Data of the chart " + title}>
      ${title}
      <button
        type="button"
        aria-expanded=${String(table !== null)}
        onClick=${() => setTable(table ? null : read().table)}
      >
        Table
      </button>
      <button type="button" onClick=${exportCsv}>CSV</button>
      <button type="button" onClick=${exportPng}>PNG</button>
    </span>
    ${table && html`<${ChartTable} table=${table} chart=${chart.current} />`}`;
}

/** @param {{ table: ReturnType<typeof toTable>, chart: Chart }} props */
function ChartTable({ table: { header, rows }, chart }) {
  const { label, formatX, formatY } = chart.options;
  const columns = header.map((heading, i) => ({
    key: String(i),
    label: heading,
    isNumber: true,
    isSortable: false,
    render: (/** @type {(number | null)[]} */ row) =>
      row[i] === null ? "" : (i ? formatY : formatX)(row[i]),
  }));
  return html`<${DataTable}
    caption=${label}
    isCaptionVisible
    columns=${columns}
    rows=${rows}
    rowKey=${(/** @type {number[]} */ row) => String(row[0])}
  />`;
}
