// The experiments of the owner.
import { html } from "../../vendor/preact.js";
import { ConfirmButton } from "../../shared/components/confirm_button.js";
import { StatusMessage } from "../../shared/components/status_message.js";
import { formatCount, formatInteger } from "../../shared/format.js";
import { poller } from "../../shared/poller.js";
import { errors, experiments, formatQueuePosition, openExperiment, openId, send } from "./state.js";

/** Describe the state of an experiment and of its runs. */
export function describeStatus({ state, statuses, runs, queue_position: position, elsewhere }) {
  const { done = 0, failed = 0, training = 0, starting = 0 } = statuses;
  const queued = position ? formatQueuePosition(position) : "queued",
    active = elsewhere
      ? "in jobs"
      : done + failed === runs
        ? "evaluating all lengths"
        : training + starting && "training";
  return (
    `${state === "running" ? active || queued : state} · ` +
    `${formatInteger(done)} of ${formatCount(runs, "run")}${failed ? `, ${failed} failed` : ""}`
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
      return html`<button
        key=${action}
        type="button"
        class="pg-button"
        title=${title}
        onClick=${() => act(row.id, action)}
      >
        ${label}
      </button>`;
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
    <span class=${"words pg-quiet" + (row.message ? " pg-bad" : "")}>
      ${describeStatus(row)}${row.message && ": " + row.message}
    </span>
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
