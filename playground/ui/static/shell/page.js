// The page: its header, its tabs, and a view in each of their panels.
import { connectAddress } from "../shared/address.js";
import { sleep } from "../shared/api.js";
import { openSession } from "../shared/session.js";
import { saveText } from "../shared/storage.js";
import { store } from "../shared/store.js";
import { PART_NOT_LOADED, RETRYING } from "../shared/strings.js";
import { effect, html, render } from "../vendor/preact.js";
import { hasModelBar, ModelBar } from "./model_bar.js";
import { initTabs } from "./tabs.js";

const RETRY_MS = 1000;
const THEME_KEY = "transformer-playground-theme"; // first.js reads it
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
const loaded = /** @type {Set<string>} */ (new Set());

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
    panel.textContent = PART_NOT_LOADED;
  }
}

function showModelBar() {
  render(html`<${ModelBar} />`, /** @type {Element} */ (document.querySelector("#page-bar")));
  effect(() => void document.body.classList.toggle("without-model-bar", !hasModelBar()));
}

/** @param {string} selector */
function findVisible(selector) {
  const elements = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(selector));
  return [...elements].find((each) => each.offsetParent);
}

/** Focus the button that trains, if it is visible, or the panel of the selected tab. */
export function initSkipLink() {
  document.querySelector(".skip-link")?.addEventListener("click", (event) => {
    event.preventDefault();
    (findVisible("#train, #pause, #resume") ?? findVisible("#panels > [role=tabpanel]"))?.focus();
  });
}

export function initThemeSwitch() {
  const button = document.querySelector(".theme-switch"),
    { classList } = document.documentElement;
  const showState = () => button?.setAttribute("aria-pressed", String(classList.contains("dark")));
  showState();
  button?.addEventListener("click", () => {
    saveText(THEME_KEY, classList.toggle("dark") ? "dark" : "light");
    showState();
  });
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
