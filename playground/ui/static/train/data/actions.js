// The requests about runs, the commands for the open one, and the poll of the list.
import { NO_RESPONSE, request, requestOrError } from "../../shared/api.js";
import { formatMessage } from "../../shared/format.js";
import { ACTIVE_STATUSES, store } from "../../shared/store.js";
import { effect, untracked } from "../../vendor/preact.js";
import { setMessage } from "../messages.js";
import { state } from "../state.js";
import { announce, openModel, pollNow } from "./model_poll.js";

const ACTIVE_MS = 1500;
const IDLE_MS = 4000;
const HIDDEN_MS = 10_000;
/** By command: the status that it brings, and the text until then. */
const COMMAND_EFFECTS = /** @type {Record<string, [string, string]>} */ ({
  pause: ["paused", "Pausing"],
  resume: ["training", "Resuming"],
  step: ["paused", "Training one step"],
  stop: ["stopping", "Stopping and saving"],
});

/** @import { messages } from "../messages.js" */

/**
 * Send an action on a run to the server. Its error appears beside the control: at the open run, or
 * at the list.
 * @param {Record<string, any>} payload
 * @param {string} [ref]
 * @param {keyof typeof messages} [message]
 */
export async function runAction(
  payload,
  ref = state.modelRef,
  message = ref === state.modelRef ? "run" : "runs",
) {
  let reply,
    isConnectionLost = false;
  try {
    reply = await store.runCommand(() =>
      request("runs/action", { owner: store.owner.value, subject: ref, ...payload }),
    );
    pollNow();
  } catch {
    reply = { error: NO_RESPONSE };
    isConnectionLost = true;
  }
  setMessage(message, formatMessage(reply.error ?? ""), { isError: true, isConnectionLost });
  return reply;
}

/** Send a command to the open run, whose status changes at once. @param {string} command */
export async function sendCommand(command) {
  if (!state.lastResponse.is_owner || state.announcedStatus === "starting") return;
  if (ACTIVE_STATUSES.includes(state.status)) announce(...COMMAND_EFFECTS[command]);
  const { error } = await runAction({ action: command });
  if (error) announce("");
}

/** Send an action that creates a run, and open the new run. @param {Record<string, any>} payload */
export async function runAndOpen(payload, ref = state.modelRef) {
  const reply = await runAction(payload, ref);
  if (reply.subject) {
    await loadRuns();
    openModel(reply.subject);
  }
  return reply;
}

/** @param {string} ref */
export const fetchDetails = (ref) =>
  requestOrError("runs/details", { owner: store.owner.value, subject: ref });

/** Request the list; returns whether the server responded. */
export async function loadRuns() {
  try {
    await store.loadModels();
  } catch {
    return false;
  }
  return true;
}

const isTraining = () =>
  store.runs.value.some((run) => ACTIVE_STATUSES.includes(run.status) && run.status !== "paused");

/**
 * Poll the list, also while the page is hidden, so that the server does not treat its owner as
 * inactive.
 */
export function startPollingRuns() {
  store.subscribeToModels({
    intervalMs: () => (isTraining() ? ACTIVE_MS : IDLE_MS),
    hiddenIntervalMs: HIDDEN_MS,
  });
}

/** Close the open run once it is deleted, also by another page. */
export const followDeletions = () =>
  effect(() => {
    const isDeleted = store.deletedRuns.value.some((run) => run.subject === state.modelRef);
    if (isDeleted) untracked(() => openModel(state.defaultModel));
  });
