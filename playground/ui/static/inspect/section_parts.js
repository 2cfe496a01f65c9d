// The content of table cells: shades and bars.
import { html, signal } from "../vendor/preact.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { formatNumber } from "../shared/format.js";
import { colorTable, currentTheme, onThemeChange } from "../shared/palette.js";
import { refresh } from "./requests.js";

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

/** The style of a cell; its text has the higher contrast. @param {number} fraction */
export function shade(fraction) {
  const color = colorTable(theme.value)[Math.round(1000 * Math.max(0, Math.min(1, fraction)))],
    light = luminance(color) + 0.05,
    text = 1.05 / light > light / 0.05 ? "#fff" : "#000";
  return `background-color: rgb(${color.join()}) !important; color: ${text}`;
}

/** A bar from zero to a value on an axis from `low` to `high`. */
function SignedBar({ value, low, high }) {
  const percent = (/** @type {number} */ x) => (100 * x) / (high - low || 1) + "%";
  return html`<div class="bar-axis" style=${{ "--zero": percent(-low) }}>
    <div
      class=${"bar" + (value < 0 ? " below" : "")}
      style=${{ left: percent(Math.min(0, value) - low), width: percent(Math.abs(value)) }}
    ></div>
  </div>`;
}

/** A column with bars from zero to what `read` returns, on an axis up to `most` at least. */
export function barColumn(label, rows, read, most = 0) {
  const values = rows.map(read),
    range = { low: Math.min(0, ...values), high: Math.max(most, ...values) };
  return {
    key: "bar",
    label,
    isSortable: false,
    render: (row) => html`<${SignedBar} value=${read(row)} ...${range} />`,
  };
}

/** Format a fraction or a cosine with two decimals and a minus sign. @param {number} value */
export const formatTwoDecimals = (value) =>
  value.toFixed(2).replace("-0.00", "0.00").replace("-", "−");

/** Format a number with its sign, also a plus. @param {number} value */
export const formatSigned = (value) => (value > 0 ? "+" : "") + formatNumber(value);

// The parts of a section.

/** @param {{ title: string, hint?: string, isWide?: boolean, children?: any }} props */
export const Part = ({ title, hint, isWide = false, children }) =>
  html`<section class=${"part" + (isWide ? " wide" : "")}>
    <h4>${title}</h4>
    ${hint && html`<p class="pg-quiet">${hint}</p>`}${children}
  </section>`;

// The options of a section: what its request contains, and links to the section.

/**
 * Return the options of a section as a signal, and functions that change them.
 * @template {Record<string, any>} Options
 * @param {Options} initial
 */
export function createOptions(initial) {
  const options = signal(initial);
  /** Set options that only the page uses. @param {Partial<Options>} changes */
  const set = (changes) => {
    options.value = { ...options.value, ...changes };
  };
  /** Set options and request the section again. @param {Partial<Options>} changes */
  const update = (changes, delayMs = 0) => {
    set(changes);
    refresh(delayMs);
  };
  /** A control of an option: its current value, or that of the response. */
  const choose = (name, label, choices, value = options.value[name], change = update) =>
    html`<${SegmentedControl}
      label=${label}
      options=${choices}
      value=${value}
      onChange=${(next) => change(/** @type {any} */ ({ [name]: next }))}
    />`;
  /** Apply the options of a link; those of another type are ignored. @param {any} link */
  const restore = (link) =>
    set(
      /** @type {any} */ (
        Object.fromEntries(
          Object.entries(initial)
            .filter(([name, value]) => typeof link[name] === typeof value)
            .map(([name]) => [name, link[name]]),
        )
      ),
    );
  return { options, set, update, restore, choose };
}
