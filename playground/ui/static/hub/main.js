// The Hub tab. The server runs every Hub operation as a job, and the tab polls the job.
import { sleepWhileHidden } from "../shared/common.js";
import { takeQueryParam } from "../shared/links.js";
import { initAccount, loadSession, verifyToken } from "./account.js";
import { initGallery, loadGallery, parseRepoAddress } from "./gallery.js";
import { initLocalModels, loadCheckpoints, loadModels } from "./local_models.js";
import { initPublishing, updateAutoPublish } from "./publishing.js";
import { initRepository, openRepo } from "./repository.js";
import { state } from "./state.js";
import { attach, root } from "./view.js";

let isStarted = false;

// ---------------------------------------------------------------- start and polling
function onValueChange(value) {
  state.owner = value.owner || "";
  if (!isStarted && root.offsetParent) init();
}
async function init() {
  isStarted = true;
  await loadSession();
  await loadModels();
  loadGallery(false);
  updateAutoPublish("status");
  const [repo, revision] = parseRepoAddress((takeQueryParam("hub") || "").slice(0, 300));
  if (repo) openRepo(repo, revision);
  if (state.session.way === "machine" && state.session.signed_in) verifyToken();
}
async function pollLoop() {
  for (let round = 0; root.isConnected || round < 5; round++) {
    await sleepWhileHidden(1000);
    if (!state.owner || !root.offsetParent || document.hidden) continue; // the tab is hidden
    if (!isStarted) {
      await init();
      continue;
    }
    if (round % 4 === 0) {
      if (state.session.way === "oauth" && !state.session.signed_in) await loadSession();
      await loadModels();
      await loadCheckpoints(false);
      await updateAutoPublish("status");
    }
  }
}

initLocalModels();
initAccount();
initPublishing();
initGallery();
initRepository();

// Show the tab in the element of its Gradio component.
export default async function main(component) {
  await attach(component, onValueChange);
  pollLoop();
}
