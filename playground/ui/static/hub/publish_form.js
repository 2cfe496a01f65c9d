// The form that publishes a model.
import { Button } from "../shared/components/buttons.js";
import { effect, html, signal, untracked } from "../vendor/preact.js";
import { Field, Form } from "../shared/components/form.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { formatBytes, formatCount, formatInteger } from "../shared/format.js";
import { isActive, Job } from "../shared/job.js";
import { rememberedModel, store } from "../shared/store.js";
import { verifyToken } from "./account.js";
import { loadGallery } from "./gallery.js";
import {
  account,
  canPublish,
  models,
  plan,
  publication,
  publishOptions,
  runHubJob,
  selectedModel,
  session,
} from "./state.js";

const FIELDS = [
  { name: "repo", label: "Name on the Hub", maxLength: 190 },
  {
    name: "license",
    label: "License",
    maxLength: 40,
    placeholder: "mit, cc-by-4.0, …",
    hint: "Default: mit for built-in tasks; for a Hub dataset, its license; otherwise none",
  },
  { name: "private", label: "private: visible only to you", type: "checkbox" },
  {
    name: "page",
    label: "interactive page: also publish a page that runs the model, as a Space of this name",
    type: "checkbox",
  },
];
const REPO_MISSING = "Enter a repository name first: user/name.";
const publishJob = new Job();
const errors = signal({});
let suggestion = { repo: "", model: "" };

const userName = () => account.value?.name || session.value.name || "";

/** Return a repository name for a model, such as "reverse-10-172k". */
export const suggestName = ({ task, parameters }) =>
  `${task} ${Math.round(parameters / 1000)}k`
    .replace(/1–/, "")
    .replace(/[^A-Za-z0-9]+/g, "-")
    .replace(/^-|-$/g, "")
    .toLowerCase();

/** Suggest a repository name, unless the user entered one for this model. */
function suggestRepo() {
  const { repo, model } = publishOptions.value,
    user = userName();
  if (repo && repo !== suggestion.repo && model === suggestion.model && !repo.endsWith("/")) return;
  if (!selectedModel.value) return;
  suggestion = { model, repo: user ? `${user}/${suggestName(selectedModel.value)}` : "" };
  publishOptions.value = { ...publishOptions.value, repo: suggestion.repo };
}

function changeOptions(changes) {
  publishOptions.value = { ...publishOptions.value, ...changes };
  plan.value = null;
  errors.value = {};
}

function selectModel(model) {
  changeOptions({ model });
  suggestRepo();
}

// Select a model when the first one appears, and another one when the selected model is deleted.
effect(() => {
  const available = models.value.map((model) => model.subject);
  untracked(() => {
    if (!available.length || available.includes(publishOptions.value.model)) return;
    const remembered = rememberedModel();
    selectModel(available.includes(remembered) ? remembered : available[0]);
  });
});
effect(() => {
  if (userName()) untracked(suggestRepo);
});

async function previewPush() {
  if (!publishOptions.value.repo.trim() && !account.value && session.value.method !== "oauth") {
    await verifyToken();
    suggestRepo();
  }
  if (!publishOptions.value.repo.trim()) {
    errors.value = { repo: REPO_MISSING };
    return;
  }
  const { model: subject, ...options } = publishOptions.value,
    publishRequest = {
      ...options,
      subject,
      repo: options.repo.trim(),
      license: options.license.trim(),
    };
  plan.value = publication.value = null;
  const result = await runHubJob(publishJob, { kind: "plan", ...publishRequest });
  if (result) plan.value = { publishRequest, ...result };
}

async function publish() {
  const {
    publishRequest,
    plan: { parent },
  } = plan.value;
  plan.value = null;
  const result = await runHubJob(publishJob, {
    kind: "push",
    ...publishRequest,
    expected_parent: parent,
  });
  if (!result) return;
  publication.value = result;
  loadGallery();
}

function disabledReason() {
  if (canPublish.value) return models.value.length ? "" : "There is no model yet";
  return (
    { oauth: "Sign in above first", none: "This Space cannot publish" }[session.value.method] ??
    "Enter a token above first"
  );
}

function PublicationNotice() {
  const { step, url, space } = publication.value;
  return html`<p class="published">
    Published, step ${formatInteger(step)}: ${" "}
    <a href=${url} target="_blank" rel="noopener">${url}</a>
    ${space && html` and <a href=${space.url} target="_blank" rel="noopener">${space.url}</a>`}
  </p>`;
}

export function PublishForm() {
  const placeholder =
    suggestion.model && selectedModel.value
      ? `${userName() || "you"}/${suggestName(selectedModel.value)}`
      : "you/reverse-10";
  const fields = FIELDS.map((field) => (field.name === "repo" ? { ...field, placeholder } : field));
  return html`<section class="publish" aria-label="Publish a model">
    <header class="pg-section-header"><h3>Publish a model</h3></header>
    <p class="pg-hint">Creates a repository with the model, a model card, curves and scores.</p>
    <${Field}
      field=${{ name: "model", label: "Model", type: "select", options: store.models.value }}
      class="model"
      value=${publishOptions.value.model}
      onInput=${selectModel}
    />
    <${Form}
      fields=${fields}
      values=${publishOptions.value}
      errors=${errors.value}
      onInput=${(name, value) => changeOptions({ [name]: value })}
      onSubmit=${previewPush}
      submitLabel="Preview"
      submitClass="preview-push"
      isBusy=${isActive(publishJob.state.value)}
      disabledReason=${disabledReason()}
    />
    <${JobProgress} class="publish-note" job=${publishJob} onRetry=${previewPush} />
    ${plan.value && html`<${Plan} />`} ${publication.value && html`<${PublicationNotice} />`}
  </section>`;
}

// The preview of a publication: what it changes, and the model card.

const formatChangedSize = (changes) =>
  formatBytes(
    changes
      .filter((change) => ["new", "changed"].includes(change.status))
      .reduce((sum, change) => sum + change.size, 0),
  );

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

function Plan() {
  const { plan: model, space, card, notes = [], publishRequest } = plan.value,
    isPublishable = isWritten(model) || isWritten(space), // a Space may lack the page
    run = store.find(publishRequest.subject),
    isTraining = Boolean(run && "status" in run && run.status === "training");
  return html`<div class="pg-card plan">
    <p class="plan-summary">${describePlan(plan.value, isTraining)}</p>
    ${notes.map((note) => html`<p class="plan-note" key=${note}>Note: ${note}.</p>`)}
    <details class="card-preview">
      <summary>Model card</summary>
      <pre>${card}</pre>
    </details>
    <p class="pg-buttons">
      ${
        isPublishable &&
        html`<${Button} class="primary publish-button" onClick=${publish}>Publish<//>`
      }
      <${Button} onClick=${() => (plan.value = null)}>${isPublishable ? "Cancel" : "Close"}<//>
    </p>
  </div>`;
}
