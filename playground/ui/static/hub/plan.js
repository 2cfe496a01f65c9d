// The preview of a publication: the files that it adds or changes, and the model card.
import { html } from "../vendor/preact.js";
import { Table } from "../shared/components/data_table.js";
import { formatBytes, formatCount, formatInteger } from "../shared/format.js";
import { store } from "../shared/store.js";
import { plan } from "./state.js";

const formatChangedSize = (changes) =>
  formatBytes(
    changes
      .filter((change) => ["new", "changed"].includes(change.status))
      .reduce((sum, change) => sum + change.size, 0),
  );

/** Return how many files are new, changed and the same, such as "2 new, 1 same". */
export function formatChangeCounts(changes) {
  const counts = new Map();
  for (const { status } of changes) counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts].map(([status, count]) => `${count} ${status}`).join(", ");
}

const isWritten = (plan) => plan?.changes.some((change) => change.status !== "same");
const visibilityOf = (plan) => (plan.private ? "private" : "public");

/** Summarize a plan in some sentences. `isTraining`: the run of the model still trains. */
export function describePlan({ plan, space, step }, isTraining) {
  return [describeModel(plan, step, isTraining), space && describeSpace(space)]
    .filter(Boolean)
    .join(" ");
}

function describeSpace(space) {
  const name = `Space ${space.repo}`,
    visibility = visibilityOf(space);
  if (!space.exists) return `New ${visibility} ${name}: it runs the interactive page.`;
  return `The ${name} (${visibility}) ${isWritten(space) ? "gets" : "already has"} this page.`;
}

function describeModel(plan, step, isTraining) {
  const { repo, exists, changes } = plan,
    visibility = visibilityOf(plan),
    stepText = "step " + formatInteger(step),
    changedFiles = changes.filter((change) => change.status !== "same");
  if (!changedFiles.length) return `${repo} already has this checkpoint, ${stepText}.`;
  const repository = exists
      ? `${repo} already exists (${visibility}). One commit changes it`
      : `New ${visibility} repository ${repo}`,
    size = formatCount(changedFiles.length, "file") + ", " + formatChangedSize(changes),
    runNote = isTraining ? " The run continues; its latest checkpoint is published." : "";
  return `${repository}: ${stepText}, ${size}.${runNote}`;
}

export function Plan({ onPublish }) {
  const { plan: model, space, card, notes = [], publishRequest } = plan.value,
    { changes } = model,
    isPublishable = isWritten(model) || isWritten(space), // a Space may lack the page
    run = store.find(publishRequest.subject),
    isTraining = Boolean(run && "status" in run && run.status === "training");
  return html`<div class="pg-card plan">
    <p class="plan-summary">${describePlan(plan.value, isTraining)}</p>
    ${notes.map((note) => html`<p class="plan-note" key=${note}>Note: ${note}.</p>`)}
    <details>
      <summary class="files-summary">Files: ${formatChangeCounts(changes)}</summary>
      <${Table}
        class="files"
        numbers=${[1]}
        rows=${changes.map(({ path, size, status }) => [
          path,
          formatBytes(size),
          html`<span class=${status}>${status}</span>`,
        ])}
      />
    </details>
    <details class="card-preview">
      <summary>Model card</summary>
      <pre>${card}</pre>
    </details>
    <p class="pg-buttons">
      ${
        isPublishable &&
        html`<button type="button" class="pg-button primary publish-button" onClick=${onPublish}>
          Publish
        </button>`
      }
      <button type="button" class="pg-button" onClick=${() => (plan.value = null)}>
        ${isPublishable ? "Cancel" : "Close"}
      </button>
    </p>
  </div>`;
}
