// What to do next with a model that has learned its task while the user watched.
import { Button } from "../shared/components/buttons.js";
import { formatInteger } from "../shared/format.js";
import { store } from "../shared/store.js";
import { includes } from "../engine/parts.js";
import { html, signal } from "../vendor/preact.js";
import { fetchDetails } from "./data/actions.js";
import { runsInBrowser } from "./data/engine.js";
import { toggleParts } from "./data/snapshots.js";
import { openShareDialog } from "./dialogs.js";
import { fillForm, form, startRun } from "./settings.js";
import { isTabOpen, state } from "./state.js";

/** The model whose note the user has closed. */
const closedFor = signal("");
const close = () => (closedFor.value = state.modelRef);

export async function open() {
  closedFor.value = "";
}

/** Switch the selected head off, and go to its switch. */
function switchOff() {
  const [layer, head] = state.selectedHead,
    part = { kind: state.selectedKind, layer, head },
    cell = document.querySelector(".live .head[aria-pressed=true]")?.parentElement;
  if (!includes(state.switchedOff, part)) toggleParts([part]);
  /** @type {HTMLElement | null | undefined} */ (cell?.querySelector("[role=switch]"))?.focus();
  close();
}

/** Train a new model with the same settings on sequences of twice the length. */
async function makeLonger() {
  close();
  const { settings, error } = await fetchDetails(state.modelRef);
  if (error) return;
  const longer = { ...settings, max_length: 2 * settings.max_length };
  form.message = await fillForm(JSON.stringify(longer));
  if (!form.message) startRun();
}

export function Dialog() {
  const { learnedStep, modelRef } = state,
    isOwnData = store.find(modelRef)?.task?.startsWith("dataset"),
    button = (/** @type {string} */ label, /** @type {() => void} */ action) =>
      html`<${Button} class="small" onClick=${action}>${label}<//>`;
  if (learnedStep === null || closedFor.value === modelRef || !isTabOpen.value) return null;
  if (state.switchedOff.length) return null; // it would cover what the switch does
  return html`<aside class="pg-popup pg-row learned" aria-label="What next">
    <b>Learned at step ${formatInteger(learnedStep)}.</b>
    ${runsInBrowser.value && button("Switch off heads", switchOff)}
    ${!isOwnData && button("Make it longer", makeLonger)}
    ${button("Share", () => {
      close();
      openShareDialog();
    })}
    <${Button} class="small" aria-label="Close" onClick=${close}>×<//>
  </aside>`;
}
