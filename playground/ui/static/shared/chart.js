// A line chart on a canvas: a legend with the values at the cursor, bands, and a cursor for the
// keyboard. uPlot draws it.

import { html, render } from "../vendor/preact.js";
import uPlot from "../vendor/uplot.js";
import { alignColumns, listColumns, nearestValue } from "./chart_data.js";
import { buildPlotOptions } from "./chart_options.js";
import { nearestIndex } from "./store.js";
import { formatInteger, formatNumber } from "./format.js";
import { dashOf, onThemeChange, resolveColor } from "./palette.js";
/** @import { ChartOptions, Marker, Series } from "./types.js" */

const DEFAULTS = {
  xLabel: "step",
  height: 180,
  isLog: false,
  formatX: formatInteger,
  formatY: formatNumber,
  emptyText: "The curve appears with the first value.",
};
const LARGE_STEP = 10; // values, with the Shift key

export class Chart {
  /** @param {HTMLElement} box @param {ChartOptions} options */
  constructor(box, options) {
    this.options = { ...DEFAULTS, ...options };
    this.series = /** @type {Series[]} */ ([]);
    this.markers = /** @type {Marker[]} */ ([]);
    this.cursorX = /** @type {number | null} */ (null);
    this.plot = /** @type {uPlot | null} */ (null);
    this.signature = "";
    this.columns = listColumns([]);
    this.data = alignColumns([], {});
    this.root = appendElement(box, "div", "pg-chart");
    this.legendBox = options.legendBox ?? appendElement(this.root, "div", "");
    this.legendBox.classList.add("pg-legend");
    this.plotBox = appendElement(this.root, "div", "pg-chart-plot");
    this.emptyBox = appendElement(this.root, "p", "pg-chart-empty");
    this.live = appendElement(this.root, "p", "pg-visually-hidden");
    this.live.setAttribute("aria-live", "polite");
    this.plotBox.tabIndex = 0;
    this.plotBox.setAttribute("role", "img");
    this.plotBox.style.height = this.options.height + "px";
    this.plotBox.addEventListener("keydown", (event) => this.handleKey(event));
    this.plotBox.addEventListener("blur", () => this.setCursor(null));
    this.renderLegend();
    this.stopTheme = onThemeChange(() => {
      this.plot?.redraw(false);
      this.renderLegend();
    });
    this.resize = new ResizeObserver(() => this.fit());
    this.resize.observe(this.plotBox);
  }

  /** The plot stays if its lines do. @param {Series[]} series @param {Marker[]} [markers] */
  setData(series, markers = []) {
    this.series = series;
    this.markers = markers;
    this.columns = listColumns(series);
    this.data = alignColumns(this.columns, { ...this.options, isThinned: true });
    const signature = JSON.stringify([
      this.options.isLog,
      this.columns.map((column) => [column.series.key, column.kind]),
    ]);
    if (this.plot && signature === this.signature) this.plot.setData(this.data);
    else this.rebuild(signature);
    this.emptyBox.textContent = this.data[0].length ? "" : this.options.emptyText;
    this.renderLegend();
  }

  /** Draw other markers over the same lines, whose paths stay. @param {Marker[]} markers */
  setMarkers(markers) {
    this.markers = markers;
    this.plot?.redraw(false);
    this.renderLegend();
  }

  /** @param {string} signature */
  rebuild(signature) {
    this.plot?.destroy();
    this.plot = null;
    this.signature = signature;
    if (!this.plotBox.clientWidth) return; // `fit` builds the plot of a hidden tab
    this.plot = new uPlot(buildPlotOptions(this), this.data, this.plotBox);
  }

  fit() {
    const width = this.plotBox.clientWidth;
    if (!width) return;
    if (!this.plot) this.rebuild(this.signature);
    else if (this.plot.width !== width) this.plot.setSize({ width, height: this.options.height });
  }

  /** The limits of the x axis. @returns {[number, number]} */
  xLimits() {
    const xs = this.data[0],
      [low, high] = this.options.xRange ?? [null, null],
      from = low ?? xs[0] ?? 0,
      to = high ?? xs[xs.length - 1] ?? 1;
    return from < to ? [from, to] : [from, from + 1];
  }

  /** Show the values at a position; null shows the latest values. @param {number | null} x */
  setCursor(x) {
    const plot = /** @type {any} */ (this.plot);
    if (!plot) return;
    const top = x === null ? -10 : plot.over.clientHeight / 2;
    // The cursors of other charts with the same key follow.
    plot.setCursor({ left: x === null ? -10 : plot.valToPos(x, "x"), top }, true, true);
  }

  /** Called by uPlot after each move of the cursor. @param {number | null | undefined} index */
  handleCursor(index) {
    const x = index === null || index === undefined ? null : this.data[0][index];
    if (x === this.cursorX) return;
    this.cursorX = x;
    this.renderLegend();
    this.options.onCursor?.(x);
  }

  /** @param {KeyboardEvent} event */
  handleKey(event) {
    const xs = this.data[0];
    if (!xs.length) return;
    const last = xs.length - 1,
      index = this.cursorX === null ? xs.length : nearestIndex(xs, this.cursorX),
      offset = event.shiftKey ? LARGE_STEP : 1,
      /** @type {Record<string, number>} */
      targets = { ArrowLeft: index - offset, ArrowRight: index + offset, Home: 0, End: last };
    if (event.key in targets) this.moveTo(xs[Math.max(0, Math.min(last, targets[event.key]))]);
    else if (event.key === "Enter") this.selectCursor();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Select the position at the cursor. */
  selectCursor() {
    if (this.cursorX !== null) this.options.onSelect?.(this.cursorX);
  }

  /** @param {number} x */
  moveTo(x) {
    this.setCursor(x);
    this.live.textContent = this.describe();
  }

  /** The position of the values in the legend; null stands for the latest ones. */
  legendX() {
    return this.cursorX ?? this.options.restingX ?? null;
  }

  /** The series with their values at the cursor, or with their resting values. */
  readValues() {
    const x = this.legendX(),
      index = x === null ? this.data[0].length - 1 : nearestIndex(this.data[0], x);
    return this.columns.flatMap(({ series, kind }, i) =>
      kind === "line" ? [{ series, value: nearestValue(this.data[i + 1], index) }] : [],
    );
  }

  describe() {
    const { formatX, formatY, label, xLabel } = this.options,
      values = this.readValues().filter((each) => each.value !== null);
    if (!values.length) return label + ": no values yet";
    const x = this.legendX(),
      xText = x === null ? "latest" : `${xLabel} ${formatX(x)}`;
    return (
      `${label}, ${xText}: ` +
      values
        .map(({ series, value }) => `${series.label} ${formatY(/** @type {number} */ (value))}`)
        .join("; ")
    );
  }

  renderLegend() {
    const { formatX, formatY, label, xLabel } = this.options,
      x = this.legendX(),
      xText = x === null ? "" : `${xLabel} ${formatX(x)}`;
    this.plotBox.setAttribute("aria-label", this.describe() + ". Arrow keys read values.");
    render(
      html`<span class="pg-legend-title">${label}</span>
        <span class="pg-legend-x">${xText}</span>
        ${this.readValues()
          .filter(({ series }) => !series.partOf)
          .map(
            ({ series, value }) =>
              html`<span key=${series.key} class="pg-legend-line">
                <${Swatch} color=${series.color} dash=${series.dash} />
                <span>${series.label}</span>${" "}
                <span class="pg-legend-value">${value === null ? "" : formatY(value)}</span>
              </span>`,
          )}`,
      this.legendBox,
    );
  }

  destroy() {
    this.stopTheme();
    this.resize.disconnect();
    this.plot?.destroy();
    render(null, this.legendBox);
    this.root.remove();
  }
}

/** @param {HTMLElement} parent @param {string} tag @param {string} className */
function appendElement(parent, tag, className) {
  const node = document.createElement(tag);
  node.className = className;
  parent.append(node);
  return node;
}

/** A piece of a line; without a color, only its space. @param {Partial<Series>} props */
export const Swatch = ({ color, dash }) =>
  html`<svg width="22" height="8" aria-hidden="true">
    ${
      color !== undefined &&
      html`<line
        x2="22"
        y1="4"
        y2="4"
        stroke=${resolveColor(color)}
        stroke-width="2.4"
        stroke-dasharray=${dashOf({ color, dash }).join(" ")}
      />`
    }
  </svg>`;
