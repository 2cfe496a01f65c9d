// Jobs.
// Start a job and poll it to its end. `onProgress` receives its messages, `started` its id, and
// `isCurrent` returns whether the job is still to be started. Resolves to the result of the job, or
// throws an error with its message.
import { NO_RESPONSE, request, requestWithRetry, sleep } from "../shared/api.js";
import { setMessage } from "../shared/common.js";
import { formatMessage } from "../shared/format.js";
import { setVisible } from "../shared/dom.js";
import { state } from "./state.js";
import { $ } from "./view.js";

export async function runHubTask(
  task,
  onProgress = () => {},
  onStart = () => {},
  isCurrent = () => true,
) {
  // Only jobs that need a token send it, so that an invalid token does not affect the others.
  const token =
    ["account", "plan", "push"].includes(task.kind) || state.account ? $(".token").value : "";
  const reply = await requestWithRetry(
    () => request("hub/submit", { owner: state.owner, token: token, ...task }),
    isCurrent,
    (busy) => onProgress(formatMessage(busy)),
  );
  if (reply.error)
    throw Object.assign(new Error(reply.error), { isServerMessage: true, again: reply.again });
  onStart(reply.job);
  for (let wait = 100, lost = 0; ; wait = Math.min(500, wait * 1.4)) {
    await sleep(wait);
    let job;
    try {
      job = await request("hub/poll", { owner: state.owner, job: reply.job });
      lost = 0;
    } catch (error) {
      if (++lost > 40) throw error;
      continue;
    }
    if (job.status === "working") {
      onProgress(job.message);
      continue;
    }
    if (job.status === "done") return job.result;
    throw Object.assign(new Error(job.message), { isServerMessage: true, again: job.again });
  }
}
export const errorText = (error) =>
  formatMessage(error.isServerMessage ? error.message : NO_RESPONSE);

// Run a job with its progress in one element, and its error with a retry button in another.
// `isCurrent` returns whether the elements still belong to this job.
export async function runWithProgress(
  task,
  progress,
  noteBox,
  cancelButton,
  isCurrent = () => true,
) {
  let job = null;
  setMessage(noteBox, "");
  progress.textContent = "Starting";
  setVisible(progress, true);
  if (cancelButton) {
    setVisible(cancelButton, true);
    cancelButton.onclick = () =>
      job && request("hub/cancel", { owner: state.owner, job }).catch(() => {});
  }
  const onProgress = (message) => {
    if (isCurrent()) progress.textContent = message;
    else if (job && task.kind !== "pull") {
      request("hub/cancel", { owner: state.owner, job }).catch(() => {});
      job = null;
    }
  };
  try {
    return await runHubTask(task, onProgress, (id) => {
      job = id;
    });
  } catch (error) {
    if (isCurrent()) setMessage(noteBox, errorText(error), "error");
    if (isCurrent() && (error.again || !error.isServerMessage)) addRetryButton(noteBox, task.retry);
    throw error;
  } finally {
    if (isCurrent()) {
      setVisible(progress, false);
      if (cancelButton) setVisible(cancelButton, false);
    }
  }
}
export function addRetryButton(box, onRetry) {
  if (!onRetry) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "Try again";
  button.onclick = onRetry;
  box.append(" ", button);
}
