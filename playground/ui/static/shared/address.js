// The address of the page follows the state, and the state follows the address. Another tab, model
// or section is a new entry of the history, so that Back returns to it.

import { DEFAULT_TAB, store as pageStore } from "./store.js";
import { batch, computed, effect } from "../vendor/preact.js";
/** @import { Store } from "./store.js" */

// Browsers limit how often a page may change its address.
const WRITE_DELAY_MS = 300;

/** What an entry of the history differs in. @param {Store} store */
const entryOf = (store) => ({
  tab: store.tab.value,
  model: store.model.value,
  section: store.readView().section ?? null,
});
/** @typedef {ReturnType<typeof entryOf> | null} Entry */

/** A model after none is part of its entry. @type {(before: Entry, next: Entry) => boolean} */
const isOther = (before, next) =>
  Boolean(before?.model) &&
  (before?.tab !== next?.tab ||
    before?.model !== next?.model ||
    (before?.section !== null && before?.section !== next?.section));

/** Apply the address of the page. @param {Store} store */
function readFirstAddress(store) {
  store.readAddress();
  const clicked = document.documentElement.dataset.tab; // before this module was loaded
  if (clicked) store.tab.value = clicked;
  store.tab.value ??= DEFAULT_TAB;
}

/** Connect the state with the address and with the Back button. @param {Store} [store] */
export function connectAddress(store = pageStore) {
  let entry = /** @type {Entry} */ (null); // the current one of the history
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const address = computed(() => store.buildAddress(location.origin + location.pathname));

  function write() {
    clearTimeout(timer);
    const next = entryOf(store),
      isNew = isOther(entry, next),
      href = store.buildAddress();
    entry = next;
    if (href === location.href) return;
    if (isNew) history.pushState(null, "", href);
    else history.replaceState(history.state, "", href);
  }

  readFirstAddress(store);
  effect(() => {
    void address.value;
    clearTimeout(timer);
    const isSame = JSON.stringify(entryOf(store)) === JSON.stringify(entry);
    if (isSame && store.isPlaying.value) return; // after a reload, the latest step is shown
    if (isSame) timer = setTimeout(write, WRITE_DELAY_MS);
    else write();
  });
  addEventListener("popstate", () => {
    entry = null; // a change of the state replaces the entry that the browser has opened
    batch(() => {
      store.readAddress();
      store.tab.value ??= DEFAULT_TAB;
    });
    entry = entryOf(store);
  });
}
