// The live view, one program in five files (live.py puts them together): words and numbers, drawing, following a model,
// going back in time, the runs. It polls the server for what it does not know yet; it holds no connection open, and nothing it
// shows is computed here: every number was measured by the process that trains, or by the one that looks at its weights.
const $ = (selector) => element.querySelector(selector);
const root = $(".live");
const GOING = ["waiting", "starting", "training", "paused", "stopping"];
const ENDED = ["done", "stopped", "failed", "gone", "checkpoint", "empty"];
const KINDS = {
  cross: { rows: "written", columns: "source", from: "Answer position", to: "source position", reading: "Down: the right answer, each symbol as it is due. Across: where the model looks in the source." },
  encoder: { rows: "source", columns: "source", from: "Source position", to: "source position", reading: "Down: the source. Across: where each of its positions looks." },
  decoder: { rows: "written", columns: "given", from: "Answer position", to: "given position", reading: "Down: the right answer, each symbol as it is due. Across: what the model was given so far. Hatched: the future." },
};
const GLYPHS = { PAD: ["·", "the model wrote PAD, which fills rows and is never right"], SOS: ["‹", "the model wrote SOS, which starts a target and is never right"] };
const METRICS = {
  loss: ["Loss", "Cross-entropy of the next symbol on the training batch of each step"],
  learning_rate: ["Learning rate", "The rate that each step took, warm-up and schedule included"],
  gradient_norm: ["Gradient norm", "Length of the gradient of each step, before it was shortened to the clip"],
};

// What is on show, and what is known of it.
let owner = "", subject = "", first = "", generation = 0, fresh = true;
let curve, scored, count, epoch, looks; // the points, and how much of them the server has told
let last = {}, status = "opening", stage, snapshot, scores, recorded = [];
let shown = null, viewed = null; // the snapshot on show, and the earlier step that one has gone back to
let kind = "cross", head = [0, 0], metric = "loss", hoverStep = null, hoverCell = null, drawing = false;
const overlays = new Map(); // subject -> {colour, curve}: runs laid over the curves

const number = (x) => (x === 0 ? "0" : Math.abs(x) >= 0.0001 ? String(+x.toPrecision(3)) : x.toExponential(1));
const percent = (x) => (x === 1 ? "100 %" : (Math.floor(x * 1000) / 10).toFixed(1) + " %");
const duration = (s) => (s < 60 ? s.toFixed(1) + " s" : s < 3600 ? Math.floor(s / 60) + " min " + Math.round(s % 60) + " s" : Math.floor(s / 3600) + " h " + Math.round((s % 3600) / 60) + " min");
const ago = (s) => (s < 60 ? "just now" : s < 3600 ? Math.floor(s / 60) + " min" : s < 86400 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d");
const plural = (n, noun) => n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");
const bytes = (n) => (n < 1e6 ? Math.round(n / 1e3) + " KB" : (n / 1e6).toFixed(1) + " MB");
const nth = (n) => (n === 1 ? "next" : n === 2 ? "second" : n === 3 ? "third" : n + "th") + " in line";
const base = new URL("playground/", location.origin + location.pathname.replace(/\/?$/, "/"));
// Ask the server (asked.py). Throws when there is no answer.
async function call(name, request) {
  const reply = await fetch(new URL("ask/" + name, base), {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request), signal: AbortSignal.timeout(20000),
  });
  if (!reply.ok) throw new Error("the server answered " + reply.status);
  return reply.json();
}
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function sentence() {
  const p = last.latest, step = last.step || 0;
  const of = last.steps && step < last.steps ? " of " + last.steps.toLocaleString("en") : "";
  const where = (last.parameters ? " · " + last.parameters.toLocaleString("en") + " parameters" : "") + (last.device ? " · " + last.device : "") + (subject.startsWith("watch:") ? " · shared with you, to look at" : "");
  const best = scored && scored.length ? scored[scored.length - 1] : null;
  const soFar = best ? " · exact match " + percent(best[1]) + " of " + plural(best[3], "held-out sequence") : "";
  const score = scores ? " · exact match " + percent(scores.exact_match) + " of " + plural(scores.n, "held-out sequence") : soFar;
  const trouble = last.message ? last.message[0].toUpperCase() + last.message.slice(1) + ". " : "";
  switch (status) {
    case "waiting": return "Waiting: " + (slots ? "all " + slots + " training places are taken" : "no place is free") + (last.place ? " · " + nth(last.place) : "") + " · it starts by itself";
    case "starting": return "Starting a worker";
    case "training": return last.branched && step < last.branched ? "Going to step " + last.branched + " again, to the bit (" + step + ")" + where : trouble + "Training · step " + step + of + (p && p.steps_per_second && !last.speed ? " · " + number(p.steps_per_second) + " steps/s" : last.speed ? " · slowed to " + plural(last.speed, "step") + "/s" : "") + where;
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
