// Whether the Hub can be reached. The tab shows an outage once, above the views.
import { html, signal } from "../vendor/preact.js";

const NO_CONNECTION = "No internet connection. Local models still work.";
const HUB_DOWN = "The Hub does not respond. Local models still work.";
export const NOT_LOCAL = "Not on this machine.";
// The sentences for the codes of errors; see playground/hub/errors.py.
const OUTAGES = /** @type {Record<string, string>} */ ({
  hub_unreachable: NO_CONNECTION,
  hub_unavailable: HUB_DOWN,
});

/** The sentence about the outage; empty without one. */
export const outage = signal("");

/**
 * Return an error for the place where it occurred. One of the connection becomes the outage.
 * @param {string} message
 * @param {string} [code]
 */
export function describeError(message, code = "") {
  if (!Object.hasOwn(OUTAGES, code)) return message;
  outage.value = OUTAGES[code];
  return NOT_LOCAL;
}

/** @param {{ onRetry: () => void }} props */
export const Outage = ({ onRetry }) =>
  html`<p class=${"outage" + (outage.value ? " is-out" : "")} role="status">
    ${outage.value} ${" "}
    ${
      outage.value &&
      html`<button type="button" class="pg-button" onClick=${onRetry}>Retry</button>`
    }
  </p>`;
