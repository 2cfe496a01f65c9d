// The panel for the user's own data, below the task of the form.
import { Button, FileButton } from "../shared/components/buttons.js";
import { Field } from "../shared/components/form.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import {
  formatBytes,
  formatCount,
  formatInteger,
  formatMessage,
  formatToken,
} from "../shared/format.js";
import { html, useEffect } from "../vendor/preact.js";
import { DamagedRow } from "./damaged_records.js";
import {
  applyDataset,
  choose,
  chooseColumn,
  followForm,
  panel,
  readInput,
  readStored,
  removeStored,
  selectedColumns,
  selectFile,
  selectSource,
  setRepo,
  setText,
  validDataset,
} from "./dataset_state.js";
import { form } from "./settings.js";

/** @import { DatasetErrors, DatasetSummary, StoredDataset } from "../shared/responses.js" */

const SOURCES = [
  { value: "text", label: "Paste" },
  { value: "file", label: "File" },
  { value: "hub", label: "Hub" },
];
const TEXT = {
  name: "text",
  label: "Examples",
  type: "textarea",
  placeholder: "cat → tac\ndog → god\n…",
  hint: "One example per line; an arrow, a tab, a comma or two spaces before the target.",
};
const FILE_TYPES = ".txt,.tsv,.csv,.json,.jsonl,.ndjson,.parquet,.gz,text/*";
const FILE_HINT =
  "Text, CSV, JSON or Parquet, also as .gz; at most 50 MB. From Excel, save the sheet as CSV.";
const REPO = {
  name: "repo",
  label: "Dataset",
  placeholder: "user/dataset",
  maxLength: 190,
  hint:
    "Its first 100,000 rows; no code of it is run. For private data, enter your token in the Hub " +
    "tab, or sign in there.",
};
const FIRST_LINES = [
  { value: "names", label: "Names" },
  { value: "example", label: "An example" },
];
const MAX_LISTED_TOKENS = 12;
const NO_ERRORS = /** @type {DatasetErrors} */ ({ error: "" });

/** A field whose name is that of the property with its value. */
const PanelField = ({ field, onInput }) =>
  html`<${Field} field=${field} value=${panel[field.name]} onInput=${onInput} />`;

/** A pasted text is complete, so it is read at once. @param {any} event */
const readPasted = ({ inputType }) => inputType === "insertFromPaste" && readInput();

const PastedText = () =>
  html`<div onInput=${readPasted}>
    <${PanelField} field=${TEXT} onInput=${setText} />
  </div>`;

const ChosenFile = () =>
  html`<div>
    <${FileButton} label="Choose a file" accept=${FILE_TYPES} onFile=${selectFile} />
    <p class="pg-hint file-name">
      ${panel.file ? `${panel.file.name}, ${formatBytes(panel.file.size)}` : FILE_HINT}
    </p>
  </div>`;

function HubDataset() {
  const onSubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    readInput();
  };
  return html`<form onSubmit=${onSubmit}>
    <${PanelField} field=${REPO} onInput=${setRepo} />
    <button type="submit" class="pg-button">Read</button>
  </form>`;
}

/** A choice between names of the data. */
function NameSelect({ name, label, names, value, onInput }) {
  const known = names.map((each) => ({ value: each, label: each })),
    options = names.includes(value) ? known : [{ value: "", label: "Choose" }, ...known];
  return html`<${Field}
    field=${{ name, label, type: "select", options }}
    value=${value}
    onInput=${onInput}
  />`;
}

/** The configuration and the split of a dataset on the Hub that has several. */
const HubChoices = () =>
  /** @type {const} */ ([
    { name: "config", label: "Configuration", names: panel.configs, value: panel.config },
    { name: "split", label: "Split", names: panel.splits, value: panel.split },
  ])
    .filter(({ names }) => names.length)
    .map(
      (choice) =>
        html`<${NameSelect}
          key=${choice.name}
          ...${choice}
          onInput=${(/** @type {string} */ value) => choose(choice.name, value)}
        />`,
    );

/** The columns of a table, unless they are two without names. */
function Columns() {
  const { columns, report } = panel,
    isPlain = report && "has_names" in report && report.has_names === false,
    [source, target] = selectedColumns();
  if (columns.length < (isPlain ? 3 : 2)) return null;
  return html`<div class="table-columns">
    <${NameSelect}
      name="sourceColumn"
      label="Source"
      names=${columns}
      value=${source}
      onInput=${(/** @type {string} */ name) => chooseColumn("source", name)}
    />
    <${NameSelect}
      name="targetColumn"
      label="Target"
      names=${columns}
      value=${target}
      onInput=${(/** @type {string} */ name) => chooseColumn("target", name)}
    />
  </div>`;
}

/** What the server recognized, and whether the first line has names. */
function Recognized() {
  const { report, firstLine, status } = panel,
    dataset = report && "recognized" in report ? report : null,
    hasNames = dataset?.has_names ?? null,
    value = firstLine || (hasNames ? "names" : "example");
  return html`<p
      class=${"recognized pg-hint" + (status ? " pg-old" : "")}
      hidden=${!dataset?.recognized}
    >
      ${formatMessage(dataset?.recognized)}
    </p>
    ${
      (firstLine || hasNames !== null) &&
      html`<div class="pg-row first-line">
        <span class="pg-hint">First line:</span>
        <${SegmentedControl}
          label="First line"
          options=${FIRST_LINES}
          value=${value}
          onChange=${(/** @type {string} */ each) => choose("firstLine", each)}
        />
      </div>`
    }`;
}

/** The reasons of the first rows that cannot be used, of `total`. @param {any} props */
function Rows({ reasons, total }) {
  const unlisted = total - reasons.length,
    sentences = reasons.map(formatMessage);
  return html`<ul>
    ${sentences.map((/** @type {string} */ each) => html`<li key=${each}>${each}</li>`)}
    ${unlisted > 0 && html`<li>And ${formatInteger(unlisted)} more.</li>`}
  </ul>`;
}

function Problem() {
  const { report } = panel,
    { error, lines = [], n_rejected = 0 } = report && "error" in report ? report : NO_ERRORS,
    title = `${formatCount(n_rejected, "row")} cannot be used, more than half:`;
  return html`<div class="pg-error problem" role="alert" hidden=${!error}>
    <p>${lines.length ? title : formatMessage(error)}</p>
    <${Rows} reasons=${lines} total=${n_rejected} />
  </div>`;
}

/** @param {{ dataset: DatasetSummary }} props */
const LeftOut = ({ dataset: { n_rows, n_skipped, skipped } }) =>
  html`<div class="pg-note left-out">
    <p>
      ${formatInteger(n_skipped)} of ${formatCount(n_rows, "row")}
      ${n_skipped === 1 ? " is" : " are"} left out:
    </p>
    <${Rows} reasons=${skipped} total=${n_skipped} />
  </div>`;

/** @param {[number, number]} range */
const formatLengths = ([low, high]) =>
  (low === high ? "" : formatInteger(low) + " to ") + formatCount(high, "token");

/** @param {DatasetSummary} dataset */
function describeConflicts({ n_conflicts, conflict_lines }) {
  const lines = conflict_lines.map(formatInteger).join(", "),
    more = n_conflicts > conflict_lines.length ? " and more" : "";
  return `${formatCount(n_conflicts, "example")}, left out: line ${lines}${more}`;
}

/** Describe the counts of a dataset: name and value. @param {DatasetSummary} dataset */
export function describeCounts(dataset) {
  const { n_pairs, vocab_size, n_held_out, n_duplicates, n_conflicts, n_normalized } = dataset,
    kind = dataset.split_on_spaces ? "words" : "characters",
    tokens = dataset.vocabulary.slice(0, MAX_LISTED_TOKENS).map(formatToken).join(" "),
    more = vocab_size > MAX_LISTED_TOKENS ? " …" : "",
    formatExamples = (/** @type {number} */ n) => formatCount(n, "example");
  return [
    ["examples", formatInteger(n_pairs)],
    ["vocabulary", `${formatInteger(vocab_size)} different ${kind}: ${tokens}${more}`],
    ["sources", formatLengths(dataset.source_lengths)],
    ["targets", formatLengths(dataset.target_lengths)],
    ["held out", formatInteger(n_held_out)],
    n_duplicates && ["repeated", formatExamples(n_duplicates) + ", left out"],
    n_conflicts && ["contradicting", describeConflicts(dataset)],
    n_normalized && [
      "normalized",
      formatExamples(n_normalized) + " written in another Unicode form",
    ],
  ].filter(Array.isArray);
}

function Report() {
  const { report, status } = panel;
  if (!report || !("preview" in report)) return null;
  return html`<div class=${"report" + (status ? " pg-old" : "")}>
    ${report.n_skipped > 0 && !("error" in report) && html`<${LeftOut} dataset=${report} />`}
    <table class="preview">
      <caption class="pg-hint">
        First examples, token by token
      </caption>
      <tbody>
        ${report.preview.map(
          ([source, target], index) =>
            html`<tr key=${index}>
              <td><${TokenStrip} label="Source" tokens=${source} /></td>
              <td><${TokenStrip} label="Target" tokens=${target} /></td>
            </tr>`,
        )}
      </tbody>
    </table>
    <dl class="counts">
      ${describeCounts(report).map(
        ([name, value]) =>
          html`<dt>${name}</dt>
            <dd>${value}</dd>`,
      )}
    </dl>
    <p class="pg-hint">
      The model never trains on held-out examples. Its score on them shows whether it has learned
      the rule instead of the examples.
    </p>
    <p class="pg-note held-out-warning" hidden=${!report.held_out_warning}>
      ${formatMessage(report.held_out_warning)}
    </p>
  </div>`;
}

function UseButton() {
  const dataset = validDataset(),
    isUsed = dataset !== null && dataset.sha256 === form.values.dataset_sha256,
    isOtherUsed = dataset && form.values.dataset_sha256 && !isUsed,
    examples = formatCount(dataset?.n_pairs ?? 0, "example");
  return html`<p class="state pg-hint" role="status">
      ${panel.status || (isOtherUsed ? "The form uses another dataset." : "")}
    </p>
    <${Button}
      class="primary use"
      disabled=${!dataset || isUsed || Boolean(panel.status)}
      onClick=${applyDataset}
    >
      ${isUsed ? "Dataset in use" : `Use these ${dataset ? examples : "examples"}`}
    <//>`;
}

/** @param {{ dataset: StoredDataset }} props */
function Stored({ dataset }) {
  const { sha256, name, bytes, damaged } = dataset;
  if (damaged) {
    const record = { kind: "dataset", name: name || sha256.slice(0, 12), reason: damaged, bytes };
    return html`<${DamagedRow} record=${record} onDelete=${() => removeStored(sha256)} />`;
  }
  const { n_pairs = 0, vocab_size = 0, vocabulary = [] } = dataset,
    more = vocab_size > vocabulary.length ? " …" : "",
    hash = sha256.slice(0, 12),
    title = [formatCount(vocab_size, "token"), formatBytes(bytes), hash].join(" · ");
  return html`<li>
    <button type="button" class="open-dataset" title=${title} onClick=${() => readStored(sha256)}>
      <span class="pg-clip">${name} </span>
      <span class="pg-hint pg-clip">
        ${formatCount(n_pairs, "example")} of ${vocabulary.join(" ")}${more}
      </span>
    </button>
    <${Button} title="Removes it from this server" onClick=${() => removeStored(sha256)}>
      Remove
    <//>
  </li>`;
}

function StoredDatasets() {
  const datasets = panel.storedDatasets;
  return html`<details class="stored" hidden=${!datasets.length}>
    <summary>${formatCount(datasets.length, "dataset")} on this server</summary>
    <ul class="pg-list">
      ${datasets.map((dataset) => html`<${Stored} key=${dataset.sha256} dataset=${dataset} />`)}
    </ul>
  </details>`;
}

const INPUTS = { text: PastedText, file: ChosenFile, hub: HubDataset };

export function DatasetPanel() {
  useEffect(followForm, []);
  return html`<${SegmentedControl}
      label="Source of the data"
      options=${SOURCES}
      value=${panel.source}
      onChange=${selectSource}
    />
    <${INPUTS[panel.source]} />
    <${Problem} /><${HubChoices} /><${Recognized} /><${Columns} /><${Report} />
    <${UseButton} /><${StoredDatasets} />`;
}
