// Replications of published claims.
import { html } from "../vendor/preact.js";
import { navigate } from "../shared/common.js";
import { CopyButton } from "../shared/components/copy_field.js";
import { Section } from "../shared/components/section.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatCount, formatInteger, formatMessage } from "../shared/format.js";
import { poller } from "../shared/poller.js";
import { outcomeKey, outcomes } from "./outcomes.js";
import {
  claims,
  errors,
  formatEstimate,
  formatQueuePosition,
  openExperiment,
  send,
} from "./state.js";

const RUNNABLE_STATES = ["none", "stopped", "failed"];
const HINT =
  "Published claims, trained here with the published settings as far as they are known. " +
  "Differences are listed.";

/** Describe the measured result of a claim, or how far its replication is. */
export function describeResult(claim, outcome) {
  const { unavailable_reason: reason, state, step, steps, message, experiment } = claim;
  if (reason) return formatMessage(reason);
  if (state === "none") return "not run yet";
  if (state === "done")
    return outcome ? outcome.measured_text || formatMessage(outcome.summary) : "comparing";
  if (claim.queue_position) return formatQueuePosition(claim.queue_position);
  const share = steps ? Math.floor((100 * step) / steps) : 0,
    progress = experiment ? `, ${share} %` : step ? `, step ${formatInteger(step)} of ` : "";
  return (
    state +
    (experiment || !step ? progress : progress + formatInteger(steps)) +
    (message ? ": " + message : "")
  );
}

/** Return the verdict of an outcome: its text, and the class of its colour. */
export function describeVerdict(outcome) {
  if (outcome?.passed === true) return ["✓ pass", "ok"];
  if (outcome?.passed === false) return ["✗ fail", "bad"];
  return [outcome?.measured_text ? "compared" : "", ""]; // without a criterion
}

/** Describe the settings of a claim in one line. */
export const describeSettings = ({ settings, seed, is_experiment: isExperiment }) =>
  Object.entries(settings)
    .map(([name, value]) => {
      const text = typeof value === "boolean" ? (value ? "on" : "off") : value;
      return `${name} ${Array.isArray(text) ? text.join(", ") : text}`;
    })
    .join(" · ") + (isExperiment ? "" : ` · seed ${seed}`);

async function start({ name }) {
  const response = await send("claims", "replications/start", { name });
  if (response?.experiment) openExperiment(response.experiment);
  poller.wakeAll();
}

const open = ({ run, experiment }) =>
  experiment ? openExperiment(experiment) : navigate("Train", run);

function Details({ claim }) {
  return html`<details>
    <summary aria-label=${"Details of: " + claim.title}>Details</summary>
    <dl>
      <dt>criterion</dt>
      <dd>${formatMessage(claim.criterion)}</dd>
      <dt>differences</dt>
      <dd>
        <ul>
          ${claim.deviations.map(
            (/** @type {string} */ text) => html`<li key=${text}>${text}</li>`,
          )}
        </ul>
      </dd>
      <dt>settings</dt>
      <dd>${describeSettings(claim)}</dd>
      <dt>command</dt>
      <dd><code>${claim.command}</code>${" "}<${CopyButton} text=${claim.command} /></dd>
    </dl>
  </details>`;
}

function Claim({ claim }) {
  const outcome = outcomes.value[outcomeKey(claim)],
    [verdict, kind] = describeVerdict(outcome),
    canRun = RUNNABLE_STATES.includes(claim.state) && !claim.unavailable_reason;
  const button = (label, act) =>
    html`<button
      type="button"
      class="pg-button"
      aria-label=${`${label}: ${claim.title}`}
      onClick=${() => act(claim)}
    >
      ${label}
    </button>`;
  return html`<li class="claim" data-state=${claim.state}>
    <header class="pg-section-header">
      <h4>${claim.title}</h4>
      <span class=${"verdict " + kind} title=${outcome?.summary}>${verdict}</span>
      <span class="pg-spacer"></span>
      ${canRun && button("Run", start)} ${(claim.run || claim.experiment) && button("Open", open)}
    </header>
    <p class="what">${claim.source}</p>
    <dl>
      <dt>published</dt>
      <dd>${claim.statement}</dd>
      <dt>reproduced</dt>
      <dd class=${"measured" + (outcome?.measured_text ? "" : " what")}>
        ${describeResult(claim, outcome)}
      </dd>
      <dt>setting</dt>
      <dd>
        ${claim.description}${
          claim.parameters ? `; ${formatCount(claim.parameters, "parameter")}` : ""
        };${" "}<span class="estimate">${formatEstimate(claim.estimate)}</span>
      </dd>
    </dl>
    <${Details} claim=${claim} />
  </li>`;
}

export function Replications() {
  return html`<${Section} class="published" title="Replications" hint=${HINT}>
    <${StatusMessage} class="published-note" kind="error" text=${errors.value.claims ?? ""} />
    <ul class="claims">
      ${claims.value.map((claim) => html`<${Claim} key=${claim.name} claim=${claim} />`)}
    </ul>
  <//>`;
}
