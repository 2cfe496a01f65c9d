import { setMessage } from "../shared/common.js";
import { formatCount } from "../shared/format.js";
import { el, setText } from "../shared/dom.js";
import { addPeriod, createConfirmButton, formatQueuePosition, syncRows } from "./elements.js";
import { loadPresets } from "./presets.js";
import { loadReplications } from "./replications.js";
import { requestExperiments, saveLocal } from "./requests.js";
import { renderResults } from "./results.js";
import { state } from "./state.js";
import { $ } from "./view.js";

let lastStates = "";

export function describeStatus(row) {
  const n = row.statuses,
    done = n.done || 0,
    failed = n.failed || 0,
    busy = (n.training || 0) + (n.starting || 0);
  const how =
    row.state === "done"
      ? "done"
      : row.state === "paused"
        ? "paused"
        : done + failed === row.runs
          ? "evaluating all lengths"
          : busy
            ? "training"
            : row.queue_position
              ? formatQueuePosition(row.queue_position)
              : "queued";
  return (
    how +
    " · " +
    done +
    " of " +
    formatCount(row.runs, "run") +
    (failed ? ", " + failed + " failed" : "")
  );
}
function renderExperiments() {
  $(".mine .none").hidden = state.experiments.length > 0;
  syncRows(
    $(".experiments"),
    state.experiments,
    (row) => row.id,
    (row) => {
      const open = el("button", { type: "button", className: "open-it" }),
        words = el("span", { className: "words" }),
        bar = el("span", { className: "share" }, el("i"));
      open.addEventListener("click", () => openExperiment(row.id, true));
      return el("li", {}, open, words, createActions(row.id, $(".mine-note")), bar);
    },
    (item, row) => {
      item.dataset.state = row.state;
      item.querySelector(".open-it").setAttribute("aria-current", String(row.id === state.open));
      setText(item.querySelector(".open-it"), row.question || row.name).title = row.name;
      setText(
        item.querySelector(".words"),
        describeStatus(row) + (row.message ? ": " + row.message : ""),
      ).classList.toggle("error", Boolean(row.message));
      item.querySelector(".share i").style.width = 100 * row.share + "%";
      item.querySelector(".share").style.visibility = row.state === "done" ? "hidden" : "";
      renderActions(item, row);
    },
  );
}
export function createActions(id, box) {
  const button = (text, act) => {
    const made = el("button", {
      type: "button",
      className: "quiet " + text.toLowerCase(),
      textContent: text,
    });
    made.addEventListener("click", act);
    return made;
  };
  const doing = async (what) => {
    const reply = await requestExperiments("experiments/action", { experiment: id, do: what });
    setMessage(box, addPeriod(reply.error || ""), "error");
    if (what === "delete" && !reply.error && state.open === id) {
      const next = state.experiments.find((row) => row.id !== id);
      openExperiment(next ? next.id : "");
    }
    await refresh();
  };
  const remove = createConfirmButton("Delete", "Delete with its runs", () => doing("delete"));
  remove.classList.add("delete");
  return el(
    "span",
    { className: "actions" },
    button("Cancel", () => doing("cancel")),
    button("Resume", () => doing("resume")),
    remove,
  );
}
export function renderActions(box, row) {
  box.querySelector(".cancel").hidden = row.state !== "running";
  box.querySelector(".resume").hidden =
    row.state !== "paused" && !(row.state === "done" && row.statuses.failed);
}
export function openExperiment(id, goThere = false) {
  state.open = id;
  saveLocal("open", id);
  if (!id) {
    state.details = null;
    renderResults();
  }
  renderExperiments();
  const refreshed = refresh();
  // In a single-column layout the experiment is below the list.
  if (goThere)
    refreshed.then(() => {
      const box = $(".results");
      if (
        box.getBoundingClientRect().top > innerHeight * 0.6 ||
        box.getBoundingClientRect().top < 0
      )
        box.scrollIntoView({ block: "start" });
    });
}

let pendingRefresh = null,
  refreshQueued = false;
// One request at a time. A call during a request waits for the following one.
export function refresh() {
  if (pendingRefresh) {
    refreshQueued = true;
    return pendingRefresh;
  }
  pendingRefresh = (async () => {
    do {
      refreshQueued = false;
      await loadExperiments();
    } while (refreshQueued);
  })().finally(() => {
    pendingRefresh = null;
  });
  return pendingRefresh;
}
async function loadExperiments() {
  const open = state.open,
    version = state.details && state.details.id === open ? state.details.version : "";
  const reply = await requestExperiments("experiments/poll", { open, version });
  state.nextPollAt = Date.now() + 4000;
  if (reply.error) {
    setMessage($(".mine-note"), addPeriod(reply.error), "error");
    $(".mine-note").dataset.lost = "yes";
    return;
  }
  if ($(".mine-note").dataset.lost) setMessage($(".mine-note"), "");
  state.experiments = reply.experiments;
  renderExperiments();
  if (state.experiments.some((row) => row.state === "running"))
    state.nextPollAt = Date.now() + 1000;
  if (open === state.open) {
    if (reply.open)
      state.details = { ...reply.open, results: reply.open.results || state.details.results };
    else if (open) {
      state.open = state.experiments.length ? state.experiments[0].id : "";
      state.details = null;
      refreshQueued = Boolean(state.open);
      saveLocal("open", state.open);
      renderExperiments();
    }
    if (reply.open || !state.open) renderResults();
  }
  const states = JSON.stringify(
    state.experiments.map((row) => [row.id, row.state, row.statuses.done]),
  );
  if (states !== lastStates) {
    lastStates = states;
    loadPresets();
    loadReplications();
  }
}
