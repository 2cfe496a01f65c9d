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
