// The panel for the user's own data, below the task of the form.
import { FileButton } from "../shared/components/file_button.js";
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
import { html, render } from "../vendor/preact.js";
import { DamagedRow } from "./damaged_records.js";
import {
  applyDataset,
  attach,
  isTable,
  onValueChange,
  panel,
  readInput,
  readStored,
  removeStored,
  root,
  selectFile,
  selectSource,
  setText,
  validDataset,
} from "./dataset_state.js";

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
const FILE_HINT = "Lines of source and target, or CSV with a line of names; at most 50 MB.";
const REPO = {
  name: "repo",
  label: "Dataset",
  placeholder: "user/dataset",
  maxLength: 190,
  hint: "A public dataset: its first 100,000 rows. The playground runs no code of it.",
};
const SPLITTING = {
  name: "splitting",
  label: "A token is",
  type: "select",
  options: [
    { value: "", label: "detected automatically" },
    { value: "characters", label: "a character" },
    { value: "words", label: "a word, separated by spaces" },
  ],
};
const MAX_LISTED_TOKENS = 12;
const NO_ERRORS = /** @type {DatasetErrors} */ ({ error: "" });

/**
 * Insert a tab into a line that has none; elsewhere the key moves the focus.
 * @param {any} event
 */
function insertTab(event) {
  const { target: box, key, shiftKey, ctrlKey, altKey, metaKey } = event,
    at = box.selectionStart;
  if (key !== "Tab" || shiftKey || ctrlKey || altKey || metaKey || at !== box.selectionEnd) return;
  const begin = box.value.lastIndexOf("\n", at - 1) + 1,
    line = box.value.slice(begin).split("\n", 1)[0];
  if (!line.trim() || line.includes("\t")) return;
  event.preventDefault();
  box.setRangeText("\t", at, at, "end");
  setText(box.value);
}

/** A field whose name is that of the property with its value. */
const PanelField = ({ field, onInput = (value) => (panel[field.name] = value) }) =>
  html`<${Field} field=${field} value=${panel[field.name]} onInput=${onInput} />`;

const PastedText = () =>
  html`<div onKeyDown=${insertTab}><${PanelField} field=${TEXT} onInput=${setText} /></div>`;

const ChosenFile = () =>
  html`<div>
    <${FileButton} label="Choose a file" accept=".tsv,.txt,.csv,text/*" onFile=${selectFile} />
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
    <${PanelField} field=${REPO} />
    <button type="submit" class="pg-button">Read</button>
  </form>`;
}

/** The columns of a table. Both are named, or none. */
function Columns() {
  const common = { maxLength: 200, suggestions: panel.columnNames };
  const onChange = () => {
    if (Boolean(panel.sourceColumn.trim()) === Boolean(panel.targetColumn.trim())) readInput();
  };
  return html`<div class="table-columns" onChange=${onChange}>
    <${PanelField} field=${{ ...common, name: "sourceColumn", label: "Source column" }} />
    <${PanelField} field=${{ ...common, name: "targetColumn", label: "Target column" }} />
    <p class="pg-hint">Required if the file has more than two columns.</p>
  </div>`;
}

function Splitting() {
  const onInput = (/** @type {string} */ splitting) => {
    panel.splitting = splitting;
    readInput();
  };
  return html`<${PanelField} field=${SPLITTING} onInput=${onInput} />`;
}

function Problem() {
  const { report } = panel,
    { error, lines = [], n_rejected = 0 } = report && "error" in report ? report : NO_ERRORS,
    unlisted = n_rejected - lines.length;
  return html`<div class="problem" role="alert" hidden=${!error}>
    <p>${lines.length ? formatCount(n_rejected, "line") + " rejected:" : formatMessage(error)}</p>
    <ul>
      ${lines.map((line) => html`<li key=${line}>${formatMessage(line)}</li>`)}
      ${unlisted > 0 && html`<li>And ${formatInteger(unlisted)} more.</li>`}
    </ul>
  </div>`;
}

/** @param {[number, number]} range */
const formatLengths = ([low, high]) =>
  (low === high ? "" : formatInteger(low) + " to ") + formatCount(high, "token");

/** @param {DatasetSummary} dataset */
function describeConflicts({ n_conflicts, conflict_lines }) {
  const lines = conflict_lines.map(formatInteger).join(", "),
    more = n_conflicts > conflict_lines.length ? " and more" : "";
  return `${formatCount(n_conflicts, "example")}, left out: line ${lines}${more}`;
}

/** Describe the counts of a dataset: name, value, explanation. @param {DatasetSummary} dataset */
export function describeCounts(dataset) {
  const { n_pairs, vocab_size, n_held_out, n_duplicates, n_conflicts } = dataset,
    kind = dataset.split_on_spaces ? "words" : "characters",
    tokens = dataset.vocabulary.slice(0, MAX_LISTED_TOKENS).map(formatToken).join(" "),
    more = vocab_size > MAX_LISTED_TOKENS ? " …" : "";
  return [
    ["examples", formatInteger(n_pairs), "Distinct sources"],
    [
      "vocabulary",
      `${formatInteger(vocab_size)} different ${kind}: ${tokens}${more}`,
      "Of sources and targets together",
    ],
    ["sources", formatLengths(dataset.source_lengths), "Shortest and longest"],
    ["targets", formatLengths(dataset.target_lengths), "Shortest and longest"],
    [
      "held out",
      n_held_out === null ? "one in sixteen" : formatInteger(n_held_out),
      "Examples that are only for the evaluation",
    ],
    n_duplicates && [
      "repeated",
      formatCount(n_duplicates, "example") + ", left out",
      "An earlier line has the same source and target",
    ],
    n_conflicts && [
      "contradicting",
      describeConflicts(dataset),
      "An earlier line has the same source with another target; the first line counts",
    ],
  ].filter(Array.isArray);
}

function Report() {
  const { report, status } = panel;
  if (!report || !("preview" in report)) return null;
  return html`<div class=${"report" + (status ? " old" : "")}>
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
        ([name, value, title]) =>
          html`<dt title=${title}>${name}</dt>
            <dd title=${title}>${value}</dd>`,
      )}
    </dl>
    <p class="pg-hint">
      The model never trains on held-out examples. Its score on them shows whether it has learned
      the rule instead of the examples.
    </p>
  </div>`;
}

function UseButton() {
  const dataset = validDataset(),
    isUsed = dataset !== null && dataset.sha256 === panel.formSha256,
    isOtherUsed = dataset && panel.formSha256 && !isUsed;
  return html`<p class="state pg-hint" role="status">
      ${panel.status || (isOtherUsed ? "The form uses another dataset." : "")}
    </p>
    <button
      type="button"
      class="pg-button primary use"
      disabled=${!dataset || isUsed || Boolean(panel.status)}
      onClick=${applyDataset}
    >
      ${isUsed ? "Dataset in use" : "Use this dataset"}
    </button>`;
}

/** @param {{ dataset: StoredDataset }} props */
function Stored({ dataset }) {
  const { sha256, bytes, damaged } = dataset;
  if (damaged) {
    const record = { kind: "dataset", name: sha256.slice(0, 12), reason: damaged, bytes };
    return html`<${DamagedRow} record=${record} onDelete=${() => removeStored(sha256)} />`;
  }
  const { n_pairs = 0, vocab_size = 0, vocabulary = [] } = dataset,
    more = vocab_size > vocabulary.length ? " …" : "",
    hash = sha256.slice(0, 12),
    title = [formatCount(vocab_size, "token"), formatBytes(bytes), hash].join(" · ");
  return html`<li>
    <button type="button" class="open-dataset" title=${title} onClick=${() => readStored(sha256)}>
      ${formatCount(n_pairs, "example")} of ${vocabulary.join(" ")}${more}
    </button>
    <button
      type="button"
      class="pg-button"
      title="Removes it from this server"
      onClick=${() => removeStored(sha256)}
    >
      Remove
    </button>
  </li>`;
}

function StoredDatasets() {
  const datasets = panel.storedDatasets;
  return html`<details class="stored" hidden=${!datasets.length}>
    <summary>${formatCount(datasets.length, "dataset")} on this server</summary>
    <ul>
      ${datasets.map((dataset) => html`<${Stored} key=${dataset.sha256} dataset=${dataset} />`)}
    </ul>
  </details>`;
}

const INPUTS = { text: PastedText, file: ChosenFile, hub: HubDataset };

export const DatasetPanel = () =>
  html`<${SegmentedControl}
      label="Source of the data"
      options=${SOURCES}
      value=${panel.source}
      onChange=${selectSource}
    />
    <${INPUTS[panel.source]} />
    ${isTable() && html`<${Columns} />`}
    <${Splitting} /><${Problem} /><${Report} /><${UseButton} /><${StoredDatasets} />`;

/** Show the panel in the element of its Gradio component. @param {any} component */
export default async function main(component) {
  render(html`<${DatasetPanel} />`, root);
  await attach(component, onValueChange);
}
