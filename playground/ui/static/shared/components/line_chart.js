import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { Chart } from "../chart.js";
import { ChartTools } from "./chart_tools.js";

/** @import { ChartOptions, Marker, Series } from "../types.js" */

/**
 * A chart with its tools: logarithmic axis, table, CSV and PNG.
 * @param {{
 *   series: Series[],
 *   markers?: Marker[],
 *   options: ChartOptions,
 *   hasLog?: boolean,
 * }} props
 */
export function LineChart({ series, markers = [], options, hasLog }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)),
    chart = useRef(/** @type {Chart | null} */ (null)),
    [isLog, setLog] = useState(options.isLog ?? false);
  useEffect(() => {
    chart.current = new Chart(/** @type {HTMLElement} */ (box.current), options);
    return () => chart.current?.destroy();
  }, []);
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
