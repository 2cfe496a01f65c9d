// ---- the run list and the actions of its owner
let runs = [],
  checkpoints = [],
  serverNow = 0,
  maxActiveRuns = 0,
  listing = null,
  nextListAt = 0,
  showHidden = false,
  renderedCheckpoints = "";
const isAvailable = (s) => availableModels().includes(s);
const availableModels = () => [
  ...runs.filter((r) => !r.deleted).map((r) => r.subject),
  ...checkpoints.map((c) => c.subject),
];

// Send an action on a run to the server. Its message appears beside the control: at the open run,
// or at the list.
async function runAction(
  payload,
  ref = modelRef,
  box = ref === modelRef ? $(".hand-note") : $(".runs-note"),
) {
  let reply,
    lost = false;
  try {
    reply = await request("runs/action", { owner, subject: ref, ...payload });
    pollNow();
  } catch (error) {
    reply = { error: NO_RESPONSE };
    lost = true;
  }
  setMessage(
    box,
    reply.error ? reply.error[0].toUpperCase() + reply.error.slice(1) + "." : "",
    "error",
  );
  if (lost) box.dataset.lost = "yes";
  refreshRuns();
  return reply;
}

async function fetchDetails(ref) {
  try {
    return await request("runs/details", { owner, subject: ref });
  } catch (error) {
    return { error: NO_RESPONSE };
  }
}

// ---- the list
async function loadRuns() {
  let response;
  try {
    response = await request("runs/list", { owner });
  } catch (error) {
    return false;
  }
  runs = response.runs;
  checkpoints = response.checkpoints;
  serverNow = response.now;
  maxActiveRuns = response.slots;
  if ($(".storage-note").textContent !== response.storage_message)
    $(".storage-note").textContent = response.storage_message;
  $(".device").textContent = formatMessage(response.device);
  $(".home-note").textContent = response.note;
  $(".home-note").hidden = !response.note;
  renderModelSelect();
  renderRuns();
  const missing = [...overlays.keys()].filter(
    (s) => !runs.some((r) => r.subject === s && !r.deleted),
  );
  if (missing.length) {
    missing.forEach((s) => overlays.delete(s));
    renderLegend();
    scheduleRender();
  }
  return true;
}
function refreshRuns() {
  nextListAt = 0;
}
async function pollRuns() {
  while (element.isConnected) {
    if (Date.now() >= nextListAt && owner) {
      nextListAt =
        Date.now() +
        (document.hidden
          ? 10000
          : runs.some((r) => ACTIVE_STATUSES.includes(r.status) && r.status !== "paused")
            ? 1500
            : 4000);
      await loadRuns();
      await fetchOverlays();
      if (
        $(".saved").open &&
        lastResponse.is_owner &&
        renderedCheckpoints !== modelRef + lastResponse.checkpoint_version
      )
        await renderCheckpoints();
    }
    const wasHidden = document.hidden;
    // A hidden page keeps polling, so that the server does not treat its owner as inactive.
    await sleepWhileHidden(150, 10000);
    if (wasHidden && !document.hidden) refreshRuns();
  }
}

// The selector of the open model.
function renderModelSelect() {
  const select = $(".subject"),
    visibleRuns = runs.filter((r) => !r.deleted && (!r.hidden || r.subject === modelRef));
  const signature = JSON.stringify([
    visibleRuns.map((r) => [r.subject, r.name]),
    checkpoints,
    modelRef.startsWith("watch:") && [modelRef, lastResponse.name],
  ]);
  if (select.dataset.signature !== signature) {
    select.dataset.signature = signature;
    const group = (label, options) => {
      const box = document.createElement("optgroup");
      box.label = label;
      box.append(...options.map(([value, text]) => new Option(text, value)));
      return box;
    };
    select.replaceChildren(
      ...[
        modelRef.startsWith("watch:") &&
          group("Shared with you", [[modelRef, lastResponse.name || "a run"]]),
        visibleRuns.length &&
          group(
            "Your runs",
            visibleRuns.map((r) => [r.subject, r.name]),
          ),
        checkpoints.length &&
          group(
            "Checkpoints that come with the playground",
            checkpoints.map((c) => [c.subject, c.name + ": " + c.about]),
          ),
      ].filter(Boolean),
    );
  }
  if (select.value !== modelRef) select.value = modelRef;
}

const STATUS_LABELS = {
  waiting: "queued",
  starting: "starting",
  training: "training",
  paused: "paused",
  stopping: "stopping",
  done: "done",
  stopped: "stopped",
  failed: "failed",
};
function renderRuns() {
  const body = $(".runs tbody"),
    visible = runs.filter((r) => !r.deleted && (showHidden || !r.hidden));
  const rows = new Map([...body.children].map((row) => [row.dataset.subject, row]));
  const hidden = runs.filter((r) => r.hidden && !r.deleted).length;
  $(".no-runs").hidden = visible.length > 0;
  $(".runs table").hidden = !visible.length;
  $(".show-hidden").hidden = !hidden;
  $(".show-hidden").textContent = showHidden
    ? "Hide hidden runs"
    : "Show " + pluralize(hidden, "hidden run");
  const rowElements = visible.map((r) => {
    const row = rows.get(r.subject) || createRunRow(r.subject),
      cell = (name, text) => {
        const c = row.querySelector("." + name);
        if (c.textContent !== text) c.textContent = text;
        return c;
      };
    rows.delete(r.subject);
    row.classList.toggle("open", r.subject === modelRef);
    row.classList.toggle("hidden-run", r.hidden);
    if (!row.querySelector(".renaming")) {
      cell("name", r.name).title = r.name;
    }
    cell(
      "state",
      r.queue_position
        ? formatQueuePosition(r.queue_position)
        : r.awaits_zerogpu
          ? "next slice"
          : STATUS_LABELS[r.status] || r.status,
    ).dataset.status = r.status;
    cell("task", r.task);
    cell(
      "size",
      r.shape[0] + " × " + r.shape[1] + ", " + Math.round(r.parameters / 1000) + " K",
    ).title =
      pluralize(r.shape[0], "layer") +
      ", " +
      pluralize(r.shape[1], "head") +
      ", d_model " +
      r.shape[2] +
      ", " +
      r.parameters.toLocaleString("en") +
      " parameters";
    cell("best", r.best === null ? "–" : formatPercent(r.best)).title =
      r.best === null ? "" : "of " + pluralize(r.eval_size, "held-out sequence");
    cell(
      "step-of",
      r.step.toLocaleString("en") +
        (r.step < r.max_steps ? " of " + r.max_steps.toLocaleString("en") : ""),
    );
    cell("age", formatAge(serverNow - r.created));
    const box = row.querySelector(".lay"),
      on = overlays.has(r.subject),
      self = r.subject === modelRef;
    box.checked = on || self;
    box.disabled = self || (!on && overlays.size >= SERIES_COLORS.length);
    box.title = self
      ? "Shown"
      : box.disabled
        ? "At most eight curves can be overlaid"
        : "Overlay its curves on those shown";
    row.style.setProperty(
      "--colour",
      self ? "var(--pg-accent)" : on ? overlayColor(overlays.get(r.subject).place) : "transparent",
    );
    row.querySelector("[data-do=hide]").textContent = r.hidden ? "Show again" : "Hide";
    row.querySelector("[data-do=resume]").hidden = !["paused", "stopped", "failed"].includes(
      r.status,
    );
    row.querySelector("[data-do=stop]").hidden = !ACTIVE_STATUSES.includes(r.status);
    return row;
  });
  for (const row of rows.values()) row.remove();
  rowElements.forEach((row, at) => {
    if (body.children[at] !== row) body.insertBefore(row, body.children[at] || null);
  });
  const deleted = runs.filter((r) => r.deleted);
  $(".undo").hidden = !deleted.length;
  if ($(".undo").dataset.of !== deleted.map((r) => r.subject).join()) {
    $(".undo").dataset.of = deleted.map((r) => r.subject).join();
    $(".undo").replaceChildren(
      "Deleted; removed permanently after ten minutes: ",
      ...deleted.map((r) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "quiet";
        button.textContent = "Undo “" + r.name + "”";
        button.addEventListener("click", async () => {
          await runAction({ do: "undelete" }, r.subject);
          await loadRuns();
          openModel(r.subject);
        });
        return button;
      }),
    );
  }
  $(".differ").disabled = !overlays.size;
}

function createRunRow(ref) {
  const row = $(".row-template").content.firstElementChild.cloneNode(true);
  row.dataset.subject = ref;
  const findRun = () => runs.find((r) => r.subject === ref);
  row.querySelector(".name").addEventListener("click", () => {
    openModel(ref);
    if ($(".top").getBoundingClientRect().top < 0) $(".top").scrollIntoView({ behavior: "smooth" });
  });
  row.querySelector(".lay").addEventListener("change", (event) => {
    toggleOverlay(ref, event.target.checked);
  });
  const menu = row.querySelector("details");
  menu.addEventListener("toggle", () => {
    menu.classList.toggle(
      "up",
      menu.getBoundingClientRect().bottom + 280 > document.documentElement.scrollHeight - scrollY,
    );
  });
  menu.addEventListener("click", async (event) => {
    const what = event.target.closest("button")?.dataset.do,
      run = findRun();
    if (!what || !run) return;
    menu.open = false;
    if (what === "rename") return startRename(row, run);
    if (what === "use") return loadSettings(ref);
    if (what === "hide") await runAction({ do: run.hidden ? "show" : "hide" }, ref);
    else if (what === "delete") {
      const reply = await runAction({ do: "delete" }, ref);
      if (!reply.error) {
        overlays.delete(ref);
        if (ref === modelRef) openModel(defaultModel);
      }
    } else if (what === "again") {
      const reply = await runAction({ do: "again" }, ref);
      if (reply.subject) {
        await loadRuns();
        openModel(reply.subject);
      }
    } else await runAction({ do: what }, ref);
    await loadRuns();
  });
  return row;
}

function startRename(row, run) {
  const cell = row.querySelector(".name"),
    input = document.createElement("input");
  input.className = "renaming";
  input.value = run.name;
  input.maxLength = 80;
  input.setAttribute("aria-label", "New name");
  cell.replaceWith(input);
  input.focus();
  input.select();
  let isFinished = false;
  const end = async (commit, restoreFocus = true) => {
    // unless the focus has moved elsewhere
    if (isFinished) return;
    isFinished = true;
    input.replaceWith(cell);
    if (commit && input.value.trim() && input.value !== run.name) {
      cell.textContent = input.value;
      await runAction({ do: "rename", name: input.value }, run.subject);
      await loadRuns();
    }
    if (restoreFocus) cell.focus();
  };
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") end(true);
    if (event.key === "Escape") end(false);
  });
  input.addEventListener("blur", () => end(true, false));
}

root.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && element.querySelector("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});
addViewListener(document, "click", (event) => {
  for (const menu of element.querySelectorAll("details.menu[open]"))
    if (!menu.contains(event.target)) menu.open = false;
});
$(".show-hidden").addEventListener("click", () => {
  showHidden = !showHidden;
  renderRuns();
});
$(".subject").addEventListener("change", (event) => openModel(event.target.value));

// ---- overlaid curves
function toggleOverlay(ref, isOn) {
  if (isOn)
    overlays.set(ref, {
      place: SERIES_COLORS.findIndex(
        (_, place) => ![...overlays.values()].some((o) => o.place === place),
      ),
      curve: null,
    });
  else overlays.delete(ref);
  renderRuns();
  renderLegend();
  scheduleRender();
  fetchOverlays(true);
}

// The browser stores the overlays, like the open model.
const OVERLAYS_KEY = "transformer-playground-laid";
let overlaysRestored = false; // until then, an empty overlay list has no meaning
function loadSavedOverlays() {
  try {
    return JSON.parse(localStorage.getItem(OVERLAYS_KEY) || "[]").filter((s) =>
      runs.some((r) => r.subject === s && !r.deleted),
    );
  } catch (error) {
    return [];
  }
}
function setOverlays(subjects) {
  overlaysRestored = true;
  overlays.clear();
  subjects
    .filter((s) => s !== modelRef)
    .slice(0, SERIES_COLORS.length)
    .forEach((s, place) => overlays.set(s, { place, curve: null }));
  renderRuns();
  fetchOverlays(true);
}

async function fetchOverlays(force = false) {
  const isActive = (s, o) =>
    !TERMINAL_STATUSES.includes(o.status) ||
    runs.some((r) => r.subject === s && r.status !== o.status);
  const refs = [...overlays]
    .filter(([s, o]) => s !== modelRef && (force || !o.curve || isActive(s, o)))
    .map(([s]) => s);
  overlays.delete(modelRef);
  if (overlaysRestored || overlays.size)
    try {
      localStorage.setItem(OVERLAYS_KEY, JSON.stringify([...overlays.keys()]));
    } catch (error) {
      /* this browser has no storage */
    }
  if (refs.length) {
    let response;
    try {
      response = await request("runs/curves", { owner, subjects: refs });
    } catch (error) {
      return;
    }
    for (const c of response.curves)
      if (overlays.has(c.subject))
        Object.assign(overlays.get(c.subject), { curve: c, status: c.status, name: c.name });
    scheduleRender();
  }
  renderLegend();
}

function renderLegend() {
  const box = $(".overlay-legend"),
    name = (runs.find((r) => r.subject === modelRef) || lastResponse).name || "on show";
  box.hidden = !overlays.size;
  const entry = (color, text, ref, dashed) => {
    const item = document.createElement("span"),
      swatch = document.createElement("i"),
      words = document.createElement("span");
    item.className = "entry";
    swatch.style.borderTopColor = color;
    swatch.style.borderTopStyle = dashed ? "dashed" : "solid";
    words.textContent = text;
    words.title = text;
    item.append(swatch, words);
    if (ref) {
      const off = document.createElement("button");
      off.type = "button";
      off.textContent = "×";
      off.setAttribute("aria-label", "Take " + text + " off the curves");
      off.addEventListener("click", () => toggleOverlay(ref, false));
      item.append(off);
    }
    return item;
  };
  const nameOf = (s, o) => (runs.find((r) => r.subject === s) || o).name || "";
  box.replaceChildren(
    entry(cssVariable("--pg-accent"), name),
    ...[...overlays].map(([s, o]) => entry(overlayColor(o.place), nameOf(s, o), s, o.place % 2)),
  );
}

// ---- the diff of two configurations
async function renderDiff() {
  const subjects = [modelRef, ...overlays.keys()].slice(0, 8),
    response = [];
  for (const s of subjects) response.push(await fetchDetails(s));
  const wrong = response.find((t) => t.error);
  if (wrong) {
    setMessage($(".runs-note"), formatMessage(wrong.error), "error");
    return;
  }
  const names = subjects.map((s, i) => response[i].name || s.split(":")[1]),
    fields = [...new Set(response.flatMap((t) => Object.keys(t.settings)))];
  const all = $(".every-field").checked,
    table = $(".differences");
  const rows = fields.filter(
    (f) => all || new Set(response.map((t) => JSON.stringify(t.settings?.[f]))).size > 1,
  );
  const line = (tag, cells) => {
    const row = document.createElement("tr");
    row.append(
      ...cells.map((text) => {
        const cell = document.createElement(tag);
        cell.textContent = text;
        return cell;
      }),
    );
    if (tag === "th")
      [...row.cells].forEach((cell, at) => {
        cell.title = cell.textContent;
        if (at)
          cell.style.borderBottom =
            "3px solid " +
            (at === 1
              ? cssVariable("--pg-accent")
              : overlayColor(overlays.get(subjects[at - 1]).place));
      });
    return row;
  };
  const changed = (t) =>
    (t.changes || [])
      .filter(([, setting]) => !["speed", "num_threads"].includes(setting))
      .map(([step, setting, value]) => setting + " " + value + " from step " + step)
      .join("; ") || "none";
  const body = rows.map((f) =>
    line("td", [f, ...response.map((t) => String(t.settings?.[f] ?? ""))]),
  );
  if (all || new Set(response.map(changed)).size > 1)
    body.push(line("td", ["changed on the way", ...response.map(changed)]));
  table.replaceChildren(line("th", ["setting", ...names]), ...body);
  $(".alike").hidden = body.length > 0;
  table.hidden = !body.length;
  if (!$(".compare").open) $(".compare").showModal();
}
$(".differ").addEventListener("click", renderDiff);
$(".every-field").addEventListener("change", renderDiff);

// ---- controls of the open run
const LIVE_SETTINGS = { rate: "learning_rate", target: "max_steps" };
function renderControls() {
  const own = lastResponse.is_owner && modelRef.startsWith("run:"),
    set = (box, value) => {
      if (document.activeElement !== box && box.value !== String(value)) box.value = value;
    };
  for (const [name, setting] of Object.entries(LIVE_SETTINGS)) {
    const box = $("." + name);
    set(box, lastResponse[setting] ?? "");
    box.disabled = !own;
  }
  if (own && document.activeElement !== $(".speed") && ACTIVE_STATUSES.includes(status))
    set($(".speed"), lastResponse.speed || 0);
  $(".resume-here").hidden = !own || !["stopped", "failed", "done"].includes(status);
  $(".resume-here").textContent = status === "done" ? "Train longer" : "Resume";
  $(".speed").title = "Slow motion shows single steps. New runs start at this speed.";
  $(".keep").hidden = !own || !["training", "paused"].includes(status) || !lastResponse.has_worker;
  $(".share").disabled = !modelRef || status === "not-found";
  $(".saved").hidden = !own;
}
for (const [name, setting] of Object.entries(LIVE_SETTINGS))
  $("." + name).addEventListener("change", async (event) => {
    const box = event.target,
      reply = box.value.trim()
        ? await runAction({ do: "change", setting, value: Number(box.value) })
        : {};
    if (reply.error || !box.value.trim()) box.value = lastResponse[setting];
  });
$(".speed").addEventListener("change", (event) => {
  if (lastResponse.is_owner && ACTIVE_STATUSES.includes(status))
    runAction({ do: "change", setting: "speed", value: Number(event.target.value) });
});
$(".resume-here").addEventListener("click", () =>
  runAction({ do: status === "done" ? "extend" : "resume" }),
);
$(".keep").addEventListener("click", async () => {
  const reply = await runAction({ do: "keep" });
  if (!reply.error)
    setMessage(
      $(".hand-note"),
      status === "paused"
        ? "Checkpoint of step " + lastResponse.step + " kept."
        : "Saving a checkpoint of this step; it will appear under Checkpoints of this run.",
    );
});
root.addEventListener("command", (event) => sendCommand(event.detail));

async function sendCommand(command) {
  if (!lastResponse.is_owner) return;
  const words = { pause: "Pausing", resume: "Resuming", stop: "Stopping and saving" }[command];
  if (words && ACTIVE_STATUSES.includes(status)) $(".status-text").textContent = words;
  await runAction({ do: command });
}

// ---- checkpoints of the open run
async function renderCheckpoints() {
  const requestedRef = modelRef,
    version = modelRef + lastResponse.checkpoint_version,
    response = await fetchDetails(requestedRef);
  if (requestedRef !== modelRef || !response.checkpoints) return;
  renderedCheckpoints = version;
  const body = $(".saved tbody"),
    signature = requestedRef + JSON.stringify(response.checkpoints);
  if (body.dataset.signature === signature) return; // keep a pending confirmation button
  body.dataset.signature = signature;
  $(".saved .none").hidden = response.checkpoints.length > 0;
  body.replaceChildren(
    ...response.checkpoints.map((c, at) => {
      const row = document.createElement("tr"),
        cells = [
          "step " + c.step.toLocaleString("en"),
          c.is_pinned ? "kept" : at ? "the one before" : "latest",
          c.exact_match === null ? "–" : formatPercent(c.exact_match),
          formatBytes(c.bytes),
          formatAge(Date.now() / 1000 - c.written),
        ];
      for (const text of cells) row.insertCell().textContent = text;
      const actions = row.insertCell(),
        add = (text, act) => {
          const b = document.createElement("button");
          b.type = "button";
          b.className = "quiet";
          b.textContent = text;
          b.setAttribute("aria-label", text + ", step " + c.step);
          b.addEventListener("click", act);
          actions.append(b);
        };
      add("Download", () => downloadCheckpoint(c.name));
      if (c.resumable)
        add("Continue as a new run", async () => {
          const reply = await runAction({ do: "branch", step: c.step });
          if (reply.subject) {
            await loadRuns();
            openModel(reply.subject);
          }
        });
      let sure = false;
      add("Delete", async (event) => {
        if (!sure) {
          sure = true;
          event.target.textContent = "Delete permanently";
          return;
        }
        sure = false;
        event.target.textContent = "Delete";
        await runAction({ do: "remove", checkpoint: c.name }, modelRef, $(".saved-note"));
        await renderCheckpoints();
      });
      return row;
    }),
  );
}
$(".saved").addEventListener("toggle", () => {
  if ($(".saved").open) renderCheckpoints();
});

async function downloadCheckpoint(name) {
  const reply = await runAction({ do: "download", checkpoint: name });
  if (!reply.ticket) return;
  const link = document.createElement("a");
  link.href = new URL("checkpoints/" + reply.ticket, baseUrl);
  link.download = "";
  document.body.append(link);
  link.click();
  link.remove();
}
$(".upload").addEventListener("click", () => $(".file").click());
$(".file").addEventListener("change", async (event) => {
  const file = event.target.files[0],
    box = $(".runs-note");
  if (!file) return;
  setMessage(box, "Checking " + file.name);
  try {
    const answer = await fetch(new URL("checkpoints", baseUrl), {
      method: "POST",
      body: file,
      headers: { "x-owner": owner, "x-name": encodeURIComponent(file.name.replace(/\.zip$/i, "")) },
    });
    const reply = answer.headers.get("content-type")?.includes("json")
      ? await answer.json()
      : { error: await answer.text() };
    setMessage(box, reply.error ? file.name + " was rejected: " + reply.error + "." : "", "error");
    if (reply.subject) {
      await loadRuns();
      openModel(reply.subject);
    }
  } catch (error) {
    setMessage(
      box,
      file.name + " could not be sent; it may be too large, or the server does not respond.",
      "error",
    );
  }
  event.target.value = "";
});

// ---- sharing
async function loadSettings(ref) {
  const response = await fetchDetails(ref);
  if (
    response.settings &&
    response.settings.task === "dataset" &&
    !response.settings.dataset_sha256
  )
    setMessage(
      $(".runs-note"),
      "This run uses a dataset of its owner. Select Your own data as the task and add your own.",
      "error",
    );
  else if (response.settings) {
    trigger("select", { index: 0, value: response.settings });
    setMessage($(".runs-note"), "The form now has its settings. Press Train to start a run.");
  } else setMessage($(".runs-note"), formatMessage(response.error || ""), "error");
}
const pageUrl = () => location.origin + location.pathname;
$(".open-inspect").addEventListener("click", () =>
  navigate("Inspect", { subject: modelRef, step: viewedStep }),
);
$(".use-these").addEventListener("click", () => {
  $(".sharing").close();
  loadSettings(modelRef);
});
for (const button of element.querySelectorAll(".copy"))
  button.addEventListener("click", async () => {
    const box = button.parentElement.querySelector("input, textarea");
    box.select();
    try {
      await navigator.clipboard.writeText(box.value);
    } catch (error) {
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => {
      button.textContent = "Copy";
    }, 1500);
  });
for (const dialog of element.querySelectorAll("dialog"))
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest(".close")) dialog.close();
  });

// ---- keyboard
function onKeyDown(event) {
  // Another tab handled the event, or the view is hidden.
  if (event.defaultPrevented || !element.offsetParent) return;
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.target.closest("input, textarea, select, [contenteditable], dialog, [role=tab]")
  )
    return;
  const onButton = event.target.closest("button, summary, canvas, a");
  if (event.key === " " && !onButton && ["training", "paused"].includes(status)) {
    event.preventDefault();
    sendCommand(status === "paused" ? "resume" : "pause");
  } else if (
    event.key === "ArrowRight" &&
    event.target.tagName !== "CANVAS" &&
    status === "paused"
  ) {
    event.preventDefault();
    sendCommand("step");
  } else if (event.key === "?") $(".keys").showModal();
}
addViewListener(document, "keydown", onKeyDown);
$(".show-keys").addEventListener("click", () => $(".keys").showModal());
