// ---------------------------------------------------------------- timeline of earlier steps
// The server stores the weights of earlier steps and computes attention and predictions on request.
let snapshotCache = new Map(),
  playbackId = 0,
  stepRequestId = 0;
const MAX_CACHED_SNAPSHOTS = 400; // snapshots cached in the page

const hasHistory = () => weightSteps.length > 1;
function clearSnapshotCache() {
  snapshotCache = new Map();
}

async function fetchSnapshot(step, isCurrent = () => false) {
  if (snapshotCache.has(step)) return snapshotCache.get(step);
  const cache = snapshotCache,
    reply = await requestWithRetry(
      () => request("runs/snapshot", { owner, subject: modelRef, step }),
      isCurrent,
      (error) => setMessage($(".rewind-note"), error),
    );
  if (reply.error) throw new Error(reply.error);
  probeInfo = probeInfo || reply.stage;
  cache.set(step, reply.snapshot);
  if (cache.size > MAX_CACHED_SNAPSHOTS) cache.delete(cache.keys().next().value);
  return reply.snapshot;
}

// Show the recorded step nearest to `step`: curves, attention, samples and "Try it" together.
async function showStep(step) {
  if (!hasHistory()) return;
  const recordedStep = weightSteps[nearestIndex(weightSteps, step)],
    requestId = ++stepRequestId,
    generationId = pollGeneration;
  viewedStep = recordedStep;
  scheduleRender();
  try {
    const requestedSnapshot = await fetchSnapshot(
      recordedStep,
      () => requestId === stepRequestId && generationId === pollGeneration,
    );
    if (requestId !== stepRequestId || generationId !== pollGeneration) return;
    setMessage($(".rewind-note"), "");
    displayedSnapshot = requestedSnapshot;
    renderSamples();
    scheduleRender();
    predict();
  } catch (error) {
    if (requestId === stepRequestId) {
      setMessage($(".rewind-note"), error.message, "error");
      stopPlayback();
    }
  }
}

function showLatest() {
  stopPlayback();
  stepRequestId += 1;
  viewedStep = null;
  displayedSnapshot = latestSnapshot;
  renderSamples();
  scheduleRender();
  predict();
}

function stopPlayback() {
  playbackId += 1;
  const button = $(".play");
  button.textContent = "▶";
  button.setAttribute("aria-label", "Play from here");
  delete button.dataset.playing;
}

async function startPlayback() {
  const id = ++playbackId,
    button = $(".play"),
    generationId = pollGeneration;
  button.textContent = "❚❚";
  button.setAttribute("aria-label", "Pause the replay");
  button.dataset.playing = "yes";
  let at =
    viewedStep === null || viewedStep >= weightSteps[weightSteps.length - 1]
      ? 0
      : nearestIndex(weightSteps, viewedStep) + 1;
  while (id === playbackId && generationId === pollGeneration && at < weightSteps.length) {
    const started = Date.now();
    for (const next of weightSteps.slice(at + 1, at + 4)) fetchSnapshot(next).catch(() => {});
    await showStep(weightSteps[at]);
    if (id !== playbackId) return;
    at = nearestIndex(weightSteps, weightSteps[at] ?? 0) + 1;
    await sleep(Math.max(0, 120 - (Date.now() - started)));
  }
  if (id === playbackId) stopPlayback();
}

function renderTimeline() {
  const box = $(".rewind"),
    slider = $(".scrub"),
    maxStep = axisMaxStep(),
    at = viewedStep === null ? lastResponse.step || 0 : viewedStep;
  box.classList.toggle("off", !hasHistory());
  slider.disabled = !hasHistory();
  $(".play").disabled = !hasHistory();
  slider.max = maxStep;
  if (document.activeElement !== slider || viewedStep !== null || !slider.matches(":active"))
    slider.value = at;
  slider.setAttribute("aria-valuetext", "step " + at);
  $(".viewing").textContent =
    viewedStep === null
      ? hasHistory()
        ? pluralize(weightSteps.length, "recorded step") + " to replay"
        : status === "checkpoint"
          ? "This checkpoint has only its last step"
          : ""
      : "Showing step " +
        viewedStep.toLocaleString("en") +
        " of " +
        (lastResponse.step || 0).toLocaleString("en");
  $(".now").hidden = viewedStep === null;
  $(".branch").hidden =
    !lastResponse.is_owner ||
    !pointCount ||
    (viewedStep === null && !["paused", "done", "stopped", "failed"].includes(status));
  $(".branch").textContent = "Continue from step " + at.toLocaleString("en") + " as a new run";
  if (viewedStep === null) setMessage($(".rewind-note"), "");
}

$(".scrub").addEventListener("input", (event) => {
  stopPlayback();
  +event.target.value >= weightSteps[weightSteps.length - 1]
    ? showLatest()
    : showStep(+event.target.value);
});
$(".scrub").addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
  if (!by || !hasHistory()) return;
  event.preventDefault();
  stopPlayback();
  const at =
    (viewedStep === null ? weightSteps.length - 1 : nearestIndex(weightSteps, viewedStep)) + by;
  if (at >= weightSteps.length) showLatest();
  else showStep(weightSteps[Math.max(0, at)]);
});
$(".play").addEventListener("click", () =>
  $(".play").dataset.playing ? stopPlayback() : startPlayback(),
);
$(".now").addEventListener("click", showLatest);
$(".branch").addEventListener("click", async () => {
  const reply = await runAction({
    do: "branch",
    step: viewedStep === null ? lastResponse.step : viewedStep,
  });
  if (reply.subject) {
    const from = modelRef;
    await loadRuns();
    openModel(reply.subject);
    if (overlays.size < SERIES_COLORS.length) toggleOverlay(from, true);
  }
});
