// Computation of one value.
import { formatNumber } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { mountMatrix } from "../shared/matrix.js";
import { activationsState, renderTensor, stageKey, thinLabels } from "./activations.js";
import { requestView, showError } from "./requests.js";
import { state } from "./state.js";
import { queryView } from "./views.js";

export async function loadProvenance(row, column) {
  activationsState.cell = [row, column];
  const requestToken = (activationsState.tracing = {}),
    request = { stage: activationsState.stage, head: activationsState.head, row, column };
  const response = await requestView("walk-cell", request);
  if (
    requestToken !== activationsState.tracing ||
    request.stage !== activationsState.stage ||
    request.head !== activationsState.head
  )
    return;
  activationsState.origin = response.error ? null : response;
  if (response.error) {
    showError(response.error);
    return;
  }
  const data = state.resultByView.walk;
  if (!data || stageKey(data.stages[data.chosen.stage]) !== activationsState.stage) return;
  renderTensor(data.stages[data.chosen.stage], data.chosen);
  renderProvenance(data.stages[data.chosen.stage], data.chosen);
}
export function renderProvenance(stage, chosen) {
  const box = queryView("walk", ".walk-origin"),
    origin = activationsState.origin;
  box.hidden = !origin;
  if (!origin) return;
  const row = chosen.rows[origin.row],
    column = chosen.columns[origin.column],
    result = origin.value === null ? "-infinity" : formatNumber(origin.value);
  box.querySelector("h4").textContent =
    "How " +
    result +
    " is computed: " +
    stage.name +
    ", row " +
    (origin.row + 1) +
    " (" +
    row +
    "), column " +
    (origin.column + 1) +
    (chosen.axes[1].startsWith("dimensions") ? "" : " (" + column + ")");
  const equation = box.querySelector(".walk-equation"),
    parts = box.querySelector(".walk-parts"),
    terms = box.querySelector(".walk-terms"),
    words = box.querySelector(".walk-terms-words");
  parts.hidden = origin.kind !== "parts";
  const product = origin.kind === "product" ? origin : origin.score;
  terms.hidden = words.hidden = !product && origin.kind !== "mixed";
  if (origin.kind === "parts") {
    equation.textContent =
      origin.equation +
      " = " +
      result +
      (product
        ? "; its score is " +
          (product.attended ? formatNumber(product.value) : "-infinity") +
          ", a dot product:"
        : "");
    parts.replaceChildren(
      el(
        "tbody",
        {},
        ...origin.parts.map(([name, value]) =>
          el(
            "tr",
            {},
            el("td", { textContent: name }),
            el("td", { textContent: value === null ? "-infinity" : value }),
          ),
        ),
      ),
    );
  }
  if (product) {
    if (origin.kind === "product")
      equation.textContent =
        formatDotProduct(product) +
        (product.attended === false ? "; the mask replaces it with -infinity" : "");
    const rows = [product.left, product.right, product.products],
      names = [product.names[0], product.names[1], "product"];
    words.dataset.resting =
      (product.terms > product.at.length
        ? "The " + product.at.length + " largest of " + product.terms + " products. "
        : "") +
      "Columns: components that are multiplied. The bottom row is summed" +
      (origin.kind === "parts" ? ": " + formatDotProduct(product) + "." : ".");
    mountMatrix(
      terms,
      { weights: rows, rows: names, columns: thinLabels(product.at, terms), signed: true },
      {
        caption: words,
        hover: (r, k) =>
          "Number " +
          product.at[k] +
          ": " +
          names[0] +
          " " +
          product.left[k] +
          " · " +
          names[1] +
          " " +
          product.right[k] +
          " = " +
          product.products[k] +
          ".",
      },
    );
  }
  if (origin.kind === "mixed") {
    // one row for several tokens with different weights
    const isRest = (i) => origin.others > 0 && i === origin.rows.length - 1;
    const names = origin.rows.map((name, i) =>
      !origin.weights
        ? name
        : isRest(i)
          ? name + ", " + origin.weights[i].toFixed(2) + " in total"
          : origin.weights[i].toFixed(2) + " × " + name,
    );
    const largest = names
      .map((name, i) => [isRest(i) ? name : name + "’s value", origin.weights && origin.weights[i]])
      .filter(([, weight]) => weight >= 0.005)
      .map(([name]) => name);
    equation.textContent = origin.weights
      ? "weighted sum for " +
        row +
        " = " +
        largest.join(" + ") +
        (largest.length < names.length ? " + …" : "")
      : "output for " +
        row +
        " = " +
        names.map((name) => (name === "bias" ? name : name + "’s contribution")).join(" + ");
    words.dataset.resting =
      "Rows: summands" +
      (origin.weights ? ", weight times value" : ", each multiplied by its own columns of W_O") +
      "; the bottom row is the sum. Columns: vector components. " +
      origin.terms
        .map((term) => formatNumber(term[origin.column]))
        .join(" + ")
        .replaceAll("+ -", "− ") +
      " = " +
      result +
      " in column " +
      (origin.column + 1) +
      ".";
    mountMatrix(
      terms,
      {
        weights: [...origin.terms, origin.result],
        rows: [...names, "sum"],
        columns: thinLabels(
          origin.result.map((_, k) => k),
          terms,
        ),
        signed: true,
        chosen: [origin.terms.length, origin.column],
      },
      {
        caption: words,
        hover: (r, k) =>
          (r < names.length ? names[r] : "The sum") +
          ", number " +
          k +
          ": " +
          (r < names.length ? origin.terms[r][k] : origin.result[k]) +
          ".",
      },
    );
  }
}
// A dot product with its values.
function formatDotProduct(product) {
  const few =
    product.left
      .slice(0, 3)
      .map((value, i) => formatNumber(value) + "·" + formatNumber(product.right[i]))
      .join(" + ") + (product.terms > 3 ? " + … (" + product.terms + " products)" : "");
  const sum = formatNumber(product.sum);
  if (product.root !== null)
    return (
      "(" +
      few +
      ") / √" +
      Math.round(product.root ** 2) +
      " = " +
      sum +
      " / " +
      formatNumber(product.root) +
      " = " +
      formatNumber(product.sum / product.root) +
      (product.bias === null
        ? ""
        : "; plus the position bias " +
          formatNumber(product.bias) +
          " = " +
          formatNumber(product.sum / product.root + product.bias))
    );
  return (
    few +
    " = " +
    sum +
    (product.bias === null
      ? ""
      : "; plus the bias " + formatNumber(product.bias) + " = " + formatNumber(product.value))
  );
}
