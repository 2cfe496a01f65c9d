// Whether the Hub can be reached. The tab shows an outage once, above the views.
import { html, signal } from "../vendor/preact.js";

// The sentences for the codes of errors (playground/hub/errors.py): above the views, and in an
// error about a model.
const OUTAGES = /** @type {Record<string, { summary: string, problem: string }>} */ ({
  hub_unreachable: {
    summary: "No internet connection. Local models still work.",
    problem: "There is no connection to the Hub",
  },
  hub_unavailable: {
    summary: "The Hub does not respond. Local models still work.",
    problem: "The Hub does not respond",
  },
});

/** The sentence about the outage; empty without one. */
export const outage = signal("");
/** Whether folders of the server are accepted as models. The server checks it. */
export const localPathsAllowed = signal(true);

export const isOutage = (code = "") => Object.hasOwn(OUTAGES, code);

/**
 * Return the message of an error. One of the connection names the model, and what to do.
 * @param {string} message
 * @param {string} [code]
 * @param {string} [model]
 */
export function describeError(message, code = "", model = "") {
  if (!isOutage(code)) return message;
  const other = localPathsAllowed.value
    ? "enter the path of a folder with a model"
    : "choose a model on this machine";
  return (
    `${OUTAGES[code].problem}, and ${model || "the model"} is not on this machine. Try again ` +
    `later, or ${other}.`
  );
}

/** Show an error of the connection above the views. */
export function reportOutage(code = "") {
  if (isOutage(code)) outage.value = OUTAGES[code].summary;
}

/** @param {{ onRetry: () => void }} props */
export const Outage = ({ onRetry }) =>
  html`<p class=${"outage" + (outage.value ? " pg-note" : "")} role="status">
    ${outage.value} ${" "}
    ${
      outage.value &&
      html`<button type="button" class="pg-button" onClick=${onRetry}>Retry</button>`
    }
  </p>`;
