// The Lab tab: prepared experiments, the owner's experiments, the open experiment, and
// replications of
// published claims. Experiments run on the server. This script polls them and draws their results;
// it
// computes nothing itself.
const root = $(".lab"),
  MEMORY = "transformer-playground-lab";
// the id of the requested experiment, and the data of the displayed one
const state = { open: "", shown: null };
let owner = "",
  experiments = [],
  seen = false,
  memory = {},
  dueAt = 0,
  stood = "";

try {
  memory = JSON.parse(localStorage.getItem(MEMORY) || "{}") || {};
} catch (error) {
  /* the stored value is malformed */
}
function keep(name, value) {
  memory[name] = value;
  try {
    localStorage.setItem(MEMORY, JSON.stringify(memory));
  } catch (error) {
    /* storage is not available */
  }
}
const kept = (name) => memory[name];
// an experiment from a link: the form is filled in, and nothing trains before Start is pressed
const ofLink = carried("lab");
if (Array.isArray(ofLink.grid)) {
  memory.own = { ...ofLink, grid: ofLink.grid.filter(Array.isArray) };
  $(".own").open = true;
}
const NO_ANSWER = "the server did not respond; try again";
async function ask(name, what = {}, within = 20000) {
  try {
    return await call("lab-" + name, { owner, ...what }, within);
  } catch (error) {
    return { error: NO_ANSWER, lost: true };
  }
}
// Add a full stop. The first letter stays, because it may belong to the name of a setting.
const told = (text) => (text ? text + (/[.!?]$/.test(text) ? "" : ".") : "");
const put = (box, text) => {
  if (box.textContent !== text) box.textContent = text;
  return box;
};
const nth = (n) =>
  (n === 1 ? "next" : n === 2 ? "second" : n === 3 ? "third" : n + "th") + " in the queue";
// Format a fraction as the server does: it is never rounded up to 100 %.
const share = (x) =>
  x === 1 ? "100 %" : +Math.min(99.9, 100 * x).toPrecision(x < 0.01 ? 1 : 3) + " %";
const between = (low, high, write) =>
  low === high ? "" : " (" + write(low).replace(/ %$/, "") + "–" + write(high) + ")";
const rangeOf = (spread, write) => write(spread.median) + between(spread.low, spread.high, write);

// Update a list in place: `make(one)` creates a row for a new item, `fill(row, one)` sets its
// content.
function update(box, list, keyOf, make, fill) {
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
function careful(text, sure, act) {
  const button = el("button", { type: "button", className: "quiet", textContent: text });
  let asked = false;
  const rest = () => {
    asked = false;
    button.textContent = text;
    button.classList.remove("sure");
  };
  button.addEventListener("click", () => {
    if (asked) {
      rest();
      act();
    } else {
      asked = true;
      button.textContent = sure;
      button.classList.add("sure");
    }
  });
  button.addEventListener("blur", rest);
  return button;
}

// ---------------------------------------------------------------- the owner's experiments
function inWords(row) {
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
            : row.place
              ? nth(row.place)
              : "queued";
  return (
    how +
    " · " +
    done +
    " of " +
    plural(row.runs, "run") +
    (failed ? ", " + failed + " failed" : "")
  );
}
function drawExperiments() {
  $(".mine .none").hidden = experiments.length > 0;
  update(
    $(".experiments"),
    experiments,
    (row) => row.id,
    (row) => {
      const open = el("button", { type: "button", className: "open-it" }),
        words = el("span", { className: "words" }),
        bar = el("span", { className: "share" }, el("i"));
      open.addEventListener("click", () => openExperiment(row.id, true));
      return el("li", {}, open, words, actionsOf(row.id, $(".mine-note")), bar);
    },
    (item, row) => {
      item.dataset.state = row.state;
      item.querySelector(".open-it").setAttribute("aria-current", String(row.id === state.open));
      put(item.querySelector(".open-it"), row.question || row.name).title = row.name;
      put(
        item.querySelector(".words"),
        inWords(row) + (row.message ? ": " + row.message : ""),
      ).classList.toggle("error", Boolean(row.message));
      item.querySelector(".share i").style.width = 100 * row.share + "%";
      item.querySelector(".share").style.visibility = row.state === "done" ? "hidden" : "";
      drawActions(item, row);
    },
  );
}
function actionsOf(id, box) {
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
    const reply = await ask("do", { experiment: id, do: what });
    note(box, told(reply.error || ""), "error");
    if (what === "delete" && !reply.error && state.open === id) {
      const next = experiments.find((row) => row.id !== id);
      openExperiment(next ? next.id : "");
    }
    await refresh();
  };
  const remove = careful("Delete", "Delete with its runs", () => doing("delete"));
  remove.classList.add("delete");
  return el(
    "span",
    { className: "actions" },
    button("Cancel", () => doing("cancel")),
    button("Resume", () => doing("resume")),
    remove,
  );
}
function drawActions(box, row) {
  box.querySelector(".cancel").hidden = row.state !== "going";
  box.querySelector(".resume").hidden =
    row.state !== "paused" && !(row.state === "done" && row.statuses.failed);
}
function openExperiment(id, goThere = false) {
  state.open = id;
  keep("open", id);
  if (!id) {
    state.shown = null;
    drawFound();
  }
  drawExperiments();
  const shown = refresh();
  // In a single-column layout the experiment is below the list.
  if (goThere)
    shown.then(() => {
      const box = $(".found");
      if (
        box.getBoundingClientRect().top > innerHeight * 0.6 ||
        box.getBoundingClientRect().top < 0
      )
        box.scrollIntoView({ block: "start" });
    });
}

// ---------------------------------------------------------------- polling
let asking = null,
  again = false;
// One request at a time. A call during a request waits for the following one.
function refresh() {
  if (asking) {
    again = true;
    return asking;
  }
  asking = (async () => {
    do {
      again = false;
      await refreshNow();
    } while (again);
  })().finally(() => {
    asking = null;
  });
  return asking;
}
async function refreshNow() {
  const open = state.open,
    known = state.shown && state.shown.id === open ? state.shown.version : "";
  const reply = await ask("poll", { open, known });
  dueAt = Date.now() + 4000;
  if (reply.error) {
    note($(".mine-note"), told(reply.error), "error");
    $(".mine-note").dataset.lost = "yes";
    return;
  }
  if ($(".mine-note").dataset.lost) note($(".mine-note"), "");
  experiments = reply.experiments;
  drawExperiments();
  if (experiments.some((row) => row.state === "going")) dueAt = Date.now() + 1000;
  if (open === state.open) {
    if (reply.open) state.shown = { ...reply.open, found: reply.open.found || state.shown.found };
    else if (open) {
      state.open = experiments.length ? experiments[0].id : "";
      state.shown = null;
      again = Boolean(state.open);
      keep("open", state.open);
      drawExperiments();
    }
    if (reply.open || !state.open) drawFound();
  }
  const stand = JSON.stringify(experiments.map((row) => [row.id, row.state, row.statuses.done]));
  if (stand !== stood) {
    stood = stand;
    askQuestions();
    askClaims();
  }
}

// ---------------------------------------------------------------- start
function attach() {
  let value = {};
  try {
    value = JSON.parse(props.value) || {};
  } catch (error) {
    return;
  }
  owner = value.owner || "";
}
async function start() {
  seen = true;
  if (typeof kept("open") === "string") state.open = kept("open");
  await refresh();
  if (!state.open && experiments.length) openExperiment(experiments[0].id);
}
async function goOn() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await rest(250);
    if (!owner || !element.offsetParent || document.hidden) continue;
    if (!seen) {
      await start();
      continue;
    }
    if (Date.now() >= dueAt) await refresh();
    if (claimsDue()) await askClaims();
  }
}
