// The state of the tab. Model, step and input are in shared/store.js, because all tabs share them.
import { signal } from "../vendor/preact.js";
import { store } from "../shared/store.js";
import { createView } from "../shared/view.js";

/** By name; without a prototype, because links may have any name. @type {Record<string, any>} */
export const VIEWS = { __proto__: null };

export const openSection = signal("attention");
export const results = signal(/** @type {Record<string, any>} */ ({}));
export const prediction = signal(/** @type {any} */ (null));
/** Why the open section does not apply to the architecture; empty if it does. */
export const notApplicable = signal("");
export const problem = signal("");

export const { attach, root } = createView("inspect pg", [
  new URL("./inspect.css", import.meta.url),
  new URL("./analysis.css", import.meta.url),
  new URL("./tensors.css", import.meta.url),
]);
export const isVisible = () => store.tab.value === "inspect";
