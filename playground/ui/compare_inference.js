// Inference with any text and any model of the Hub: fill-mask, text generation, classification,
// training of a classification head, and a mismatched tokenizer (pretrained/inference.py,
// finetuning/classifier.py, probing/tokenizer_mismatch.py).
const SAMPLE_CSV = `text,label
a good film and a fine story,good
what a good film,good
I loved every minute of it,good
a wonderful cast and a clever ending,good
the best evening in a long while,good
funny and warm and never too long,good
beautiful pictures and a moving score,good
I would gladly see it again,good
a great film for the whole family,good
sharp and honest and full of life,good
it made me laugh and think,good
a small masterpiece,good
a bad film and a weak story,bad
what a bad film,bad
I hated every minute of it,bad
a wooden cast and a foolish ending,bad
the worst evening in a long while,bad
dull and cold and far too long,bad
ugly pictures and a noisy score,bad
I would never see it again,bad
a poor film that nobody needs,bad
flat and false and without life,bad
it made me yawn and leave,bad
a complete waste of time,bad
`;
const MAX_CSV_BYTES = 1_000_000; // bytes; equal to the limit of finetuning/labelled_texts.py
const inferenceView = { part: "fill", parts: {} };

VIEWS.free = {
  title: "Inference",
  explain:
    "Runs any Hub model on any text. Only safetensors weights are loaded, never remote " +
    "code. The download size is shown first.",
  build(box) {
    const before = loadLocal("free-part"),
      parts = {
        fill: createFillMaskForm,
        continue: createGenerationForm,
        classify: createClassifyForm,
        train: createTrainHeadForm,
        mismatch: createTokenizerMismatchForm,
      };
    if (Object.hasOwn(parts, before)) inferenceView.part = before;
    for (const [name, make] of Object.entries(parts)) inferenceView.parts[name] = make(name);
    inferenceView.choice = createSegmentedControl(
      Object.entries(inferenceView.parts).map(([name, part]) => [name, part.title, part.about]),
      inferenceView.part,
      selectTask,
      "Task",
    );
    box.append(
      el("div", { className: "row parts" }, inferenceView.choice),
      ...Object.values(inferenceView.parts).map((part) => part.box),
    );
    listeners.push(autoRunInference);
    selectTask(inferenceView.part);
  },
  fields() {
    inferenceView.parts[inferenceView.part].remember();
    return ["free-part", "free-" + inferenceView.part];
  },
  show() {
    const part = inferenceView.parts[inferenceView.part];
    part.fields.forEach((field) => field.loadFacts());
    if (part.draw) part.draw();
    autoRunInference();
  },
};
function selectTask(name) {
  inferenceView.part = name;
  saveLocal("free-part", name);
  setPressed(inferenceView.choice, name);
  for (const [each, part] of Object.entries(inferenceView.parts)) part.box.hidden = each !== name;
  if (VIEWS.free.box.offsetParent) VIEWS.free.show();
}
// The first task runs without a click if its model is already on this machine.
function autoRunInference() {
  if (state.view === "free" && inferenceView.part === "fill")
    autoRun(
      inferenceView.parts.fill.runner,
      "free-fill",
      inferenceView.parts.fill.fields,
      inferenceView.parts.fill.run,
    );
}

// ---------------------------------------------------------------- shared parts
// Run once without a click if all models are on this machine and there is no stored job.
function autoRun(jobRunner, key, fields, start) {
  if (jobRunner.done || jobRunner.busy || loadLocal("job-" + key) || !owner || !root.offsetParent)
    return;
  if (
    !fields.every((field) => {
      const row = modelFacts.get(field.value);
      return row && !row.message && row.where !== "hub";
    })
  )
    return;
  jobRunner.done = true;
  start();
}
// An owner may have two jobs at a time. If another job with a progress line is active, wait for the
// short jobs first, but not indefinitely.
async function runJob(jobRunner, kind, request) {
  jobRunner.done = true;
  while (!owner) await sleep(100); // the owner key has not arrived yet
  if (jobRunners.some((each) => each !== jobRunner && each.busy))
    await Promise.race([backgroundQueue, sleep(2500)]);
  await jobRunner.run(kind, request);
}
const createTokenList = (list) =>
  el(
    "div",
    { className: "tokens" },
    ...list.map((token, i) =>
      el("span", {
        className: "token t" + (i % 4),
        textContent: visibleWhitespace(token.word),
        title: "token " + (i + 1) + " of " + list.length + ": " + token.token + ", id " + token.id,
      }),
    ),
  );
const formatProbability = (x) => (x > 0 && x < 0.001 ? "< 0.1 %" : formatPercent(x));
// Readable names of tokens that start with a space or a line break.
const readableToken = (token) => token.replaceAll(/[Ġ▁]/g, "·").replaceAll("Ċ", "↵");
// Probabilities (or other fractions) as bars: [label, value, { chosen, title, words }].
function createBarList(rows) {
  return el(
    "table",
    { className: "shares" },
    el(
      "tbody",
      {},
      ...rows.map(
        ([label, value, { chosen = false, title = "", words = formatProbability(value) } = {}]) => {
          const bar = el("i");
          bar.style.width = Math.max(0.5, 100 * Math.min(1, Math.max(0, value))) + "%";
          return el(
            "tr",
            { className: chosen ? "chosen" : "" },
            el("th", { scope: "row", textContent: label, title }),
            el("td", { className: "bar-of" }, bar),
            el("td", { className: "number", textContent: words, title: String(value) }),
          );
        },
      ),
    ),
  );
}
// The name of a model; for a folder, the last part of its path.
const shortModelName = ({ model }) =>
  /^[~/.]/.test(model) ? model.split("/").filter(Boolean).pop() || model : model;
const createNotes = (notes) =>
  notes.map((text) => el("p", { className: "hint", textContent: formatMessage(text) }));
const answeredBy = (result) =>
  "Model: " +
  result.model +
  (result.parameters ? ", " + pluralize(result.parameters, "parameter") : "");
// A form on the left and its result on the right. Controls are [key, label, element, title]; their
// values are stored. `after` creates the elements below the first control.
function createInferenceForm(
  name,
  {
    title,
    about,
    button,
    kind,
    models,
    controls,
    what,
    empty,
    after = null,
    onStart = () => {},
    onRows = () => {},
    onFinish = () => "",
  },
) {
  const memoryOf = loadLocal("free-" + name) || {},
    inputs = {};
  const part = {
    name,
    title,
    about,
    inputs,
    out: el("div", { className: "out" }, el("p", { className: "hint", textContent: empty })),
  };
  const remember = () =>
    saveLocal("free-" + name, {
      ...Object.fromEntries(part.fields.map((field, i) => ["model" + i, field.value])),
      ...Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value])),
    });
  part.fields = models.map(([label, value], i) =>
    createModelPicker({
      label,
      value: memoryOf["model" + i] || value,
      change: () => {
        part.runner.done = true;
        remember();
      },
    }),
  );
  part.runner = createJobRunner("free-" + name, {
    onStart: (payload, isNew) => {
      part.runner.done = true;
      part.fresh = true;
      onStart(part, payload, isNew);
    },
    onRows: (list, response, payload) => {
      onRows(part, list, payload);
    },
    onFinish: (response, payload) => {
      loadModelFacts(
        part.fields.map((field) => field.value),
        true,
      ); // the downloaded models are now on this machine
      return onFinish(part, response, payload);
    },
  });
  const labels = controls.map(([key, label, input, hint = ""]) => {
    inputs[key] = input;
    if (typeof memoryOf[key] === "string") input.value = memoryOf[key];
    input.addEventListener("input", remember);
    input.addEventListener("change", remember);
    return el(
      "label",
      {
        title: hint,
        className: input.tagName === "TEXTAREA" || input.type === "text" ? "long" : "",
      },
      label,
      input,
    );
  });
  part.go = el("button", { type: "submit", className: "quiet main", textContent: button });
  part.run = () => runJob(part.runner, kind, what(part));
  const form = el(
    "form",
    { className: "numbers" },
    ...part.fields.map((field) => field.box),
    ...labels.slice(0, 1),
    ...(after ? [after(part)] : []),
    ...labels.slice(1),
    part.go,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    remember();
    part.run();
  });
  part.box = el(
    "div",
    { className: "columns part-" + name, hidden: true },
    el("section", { className: "side", ariaLabel: title }, form),
    el("section", { className: "main-part", ariaLabel: "Result" }, part.runner.line, part.out),
  );
  part.remember = remember;
  return part;
}
const createTextBox = (value, rows = 3) =>
  el("textarea", { value, rows, maxLength: 4000, required: true, spellcheck: false });
const createNumberBox = (value, min, max, step = 1) =>
  el("input", { type: "number", value, min, max, step, required: true });
const toInteger = (input) => Math.round(+input.value);

// ---------------------------------------------------------------- fill-mask
function createFillMaskForm(name) {
  return createInferenceForm(name, {
    title: "Fill-mask",
    about: "The fill-mask pipeline: predictions for each masked token",
    button: "Run",
    kind: "inference",
    models: [["Model", "bert-base-uncased"]],
    controls: [
      ["text", "Text with [MASK]", createTextBox("The capital of France is [MASK].")],
      ["top_k", "Candidates", createNumberBox(5, 1, 50)],
    ],
    what: (part) => ({
      task: "fill-mask",
      model: part.fields[0].value,
      text: part.inputs.text.value,
      top_k: toInteger(part.inputs.top_k),
    }),
    empty: "Predictions for each [MASK], with probabilities.",
    onFinish(part, response) {
      if (response.status !== "done") return "";
      const { result } = response;
      part.out.replaceChildren(
        el("h4", {
          textContent:
            "Input of " + shortModelName(result) + ": " + pluralize(result.tokens.length, "token"),
        }),
        createTokenList(result.tokens),
        ...result.gaps.flatMap((gap, i) => [
          el("h4", {
            textContent:
              result.gaps.length > 1
                ? "Mask " + (i + 1) + ", token " + (gap.place + 1)
                : "Mask, token " + (gap.place + 1),
          }),
          createBarList(
            gap.candidates.map((each, k) => [
              visibleWhitespace(each.word),
              each.probability,
              { chosen: k === 0, title: each.text },
            ]),
          ),
        ]),
        ...createNotes(result.notes),
      );
      return answeredBy(result);
    },
  });
}

// ---------------------------------------------------------------- text generation
function createGenerationForm(name) {
  const part = createInferenceForm(name, {
    title: "Text generation",
    about: "The text-generation pipeline, with alternatives for each token",
    button: "Generate",
    kind: "inference",
    models: [["Model", "gpt2"]],
    controls: [
      ["text", "Text", createTextBox("The capital of France is")],
      ["new_tokens", "New tokens", createNumberBox(40, 1, 200)],
      ["top_k", "Candidates displayed", createNumberBox(8, 1, 50)],
      [
        "way",
        "Decoding",
        el("select", {}, new Option("greedy", "greedy"), new Option("sampling", "drawn")),
      ],
      [
        "temperature",
        "Temperature (sampling)",
        createNumberBox(1, 0.01, 5, "any"),
        "Divides the logits; values below 1 favour probable tokens",
      ],
      [
        "top_p",
        "Top p (sampling)",
        createNumberBox(1, 0.01, 1, "any"),
        "Samples from the smallest set of tokens with this total probability",
      ],
      ["seed", "Seed (sampling)", createNumberBox(0, 0, 2147483647)],
    ],
    what: ({ fields, inputs }) => ({
      task: "text-generation",
      model: fields[0].value,
      text: inputs.text.value,
      new_tokens: toInteger(inputs.new_tokens),
      top_k: toInteger(inputs.top_k),
      way: inputs.way.value,
      ...(inputs.way.value === "drawn"
        ? {
            temperature: +inputs.temperature.value,
            top_p: +inputs.top_p.value,
            seed: toInteger(inputs.seed),
          }
        : {}),
    }),
    empty: "The generated text. Hover over a token to see its probability and the alternatives.",
    onRows: onGeneratedTokens,
    onFinish(part, response) {
      if (response.status !== "done") return "";
      part.ended.textContent =
        "Generated by " + shortModelName(response.result) + "; " + response.result.ended + ".";
      return answeredBy(response.result);
    },
  });
  const chance = () => {
    for (const key of ["temperature", "top_p", "seed"])
      part.inputs[key].disabled = part.inputs.way.value !== "drawn";
  };
  part.inputs.way.addEventListener("change", chance);
  chance();
  return part;
}
function onGeneratedTokens(part, rows, payload) {
  if (part.fresh) {
    // the previous text stays until the first new token
    part.fresh = false;
    part.written = [];
    part.at = null;
    part.text = el(
      "div",
      { className: "written" },
      el("span", { className: "prompt", textContent: payload.text }),
    );
    part.text.setAttribute("role", "group");
    part.text.setAttribute(
      "aria-label",
      "Generated text; use the arrow keys to move between tokens",
    );
    part.there = el("div", { className: "there" });
    part.ended = el("p", { className: "hint" });
    part.out.replaceChildren(part.text, part.ended, part.there);
    part.text.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || part.at === null) return;
      event.preventDefault();
      selectToken(part, Math.max(0, Math.min(part.written.length - 1, part.at + by)), true);
    });
  }
  for (const row of rows) {
    const at = part.written.length,
      token = el("button", {
        type: "button",
        className: "next",
        textContent: row.text || (row.word.includes("\ufffd") ? "" : visibleWhitespace(row.word)),
        title: formatProbability(row.probability),
      });
    if (!row.text) token.classList.add("no-text");
    token.style.setProperty("--sure", Math.round(6 + 44 * row.probability) + "%");
    token.addEventListener("pointerenter", () => selectToken(part, at));
    token.addEventListener("focus", () => selectToken(part, at));
    token.addEventListener("click", () => selectToken(part, at));
    part.written.push({ row, token });
    part.text.append(token);
  }
  part.ended.textContent =
    "A stronger background means a higher probability. Hover over a token or use the arrow keys.";
  if (part.written.length)
    selectToken(
      part,
      part.runner.busy && !part.text.matches(":hover, :focus-within")
        ? part.written.length - 1
        : (part.at ?? part.written.length - 1),
    );
}
function selectToken(part, at, focus = false) {
  if (part.at === at && part.there.dataset.at === String(at)) return;
  part.at = at;
  part.there.dataset.at = at;
  part.written.forEach(({ token }, i) => {
    token.tabIndex = i === at ? 0 : -1;
    token.classList.toggle("at", i === at);
  });
  const { row, token } = part.written[at];
  part.there.replaceChildren(
    el("h4", {
      textContent:
        "Token " +
        row.n +
        ", " +
        visibleWhitespace(row.word) +
        ": " +
        formatProbability(row.probability),
    }),
    createBarList(
      row.candidates.map((each) => [
        visibleWhitespace(each.word),
        each.probability,
        { chosen: each.id === row.id, title: each.token + ", id " + each.id },
      ]),
    ),
    ...(row.candidates.some((each) => each.id === row.id)
      ? []
      : createNotes(["the sampled token is not in this list, because it was less probable"])),
  );
  if (focus) token.focus();
}

// ---------------------------------------------------------------- classification
function createClassifyForm(name) {
  return createInferenceForm(name, {
    title: "Classify",
    about:
      "Runs the text-classification pipeline. A model without a trained head gets ten " +
      "randomly initialized ones.",
    button: "Classify",
    kind: "classify",
    models: [["Model", "bert-base-uncased"]],
    controls: [["text", "Text", createTextBox("what a good film")]],
    what: (part) => ({ model: part.fields[0].value, text: part.inputs.text.value }),
    empty:
      "The predicted labels. A model without a classification head, such as " +
      "bert-base-uncased, gets ten randomly initialized heads, whose predictions are " +
      "meaningless. distilbert/distilbert-base-uncased-finetuned-sst-2-english has a " +
      'trained head. The view "Train a head" trains one.',
    onFinish(part, response) {
      if (response.status !== "done") return "";
      const { result } = response;
      part.out.replaceChildren(
        ...(result.trained
          ? [
              el("h4", { textContent: "Predictions of " + shortModelName(result) }),
              createBarList(
                result.labels.map((each, i) => [each.label, each.probability, { chosen: i === 0 }]),
              ),
              el("h4", { textContent: "Input tokens" }),
              createTokenList(result.tokens),
            ]
          : [
              el("h4", {
                textContent: "Ten randomly initialized heads on " + shortModelName(result),
              }),
              createBarList(
                result.heads.map((head) => [
                  "seed " + head.seed + ": " + head.label,
                  head.probability,
                  { title: "A head initialized with this seed" },
                ]),
              ),
            ]),
        ...createNotes(result.notes),
      );
      return "Model: " + result.model;
    },
  });
}

// ---------------------------------------------------------------- training a head
function createTrainHeadForm(name) {
  const part = createInferenceForm(name, {
    title: "Train a head",
    about: "Trains a new classification head on labelled texts",
    button: "Train",
    kind: "train-classifier",
    models: [["Model", "bert-base-uncased"]],
    controls: [
      [
        "csv",
        "Labelled texts, as CSV with the columns text and label",
        Object.assign(createTextBox(SAMPLE_CSV, 9), { maxLength: MAX_CSV_BYTES, wrap: "off" }),
      ],
      [
        "sentence",
        "Test sentence",
        el("input", { type: "text", value: "a good film", required: true, maxLength: 1000 }),
      ],
      [
        "train",
        "Train",
        el("select", {}, new Option("all weights", "all"), new Option("head only", "head")),
        "Head only is faster and needs less memory",
      ],
      [
        "epochs",
        "Epochs",
        el("input", { type: "number", min: 1, max: 100, step: 1, placeholder: "auto" }),
        "Passes over the texts; if empty, about 60 steps",
      ],
      [
        "learning_rate",
        "Learning rate",
        el("input", { type: "number", min: 1e-7, max: 0.1, step: "any", placeholder: "default" }),
        "If empty: 5e-5, or 3e-3 for head only",
      ],
    ],
    what: ({ fields, inputs }) => ({
      model: fields[0].value,
      csv: inputs.csv.value,
      sentence: inputs.sentence.value,
      train: inputs.train.value,
      ...(inputs.epochs.value ? { epochs: toInteger(inputs.epochs) } : {}),
      ...(inputs.learning_rate.value ? { learning_rate: +inputs.learning_rate.value } : {}),
    }),
    empty:
      "The training curves. One fifth of the texts is held out; the test sentence is " +
      "classified before and after training.",
    after(part) {
      const file = el("input", { type: "file", accept: ".csv,text/csv", className: "unseen" }),
        open = el("button", {
          type: "button",
          className: "quiet open-csv",
          textContent: "Open a CSV file",
        }),
        problem = el("span", { className: "takes error" });
      open.addEventListener("click", () => file.click());
      file.setAttribute("aria-label", "A CSV file");
      file.tabIndex = -1;
      file.addEventListener("change", async () => {
        const chosen = file.files[0];
        file.value = "";
        problem.textContent =
          chosen && chosen.size > MAX_CSV_BYTES
            ? chosen.name +
              " is larger than " +
              formatBytes(MAX_CSV_BYTES) +
              "; the limit is 2,000 rows."
            : "";
        if (!chosen || problem.textContent) return;
        part.inputs.csv.value = await chosen.text();
        part.remember();
      });
      return el("div", { className: "from-file" }, open, file, problem);
    },
    onRows(part, rows) {
      if (part.fresh) {
        part.fresh = false;
        part.metrics = [];
        part.result = null;
      }
      part.metrics.push(...rows);
      paintTraining(part);
    },
    onFinish(part, response) {
      if (response.status !== "done") return "";
      part.result = response.result;
      paintTraining(part);
      return (
        "Trained " +
        pluralize(response.result.steps, "step") +
        " in " +
        formatDuration(response.result.seconds)
      );
    },
  });
  part.draw = () => {
    if (part.metrics) paintTraining(part);
  };
  return part;
}
function paintTraining(part) {
  if (!part.score) {
    Object.assign(part, {
      score: el("canvas", { className: "head-score" }),
      loss: el("canvas", { className: "head-loss" }),
      results: el("div"),
    });
    for (const [canvas, text] of [
      [part.score, "Accuracy on held-out texts by step"],
      [part.loss, "Loss by step"],
    ]) {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", text);
    }
    const chart = (title, canvas) =>
      el("figure", {}, el("figcaption", { textContent: title }), canvas);
    part.out.replaceChildren(
      el(
        "div",
        { className: "charts" },
        chart("Accuracy on held-out texts", part.score),
        chart("Loss (logarithmic)", part.loss),
      ),
      part.results,
    );
  }
  const last = part.metrics[part.metrics.length - 1];
  if (!last) return;
  if (part.score.clientWidth) {
    const maxValue = Math.max(10, last.step),
      losses = part.metrics
        .filter((row) => row.loss)
        .map((row) => [row.step, Math.log10(Math.max(row.loss, 1e-6))]);
    paintLines(
      part.score,
      [part.metrics.map((row) => [row.step, row.held_out_accuracy])],
      [0, 1],
      [
        [0, "0"],
        [0.5, "50 %"],
        [1, "100 %"],
      ],
      maxValue,
    );
    const low = Math.floor(Math.min(-1, ...losses.map(([, v]) => v))),
      high = Math.max(0.5, ...losses.map(([, v]) => v)),
      ticks = [];
    for (let e = low; e <= high; e++) ticks.push([e, String(+(10 ** e).toPrecision(1))]);
    paintLines(part.loss, [losses], [low, high + 0.1], ticks, maxValue);
    part.score.drawn = part.metrics; // tests read this property
  }
  const { result } = part;
  if (!result) {
    part.results.replaceChildren(
      el("p", {
        className: "verdict",
        textContent:
          "Step " +
          last.step +
          ": " +
          formatPercent(last.held_out_accuracy) +
          " of " +
          pluralize(last.n, "held-out text") +
          " correct.",
      }),
    );
    return;
  }
  if (part.results.of === result) return;
  part.results.of = result;
  const held = result.held_out,
    createExampleRow = (title, rows) =>
      el(
        "div",
        {},
        el("h4", { textContent: title }),
        createBarList(rows.map((each, i) => [each.label, each.probability, { chosen: i === 0 }])),
      );
  const more = el("button", {
    type: "button",
    className: "quiet",
    textContent: "Classify another text",
  });
  more.addEventListener("click", () => {
    const to = inferenceView.parts.classify;
    to.fields[0].value = result.folder;
    to.inputs.text.value = result.sentence;
    to.remember();
    selectTask("classify");
    to.run();
  });
  part.results.replaceChildren(
    el("p", {
      className: "verdict",
      textContent:
        "Held out: " +
        held.right +
        " of " +
        held.n +
        " correct, " +
        formatPercent(held.accuracy) +
        ", 95 % interval " +
        formatPercent(held.low) +
        " to " +
        formatPercent(held.high) +
        ". Chance is " +
        formatPercent(result.chance) +
        ", always the most frequent label " +
        formatPercent(result.majority_fraction) +
        ".",
    }),
    el("p", {
      className: "hint",
      textContent: "“" + result.sentence + "”, before and after training:",
    }),
    el(
      "div",
      { className: "charts" },
      createExampleRow("Before: " + result.before.note, result.before.labels),
      createExampleRow(
        "After " +
          pluralize(result.steps, "step") +
          " on " +
          pluralize(result.training_rows, "text"),
        result.after.labels,
      ),
    ),
    el("p", {
      className: "hint",
      textContent:
        pluralize(result.trained_parameters, "parameter") +
        " trained; about " +
        formatBytes(result.memory_estimate) +
        " of memory.",
    }),
    ...createNotes(result.notes),
    ...(result.folder ? [more] : []),
  );
}

// ---------------------------------------------------------------- tokenizer mismatch
function createTokenizerMismatchForm(name) {
  return createInferenceForm(name, {
    title: "Tokenizer mismatch",
    about: "A model with the tokenizer of another model",
    button: "Run",
    kind: "tokenizer-mismatch",
    models: [
      ["Model", "gpt2"],
      ["Tokenizer of", "bert-base-uncased"],
    ],
    controls: [
      [
        "text",
        "Text",
        Object.assign(createTextBox(""), {
          required: false,
          placeholder: "If empty: an example for the model",
        }),
        "A masked language model needs a [MASK] in the text",
      ],
    ],
    what: ({ fields, inputs }) => ({
      model: fields[0].value,
      tokenizer: fields[1].value,
      ...(inputs.text.value.trim() ? { text: inputs.text.value } : {}),
    }),
    empty:
      "A model receives token ids, not words. The same text is encoded with its own " +
      "tokenizer and with that of another model.",
    onFinish(part, response) {
      if (response.status !== "done") return "";
      const { result } = response,
        mark = (text, title) => el("span", { className: "row-name", textContent: text, title });
      const readBy = (title, side) =>
        el(
          "section",
          {},
          el("h4", { textContent: title }),
          el(
            "div",
            { className: "pairs" },
            el(
              "span",
              { className: "pair names" },
              mark("piece", ""),
              mark("id", "The token id that the model receives"),
              mark("to the model", "The token with this id in the model's own tokenizer"),
            ),
            ...side.tokens.map((token) => {
              const same = token.in_range && token.to_the_model === token.token;
              return el(
                "span",
                {
                  className: "pair" + (same ? "" : " differs"),
                  title: !token.in_range
                    ? "outside the embedding table of the model, therefore omitted"
                    : same
                      ? "the same token in both tokenizers"
                      : "a different token in the model's own tokenizer",
                },
                el("span", { textContent: readableToken(token.token) }),
                el("span", { className: "id", textContent: token.id.toLocaleString("en") }),
                el("span", {
                  textContent: !token.in_range
                    ? "✗ none"
                    : (same ? "= " : "≠ ") + readableToken(token.to_the_model || "unused"),
                }),
              );
            }),
          ),
          el(
            "dl",
            {},
            el("dt", { textContent: result.kind === "causal" ? "continuation" : "prediction" }),
            el(
              "dd",
              {},
              el("code", { className: "raw", textContent: visibleWhitespace(side.answer) }),
            ),
            ...(side.answer_by_own !== side.answer
              ? [
                  el("dt", {
                    textContent: "own decoding",
                    title: "The same ids, decoded by the model's own tokenizer",
                  }),
                  el(
                    "dd",
                    {},
                    el("code", {
                      className: "raw",
                      textContent: visibleWhitespace(side.answer_by_own),
                    }),
                  ),
                ]
              : []),
            ...(side.surprise === null
              ? []
              : [
                  el("dt", {
                    textContent: "loss",
                    title: "The mean negative log-probability of the text after its first token",
                  }),
                  el("dd", { textContent: formatNumber(side.surprise) + " nats per token" }),
                ]),
          ),
          ...(side.candidates.length
            ? [
                createBarList(
                  side.candidates.map((each, i) => [
                    visibleWhitespace(each.word),
                    each.probability,
                    {
                      chosen: i === 0,
                      title: "id " + each.id + ", in the model's own tokenizer " + each.by_own,
                    },
                  ]),
                ),
              ]
            : []),
        );
      part.out.replaceChildren(
        el("p", { className: "verdict", textContent: "“" + result.text + "”" }),
        readBy("With its own tokenizer, " + result.model, result.own),
        readBy("With the tokenizer of " + result.tokenizer, result.other),
        ...createNotes(result.notes),
      );
      return (
        "Model: " +
        result.model +
        ": " +
        pluralize(result.own.tokens.length, "token") +
        " with its own tokenizer, " +
        result.other.tokens.length +
        " with that of " +
        result.tokenizer
      );
    },
  });
}
