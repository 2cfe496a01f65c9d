// The content of table cells: shades and bars.
import { html, signal } from "../vendor/preact.js";
import { formatNumber } from "../shared/format.js";
import { colorTable, currentTheme, onThemeChange } from "../shared/palette.js";

/** The theme of the page. */
export const theme = signal(currentTheme());
onThemeChange(() => {
  theme.value = currentTheme();
});

/** Return the relative luminance of a color after WCAG 2. @param {number[]} color */
function luminance(color) {
  const [red, green, blue] = color.map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/**
 * Return the style of a cell whose shade is a fraction. The text has the higher contrast.
 * @param {number} fraction
 */
export function shade(fraction) {
  const color = colorTable(theme.value)[Math.round(1000 * Math.max(0, Math.min(1, fraction)))],
    light = luminance(color) + 0.05,
    text = 1.05 / light > light / 0.05 ? "#fff" : "#000";
  return `background-color: rgb(${color.join()}) !important; color: ${text}`;
}

/**
 * A bar from zero to a value on an axis from `low` to `high`.
 * @param {{ value: number, low: number, high: number }} props
 */
export function SignedBar({ value, low, high }) {
  const percent = (/** @type {number} */ x) => (100 * x) / (high - low || 1) + "%";
  return html`<div class="bar-axis" style=${{ "--zero": percent(-low) }}>
    <div
      class=${"bar" + (value < 0 ? " below" : "")}
      style=${{ left: percent(Math.min(0, value) - low), width: percent(Math.abs(value)) }}
    ></div>
  </div>`;
}

/** Format a fraction or a cosine with two decimals and a minus sign. @param {number} value */
export const formatTwoDecimals = (value) =>
  value.toFixed(2).replace("-0.00", "0.00").replace("-", "−");

/** Format a number with its sign, also a plus. @param {number} value */
export const formatSigned = (value) => (value > 0 ? "+" : "") + formatNumber(value);
