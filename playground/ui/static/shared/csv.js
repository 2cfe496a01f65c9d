// CSV text, as `format_csv` in common/format.py.

/** @param {unknown} value */
function formatCell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  // A spreadsheet would evaluate a cell that starts like a formula.
  const isFormula = /^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.]+(e[+-]?\d+)?$/i.test(text);
  return isFormula || /[",\r\n]/.test(text)
    ? '"' + (isFormula ? "'" : "") + text.replaceAll('"', '""') + '"'
    : text;
}

/** Return rows of cells as CSV. @param {unknown[][]} rows */
export const toCsv = (rows) => rows.map((row) => row.map(formatCell).join() + "\n").join("");

/**
 * Return records as CSV. The header has all their keys.
 * @param {Record<string, unknown>[]} records
 */
export function recordsToCsv(records) {
  const keys = [...new Set(records.flatMap((record) => Object.keys(record)))];
  return records.length
    ? toCsv([keys, ...records.map((each) => keys.map((key) => each[key]))])
    : "";
}
