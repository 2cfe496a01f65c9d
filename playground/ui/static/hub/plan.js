// What publishing would change, before it does.
import { html } from "../vendor/preact.js";
import { formatBytes, formatCount, formatInteger } from "../shared/format.js";
import { store } from "../shared/store.js";
import { plan } from "./state.js";

const totalSize = ({ changes }) =>
  formatBytes(
    changes
      .filter((change) => ["new", "changed"].includes(change.what))
      .reduce((sum, change) => sum + change.size, 0),
  );

/** Return the numbers of new, changed and other files in words. */
export function countChanges(changes) {
  const counts = new Map();
  for (const { what } of changes) counts.set(what, (counts.get(what) ?? 0) + 1);
  return [...counts].map(([what, count]) => `${count} ${what}`).join(", ");
}

/** Describe a plan in words. `isTraining` is whether its run continues. */
export function describePlan({ plans, step }, isTraining) {
  const model = plans[plans.length - 1],
    data = plans.length > 1 ? plans[0] : null,
    stepText = "step " + formatInteger(step),
    written = model.changes.filter((change) => change.what !== "same");
  if (!hasChanges(plans)) return `${model.repo} already has this checkpoint, ${stepText}.`;
  const visibility = model.private ? "private" : "public",
    target = model.exists
      ? `${model.repo} already exists (${visibility}). One commit changes it`
      : `New ${visibility} repository ${model.repo}`,
    size = formatCount(written.length, "file") + ", " + totalSize(model),
    ofRun = isTraining ? " The run continues; its latest checkpoint is published." : "",
    dataTarget = data?.exists ? "changes the dataset" : "becomes the new dataset",
    ofData = data ? ` Its training set ${dataTarget} ${data.repo}, ${totalSize(data)}.` : "";
  return `${target}: ${stepText}, ${size}.${ofRun}${ofData}`;
}

const hasChanges = (plans) =>
  plans.some(({ changes }) => changes.some((change) => change.what !== "same"));

function FileRows({ part, hasHeading }) {
  return html`${
    hasHeading &&
    html`<tr>
      <td class="group">${part.kind === "dataset" ? "Dataset" : "Model"}</td>
    </tr>`
  }
  ${part.changes.map(
    ({ path, size, what }) =>
      html`<tr key=${path}>
        <td>${path}</td>
        <td class="number tight">${formatBytes(size)}</td>
        <td class=${what}>${what}</td>
      </tr>`,
  )}`;
}

export function Plan({ onPublish }) {
  const { plans, card, wish } = plan.value,
    canWrite = hasChanges(plans),
    run = store.find(wish.subject),
    isTraining = Boolean(run && "status" in run && run.status === "training");
  return html`<div class="plan">
    <p class="what">${describePlan(plan.value, isTraining)}</p>
    <details>
      <summary class="files-summary">
        Files: ${countChanges(plans[plans.length - 1].changes)}
      </summary>
      <table class="files">
        <tbody>
          ${plans.map(
            (part) =>
              html`<${FileRows} key=${part.kind} part=${part} hasHeading=${plans.length > 1} />`,
          )}
        </tbody>
      </table>
    </details>
    <details class="card-preview">
      <summary>Model card</summary>
      <pre>${card}</pre>
    </details>
    <p class="pg-buttons">
      ${
        canWrite &&
        html`<button type="button" class="pg-button primary go" onClick=${onPublish}>
          Publish
        </button>`
      }
      <button type="button" class="pg-button" onClick=${() => (plan.value = null)}>
        ${canWrite ? "Cancel" : "Close"}
      </button>
    </p>
  </div>`;
}
