// Files that the page offers for download.

/** @type {Record<string, string>} */
const MEDIA_TYPES = { csv: "text/csv", html: "text/html", json: "application/json" };

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

/** Offer a file; its name ends with its type. @param {string} name @param {string} content */
export const downloadFile = (name, content) =>
  downloadBlob(name, new Blob([content], { type: MEDIA_TYPES[name.split(".").at(-1) ?? ""] }));

/** Offer a value as a JSON file. @param {string} name @param {unknown} value */
export const downloadJson = (name, value) => downloadFile(name, JSON.stringify(value, null, 1));

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
