// The models on the Hub.
import { html, signal, useEffect, useRef } from "../vendor/preact.js";
import { sleep } from "../shared/api.js";
import { Button, CopyButton } from "../shared/components/buttons.js";
import { DataTable, Table } from "../shared/components/data_table.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatCount, formatDuration, formatInteger, formatPercent } from "../shared/format.js";
import { isActive, Job } from "../shared/job.js";
import { store } from "../shared/store.js";
import { opened, runHubJob } from "./state.js";

const NO_MODELS = "No model has the playground's tag yet. Publish the first one.";
const COLUMNS = [
  { key: "repo", label: "model", render: ({ repo }) => html`<span class="name">${repo}</span>` },
  { key: "task", label: "task", isOptional: true },
  {
    key: "parameters",
    label: "parameters",
    isNumber: true,
    isOptional: true,
    render: (row) => (row.parameters ? formatInteger(row.parameters) : ""),
  },
  {
    key: "exact_match",
    label: "exact match",
    isNumber: true,
    render: ({ exact_match: score, n }) =>
      score !== null &&
      score !== undefined &&
      html`<span title=${n ? `from its model card, on ${formatCount(n, "held-out sequence")}` : ""}>
        ${formatPercent(score)}
      </span>`,
  },
  { key: "likes", label: "likes", isNumber: true, isOptional: true },
];
const MAX_RETRIES = 3;
const FIRST_RETRY_MS = 4000;
const galleryJob = new Job();
let latestLoad = 0;
const galleryModels = signal(/** @type {any[] | null} */ (null));

const describeFailure = (/** @type {any} */ { message, code }) =>
  (code === "hub_unreachable" ? "No internet connection." : message) +
  " The models on this machine are in the Train tab.";

/** Load the list. Temporary errors are retried a few times. */
export async function loadGallery({ isRefresh = true } = {}) {
  const isFirst = galleryJob.state.value.status === "idle"; // a refresh may be faster than the page
  if (!store.owner.value || !(isRefresh || isFirst)) return;
  const number = ++latestLoad;
  for (let retries = 0; number === latestLoad; retries++) {
    const refresh = isRefresh || retries > 0,
      result = await runHubJob(galleryJob, { kind: "gallery", refresh });
    if (result) galleryModels.value = result.models;
    if (result || !galleryJob.state.value.canRetry || retries === MAX_RETRIES) return;
    await sleep(FIRST_RETRY_MS * 2 ** retries);
  }
}

/** Return the repository and the revision of a name, a name@revision, or a URL. */
export function parseRepoAddress(text) {
  const path = text
      .trim()
      .replace(/^https?:\/\/[^/]+\//, "")
      .replace(/[?#].*$/, "")
      .replace(/\/+$/, ""),
    tree = /^([^/]+\/[^/]+)\/(?:tree|commit)\/(.+)$/.exec(path);
  if (tree) return [tree[1], tree[2]];
  const [repo, revision] = path.split("@");
  return [repo, revision || "main"];
}

function AddressForm() {
  const onSubmit = (event) => {
    event.preventDefault();
    const [repo, revision] = parseRepoAddress(event.currentTarget.elements.repo.value);
    if (repo) openRepo(repo, revision);
  };
  return html`<form class="pg-row open-repository-form" onSubmit=${onSubmit}>
    <label>
      Other repository
      <input
        class="any-repo"
        name="repo"
        type="text"
        spellcheck=${false}
        autocomplete="off"
        maxlength="190"
        placeholder="user/name or URL"
      />
    </label>
    <button type="submit" class="pg-button">Open</button>
  </form>`;
}

export function Gallery() {
  const job = galleryJob.state.value,
    list = galleryModels.value,
    isFailed = job.status === "failed",
    count = list?.length
      ? formatCount(list.length, "model") + " with the playground's tag"
      : list && NO_MODELS,
    text = isActive(job) ? job.message : isFailed ? list && "earlier list" : count;
  return html`<div class="gallery">
    <header class="pg-section-header">
      <h3>Models on the Hub</h3>
      <span class="pg-hint gallery-words" role="status">${text}</span>
      <span class="pg-spacer"></span>
      <${Button} class="refresh-gallery" onClick=${() => loadGallery()}>Refresh<//>
    </header>
    <${AddressForm} />
    <${StatusMessage}
      class="gallery-note"
      kind="error"
      text=${isFailed ? describeFailure(job) : ""}
      onRetry=${() => loadGallery()}
    />
    ${
      Boolean(list?.length) &&
      html`<${DataTable}
        class="models"
        caption="Models on the Hub"
        columns=${COLUMNS}
        rows=${list}
        rowKey=${(row) => row.repo}
        sortKey="likes"
        actions=${(row) => html`<${Button} onClick=${() => openRepo(row.repo)}>Open<//>`}
      />`
    }
  </div>`;
}

// One repository on the Hub.

const infoJob = new Job();
const importJob = new Job(); // it continues when another repository is opened
const evaluation = signal(/** @type {any} */ (null));

/** Return the name of a repository, with its revision unless that is the branch main. */
export const formatRepoAddress = ({ repo, revision }) =>
  revision === "main" ? repo : `${repo}@${revision}`;

export async function openRepo(repo, revision = "main") {
  opened.value = { repo, revision };
  evaluation.value = null;
  const info = await runHubJob(infoJob, { kind: "repo_info", repo, revision });
  if (info) opened.value = { repo, revision, ...info };
}

async function reproduceEvaluation() {
  const { repo, commit } = opened.value;
  const result = await runHubJob(infoJob, { kind: "reproduce", repo, revision: commit });
  if (result) evaluation.value = result;
}

async function importModel() {
  const { repo, revision, commit } = opened.value;
  const result = await runHubJob(importJob, {
    kind: "pull",
    repo,
    revision: commit,
    is_main: revision === "main",
  });
  if (result?.subject) store.open("train", { model: result.subject });
}

function close() {
  infoJob.reset();
  opened.value = null;
}

export function describeRepo(info) {
  const [layers, heads, width] = info.shape,
    training = info.seconds ? ` in ${formatDuration(info.seconds)} on ${info.device}` : "";
  return (
    [
      info.task,
      `${formatCount(layers, "layer")} × ${formatCount(heads, "head")}, width ${width}`,
      formatCount(info.parameters, "parameter"),
      `trained ${formatCount(info.step, "step")}${training}`,
      info.resumable
        ? "can be trained further"
        : "weights only: can be inspected and run, but not trained further",
      formatCount(info.likes, "like"),
    ].join(" · ") + "."
  );
}

export function describeEvaluation({ card, measured, measured_seconds: seconds }) {
  if (!card) return "Its model card has no score to compare with.";
  const isEqual = Math.abs(card.exact_match - measured.exact_match) < 0.5 / measured.n;
  return isEqual
    ? `The scores are equal. The evaluation took ${formatDuration(seconds)}.`
    : "The scores differ: the card may describe other weights or another metric.";
}

function Scores() {
  const { card } = opened.value,
    measured = evaluation.value?.measured,
    rows = [card && ["model card", card], measured && ["this server", measured]].filter(Boolean);
  if (!rows.length) return null;
  return html`<${Table}
    class="scores"
    head=${[
      html`<span class="pg-visually-hidden">Measured by</span>`,
      "exact match",
      "held-out sequences",
    ]}
    numbers=${[1, 2]}
    rows=${rows.map(([source, { exact_match: score, n }]) => [
      source,
      formatPercent(score),
      n ? formatInteger(n) : "not given",
    ])}
  />`;
}

function Facts() {
  return html`<p class="repository-summary">${describeRepo(opened.value)}</p>
    <p class="pg-buttons">
      <${Button}
        class="primary import"
        title="Downloads and validates the model and adds it to your runs"
        onClick=${importModel}
      >
        Import
      <//>
      <${Button}
        class="measure"
        title="Downloads the model and evaluates it on the same held-out sequences"
        onClick=${reproduceEvaluation}
      >
        Reproduce evaluation
      <//>
    </p>
    <${Scores} />
    <p class="verdict pg-hint">${evaluation.value && describeEvaluation(evaluation.value)}</p>`;
}

export function Repository() {
  const box = useRef(/** @type {HTMLElement | null} */ (null)),
    repository = opened.value,
    isLoaded = Boolean(repository?.commit);
  useEffect(() => {
    box.current?.scrollIntoView({ block: "nearest" });
  }, [repository?.repo, repository?.revision, isLoaded]);
  if (!repository) return html`<${JobProgress} class="opened-note" job=${importJob} />`;
  const { repo, revision } = repository,
    isMain = revision === "main";
  return html`<div class="pg-card opened" ref=${box}>
    <header class="pg-section-header">
      <h3 class="opened-name">${repo}${!isMain && ` at ${revision.slice(0, 12)}`}</h3>
      <span class="pg-spacer"></span>
      <${CopyButton}
        class="link"
        label="Copy link"
        title="Copies a link that opens this model here"
        text=${() => store.buildLink({ model: null })}
      />
      <${Button} onClick=${close}>Close<//>
    </header>
    ${isLoaded && html`<${Facts} />`}
    <${JobProgress} class="opened-note" job=${infoJob} />
    <${JobProgress} class="import-note" job=${importJob} />
  </div>`;
}
