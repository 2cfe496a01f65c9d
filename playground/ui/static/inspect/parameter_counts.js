// Shapes, parameter counts, and the memory of attention weights.
import { html } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { StatusMessage } from "../shared/components/status_message.js";
import {
  formatBytes,
  formatCount,
  formatInteger,
  formatMessage,
  formatNumber,
} from "../shared/format.js";
import { Part } from "./part.js";

const MODELS = [
  { value: "model", label: "This model" },
  {
    value: "paper",
    label: "Base model of Vaswani et al. 2017",
    title: "d_model 512, 6 + 6 layers, 8 heads, d_ff 2048, vocabularies of 30,000",
  },
  {
    value: "tutorial",
    label: "Base model of a tutorial",
    title: "The same sizes, vocabularies of 37,000, attention without biases",
  },
];

// Vaswani et al. 2017 count fewer parameters, with one table for source, target and output.
const PAPER_COUNT =
  " Table 3 of the paper states 65 M: one table of 37,000 tokens serves source, target and " +
  "output. With it, this project counts 63.1 M.";

/** A column that does not sort. @param {string} key @param {string} label @param {object} [more] */
const column = (key, label, more) => ({ key, label, isSortable: false, ...more });
const integer = (key, label, more = {}) =>
  column(key, label, { isNumber: true, render: (row) => formatInteger(row[key]), ...more });

/** Format a size exactly below 1,000 bytes. @param {number} n */
export const formatMemory = (n) =>
  (n < 1000 ? n + " bytes" : formatBytes(n)).replace(" ", "\u00a0");

/** Describe the comparison of separate modules for each head with the fused projections. */
export const describeSeparateHeads = ({ modules, parameters, fused, difference }, layer) =>
  `A separate module for each head and matrix, ${formatInteger(modules)} in all, has ` +
  `${formatCount(parameters, "parameter")}` +
  (parameters === fused
    ? ", as many as the joined matrices"
    : `; joined: ${formatInteger(fused)}`) +
  `. In encoder layer ${layer + 1}, the outputs for your sequence differ by at most ` +
  `${formatNumber(difference)} (rounding).`;

export const Shapes = ({ shapes, length, separate, layer }) =>
  html`<${Part}
    title="Shapes inside multi-head attention"
    hint=${
      `Self-attention of this model over the ${formatCount(length, "token")} of your sequence, ` +
      "EOS included."
    }
  >
    <${DataTable}
      caption="Shapes"
      isCaptionHidden
      columns=${[
        column("name", "tensor"),
        column("formula", "definition"),
        column("shape", "shape", { isNumber: true }),
      ]}
      rows=${shapes.map(([name, formula, shape]) => ({ name, formula, shape: shape.join(" × ") }))}
      rowKey=${(row) => row.name}
    />
    <p class="hint">${describeSeparateHeads(separate, layer)}</p>
  <//>`;

/**
 * Return the counts of each component with their total.
 * @param {[string, number, number, string, string, string, string][]} counts
 */
export function countRows(counts) {
  const sum = (k) => counts.reduce((total, row) => total + Number(row[k]), 0);
  return [...counts, ["total", sum(1), sum(2), "", "", "", ""]].map(
    ([name, ours, torch, why, formula, location, purpose]) => ({
      name,
      ours: Number(ours),
      torch: Number(torch),
      why,
      formula,
      location,
      purpose,
    }),
  );
}

export function ParameterCounts({ parameters, onSelect }) {
  const rows = countRows(parameters.rows),
    { ours, torch } = rows[rows.length - 1],
    difference = torch - ours,
    published = parameters.published
      ? ` The tutorial counts ${formatInteger(parameters.published)}.`
      : "";
  return html`<${Part}
    size="wide"
    title="Parameters by component"
    hint="Parameters of the model and of torch.nn.Transformer with the same sizes, embeddings and
      output layer. In a formula, the first factor counts equal blocks."
  >
    <${SegmentedControl}
      label="Model to count"
      options=${MODELS}
      value=${parameters.of}
      onChange=${onSelect}
    />
    <${DataTable}
      caption="Parameters by component"
      isCaptionHidden
      columns=${[
        column("name", "part"),
        column("location", "location", { isOptional: true }),
        column("purpose", "purpose", { isOptional: true }),
        column("formula", "formula", { isOptional: true }),
        integer("ours", "this project"),
        integer("torch", "nn.Transformer"),
        column("why", "difference", { isOptional: true }),
      ]}
      rows=${rows}
      rowKey=${(row) => row.name}
    />
    <p class="hint">
      ${
        difference
          ? `nn.Transformer has ${formatInteger(Math.abs(difference))} ` +
            (difference > 0 ? "more." : "fewer.")
          : "Both have the same number of parameters in every component."
      }${published}${parameters.of === "model" ? "" : PAPER_COUNT}
    </p>
  <//>`;
}

const formatSeconds = (/** @type {number} */ seconds) =>
  seconds < 1 ? `${formatNumber(seconds * 1000)}\u00a0ms` : `${formatNumber(seconds)}\u00a0s`;

/**
 * Return the rows of the memory table. `measured` has the bytes of the weights, and the seconds of
 * explicit and of fused attention; it is null for a length that is too large.
 * @param {[
 *   number, number, number, string | null, [number, number, number] | null, number, string
 * ][]} quadratic
 */
export const memoryRows = (quadratic) =>
  quadratic.map(([length, weights, bytes, published, measured, bert, practical], i) => ({
    key: String(i), // the sequence may have the length of another row
    length,
    weights,
    memory: formatMemory(bytes),
    published: (published ?? "").replace(" ", "\u00a0"),
    bert: formatMemory(bert),
    practical,
    measured: measured ? formatMemory(measured[0]) : "too large",
    explicit: measured ? formatSeconds(measured[1]) : "",
    fused: measured ? formatSeconds(measured[2]) : "",
  }));

const text = (key, label, more) => column(key, label, { isNumber: true, ...more });
const MEASURED_COLUMNS = [
  text("measured", "memory, measured", { isOptional: true }),
  text("explicit", "time, explicit"),
  text("fused", "time, fused"),
];

export function QuadraticCost({ data: { quadratic, measured, lengths: input }, ...props }) {
  const { lengths, onType, onMeasure } = props;
  return html`<${Part}
    size="wide"
    title="Attention memory is quadratic in the length"
    hint="Attention weights of one head in float32, 4 bytes each. Twice the length needs four times
      the memory. The first row is your sequence. Column tutorial: the memory that a tutorial
      states, with 1,048,576 bytes per MB. In these units, its 64 GB are those of 131,072 tokens,
      and 128,000 tokens need 61.0 GB. Column practical: where the attention weights of BERT base
      fit, if those of all 12 layers of 12 heads are stored."
  >
    <label class="row">
      Lengths
      <input
        class="sizes-lengths"
        type="text"
        maxlength="200"
        placeholder="such as 4,096 32,768"
        aria-invalid=${String(Boolean(input.error))}
        value=${lengths}
        onInput=${(event) => onType(event.currentTarget.value)}
      />
    </label>
    <${StatusMessage} class="lengths-problem" kind="error" text=${formatMessage(input.error)} />
    <${DataTable}
      caption="Memory of attention weights"
      isCaptionHidden
      columns=${[
        integer("length", "tokens"),
        integer("weights", "weights", { isOptional: true }),
        text("memory", "memory"),
        text("published", "tutorial", { isOptional: true }),
        text("bert", "BERT base", { isOptional: true }),
        column("practical", "practical?"),
        ...(measured ? MEASURED_COLUMNS : []),
      ]}
      rows=${memoryRows(quadratic)}
      rowKey=${(row) => row.key}
    />
    ${
      measured &&
      html`<p class="hint">
        Measured on this server. Explicit attention stores all weights, as the formula is written.
        Fused attention (FlashAttention, Dao et al. 2022) computes the same output block by block
        and never stores them all. The table compares the time of both on one head.
      </p>`
    }
    <button
      type="button"
      class="pg-button sizes-measure"
      disabled=${measured}
      title="One head on random vectors; the longest measured length needs 256 MB"
      onClick=${onMeasure}
    >
      Measure on this server
    </button>
  <//>`;
}
