// Benchmark: several models on the same held-out sequences. comparison/table.py sends the rows;
// this
// file keeps the newest of each.
const MODELS_AT_MOST = 6,
  SHEET = "transformer-playground-compare-table",
  LARGEST_SHEET = 2_500_000;
const SCORES = [
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
const FAIR =
  "Your model was trained on this task; pretrained models were trained on text only and " +
  "receive few-shot examples in the prompt. The comparison is therefore not between equals.";
const sheet = {
  what: null,
  settings: null,
  rows: new Map(),
  items: new Map(),
  leaks: [],
  estimates: new Map(),
  part: 0,
};
let table, asking; // the elements, and the active job

VIEWS.table = {
  title: "Benchmark",
  explain:
    "Evaluates your model, pretrained models from the Hub, and trivial baselines on the " +
    "same held-out sequences with the same metrics.",
  build(box) {
    const form = kept("table") || {};
    table = {
      models: Array.isArray(form.models)
        ? form.models
            .filter((each) => each && typeof each.name === "string")
            .slice(0, MODELS_AT_MOST)
        : SUGGESTED.map((name) => ({ name, on: true })),
      list: el("ul", { className: "asked" }),
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
      go: el("button", { type: "submit", className: "quiet main ask-them", textContent: "Run" }),
      caption: el("p", { className: "fairness", textContent: FAIR }),
      body: el("tbody"),
      leaks: el("div", { className: "leaks" }),
      items: el("div", { className: "items" }),
      note: el("p", { className: "hint note" }),
      files: el("span", { className: "files" }),
    };
    asking = asker("table", {
      begun: tableBegun,
      rows: tableRows,
      going: drawSheet,
      over: tableOver,
    });
    table.name.setAttribute("list", "compare-names");
    table.name.setAttribute("aria-label", "Another model");
    const adding = el(
      "form",
      { className: "adding" },
      table.name,
      table.names,
      el("button", { type: "submit", className: "quiet", textContent: "Add" }),
    );
    adding.addEventListener("submit", (event) => {
      event.preventDefault();
      addModel(table.name.value.trim());
    });
    table.problem.setAttribute("role", "alert");
    table.name.addEventListener("input", () => {
      table.problem.textContent = "";
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
        input.addEventListener("input", rememberTable);
        table.fields[name] = input;
        return el("label", { title }, label, input);
      }),
      el("p", {
        className: "hint",
        textContent: "Ranking: is the target more probable than other answers of its length?",
      }),
      table.sum,
      table.go,
    );
    form2.addEventListener("submit", (event) => {
      event.preventDefault();
      askThem();
    });
    const heads = [
        "model",
        ...SCORES.map(([, text]) => text),
        "examples",
        "parameters",
        "time per example",
        "memory",
      ],
      titles = [
        "",
        ...SCORES.map(([, , title]) => title),
        "Evaluated held-out sequences",
        "Trained parameters",
        "Seconds per answer, without ranking",
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
        () => save("compare.csv", new Blob([csvOf(tableLines())], { type: "text/csv" })),
      ],
      [
        "Answers (CSV)",
        () => save("compare-items.csv", new Blob([csvOf(itemLines())], { type: "text/csv" })),
      ],
      [
        "All data (JSON)",
        () =>
          save(
            "compare.json",
            new Blob([JSON.stringify(everything(), null, 1)], { type: "application/json" }),
          ),
      ],
    ]) {
      const button = el("button", { type: "button", className: "quiet", textContent: text });
      button.addEventListener("click", make);
      table.files.append(button);
    }
    table.whole = el("table", { className: "sheet" }, el("thead", {}, head), table.body);
    box.append(
      el(
        "div",
        { className: "columns" },
        el(
          "section",
          { className: "side", ariaLabel: "Benchmark settings" },
          el("h3", { textContent: "Compared models" }),
          table.list,
          adding,
          table.problem,
          form2,
        ),
        el(
          "section",
          { className: "main-part", ariaLabel: "Benchmark results" },
          asking.line,
          table.caption,
          el("div", { className: "scrolling", tabIndex: 0 }, table.whole),
          table.leaks,
          el(
            "div",
            { className: "bar" },
            el("h3", { textContent: "Results by example" }),
            table.files,
          ),
          table.note,
          table.items,
        ),
      ),
    );
    listeners.push(listModels);
    listModels();
    recallSheet();
  },
  fields() {
    rememberTable();
    return ["table"];
  },
  show() {
    listModels();
    lookUp(table.models.map((each) => each.name));
  },
};

// ---------------------------------------------------------------- models
function listModels() {
  const signature = JSON.stringify(table.models.map((each) => [each, whatItTakes(each.name)]));
  offer(table.names);
  table.name.placeholder = foldersToo ? "user/name, or a folder" : "user/name";
  if (table.list.dataset.signature === signature) return;
  table.list.dataset.signature = signature;
  table.list.replaceChildren(
    ...table.models.map((each) => {
      const [words, wrong] = whatItTakes(each.name),
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
        rememberTable();
        listModels();
      });
      away.addEventListener("click", () => {
        table.models = table.models.filter((other) => other !== each);
        rememberTable();
        listModels();
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
  saySum();
}
function addModel(name) {
  const there = table.models.some((each) => each.name === name);
  table.problem.textContent = !name
    ? "Type a model name first, such as gpt2 or user/name."
    : there
      ? name + " is already in the list."
      : table.models.length >= MODELS_AT_MOST
        ? "The limit is " + plural(MODELS_AT_MOST, "model") + " besides yours; remove one first."
        : "";
  if (table.problem.textContent) return; // the typed name stays
  table.name.value = "";
  table.models.push({ name, on: true });
  rememberTable();
  listModels();
  lookUp([name]);
}
function saySum() {
  const chosen = table.models.filter((each) => each.on),
    away = chosen
      .map((each) => known.get(each.name))
      .filter((row) => row && row.where === "hub" && row.bytes);
  const unknown = chosen.filter((each) => !known.has(each.name)).length;
  table.sum.textContent = away.length
    ? "Downloads " +
      bytes(away.reduce((sum, row) => sum + row.bytes, 0)) +
      " first, once: " +
      away.map((row) => row.name).join(", ") +
      "."
    : unknown || !chosen.length || chosen.some((each) => known.get(each.name).sentence)
      ? ""
      : "No download needed.";
}
const numbersNow = () =>
  Object.fromEntries(
    Object.entries(table.fields).map(([name, input]) => [name, Math.round(+input.value)]),
  );
function rememberTable() {
  keep("table", { models: table.models, ...numbersNow() });
}
function askThem() {
  const models = table.models.filter((each) => each.on).map((each) => each.name),
    { n, shots, rank } = numbersNow();
  lookUp(table.models.map((each) => each.name));
  asking.ask(
    "table",
    { models, n, shots, rank: Math.min(n, rank), of: state.subject },
    state.subject,
  );
}

// ---------------------------------------------------------------- results
function tableBegun(what) {
  table.go.textContent = "Run again";
  sheet.pending = what;
  sheet.part += 1;
  if (what.retry) {
    sheet.leaks = sheet.leaks.filter((leak) => leak.model !== what.retry);
    sheet.cleared = false;
  }
  drawSheet();
}
function tableRows(rows, told, what) {
  for (const row of rows) take(row, what);
}
function take(row, what) {
  const only = what.retry;
  if (row.kind === "settings" && !only)
    Object.assign(sheet, {
      what,
      settings: row,
      rows: new Map(),
      items: new Map(),
      leaks: [],
      estimates: new Map(),
      subject: what.of || "",
    });
  if (only && row.model !== only) return;
  const id = sheet.part + ":" + row.place;
  if (row.kind === "model") {
    if (only && !sheet.cleared) {
      for (const [key, each] of sheet.rows)
        if (each.model === only) {
          sheet.rows.delete(key);
          for (const of of sheet.items.values()) of.delete(key);
        }
      sheet.cleared = true;
    }
    sheet.rows.set(id, row);
  } else if (row.kind === "estimate") sheet.estimates.set(id, row);
  else if (row.kind === "leak") sheet.leaks.push(row);
  else if (row.kind === "item") {
    if (!sheet.items.has(row.number)) sheet.items.set(row.number, new Map());
    sheet.items.get(row.number).set(id, row);
  }
}
function tableOver(told, what) {
  sheet.pending = null;
  drawSheet(told);
  // the downloaded models are now on this machine
  if (what.models.length) lookUp(what.models, true);
  lookAround();
  rememberSheet();
  return told.status === "done"
    ? "Evaluated: " +
        plural([...sheet.items.keys()].length, "example") +
        ", " +
        plural(
          [...sheet.rows.values()].filter((row) => !isBaseline(row) && !row.error).length,
          "model",
        ) +
        " and the baselines."
    : "";
}
function rememberSheet() {
  const whole = JSON.stringify({
    ...sheet,
    pending: null,
    rows: [...sheet.rows],
    estimates: [...sheet.estimates],
    items: [...sheet.items].map(([number, of]) => [number, [...of]]),
  });
  try {
    if (whole.length < LARGEST_SHEET) localStorage.setItem(SHEET, whole);
    else localStorage.removeItem(SHEET);
  } catch (error) {
    /* storage is full: the server keeps the results for some time */
  }
}
function recallSheet() {
  try {
    const whole = JSON.parse(localStorage.getItem(SHEET) || "null");
    if (whole && whole.settings)
      Object.assign(sheet, whole, {
        pending: null,
        rows: new Map(whole.rows),
        estimates: new Map(whole.estimates),
        items: new Map(whole.items.map(([number, of]) => [number, new Map(of)])),
      });
  } catch (error) {
    /* the stored value is malformed */
  }
  drawSheet();
}

// ---------------------------------------------------------------- the table
const isBaseline = (row) => row.what === "baseline";
// Your model first, then the selected models in their order, then the baselines.
function inOrder() {
  const asked = sheet.what ? sheet.what.models : [],
    rank = (row) =>
      isBaseline(row) ? 1000 : asked.includes(row.model) ? 1 + asked.indexOf(row.model) : 0;
  return [...sheet.rows].sort(
    ([a, x], [b, y]) => rank(x) - rank(y) || x.place - y.place || (a < b ? -1 : 1),
  );
}
function scoreCell(row, name) {
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
    chanceOf(value) +
    (of ? " of " + of.toLocaleString("en") : "") +
    (low === null || low === undefined
      ? ""
      : "; 95 % interval " + percent(low) + " to " + percent(high)) +
    (chance === null || chance === undefined ? "" : "; chance " + chanceOf(chance));
  cell.append(
    el("span", { className: "value", textContent: chanceOf(value) }),
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
    cell.append(el("span", { className: "what", textContent: "chance " + chanceOf(chance) }));
  return cell;
}
const anItem = (s) =>
  s === null || s === undefined
    ? ""
    : s < 0.0995
      ? number(+(1000 * s).toPrecision(2)) + " ms"
      : number(+s.toPrecision(2)) + " s";
// The number of evaluated examples of an active or cancelled model.
const standing = (row) =>
  row.over || row.error || !sheet.what ? String(row.n) : row.n + " of " + sheet.what.n;
function sheetRow(id, row) {
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
            sentenceOf(row.error) + (row.n ? " Evaluated before the error: " + row.n + "." : ""),
        }),
        " ",
      ),
      again = el("button", { type: "button", className: "quiet", textContent: "Try again" });
    again.disabled = asking.busy;
    again.addEventListener("click", () => askAgain(row.model));
    cell.append(again);
    return el("tr", { className: "wrong-row" }, ...cells, cell);
  }
  cells.push(...SCORES.map(([score]) => scoreCell(row, score)));
  const estimate = sheet.estimates.get(id);
  cells.push(
    el("td", {
      className: "number",
      textContent: standing(row),
      title: estimate ? estimate.sentence : "",
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
      textContent: anItem(row.seconds_an_item),
      title: row.rank_seconds_an_item
        ? "and " + anItem(row.rank_seconds_an_item) + " per ranked example"
        : "",
    }),
  );
  cells.push(
    el(
      "td",
      { className: "number" },
      row.weights_bytes ? bytes(row.weights_bytes) : "",
      ...(row.grown_bytes > 0
        ? [el("span", { className: "what", textContent: "process + " + bytes(row.grown_bytes) })]
        : []),
    ),
  );
  return el("tr", { className: isBaseline(row) ? "baseline" : "" }, ...cells);
}
function waitingRow(name, told, first) {
  const what =
    first && told && told.unit === "bytes"
      ? "downloading, " + bytes(told.done) + " of " + bytes(told.total)
      : first && asking.busy
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
function drawSheet(told = null) {
  const wanted = inOrder().map(([id, row]) => [
    id,
    JSON.stringify([row, asking.busy && row.error]),
    () => sheetRow(id, row),
  ]);
  if (sheet.pending && !sheet.pending.retry && sheet.what === sheet.pending) {
    const left = sheet.pending.models.filter(
        (name) => ![...sheet.rows.values()].some((row) => row.model === name),
      ),
      own = [...sheet.rows.values()].some(
        (row) => !isBaseline(row) && !sheet.pending.models.includes(row.model) && row.over,
      );
    const before = wanted.findIndex(([id]) => isBaseline(sheet.rows.get(id)));
    wanted.splice(
      before < 0 ? wanted.length : before,
      0,
      ...left.map((name, i) => {
        const [words, row] = waitingRow(name, told, own && i === 0);
        return ["to come " + name, name + words, () => row];
      }),
    );
  }
  const there = new Map([...table.body.children].map((row) => [row.dataset.id, row]));
  const rows = wanted.map(([id, signature, make]) => {
    const before = there.get(id);
    if (before && before.dataset.signature === signature) return before;
    const row = make();
    row.dataset.id = id;
    row.dataset.signature = signature;
    return row;
  });
  table.body.replaceChildren(
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
                className: "nobody",
                textContent: "No results yet. Select models to compare and press Run.",
              }),
            ),
          ),
        ]),
  );
  if (sheet.settings) table.caption.textContent = sheet.settings.caption;
  const leaks = sheet.leaks.map((leak) => leak.sentence).join("\n");
  if (table.leaks.dataset.text !== leaks) {
    table.leaks.dataset.text = leaks;
    table.leaks.replaceChildren(
      ...sheet.leaks.map((leak) => el("p", { className: "hint", textContent: leak.sentence })),
    );
  }
  table.files.hidden = !sheet.rows.size;
  drawItems();
  table.whole.dataset.rows = sheet.rows.size; // tests wait for this attribute
}
function askAgain(name) {
  const { n, shots, rank } = sheet.what;
  asking.ask("table", { models: [name], n, shots, rank, retry: name }, sheet.subject);
}

// ---------------------------------------------------------------- examples
const shortWay = (row) =>
  /at once/.test(row.way) ? " (all slots)" : /one slot/.test(row.way) ? " (one slot)" : "";
function drawItems() {
  table.note.textContent = sheet.settings
    ? sentenceOf(sheet.settings.note)
    : "Each example with its prompt, the model output and the parsed answer.";
  const there = new Map([...table.items.children].map((each) => [each.dataset.number, each])),
    examples = sheet.settings && sheet.settings.examples.length ? sheet.settings.examples : [];
  const wanted = [];
  if (examples.length) {
    const signature = JSON.stringify(examples);
    let box = there.get("examples");
    if (!box || box.dataset.signature !== signature) {
      box = el(
        "details",
        {},
        el("summary", { className: "plain" }, "Few-shot examples (not held out)"),
        el("pre", {
          textContent: examples.map(([asked, right]) => asked + "  →  " + right).join("\n"),
        }),
      );
      box.dataset.number = "examples";
      box.dataset.signature = signature;
    }
    wanted.push(box);
  }
  for (const [at, answers] of [...sheet.items].sort(([a], [b]) => a - b)) {
    const by = inOrder()
      .filter(([id]) => answers.has(id))
      .map(([id, row]) => [row, answers.get(id)]);
    if (!by.length) continue;
    const signature =
      by.map(([row, item]) => row.model + row.way + item.raw).join("\n") + by[0][1].question;
    let box = there.get(String(at));
    if (!box) {
      box = el(
        "details",
        { className: "item" },
        el("summary"),
        el("div", { className: "answers" }),
      );
      box.dataset.number = at;
      box.addEventListener("toggle", () => {
        if (box.open) fillItem(box);
      });
    }
    box.by = by;
    if (box.dataset.signature !== signature) {
      box.dataset.signature = signature;
      const marks = by.map(([row, item]) =>
        el("span", {
          className: "mark " + (item.right ? "ok" : "bad"),
          textContent: (item.right ? "✓ " : "✗ ") + row.model + shortWay(row),
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
      if (box.open) fillItem(box);
    }
    wanted.push(box);
  }
  const same =
    wanted.length === table.items.children.length &&
    wanted.every((box, i) => table.items.children[i] === box);
  if (!same) table.items.replaceChildren(...wanted);
}
function fillItem(box) {
  if (box.dataset.filled === box.dataset.signature) return;
  box.dataset.filled = box.dataset.signature;
  box.lastChild.replaceChildren(...box.by.map(([row, item]) => answerOf(row, item)));
}
// The text of a token, with visible whitespace.
const seenAs = (text) =>
  text.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
function answerOf(row, item) {
  const part = (label, ...content) => [el("dt", { textContent: label }), el("dd", {}, ...content)];
  const tokens = el(
    "div",
    { className: "tokens" },
    ...item.tokens.map((token, i) =>
      el("span", {
        className: "token t" + (i % 4),
        textContent: seenAs(token),
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
      const given = item.read[i],
        fine = i < right.length && given === right[i];
      read.append(
        el("span", {
          className: fine ? "" : "wrong",
          textContent: given === undefined ? "_" : given === null ? "?" : given,
          title: fine
            ? "correct"
            : i >= right.length
              ? "extra token"
              : (given === undefined
                  ? "missing"
                  : given === null
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
  if (item.tokens.length) parts.push(...part(plural(item.tokens.length, "token"), tokens));
  parts.push(
    ...part("output", el("code", { className: "raw", textContent: seenAs(item.raw) })),
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
              plural(sorted.length, "candidate") +
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
    el("h4", { textContent: row.model + shortWay(row) }),
    el("dl", {}, ...parts),
  );
}

// ---------------------------------------------------------------- files
const tableLines = () => inOrder().map(([, { kind, place, over, ...row }]) => row);
const itemLines = () =>
  [...sheet.items]
    .sort(([a], [b]) => a - b)
    .flatMap(([, answers]) =>
      [...answers].map(([id, item]) => ({
        model: item.model,
        way: (sheet.rows.get(id) || {}).way || "",
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
const everything = () => ({
  settings: sheet.settings,
  rows: tableLines(),
  leaks: sheet.leaks,
  items: [...sheet.items].sort(([a], [b]) => a - b).flatMap(([, answers]) => [...answers.values()]),
});
