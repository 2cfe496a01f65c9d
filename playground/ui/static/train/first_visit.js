// On the first visit, the page plays the recorded training of the bundled checkpoint once.
import { loadText, saveText } from "../shared/storage.js";
import { store } from "../shared/store.js";
import { html, signal, useEffect } from "../vendor/preact.js";
import { startPlayback } from "./data/snapshots.js";
import { embeddedView, state } from "./state.js";

const VISITED_KEY = "transformer-playground-visited",
  RECORDED_MODEL = "checkpoint:reverse",
  FIRST_FRAME_MS = 1500, // time to read the first caption
  FRAME_MS = 170,
  START = "Train, type, or switch a part off.";
/** The caption of the recording; null before it. */
const note = signal(/** @type {string | null} */ (null));
const frameMs = (index) => (index ? FRAME_MS : FIRST_FRAME_MS);

/** The text beside the recording at a step; `isSolved` when the displayed samples are right. */
function captionOf(step, isSolved) {
  if (step === 0) return "A recording. Step 0: random weights, nearly uniform attention.";
  return isSolved
    ? "Step " + step + ": each output token attends to the source token that it must copy."
    : "Step " + step + ": training strengthens useful attention. Thicker lines: larger weights.";
}

function isFirstVisit() {
  // Without storage, the recording would play at every visit.
  return !loadText(VISITED_KEY) && saveText(VISITED_KEY, "yes");
}

const canPlay = () =>
  state.modelRef === RECORDED_MODEL &&
  state.status === "checkpoint" &&
  store.weightSteps.value.length > 1 &&
  state.displayedSnapshot !== null &&
  !embeddedView &&
  !matchMedia("(prefers-reduced-motion: reduce)").matches;

async function play() {
  const isFinished = await startPlayback(frameMs, () => {
    const { samples, step } = state.displayedSnapshot;
    const isSolved = samples.every((each) => each.prediction.join() === each.target.join());
    note.value = captionOf(step, isSolved);
  });
  note.value = null;
  state.isTrainInviting = isFinished;
}

const hasOwnRuns = () => store.models.value.some(({ value }) => value.startsWith("run:"));

/**
 * The caption of the recording, which plays if the page shows the recorded model; then, until the
 * user trains or switches something off, what to do first.
 */
export function RecordingNote() {
  const isReady = canPlay(),
    isOpen = state.status === "checkpoint",
    isStart = isOpen && !embeddedView && !hasOwnRuns() && !state.switchedOff.length,
    text = note.value ?? (isStart ? START : null);
  useEffect(() => {
    if (isReady && isFirstVisit()) play();
    else if (!isOpen) note.value = null;
  }, [isReady, isOpen]);
  return html`<p class="pg-note pg-quiet recording-note" role="status" hidden=${text === null}>
    ${text}
  </p>`;
}
