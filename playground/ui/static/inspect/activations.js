// The forward pass, one tensor at a time.
import { Button } from "../shared/components/buttons.js";
import { html, signal, useEffect, useLayoutEffect, useMemo, useRef } from "../vendor/preact.js";
import { Table } from "../shared/components/data_table.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { formatMessage, formatNumber } from "../shared/format.js";
import { Resource } from "../shared/resource.js";
import { createOptions } from "./section_parts.js";
import { requestView, showError } from "./requests.js";

const { options, update, restore } = createOptions({ stage: "", head: 0 });
/** The row and the column of the selected value. */
const cell = signal(/** @type {[number, number] | null} */ (null));
const origin = new Resource((options) => requestView("trace-cell", options));

const stageKey = (stage) => `${stage.block}/${stage.name}`;
const capitalize = (text) => formatMessage(text).slice(0, -1);

function clearCell() {
  cell.value = null;
  origin.clear();
}

function selectStage(stage, head = options.value.head) {
  if (stage !== options.value.stage) clearCell();
  update({ stage, head });
}

/** Move from the requested stage, so that a held key works while requests are pending. */
function moveStage({ stages, chosen }, offset) {
  const requested = stages.findIndex((stage) => stageKey(stage) === options.value.stage),
    next = stages[(requested < 0 ? chosen.stage : requested) + offset];
  if (next) selectStage(stageKey(next));
}

export function groupStages(stages) {
  const blocks = new Map();
  stages.forEach((stage, index) => {
    if (!blocks.has(stage.block)) blocks.set(stage.block, []);
    blocks.get(stage.block).push({ ...stage, index });
  });
  return [...blocks];
}

const isDimension = ({ axes }) => axes[1].startsWith("dimensions");

/** Return the name of a column. Rows and columns count from 1, dimensions from 0. */
export const nameColumn = (chosen, k) =>
  isDimension(chosen) ? `dimension ${k}` : `column ${k + 1} (${chosen.columns[k]})`;

/** All steps, by block. The block of the current step is open and in view. */
function StageList({ data: { stages, chosen } }) {
  const list = useRef(/** @type {HTMLElement | null} */ (null)),
    blocks = useMemo(() => groupStages(stages), [stages]);
  useLayoutEffect(() => {
    const nav = /** @type {HTMLElement} */ (list.current),
      button = /** @type {HTMLElement} */ (nav.querySelector("[aria-current=true]")),
      block = /** @type {HTMLElement} */ (button.parentElement);
    for (const each of nav.querySelectorAll("details")) each.open = each === block;
    if (nav.contains(document.activeElement)) button.focus({ preventScroll: true });
    const top = block.offsetTop,
      bottom = top + block.offsetHeight;
    if (top < nav.scrollTop || bottom > nav.scrollTop + nav.clientHeight)
      nav.scrollTop = Math.min(top, Math.max(0, bottom - nav.clientHeight));
  }, [chosen.stage, stages.length]);
  return html`<nav ref=${list} class="trace-list" aria-label="Steps">
    ${blocks.map(
      ([block, members]) =>
        html`<details key=${block}>
          <summary>${block}</summary>
          ${members.map(
            (stage) =>
              html`<button
                key=${stage.name}
                type="button"
                title=${stage.formula}
                aria-current=${String(stage.index === chosen.stage)}
                onClick=${() => selectStage(stageKey(stage))}
              >
                <span>${stage.index + 1}. ${stage.name}</span>
                <span class="pg-quiet">${stage.shape.split(" = ")[1]}</span>
              </button>`,
          )}
        </details>`,
    )}
  </nav>`;
}

/** Load how the selected value is computed, and again for another sequence or head. */
function useOrigin({ stages, chosen }) {
  const selected = cell.value;
  useEffect(() => {
    if (!selected) return;
    const [row, column] = selected;
    if (row >= chosen.rows.length || column >= chosen.columns.length) return clearCell();
    const stage = stageKey(stages[chosen.stage]);
    origin.load({ stage, head: chosen.head, row, column }).then((response) => {
      if (!response?.error) return;
      origin.clear();
      showError(response.error);
    });
  }, [chosen, selected]);
}

function Tensor({ stage, chosen }) {
  const head = chosen.heads ? `head ${chosen.head + 1}, ` : "";
  const data = useMemo(
    () => ({
      rows: chosen.rows,
      columns: isDimension(chosen) ? chosen.columns.map((_, k) => String(k)) : chosen.columns,
      values: chosen.weights,
      mask: chosen.possible,
      isSigned: chosen.signed,
      max: chosen.max,
      selected: cell.value,
    }),
    [chosen, cell.value],
  );
  return html`<div class="trace-tensor">
    <${HeatMapView}
      label=${capitalize(stage.name)}
      data=${data}
      caption=${
        `Rows: ${chosen.axes[0]}. Columns: ${chosen.axes[1]}. Click a value, or press Enter on ` +
        "it, to see how it is computed."
      }
      describe=${(r, k) =>
        `${capitalize(stage.name)}, ${head}row ${r + 1} (${chosen.rows[r]}), ` +
        `${nameColumn(chosen, k)}: ${formatResult(chosen.weights[r][k])}.`}
      onSelect=${(r, k) => (cell.value = [r, k])}
    />
  </div>`;
}

/** The position in the forward pass, with buttons for the previous and the next step. */
const StepBar = ({ data, data: { stages, chosen } }) =>
  html`<div class="pg-row row trace-bar">
    <${Button}
      class="trace-previous"
      title="Left arrow"
      disabled=${chosen.stage === 0}
      onClick=${() => moveStage(data, -1)}
    >
      ← Previous
    <//>
    <${Button}
      class="trace-next"
      title="Right arrow"
      disabled=${chosen.stage === stages.length - 1}
      onClick=${() => moveStage(data, 1)}
    >
      Next →
    <//>
    <output class="pg-quiet trace-progress">step ${chosen.stage + 1} of ${stages.length}</output>
  </div>`;

/** The current step: its formula, code and tensor, and how a value of it is computed. */
function Stage({ data, data: { stages, chosen } }) {
  const stage = stages[chosen.stage],
    range =
      stage.low === null ? "" : `; from ${formatNumber(stage.low)} to ${formatNumber(stage.high)}`,
    heads = Array.from({ length: chosen.heads }, (_, h) => ({
      value: String(h),
      label: String(h + 1),
    })),
    traced = origin.data.value,
    isTraced = traced && traced.row < chosen.rows.length && traced.column < chosen.columns.length;
  useOrigin(data);
  return html`<section class="trace-stage">
    <${StepBar} data=${data} />
    <h4 class="trace-name" aria-live="polite">${capitalize(stage.block)}: ${stage.name}</h4>
    <p class="trace-formula">${stage.formula}</p>
    <p class="trace-shape pg-quiet" title=${stage.shape}>
      ${stage.words}${range}${chosen.truncation ? `; displayed: ${chosen.truncation}` : ""}${
        stage.contribution === null
          ? ""
          : `. The output has ${stage.contribution.toFixed(2)} times the norm of x`
      }
    </p>
    <p class="pg-note trace-code">
      <span class="pg-sub">${stage.file}:${stage.line}</span><code>${stage.text}</code>
    </p>
    ${
      heads.length > 1 &&
      html`<div class="pg-row row trace-heads">
        head
        <${SegmentedControl}
          label="Head"
          options=${heads}
          value=${String(chosen.head)}
          onChange=${(head) => update({ head: Number(head) })}
        />
      </div>`
    }
    <${Tensor} stage=${stage} chosen=${chosen} />
    ${
      chosen.most_likely &&
      html`<p class="trace-most-likely">
        Largest in each row: <b>${chosen.most_likely.join(" ")}</b>
      </p>`
    }
    ${
      isTraced &&
      html`<${Provenance}
        origin=${traced}
        stage=${stage}
        rowName=${chosen.rows[traced.row]}
        columnName=${nameColumn(chosen, traced.column)}
      />`
    }
  </section>`;
}

function Activations({ data }) {
  const onKeyDown = (event) => {
    const offset = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (
      !offset ||
      event.defaultPrevented ||
      event.target.closest("canvas, input, select, textarea")
    )
      return;
    event.preventDefault();
    moveStage(data, offset);
  };
  return html`<div onKeyDown=${onKeyDown}>
    <div class="pg-columns trace-columns">
      <${StageList} data=${data} />
      <${Stage} data=${data} />
    </div>
  </div>`;
}

export const activationsSpec = {
  subView: "numbers",
  title: "Activations",
  explain:
    "All tensors of the forward pass in order of computation, with the target as decoder input. " +
    "The left and right arrow keys change the step; click a value to see how it is computed. " +
    "Positions count from 1, dimensions from 0.",
  Component: Activations,
  options: () => options.value,
  restoreOptions: restore,
  reset: clearCell,
};

// How one value of a tensor is computed from earlier ones.

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
    data: { rows, columns: at.map(String), values: [left, right, products], isSigned: true },
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
 * @param {any} origin the response of the view trace-cell @param {string} row the name of the row
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

function Provenance({ origin, stage, rowName, columnName }) {
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
