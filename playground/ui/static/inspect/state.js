// The state of the tab. Model, step and input are in shared/store.js, because all tabs share them.
import { computed, signal } from "../vendor/preact.js";
import { store } from "../shared/store.js";

/** The open section. */
export const openSection = signal("attention");
/** The latest response of each section. */
export const results = signal(/** @type {Record<string, any>} */ ({}));
/** The latest response with a prediction. */
export const prediction = signal(/** @type {any} */ (null));
/** The steps of the run with stored weights; empty for a checkpoint. */
export const weightSteps = signal(/** @type {number[]} */ ([]));
/** The default example of the model, which is the input until the user types one. */
export const defaultInput = signal("3 1 4 1 5");
export const input = computed(() => store.input.value ?? defaultInput.value);
/** The error of the last request. A transient one is not caused by the input. */
export const problem = signal({ text: "", isTransient: false });
export const isWaiting = signal(false);
/** The width of the tab in pixels. */
export const pageWidth = signal(1200);

/** The same state, for the sections that are not components yet. */
export const state = {
  get subject() {
    return store.model.value ?? "";
  },
  get step() {
    return store.step.value;
  },
  get text() {
    return input.value;
  },
  get view() {
    return openSection.value;
  },
  get owner() {
    return store.owner.value;
  },
  get weightSteps() {
    return weightSteps.value;
  },
  get resultByView() {
    return results.value;
  },
};
