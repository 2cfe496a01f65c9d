// A measurement of the server: requests, polling, and its progress. It is in {id, response}.
import { html } from "../vendor/preact.js";
import { NO_RESPONSE, requestOrError } from "../shared/api.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatMessage } from "../shared/format.js";
import { poller } from "../shared/poller.js";
import { store } from "../shared/store.js";

const ACTIVE_STATUSES = ["training", "waiting", "measuring"];
const POLL_MS = 500;

export const isActive = ({ id, response }) =>
  Boolean(id && (!response || ACTIVE_STATUSES.includes(response.status)));

/** Send a request; an error is in the response. */
export const requestLesson = (name, payload = {}) =>
  requestOrError("lessons/" + name, { owner: store.owner.value, ...payload });

/**
 * Poll a measurement until it ends.
 * @param {string} id
 * @param {(response: any) => void} onResponse
 * @param {(message: string) => void} onConnection receives an error, or an empty text
 */
export function followMeasurement(id, onResponse, onConnection) {
  const subscription = poller.subscribe({
    route: "lessons/poll",
    payload: () => (store.owner.value ? { owner: store.owner.value, id } : null),
    intervalMs: POLL_MS,
    onData: (response) => {
      onConnection("");
      if (response.error || !isActive({ id, response })) subscription.unsubscribe();
      onResponse(response);
    },
    onError: () => onConnection(formatMessage(NO_RESPONSE)),
  });
  return subscription;
}

/**
 * Format an expected duration; without comparable runs on this machine, it is that of two cores.
 * @param {{ seconds: number, is_measured?: boolean }} estimate
 */
export function formatEstimate({ seconds, is_measured: isMeasured }) {
  const duration =
    seconds < 90 ? Math.max(1, Math.round(seconds)) + " s" : Math.round(seconds / 60) + " min";
  return `about ${duration}${isMeasured ? "" : " on two cores"}`;
}

/** Describe the progress of a measurement, or why it has no result. */
export function describeProgress({ id, response }, isStarting) {
  if (!response) return isStarting || id ? "Starting" : "";
  const { done = 0, total, message, runs, status, translation } = response,
    queued = runs?.find((run) => run.queue_position);
  if (status === "training" && translation && done >= total)
    return formatMessage(translation.message) || "Waiting for the pretrained model";
  if (status === "training" || (status === "measuring" && total && !runs))
    return (
      `Training: step ${done} of ${total}` +
      (queued ? `; queue position ${queued.queue_position}` : "")
    );
  if (status === "waiting") return "Queued";
  if (status === "measuring") return "Measuring";
  return status === "done" ? "" : formatMessage(message);
}

/** The progress of a measurement, with Cancel while it is active. */
export function MeasurementProgress({ state, isStarting, onCancel, error }) {
  const text = describeProgress(state, isStarting),
    { done = 0, status = "", total = 0 } = state.response ?? {};
  return html`<${StatusMessage} class="note" kind="error" text=${error} /> ${
      isActive(state)
        ? html`<div class="pg-job">
            <span class="words" role="status">${text}</span>
            <progress aria-label="Progress" max=${total || 1} value=${total ? done : undefined} />
            <button type="button" class="pg-button cancel" onClick=${onCancel}>Cancel</button>
          </div>`
        : html`<${StatusMessage}
            class="words"
            kind=${status === "failed" ? "error" : "info"}
            text=${text}
          />`
    }`;
}
