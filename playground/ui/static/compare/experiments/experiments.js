// The experiments of the owner.
import { html, signal } from "../../vendor/preact.js";
import { Button, ConfirmButton } from "../../shared/components/buttons.js";
import { Sparkline } from "../../shared/components/sparkline.js";
import { StatusMessage } from "../../shared/components/status_message.js";
import { formatCount, formatInteger, formatMessage } from "../../shared/format.js";
import { poller } from "../../shared/poller.js";
import {
  errors,
  experiments,
  formatEstimate,
  formatQueuePosition,
  labelSettings,
  openExperiment,
  openId,
  presets,
  send,
  STORED_PREFIX,
} from "./state.js";
/** @import { StoredVariant } from "../../shared/responses.js" */

/** Describe the state of an experiment: its runs, the remaining time, and its message. */
export function describeStatus(experiment) {
  const { state, statuses, runs, queue_position: position, elsewhere, message } = experiment,
    { done = 0, failed = 0, training = 0, starting = 0 } = statuses,
    seconds = state === "running" && !elsewhere && experiment.estimate?.seconds;
  const queued = position ? formatQueuePosition(position) : "queued",
    active = elsewhere
      ? "in jobs"
      : done + failed === runs
        ? "evaluating all lengths"
        : training + starting && "training";
  return (
    `${state === "running" ? active || queued : state} · ` +
    `${formatInteger(done)} of ${formatCount(runs, "run")}${failed ? `, ${failed} failed` : ""}` +
    (seconds ? ` · ${formatEstimate(experiment.estimate)} left` : "") +
    (message ? ": " + message : "")
  );
}

/** Return which actions an experiment in this state has, besides Delete. */
export function listActions({ state, statuses }) {
  if (state === "running") return ["pause", "cancel"];
  if (state === "paused") return ["resume", "cancel"];
  return state === "done" && statuses.failed ? ["resume"] : [];
}

const BUTTONS = {
  pause: ["Pause", "Saves the runs that train; Resume continues them"],
  resume: ["Resume", "Continues unfinished and failed runs; finished ones are not repeated"],
  cancel: ["Cancel", "Ends the experiment and deletes its unfinished runs; finished ones stay"],
};

async function act(experiment, action) {
  await send("experiments", "experiments/action", { experiment, action });
  poller.wakeAll();
}

export function Actions({ row }) {
  return html`<span class="pg-row actions">
    ${listActions(row).map((action) => {
      const [label, title] = BUTTONS[action];
      return html`<${Button} key=${action} title=${title} onClick=${() => act(row.id, action)}>
        ${label}
      <//>`;
    })}
    <${ConfirmButton}
      label="Delete"
      question="Delete it with its runs?"
      confirmLabel="Delete with its runs"
      onConfirm=${() => act(row.id, "delete")}
    />
  </span>`;
}

/** The progress of an experiment; hidden at its end. */
export const Progress = ({ row }) =>
  html`<progress
    aria-label="Progress"
    max="1"
    value=${row.share ?? 1}
    style=${row.state === "running" || row.state === "paused" ? null : { visibility: "hidden" }}
  ></progress>`;

function Experiment({ row }) {
  return html`<li data-state=${row.state}>
    <button
      type="button"
      class="open-it"
      aria-current=${String(row.id === openId.value)}
      title=${row.name}
      onClick=${() => openExperiment(row.id)}
    >
      ${row.question || row.name}
    </button>
    <span class=${"words pg-quiet" + (row.message ? " pg-bad" : "")}> ${describeStatus(row)} </span>
    <${Actions} row=${row} />
    <${Progress} row=${row} />
  </li>`;
}

export function Experiments() {
  const list = experiments.value ?? [];
  if (!list.length) return null;
  return html`<section class="own-experiments" aria-label="Your experiments">
    <header class="pg-section-header"><h3>Your experiments</h3></header>
    <ul class="pg-list experiments">
      ${list.map((row) => html`<${Experiment} key=${row.id} row=${row} />`)}
    </ul>
    <${StatusMessage} class="mine-note" kind="error" text=${errors.value.experiments ?? ""} />
  </section>`;
}

// The prepared experiments: a card for each question, with its stored answer.

const LENGTHS_NOTE = "; then evaluated on sequences longer than the training sequences";
const starting = signal(""); // the name of the preset whose request is pending

export async function runPreset({ name, experiment }) {
  if (experiment) return openExperiment(experiment);
  starting.value = name;
  const response = await send("presets", "experiments/submit", { question: name });
  starting.value = "";
  if (response) openExperiment(response.experiment);
}

/** Return the prepared experiment of the open result. */
export const findPreset = (id) =>
  presets.value.find((each) => id === STORED_PREFIX + each.name || id === each.experiment);

export const describePreset = ({ runs, estimate }) =>
  `${formatCount(runs, "run")} · ${formatEstimate(estimate)}`;

export const describeQuestion = ({ why, varied, kind }) =>
  `${why} ${labelSettings(varied)}${kind === "lengths" ? LENGTHS_NOTE : ""}.`;

/** Describe the steps to 99 %: median and range over the seeds, or how many seeds reach it. */
function describeSteps({ steps_to: to, budget }) {
  const limit = `within ${formatInteger(budget)} steps`;
  if (!to) return `no result ${limit}`;
  if (to.median === null) return `${to.reached} of ${formatCount(to.n, "seed")} ${limit}`;
  const high = to.high === null ? "over " + formatInteger(budget) : formatInteger(to.high);
  return (
    `99 % after ${formatInteger(to.median)} steps (${formatInteger(to.low)} to ${high}, ` +
    `${formatCount(to.n, "seed")})`
  );
}

/** Describe the lengths with 99 %: median and range over the seeds. @param {any} reach */
const describeReach = ({ median, low, high, n }) =>
  `99 % up to length ${median} (${low} to ${high}, ${formatCount(n, "seed")})`;

/** @param {StoredVariant[]} variants */
export function describeAnswer(variants) {
  const rank = ({ reach, steps_to: to }) => (reach ? -reach.median : (to?.median ?? Infinity)),
    ranked = [...variants].sort((a, b) => rank(a) - rank(b) || 0),
    ends = [ranked[0], ranked[ranked.length - 1]];
  if (rank(ends[0]) === Infinity) return "No variant reached 99 %.";
  return (
    ends
      .map((each) => {
        const result = each.reach ? describeReach(each.reach) : describeSteps(each);
        return `${each.label}: ${result}`;
      })
      .join("; ") + "."
  );
}

/** The median of a variant, by step or by length. @param {StoredVariant} variant */
const toCurve = ({ positions, exact_match: scores }) =>
  positions.map((position, at) => /** @type {[number, number]} */ ([position, scores[at]]));

function Card({ preset }) {
  const { name, title, stored, verdict, estimate, experiment } = preset,
    id = experiment ?? (stored.length ? STORED_PREFIX + name : ""),
    verb = id ? "Open" : "Run it here";
  return html`<li class="pg-card" aria-current=${String(Boolean(id) && id === openId.value)}>
    <h3 title=${describeQuestion(preset)}>${title}</h3>
    ${
      stored.length > 0 &&
      html`<${Sparkline} curves=${stored.map(toCurve)} />
        <p class="answer">
          ${verdict && html`<b>${labelSettings(verdict)}</b>`}${" "}
          ${labelSettings(describeAnswer(stored))}
        </p>`
    }
    <p class="pg-row">
      <${Button}
        aria-label=${`${verb}: ${title}`}
        disabled=${starting.value === name}
        onClick=${() => (id ? openExperiment(id) : runPreset(preset))}
      >
        ${verb}
      <//>
      ${
        !id &&
        html`<span class="pg-sub" title=${formatMessage(estimate.message)}>
          ${describePreset(preset)}
        </span>`
      }
    </p>
  </li>`;
}

export const Presets = () =>
  html`<ul class="presets">
      ${presets.value.map((each) => html`<${Card} key=${each.name} preset=${each} />`)}
    </ul>
    <${StatusMessage} kind="error" text=${errors.value.presets ?? ""} />`;
