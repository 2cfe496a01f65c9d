// "Fine-tune": a pretrained model trained further on the task of the visitor's model, by the Trainer that trained that one
// (comparison/finetune.py). What comes of it is a model that the table takes.
const tuned = { what: null, memory: null, steps: [], result: null };
const COSTS = [["weights", "weights"], ["gradients", "gradients"], ["averages", "Adam's two averages"], ["activations", "what a step keeps for its backward pass"]];
let tune, tuning;

VIEWS.finetune = {
  title: "Fine-tune",
  explain: "A pretrained model trained further on the task of your model, by the same Trainer, for a few steps; then the table again, with its few-shot self, its fine-tuned self, and the model from scratch.",
  build(box) {
    const form = kept("finetune") || {};
    tune = {
      field: modelField({ value: typeof form.model === "string" && form.model ? form.model : "gpt2", change: planTuning }), fields: {}, cost: el("p", { className: "hint cost" }), go: el("button", { type: "submit", className: "quiet main tune-it", textContent: "Fine-tune it" }),
      caption: el("p", { className: "fairness", textContent: "Scored as everywhere, on held-out sequences, but without a worked example in the prompt: what it answers comes from its training. Step 0 is the model as it came. Cancel keeps the weights so far." }),
      score: el("canvas", { className: "tuned-score" }), loss: el("canvas", { className: "tuned-loss" }), words: el("p", { className: "verdict" }), ask: el("button", { type: "button", className: "quiet main ask-three", textContent: "Ask all three the same questions", hidden: true }),
    };
    tuning = asker("finetune", { begun: tuningBegun, rows: tuningRows, over: tuningOver });
    const numbers = [["steps", "Steps", 100, 1, 5000, 1, "Updates of its weights"], ["learning_rate", "Learning rate", 0.0002, 1e-8, 0.1, "any", "Its peak, after a warm-up over a tenth of the steps; then it falls along a cosine"], ["batch_size", "Sequences a step", 16, 1, 256, 1, "More of them take more memory"], ["n", "Scored on", 64, 1, 1000, 1, "Held-out sequences behind each score"]];
    const form2 = el("form", { className: "numbers" }, ...numbers.map(([name, label, value, min, max, step, title]) => {
      const input = el("input", { type: "number", min, max, step, value: typeof form[name] === "number" ? form[name] : value, required: true, className: "of-" + name });
      input.addEventListener("input", () => { rememberTuning(); clearTimeout(tune.timer); tune.timer = setTimeout(planTuning, 500); });
      tune.fields[name] = input;
      return el("label", { title }, label, input);
    }), tune.cost, tune.go);
    form2.addEventListener("submit", async (event) => { event.preventDefault(); rememberTuning(); await quiet; tuning.ask("finetune", wishes(), state.subject); });
    tune.ask.addEventListener("click", askAllThree);
    for (const [canvas, text] of [[tune.score, "Exact match by training step"], [tune.loss, "Loss by training step"]]) { canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", text); }
    const chartBox = (title, canvas) => el("figure", {}, el("figcaption", { textContent: title }), canvas);
    box.append(el("div", { className: "columns" },
      el("section", { className: "side", ariaLabel: "What is fine-tuned" }, el("h3", { textContent: "To be trained further" }), el("div", { className: "field-box" }, tune.field.box), form2),
      el("section", { className: "main-part", ariaLabel: "How it learns" }, tuning.line, tune.caption, el("div", { className: "charts" }, chartBox("Exact match on held-out sequences", tune.score), chartBox("Loss (logarithmic)", tune.loss)), tune.words, tune.ask)));
    const before = kept("tuned");
    if (before && before.result) Object.assign(tuned, before);
    sayTuned();
  },
  fields() { rememberTuning(); return ["finetune"]; },
  show() { tune.field.look(); if (!tune.planned) planTuning(); drawTuning(); },
  chosen() { tune.planned = ""; if (state.view === "finetune") planTuning(); },
};
const wishes = () => ({ model: tune.field.value, ...Object.fromEntries(Object.entries(tune.fields).map(([name, input]) => [name, name === "learning_rate" ? +input.value : Math.round(+input.value)])) });
function rememberTuning() { keep("finetune", wishes()); }

// What it would take, before anything is fetched.
async function planTuning() {
  const what = wishes(), question = JSON.stringify([state.subject, what]);
  if (!what.model || !owner || tune.planned === question || tuning.busy) return;
  tune.planned = question;
  let told;
  try { told = await quietly("finetune-plan", what, () => {}, state.subject); } catch (error) { told = { error: error.told ? error.message : "no answer from the server; try again" }; }
  if (tune.planned !== question) return;
  tune.cost.classList.toggle("error", Boolean(told.error) || !told.fits);
  if (told.error) { tune.cost.textContent = sentenceOf(told.error); return; }
  tune.cost.textContent = "Training takes about " + bytes(told.bytes) + " of memory" + (told.parts.activations ? "" : " and what a step keeps") + "; " + bytes(told.free) + " are free" + (told.fits ? "." : ", which is too little: choose a smaller model, or end a run.");
  tune.cost.title = COSTS.filter(([key]) => told.parts[key]).map(([key, label]) => label + " " + bytes(told.parts[key])).join(", ");
}

// ---------------------------------------------------------------- how it goes
function tuningBegun(what) { tuned.next = what; tune.go.disabled = true; sayTuned(); }
function tuningRows(rows) {
  for (const row of rows) {
    if (row.kind === "memory") Object.assign(tuned, { what: tuned.next, memory: row, steps: [], result: null }); // the curves before stay until here
    else if (row.kind === "step") tuned.steps.push(row);
  }
  sayTuned(); drawTuning();
}
function tuningOver(told) {
  tune.go.disabled = false;
  if (told.result) tuned.result = told.result; // of a cancelled one, too, once its weights are on the disk
  if (tuned.result) keep("tuned", { what: tuned.what, memory: tuned.memory, steps: tuned.steps.filter((row, i) => tuned.steps.length < 400 || row.scored || i % Math.ceil(tuned.steps.length / 400) === 0).map(({ step, loss, exact_match, scored }) => ({ step, loss, exact_match, scored })), result: tuned.result });
  sayTuned(); drawTuning();
  if (tuned.what) lookUp([tuned.what.model], true); // it is on this machine now
  tune.planned = ""; planTuning();
  if (told.status === "done") return "Trained " + plural(told.result.steps, "step") + " in " + duration(told.result.seconds) + ".";
}
const looks = () => tuned.steps.filter((row) => typeof row.exact_match === "number");
function sayTuned() {
  const seen = looks(), first = seen[0], last = seen[seen.length - 1], name = tuned.result ? tuned.result.from : tuned.what ? tuned.what.model : "";
  tune.words.textContent = !first && tuning.busy ? "" : !first ? "Nothing was fine-tuned here yet: choose a model and press Fine-tune it." : name + ": exact match " + percent(first.exact_match) + " as it came" + (last.step ? ", " + percent(last.exact_match) + " after " + plural(last.step, "step") : "") + ", of " + plural(first.scored, "held-out sequence") + "." + (tuned.result ? " It is kept as " + tuned.result.model + (tuned.result.note ? "; " + tuned.result.note : "") + "." : "");
  tune.ask.hidden = !tuned.result;
}
function drawTuning() {
  if (!tune.score.clientWidth) return;
  root.style.setProperty("--hue-0", hueOf(0));
  const most = Math.max(10, tuned.what ? tuned.what.steps : 0), losses = tuned.steps.filter((row) => typeof row.loss === "number").map((row) => [row.step, Math.log10(Math.max(row.loss, 1e-6))]);
  lines(tune.score, [looks().map((row) => [row.step, row.exact_match])], [0, 1], [[0, "0"], [0.5, "50 %"], [1, "100 %"]], most);
  const low = Math.floor(Math.min(-1, ...losses.map(([, v]) => v))), high = Math.max(0.5, ...losses.map(([, v]) => v)), ticks = [];
  for (let e = low; e <= high; e++) ticks.push([e, String(+(10 ** e).toPrecision(1))]);
  lines(tune.loss, [losses], [low, high + 0.1], ticks, most);
  tune.score.drawn = looks(); // tests read it
}
// The table with the model as it came, which gets worked examples, what it became, and the model from scratch.
function askAllThree() {
  const both = [tuned.result.from, tuned.result.model], others = table.models.filter((each) => !both.includes(each.name)).map((each) => ({ ...each, on: false }));
  table.models = [...both.map((name) => ({ name, on: true })), ...others].slice(0, MODELS_AT_MOST);
  rememberTable();
  go("table");
  askThem();
}
