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

/** Offer a URL for download. @param {string} url @param {string} [name] of the file */
export function downloadUrl(url, name = "") {
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
}

/** Offer a file for download. @param {string} name @param {Blob} blob */
export function downloadBlob(name, blob) {
  const url = URL.createObjectURL(blob);
  downloadUrl(url, name);
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** @param {string} name @param {unknown[][]} rows */
export const downloadCsv = (name, rows) =>
  downloadBlob(name, new Blob([toCsv(rows)], { type: "text/csv" }));
