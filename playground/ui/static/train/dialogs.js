// The dialogs whose modules load when a user first opens them.
import { html, signal } from "../vendor/preact.js";
import { setMessage } from "./messages.js";

const NOT_LOADED = "This dialog could not be loaded. Reload the page.";

/** The components of the loaded modules. */
const loaded = signal(/** @type {any[]} */ ([]));

/**
 * Open the dialog of a module. The message appears if the module could not be loaded.
 * @param {() => Promise<{ Dialog: any, open: () => Promise<void> }>} load
 * @param {"run" | "runs"} message
 */
async function openDialog(load, message) {
  let module;
  try {
    module = await load();
  } catch {
    setMessage(message, NOT_LOADED, { isError: true });
    return;
  }
  if (!loaded.value.includes(module.Dialog)) loaded.value = [...loaded.value, module.Dialog];
  await module.open();
}

export const openShareDialog = () => openDialog(() => import("./share_dialog.js"), "run");
export const openRunDifferences = () => openDialog(() => import("./run_differences.js"), "runs");

export const Dialogs = () => loaded.value.map((Dialog) => html`<${Dialog} />`);
