// The text of numbers and tokens. playground/common/format.py, and format_token in
// playground/tasks/vocabulary.py, follow the same rules; tests/data/format_vectors.json tests both.

const integers = new Intl.NumberFormat("en");
const pluralRules = new Intl.PluralRules("en");
const EPSILON = 1e-9; // an error of a billionth counts as a rounding error
/** @param {number} value @param {number} digits */
const roundHalfUp = (value, digits) =>
  (Math.floor(value * 10 ** digits + 0.5 + EPSILON) / 10 ** digits).toFixed(digits);

/** Format an integer with thousands separators. @param {number} value */
export const formatInteger = (value) => integers.format(value);

/** Format with three significant digits, and a minus sign. @param {number} value */
export function formatNumber(value) {
  if (value === 0) return "0";
  const text = Math.abs(value) >= 1e-4 ? String(+value.toPrecision(3)) : value.toExponential(1);
  return text.replace(/^-/, "−");
}

/** Format a fraction, rounded down: only a complete one is 100 %. @param {number} fraction */
export function formatPercent(fraction) {
  const thousandths = Math.floor((fraction + EPSILON) * 1000);
  if (thousandths === 1000) return "100 %";
  if (thousandths) return (thousandths / 10).toFixed(1) + " %";
  return fraction > EPSILON ? "< 0.1 %" : "0 %";
}

/** Format a fraction in whole percent, for the labels of an axis. @param {number} fraction */
export const formatWholePercent = (fraction) => Math.round(100 * fraction) + " %";

/** Format a size in bytes with decimal units. @param {number} size */
export function formatBytes(size) {
  if (size < 999_500) return Math.max(1, Math.floor(size / 1e3 + 0.5)) + " KB";
  if (size < 999_500_000) return roundHalfUp(size / 1e6, size < 99_950_000 ? 1 : 0) + " MB";
  if (size < 999_500_000_000) return roundHalfUp(size / 1e9, size < 99_950_000_000 ? 1 : 0) + " GB";
  return roundHalfUp(size / 1e12, 1) + " TB";
}

/** Format a duration in seconds with its two largest units. @param {number} seconds */
export function formatDuration(seconds) {
  if (seconds < 59.95) return roundHalfUp(seconds, 1) + " s";
  const rounded = Math.floor(seconds + 0.5);
  if (rounded < 3600) return Math.floor(rounded / 60) + " min " + (rounded % 60) + " s";
  const minutes = Math.floor(seconds / 60 + 0.5);
  return Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}

/** Format the age of something in seconds, for a table. @param {number} seconds */
export function formatAge(seconds) {
  if (seconds < 60) return "just now";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " d";
}

/** @param {number} count @param {string} noun @param {string} [plural] */
export const formatCount = (count, noun, plural = noun + "s") =>
  formatInteger(count) + " " + (pluralRules.select(count) === "one" ? noun : plural);

/** Make a sentence; a name such as gpt2 keeps its case. @param {string | null | undefined} text */
export function formatMessage(text) {
  if (!text) return "";
  const first = /^\S*[/_.\d]\S*\s/.test(text) ? text[0] : text[0].toUpperCase();
  return first + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

/**
 * Format a token so that it can be seen: U+200B for an invisible character. Joiners stay in a token
 * that has visible characters. A mark without a letter gets a circle.
 * @param {string} token
 */
export function formatToken(token) {
  const hasVisible = /\P{DI}/u.test(token),
    text = token.replace(/\p{DI}/gu, (character) =>
      hasVisible && /[\p{Join_C}\p{VS}]/u.test(character)
        ? character
        : "U+" + (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0"),
    );
  return /^\p{M}/u.test(text) ? "◌" + text : text;
}
