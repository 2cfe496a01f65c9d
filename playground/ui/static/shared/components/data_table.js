import { Button } from "./buttons.js";
import { html, useState } from "../../vendor/preact.js";
import { formatInteger } from "../format.js";
/** @import { Column } from "../types.js" */

const MAX_ROWS = 100; // until a user requests all

/** @param {Column} column @param {any} row */
const valueOf = (column, row) => (column.value ? column.value(row) : row[column.key]);

/**
 * Return the rows in the order of a column. Missing values are last.
 * @template Row
 * @param {Row[]} rows @param {Column<Row>} column @param {"ascending" | "descending"} direction
 */
export function sortRows(rows, column, direction) {
  const sign = direction === "ascending" ? 1 : -1;
  return [...rows].sort((a, b) => {
    const left = valueOf(column, a),
      right = valueOf(column, b);
    if (left === right) return 0;
    if (left === null || left === undefined) return 1;
    if (right === null || right === undefined) return -1;
    return typeof left === "number" && typeof right === "number"
      ? sign * (left - right)
      : sign * String(left).localeCompare(String(right));
  });
}

/**
 * A table with a caption and columns that sort.
 * @template Row
 * @param {{ caption: string, columns: Column<Row>[], rows: Row[], rowKey?: (row: Row) => string,
 *   sortKey?: string, isCaptionVisible?: boolean, emptyText?: string, actions?: (row: Row) => any,
 *   class?: string }} props
 */
export function DataTable({
  caption,
  columns,
  rows,
  rowKey = (row) => /** @type {any} */ (row).name,
  sortKey = "",
  isCaptionVisible = false,
  emptyText = "",
  actions,
  class: className = "",
}) {
  const [sort, setSort] = useState(() => ({
    key: sortKey,
    direction: columns.find((each) => each.key === sortKey)?.isNumber ? "descending" : "ascending",
  }));
  const sortColumn = columns.find((column) => column.key === sort.key),
    direction = /** @type {"ascending" | "descending"} */ (sort.direction),
    sorted = sortColumn ? sortRows(rows, sortColumn, direction) : rows,
    [limit, setLimit] = useState(MAX_ROWS);
  const onSort = (/** @type {Column<Row>} */ column) => {
    const first = column.isNumber ? "descending" : "ascending",
      other = first === "ascending" ? "descending" : "ascending";
    setSort({
      key: column.key,
      direction: sort.key === column.key && direction === first ? other : first,
    });
  };
  if (!rows.length && emptyText) return html`<p class="pg-hint pg-empty">${emptyText}</p>`;
  return html`<div class="pg-table-box" tabindex="0" role="region" aria-label=${caption}>
    <table class=${`pg-table ${className}`}>
      <caption class=${isCaptionVisible ? "" : "pg-visually-hidden"}>
        ${caption}
      </caption>
      <thead>
        <tr>
          ${columns.map((column) => renderHeading(column, sort, onSort))}
          ${actions && html`<th scope="col"><span class="pg-visually-hidden">Actions</span></th>`}
        </tr>
      </thead>
      <tbody>
        ${sorted.slice(0, limit).map((row) => renderRow(row, rowKey(row), columns, actions))}
      </tbody>
    </table>
    ${
      sorted.length > limit &&
      html`<${Button} onClick=${() => setLimit(Infinity)}>
        Show all ${formatInteger(sorted.length)} rows
      <//>`
    }
  </div>`;
}

/**
 * @param {any} row @param {string} key @param {Column<any>[]} columns
 * @param {((row: any) => any) | undefined} actions
 */
const renderRow = (row, key, columns, actions) =>
  html`<tr key=${key}>
    ${columns.map(
      (column) =>
        html`<td key=${column.key} class=${cellClass(column)} style=${column.style?.(row)}>
          ${column.render ? column.render(row) : valueOf(column, row)}
        </td>`,
    )}
    ${actions && html`<td class="pg-actions">${actions(row)}</td>`}
  </tr>`;

/** @param {Column} column */
const cellClass = ({ isNumber, isOptional }) =>
  (isNumber ? "pg-number" : "") + (isOptional ? " pg-optional" : "");

/**
 * @param {Column<any>} column @param {{ key: string, direction: string }} sort
 * @param {(column: Column<any>) => void} onSort
 */
function renderHeading(column, sort, onSort) {
  const isSorted = column.key === sort.key;
  return html`<th
    key=${column.key}
    scope="col"
    class=${cellClass(column)}
    aria-sort=${isSorted ? sort.direction : undefined}
  >
    ${
      column.isSortable === false
        ? column.label
        : html`<button
            type="button"
            title=${column.help ?? "Sort by " + column.label}
            onClick=${() => onSort(column)}
          >
            ${column.label}
          </button>`
    }
  </th>`;
}

/**
 * A plain table. A cell is a text or a template.
 * @param {{ rows: any[][], head?: string[], numbers?: number[], class?: string }} props `numbers`
 *   are the columns that are aligned to the right
 */
export const Table = ({ rows, head, numbers = [], class: className }) =>
  html`<table class=${className}>
    ${
      head &&
      html`<thead>
        <tr>
          ${head.map((text) => html`<th key=${text} scope="col">${text}</th>`)}
        </tr>
      </thead>`
    }
    <tbody>
      ${rows.map(
        (cells, row) =>
          html`<tr key=${row}>
            ${cells.map(
              (cell, i) =>
                html`<td key=${i} class=${numbers.includes(i) ? "pg-number" : undefined}>
                  ${cell}
                </td>`,
            )}
          </tr>`,
      )}
    </tbody>
  </table>`;
