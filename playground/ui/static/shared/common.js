// What the modules of every tab share.
import { loadJson, saveJson } from "./storage.js";

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
