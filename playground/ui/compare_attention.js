// Attention of two pretrained models on the same prompt, each with its own tokens, or of one of
// them and the user's model. probing/attention.py computes the weights of pretrained
// models; those of the user's model come from the server as in Inspect.
// Above this number of tokens the selected head gets the full width of the panel.
const WIDE_LAYOUT_TOKENS = 24;
const DEFAULT_PROMPT = "The cat sat on the mat",
  DEFAULT_SEQUENCE = "3 1 4 1 5";
const DISPLAY_MODES = [
  ["map", "weights", "Softmax of the scores; each row sums to one"],
  ["scores", "scores", "Queries times keys, scaled, before the softmax"],
  ["token", "one token, all heads", TOKEN_HINT],
];
const DISPLAY_CAPTIONS = {
  map: "Rows: queries. Columns: keys. Each row sums to one.",
  scores:
    "Query-key products divided by the square root of the head size, before the softmax: " +
    "blue is positive, orange negative.",
  token: "Rows: heads of the selected layer. Columns: keys of this token.",
};
// Captions for the user's model. Models with one stack process source and output as one sequence.
const OWN_CAPTIONS = {
  cross: "Rows: the decoder tokens. Columns: the source.",
  encoder: ENCODER_CAPTION,
  decoder: "Rows: the decoder tokens. Columns: the tokens up to each of them.",
};
// `line`: panels that wait for their request
const attentionView = { shape: "map", panels: [], line: [], isRunning: false };

VIEWS.attention = {
  title: "Attention",
  explain:
    "Attention of every head in two models on the same prompt. Select a head to enlarge " +
    "it; hover over a cell to read its weight or score.",
  build(box) {
    const form = loadLocal("attention") || {},
      text = (name, defaultValue) => (typeof form[name] === "string" ? form[name] : defaultValue);
    attentionView.text = el("input", {
      type: "text",
      className: "prompt",
      value: text("text", DEFAULT_PROMPT),
      maxLength: 1000,
      required: true,
      spellcheck: false,
    });
    attentionView.word = el("input", {
      type: "text",
      className: "word",
      value: text("word", "sat"),
      maxLength: 40,
      spellcheck: false,
    });
    attentionView.go = el("button", {
      type: "submit",
      className: "quiet main run-attention",
      textContent: "Run",
    });
    attentionView.choice = createSegmentedControl(
      DISPLAY_MODES,
      attentionView.shape,
      (value) => {
        attentionView.shape = value;
        renderPanels();
      },
      "Display",
    );
    const top = el(
      "form",
      { className: "row request" },
      el("label", {}, "Prompt ", attentionView.text),
      el(
        "label",
        { title: "The token whose attention is displayed for every head" },
        "Word ",
        attentionView.word,
      ),
      attentionView.go,
      el("span", { className: "shapes" }, attentionView.choice),
    );
    top.addEventListener("submit", (event) => {
      event.preventDefault();
      compareAttention();
    });
    attentionView.panels = [0, 1].map((i) => createAttentionPanel(i, form));
    box.append(
      top,
      el("div", { className: "side-by-side" }, ...attentionView.panels.map((panel) => panel.box)),
    );
    listeners.push(autoRunAttention);
  },
  fields() {
    saveAttentionForm();
    return ["attention"];
  },
  show() {
    attentionView.panels.forEach((panel) => panel.field.loadFacts());
    renderPanels();
    autoRunAttention();
  },
  chosen() {
    const panel = attentionView.panels[1];
    if (panel && panel.source === "own" && state.view === "attention") loadOwnAttention(panel);
  },
};
function saveAttentionForm() {
  saveLocal("attention", {
    text: attentionView.text.value,
    word: attentionView.word.value,
    models: attentionView.panels.map((panel) => panel.field.value),
    source: attentionView.panels[1].source,
    own: attentionView.panels[1].sequence.value,
  });
}

// ---------------------------------------------------------------- one model
function createAttentionPanel(i, form) {
  const models = Array.isArray(form.models) ? form.models : [],
    panel = {
      i,
      source: i === 1 && form.source === "own" ? "own" : "pretrained",
      layer: 0,
      head: 0,
      at: 0,
      scores: new Map(),
    };
  panel.field = createModelPicker({
    label: i ? "Second model" : "Model",
    value:
      typeof models[i] === "string" && models[i] ? models[i] : ["bert-base-uncased", "gpt2"][i],
    change: () => {
      panel.runner.done = true;
      saveAttentionForm();
    },
  });
  panel.runner = createJobRunner("attention-" + i, {
    onStart: () => {
      panel.runner.done = true;
    },
    onFinish: (response) => {
      loadModelFacts([panel.field.value], true);
      if (response.status === "done") applyPretrainedResult(panel, response.result);
      runNextPanel();
      return response.status === "done"
        ? [response.result.direction, response.result.note].filter(Boolean).join("; ")
        : "";
    },
  });
  panel.sequence = el("input", {
    type: "text",
    className: "own-sequence",
    value: typeof form.own === "string" ? form.own : DEFAULT_SEQUENCE,
    maxLength: 400,
    spellcheck: false,
  });
  panel.sequence.addEventListener("input", () => {
    clearTimeout(panel.timer);
    panel.timer = setTimeout(() => {
      saveAttentionForm();
      loadOwnAttention(panel);
    }, 150);
  });
  panel.kind = createSegmentedControl(
    ATTENTION_KIND_OPTIONS,
    "cross",
    () => loadOwnAttention(panel),
    "Kind of attention",
  );
  panel.own = el(
    "div",
    { className: "own", hidden: true },
    el("label", { className: "model-field" }, "Input sequence ", panel.sequence),
    panel.kind,
    el("span", { className: "takes" }),
  );
  panel.pretrained = el("div", {}, panel.field.box, panel.runner.line);
  panel.grid = el("div", { className: "heads-grid" });
  panel.name = el("h4");
  panel.canvas = el("canvas", { className: "large" });
  panel.caption = el("p", { className: "caption" });
  panel.grid.setAttribute("role", "group");
  panel.grid.setAttribute("aria-label", "Heads; use the arrow keys to move");
  panel.grid.addEventListener("keydown", (event) => {
    const by = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: panel.data && -panel.data.heads,
      ArrowDown: panel.data && panel.data.heads,
    }[event.key];
    if (!by) return;
    event.preventDefault();
    const at = panel.layer * panel.data.heads + panel.head + by;
    if (at < 0 || at >= panel.data.layers * panel.data.heads) return;
    selectHead(panel, Math.floor(at / panel.data.heads), at % panel.data.heads);
    panel.grid.querySelectorAll("button")[at].focus();
  });
  panel.nothing = el("p", {
    className: "hint nothing-yet",
    textContent: "Press Run to download the model and show its attention heads.",
  });
  panel.inputText = el(
    "div",
    { className: "heads-two", hidden: true },
    panel.grid,
    el("div", {}, panel.name, panel.canvas, panel.caption),
  );
  panel.box = el(
    "section",
    { className: "panel-" + i, ariaLabel: i ? "Second model" : "Pretrained model" },
    ...(i
      ? [
          el(
            "div",
            { className: "row" },
            createSegmentedControl(
              [
                ["pretrained", "another model"],
                ["own", "your model", "The model selected above, on a sequence of its task"],
              ],
              panel.source,
              (value) => {
                panel.source = value;
                saveAttentionForm();
                selectSource(panel);
              },
              "Second model",
            ),
          ),
        ]
      : [el("div", { className: "row spacer" })]),
    panel.pretrained,
    panel.own,
    panel.nothing,
    panel.inputText,
  );
  panel.pretrained.hidden = panel.source === "own";
  panel.own.hidden = panel.source !== "own";
  return panel;
}
function selectSource(panel) {
  panel.pretrained.hidden = panel.source === "own";
  panel.own.hidden = panel.source !== "own";
  if (panel.source === "own") loadOwnAttention(panel);
  else if (panel.before) {
    panel.data = panel.before;
    selectHead(panel, 0, 0);
  } else {
    panel.data = null;
    renderPanel(panel);
  }
}
function applyResult(panel, data) {
  panel.data = data;
  panel.layer = Math.min(panel.layer, data.layers - 1);
  panel.head = Math.min(panel.head, data.heads - 1);
  panel.at = Math.max(0, Math.min(data.rows.length - 1, data.at));
  renderPanel(panel);
}
function applyPretrainedResult(panel, result) {
  const names = tokenNames(result),
    same = panel.before && panel.before.model === result.model && panel.before.text === result.text;
  if (!same) panel.scores = new Map();
  panel.scores.set(result.layer + "." + result.head, result.scores);
  panel.before = {
    ...result,
    rows: names,
    columns: names,
    causal: result.kind === "causal",
    at: result.word_at.length ? result.word_at[0][0] : 0,
  };
  if (panel.source === "pretrained") applyResult(panel, panel.before);
}
// Readable token names: a leading space becomes a dot, and bytes are joined to letters.
function tokenNames(result) {
  const letters = [...result.text],
    ofBytes = result.tokens.some((token) => /^[ĠĊ]/.test(token));
  return result.tokens.map((token, i) => {
    const [begin, end] = result.spans[i],
      piece = letters.slice(begin, end).join("");
    if (ofBytes && piece.trim()) return (token.startsWith("Ġ") ? "·" : "") + piece.trim();
    return readableToken(token);
  });
}

// ---------------------------------------------------------------- requests
// Both models, one after the other, because each may need a download.
function compareAttention() {
  saveAttentionForm();
  attentionView.line = attentionView.panels.filter((panel) => panel.source === "pretrained");
  if (attentionView.panels[1].source === "own") loadOwnAttention(attentionView.panels[1]);
  runNextPanel();
}
function runNextPanel() {
  const panel = attentionView.line.shift();
  attentionView.isRunning = Boolean(panel);
  if (panel)
    runJob(panel.runner, "attention", {
      model: panel.field.value,
      text: attentionView.text.value,
      word: attentionView.word.value,
    }).then(() => {
      if (!panel.runner.busy) runNextPanel();
    });
}
function autoRunAttention() {
  if (state.view !== "attention") return;
  if (attentionView.panels[1].source === "own" && !attentionView.panels[1].data)
    loadOwnAttention(attentionView.panels[1]);
  for (const panel of attentionView.panels)
    if (panel.source === "pretrained")
      autoRun(panel.runner, "attention-" + panel.i, [panel.field], () => {
        attentionView.line.push(panel);
        if (!attentionView.isRunning) runNextPanel();
      });
}
async function loadOwnAttention(panel) {
  if (!state.subject || !owner) return;
  const requestId = (panel.requestId = (panel.requestId || 0) + 1),
    words = panel.own.querySelector(".takes"),
    kind = panel.kind.querySelector("[aria-pressed=true]");
  let response;
  try {
    response = await request("inspect/view", {
      owner,
      subject: state.subject,
      text: panel.sequence.value,
      view: "attention",
      options: { kind: kind ? kind.dataset.value : "cross", mode: "free-running" },
    });
  } catch (error) {
    response = { error: NO_RESPONSE };
  }
  if (requestId !== panel.requestId || panel.source !== "own") return;
  words.classList.toggle("error", Boolean(response.error));
  words.textContent = formatMessage(response.error || response.note || "");
  if (response.error) return; // the previous result stays visible
  for (const button of panel.kind.children)
    button.hidden = !response.kinds.includes(button.dataset.value);
  setPressed(panel.kind, response.kind);
  applyResult(panel, {
    ...response,
    own: true,
    causal: response.kind === "decoder",
    model: (currentModel() || { name: "your model" }).name,
    at: panel.data && panel.data.own ? panel.at : 0,
  });
}
// The scores of a head are requested separately, on demand.
async function loadScores(panel) {
  const { data, layer, head } = panel,
    key = layer + 1 + "." + (head + 1);
  if (panel.scores.has(key)) return panel.scores.get(key);
  const response = await runBackgroundJob("attention", {
    model: data.model,
    text: data.text,
    word: data.word,
    layer: layer + 1,
    head: head + 1,
  });
  if (panel.before && panel.before.model === response.model && panel.before.text === response.text)
    panel.scores.set(key, response.scores);
  return response.scores;
}

// ---------------------------------------------------------------- rendering
function renderPanels() {
  setPressed(attentionView.choice, attentionView.shape);
  attentionView.panels.forEach(renderPanel);
}
function selectHead(panel, layer, head) {
  panel.layer = layer;
  panel.head = head;
  renderPanel(panel);
}
function renderPanel(panel) {
  const { data } = panel;
  panel.inputText.hidden = !data;
  panel.nothing.hidden = Boolean(data) || panel.source === "own";
  if (!data) return;
  panel.inputText.classList.toggle(
    "long",
    Math.max(data.rows.length, data.columns.length) > WIDE_LAYOUT_TOKENS,
  );
  panel.layer = Math.min(panel.layer, data.layers - 1);
  panel.head = Math.min(panel.head, data.heads - 1);
  panel.at = Math.min(panel.at, data.rows.length - 1);
  const all = unpackWeights(data),
    signature = data.layers + "x" + data.heads,
    possible = data.causal ? data.possible : null;
  if (panel.grid.dataset.signature !== signature) {
    panel.grid.dataset.signature = signature;
    panel.grid.style.gridTemplateColumns =
      "auto repeat(" + Math.max(4, data.heads) + ", minmax(0, 1fr))";
    panel.grid.replaceChildren(
      ...all.flatMap((heads, l) => [
        el("span", { className: "layer", textContent: l + 1, title: "layer " + (l + 1) }),
        ...heads.map((_, h) => {
          const button = el(
            "button",
            {
              type: "button",
              ariaLabel: "layer " + (l + 1) + ", head " + (h + 1),
              title: "layer " + (l + 1) + ", head " + (h + 1),
            },
            el("canvas"),
          );
          button.addEventListener("click", () => selectHead(panel, l, h));
          return button;
        }),
        ...Array.from({ length: Math.max(0, 4 - heads.length) }, () => el("span")),
      ]),
    );
  }
  [...panel.grid.querySelectorAll("button")].forEach((button, i) => {
    const l = Math.floor(i / data.heads),
      h = i % data.heads,
      chosen = l === panel.layer && h === panel.head;
    button.setAttribute("aria-pressed", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
    // One row of weights, drawn at the height of the head, so that the grid does not change.
    paintThumbnail(
      button.firstChild,
      attentionView.shape === "token"
        ? {
            weights: all[l][h].map(() => all[l][h][panel.at]),
            possible: possible && all[l][h].map(() => possible[panel.at]),
          }
        : { weights: all[l][h], possible },
    );
  });
  if (attentionView.shape === "scores" && !data.own) renderScores(panel, possible);
  else renderLargeHead(panel, all, possible);
}
const queryLabel = (data, r) => data.rows[r] + " (position " + (r + 1) + ")",
  keyLabel = (data, k) => data.columns[k] + " (position " + (k + 1) + ")";
function renderLargeHead(panel, all, possible) {
  const { data, layer, head, at } = panel,
    name = "Layer " + (layer + 1) + ", head " + (head + 1);
  if (attentionView.shape === "token") {
    panel.name.textContent =
      data.rows[at] +
      " (position " +
      (at + 1) +
      ") in every head of layer " +
      (layer + 1) +
      " of " +
      shortModelName(data);
    panel.caption.dataset.resting = DISPLAY_CAPTIONS.token;
    mountMatrix(
      panel.canvas,
      {
        weights: all[layer].map((weights) => weights[at]),
        rows: all[layer].map((_, h) => layer + 1 + "." + (h + 1)),
        columns: data.columns,
        possible: possible && all[layer].map(() => possible[at]),
        size: 34,
      },
      {
        caption: panel.caption,
        hover: (r, k) =>
          "Head " +
          (layer + 1) +
          "." +
          (r + 1) +
          ": " +
          queryLabel(data, at) +
          " attends to " +
          keyLabel(data, k) +
          " with weight " +
          all[layer][r][at][k].toFixed(3) +
          ".",
        choose: (r) => {
          attentionView.shape = "map";
          panel.head = r;
          renderPanels();
        },
      },
    );
  } else {
    const weights = all[layer][head];
    panel.name.textContent = name + " of " + shortModelName(data);
    panel.caption.dataset.resting =
      (data.own
        ? (data.kinds.includes("cross")
            ? OWN_CAPTIONS[data.kind]
            : SINGLE_STACK_CAPTIONS[data.architecture] || SINGLE_STACK_CAPTIONS[data.kind]) +
          " Each row sums to one."
        : DISPLAY_CAPTIONS.map) +
      (attentionView.shape === "scores"
        ? " These are weights; the scores of your model are in Inspect, Activations."
        : "");
    mountMatrix(
      panel.canvas,
      { weights, rows: data.rows, columns: data.columns, possible },
      {
        caption: panel.caption,
        hover: (r, k) =>
          name +
          ": " +
          queryLabel(data, r) +
          " attends to " +
          keyLabel(data, k) +
          " with weight " +
          weights[r][k].toFixed(3) +
          ".",
        choose: (r) => {
          attentionView.shape = "token";
          panel.at = r;
          renderPanels();
        },
      },
    );
  }
  // tests wait for this attribute
  panel.canvas.dataset.drawn =
    attentionView.shape + " " + data.model + " " + (layer + 1) + "." + (head + 1);
}
async function renderScores(panel, possible) {
  const { data, layer, head } = panel,
    mine = (panel.drawing = (panel.drawing || 0) + 1),
    weights = unpackWeights(data)[layer][head],
    name = "Layer " + (layer + 1) + ", head " + (head + 1);
  let scores;
  try {
    scores = await loadScores(panel);
  } catch (error) {
    panel.caption.textContent = formatMessage(error.isServerMessage ? error.message : NO_RESPONSE);
    return;
  }
  if (
    mine !== panel.drawing ||
    panel.data !== data ||
    panel.layer !== layer ||
    panel.head !== head ||
    attentionView.shape !== "scores"
  )
    return;
  const maxValue = Math.max(
    1e-9,
    ...scores.flatMap((row, r) => row.filter((_, k) => !possible || possible[r][k]).map(Math.abs)),
  );
  panel.name.textContent =
    name + " of " + shortModelName(data) + ": scores, maximum ±" + formatNumber(maxValue);
  panel.caption.dataset.resting = DISPLAY_CAPTIONS.scores;
  mountMatrix(
    panel.canvas,
    {
      weights: scores,
      rows: data.rows,
      columns: data.columns,
      possible,
      signed: true,
      max: maxValue,
    },
    {
      caption: panel.caption,
      hover: (r, k) =>
        name +
        ": " +
        queryLabel(data, r) +
        ", " +
        keyLabel(data, k) +
        ": score " +
        scores[r][k].toFixed(2) +
        ", weight after the softmax " +
        weights[r][k].toFixed(3) +
        ".",
      choose: (r) => {
        attentionView.shape = "token";
        panel.at = r;
        renderPanels();
      },
    },
  );
  panel.canvas.dataset.drawn = "scores " + data.model + " " + (layer + 1) + "." + (head + 1);
}
