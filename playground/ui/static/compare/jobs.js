// Jobs.
import { NO_RESPONSE, request, sleep } from "../shared/api.js";
import { formatBytes, formatCount, formatMessage } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { state } from "./state.js";
import { loadLocal, saveLocal } from "./storage.js";
import { root } from "./view.js";

const TERMINAL_STATUSES = ["done", "failed", "cancelled"];
// Run one job at a time. Callbacks of the view:
//   onStart(payload, isNew)           the job started, or (not `isNew`) was restored after a reload
//   onRows(rows, response, payload)   new result rows
//   onProgress(response, payload)     a status update of an active job
//   onFinish(response, payload)       the job ended; the returned text stays in the progress line
// The view inserts `line`: it shows the progress and has buttons to cancel and to retry. Its space
// is reserved, so the layout does not shift.
export function createJobRunner(
  key,
  { onStart = () => {}, onRows = () => {}, onProgress = () => {}, onFinish = () => {} } = {},
) {
  const words = el("span", { className: "words" }),
    amount = el("span", { className: "amount" }),
    bar = el("i"),
    stop = el("button", { type: "button", className: "quiet cancel", textContent: "Cancel" });
  const again = el("button", {
      type: "button",
      className: "quiet again",
      textContent: "Try again",
      hidden: true,
    }),
    share = el("span", { className: "share" }, bar);
  const line = el("div", { className: "job-status" }, words, share, amount, stop, again),
    self = { line, busy: false, what: null };
  words.setAttribute("role", "status");
  let number = 0,
    job = null,
    lastRequest = null;
  function showMessage(text, wrong = false, retry = false) {
    words.textContent = self.busy ? formatMessage(text).replace(/\.$/, "") : formatMessage(text);
    words.classList.toggle("error", wrong);
    again.hidden = !retry;
    stop.hidden = !self.busy;
    share.hidden = amount.hidden = !self.busy;
    line.classList.toggle("idle", !self.busy && !text);
  }
  function renderProgress(response) {
    const progressText =
      response.status === "waiting"
        ? response.queue_position
          ? "queued: " + formatCount(response.queue_position, "job") + " ahead"
          : "queued"
        : response.message || "starting";
    showMessage(progressText);
    bar.style.width = response.total
      ? Math.min(100, (100 * response.done) / response.total) + "%"
      : "0";
    amount.textContent = !response.total
      ? ""
      : response.unit === "bytes"
        ? formatBytes(response.done) + " of " + formatBytes(response.total)
        : response.done.toLocaleString("en") +
          " of " +
          response.total.toLocaleString("en") +
          " " +
          response.unit;
  }
  async function follow(id, payload, isNew) {
    const runId = ++number;
    job = id;
    self.busy = true;
    self.what = payload;
    line.dataset.status = "working";
    if (isNew) {
      onStart(payload, true);
      renderProgress({ status: "working", message: "starting", total: 0 });
    }
    for (
      let cursor = 0, wait = 80, first = true;
      runId === number;
      wait = Math.min(400, wait * 1.5)
    ) {
      let response;
      try {
        response = await request("jobs/poll", { owner: state.owner, job: id, cursor });
      } catch (error) {
        showMessage("the server did not respond; retrying");
        await sleep(1500);
        continue;
      }
      if (runId !== number) return;
      if (response.error) {
        // the job is no longer stored
        self.busy = false;
        saveLocal("job-" + key, null);
        line.dataset.status = "not-found";
        showMessage(isNew || !first ? response.error : "", true, isNew || !first);
        if (isNew || !first)
          onFinish({ status: "failed", message: response.error, again: true, rows: [] }, payload);
        return;
      }
      if (first && !isNew) onStart(payload, false);
      first = false;
      cursor = response.cursor;
      if (response.rows.length) onRows(response.rows, response, payload);
      if (TERMINAL_STATUSES.includes(response.status)) {
        self.busy = false;
        const summary = onFinish(response, payload) || "";
        showMessage(
          response.status === "done" ? summary : response.message,
          response.status === "failed",
          response.status === "failed",
        );
        line.dataset.status = response.status; // tests wait for this attribute
        return;
      }
      renderProgress(response);
      onProgress(response, payload);
      await sleep(document.hidden || !root.offsetParent ? 2500 : wait);
    }
  }
  // Start a job of `kind` with the request `what`. With `subject`, the server adds that checkpoint.
  self.run = async (kind, what, subject = "") => {
    const mine = ++number;
    lastRequest = [kind, what, subject];
    if (self.busy)
      try {
        await request("jobs/cancel", { owner: state.owner, job });
      } catch (error) {
        /* it ends without the request */
      }
    self.busy = false;
    showMessage("starting");
    line.classList.remove("idle");
    let response;
    try {
      response = await request("jobs/submit", {
        owner: state.owner,
        kind,
        what,
        ...(subject ? { subject } : {}),
      });
    } catch (error) {
      response = { error: NO_RESPONSE, again: true };
    }
    if (mine !== number) {
      if (response.job)
        request("jobs/cancel", { owner: state.owner, job: response.job }).catch(() => {});
      return;
    } // a newer request was sent
    if (response.error) {
      showMessage(response.error, true, true);
      line.dataset.status = "failed";
      return;
    }
    saveLocal("job-" + key, { id: response.job, request: lastRequest });
    follow(response.job, what, true);
  };
  self.cancel = async () => {
    if (!self.busy) return;
    stop.disabled = true;
    try {
      await request("jobs/cancel", { owner: state.owner, job });
    } catch (error) {
      /* the next poll reports its state */
    }
    stop.disabled = false;
  };
  // After a reload, continue with the stored job.
  self.find = () => {
    const before = loadLocal("job-" + key);
    if (!before || !before.id || !Array.isArray(before.request)) return;
    lastRequest = before.request;
    follow(before.id, lastRequest[1], false);
  };
  stop.addEventListener("click", self.cancel);
  again.addEventListener("click", () => lastRequest && self.run(...lastRequest));
  showMessage("");
  jobRunners.push(self);
  return self;
}
export const jobRunners = [];
// Run a short job without a progress line. Return its result or throw an error with a message.
// `row` receives its rows. These jobs run one at a time and retry, because an owner may have only
// two jobs and those with a progress line have priority.
export function runBackgroundJob(kind, payload, onRow = () => {}, subject = "") {
  const promise = state.backgroundQueue.then(() =>
    runBackgroundJobNow(kind, payload, onRow, subject),
  );
  state.backgroundQueue = promise.catch(() => {});
  return promise;
}
async function runBackgroundJobNow(kind, payload, onRow, subject) {
  const jobError = (message) => Object.assign(new Error(message), { isServerMessage: true });
  let submitted;
  for (let tries = 0; ; tries++) {
    submitted = await request("jobs/submit", {
      owner: state.owner,
      kind,
      what: payload,
      ...(subject ? { subject } : {}),
    });
    if (submitted.job) break;
    if (!submitted.again || tries > 60) throw jobError(submitted.error);
    await sleep(1000);
  }
  for (let cursor = 0, wait = 60; ; wait = Math.min(300, wait * 1.5)) {
    const response = await request("jobs/poll", { owner: state.owner, job: submitted.job, cursor });
    if (response.error) throw jobError(response.error);
    cursor = response.cursor;
    for (const each of response.rows) onRow(each);
    if (response.status === "done") return response.result;
    if (TERMINAL_STATUSES.includes(response.status)) throw jobError(response.message);
    await sleep(wait);
  }
}
