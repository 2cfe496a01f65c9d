// Fine-tuning of a pretrained model on the task of the user's model, by the same Trainer
// (comparison/finetune.py). The benchmark accepts the resulting model.
const tuned = { what: null, memory: null, steps: [], result: null };
const COSTS = [
  ["weights", "weights"],
  ["gradients", "gradients"],
  ["averages", "Adam states"],
  ["activations", "activations for the backward pass"],
];
let tune, tuning;

VIEWS.finetune = {
  title: "Fine-tune",
  explain:
    "Fine-tunes a pretrained model on the task of your model for a few steps. Then compare " +
    "the few-shot, the fine-tuned and the from-scratch model in the benchmark.",
  build(box) {
    const form = kept("finetune") || {};
    tune = {
      field: modelField({
        value: typeof form.model === "string" && form.model ? form.model : "gpt2",
        change: planTuning,
      }),
      fields: {},
      cost: el("p", { className: "hint cost" }),
      go: el("button", {
        type: "submit",
        className: "quiet main tune-it",
        textContent: "Fine-tune",
      }),
      caption: el("p", {
        className: "fairness",
        textContent:
          "Evaluated on held-out sequences without few-shot examples. Step 0 is the " +
          "pretrained model. Cancel keeps the current weights.",
      }),
      score: el("canvas", { className: "tuned-score" }),
      loss: el("canvas", { className: "tuned-loss" }),
      words: el("p", { className: "verdict" }),
      ask: el("button", {
        type: "button",
        className: "quiet main ask-three",
        textContent: "Compare all three in the benchmark",
        hidden: true,
      }),
    };
    tuning = asker("finetune", { begun: tuningBegun, rows: tuningRows, over: tuningOver });
    const numbers = [
      ["steps", "Steps", 100, 1, 5000, 1, "Number of weight updates"],
      [
        "learning_rate",
        "Learning rate",
        0.0002,
        1e-8,
        0.1,
        "any",
        "Peak value; warm-up over the first tenth of the steps, then cosine decay",
      ],
      ["batch_size", "Batch size", 16, 1, 256, 1, "Larger batches need more memory"],
      ["n", "Evaluation size", 64, 1, 1000, 1, "Held-out sequences per evaluation"],
    ];
    const form2 = el(
      "form",
      { className: "numbers" },
      ...numbers.map(([name, label, value, min, max, step, title]) => {
        const input = el("input", {
          type: "number",
          min,
          max,
          step,
          value: typeof form[name] === "number" ? form[name] : value,
          required: true,
          className: "of-" + name,
        });
        input.addEventListener("input", () => {
          rememberTuning();
          clearTimeout(tune.timer);
          tune.timer = setTimeout(planTuning, 500);
        });
        tune.fields[name] = input;
        return el("label", { title }, label, input);
      }),
      tune.cost,
      tune.go,
    );
    form2.addEventListener("submit", async (event) => {
      event.preventDefault();
      rememberTuning();
      await quiet;
      tuning.ask("finetune", wishes(), state.subject);
    });
    tune.ask.addEventListener("click", askAllThree);
    for (const [canvas, text] of [
      [tune.score, "Exact match by training step"],
      [tune.loss, "Loss by training step"],
    ]) {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", text);
    }
    const chartBox = (title, canvas) =>
      el("figure", {}, el("figcaption", { textContent: title }), canvas);
    box.append(
      el(
        "div",
        { className: "columns" },
        el(
          "section",
          { className: "side", ariaLabel: "Fine-tuning settings" },
          el("h3", { textContent: "Model to fine-tune" }),
          el("div", { className: "field-box" }, tune.field.box),
          form2,
        ),
        el(
          "section",
          { className: "main-part", ariaLabel: "Training curves" },
          tuning.line,
          tune.caption,
          el(
            "div",
            { className: "charts" },
            chartBox("Exact match on held-out sequences", tune.score),
            chartBox("Loss (logarithmic)", tune.loss),
          ),
          tune.words,
          tune.ask,
        ),
      ),
    );
    const before = kept("tuned");
    if (before && before.result) Object.assign(tuned, before);
    sayTuned();
  },
  fields() {
    rememberTuning();
    return ["finetune"];
  },
  show() {
    tune.field.look();
    if (!tune.planned) planTuning();
    drawTuning();
  },
  chosen() {
    tune.planned = "";
    if (state.view === "finetune") planTuning();
  },
};
const wishes = () => ({
  model: tune.field.value,
  ...Object.fromEntries(
    Object.entries(tune.fields).map(([name, input]) => [
      name,
      name === "learning_rate" ? +input.value : Math.round(+input.value),
    ]),
  ),
});
function rememberTuning() {
  keep("finetune", wishes());
}

// The required memory, before any download.
async function planTuning() {
  const what = wishes(),
    question = JSON.stringify([state.subject, what]);
  if (!what.model || !owner || tune.planned === question || tuning.busy) return;
  tune.planned = question;
  let told;
  try {
    told = await quietly("finetune-plan", what, () => {}, state.subject);
  } catch (error) {
    told = { error: error.told ? error.message : "the server did not respond; try again" };
  }
  if (tune.planned !== question) return;
  tune.cost.classList.toggle("error", Boolean(told.error) || !told.fits);
  if (told.error) {
    tune.cost.textContent = sentenceOf(told.error);
    return;
  }
  tune.cost.textContent =
    "Training needs about " +
    bytes(told.bytes) +
    " of memory" +
    (told.parts.activations ? "" : " plus activations") +
    "; " +
    bytes(told.free) +
    " are free" +
    (told.fits ? "." : ", which is not enough. Select a smaller model or stop a run.");
  tune.cost.title = COSTS.filter(([key]) => told.parts[key])
    .map(([key, label]) => label + " " + bytes(told.parts[key]))
    .join(", ");
}

// ---------------------------------------------------------------- progress
function tuningBegun(what) {
  tuned.next = what;
  tune.go.disabled = true;
  sayTuned();
}
function tuningRows(rows) {
  for (const row of rows) {
    if (row.kind === "memory")
      // the previous curves stay until here
      Object.assign(tuned, { what: tuned.next, memory: row, steps: [], result: null });
    else if (row.kind === "step") tuned.steps.push(row);
  }
  sayTuned();
  drawTuning();
}
function tuningOver(told) {
  tune.go.disabled = false;
  // also of a cancelled job, after its weights are saved
  if (told.result) tuned.result = told.result;
  if (tuned.result)
    keep("tuned", {
      what: tuned.what,
      memory: tuned.memory,
      steps: tuned.steps
        .filter(
          (row, i) =>
            tuned.steps.length < 400 || row.scored || i % Math.ceil(tuned.steps.length / 400) === 0,
        )
        .map(({ step, loss, exact_match, scored }) => ({ step, loss, exact_match, scored })),
      result: tuned.result,
    });
  sayTuned();
  drawTuning();
  if (tuned.what) lookUp([tuned.what.model], true); // it is now on this machine
  tune.planned = "";
  planTuning();
  if (told.status === "done")
    return (
      "Trained " + plural(told.result.steps, "step") + " in " + duration(told.result.seconds) + "."
    );
}
const looks = () => tuned.steps.filter((row) => typeof row.exact_match === "number");
function sayTuned() {
  const seen = looks(),
    first = seen[0],
    last = seen[seen.length - 1],
    name = tuned.result ? tuned.result.from : tuned.what ? tuned.what.model : "";
  tune.words.textContent =
    !first && tuning.busy
      ? ""
      : !first
        ? "No fine-tuned model yet. Select a model and press Fine-tune."
        : name +
          ": exact match " +
          percent(first.exact_match) +
          " before fine-tuning" +
          (last.step
            ? ", " + percent(last.exact_match) + " after " + plural(last.step, "step")
            : "") +
          ", of " +
          plural(first.scored, "held-out sequence") +
          "." +
          (tuned.result
            ? " It is saved as " +
              tuned.result.model +
              (tuned.result.note ? "; " + tuned.result.note : "") +
              "."
            : "");
  tune.ask.hidden = !tuned.result;
}
function drawTuning() {
  if (!tune.score.clientWidth) return;
  root.style.setProperty("--hue-0", hueOf(0));
  const most = Math.max(10, tuned.what ? tuned.what.steps : 0),
    losses = tuned.steps
      .filter((row) => typeof row.loss === "number")
      .map((row) => [row.step, Math.log10(Math.max(row.loss, 1e-6))]);
  lines(
    tune.score,
    [looks().map((row) => [row.step, row.exact_match])],
    [0, 1],
    [
      [0, "0"],
      [0.5, "50 %"],
      [1, "100 %"],
    ],
    most,
  );
  const low = Math.floor(Math.min(-1, ...losses.map(([, v]) => v))),
    high = Math.max(0.5, ...losses.map(([, v]) => v)),
    ticks = [];
  for (let e = low; e <= high; e++) ticks.push([e, String(+(10 ** e).toPrecision(1))]);
  lines(tune.loss, [losses], [low, high + 0.1], ticks, most);
  tune.score.drawn = looks(); // tests read this property
}
// Open the benchmark with the pretrained model (few-shot), the fine-tuned model and the model from
// scratch.
function askAllThree() {
  const both = [tuned.result.from, tuned.result.model],
    others = table.models
      .filter((each) => !both.includes(each.name))
      .map((each) => ({ ...each, on: false }));
  table.models = [...both.map((name) => ({ name, on: true })), ...others].slice(0, MODELS_AT_MOST);
  rememberTable();
  go("table");
  askThem();
}
