// What the modules of every tab share.
import { loadJson, saveJson } from "./storage.js";
import { store } from "./store.js";

/**
 * The values that a tab stores in this browser, as one JSON object under `key`.
 * @param {string} key
 */
export function createStorage(key) {
  /** @type {Record<string, any>} */
  const values = loadJson(key) ?? {};
  return {
    storedState: values,
    loadLocal: (/** @type {string} */ name) => values[name],
    saveLocal: (/** @type {string} */ name, /** @type {any} */ value) => {
      values[name] = value;
      saveJson(key, values);
    },
  };
}
/**
 * Copy a text and confirm it in `label` for 1.5 s. If the browser denies clipboard access, show the
 * text in a prompt.
 * @param {string} text
 * @param {HTMLElement} label
 * @param {string} promptTitle
 */
export async function copyText(text, label, promptTitle) {
  label.dataset.label ||= label.textContent;
  try {
    await navigator.clipboard.writeText(text);
    label.textContent = "Copied";
  } catch {
    window.prompt(promptTitle, text);
  }
  setTimeout(() => {
    label.textContent = label.dataset.label ?? "";
  }, 1500);
  label.dataset.copied = text;
}
window.playground ||= {};
/**
 * Open another tab, with the model, step and sequence of the payload: a model, or {subject, step,
 * text}. The payload stays in `window.playground` until the tab reads it, because a tab is built
 * when it is first opened.
 * @param {string} tab
 * @param {any} payload
 */
export function navigate(tab, payload) {
  const {
    subject,
    step = null,
    text,
  } = typeof payload === "string" ? { subject: payload } : payload;
  if (subject) store.openModel(subject, step);
  if (text) store.setInput(text);
  window.playground[tab] = payload;
  window.dispatchEvent(new CustomEvent("playground-" + tab));
  store.tab.value = tab.toLowerCase();
}
/** Return the payload of `navigate`, once. @param {string} tab */
export function takeHandOff(tab) {
  const payload = window.playground[tab];
  delete window.playground[tab];
  return payload;
}

/**
 * Return the index of the value nearest to `target` in a sorted list; ties take the later one.
 * @param {ArrayLike<number>} sorted
 * @param {number} target
 */
export function nearestIndex(sorted, target) {
  let low = 0,
    high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sorted[middle] <= target) low = middle;
    else high = middle - 1;
  }
  const isNextNearer = sorted[low + 1] - target <= Math.abs(target - sorted[low]);
  return isNextNearer ? low + 1 : low;
}
