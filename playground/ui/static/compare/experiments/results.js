// The open experiment.
import { html, useEffect, useRef } from "../../vendor/preact.js";
import { StatusMessage } from "../../shared/components/status_message.js";
import { downloadFile, downloadJson } from "../../shared/download.js";
import { formatInteger, formatMessage } from "../../shared/format.js";
import { Actions, Progress, describeStatus } from "./experiments.js";
import { describeQuestion, findPreset, runPreset } from "./presets.js";
import { ResultCharts } from "./result_charts.js";
import { JobsSignIn, ShardsTable } from "./run_on.js";
import { overlayInTrain, ResultTable, RunsTable } from "./result_tables.js";
import {
  closeExperiment,
  details,
  errors,
  experiments,
  focusedId,
  formatEstimate,
  labelSettings,
  lines,
  openId,
  send,
  variants,
} from "./state.js";

const MAX_LISTED_RUNS = 2;
const OVERLAY_TITLE = "Overlay one run of each line in the Train tab: the first finished seed";

const fileName = (kind) =>
  `${details.value.name.replace(/[^A-Za-z0-9]+/g, "-").replace(/^-+|-+$/g, "") || "experiment"}.` +
  kind;

/** Return one run of each visible line: the first finished seed. */
export const listRepresentatives = (variants, lines) =>
  variants
    .filter((variant) => lines.has(variant.label))
    .map(
      (variant) =>
        (variant.seeds.find((run) => run.run && run.done) ?? variant.seeds.find((run) => run.run))
          ?.run,
    )
    .filter(Boolean);

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

function Files() {
  const runs = listRepresentatives(variants.value, lines.value);
  const button = (className, label, title, onClick) =>
    html`<button type="button" class=${`pg-button ${className}`} title=${title} onClick=${onClick}>
      ${label}
    </button>`;
  return html`<p class="pg-buttons">
      ${
        runs.length > 0 &&
        button("all-in-train", "Curves in Train", OVERLAY_TITLE, () => overlayInTrain(runs))
      }
      <span class="pg-spacer"></span>
      ${button("as-csv", "CSV", "Every number in the table", exportCsv)}
      ${button("as-json", "JSON", "All results with the settings", exportJson)}
    </p>
    <${StatusMessage} class="results-note" kind="error" text=${errors.value.files ?? ""} />`;
}

/** Describe the state of an experiment: its runs, those that train, and the remaining time. */
export function describeProgress(experiment) {
  const training = experiment.planned_runs.filter((line) => line.status === "training"),
    listed = training.slice(0, MAX_LISTED_RUNS).map((line) => {
      const at = `${formatInteger(line.step)} of ${formatInteger(line.steps)}`;
      return `${labelSettings(line.variant)}, seed ${line.seed} at step ${at}`;
    }),
    more = training.length - listed.length;
  return [
    formatMessage(describeStatus(experiment)).slice(0, -1),
    listed.join("; ") + (more > 0 ? `; and ${more} more` : ""),
    experiment.state === "running" && experiment.estimate.seconds && !experiment.elsewhere
      ? formatEstimate(experiment.estimate) + " left"
      : "",
  ]
    .filter(Boolean)
    .join(" · ")
    .concat(experiment.message ? ". " + formatMessage(experiment.message) : "");
}

/** Describe the untrained positions of each scheme; empty without any. */
export function describeUntrained(rows) {
  const parts = rows
    .filter((row) => row.untrained)
    .map(({ label, untrained }) => {
      const sides = Object.entries(untrained).map(
        ([side, [first, last]]) => `${side === "row" ? "" : side + " "}${first} to ${last}`,
      );
      return `${labelSettings(label)}, ${sides.join(", ")}`;
    });
  if (!parts.length) return "";
  return (
    `Untrained positions, counted from 0: ${parts.join("; ")}. ` +
    "Longer sequences use the initial values there."
  );
}

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
            ? html`<button
                type="button"
                class="pg-button primary run"
                onClick=${() => runPreset(preset)}
              >
                ${preset?.experiment ? "Open your run" : "Run it here"}
              </button>`
            : html`<${Actions} row=${experiment} />`
        }
        <button type="button" class="pg-button" onClick=${closeExperiment}>Close</button>
      </header>
      ${preset && html`<p class="pg-hint">${describeQuestion(preset)}</p>`}
      ${origin && html`<p class="pg-hint origin">${origin}</p>`}
      <p class=${"words pg-quiet" + (message ? " pg-bad" : "")}>${describeProgress(experiment)}</p>
      <${Progress} row=${{ ...experiment, share }} />
      ${experiment.elsewhere && html`<${ShardsTable} elsewhere=${experiment.elsewhere} />`}
      ${experiment.elsewhere?.needs_token && html`<${JobsSignIn} />`}
      <p class="summary" aria-live="polite">
        ${labelSettings((lengths ?? results.results).summary)}
      </p>
      ${lengths && html`<p class="length-summary">${labelSettings(results.results.summary)}</p>`}
      <${ResultCharts} results=${results} />
      <${ResultTable} results=${results} />
      ${lengths && html`<p class="pg-hint untrained">${describeUntrained(lengths.rows)}</p>`}
      <${Files} />
      <${RunsTable} runs=${experiment.planned_runs} total=${experiment.runs} />
    </div>
  </section>`;
}
