// Benchmark: several models on the same held-out sequences. comparison/benchmark.py sends the rows;
// this file keeps the newest of each.
const MAX_MODELS = 6,
  RESULTS_KEY = "transformer-playground-compare-table",
  MAX_RESULTS_LENGTH = 2_500_000;
const METRIC_COLUMNS = [
  [
    "exact_match",
    "exact match",
    "Fraction of examples with a completely correct answer: no missing and no extra tokens",
  ],
  [
    "token_accuracy",
    "token accuracy",
    "Fraction of target tokens that are predicted at the correct position",
  ],
  [
    "rank_accuracy",
    "ranking",
    "Fraction of ranked examples whose target is more probable than all other candidates; " +
      "the small mark is the chance level",
  ],
];
const FAIRNESS_NOTE =
  "Your model was trained on this task; pretrained models were trained on text only and " +
  "receive few-shot examples in the prompt. The comparison is therefore not between equals.";
const benchmarkResults = {
  what: null,
  settings: null,
  rows: new Map(),
  items: new Map(),
  leaks: [],
  estimates: new Map(),
  part: 0,
};
let benchmarkForm, benchmarkJob; // the elements, and the active job

VIEWS.table = {
  title: "Benchmark",
  explain:
    "Evaluates your model, pretrained models from the Hub, and trivial baselines on the " +
    "same held-out sequences with the same metrics.",
  build(box) {
    const form = loadLocal("table") || {};
    benchmarkForm = {
      models: Array.isArray(form.models)
        ? form.models.filter((each) => each && typeof each.name === "string").slice(0, MAX_MODELS)
        : DEFAULT_MODELS.map((name) => ({ name, on: true })),
      list: el("ul", { className: "suggestions" }),
      name: el("input", {
        type: "text",
        placeholder: "user/name",
        spellcheck: false,
        autocomplete: "off",
        maxLength: 200,
        title: "A model name on the Hub, or a folder if the app serves only this machine",
      }),
      names: el("datalist", { id: "compare-names" }),
      fields: {},
      sum: el("p", { className: "hint sum" }),
      problem: el("p", { className: "problem" }),
      go: el("button", {
        type: "submit",
        className: "quiet main run-benchmark",
        textContent: "Run",
      }),
      caption: el("p", { className: "fairness", textContent: FAIRNESS_NOTE }),
      body: el("tbody"),
      leaks: el("div", { className: "leaks" }),
      items: el("div", { className: "items" }),
      note: el("p", { className: "hint note" }),
      files: el("span", { className: "files" }),
    };
    benchmarkJob = createJobRunner("table", {
      onStart: onBenchmarkStart,
      onRows: onBenchmarkRows,
      onProgress: renderResults,
      onFinish: onBenchmarkFinish,
    });
    benchmarkForm.name.setAttribute("list", "compare-names");
    benchmarkForm.name.setAttribute("aria-label", "Another model");
    const adding = el(
      "form",
      { className: "adding" },
      benchmarkForm.name,
      benchmarkForm.names,
      el("button", { type: "submit", className: "quiet", textContent: "Add" }),
    );
    adding.addEventListener("submit", (event) => {
      event.preventDefault();
      addModel(benchmarkForm.name.value.trim());
    });
    benchmarkForm.problem.setAttribute("role", "alert");
    benchmarkForm.name.addEventListener("input", () => {
      benchmarkForm.problem.textContent = "";
    });
    const numbers = [
      ["n", "Examples", 20, 1, 500, "Held-out sequences for every model"],
      [
        "shots",
        "Few-shot examples",
        8,
        0,
        32,
        "Examples in the prompt of pretrained models, as many as fit into the context",
      ],
      [
        "rank",
        "Ranked examples",
        5,
        0,
        500,
        "Examples with candidate ranking; a model such as BERT needs about 100 forward " +
          "passes for each, which takes minutes on a CPU",
      ],
    ];
    const form2 = el(
      "form",
      { className: "numbers" },
      ...numbers.map(([name, label, value, min, max, title]) => {
        const input = el("input", {
          type: "number",
          min,
          max,
          step: 1,
          value: Number.isInteger(form[name]) ? form[name] : value,
          required: true,
          className: "of-" + name,
        });
        input.addEventListener("input", saveBenchmarkForm);
        benchmarkForm.fields[name] = input;
        return el("label", { title }, label, input);
      }),
      el("p", {
        className: "hint",
        textContent: "Ranking: is the target more probable than other answers of its length?",
      }),
      benchmarkForm.sum,
      benchmarkForm.go,
    );
    form2.addEventListener("submit", (event) => {
      event.preventDefault();
      runBenchmark();
    });
    const heads = [
        "model",
        ...METRIC_COLUMNS.map(([, text]) => text),
        "examples",
        "parameters",
        "time per example",
        "memory",
      ],
      titles = [
        "",
        ...METRIC_COLUMNS.map(([, , title]) => title),
        "Evaluated held-out sequences",
        "Trained parameters",
        "Seconds per output, without the time for ranking",
        "Memory of the weights; below, the growth of the model process",
      ];
    const head = el(
      "tr",
      {},
      ...heads.map((text, i) =>
        el("th", {
          scope: "col",
          textContent: text,
          title: titles[i],
          className: i === 0 ? "" : i < 4 ? "score" : "number",
        }),
      ),
    );
    for (const [text, make] of [
      [
        "Table (CSV)",
        () => downloadBlob("compare.csv", new Blob([toCsv(resultRows())], { type: "text/csv" })),
      ],
      [
        "Answers (CSV)",
        () =>
          downloadBlob("compare-items.csv", new Blob([toCsv(exampleRows())], { type: "text/csv" })),
      ],
      [
        "All data (JSON)",
        () =>
          downloadBlob(
            "compare.json",
            new Blob([JSON.stringify(exportData(), null, 1)], { type: "application/json" }),
          ),
      ],
    ]) {
      const button = el("button", { type: "button", className: "quiet", textContent: text });
      button.addEventListener("click", make);
      benchmarkForm.files.append(button);
    }
    benchmarkForm.whole = el(
      "table",
      { className: "sheet" },
      el("thead", {}, head),
      benchmarkForm.body,
    );
    box.append(
      el(
        "div",
        { className: "columns" },
        el(
          "section",
          { className: "side", ariaLabel: "Benchmark settings" },
          el("h3", { textContent: "Compared models" }),
          benchmarkForm.list,
          adding,
          benchmarkForm.problem,
          form2,
        ),
        el(
          "section",
          { className: "main-part", ariaLabel: "Benchmark results" },
          benchmarkJob.line,
          benchmarkForm.caption,
          el("div", { className: "scrolling", tabIndex: 0 }, benchmarkForm.whole),
          benchmarkForm.leaks,
          el(
            "div",
            { className: "bar" },
            el("h3", { textContent: "Results by example" }),
            benchmarkForm.files,
          ),
          benchmarkForm.note,
          benchmarkForm.items,
        ),
      ),
    );
    listeners.push(renderModelList);
    renderModelList();
    loadResults();
  },
  fields() {
    saveBenchmarkForm();
    return ["table"];
  },
  show() {
    renderModelList();
    loadModelFacts(benchmarkForm.models.map((each) => each.name));
  },
};

// ---------------------------------------------------------------- models
function renderModelList() {
  const signature = JSON.stringify(
    benchmarkForm.models.map((each) => [each, formatModelCost(each.name)]),
  );
  renderSuggestions(benchmarkForm.names);
  benchmarkForm.name.placeholder = localPathsAllowed ? "user/name, or a folder" : "user/name";
  if (benchmarkForm.list.dataset.signature === signature) return;
  benchmarkForm.list.dataset.signature = signature;
  benchmarkForm.list.replaceChildren(
    ...benchmarkForm.models.map((each) => {
      const [words, wrong] = formatModelCost(each.name),
        tick = el("input", { type: "checkbox", checked: each.on }),
        away = el("button", {
          type: "button",
          className: "away",
          textContent: "×",
          title: "Remove " + each.name,
          ariaLabel: "Remove " + each.name,
        });
      tick.addEventListener("change", () => {
        each.on = tick.checked;
        saveBenchmarkForm();
        renderModelList();
      });
      away.addEventListener("click", () => {
        benchmarkForm.models = benchmarkForm.models.filter((other) => other !== each);
        saveBenchmarkForm();
        renderModelList();
      });
      return el(
        "li",
        {},
        el("label", {}, tick, el("span", { className: "name", textContent: each.name })),
        away,
        el("span", { className: "takes" + (wrong ? " error" : ""), textContent: words }),
      );
    }),
  );
  renderCost();
}
function addModel(name) {
  const there = benchmarkForm.models.some((each) => each.name === name);
  benchmarkForm.problem.textContent = !name
    ? "Type a model name first, such as gpt2 or user/name."
    : there
      ? name + " is already in the list."
      : benchmarkForm.models.length >= MAX_MODELS
        ? "The limit is " + pluralize(MAX_MODELS, "model") + " besides yours; remove one first."
        : "";
  if (benchmarkForm.problem.textContent) return; // the typed name stays
  benchmarkForm.name.value = "";
  benchmarkForm.models.push({ name, on: true });
  saveBenchmarkForm();
  renderModelList();
  loadModelFacts([name]);
}
function renderCost() {
  const chosen = benchmarkForm.models.filter((each) => each.on),
    away = chosen
      .map((each) => modelFacts.get(each.name))
      .filter((row) => row && row.where === "hub" && row.bytes);
  const unknown = chosen.filter((each) => !modelFacts.has(each.name)).length;
  benchmarkForm.sum.textContent = away.length
    ? "Downloads " +
      formatBytes(away.reduce((sum, row) => sum + row.bytes, 0)) +
      " first, once: " +
      away.map((row) => row.name).join(", ") +
      "."
    : unknown || !chosen.length || chosen.some((each) => modelFacts.get(each.name).message)
      ? ""
      : "No download needed.";
}
const currentNumbers = () =>
  Object.fromEntries(
    Object.entries(benchmarkForm.fields).map(([name, input]) => [name, Math.round(+input.value)]),
  );
function saveBenchmarkForm() {
  saveLocal("table", { models: benchmarkForm.models, ...currentNumbers() });
}
function runBenchmark() {
  const models = benchmarkForm.models.filter((each) => each.on).map((each) => each.name),
    { n, shots, rank } = currentNumbers();
  loadModelFacts(benchmarkForm.models.map((each) => each.name));
  benchmarkJob.run(
    "benchmark",
    { models, n, shots, rank: Math.min(n, rank), of: state.subject },
    state.subject,
  );
}

// ---------------------------------------------------------------- results
function onBenchmarkStart(request) {
  benchmarkForm.go.textContent = "Run again";
  benchmarkResults.pending = request;
  benchmarkResults.part += 1;
  if (request.retry) {
    benchmarkResults.leaks = benchmarkResults.leaks.filter((leak) => leak.model !== request.retry);
    benchmarkResults.cleared = false;
  }
  renderResults();
}
function onBenchmarkRows(rows, response, request) {
  for (const row of rows) applyRow(row, request);
}
function applyRow(row, request) {
  const only = request.retry;
  if (row.kind === "settings" && !only)
    Object.assign(benchmarkResults, {
      what: request,
      settings: row,
      rows: new Map(),
      items: new Map(),
      leaks: [],
      estimates: new Map(),
      subject: request.of || "",
    });
  if (only && row.model !== only) return;
  const id = benchmarkResults.part + ":" + row.place;
  if (row.kind === "model") {
    if (only && !benchmarkResults.cleared) {
      for (const [key, each] of benchmarkResults.rows)
        if (each.model === only) {
          benchmarkResults.rows.delete(key);
          for (const of of benchmarkResults.items.values()) of.delete(key);
        }
      benchmarkResults.cleared = true;
    }
    benchmarkResults.rows.set(id, row);
  } else if (row.kind === "estimate") benchmarkResults.estimates.set(id, row);
  else if (row.kind === "leak") benchmarkResults.leaks.push(row);
  else if (row.kind === "item") {
    if (!benchmarkResults.items.has(row.number)) benchmarkResults.items.set(row.number, new Map());
    benchmarkResults.items.get(row.number).set(id, row);
  }
}
function onBenchmarkFinish(response, request) {
  benchmarkResults.pending = null;
  renderResults(response);
  // the downloaded models are now on this machine
  if (request.models.length) loadModelFacts(request.models, true);
  listLocalModels();
  saveResults();
  return response.status === "done"
    ? "Evaluated: " +
        pluralize([...benchmarkResults.items.keys()].length, "example") +
        ", " +
        pluralize(
          [...benchmarkResults.rows.values()].filter((row) => !isBaseline(row) && !row.error)
            .length,
          "model",
        ) +
        " and the baselines."
    : "";
}
function saveResults() {
  const whole = JSON.stringify({
    ...benchmarkResults,
    pending: null,
    rows: [...benchmarkResults.rows],
    estimates: [...benchmarkResults.estimates],
    items: [...benchmarkResults.items].map(([number, of]) => [number, [...of]]),
  });
  try {
    if (whole.length < MAX_RESULTS_LENGTH) localStorage.setItem(RESULTS_KEY, whole);
    else localStorage.removeItem(RESULTS_KEY);
  } catch (error) {
    /* storage is full: the server keeps the results for some time */
  }
}
function loadResults() {
  try {
    const whole = JSON.parse(localStorage.getItem(RESULTS_KEY) || "null");
    if (whole && whole.settings)
      Object.assign(benchmarkResults, whole, {
        pending: null,
        rows: new Map(whole.rows),
        estimates: new Map(whole.estimates),
        items: new Map(whole.items.map(([number, of]) => [number, new Map(of)])),
      });
  } catch (error) {
    /* the stored value is malformed */
  }
  renderResults();
}

// ---------------------------------------------------------------- the table
const isBaseline = (row) => row.what === "baseline";
// Your model first, then the selected models in their order, then the baselines.
function sortedRows() {
  const requested = benchmarkResults.what ? benchmarkResults.what.models : [],
    rank = (row) =>
      isBaseline(row) ? 1000 : requested.includes(row.model) ? 1 + requested.indexOf(row.model) : 0;
  return [...benchmarkResults.rows].sort(
    ([a, x], [b, y]) => rank(x) - rank(y) || x.place - y.place || (a < b ? -1 : 1),
  );
}
function createScoreCell(row, name) {
  const cell = el("td", { className: "score" }),
    value = row[name],
    low = row[name + "_low"],
    high = row[name + "_high"],
    of = name === "rank_accuracy" ? row.ranked : name === "token_accuracy" ? row.symbols : row.n;
  if (value === null || value === undefined) {
    cell.append(
      el("span", {
        className: "nothing",
        textContent: "–",
        title: row.over ? "not measured" : "not yet",
      }),
    );
    return cell;
  }
  const chance = name === "rank_accuracy" && !isBaseline(row) ? row.rank_chance : null;
  cell.title =
    formatProbability(value) +
    (of ? " of " + of.toLocaleString("en") : "") +
    (low === null || low === undefined
      ? ""
      : "; 95 % interval " + formatPercent(low) + " to " + formatPercent(high)) +
    (chance === null || chance === undefined ? "" : "; chance " + formatProbability(chance));
  cell.append(
    el("span", { className: "value", textContent: formatProbability(value) }),
    " ",
    el("span", {
      className: "interval",
      textContent:
        low === null || low === undefined
          ? ""
          : "[" + Math.round(100 * low) + "–" + Math.round(100 * high) + "]",
    }),
  );
  const track = el("span", { className: "track" });
  if (low !== null && low !== undefined)
    track.append(
      el("i", {
        className: "range",
        style: "left:" + 100 * low + "%;width:" + Math.max(1, 100 * (high - low)) + "%",
      }),
    );
  if (chance !== null && chance !== undefined)
    track.append(el("i", { className: "chance", style: "left:" + 100 * chance + "%" }));
  track.append(el("i", { className: "dot", style: "left:" + 100 * value + "%" }));
  cell.append(track);
  if (chance !== null && chance !== undefined)
    cell.append(
      el("span", { className: "what", textContent: "chance " + formatProbability(chance) }),
    );
  return cell;
}
const formatSecondsPerExample = (s) =>
  s === null || s === undefined
    ? ""
    : s < 0.0995
      ? formatNumber(+(1000 * s).toPrecision(2)) + " ms"
      : formatNumber(+s.toPrecision(2)) + " s";
// The number of evaluated examples of an active or cancelled model.
const formatExampleCount = (row) =>
  row.over || row.error || !benchmarkResults.what
    ? String(row.n)
    : row.n + " of " + benchmarkResults.what.n;
function createResultRow(id, row) {
  const name = el(
    "td",
    { className: "who" },
    el("span", { className: "name", textContent: row.model }),
    el("span", { className: "what", textContent: row.what + (row.way ? "; " + row.way : "") }),
  );
  if (row.note) name.append(el("span", { className: "what", textContent: row.note }));
  const cells = [name];
  if (row.error) {
    const cell = el(
        "td",
        { className: "failed", colSpan: 7 },
        el("span", {
          textContent:
            formatMessage(row.error) + (row.n ? " Evaluated before the error: " + row.n + "." : ""),
        }),
        " ",
      ),
      again = el("button", { type: "button", className: "quiet", textContent: "Try again" });
    again.disabled = benchmarkJob.busy;
    again.addEventListener("click", () => retryModel(row.model));
    cell.append(again);
    return el("tr", { className: "wrong-row" }, ...cells, cell);
  }
  cells.push(...METRIC_COLUMNS.map(([score]) => createScoreCell(row, score)));
  const estimate = benchmarkResults.estimates.get(id);
  cells.push(
    el("td", {
      className: "number",
      textContent: formatExampleCount(row),
      title: estimate ? estimate.message : "",
    }),
  );
  cells.push(
    el("td", {
      className: "number",
      textContent: row.parameters ? row.parameters.toLocaleString("en") : "",
    }),
  );
  cells.push(
    el("td", {
      className: "number",
      textContent: formatSecondsPerExample(row.seconds_an_item),
      title: row.rank_seconds_an_item
        ? "and " + formatSecondsPerExample(row.rank_seconds_an_item) + " per ranked example"
        : "",
    }),
  );
  cells.push(
    el(
      "td",
      { className: "number" },
      row.weights_bytes ? formatBytes(row.weights_bytes) : "",
      ...(row.added_bytes > 0
        ? [
            el("span", {
              className: "what",
              textContent: "process + " + formatBytes(row.added_bytes),
            }),
          ]
        : []),
    ),
  );
  return el("tr", { className: isBaseline(row) ? "baseline" : "" }, ...cells);
}
function createPendingRow(name, response, first) {
  const what =
    first && response && response.unit === "bytes"
      ? "downloading, " + formatBytes(response.done) + " of " + formatBytes(response.total)
      : first && benchmarkJob.busy
        ? "running"
        : "queued";
  return [
    what,
    el(
      "tr",
      { className: "to-come" },
      el(
        "td",
        { className: "who" },
        el("span", { className: "name", textContent: name }),
        el("span", { className: "what", textContent: what }),
      ),
      el("td", { colSpan: 7 }),
    ),
  ];
}
function renderResults(response = null) {
  const rowSpecs = sortedRows().map(([id, row]) => [
    id,
    JSON.stringify([row, benchmarkJob.busy && row.error]),
    () => createResultRow(id, row),
  ]);
  if (
    benchmarkResults.pending &&
    !benchmarkResults.pending.retry &&
    benchmarkResults.what === benchmarkResults.pending
  ) {
    const left = benchmarkResults.pending.models.filter(
        (name) => ![...benchmarkResults.rows.values()].some((row) => row.model === name),
      ),
      own = [...benchmarkResults.rows.values()].some(
        (row) =>
          !isBaseline(row) && !benchmarkResults.pending.models.includes(row.model) && row.over,
      );
    const before = rowSpecs.findIndex(([id]) => isBaseline(benchmarkResults.rows.get(id)));
    rowSpecs.splice(
      before < 0 ? rowSpecs.length : before,
      0,
      ...left.map((name, i) => {
        const [words, row] = createPendingRow(name, response, own && i === 0);
        return ["to come " + name, name + words, () => row];
      }),
    );
  }
  const existing = new Map([...benchmarkForm.body.children].map((row) => [row.dataset.id, row]));
  const rows = rowSpecs.map(([id, signature, make]) => {
    const before = existing.get(id);
    if (before && before.dataset.signature === signature) return before;
    const row = make();
    row.dataset.id = id;
    row.dataset.signature = signature;
    return row;
  });
  benchmarkForm.body.replaceChildren(
    ...(rows.length
      ? rows
      : [
          el(
            "tr",
            { className: "to-come" },
            el(
              "td",
              { colSpan: 8 },
              el("span", {
                className: "empty",
                textContent: "No results yet. Select models to compare and press Run.",
              }),
            ),
          ),
        ]),
  );
  if (benchmarkResults.settings)
    benchmarkForm.caption.textContent = benchmarkResults.settings.caption;
  const leaks = benchmarkResults.leaks.map((leak) => leak.message).join("\n");
  if (benchmarkForm.leaks.dataset.text !== leaks) {
    benchmarkForm.leaks.dataset.text = leaks;
    benchmarkForm.leaks.replaceChildren(
      ...benchmarkResults.leaks.map((leak) =>
        el("p", { className: "hint", textContent: leak.message }),
      ),
    );
  }
  benchmarkForm.files.hidden = !benchmarkResults.rows.size;
  renderExamples();
  benchmarkForm.whole.dataset.rows = benchmarkResults.rows.size; // tests wait for this attribute
}
function retryModel(name) {
  const { n, shots, rank } = benchmarkResults.what;
  benchmarkJob.run(
    "benchmark",
    { models: [name], n, shots, rank, retry: name },
    benchmarkResults.subject,
  );
}

// ---------------------------------------------------------------- examples
const decodingSuffix = (row) =>
  /at once/.test(row.way) ? " (all slots)" : /one slot/.test(row.way) ? " (one slot)" : "";
function renderExamples() {
  benchmarkForm.note.textContent = benchmarkResults.settings
    ? formatMessage(benchmarkResults.settings.note)
    : "Each example with its prompt, the model output and the parsed answer.";
  const existing = new Map(
      [...benchmarkForm.items.children].map((each) => [each.dataset.number, each]),
    ),
    examples =
      benchmarkResults.settings && benchmarkResults.settings.examples.length
        ? benchmarkResults.settings.examples
        : [];
  const boxes = [];
  if (examples.length) {
    const signature = JSON.stringify(examples);
    let box = existing.get("examples");
    if (!box || box.dataset.signature !== signature) {
      box = el(
        "details",
        {},
        el("summary", { className: "plain" }, "Few-shot examples (not held out)"),
        el("pre", {
          textContent: examples.map(([source, right]) => source + "  →  " + right).join("\n"),
        }),
      );
      box.dataset.number = "examples";
      box.dataset.signature = signature;
    }
    boxes.push(box);
  }
  for (const [at, answers] of [...benchmarkResults.items].sort(([a], [b]) => a - b)) {
    const by = sortedRows()
      .filter(([id]) => answers.has(id))
      .map(([id, row]) => [row, answers.get(id)]);
    if (!by.length) continue;
    const signature =
      by.map(([row, item]) => row.model + row.way + item.raw).join("\n") + by[0][1].question;
    let box = existing.get(String(at));
    if (!box) {
      box = el(
        "details",
        { className: "item" },
        el("summary"),
        el("div", { className: "answers" }),
      );
      box.dataset.number = at;
      box.addEventListener("toggle", () => {
        if (box.open) renderExample(box);
      });
    }
    box.by = by;
    if (box.dataset.signature !== signature) {
      box.dataset.signature = signature;
      const marks = by.map(([row, item]) =>
        el("span", {
          className: "mark " + (item.right ? "ok" : "bad"),
          textContent: (item.right ? "✓ " : "✗ ") + row.model + decodingSuffix(row),
          title: item.right ? "correct" : "wrong",
        }),
      );
      box.firstChild.replaceChildren(
        el("span", {
          className: "question",
          textContent: by[0][1].question + " → " + by[0][1].answer,
        }),
        el("span", { className: "marks" }, ...marks),
      );
      if (box.open) renderExample(box);
    }
    boxes.push(box);
  }
  const same =
    boxes.length === benchmarkForm.items.children.length &&
    boxes.every((box, i) => benchmarkForm.items.children[i] === box);
  if (!same) benchmarkForm.items.replaceChildren(...boxes);
}
function renderExample(box) {
  if (box.dataset.filled === box.dataset.signature) return;
  box.dataset.filled = box.dataset.signature;
  box.lastChild.replaceChildren(...box.by.map(([row, item]) => createAnswer(row, item)));
}
// The text of a token, with visible whitespace.
const visibleWhitespace = (text) =>
  text.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
function createAnswer(row, item) {
  const part = (label, ...content) => [el("dt", { textContent: label }), el("dd", {}, ...content)];
  const tokens = el(
    "div",
    { className: "tokens" },
    ...item.tokens.map((token, i) =>
      el("span", {
        className: "token t" + (i % 4),
        textContent: visibleWhitespace(token),
        title:
          "token " +
          (i + 1) +
          " of " +
          item.tokens.length +
          (item.ids[i] === undefined ? "" : ", id " + item.ids[i]),
      }),
    ),
  );
  const right = item.answer.split(" "),
    read = el("span", { className: "symbols" });
  if (item.read === null)
    read.append(
      el("span", {
        className: "wrong",
        textContent: "no answer: the output is not a list of tokens separated by spaces",
      }),
    );
  else {
    for (let i = 0; i < Math.max(right.length, item.read.length); i++) {
      const answer = item.read[i],
        fine = i < right.length && answer === right[i];
      read.append(
        el("span", {
          className: fine ? "" : "wrong",
          textContent: answer === undefined ? "_" : answer === null ? "?" : answer,
          title: fine
            ? "correct"
            : i >= right.length
              ? "extra token"
              : (answer === undefined
                  ? "missing"
                  : answer === null
                    ? "not a token of the task"
                    : "wrong") +
                "; target: " +
                right[i],
        }),
        " ",
      );
    }
    read.append(
      el("span", {
        className: item.right ? "ok" : "wrong verdict",
        textContent: item.right ? "✓ correct" : "✗ wrong",
      }),
    );
  }
  const parts = [];
  if (item.prompt) parts.push(...part("prompt", el("pre", { textContent: item.prompt })));
  if (item.tokens.length) parts.push(...part(pluralize(item.tokens.length, "token"), tokens));
  parts.push(
    ...part("output", el("code", { className: "raw", textContent: visibleWhitespace(item.raw) })),
    ...part("parsed as", read),
  );
  if (item.candidates.length) {
    const sorted = [...item.candidates].sort(
      (a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity),
    );
    parts.push(
      ...part(
        "ranked",
        el(
          "details",
          {},
          el("summary", {
            className: "plain",
            textContent:
              "the target has rank " +
              item.rank +
              " of " +
              pluralize(sorted.length, "candidate") +
              " by log-probability",
          }),
          el(
            "table",
            { className: "candidates" },
            el(
              "tbody",
              {},
              ...sorted.map((each) =>
                el(
                  "tr",
                  { className: each.right ? "right" : "" },
                  el("td", { className: "mono", textContent: each.symbols }),
                  el("td", { textContent: each.made + (each.right ? " ✓ target" : "") }),
                  el("td", {
                    className: "number",
                    textContent: each.score === null ? "–∞" : each.score.toFixed(2),
                  }),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }
  return el(
    "div",
    { className: "answer-of" },
    el("h4", { textContent: row.model + decodingSuffix(row) }),
    el("dl", {}, ...parts),
  );
}

// ---------------------------------------------------------------- files
const resultRows = () => sortedRows().map(([, { kind, place, over, ...row }]) => row);
const exampleRows = () =>
  [...benchmarkResults.items]
    .sort(([a], [b]) => a - b)
    .flatMap(([, answers]) =>
      [...answers].map(([id, item]) => ({
        model: item.model,
        way: (benchmarkResults.rows.get(id) || {}).way || "",
        number: item.number,
        question: item.question,
        answer: item.answer,
        raw: item.raw,
        read: (item.read || []).map((each) => each || "?").join(" "),
        right: Number(item.right),
        places: item.places.map(Number).join(""),
        rank: item.rank,
        candidates: item.candidates.length,
        seconds: item.seconds,
        prompt: item.prompt,
      })),
    );
const exportData = () => ({
  settings: benchmarkResults.settings,
  rows: resultRows(),
  leaks: benchmarkResults.leaks,
  items: [...benchmarkResults.items]
    .sort(([a], [b]) => a - b)
    .flatMap(([, answers]) => [...answers.values()]),
});
