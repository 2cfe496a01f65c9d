// The Hub tab. The server runs every Hub operation as a job, and the tab polls the job.
import { Button } from "../shared/components/buttons.js";
import { html, render } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { formatPercent } from "../shared/format.js";
import { store } from "../shared/store.js";
import { Account, loadSession, verifyToken } from "./account.js";
import {
  formatRepoAddress,
  Gallery,
  loadGallery,
  openInTrain,
  openRepo,
  parseRepoAddress,
  Repository,
  modelColumns,
} from "./gallery.js";
import { loadCheckpoints, PublishForm } from "./publish_form.js";
import { attach, models, opened, root, session } from "./state.js";

const MODEL_COLUMNS = [
  ...modelColumns("name"),
  {
    key: "best",
    label: "exact match",
    isNumber: true,
    render: (row) => (row.best === null ? "" : formatPercent(row.best)),
  },
];
const REFRESH_MS = 4000;

function LocalModels() {
  return html`<h3 class="local-runs-title">On this machine</h3>
    <${DataTable}
      class="local-runs"
      caption="Models on this machine"
      columns=${MODEL_COLUMNS}
      rows=${models.value}
      rowKey=${(row) => row.subject}
      actions=${(row) =>
        html`<${Button} onClick=${() => openInTrain(row.subject)}>Open in Train<//>`}
    />`;
}

function Hub() {
  return html`<h2 class="pg-visually-hidden">Hub</h2>
    <${Account} />
    <div class="pg-columns">
      <${PublishForm} />
      <section class="find" aria-label="Models">
        <${Repository} />
        <${Gallery} />
        <${LocalModels} />
      </section>
    </div>`;
}

async function start() {
  await loadSession();
  loadGallery({ isRefresh: false });
  store.addView("hub", hubView);
  if (session.value.method === "machine" && session.value.signed_in) verifyToken();
  refresh();
}

const hubView = {
  read: () => ({ repo: opened.value && formatRepoAddress(opened.value) }),
  apply(/** @type {URLSearchParams} */ params) {
    const [repo, revision] = parseRepoAddress((params.get("repo") ?? "").slice(0, 300));
    if (repo) openRepo(repo, revision);
  },
};

/** Update what changes without a command: sign-in in another window, checkpoints of a run. */
async function refresh() {
  if (store.tab.value === "hub" && !document.hidden) {
    if (session.value.method === "oauth" && !session.value.signed_in) await loadSession();
    await loadCheckpoints();
  }
  setTimeout(refresh, REFRESH_MS);
}

/** Show the tab in its panel. @param {Element} panel */
export default async function main(panel) {
  render(html`<${Hub} />`, root);
  await attach(panel);
  start();
}
