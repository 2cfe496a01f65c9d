import { Button } from "./buttons.js";
import { html } from "../../vendor/preact.js";
import { formatBytes, formatInteger } from "../format.js";
import { isActive } from "../job.js";
import { StatusMessage } from "./status_message.js";
/** @import { Job } from "../job.js" */
/** @import { JobState } from "../types.js" */

/** @param {JobState} state */
function progressText({ done, total, unit }) {
  if (!total) return "";
  if (unit === "bytes") return `${formatBytes(done)} of ${formatBytes(total)}`;
  return `${formatInteger(done)} of ${formatInteger(total)} ${unit}`.trim();
}

/**
 * The message and the progress of a job, with Cancel, or with Retry after an error.
 * @param {{ job: Job, doneText?: string, onRetry?: () => void, class?: string }} props `doneText`
 *   is the message of a job that is done
 */
export function JobProgress({ job, doneText = "", onRetry, class: className = "" }) {
  const state = job.state.value,
    { status, message, done, total } = state;
  if (!isActive(state))
    return html`<${StatusMessage}
      class=${className}
      kind=${status === "failed" ? "error" : status === "done" && doneText ? "success" : "info"}
      text=${status === "done" ? doneText : message}
      onRetry=${state.canRetry ? (onRetry ?? (() => job.retry())) : null}
    />`;
  return html`<div class=${`pg-job ${className}`} data-status=${status}>
    <span role="status">${message}</span>
    <progress
      aria-label="Progress"
      max=${total || 1}
      value=${total ? Math.min(done, total) : undefined}
    ></progress>
    <span class="pg-job-amount">${progressText(state)}</span>
    <${Button} onClick=${() => job.cancel()}>Cancel<//>
  </div>`;
}
