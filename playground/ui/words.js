// The live view, one program in five files after common.js (live.py puts them together): words, drawing, following a model,
// going back in time, the runs. It polls the server for what it does not know yet; it holds no connection open, and nothing it
// shows is computed here: every number was measured by the process that trains, or by the one that looks at its weights.
const root = $(".live");
const GOING = ["waiting", "starting", "training", "paused", "stopping"];
const ENDED = ["done", "stopped", "failed", "gone", "checkpoint", "empty"];
const KINDS = {
  cross: { from: "Answer position", to: "source position", reading: "Down: the right answer, each symbol as it is due. Across: where the model looks in the source." },
  encoder: { from: "Source position", to: "source position", reading: "Down: the source. Across: where each of its positions looks." },
  decoder: { from: "Answer position", to: "given position", reading: "Down: the right answer, each symbol as it is due. Across: what the model was given so far. Hatched: the future." },
};
// A family with one stack has the sequence and the answer in one row.
const ONE_ROW = { from: "Place", to: "place", reading: "Down: the sequence, then the answer so far. Across: where each place looks. Hatched: the future." };
const IN_PLACE = { from: "Place", to: "place", reading: "Down: the sequence, then blanks (SOS) where the row is longer. Across: where each place looks." };
const spec = () => (stage.axes.cross || !stage.axes[kind] ? KINDS[kind] : kind === "decoder" ? ONE_ROW : IN_PLACE);
const GLYPHS = { PAD: ["·", "the model wrote PAD, which fills rows and is never right"], SOS: ["‹", "the model wrote SOS, which starts a target and is never right"] };
const METRICS = {
  loss: ["Loss", "Cross-entropy of the next symbol on the training batch of each step"],
  learning_rate: ["Learning rate", "The rate that each step took, warm-up and schedule included"],
  gradient_norm: ["Gradient norm", "Length of the gradient of each step, before it was shortened to the clip"],
};

// What is on show, and what is known of it.
let owner = "", subject = "", linked = "", first = "", generation = 0, fresh = true;
let curve, scored, count, epoch, looks; // the points, and how much of them the server has told
let last = {}, status = "opening", stage, snapshot, scores, recorded = [];
let shown = null, viewed = null; // the snapshot on show, and the earlier step that one has gone back to
let kind = "cross", head = [0, 0], metric = "loss", hoverStep = null, hoverCell = null, drawing = false;
const overlays = new Map(); // subject -> {colour, curve}: runs laid over the curves

const nth = (n) => (n === 1 ? "next" : n === 2 ? "second" : n === 3 ? "third" : n + "th") + " in line";
function sentence() {
  const p = last.latest, step = last.step || 0;
  const of = last.steps && step < last.steps ? " of " + last.steps.toLocaleString("en") : "";
  const where = (last.parameters ? " · " + last.parameters.toLocaleString("en") + " parameters" : "") + (last.device ? " · " + last.device : "") + (subject.startsWith("watch:") ? " · shared with you, to look at" : "");
  const best = scored && scored.length ? scored[scored.length - 1] : null;
  const soFar = best ? " · exact match " + percent(best[1]) + " of " + plural(best[3], "held-out sequence") : "";
  const score = scores ? " · exact match " + percent(scores.exact_match) + " of " + plural(scores.n, "held-out sequence") : soFar;
  const trouble = last.message ? last.message[0].toUpperCase() + last.message.slice(1) + ". " : "";
  switch (status) {
    case "waiting": return last.slice ? trouble + "Waiting for the next slice of the GPU · step " + step + of + " · slices go on while this run is on show" + where : trouble ? trouble + "It starts by itself" : "Waiting: " + (slots ? "all " + slots + " training places are taken" : "no place is free") + (last.place ? " · " + nth(last.place) : "") + " · it starts by itself";
    case "starting": return last.sliced ? "Asking ZeroGPU for a GPU" : "Starting a worker";
    case "training": return last.branched && step < last.branched ? "Going to step " + last.branched + " again, to the bit (" + step + ")" + where : trouble + "Training · step " + step + of + (p && p.steps_per_second && !last.speed ? " · " + number(p.steps_per_second) + " steps/s" : last.speed ? " · slowed to " + plural(last.speed, "step") + "/s" : "") + where + (last.left ? " · pauses in " + duration(last.left[0]) + ": " + last.left[1] : "");
    case "paused": return trouble + "Paused at step " + step + of + (last.branched === step && last.live ? ", where this run branched off: change something, then Resume" : "") + where;
    case "empty": return "No model yet: press Train.";
    case "stopping": return "Stopping and saving; Stop again ends it at once";
    case "done": return trouble + "Done · " + plural(step, "step") + " in " + duration(p && p.seconds ? p.seconds : 0) + score + where;
    case "stopped": return trouble + "Stopped at step " + step + of + " and saved" + soFar + where;
    case "checkpoint": return "Checkpoint " + last.name + " · trained " + plural(step, "step") + score + where;
    case "failed": return "Failed: " + last.message;
    case "gone": return last.message || "This run is not on this server, or not yours. Train a new one, or choose another model above.";
    default: return "Opening";
  }
}
