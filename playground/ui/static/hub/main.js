// The Hub tab. The server runs every Hub operation as a job, and the tab polls the job.
import { html, render } from "../vendor/preact.js";
import { store } from "../shared/store.js";
import { Account, loadSession, verifyToken } from "./account.js";
import {
  formatRepoAddress,
  Gallery,
  loadGallery,
  openRepo,
  parseRepoAddress,
  Repository,
} from "./gallery.js";
import { PublishForm } from "./publish_form.js";
import { attach, opened, root, session } from "./state.js";

const REFRESH_MS = 4000;

function Hub() {
  return html`<h2 class="pg-visually-hidden">Hub</h2>
    <${Account} />
    <div class="pg-columns">
      <${PublishForm} />
      <section class="find" aria-label="Models">
        <${Repository} />
        <${Gallery} />
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

/** Notice a sign-in in another window. */
async function refresh() {
  const isSignedOut = session.value.method === "oauth" && !session.value.signed_in;
  if (store.tab.value === "hub" && !document.hidden && isSignedOut) await loadSession();
  setTimeout(refresh, REFRESH_MS);
}

/** Show the tab in its panel. @param {Element} panel */
export default async function main(panel) {
  render(html`<${Hub} />`, root);
  await attach(panel);
  start();
}
