// The Lab tab: prepared experiments, the owner's experiments, the open experiment, and replications
// of published claims. Experiments run on the server. This script polls them and draws their
// results; it computes nothing itself.
const root = $(".lab"),
  STORAGE_KEY = "transformer-playground-lab";
// the id of the requested experiment, and the data of the displayed one
const state = { open: "", details: null };
let owner = "",
  experiments = [],
  isStarted = false,
  storedState = {},
  nextPollAt = 0,
  lastStates = "";

try {
  storedState = JSON.parse(localStorage.getItem(STORAGE_KEY) || "{}") || {};
} catch (error) {
  /* the stored value is malformed */
}
function saveLocal(name, value) {
  storedState[name] = value;
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(storedState));
  } catch (error) {
    /* storage is not available */
  }
}
const loadLocal = (name) => storedState[name];
// an experiment from a link: the form is filled in, and nothing trains before Start is pressed
const linkState = readLinkState("lab");
if (Array.isArray(linkState.grid)) {
  storedState.own = { ...linkState, grid: linkState.grid.filter(Array.isArray) };
  $(".own").open = true;
}
async function requestExperiments(name, payload = {}, timeoutMs = 20000) {
  try {
    return await request(name, { owner, ...payload }, timeoutMs);
  } catch (error) {
    return { error: NO_RESPONSE, lost: true };
  }
}
// Add a full stop. The first letter stays, because it may belong to the name of a setting.
const addPeriod = (text) => (text ? text + (/[.!?]$/.test(text) ? "" : ".") : "");
const setText = (box, text) => {
  if (box.textContent !== text) box.textContent = text;
  return box;
};
const formatQueuePosition = (n) =>
  (n === 1 ? "next" : n === 2 ? "second" : n === 3 ? "third" : n + "th") + " in the queue";
// Format a fraction as the server does: it is never rounded up to 100 %.
const formatShare = (x) =>
  x === 1 ? "100 %" : +Math.min(99.9, 100 * x).toPrecision(x < 0.01 ? 1 : 3) + " %";
const formatSpread = (low, high, write) =>
  low === high ? "" : " (" + write(low).replace(/ %$/, "") + "–" + write(high) + ")";
const formatRange = (spread, write) =>
  write(spread.median) + formatSpread(spread.low, spread.high, write);

// Update a list in place: `make(one)` creates a row for a new item, `fill(row, one)` sets its
// content.
function syncRows(box, list, keyOf, make, fill) {
  const before = new Map([...box.children].map((row) => [row.dataset.key, row]));
  list.forEach((one, at) => {
    const key = String(keyOf(one)),
      row = before.get(key) || make(one);
    row.dataset.key = key;
    before.delete(key);
    fill(row, one);
    if (box.children[at] !== row) box.insertBefore(row, box.children[at] || null);
  });
  for (const row of before.values()) row.remove();
}
// A button that requires a second click for an action that cannot be undone.
function createConfirmButton(text, confirmLabel, onConfirm) {
  const button = el("button", { type: "button", className: "quiet", textContent: text });
  let isConfirming = false;
  const reset = () => {
    isConfirming = false;
    button.textContent = text;
    button.classList.remove("sure");
  };
  button.addEventListener("click", () => {
    if (isConfirming) {
      reset();
      onConfirm();
    } else {
      isConfirming = true;
      button.textContent = confirmLabel;
      button.classList.add("sure");
    }
  });
  button.addEventListener("blur", reset);
  return button;
}

// ---------------------------------------------------------------- the owner's experiments
function describeStatus(row) {
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
    pluralize(row.runs, "run") +
    (failed ? ", " + failed + " failed" : "")
  );
}
function renderExperiments() {
  $(".mine .none").hidden = experiments.length > 0;
  syncRows(
    $(".experiments"),
    experiments,
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
function createActions(id, box) {
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
      const next = experiments.find((row) => row.id !== id);
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
function renderActions(box, row) {
  box.querySelector(".cancel").hidden = row.state !== "running";
  box.querySelector(".resume").hidden =
    row.state !== "paused" && !(row.state === "done" && row.statuses.failed);
}
function openExperiment(id, goThere = false) {
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

// ---------------------------------------------------------------- polling
let pendingRefresh = null,
  refreshQueued = false;
// One request at a time. A call during a request waits for the following one.
function refresh() {
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
  nextPollAt = Date.now() + 4000;
  if (reply.error) {
    setMessage($(".mine-note"), addPeriod(reply.error), "error");
    $(".mine-note").dataset.lost = "yes";
    return;
  }
  if ($(".mine-note").dataset.lost) setMessage($(".mine-note"), "");
  experiments = reply.experiments;
  renderExperiments();
  if (experiments.some((row) => row.state === "running")) nextPollAt = Date.now() + 1000;
  if (open === state.open) {
    if (reply.open)
      state.details = { ...reply.open, results: reply.open.results || state.details.results };
    else if (open) {
      state.open = experiments.length ? experiments[0].id : "";
      state.details = null;
      refreshQueued = Boolean(state.open);
      saveLocal("open", state.open);
      renderExperiments();
    }
    if (reply.open || !state.open) renderResults();
  }
  const states = JSON.stringify(experiments.map((row) => [row.id, row.state, row.statuses.done]));
  if (states !== lastStates) {
    lastStates = states;
    loadPresets();
    loadReplications();
  }
}

// ---------------------------------------------------------------- start
function mount() {
  let value = {};
  try {
    value = JSON.parse(props.value) || {};
  } catch (error) {
    return;
  }
  owner = value.owner || "";
}
async function init() {
  isStarted = true;
  if (typeof loadLocal("open") === "string") state.open = loadLocal("open");
  await refresh();
  if (!state.open && experiments.length) openExperiment(experiments[0].id);
}
async function pollLoop() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await sleepWhileHidden(250);
    if (!owner || !element.offsetParent || document.hidden) continue;
    if (!isStarted) {
      await init();
      continue;
    }
    if (Date.now() >= nextPollAt) await refresh();
    if (shouldRefreshReplications()) await loadReplications();
  }
}
