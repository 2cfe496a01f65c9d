// The live view, one program in five files after common.js (live.py puts them together): words, drawing, following a model,
// going back in time, the runs. It polls the server for what it does not know yet; it holds no connection open, and nothing it
// shows is computed here: every number was measured by the process that trains, or by the one that looks at its weights.
const root = $(".live");
const GOING = ["waiting", "starting", "training", "paused", "stopping"];
const ENDED = ["done", "stopped", "failed", "gone", "checkpoint", "empty"];
const KINDS = {
  cross: { from: "Target position", to: "source position", reading: "Rows: target tokens (queries). Columns: source tokens (keys)." },
  encoder: { from: "Source position", to: "source position", reading: "Rows: source tokens (queries). Columns: source tokens (keys)." },
  decoder: { from: "Target position", to: "target position", reading: "Rows: target tokens (queries). Columns: earlier target tokens (keys). Masked positions are hatched." },
};
// A family with one stack has the sequence and the answer in one row.
const ONE_ROW = { from: "Position", to: "position", reading: "Rows: source and target tokens (queries). Columns: the same tokens (keys). Masked positions are hatched." };
const IN_PLACE = { from: "Position", to: "position", reading: "Rows: source tokens, then SOS padding (queries). Columns: the same tokens (keys)." };
const spec = () => (stage.axes.cross || !stage.axes[kind] ? KINDS[kind] : kind === "decoder" ? ONE_ROW : IN_PLACE);
const GLYPHS = { PAD: ["·", "the model generated PAD, which is always wrong"], SOS: ["‹", "the model generated SOS, which is always wrong"] };
const METRICS = {
  loss: ["Loss", "Cross-entropy of the next token on the training batch of each step"],
  learning_rate: ["Learning rate", "Learning rate of each step, after warm-up and schedule"],
  gradient_norm: ["Gradient norm", "Gradient norm of each step, before clipping"],
};

// What is on show, and what is known of it.
let owner = "", subject = "", linked = "", first = "", generation = 0, fresh = true;
let curve, scored, count, epoch, looks; // the points, and how much of them the server has told
let last = {}, status = "opening", stage, snapshot, scores, recorded = [];
let shown = null, viewed = null; // the snapshot on show, and the earlier step that one has gone back to
let kind = "cross", head = [0, 0], metric = "loss", hoverStep = null, hoverCell = null, drawing = false;
const overlays = new Map(); // subject -> {colour, curve}: runs laid over the curves

const nth = (n) => (n === 1 ? "next" : n === 2 ? "second" : n === 3 ? "third" : n + "th") + " in the queue";
function sentence() {
  const p = last.latest, step = last.step || 0;
  const of = last.steps && step < last.steps ? " of " + last.steps.toLocaleString("en") : "";
  const where = (last.parameters ? " · " + last.parameters.toLocaleString("en") + " parameters" : "") + (last.device ? " · " + last.device : "") + (subject.startsWith("watch:") ? " · shared with you, read-only" : "");
  const best = scored && scored.length ? scored[scored.length - 1] : null;
  const soFar = best ? " · exact match " + percent(best[1]) + " of " + plural(best[3], "held-out sequence") : "";
  const score = scores ? " · exact match " + percent(scores.exact_match) + " of " + plural(scores.n, "held-out sequence") : soFar;
  const trouble = last.message ? last.message[0].toUpperCase() + last.message.slice(1) + ". " : "";
  switch (status) {
    case "waiting": return last.slice ? trouble + "Waiting for the next slice of the GPU · step " + step + of + " · slices go on while this run is on show" + where : trouble ? trouble + "The run starts automatically" : "Queued: " + (slots ? "all " + slots + " training slots are in use" : "no training slot is free") + (last.place ? " · " + nth(last.place) : "") + " · starts automatically";
    case "starting": return last.sliced ? "Requesting a GPU from ZeroGPU" : "Starting a worker";
    case "training": return last.branched && step < last.branched ? "Going to step " + last.branched + " again, to the bit (" + step + ")" + where : trouble + "Training · step " + step + of + (p && p.steps_per_second && !last.speed ? " · " + number(p.steps_per_second) + " steps/s" : last.speed ? " · slowed to " + plural(last.speed, "step") + "/s" : "") + where + (last.left ? " · pauses in " + duration(last.left[0]) + ": " + last.left[1] : "");
    case "paused": return trouble + "Paused at step " + step + of + (last.branched === step && last.live ? ", where this run branched off: change something, then Resume" : "") + where;
    case "empty": return "No model yet: press Train.";
    case "stopping": return "Stopping and saving. Press Stop again to stop immediately.";
    case "done": return trouble + "Done · " + plural(step, "step") + " in " + duration(p && p.seconds ? p.seconds : 0) + score + where;
    case "stopped": return trouble + "Stopped at step " + step + of + " and saved" + soFar + where;
    case "checkpoint": return "Checkpoint " + last.name + " · trained " + plural(step, "step") + score + where;
    case "failed": return "Failed: " + last.message;
    case "gone": return last.message || "This run is not on this server, or not yours. Train a new one, or choose another model above.";
    default: return "Opening";
  }
}
