// Whether the Hub can be reached. The tab shows an outage once, above the views.
import { html, signal } from "../vendor/preact.js";

const NO_CONNECTION = "No internet connection. Local models still work.";
const HUB_DOWN = "The Hub does not respond. Local models still work.";
export const NOT_LOCAL = "Not on this machine.";
const NO_CONNECTION_PATTERN = /the Hub \(.*\) cannot be reached|HF_HUB_OFFLINE is set/i;
// The server adds the local models to errors that may be temporary.
const TEMPORARY_PATTERN = /Already on this machine: |No model is on this machine yet/;

/** The sentence about the outage; empty without one. */
export const outage = signal("");

/** Return an error for the place where it occurred. One of the connection becomes the outage. */
export function describeError(message) {
  if (NO_CONNECTION_PATTERN.test(message)) outage.value = NO_CONNECTION;
  else if (TEMPORARY_PATTERN.test(message)) outage.value = HUB_DOWN;
  else return message;
  return NOT_LOCAL;
}

/** @param {{ onRetry: () => void }} props */
export const Outage = ({ onRetry }) =>
  html`<p class=${"net" + (outage.value ? " is-out" : "")} role="status">
    ${outage.value} ${" "}
    ${
      outage.value &&
      html`<button type="button" class="pg-button" onClick=${onRetry}>Retry</button>`
    }
  </p>`;
