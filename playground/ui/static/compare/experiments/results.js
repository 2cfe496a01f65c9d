// The open experiment.
import { Swatch } from "../../shared/chart.js";
import { Button } from "../../shared/components/buttons.js";
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { DataTable } from "../../shared/components/data_table.js";
import { StatusMessage } from "../../shared/components/status_message.js";
import { downloadFile, downloadJson } from "../../shared/download.js";
import { formatCount, formatInteger, formatNumber, formatPercent } from "../../shared/format.js";
import { store } from "../../shared/store.js";
import {
  Actions,
  describeQuestion,
  describeStatus,
  findPreset,
  Progress,
  runPreset,
} from "./experiments.js";
import { ResultCharts } from "./result_charts.js";
import { JobsSignIn, ShardsTable } from "./run_on.js";
import {
  closeExperiment,
  details,
  errors,
  experiments,
  focusedId,
  formatQueuePosition,
  labelSettings,
  lines,
  openId,
  send,
  settings,
  toggleVariant,
} from "./state.js";

const fileName = (kind) =>
  `${details.value.name.replace(/[^A-Za-z0-9]+/g, "-").replace(/^-+|-+$/g, "") || "experiment"}.` +
  kind;

async function exportCsv() {
  const name = fileName("csv"),
    response = await send("files", "experiments/csv", { experiment: details.value.id });
  if (response) downloadFile(name, response.csv);
}

async function exportJson() {
  const name = fileName("json"),
    { id: experiment, name: title, question } = details.value,
    response = await send("files", "experiments/json", { experiment });
  if (response) downloadJson(name, { name: title, question, ...response });
}

const Files = () =>
  html`<p class="pg-buttons">
      <${Button} class="as-csv" title="Every number in the table" onClick=${exportCsv}>CSV<//>
      <${Button} class="as-json" title="All results with the settings" onClick=${exportJson}
        >JSON<//
      >
    </p>
    <${StatusMessage} class="results-note" kind="error" text=${errors.value.files ?? ""} />`;

/** Return a ref for the heading of an experiment, which takes the focus when a user opens it. */
function useFocus(id) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null)),
    isFocused = Boolean(id) && focusedId.value === id;
  useEffect(() => {
    const element = heading.current;
    if (!isFocused || !element) return;
    focusedId.value = "";
    const { top, bottom } = element.getBoundingClientRect();
    if (top < 0 || bottom > document.documentElement.clientHeight / 2)
      element.closest(".results")?.scrollIntoView({ block: "start" });
    element.focus({ preventScroll: true });
  }, [isFocused]);
  return heading;
}

export function Results() {
  const experiment = details.value,
    heading = useFocus(experiment?.id);
  if (!experiment || experiment.id !== openId.value) return null;
  const { id, kind, state, statuses, name, question, message, origin, results } = experiment,
    preset = findPreset(id),
    lengths = results.lengths,
    share = experiments.value?.find((each) => each.id === id)?.share;
  return html`<section class="results" aria-label="Open experiment">
    <div
      class="experiment-result"
      key=${id}
      data-experiment=${id}
      data-kind=${kind}
      data-state=${state}
      data-done=${statuses.done ?? 0}
    >
      <header class="pg-section-header">
        <h3 ref=${heading} class="title" tabindex="-1">${question || name}</h3>
        <span class="pg-spacer"></span>
        ${
          origin
            ? html`<${Button} class="primary run" onClick=${() => runPreset(preset)}>
                ${preset?.experiment ? "Open your run" : "Run it here"}
              <//>`
            : html`<${Actions} row=${experiment} />`
        }
        <${Button} onClick=${closeExperiment}>Close<//>
      </header>
      ${preset && html`<p class="pg-hint">${describeQuestion(preset)}</p>`}
      ${origin && html`<p class="pg-hint origin">${origin}</p>`}
      <p class=${"words pg-quiet" + (message ? " pg-bad" : "")}>${describeStatus(experiment)}</p>
      <${Progress} row=${{ ...experiment, share }} />
      ${experiment.elsewhere && html`<${ShardsTable} elsewhere=${experiment.elsewhere} />`}
      ${experiment.elsewhere?.needs_token && html`<${JobsSignIn} />`}
      <p class="summary" aria-live="polite">
        ${labelSettings((lengths ?? results.results).summary)}
      </p>
      ${lengths && html`<p class="length-summary">${labelSettings(results.results.summary)}</p>`}
      <${ResultCharts} results=${results} />
      <${ResultTable} results=${results} />
      <${Files} />
      <${RunsTable} runs=${experiment.planned_runs} total=${experiment.runs} />
    </div>
  </section>`;
}

// The tables of the open experiment.

/** @typedef {import("../../shared/types.js").Column<any>} Column */

const FILTERED_VARIANTS = 12; // with more, the table has a filter

/** Format the median of a spread with its range: 3 % (1–5 %). */
export function formatRange({ median, low, high }, format) {
  const range = low === high ? "" : ` (${format(low).replace(/ %$/, "")}–${format(high)})`;
  return format(median) + range;
}

/** Describe how many runs of a variant count. */
export function describeRuns({ n, planned, diverged, changed }) {
  return (
    (n < planned ? `${n} of ${formatCount(planned, "run")} done` : formatCount(n, "run")) +
    (diverged ? `, ${diverged} diverged` : "") +
    (changed ? `, ${changed} excluded: settings changed during training` : "")
  );
}

/** Format the steps to 99 %. "…" stands for seeds that did not reach it. */
export function formatStepsTo(to, steps) {
  if (!to) return "–";
  if (to.median === null) return `${to.reached ? "over" : "not within"} ${formatInteger(steps)}`;
  return formatRange(to, (value) => (value === null ? "…" : formatInteger(Math.round(value))));
}

/** The name of a variant, which shows or hides its line. */
const VariantName = ({ variant }) =>
  html`<label class="variant" title=${labelSettings(variant.label) + ": show or hide its line"}>
    <input
      type="checkbox"
      checked=${lines.value.has(variant.label)}
      onChange=${() => toggleVariant(variant.label)}
    />
    <${Swatch} color=${lines.value.get(variant.label)} />
    <span class="name">${labelSettings(variant.short)}</span>
    <span class="pg-sub">${describeRuns(variant)}</span>
  </label>`;

/** Return the label of the setting that varies, or "settings" for several. */
export function settingsLabel(variants) {
  const [name, ...others] = variants.map(({ label, short }) =>
      label.slice(0, -short.length).trim(),
    ),
    setting = settings.value.find((each) => each.name === name);
  return (others.every((other) => other === name) && (setting?.label ?? name)) || "settings";
}

/** @param {any[]} variants @returns {Column} */
const nameColumn = (variants) => ({
  key: "name",
  label: settingsLabel(variants),
  value: ({ variant }) => variant.label,
  render: ({ variant }) => html`<${VariantName} variant=${variant} />`,
});

/** A column with a median and its range; `read` returns them. @returns {Column} */
const spreadColumn = (key, label, format, read, rest = {}) => ({
  ...{ key, label, isNumber: true, ...rest },
  value: (row) => read(row)?.median,
  render: (row) => (read(row) ? formatRange(read(row), format) : "–"),
});

const TRAINING_COLUMNS = [
  spreadColumn("exact", "final exact match", formatPercent, ({ variant }) => variant.exact_match),
  /** @type {Column} */ ({
    key: "steps",
    label: "steps to 99 %",
    isNumber: true,
    value: ({ variant }) => variant.steps_to?.median,
    render: ({ variant: { steps_to: to, steps } }) =>
      html`${formatStepsTo(to, steps)}
        <span class="pg-sub">${to && `reached by ${to.reached} of ${to.n}`}</span>`,
  }),
  spreadColumn("seconds", "seconds", formatNumber, ({ variant }) => variant.seconds, {
    isOptional: true,
  }),
];
const BUDGET_COLUMN = spreadColumn(
  "at-budget",
  "exact match at the smallest budget",
  formatPercent,
  ({ variant }) => variant.at_budget,
);
const LENGTH_COLUMNS = [
  spreadColumn("reach", "99 % to length", formatNumber, ({ scheme }) => scheme.reach),
  spreadColumn("beyond", "longer lengths", formatPercent, ({ scheme }) => scheme.beyond),
];

/** Say on what the numbers of the table and of the curves are measured. */
export function describeMeasurement({ variants }, lengths) {
  const runs = variants.flatMap((variant) => variant.seeds),
    n = runs.find((run) => run.n)?.n,
    final = n ? ` on ${formatInteger(n)} held-out sequences` : "";
  return (
    `Median and range over seeds. Final exact match: at the end of a run${final}. The curve, and ` +
    `steps to 99 %: at each evaluation, on ${formatInteger(variants[0].eval_size)} held-out ` +
    "sequences. Seconds depend on the load of the machine." +
    (lengths
      ? " 99 % to length: the largest length up to which every length has at least 99 %. Longer " +
        "lengths: mean exact match over lengths that were not in training."
      : "")
  );
}

/** Buttons that open the curves of runs in Train, and the first run in Inspect. */
function renderActions(runs) {
  if (!runs.length) return "";
  const [model, ...others] = runs,
    openInTrain = () => store.open("train", { model, over: others.join() }),
    openInInspect = () => store.open("inspect", { model });
  return html`<span class="pg-row actions">
    <${Button} title="Open its curves in the Train tab" onClick=${openInTrain}>Show curves<//>
    <${Button} title="Open its first seed in the Inspect tab" onClick=${openInInspect}>Inspect<//>
  </span>`;
}

/** Whether a label has every word of a filter, such as "n_heads 4" or "heads 4". */
export function matchesFilter(label, filter) {
  const text = ` ${label}, ${labelSettings(label)},`.toLowerCase();
  return filter
    .toLowerCase()
    .split(/[\s,]+/)
    .every((word) => text.includes(word));
}

export function ResultTable({ results: { results, lengths } }) {
  const { variants, n_variants: total = variants.length } = results,
    [filter, setFilter] = useState(""),
    rows = variants
      .map((variant, i) => ({ variant, scheme: lengths?.rows[i] }))
      .filter(({ variant }) => matchesFilter(variant.label, filter)),
    columns = [nameColumn(variants), ...(lengths ? LENGTH_COLUMNS : []), ...TRAINING_COLUMNS];
  if (variants.some(({ budget }) => budget !== variants[0].budget)) columns.push(BUDGET_COLUMN);
  return html`${
      variants.length > FILTERED_VARIANTS &&
      html`<label class="pg-row find">
        <span>Find</span>
        <input
          type="search"
          class="pg-input"
          value=${filter}
          placeholder=${labelSettings(variants[0].label)}
          onInput=${(event) => setFilter(event.currentTarget.value)}
        />
        <span class="pg-sub" role="status">
          ${formatInteger(rows.length)} of ${formatCount(variants.length, "combination")}
          ${total > variants.length && `, the best of ${formatInteger(total)}; the files have all`}
        </span>
      </label>`
    }
    <${DataTable}
      class="variants"
      emptyText="No combination has these words."
      caption="Results of each combination"
      columns=${columns}
      rows=${rows}
      rowKey=${({ variant }) => variant.label}
      actions=${({ variant }) => renderActions(variant.seeds.map((run) => run.run).filter(Boolean))}
    />
    <p class="pg-hint measured-on">${describeMeasurement(results, lengths)}</p>`;
}

export function describeRun({ status, step, steps, queue_position: position, message }) {
  const end = steps && step < steps ? ` of ${formatInteger(steps)}` : "",
    state =
      status === "planned"
        ? "not started"
        : position
          ? formatQueuePosition(position)
          : status + (step ? `, step ${formatInteger(step)}${end}` : "");
  return state + (message ? ": " + message : "");
}

const RUN_COLUMNS = /** @type {Column[]} */ ([
  { key: "variant", label: "run", render: (line) => labelSettings(line.variant) },
  { key: "seed", label: "seed", isNumber: true },
  {
    key: "status",
    label: "status",
    render: (line) =>
      html`<span class=${line.status === "failed" ? "pg-bad" : ""}>${describeRun(line)}</span>`,
  },
]);

const RunsTable = ({ runs, total }) =>
  html`<details class="runs-of">
    <summary>
      ${
        total > runs.length
          ? `Runs: ${runs.length} of ${formatInteger(total)}, the active and failed ones first`
          : `All runs (${total})`
      }
    </summary>
    <${DataTable}
      caption="Runs"
      columns=${RUN_COLUMNS}
      rows=${runs}
      rowKey=${(line) => `${line.variant}/${line.seed}`}
      actions=${({ run }) => renderActions(run ? [run] : [])}
    />
  </details>`;
