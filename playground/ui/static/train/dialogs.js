// The dialogs whose modules load when a user first opens them.
import { effect, html, signal } from "../vendor/preact.js";
import { setMessage } from "./messages.js";
import { state, TARGET_SCORE } from "./state.js";

const NOT_LOADED = "This dialog could not be loaded. Reload the page.";

/** The components of the loaded modules. */
const loaded = signal(/** @type {any[]} */ ([]));

/**
 * Open the dialog of a module. The message appears if the module could not be loaded.
 * @param {() => Promise<{ Dialog: any, open: () => Promise<void> }>} load
 */
async function openDialog(load) {
  let module;
  try {
    module = await load();
  } catch {
    setMessage("run", NOT_LOADED, { isError: true });
    return;
  }
  if (!loaded.value.includes(module.Dialog)) loaded.value = [...loaded.value, module.Dialog];
  await module.open();
}

export const openShareDialog = () => openDialog(() => import("./share_dialog.js"));

/** Offer what comes next when a model of the user learns its task on screen. */
export function followLearning() {
  let untrained = ""; // the open model, until it has learned its task
  effect(() => {
    const { modelRef, isFresh, evaluations, lastResponse } = state,
      learned = evaluations.find(([, score]) => score >= TARGET_SCORE);
    if (isFresh || !lastResponse.is_owner) return;
    if (learned && untrained === modelRef) {
      [state.learnedStep] = learned;
      openDialog(() => import("./learned_note.js"));
    }
    untrained = learned ? "" : modelRef;
  });
}

export const Dialogs = () => loaded.value.map((Dialog) => html`<${Dialog} />`);
