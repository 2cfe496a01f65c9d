// The page: its header, its tabs, and a view in each of their panels.
import { connectAddress } from "../shared/address.js";
import { sleep } from "../shared/api.js";
import { openSession } from "../shared/session.js";
import { store } from "../shared/store.js";
import { RETRYING } from "../shared/strings.js";
import { effect, html, render } from "../vendor/preact.js";
import { hasModelBar, ModelBar } from "./model_bar.js";
import { initTabs } from "./tabs.js";
import { initSkipLink, initThemeSwitch } from "./theme.js";

const RETRY_MS = 1000;
const embeddedView = document.documentElement.dataset.embed;

/** Open the session, also of a server that responds later. An embedded view has none. */
async function waitForSession() {
  const note = /** @type {HTMLElement} */ (document.querySelector("#page-note"));
  while (!embeddedView) {
    try {
      await openSession();
      note.textContent = "";
      return;
    } catch {
      note.textContent = RETRYING;
      await sleep(RETRY_MS);
    }
  }
}

const session = waitForSession();
/** @type {Set<string>} */
const loaded = new Set();

/** Load the view of a tab, once. @param {string} tab */
async function loadView(tab) {
  if (loaded.has(tab)) return;
  loaded.add(tab);
  const panel = /** @type {HTMLElement} */ (document.querySelector("#panel-" + tab));
  try {
    const [view] = await Promise.all([import(`../${tab}/main.js`), session]);
    await view.default(panel);
  } catch (error) {
    console.error(error);
    panel.textContent = "This part of the page could not be loaded. Reload the page.";
  }
}

function showModelBar() {
  render(html`<${ModelBar} />`, /** @type {Element} */ (document.querySelector("#page-bar")));
  effect(() => void document.body.classList.toggle("without-model-bar", !hasModelBar()));
}

initThemeSwitch();
initSkipLink();
if (embeddedView) {
  store.readAddress();
  store.tab.value = embeddedView === "inspect" ? "inspect" : "train";
} else {
  connectAddress();
  showModelBar();
}
initTabs(loadView);
loadView("train"); // it keeps the lists of models up to date, for all tabs
