import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { Chart } from "../chart.js";
import { ChartTools } from "./chart_tools.js";

/** @import { ChartOptions, Marker, Series } from "../types.js" */

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
    [smoothing, setSmoothing] = useState(options.smoothing ?? 0);
  useEffect(() => {
    chart.current = new Chart(/** @type {HTMLElement} */ (box.current), options);
    return () => chart.current?.destroy();
  }, []);
  useEffect(() => {
    const current = /** @type {Chart} */ (chart.current);
    Object.assign(current.options, options, { isLog, smoothing });
    current.setData(series, markers);
  }, [series, markers, options, isLog, smoothing]);
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
      <${ChartTools} chart=${chart} />
    </figcaption>
  </figure>`;
}
