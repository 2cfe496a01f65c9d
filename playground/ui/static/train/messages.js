// The messages beside the controls of the tab.
import { html } from "../vendor/preact.js";
import { createReactive } from "./state.js";

const NONE = { text: "", isError: false, isConnectionLost: false };

export const messages = createReactive({
  run: NONE, // of the controls of the open run
  runs: NONE, // of the list of runs
  checkpoints: NONE, // of the checkpoints of the open run
  prediction: NONE,
  timeline: NONE,
  picture: NONE, // of the dialog Share
  file: NONE,
});

/**
 * @param {keyof typeof messages} name
 * @param {string} text
 * @param {{ isError?: boolean, isConnectionLost?: boolean }} [options]
 */
export function setMessage(name, text, { isError = false, isConnectionLost = false } = {}) {
  const { text: oldText, isError: wasError } = messages[name];
  if (text !== oldText || isError !== wasError)
    messages[name] = { text, isError, isConnectionLost };
}

/** @param {{ name: keyof typeof messages, class: string }} props */
export function Message({ name, class: className }) {
  const { text, isError } = messages[name];
  return html`<p class=${`message ${className} ${isError ? "pg-error" : "pg-hint"}`} role="alert">
    ${text}
  </p>`;
}
