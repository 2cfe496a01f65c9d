// The Train tab. It polls the server for new data and holds no connection open.
import { sleep } from "../shared/api.js";
import { Button, CopyButton } from "../shared/components/buttons.js";
import { store } from "../shared/store.js";
import { RETRYING } from "../shared/strings.js";
import { createView, el } from "../shared/view.js";
import { effect, html, render } from "../vendor/preact.js";
import { followDeletions, loadRuns, startPollingRuns } from "./data/actions.js";
import { followSelection, openModel, resetView } from "./data/model_poll.js";
import { followRuns } from "./data/overlays.js";
import { followModel, trainView } from "./data/selection.js";
import { Dialogs, followLearning, openShareDialog } from "./dialogs.js";
import { followSettingsLink, initForm } from "./settings.js";
import { Buttons, SettingsForm } from "./settings_form.js";
import { followKeys } from "./shortcuts.js";
import { embeddedView, state } from "./state.js";
import { Train } from "./train.js";

const RETRY_MS = 1000;
const { attach, root } = createView("live pg");

async function start() {
  state.defaultModel =
    /** @type {HTMLElement} */ (document.querySelector("#page")).dataset.firstModel ?? "";
  followSelection();
  if (!embeddedView) followSettingsLink();
  await waitForRuns();
  if (!store.model.value) store.openRememberedModel(state.defaultModel);
  if (!store.model.value) openModel("");
  store.addView("train", trainView);
}

/** Load the lists, as soon as the server responds. */
async function waitForRuns() {
  while (!(await loadRuns())) {
    state.statusNote = RETRYING;
    await sleep(RETRY_MS);
  }
}

/** Show the status in the attributes that style sheets use. */
function updatePageStatus() {
  root.dataset.status = state.status;
  root.dataset.own = state.lastResponse.is_owner ? "yes" : "no";
  root.classList.toggle("old", state.isOld);
  root.classList.toggle("without-figures", state.hasNoFigures);
}

/**
 * Show the form beside the live view. Returns the element of the live view.
 * @param {Element} element
 */
function showPage(element) {
  const live = el("div", { id: "live" });
  if (embeddedView) {
    element.replaceChildren(live);
    return live;
  }
  initForm(JSON.parse(document.querySelector("#form-schema")?.textContent ?? ""));
  const page = el("div", { id: "train-page" });
  render(html`<${Buttons} /><${SettingsForm} />`, page);
  page.append(live);
  element.replaceChildren(page);
  return live;
}

/** Share is in the header: a dialog for the open model, a link for tabs without one. */
const ShareButton = () =>
  ["train", "inspect"].includes(store.tab.value ?? "train")
    ? html`<${Button}
        class="share"
        title="Share a link, a picture or a file"
        onClick=${openShareDialog}
      >
        Share
      <//>`
    : html`<${CopyButton}
        class="share"
        label="Share"
        title="Copy a link to this view; your own runs are not shared"
        text=${() => store.buildViewLink()}
      />`;

/** Show the tab in its panel. @param {Element} panel */
export default async function main(panel) {
  render(html`<${Train} />`, root);
  const dialogs = el("div", { id: "dialogs", className: "pg" });
  document.body.append(dialogs);
  render(html`<${Dialogs} />`, dialogs);
  const shareBox = document.querySelector("#share");
  if (shareBox && !embeddedView) render(html`<${ShareButton} />`, shareBox);
  resetView();
  followModel();
  effect(updatePageStatus);
  await attach(showPage(panel));
  start();
  startPollingRuns();
  followDeletions();
  followKeys();
  followRuns();
  followLearning();
}
