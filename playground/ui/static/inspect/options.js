// The options of a section: what its request contains, and links to the section.
import { signal } from "../vendor/preact.js";
import { refresh } from "./requests.js";

/**
 * Return the options of a section as a signal, and functions that change them.
 * @template {Record<string, any>} Options
 * @param {Options} initial
 */
export function createOptions(initial) {
  const options = signal(initial);
  /** Set options that only the page uses. @param {Partial<Options>} changes */
  const set = (changes) => {
    options.value = { ...options.value, ...changes };
  };
  /** Set options and request the section again. @param {Partial<Options>} changes */
  const update = (changes, delayMs = 0) => {
    set(changes);
    refresh(delayMs);
  };
  /** Apply the options of a link; those of another type are ignored. @param {any} link */
  const restore = (link) =>
    set(
      /** @type {any} */ (
        Object.fromEntries(
          Object.entries(initial)
            .filter(([name, value]) => typeof link[name] === typeof value)
            .map(([name]) => [name, link[name]]),
        )
      ),
    );
  return { options, set, update, restore };
}
