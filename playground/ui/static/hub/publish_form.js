// Publish a model: the form, and the state of the jobs.
import { effect, html, signal, untracked } from "../vendor/preact.js";
import { request } from "../shared/api.js";
import { Field, Form } from "../shared/components/form.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { ModelSelect } from "../shared/components/model_select.js";
import { Section } from "../shared/components/section.js";
import { formatInteger, formatPercent } from "../shared/format.js";
import { isActive } from "../shared/job.js";
import { rememberedModel, store } from "../shared/store.js";
import { verifyToken } from "./account.js";
import { AutoPublish } from "./auto_publish.js";
import { loadGallery } from "./gallery.js";
import { Plan } from "./plan.js";
import {
  account,
  canPublish,
  choice,
  createHubJob,
  models,
  plan,
  published,
  runHubJob,
  selectedModel,
  session,
} from "./state.js";

const FIELDS = [
  { name: "repo", label: "Name on the Hub", maxLength: 190 },
  {
    name: "license",
    label: "Licence",
    maxLength: 40,
    placeholder: "mit, cc-by-4.0, …",
    hint: "Default: mit for built-in tasks, a Hub dataset's licence, none for other data",
  },
  { name: "private", label: "private: visible only to you", type: "checkbox" },
  { name: "data", label: "also publish the training set as a dataset", type: "checkbox" },
];
const REPO_MISSING = "Enter a repository name first: user/name.";
const publishJob = createHubJob();
const errors = signal({});
const checkpointOptions = signal([]);
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
export function suggestRepo() {
  const { repo, model } = choice.value,
    user = userName();
  if (repo && repo !== suggestion.repo && model === suggestion.model && !repo.endsWith("/")) return;
  if (!selectedModel.value) return;
  suggestion = { model, repo: user ? `${user}/${suggestName(selectedModel.value)}` : "" };
  choice.value = { ...choice.value, repo: suggestion.repo };
}

/** Replace the options of the checkpoint by those of the selected model. */
export async function loadCheckpoints() {
  const subject = choice.value.model;
  let response;
  try {
    response = await request("runs/details", { owner: store.owner.value, subject });
  } catch {
    return; // the next round of polling may succeed
  }
  if (subject === choice.value.model)
    checkpointOptions.value = buildCheckpointOptions(subject, response.checkpoints ?? []);
}

/** The first option, the latest checkpoint, has no name: it changes while a run trains. */
export function buildCheckpointOptions(subject, checkpoints) {
  const none = subject.startsWith("run:")
    ? "none yet: pause the run or wait"
    : "the only checkpoint";
  if (!checkpoints.length) return [{ value: "", label: none }];
  return checkpoints.map(({ name, step, exact_match: score }, at) => ({
    value: at ? name : "",
    label:
      (at ? "step " : "latest, step ") +
      formatInteger(step) +
      (score === null ? "" : ", exact match " + formatPercent(score)),
  }));
}

function changeChoice(change) {
  choice.value = { ...choice.value, ...change };
  plan.value = null;
  errors.value = {};
}

function selectModel(model) {
  changeChoice({ model, checkpoint: "" });
  suggestRepo();
  loadCheckpoints();
}

// A model is selected as soon as there is one, and again when the selected one was deleted.
effect(() => {
  const available = models.value.map((each) => each.subject);
  untracked(() => {
    if (!available.length || available.includes(choice.value.model)) return;
    const remembered = rememberedModel();
    selectModel(available.includes(remembered) ? remembered : available[0]);
  });
});
effect(() => {
  if (userName()) untracked(suggestRepo);
});

async function previewPush() {
  if (!choice.value.repo.trim() && !account.value && session.value.way !== "oauth") {
    await verifyToken();
    suggestRepo();
  }
  if (!choice.value.repo.trim()) {
    errors.value = { repo: REPO_MISSING };
    return;
  }
  const { model: subject, ...rest } = choice.value,
    wish = { ...rest, subject, repo: rest.repo.trim(), license: rest.license.trim() };
  plan.value = published.value = null;
  const result = await runHubJob(publishJob, { kind: "plan", ...wish });
  if (result) plan.value = { wish, ...result };
}

async function publish() {
  const { wish, plans } = plan.value;
  plan.value = null;
  const result = await runHubJob(publishJob, {
    kind: "push",
    ...wish,
    expected: plans[plans.length - 1].parent,
  });
  if (!result) return;
  published.value = result;
  loadGallery();
}

/** Return why nothing can be published; empty if it can. */
function disabledReason() {
  if (canPublish.value) return models.value.length ? "" : "There is no model yet";
  return (
    { oauth: "Sign in above first", none: "This Space cannot publish" }[session.value.way] ??
    "Enter a token above first"
  );
}

function Published() {
  const { step, url } = published.value;
  return html`<p class="published">
    Published, step ${formatInteger(step)}: ${" "}
    <a href=${url} target="_blank" rel="noopener">${url}</a>
  </p>`;
}

export function PublishForm() {
  const placeholder =
    suggestion.model && selectedModel.value
      ? `${userName() || "you"}/${suggestName(selectedModel.value)}`
      : "you/reverse-10";
  const fields = FIELDS.map((field) => (field.name === "repo" ? { ...field, placeholder } : field));
  const checkpointField = {
    name: "checkpoint",
    label: "Checkpoint",
    type: "select",
    options: checkpointOptions.value,
  };
  return html`<${Section}
    class="publish"
    title="Publish a model"
    hint="Creates a repository with a model card, curves and scores that anyone can load with
      transformers. BERT, GPT-2 and BART need no custom code; the other architectures include
      theirs."
  >
    <${ModelSelect}
      label="Model"
      class="model"
      options=${store.models.value}
      value=${choice.value.model}
      onChange=${selectModel}
    />
    <${Field}
      field=${checkpointField}
      class="which"
      value=${choice.value.checkpoint}
      onInput=${(checkpoint) => changeChoice({ checkpoint })}
    />
    <${Form}
      fields=${fields}
      values=${choice.value}
      errors=${errors.value}
      onInput=${(name, value) => changeChoice({ [name]: value })}
      onSubmit=${previewPush}
      submitLabel="Preview"
      submitClass="preview-push"
      isBusy=${isActive(publishJob.state.value)}
      disabledReason=${disabledReason()}
    />
    <${JobProgress} class="publish-note" job=${publishJob} onRetry=${previewPush} />
    ${plan.value && html`<${Plan} onPublish=${publish} />`}
    ${published.value && html`<${Published} />`}
    <${AutoPublish} />
  <//>`;
}
