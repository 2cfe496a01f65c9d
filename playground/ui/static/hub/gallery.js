// The models on the Hub.
import { html, signal } from "../vendor/preact.js";
import { sleep } from "../shared/api.js";
import { DataTable } from "../shared/components/data_table.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatCount, formatInteger, formatPercent, formatRelativeTime } from "../shared/format.js";
import { isActive, Job } from "../shared/job.js";
import { store } from "../shared/store.js";
import { openRepo } from "./repository.js";
import { runHubJob } from "./state.js";

const NO_MODELS = "No model has the playground's tag yet. Publish the first one.";
const COLUMNS = [
  { key: "repo", label: "model", render: (row) => html`<span class="name">${row.repo}</span>` },
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
  {
    key: "when",
    label: "updated",
    isNumber: true,
    isOptional: true,
    render: (row) => (row.when ? formatRelativeTime(Date.now() / 1000 - row.when) : ""),
  },
];
const MAX_RETRIES = 3;
const FIRST_RETRY_MS = 4000;
const galleryJob = new Job();
let latestLoad = 0;
/** The list of the last response; null before the first one. */
const galleryModels = signal(/** @type {any[] | null} */ (null));

/** Return the error of the list: without a connection, only local models remain. */
const describeFailure = (/** @type {any} */ { message, code }) =>
  (code === "hub_unreachable" ? "No internet connection." : message) +
  " The models on this machine are below.";

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

const REPO_NAME = /^[A-Za-z0-9][\w.-]{0,95}\/[A-Za-z0-9][\w.-]{0,95}$/;
const addressError = signal("");

/** Return why a text is no name of a repository; empty if it is one. */
export const validateRepoName = (name) =>
  REPO_NAME.test(name)
    ? ""
    : `${name.slice(0, 80)} is not the name of a repository; enter user/name or a URL.`;

function AddressForm() {
  const onSubmit = (event) => {
    event.preventDefault();
    const [repo, revision] = parseRepoAddress(event.currentTarget.elements.repo.value);
    addressError.value = repo && validateRepoName(repo);
    if (repo && !addressError.value) openRepo(repo, revision);
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
        aria-invalid=${addressError.value ? "true" : undefined}
        onInput=${() => (addressError.value = "")}
      />
    </label>
    <button type="submit" class="pg-button">Open</button>
    <${StatusMessage} kind="error" text=${addressError.value} />
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
      <button type="button" class="pg-button refresh-gallery" onClick=${() => loadGallery()}>
        Refresh
      </button>
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
        isCaptionHidden
        columns=${COLUMNS}
        rows=${list}
        rowKey=${(row) => row.repo}
        sortKey="likes"
        actions=${(row) =>
          html`<button type="button" class="pg-button" onClick=${() => openRepo(row.repo)}>
            Open
          </button>`}
      />`
    }
  </div>`;
}
