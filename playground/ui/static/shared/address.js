// The address of the page follows the state, and the state follows the address. Another tab or
// model is a new entry of the history, so that Back returns to it.

import { loadText, saveText } from "./storage.js";
import { store as pageStore } from "./store.js";
import { batch, effect } from "../vendor/preact.js";

/** @import { Store } from "./store.js" */

const DEFAULT_TAB = "train";
const LAST_TAB_KEY = "transformer-playground-tab";
// Browsers limit how often a page may change its address.
const WRITE_DELAY_MS = 300;
// A link with one of these opens the Train tab, not the last one.
const TRAIN_PARAMS = ["settings", "watch", "model"];

/** @param {Store} store */
const entryName = ({ tab, model }) => `${tab.value} ${model.value}`;

/** Apply the address of the page, and the tab that the browser remembers. @param {Store} store */
function readFirstAddress(store) {
  const params = new URLSearchParams(location.search);
  store.readAddress();
  const clicked = document.documentElement.dataset.tab; // before this module was loaded
  if (clicked) store.tab.value = clicked;
  else if (!TRAIN_PARAMS.some((name) => params.has(name)))
    store.tab.value ??= loadText(LAST_TAB_KEY);
  store.tab.value ??= DEFAULT_TAB;
}

/**
 * Connect the state with the address and with the Back button.
 * @param {Store} [store]
 */
export function connectAddress(store = pageStore) {
  let entry = ""; // the tab and model of the current entry of the history
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  function write() {
    clearTimeout(timer);
    const next = entryName(store),
      isNew = Boolean(entry) && next !== entry && !entry.endsWith(" null"),
      address = store.buildAddress();
    entry = next;
    if (address === location.href) return;
    if (isNew) history.pushState(null, "", address);
    else history.replaceState(history.state, "", address);
  }

  readFirstAddress(store);
  effect(() => void saveText(LAST_TAB_KEY, store.tab.value));
  effect(() => {
    const next = entryName(store);
    void [store.step.value, store.input.value];
    clearTimeout(timer);
    if (next === entry && store.isPlaying.value) return; // after a reload, the latest step is shown
    if (next === entry) timer = setTimeout(write, WRITE_DELAY_MS);
    else write();
  });
  addEventListener("popstate", () => {
    entry = ""; // a change of the state replaces the entry that the browser has opened
    batch(() => {
      store.readAddress();
      store.tab.value ??= DEFAULT_TAB;
    });
    entry = entryName(store);
  });
}
