// Replications of published claims.
import { html, useMemo, useState } from "../../vendor/preact.js";
import { toSeries } from "../../shared/chart_data.js";
import { Button, CopyButton } from "../../shared/components/buttons.js";
import { LineChart } from "../../shared/components/line_chart.js";
import { StatusMessage } from "../../shared/components/status_message.js";
import { formatCount, formatMessage, formatPercent } from "../../shared/format.js";
import { poller } from "../../shared/poller.js";
import {
  claims,
  errors,
  formatEstimate,
  formatQueuePosition,
  labelSettings,
  openExperiment,
  outcomeKey,
  outcomes,
  send,
} from "./state.js";

const HINT =
  "Published claims, trained here with the published settings as far as they are known. " +
  "Details list the differences. Our result: measured by this project on the given date.";

export function describeResult(claim, outcome) {
  const { state, step, steps, message } = claim;
  if (state === "none") return "not run yet";
  if (state === "done")
    return outcome ? outcome.measured_text || formatMessage(outcome.summary) : "comparing";
  if (claim.queue_position) return formatQueuePosition(claim.queue_position);
  const share = steps ? Math.floor((100 * step) / steps) : 0;
  return `${state}, ${share} %` + (message ? ": " + message : "");
}

/** Return the verdict of an outcome of so many seeds: its text, and the class of its color. */
export function describeVerdict(outcome, nSeeds) {
  const seeds = formatCount(nSeeds, "seed");
  if (outcome?.passed === true) return [`✓ pass, ${seeds}`, "good"];
  if (outcome?.passed === false) return [`✗ fail, ${seeds}`, "bad"];
  return ["", ""];
}

function Result({ outcome, text, nSeeds }) {
  const [verdict, kind] = describeVerdict(outcome, nSeeds);
  return [
    verdict && html`<span key="verdict" class=${"pg-" + kind}>${verdict}</span>: `,
    labelSettings(text),
  ];
}

export const describeSettings = ({ settings }) =>
  Object.entries(settings)
    .map(([name, value]) => {
      const text = typeof value === "boolean" ? (value ? "on" : "off") : value;
      return `${name} ${Array.isArray(text) ? text.join(", ") : text}`;
    })
    .join(" · ");

async function start({ name }) {
  const response = await send("claims", "replications/start", { name });
  if (response?.experiment) openExperiment(response.experiment);
  poller.wakeAll();
}

const open = ({ experiment }) => openExperiment(experiment);

/** @param {any} claim @param {any} outcome @returns {import("../../shared/types.js").Series[]} */
export function buildClaimSeries({ curve, measure }, outcome) {
  const isStep = measure === "generalization_step",
    line = (key, label, points, color) => toSeries(label, points, color, { key, hasPoints: true }),
    published = isStep ? "published" : "published, evaluation",
    ours = isStep ? "your run" : "your run, training";
  return [
    line("published", published, curve, 1),
    ...(outcome?.curve?.length ? [line("reproduced", ours, outcome.curve, 0)] : []),
  ];
}

function ClaimChart({ claim, outcome }) {
  const isStep = claim.measure === "generalization_step",
    series = useMemo(() => buildClaimSeries(claim, outcome), [claim, outcome]);
  return html`<${LineChart}
    series=${series}
    options=${{
      label: isStep ? "Held-out exact match" : "Loss",
      xLabel: "update",
      xRange: [0, null],
      ...(isStep ? { yRange: [0, 1.02], formatY: formatPercent } : {}),
    }}
  />`;
}

function Details({ claim, outcome }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary aria-label=${"Details of: " + claim.title}>Details</summary>
    ${isOpen && claim.curve.length > 0 && html`<${ClaimChart} claim=${claim} outcome=${outcome} />`}
    <dl>
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
    { stored } = claim;
  const button = (label, act) =>
    html`<${Button} aria-label=${`${label}: ${claim.title}`} onClick=${() => act(claim)}>
      ${label}
    <//>`;
  return html`<li class="claim" data-state=${claim.state}>
    <header class="pg-section-header">
      <h4>${claim.title}</h4>
      <span class="pg-spacer"></span>
      ${claim.experiment ? button("Open", open) : button("Run", start)}
    </header>
    <p class="pg-sub">${claim.source}</p>
    <dl>
      <dt>published</dt>
      <dd>${claim.statement}</dd>
      <dt>criterion</dt>
      <dd class="criterion">${formatMessage(claim.criterion)}</dd>
      ${
        stored &&
        html`<dt>our result</dt>
          <dd class="stored">
            <${Result}
              outcome=${{ ...stored, measured_text: stored.text }}
              text=${`${stored.text} (${stored.date})`}
              nSeeds=${stored.seeds}
            />
          </dd>`
      }
      <dt>your run</dt>
      <dd class=${"measured" + (outcome?.measured_text ? "" : " pg-quiet")}>
        <${Result}
          outcome=${outcome}
          text=${describeResult(claim, outcome)}
          nSeeds=${claim.settings.seeds.length}
        />
      </dd>
      <dt>setting</dt>
      <dd>
        ${labelSettings(claim.description)}${
          claim.parameters ? `; ${formatCount(claim.parameters, "parameter")}` : ""
        }
      </dd>
      <dt>duration</dt>
      <dd class="estimate" title=${claim.estimate.message}>${formatEstimate(claim.estimate)}</dd>
    </dl>
    <${Details} claim=${claim} outcome=${outcome} />
  </li>`;
}

export function Replications() {
  const [isOpen, setOpen] = useState(false);
  return html`<details class="published" onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>Replications of published results</summary>
    <${StatusMessage} class="published-note" kind="error" text=${errors.value.claims ?? ""} />
    ${
      isOpen &&
      html`<p class="pg-hint">${HINT}</p>
        <ul class="pg-list pg-halves claims">
          ${claims.value.map((claim) => html`<${Claim} key=${claim.name} claim=${claim} />`)}
        </ul>`
    }
  </details>`;
}
