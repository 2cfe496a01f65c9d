// ---------------------------------------------------------------- polling a model
let predictRequestId = 0,
  predictedAt = 0;
// Poll at a high rate for 1.5 s after a command, so that its effect appears at once.
let fastPollUntil = 0,
  wakePoller = () => {};
const pollNow = () => {
  fastPollUntil = Date.now() + 1500;
  wakePoller();
};

function renderStatus() {
  root.dataset.status = status;
  root.dataset.own = lastResponse.is_owner ? "yes" : "no";
  $(".status-text").textContent = formatStatus();
  renderControls();
  announceStatus();
  const page = document.querySelector("#train-page");
  if (!page) return;
  const focused = document.activeElement,
    visibleStatus = lastResponse.is_owner || !ACTIVE_STATUSES.includes(status) ? status : "watched";
  page.dataset.status = visibleStatus;
  // Gradio mounts the form's buttons separately; until then the status class hides the wrong ones.
  for (const [id, when] of [
    ["step", ["paused"]],
    ["stop", ["waiting", "paused", "training", "stopping"]],
  ]) {
    const button = page.querySelector("#" + id);
    if (button) button.disabled = !when.includes(visibleStatus);
  }
  const primary = [...page.querySelectorAll("#train, #pause, #resume")];
  if (primary.includes(focused) && !focused.offsetParent)
    primary.find((button) => button.offsetParent)?.focus();
}

// Screen readers announce the status of the run, but not its changing numbers.
let announcedStatus = "";
function announceStatus() {
  const news = [modelRef, status, lastResponse.message || ""].join("/");
  if (news === announcedStatus) return;
  announcedStatus = news;
  $(".announced").textContent = formatStatus();
}

async function pollRun(generationId) {
  let wait = 0,
    pollsWithoutSnapshot = 0; // polls of an ended run without a snapshot
  while (generationId === pollGeneration && element.isConnected) {
    await new Promise((resolve) => {
      wakePoller = resolve;
      setTimeout(resolve, Date.now() < fastPollUntil ? Math.min(wait, 60) : wait);
    });
    try {
      const response = await request("runs/poll", {
        owner,
        subject: modelRef,
        n_points: isFresh ? 0 : pointCount,
        series_id: isFresh ? -1 : seriesId,
        snapshot_version: isFresh ? 0 : snapshotVersion,
        changes: isFresh ? -1 : (lastResponse.changes_version ?? -1),
      });
      if (generationId !== pollGeneration) return;
      applyUpdate(response);
      if (status === "checkpoint" || (status === "not-found" && !response.again)) return;
      // The owner may resume an ended run, here or in another tab.
      pollsWithoutSnapshot =
        TERMINAL_STATUSES.includes(status) && !displayedSnapshot ? pollsWithoutSnapshot + 1 : 0;
      wait =
        status === "not-found" ||
        (TERMINAL_STATUSES.includes(status) && (displayedSnapshot || pollsWithoutSnapshot > 30))
          ? 2000
          : document.hidden
            ? 2000
            : ["paused", "waiting"].includes(status)
              ? 500
              : pointCount
                ? 200
                : 60;
    } catch (error) {
      if (generationId !== pollGeneration) return;
      $(".status-text").textContent = "The server did not respond; retrying";
      wait = Math.min(5000, Math.max(500, wait * 2));
    }
  }
}

function applyUpdate(response) {
  const previousStatus = isFresh ? "" : status,
    previousSnapshot = displayedSnapshot;
  if (isFresh) resetView();
  if ($(".hand-note").dataset.lost) setMessage($(".hand-note"), "");
  response.changes ??= lastResponse.changes; // sent only after a change
  lastResponse = response;
  status = response.status;
  scores = response.scores || null;
  weightSteps = response.weight_steps || [];
  const p = response.points;
  if (p.whole || response.series_id !== seriesId) {
    metricCurve = { steps: [], loss: [], learning_rate: [], grad_norm: [] };
    evaluations = [];
  }
  for (const name of ["steps", "loss", "learning_rate", "grad_norm"])
    for (const value of p[name]) metricCurve[name].push(value);
  for (const s of p.evaluations) evaluations.push(s);
  // Above 20,000 points, request a downsampled curve to limit memory use.
  pointCount = metricCurve.steps.length > 20000 ? 0 : p.count;
  if (response.series_id !== seriesId) {
    seriesId = response.series_id;
    clearSnapshotCache();
  }
  if (response.probe_info) {
    probeInfo = response.probe_info;
    $(".accepts").textContent = "symbols " + probeInfo.accepts;
    if (syncSuggestion($(".sequence"), probeInfo.question) && viewedStep !== null) predict();
  }
  if (response.snapshot) {
    latestSnapshot = response.snapshot;
    snapshotVersion = response.snapshot_version;
    if (viewedStep === null) {
      displayedSnapshot = latestSnapshot;
      root.classList.remove("old");
    }
  }
  if (displayedSnapshot !== previousSnapshot) renderSamples();
  renderLengths();
  renderStatus();
  scheduleRender();
  if (
    viewedStep === null &&
    (status !== previousStatus ||
      (response.snapshot && (status !== "training" || Date.now() - predictedAt > 1000)))
  )
    predict();
  if (status !== previousStatus) refreshRuns();
  applyLinkState();
  if (response.awaits_zerogpu && response.is_owner) requestSlice();
}

// A ZeroGPU slice is granted to the session that requests it, so the page requests one for the
// displayed run through a Gradio event, which identifies the session. Gradio drops requests while
// one is active.
let sliceRequestedAt = 0;
function requestSlice() {
  if (Date.now() - sliceRequestedAt < 2000) return;
  sliceRequestedAt = Date.now();
  trigger("submit", { owner, subject: modelRef });
}

// Reset the state for a new model. The previous charts stay visible until its first response
// arrives.
function resetView() {
  isFresh = false;
  metricCurve = { steps: [], loss: [], learning_rate: [], grad_norm: [] };
  evaluations = [];
  pointCount = 0;
  seriesId = -1;
  snapshotVersion = 0;
  probeInfo = latestSnapshot = displayedSnapshot = scores = null;
  viewedStep = hoverStep = hoverCell = null;
  weightSteps = [];
  stopPlayback();
  // The charts of the previous model stay, dimmed, so that the layout does not jump.
  root.classList.add("old");
  delete $(".heads").dataset.signature;
  for (const selector of [".hand-note", ".runs-note", ".saved-note", ".try-note"])
    setMessage($(selector), "");
}

async function predict() {
  const text = $(".sequence").value,
    requestId = ++predictRequestId,
    step = viewedStep;
  predictedAt = Date.now();
  if (!text.trim()) {
    $(".answer").replaceChildren();
    setMessage($(".try-note"), "");
    $(".sequence").removeAttribute("aria-invalid");
    return;
  }
  if (!displayedSnapshot) return; // no weights yet; the prediction runs once a snapshot arrives
  const send = async () => {
    try {
      return await request("runs/predict", {
        owner,
        subject: modelRef,
        text,
        ...(step === null ? {} : { step }),
      });
    } catch (error) {
      return { error: NO_RESPONSE, again: true };
    }
  };
  const reply = await requestWithRetry(
    send,
    () => requestId === predictRequestId,
    (error) => setMessage($(".try-note"), error),
  );
  if (requestId !== predictRequestId) return;
  setMessage(
    $(".try-note"),
    reply.error ||
      [step !== null && "with the weights of step " + reply.step.toLocaleString("en"), reply.note]
        .filter(Boolean)
        .join("; "),
    reply.error ? "error" : "",
  );
  if (reply.error) {
    $(".answer").replaceChildren();
    if (!reply.again) $(".sequence").setAttribute("aria-invalid", "true");
  } else {
    $(".sequence").removeAttribute("aria-invalid");
    reply.target
      ? renderAnswer($(".answer"), reply.prediction, reply.target)
      : $(".answer").replaceChildren(reply.prediction.join(" "));
  }
}

// Open another model; the browser stores it for the next visit.
function openModel(ref) {
  const generationId = ++pollGeneration,
    previousRef = modelRef;
  predictRequestId += 1;
  // Opening the overlaid run swaps the two curves.
  if (overlays.has(ref) && previousRef.startsWith("run:") && previousRef !== ref) {
    const place = overlays.get(ref).place;
    overlays.delete(ref);
    overlays.set(previousRef, { place, curve: null });
  }
  modelRef = ref || "";
  isFresh = true;
  try {
    if (!modelRef.startsWith("watch:"))
      localStorage.setItem("transformer-playground-subject", modelRef);
  } catch (error) {
    /* this browser has no storage */
  }
  if (/[?&](watch|model)=/.test(location.search) && modelRef !== linkedModel)
    history.replaceState(null, "", location.pathname);
  renderModelSelect();
  if (!modelRef) {
    resetView();
    lastResponse = {};
    status = "empty";
    renderStatus();
    scheduleRender();
    return;
  }
  pollRun(generationId);
  setTimeout(() => {
    if (generationId === pollGeneration && isFresh) $(".status-text").textContent = "Opening";
  }, 400);
}

// Open the model that another tab hands over.
function onNavigate() {
  const handOff = takeHandOff("Train"),
    { subject: ref, over: overlaid } = typeof handOff === "string" ? { subject: handOff } : handOff;
  loadRuns().then(() => {
    openModel(ref);
    if (overlaid) setOverlays(overlaid);
  });
}
addViewListener(window, "playground-Train", onNavigate);

// Restore the last tab, unless a link selects one.
const LAST_TAB_KEY = "transformer-playground-tab",
  LINK_PARAMS = [
    "inspect",
    "compare",
    "lab",
    "hub",
    "watch",
    "settings",
    "learn",
    "bug",
    "embed",
    "model",
  ];
function restoreTab() {
  if (window.playground.returned) return;
  window.playground.returned = true;
  let tab = "";
  try {
    tab = localStorage.getItem(LAST_TAB_KEY) || "";
  } catch (error) {
    /* this browser has no storage */
  }
  const query = new URLSearchParams(location.search);
  if (tab && tab !== "Train" && !LINK_PARAMS.some((name) => query.has(name)))
    setTimeout(() => openTab(tab), 0);
  document.addEventListener("click", (event) => {
    const button = event.target.closest(TAB_SELECTOR);
    try {
      if (button) localStorage.setItem(LAST_TAB_KEY, button.textContent.trim());
    } catch (error) {
      /* likewise */
    }
  });
}

// If the browser denies storage, the server stores the session in a cookie. If that fails too, warn
// the user.
let storedOwner = ""; // in this closure only: no other script of the page needs it
async function keepSession() {
  if (!owner || document.documentElement.dataset.embed || storedOwner === owner) return;
  storedOwner = owner;
  try {
    localStorage.setItem("transformer-playground-probe", "1");
    localStorage.removeItem("transformer-playground-probe");
    return;
  } catch (error) {
    /* no storage */
  }
  let reply;
  try {
    await request("session/store", { owner });
    reply = await request("session/is-stored", { owner });
  } catch (error) {
    storedOwner = "";
    return;
  } // the next value tries again
  const inFrame = window.top !== window,
    box = $(".visit-note"),
    link = document.createElement("a");
  box.hidden = reply.is_stored;
  box.textContent =
    "This browser stores nothing for this page" +
    (inFrame ? " inside a frame" : "") +
    ". After a reload your runs will not be listed. ";
  if (!inFrame) {
    box.append("Allow this page to store site data to keep them.");
    return;
  }
  link.href = location.origin + location.pathname;
  link.target = "_blank";
  link.rel = "noopener";
  link.textContent = "Open the page in a new tab";
  box.append(link, " to keep them.");
}

function mount() {
  let value = {};
  try {
    value = JSON.parse(props.value) || {};
  } catch (error) {
    return;
  }
  owner = value.owner || "";
  defaultModel = value.first || "";
  keepSession();
  const query = new URLSearchParams(location.search),
    linkedTab =
      ["Inspect", "Compare", "Lab", "Hub", "Learn"].find((tab) => query.has(tab.toLowerCase())) ||
      (query.has("bug") ? "Learn" : "");
  if (linkedTab && !window.playground.linked) {
    window.playground.linked = true;
    setTimeout(() => navigate(linkedTab), 0);
  }
  restoreTab();
  let remembered = "";
  try {
    remembered = localStorage.getItem("transformer-playground-subject") || "";
  } catch (error) {
    /* this browser has no storage */
  }
  if (value.subject) {
    if (!value.subject.startsWith("run:")) linkedModel = value.subject;
    openModel(value.subject);
    loadRuns();
    return;
  }
  waitForRuns().then((yes) => {
    if (yes) {
      openModel(
        isAvailable(remembered)
          ? remembered
          : isAvailable(defaultModel)
            ? defaultModel
            : availableModels()[0] || "",
      );
      setOverlays(loadSavedOverlays());
    }
  });
}

// Update the list from a response, unless another model was opened meanwhile.
async function waitForRuns() {
  const generationId = pollGeneration;
  while (!(await loadRuns())) {
    $(".status-text").textContent = "The server did not respond; retrying";
    await sleep(1000);
    if (generationId !== pollGeneration || !element.isConnected) return false;
  }
  return generationId === pollGeneration;
}

// ---------------------------------------------------------------- pointer and keyboard input
let debounceTimer;
$(".sequence").addEventListener("input", () => {
  clearTimeout(debounceTimer);
  debounceTimer = setTimeout(predict, 150);
});
$(".sequence").addEventListener("keydown", (event) => {
  if (event.key === "Enter") {
    clearTimeout(debounceTimer);
    predict();
  }
});
$(".log").addEventListener("change", scheduleRender);
$(".metric").addEventListener("change", (event) => {
  selectedMetric = event.target.value;
  event.target.title = METRICS[selectedMetric][1];
  $(".switch").style.visibility = selectedMetric === "learning_rate" ? "hidden" : "";
  scheduleRender();
});
$(".kinds").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) {
    selectKind(button.dataset.kind);
    scheduleRender();
  }
});
function selectKind(kind) {
  selectedKind = kind;
  hoverCell = null;
  for (const each of $(".kinds").children)
    each.setAttribute("aria-pressed", String(each.dataset.kind === kind));
}
$(".heads").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) {
    selectedHead = [+button.dataset.layer, +button.dataset.head];
    scheduleRender();
  }
});
for (const canvas of element.querySelectorAll(".chart")) {
  canvas.addEventListener("pointermove", (event) => {
    if (metricCurve && metricCurve.steps.length) {
      hoverStep = Math.max(0, Math.min(lastResponse.step, canvas.toStep(event.offsetX)));
      scheduleRender();
    }
  });
  canvas.addEventListener("pointerleave", () => {
    hoverStep = null;
    scheduleRender();
  });
  canvas.addEventListener("click", (event) => {
    if (weightSteps.length > 1) showStep(canvas.toStep(event.offsetX));
  });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !metricCurve.steps.length) return;
    event.preventDefault();
    hoverStep = Math.max(
      1,
      Math.min(
        lastResponse.step,
        (hoverStep === null ? lastResponse.step : hoverStep) + by * (event.shiftKey ? 10 : 1),
      ),
    );
    scheduleRender();
  });
  canvas.addEventListener("blur", () => {
    hoverStep = null;
    scheduleRender();
  });
}
const focusCanvas = $(".focus-map");
function hitTest(event) {
  if (!probeInfo || !probeInfo.axes[selectedKind]) return null;
  const [rows, columns] = probeInfo.axes[selectedKind].map((names) => names.length),
    size = Math.min(31, (focusCanvas.clientWidth - 40) / columns);
  const cell = [Math.floor((event.offsetY - 22) / size), Math.floor((event.offsetX - 40) / size)];
  return cell[0] >= 0 && cell[1] >= 0 && cell[1] < columns && cell[0] < rows ? cell : null;
}
focusCanvas.addEventListener("pointermove", (event) => {
  hoverCell = hitTest(event);
  scheduleRender();
});
focusCanvas.addEventListener("pointerleave", () => {
  hoverCell = null;
  scheduleRender();
});
focusCanvas.addEventListener("keydown", (event) => {
  const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[
    event.key
  ];
  if (!move || !probeInfo || !probeInfo.axes[selectedKind]) return;
  event.preventDefault();
  const [r, k] = hoverCell || [0, 0],
    [rows, columns] = probeInfo.axes[selectedKind];
  hoverCell = hoverCell
    ? [
        Math.max(0, Math.min(rows.length - 1, r + move[0])),
        Math.max(0, Math.min(columns.length - 1, k + move[1])),
      ]
    : [0, 0];
  scheduleRender();
});
focusCanvas.addEventListener("blur", () => {
  hoverCell = null;
  scheduleRender();
});
onResizeOrThemeChange(scheduleRender);
