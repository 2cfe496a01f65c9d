// How one value of a tensor is computed from earlier ones.
import { html, useMemo } from "../vendor/preact.js";
import { Table } from "../shared/components/data_table.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { formatNumber } from "../shared/format.js";

const MIN_WEIGHT = 0.005; // of a summand that the equation names

/** Format a value of a tensor, everywhere with the same four decimals. */
export const formatResult = (value) =>
  value === null ? "−∞" : String(+value.toFixed(4)).replace("-", "−");

/** Return a dot product with its first terms, its scale and its bias. */
export function formatDotProduct({ left, right, terms, sum, root, bias, value }) {
  const first = left.slice(0, 3).map((x, i) => `${formatNumber(x)}·${formatNumber(right[i])}`),
    rest = terms > 3 ? ` + … (${terms} products)` : "",
    products = first.join(" + ") + rest,
    plus = (name, total) =>
      bias === null ? "" : `; plus the ${name} ${formatNumber(bias)} = ${formatResult(total)}`;
  if (root === null) return `${products} = ${formatResult(sum)}${plus("bias", value)}`;
  const scaled = sum / root;
  return (
    `(${products}) / √${Math.round(root ** 2)} = ${formatNumber(sum)} / ${formatNumber(root)} = ` +
    formatResult(scaled) +
    plus("position bias", scaled + bias)
  );
}

/** The products of a dot product: two rows that are multiplied, and their products. */
function describeProducts(product, isScore) {
  const { at, left, right, products, names, terms } = product,
    rows = [...names, "product"],
    count = terms > at.length ? `The ${at.length} largest of ${terms} products. ` : "",
    total = isScore ? `: ${formatDotProduct(product)}.` : ".";
  return {
    data: {
      rows,
      columns: at.map(String),
      values: [left, right, products],
      isSigned: true,
    },
    caption: count + "Columns: dimensions that are multiplied. The bottom row is summed" + total,
    describe: (_, column) =>
      `Dimension ${at[column]}: ${names[0]} ${left[column]} · ${names[1]} ` +
      `${right[column]} = ${products[column]}.`,
  };
}

/** Return the name of each summand, with its weight if the sum is weighted. */
function nameSummands({ rows, weights, others }) {
  if (!weights) return rows;
  const isRest = (i) => others > 0 && i === rows.length - 1;
  return rows.map((name, i) => {
    const weight = weights[i].toFixed(2);
    return isRest(i) ? `${name}, ${weight} in total` : `${weight} × ${name}`;
  });
}

/** The equation of a sum of rows, for one row of the result. */
function formatSum({ rows, weights, others }, row) {
  if (!weights) {
    const parts = rows.map((name) => (name === "bias" ? name : name + "’s contribution"));
    return `output for ${row} = ${parts.join(" + ")}`;
  }
  const names = nameSummands({ rows, weights, others }),
    isRest = (i) => others > 0 && i === rows.length - 1,
    large = names
      .map((name, i) => (isRest(i) ? name : name + "’s value"))
      .filter((_, i) => weights[i] >= MIN_WEIGHT),
    rest = large.length < names.length ? " + …" : "";
  return `weighted sum for ${row} = ${large.join(" + ")}${rest}`;
}

/** The summands as rows above their sum. */
function describeSummands(origin, result) {
  const { terms, column, weights } = origin,
    names = nameSummands(origin),
    sum = terms.map((term) => formatNumber(term[column])).join(" + "),
    kind = weights ? "weight times value" : "each multiplied by its own columns of W_O";
  return {
    data: {
      rows: [...names, "sum"],
      columns: origin.result.map((_, k) => String(k)),
      values: [...terms, origin.result],
      isSigned: true,
      selected: [terms.length, column],
    },
    caption:
      `Rows: summands, ${kind}; the bottom row is the sum. Columns: dimensions. ` +
      `${sum.replaceAll("+ −", "− ")} = ${result} in dimension ${column}.`,
    describe: (r, k) =>
      `${names[r] ?? "The sum"}, dimension ${k}: ${(terms[r] ?? origin.result)[k]}.`,
  };
}

/**
 * Return the equation of a value, its variables, and the numbers behind it as a heat map.
 * @param {any} origin the response of the view trace-cell
 * @param {string} row the name of the row
 */
export function describeOrigin(origin, row) {
  const result = formatResult(origin.value),
    { kind } = origin;
  if (kind === "mixed")
    return { equation: formatSum(origin, row), map: describeSummands(origin, result) };
  if (kind === "product") {
    const mask = origin.attended === false ? "; the mask replaces it with −∞" : "";
    return { equation: formatDotProduct(origin) + mask, map: describeProducts(origin, false) };
  }
  const { score } = origin,
    value = score && formatResult(score.attended ? score.value : null);
  return {
    equation:
      `${origin.equation} = ${result}` + (score ? `; its score is ${value}, a dot product:` : ""),
    variables: origin.parts,
    map: score && describeProducts(score, true),
  };
}

/** The computation of the selected value. `columnName` is the name of its column. */
export function Provenance({ origin, stage, rowName, columnName }) {
  const { equation, variables, map } = useMemo(
    () => describeOrigin(origin, rowName),
    [origin, rowName],
  );
  return html`<section class="trace-provenance" aria-label="Computation of a value">
    <h4>
      ${
        `How ${formatResult(origin.value)} is computed: ${stage.name}, ` +
        `row ${origin.row + 1} (${rowName}), ${columnName}`
      }
    </h4>
    <p class="trace-equation">${equation}</p>
    ${
      variables &&
      html`<${Table}
        class="trace-terms"
        numbers=${[1]}
        rows=${variables.map(([name, value]) => [name, value ?? "−∞"])}
      />`
    }
    ${map && html`<${HeatMapView} label="Terms of the value" ...${map} />`}
  </section>`;
}
