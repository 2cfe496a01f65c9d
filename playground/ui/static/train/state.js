// What the modules of this tab share. Components that read a property are drawn again when it
// changes; its content changes only by assignment.
import { store } from "../shared/store.js";
import { computed, signal } from "../vendor/preact.js";

export const embeddedView = document.documentElement.dataset.embed || "";
export const TERMINAL_STATUSES = ["done", "stopped", "failed", "not-found", "checkpoint", "empty"];

export const TARGET_SCORE = 0.99; // the exact match of a model that has learned its task

/** No part of the model is off. @type {import("../engine/types.js").Component[]} */
export const NOTHING_OFF = [];

/**
 * Return an object with the same properties, each of which is a signal.
 * @template {object} T
 * @param {T} initial
 * @returns {T}
 */
export function createReactive(initial) {
  const object = /** @type {T} */ ({});
  for (const [name, value] of Object.entries(initial)) {
    const content = signal(value);
    Object.defineProperty(object, name, {
      enumerable: true,
      get: () => content.value,
      set: (next) => {
        content.value = next;
      },
    });
  }
  return object;
}

/** What belongs to the open model, before its first response. */
export const MODEL_STATE = {
  lossCurve: /** @type {any} */ ({ steps: [], loss: [] }),
  evaluations: /** @type {any[]} */ ([]),
  pointCount: 0,
  probeInfo: /** @type {any} */ (null),
  latestSnapshot: /** @type {any} */ (null),
  displayedSnapshot: /** @type {any} */ (null),
  finalScores: /** @type {any} */ (null), // by length, after the last step
  /** The earlier step on display; null for the latest. */
  viewedStep: /** @type {number | null} */ (null),
  hoverStep: /** @type {number | null} */ (null),
  hoverRow: /** @type {number | null} */ (null), // of the diagram
  /** The forward pass of a sequence that the user has typed, or with parts that are off. */
  typedPass: /** @type {any} */ (null),
  switchedOff: NOTHING_OFF, // the parts of the model that are to be off
  displayedOff: NOTHING_OFF, // those that are, on screen: they change together with the output
  /** The right ones of the held-out examples measured so far. */
  switchScore: /** @type {{ right: number, measured: number } | null} */ (null),
  /** All parts that can be switched off, once the model is in the browser. */
  parts: /** @type {import("../engine/types.js").Component[] | null} */ (null),
  /** The share of right tokens that become wrong without a part, by its key. */
  importance: /** @type {Map<string, number> | null} */ (null),
  /** The step at which it learned its task, if the user saw that. */
  learnedStep: /** @type {number | null} */ (null),
  isOld: true, // whether the page shows the previous model
};

export const state = createReactive({
  ...MODEL_STATE,
  modelRef: "",
  defaultModel: "",
  isFresh: true, // until the first response of the open model
  lastResponse: /** @type {any} */ ({}),
  status: "opening",
  announcedStatus: "", // what a click will bring, until a response has it
  selectedKind: "cross",
  selectedHead: [0, 0],
  selectedQuery: 0, // whose scores the open block shows
  selectedBlock: "", // the block that the diagram explains, instead of the selected head
  ablationMethod: /** @type {"zero" | "mean"} */ ("zero"), // what takes the place of outputs
  speed: "0", // the largest number of steps per second; new runs start at this speed
  isTrainInviting: false, // whether the button Train draws attention
  statusNote: "", // replaces the text of the status until the next response
  hasNoFigures: false, // whether the open model has no weights yet, so that nothing is drawn
  prediction: /** @type {any} */ (null), // of the input: {prediction, target, modelRef}
});

const TRAINING_MS = 1000; // while a model trains, between two pieces of work of a kind
const lastAt = /** @type {Record<string, number>} */ ({});

/** Whether it is time for a kind of work that each new step would repeat. @param {string} kind */
export function isDue(kind) {
  const now = Date.now(),
    isEarly = now - (lastAt[kind] ?? 0) < TRAINING_MS && state.status === "training";
  if (!isEarly) lastAt[kind] = now;
  return !isEarly;
}

/** Whether this tab is the open one. */
export const isTabOpen = computed(() => (store.tab.value ?? "train") === "train");
