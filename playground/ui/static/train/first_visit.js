// On the first visit, the page plays the recorded training of the bundled checkpoint once.
import { setText } from "../shared/dom.js";
import { loadText, saveText } from "../shared/storage.js";
import { state } from "./state.js";
import { startPlayback } from "./timeline.js";
import { $ } from "./view.js";

const VISITED_KEY = "transformer-playground-visited",
  RECORDED_MODEL = "checkpoint:reverse",
  FIRST_FRAME_MS = 1500, // time to read the first caption
  FRAME_MS = 170;
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
  state.weightSteps.length > 1 &&
  state.displayedSnapshot &&
  !document.documentElement.dataset.embed &&
  !matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Play the recording, if this is the first visit and the page shows the recorded model. */
export async function playFirstVisit() {
  if (!canPlay() || !isFirstVisit()) return;
  const box = $(".recording-note");
  box.hidden = false;
  const isFinished = await startPlayback(frameMs, () => {
    const { samples, step } = state.displayedSnapshot;
    const isSolved = samples.every((each) => each.prediction.join() === each.target.join());
    setText(box, captionOf(step, isSolved));
  });
  setText(box, isFinished ? "The recording has ended. Press Train to train a new model." : "");
  box.hidden = !isFinished;
  box.dataset.ended = "yes"; // the prediction of the last step is visible again
  const train = document.querySelector("#train");
  if (isFinished && train) {
    train.classList.add("invites");
    train.addEventListener("click", () => train.classList.remove("invites"), { once: true });
  }
}
