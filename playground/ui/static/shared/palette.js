// Colors of charts and heat maps, in light and dark mode.

// Colors after Okabe and Ito. Each has its own dash pattern, so lines never differ by color
// alone.
const SERIES_COLORS = [
  ["#1f6fb2", "#5aa7e0"],
  ["#d98200", "#ffb000"],
  ["#00795a", "#2fd6a5"],
  ["#b8478c", "#f08fc4"],
  ["#c0392b", "#ff7b61"],
  ["#6b7280", "#c3c8d1"],
  ["#7a5c00", "#d9c34a"],
  ["#5b3fc4", "#b7a4ff"],
];
const SERIES_DASHES = [[], [7, 3], [2, 2.5], [9, 3, 2, 3]];

// A perceptually uniform ramp from background to text color, readable without color vision.
const RAMPS = {
  light: ["#ffffff", "#d6e6f4", "#96c5e2", "#4a92c7", "#185aa0", "#082a5c"].map(parseColor),
  dark: ["#181b21", "#183454", "#245e92", "#5296cc", "#9eccee", "#f0f9ff"].map(parseColor),
};
// The colors of the largest negative and of the largest positive value.
const SIGNED_ENDS = {
  light: ["#b25200", "#185aa0"].map(parseColor),
  dark: ["#ffa057", "#5296cc"].map(parseColor),
};
const RAMP_STEPS = 1000;

/** @typedef {"light" | "dark"} Theme */

/** Return red, green and blue. @param {string} hex such as "#185aa0" */
export function parseColor(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** @returns {Theme} */
export const currentTheme = () =>
  document.documentElement.classList.contains("dark") ? "dark" : "light";

/** Return the value of a CSS variable, in this theme. @param {string} name */
export const cssVariable = (name) =>
  getComputedStyle(document.documentElement)
    .getPropertyValue(name)
    .trim()
    .replace(/^light-dark\((.+), (.+)\)$/, currentTheme() === "light" ? "$1" : "$2");

/** Return a color for a canvas. @param {number | string} color an index, a variable or a color */
export function resolveColor(color) {
  if (typeof color === "number")
    return SERIES_COLORS[color % SERIES_COLORS.length][currentTheme() === "dark" ? 1 : 0];
  return color.startsWith("--") ? cssVariable(color) : color;
}

/** A repeat has another one. @param {Pick<import("./types.js").Series, "color" | "dash">} series */
export function dashOf({ color, dash }) {
  const index = dash ?? (typeof color === "number" ? color : 0);
  return SERIES_DASHES[(index + Math.floor(index / SERIES_COLORS.length)) % SERIES_DASHES.length];
}

/** @param {number[]} from @param {number[]} to @param {number} t */
const mix = (from, to, t) => from.map((a, i) => Math.round(a + (to[i] - a) * t));

const rampTables = /** @type {Partial<Record<Theme, number[][]>>} */ ({});

/** Return red, green and blue for 0 to 1000 thousandths. @param {Theme} theme */
export function colorTable(theme = currentTheme()) {
  const stops = RAMPS[theme];
  return (rampTables[theme] ??= Array.from({ length: RAMP_STEPS + 1 }, (_, step) => {
    const at = (step / RAMP_STEPS) * (stops.length - 1),
      i = Math.min(stops.length - 2, Math.floor(at));
    return mix(stops[i], stops[i + 1], at - i);
  }));
}

/**
 * Return a function from a value to red, green and blue. Signed values use a diverging scale.
 * @param {number} max the value with the strongest color @param {boolean} [isSigned]
 * @param {Theme} [theme] @returns {(value: number) => number[]}
 */
export function colorScale(max, isSigned = false, theme = currentTheme()) {
  const scale = max || 1;
  if (!isSigned) {
    const table = colorTable(theme);
    return (value) =>
      table[Math.max(0, Math.min(RAMP_STEPS, Math.round((RAMP_STEPS * value) / scale)))];
  }
  return (value) => {
    const share = Math.max(-1, Math.min(1, value / scale));
    return mix(RAMPS[theme][0], SIGNED_ENDS[theme][share < 0 ? 0 : 1], Math.abs(share));
  };
}

/** Return a function that ends this. @param {() => void} redraw */
export function onThemeChange(redraw) {
  const observer = new MutationObserver(redraw);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
  return () => observer.disconnect();
}
