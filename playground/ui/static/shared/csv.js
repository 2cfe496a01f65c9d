// CSV text and downloads.

/** @param {unknown} value */
function formatCell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  // A spreadsheet would evaluate a cell that starts like a formula.
  const isFormula = /^[=+@\t]|^-[^\d.]/.test(text);
  return isFormula || /[",\n]/.test(text)
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

/** Offer a file for download. @param {string} name @param {Blob} blob */
export function downloadBlob(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** @param {string} name @param {unknown[][]} rows */
export const downloadCsv = (name, rows) =>
  downloadBlob(name, new Blob([toCsv(rows)], { type: "text/csv" }));
