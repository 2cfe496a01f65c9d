// The Train tab. It polls the server for new data and holds no connection open. The page computes
// no values: the training and inspection processes do.
import { sleep } from "../shared/api.js";
import { el } from "../shared/dom.js";
import { store } from "../shared/store.js";
import { RETRYING } from "../shared/strings.js";
import { effect, html, render, untracked } from "../vendor/preact.js";
import { initSelectedHead } from "./attention.js";
import { initDiagram } from "./diagram/diagram.js";
import { followSelection, initModelSelection, openModel } from "./model_selection.js";
import { loadSavedOverlays, setOverlays } from "./overlays.js";
import { resetView } from "./polling.js";
import { scheduleRender } from "./rendering.js";
import { loadRuns, startPollingRuns } from "./runs.js";
import { followSettingsLink, initForm } from "./settings.js";
import { Buttons, SettingsForm } from "./settings_form.js";
import { embeddedView } from "./share_links.js";
import { initShortcuts } from "./shortcuts.js";
import { state } from "./state.js";
import { updatePageStatus } from "./top_bar.js";
import { Train } from "./train.js";
import { attach, onResizeOrThemeChange, root } from "./view.js";

const RETRY_MS = 1000;

async function start() {
  state.owner = store.owner.value;
  state.defaultModel =
    /** @type {HTMLElement} */ (document.querySelector("#page")).dataset.firstModel ?? "";
  state.linkedModel = store.model.value?.startsWith("run:") ? "" : (store.model.value ?? "");
  followSelection();
  if (!embeddedView) followSettingsLink();
  if (!(await waitForRuns())) return;
  if (!store.model.value) store.openRememberedModel(state.defaultModel);
  if (!store.model.value) openModel("");
  if (!store.model.value?.startsWith("watch:")) setOverlays(loadSavedOverlays());
}

/** Load the lists, unless the view leaves the page. */
async function waitForRuns() {
  while (!(await loadRuns())) {
    state.statusNote = RETRYING;
    await sleep(RETRY_MS);
    if (!root.isConnected) return false;
  }
  return true;
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

/** Show the tab in its panel. @param {Element} panel */
export default async function main(panel) {
  render(html`<${Train} />`, root);
  initDiagram();
  initSelectedHead();
  initModelSelection();
  initShortcuts();
  resetView();
  effect(() => {
    void [state.status, state.lastResponse, state.isOld, state.hasNoFigures];
    untracked(updatePageStatus);
  });
  onResizeOrThemeChange(scheduleRender);
  await attach(showPage(panel));
  start();
  startPollingRuns();
}
