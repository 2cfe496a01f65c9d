// ---------------------------------------------------------------- activations
const activationsState = { stage: "", head: 0, cell: null, drawn: null, origin: null };
const stageKey = (stage) => stage.block + "/" + stage.name;
// Thin out the labels of vector components to fit the width. The caption names every component.
const thinLabels = (names, canvas) => {
  const availableWidth = (canvas.clientWidth - 90) / names.length,
    every = [1, 2, 4, 8].find((n) => n * availableWidth >= 20) || 16;
  return names.map((name, i) => (i % every ? "" : String(name)));
};
const signedCaption = (maxValue) =>
  "Blue is positive, orange negative; full colour is ±" + formatNumber(maxValue) + ".";

VIEWS.walk = {
  title: "Activations",
  explain:
    "All intermediate tensors in order of computation, teacher-forced. Use the left and " +
    "right arrow keys to change the stage; click a value to see how it is computed.",
  build(box) {
    const map = el("canvas", { className: "walk-map picture" });
    box.append(
      el("ol", { className: "walk-steps", ariaLabel: "Chapters" }),
      el("p", { className: "walk-description" }),
      el(
        "div",
        { className: "walk-two" },
        el("nav", { className: "walk-list", ariaLabel: "Stages" }),
        el(
          "section",
          { className: "walk-stage" },
          el(
            "div",
            { className: "row walk-bar" },
            el("button", {
              type: "button",
              className: "quiet walk-back",
              textContent: "← Previous",
              title: "Left arrow",
            }),
            el("button", {
              type: "button",
              className: "quiet walk-on",
              textContent: "Next →",
              title: "Right arrow",
            }),
            el("output", { className: "hint walk-place" }),
          ),
          el("h4", { className: "walk-name", ariaLive: "polite" }),
          el("p", { className: "walk-formula" }),
          el("p", { className: "walk-shape hint" }),
          el("p", { className: "walk-code" }),
          el("div", { className: "row walk-heads" }),
          map,
          el("p", { className: "caption walk-words" }),
          el("p", { className: "walk-likeliest", hidden: true }),
          el(
            "section",
            { className: "walk-origin", hidden: true, ariaLabel: "Computation of a value" },
            el("h4"),
            el("p", { className: "walk-equation" }),
            el("table", { className: "walk-parts picture" }),
            el("canvas", { className: "walk-terms picture" }),
            el("p", { className: "caption walk-terms-words" }),
          ),
        ),
      ),
    );
    box.querySelector(".walk-back").addEventListener("click", () => stepStage(-1));
    box.querySelector(".walk-on").addEventListener("click", () => stepStage(1));
    box.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.defaultPrevented || event.target.closest("canvas, input, select, textarea"))
        return;
      event.preventDefault();
      stepStage(by);
    });
  },
  options: () => ({ stage: activationsState.stage, head: activationsState.head }),
  take(options) {
    if (typeof options.stage === "string") activationsState.stage = options.stage;
    if (Number.isInteger(options.head)) activationsState.head = options.head;
  },
  forget() {
    activationsState.cell = activationsState.origin = null;
  },
  draw(data) {
    const at = data.chosen.stage,
      stage = data.stages[at],
      chosen = data.chosen,
      anew = activationsState.drawn !== data;
    activationsState.drawn = data;
    activationsState.stage = stageKey(stage);
    activationsState.head = chosen.head;
    renderStepList(data);
    renderStageList(data);
    queryView("walk", ".walk-back").disabled = at === 0;
    queryView("walk", ".walk-on").disabled = at === data.stages.length - 1;
    queryView("walk", ".walk-place").textContent =
      "stage " + (at + 1) + " of " + data.stages.length;
    queryView("walk", ".walk-name").textContent =
      formatMessage(stage.block).slice(0, -1) + ": " + stage.name;
    queryView("walk", ".walk-formula").textContent = stage.formula;
    queryView("walk", ".walk-shape").textContent =
      stage.words +
      (stage.low === null
        ? ""
        : "; from " + formatNumber(stage.low) + " to " + formatNumber(stage.high)) +
      (chosen.cut ? "; displayed: " + chosen.cut : "");
    queryView("walk", ".walk-shape").title = stage.shape;
    queryView("walk", ".walk-code").replaceChildren(
      el("span", { className: "hint", textContent: stage.file + ":" + stage.line }),
      el("code", { textContent: stage.text }),
    );
    renderHeadChoice(chosen);
    renderTensor(stage, chosen);
    const likeliest = queryView("walk", ".walk-likeliest");
    likeliest.hidden = !chosen.likeliest;
    if (chosen.likeliest)
      likeliest.replaceChildren(
        "Largest in each row: ",
        el("b", { textContent: chosen.likeliest.join(" ") }),
      );
    // The selected value stays selected when the sequence or the head changes, if the cell still
    // exists.
    if (anew && activationsState.cell) {
      const [r, k] = activationsState.cell;
      if (r < chosen.rows.length && k < chosen.columns.length) loadProvenance(r, k);
      else {
        activationsState.cell = activationsState.origin = null;
      }
    }
    renderProvenance(stage, chosen);
  },
  rows: (data) =>
    data.chosen.weights.flatMap((row, r) =>
      row.map((value, k) => ({
        block: data.stages[data.chosen.stage].block,
        stage: data.stages[data.chosen.stage].name,
        ...(data.chosen.heads ? { head: data.chosen.head + 1 } : {}),
        row: r + 1,
        of: data.chosen.rows[r],
        column: k + 1,
        at: data.chosen.columns[k],
        value,
      })),
    ),
};

function selectStage(key, head = activationsState.head) {
  if (key !== activationsState.stage) activationsState.cell = activationsState.origin = null;
  activationsState.stage = key;
  activationsState.head = head;
  scheduleRefresh("walk", 0);
}
function stepStage(by) {
  const data = resultByView.walk;
  if (!data) return;
  // Count from the requested stage, not from the rendered one, so that a held key works while
  // requests are pending.
  const now = data.stages.findIndex((stage) => stageKey(stage) === activationsState.stage),
    next = data.stages[now + by];
  if (next) selectStage(stageKey(next));
}

function renderStepList(data) {
  const list = queryView("walk", ".walk-steps"),
    now = data.stages[data.chosen.stage].step;
  if (!list.children.length)
    list.append(
      ...data.steps.map((_, i) => {
        const button = el("button", { type: "button" });
        button.addEventListener("click", () => {
          const { steps, stages } = resultByView.walk;
          selectStage(stageKey(stages[steps[i].stage]), steps[i].head);
        });
        return el("li", {}, button);
      }),
    );
  [...list.children].forEach((item, i) => {
    item.firstChild.replaceChildren(el("span", { textContent: i + 1 }), data.steps[i].title);
    item.firstChild.title = data.steps[i].description;
    item.firstChild.setAttribute("aria-current", i === now ? "step" : "false");
  });
  queryView("walk", ".walk-description").textContent = data.steps[now].description;
}

function renderStageList(data) {
  const list = queryView("walk", ".walk-list"),
    signature = data.stages.map(stageKey).join();
  if (list.dataset.signature !== signature) {
    list.dataset.signature = signature;
    const blocks = new Map();
    for (const stage of data.stages) {
      if (!blocks.has(stage.block))
        blocks.set(
          stage.block,
          el(
            "details",
            {},
            el("summary", {}, el("span", { textContent: stage.step + 1 }), stage.block),
          ),
        );
      const button = el(
        "button",
        { type: "button", title: stage.formula },
        stage.name,
        el("span", { className: "hint" }),
      );
      button.dataset.key = stageKey(stage);
      button.addEventListener("click", () => selectStage(button.dataset.key));
      blocks.get(stage.block).append(button);
    }
    list.replaceChildren(...blocks.values());
  }
  const buttons = [...list.querySelectorAll("button")],
    focused = document.activeElement;
  buttons.forEach((button, i) => {
    button.lastChild.textContent = data.stages[i].shape.split(" = ")[1];
    button.setAttribute("aria-current", String(i === data.chosen.stage));
  });
  const current = buttons[data.chosen.stage],
    block = current.parentElement;
  if (list.dataset.at !== current.dataset.key) {
    list.dataset.at = current.dataset.key;
    for (const other of list.children) other.open = other === block;
    if (list.contains(focused) && focused !== current) current.focus({ preventScroll: true });
    // Only the list scrolls, not the page; it shows as much of the block as fits.
    const top = block.offsetTop,
      bottom = top + block.offsetHeight;
    if (top < list.scrollTop || bottom > list.scrollTop + list.clientHeight)
      list.scrollTop = Math.min(top, Math.max(0, bottom - list.clientHeight));
  }
}

function renderHeadChoice(chosen) {
  const box = queryView("walk", ".walk-heads"),
    buttons = () => box.querySelector(".choice");
  box.hidden = chosen.heads < 2;
  if (box.hidden) return;
  if (box.dataset.heads !== String(chosen.heads)) {
    box.dataset.heads = chosen.heads;
    box.replaceChildren(
      el(
        "label",
        {},
        "head ",
        createSegmentedControl(
          Array.from({ length: chosen.heads }, (_, h) => [h, String(h + 1)]),
          chosen.head,
          (h) => {
            activationsState.head = h;
            scheduleRefresh("walk", 0);
          },
          "Head",
        ),
      ),
    );
  }
  setPressed(buttons(), chosen.head);
}

function renderTensor(stage, chosen) {
  const caption = queryView("walk", ".walk-words"),
    head = chosen.heads ? "head " + (chosen.head + 1) + ", " : "";
  caption.dataset.resting =
    "Rows: " +
    chosen.axes[0] +
    ". Columns: " +
    chosen.axes[1] +
    ". " +
    (chosen.signed
      ? signedCaption(chosen.max)
      : "Full colour is " + formatNumber(chosen.max) + ".") +
    " Click a value, or press Enter on it, to see how it is computed.";
  mountMatrix(
    queryView("walk", ".walk-map"),
    {
      weights: chosen.weights,
      rows: chosen.rows,
      columns: chosen.axes[1].startsWith("dimensions")
        ? thinLabels(chosen.columns, queryView("walk", ".walk-map"))
        : chosen.columns,
      possible: chosen.possible,
      signed: chosen.signed,
      max: chosen.max,
      chosen: activationsState.cell,
    },
    {
      caption,
      hover: (r, k) =>
        formatMessage(stage.name).slice(0, -1) +
        ", " +
        head +
        chosen.rows[r] +
        " (row " +
        (r + 1) +
        "), " +
        (chosen.axes[1].startsWith("dimensions")
          ? "dimension " + chosen.columns[k]
          : chosen.columns[k] + " (column " + (k + 1) + ")") +
        ": " +
        (chosen.weights[r][k] === null ? "-infinity" : chosen.weights[r][k]) +
        ".",
      choose: (r, k) => loadProvenance(r, k),
    },
  );
}

// ---------------------------------------------------------------- computation of one value
async function loadProvenance(row, column) {
  activationsState.cell = [row, column];
  const requestToken = (activationsState.tracing = {}),
    request = { stage: activationsState.stage, head: activationsState.head, row, column };
  const response = await requestView("walk-cell", request);
  if (
    requestToken !== activationsState.tracing ||
    request.stage !== activationsState.stage ||
    request.head !== activationsState.head
  )
    return;
  activationsState.origin = response.error ? null : response;
  if (response.error) {
    showError(response.error);
    return;
  }
  const data = resultByView.walk;
  if (!data || stageKey(data.stages[data.chosen.stage]) !== activationsState.stage) return;
  renderTensor(data.stages[data.chosen.stage], data.chosen);
  renderProvenance(data.stages[data.chosen.stage], data.chosen);
}
function renderProvenance(stage, chosen) {
  const box = queryView("walk", ".walk-origin"),
    origin = activationsState.origin;
  box.hidden = !origin;
  if (!origin) return;
  const row = chosen.rows[origin.row],
    column = chosen.columns[origin.column],
    result = origin.value === null ? "-infinity" : formatNumber(origin.value);
  box.querySelector("h4").textContent =
    "How " +
    result +
    " is computed: " +
    stage.name +
    ", row " +
    (origin.row + 1) +
    " (" +
    row +
    "), column " +
    (origin.column + 1) +
    (chosen.axes[1].startsWith("dimensions") ? "" : " (" + column + ")");
  const equation = box.querySelector(".walk-equation"),
    parts = box.querySelector(".walk-parts"),
    terms = box.querySelector(".walk-terms"),
    words = box.querySelector(".walk-terms-words");
  parts.hidden = origin.kind !== "parts";
  const product = origin.kind === "product" ? origin : origin.score;
  terms.hidden = words.hidden = !product && origin.kind !== "mixed";
  if (origin.kind === "parts") {
    equation.textContent =
      origin.equation +
      " = " +
      result +
      (product
        ? "; its score is " +
          (product.attended ? formatNumber(product.value) : "-infinity") +
          ", a dot product:"
        : "");
    parts.replaceChildren(
      el(
        "tbody",
        {},
        ...origin.parts.map(([name, value]) =>
          el(
            "tr",
            {},
            el("td", { textContent: name }),
            el("td", { textContent: value === null ? "-infinity" : value }),
          ),
        ),
      ),
    );
  }
  if (product) {
    if (origin.kind === "product")
      equation.textContent =
        formatDotProduct(product) +
        (product.attended === false ? "; the mask replaces it with -infinity" : "");
    const rows = [product.left, product.right, product.products],
      names = [product.names[0], product.names[1], "product"];
    words.dataset.resting =
      (product.terms > product.at.length
        ? "The " + product.at.length + " largest of " + product.terms + " products. "
        : "") +
      "Columns: components that are multiplied. The bottom row is summed" +
      (origin.kind === "parts" ? ": " + formatDotProduct(product) + "." : ".");
    mountMatrix(
      terms,
      { weights: rows, rows: names, columns: thinLabels(product.at, terms), signed: true },
      {
        caption: words,
        hover: (r, k) =>
          "Number " +
          product.at[k] +
          ": " +
          names[0] +
          " " +
          product.left[k] +
          " · " +
          names[1] +
          " " +
          product.right[k] +
          " = " +
          product.products[k] +
          ".",
      },
    );
  }
  if (origin.kind === "mixed") {
    // one row for several tokens with different weights
    const isRest = (i) => origin.others > 0 && i === origin.rows.length - 1;
    const names = origin.rows.map((name, i) =>
      !origin.weights
        ? name
        : isRest(i)
          ? name + ", " + origin.weights[i].toFixed(2) + " in total"
          : origin.weights[i].toFixed(2) + " × " + name,
    );
    const largest = names
      .map((name, i) => [isRest(i) ? name : name + "’s value", origin.weights && origin.weights[i]])
      .filter(([, weight]) => weight >= 0.005)
      .map(([name]) => name);
    equation.textContent = origin.weights
      ? "weighted sum for " +
        row +
        " = " +
        largest.join(" + ") +
        (largest.length < names.length ? " + …" : "")
      : "output for " +
        row +
        " = " +
        names.map((name) => (name === "bias" ? name : name + "’s contribution")).join(" + ");
    words.dataset.resting =
      "Rows: summands" +
      (origin.weights ? ", weight times value" : ", each multiplied by its own columns of W_O") +
      "; the bottom row is the sum. Columns: vector components. " +
      origin.terms
        .map((term) => formatNumber(term[origin.column]))
        .join(" + ")
        .replaceAll("+ -", "− ") +
      " = " +
      result +
      " in column " +
      (origin.column + 1) +
      ".";
    mountMatrix(
      terms,
      {
        weights: [...origin.terms, origin.result],
        rows: [...names, "sum"],
        columns: thinLabels(
          origin.result.map((_, k) => k),
          terms,
        ),
        signed: true,
        chosen: [origin.terms.length, origin.column],
      },
      {
        caption: words,
        hover: (r, k) =>
          (r < names.length ? names[r] : "The sum") +
          ", number " +
          k +
          ": " +
          (r < names.length ? origin.terms[r][k] : origin.result[k]) +
          ".",
      },
    );
  }
}
// A dot product with its values.
function formatDotProduct(product) {
  const few =
    product.left
      .slice(0, 3)
      .map((value, i) => formatNumber(value) + "·" + formatNumber(product.right[i]))
      .join(" + ") + (product.terms > 3 ? " + … (" + product.terms + " products)" : "");
  const sum = formatNumber(product.sum);
  if (product.root !== null)
    return (
      "(" +
      few +
      ") / √" +
      Math.round(product.root ** 2) +
      " = " +
      sum +
      " / " +
      formatNumber(product.root) +
      " = " +
      formatNumber(product.sum / product.root) +
      (product.bias === null
        ? ""
        : "; plus the position bias " +
          formatNumber(product.bias) +
          " = " +
          formatNumber(product.sum / product.root + product.bias))
    );
  return (
    few +
    " = " +
    sum +
    (product.bias === null
      ? ""
      : "; plus the bias " + formatNumber(product.bias) + " = " + formatNumber(product.value))
  );
}

// ---------------------------------------------------------------- embeddings
const embeddingsState = {
  side: "source",
  symbol: "",
  waves: "50 x 64",
  dimension: 30,
  first: null,
  second: null,
  over: null,
};
const createSection = (view, name, title, description, ...children) =>
  el(
    "section",
    { className: view + "-part " + view + "-" + name },
    el("h4", { textContent: title }),
    el("p", { className: "hint", textContent: description }),
    ...children,
  );

VIEWS.symbols = {
  title: "Embeddings",
  explain:
    "Token embeddings and position vectors; their sum is the input of the first layer. " +
    "Learned vectors belong to this model; sinusoidal vectors are those of the paper.",
  build(box) {
    box.classList.add("symbols-page");
    const typed = (name) =>
      el("input", {
        type: "text",
        className: "symbols-" + name,
        maxLength: 400,
        spellcheck: false,
        autocomplete: "off",
        ariaLabel: name + " sentence",
      });
    box.append(
      el(
        "div",
        { className: "row" },
        createSegmentedControl(
          [
            ["source", "source", "Encoder input"],
            ["target", "target", "Decoder input"],
          ],
          embeddingsState.side,
          (side) => {
            embeddingsState.side = side;
            scheduleRefresh("symbols", 0);
          },
          "Embedding table",
        ),
      ),
      createSection(
        "symbols",
        "places",
        "Position vectors of this model",
        "",
        el("canvas", { className: "picture symbols-positions" }),
        el("p", { className: "caption symbols-positions-words" }),
      ),
      createSection(
        "symbols",
        "sines",
        "Sinusoidal positions",
        "Each dimension is a sine or cosine wave over the positions. Wavelengths increase " +
          "with the dimension, so every position has a unique vector.",
        el("div", { className: "row symbols-pictures" }),
        el("canvas", { className: "picture symbols-waves" }),
        el("p", { className: "caption symbols-waves-words" }),
      ),
      createSection(
        "symbols",
        "single",
        "Single dimensions",
        "Short waves distinguish adjacent positions; long waves encode the approximate " +
          "position. A tick marks one wavelength.",
        el(
          "div",
          { className: "row" },
          el(
            "label",
            {},
            "third dimension ",
            el("input", {
              type: "number",
              className: "symbols-dimension",
              min: 0,
              step: 1,
              value: embeddingsState.dimension,
            }),
          ),
        ),
        el("canvas", { className: "picture symbols-lines" }),
        el("table", { className: "symbols-lengths picture" }),
      ),
      createSection(
        "symbols",
        "near",
        "Nearest tokens",
        "Cosine similarity of token embeddings: 1 is the same direction, 0 orthogonal, -1 " +
          "opposite. A task that treats all tokens alike has no near neighbours.",
        el(
          "div",
          { className: "row" },
          el("label", {}, "token ", el("select", { className: "symbols-symbol" })),
        ),
        el("table", { className: "symbols-bars picture" }),
      ),
      createSection(
        "symbols",
        "map",
        "Projection of the embeddings",
        "",
        el("canvas", {
          className: "picture symbols-flat",
          tabIndex: 0,
          ariaLabel: "Projection of the embeddings",
        }),
        el("p", { className: "caption symbols-flat-words" }),
      ),
      createSection(
        "symbols",
        "order",
        "Word order",
        "Without position vectors, two sentences with the same words are the same set of " +
          "vectors; with position vectors they differ. Words have random vectors, positions " +
          "are sinusoidal.",
        el("div", { className: "symbols-sentences" }, typed("first"), typed("second")),
        el("table", { className: "symbols-distance picture" }),
        el("p", { className: "symbols-problem", role: "alert" }),
      ),
    );
    box.querySelector(".symbols-symbol").addEventListener("change", (event) => {
      embeddingsState.symbol = event.target.value;
      scheduleRefresh("symbols", 0);
    });
    box.querySelector(".symbols-dimension").addEventListener("input", (event) => {
      if (event.target.value !== "" && Number.isInteger(+event.target.value)) {
        embeddingsState.dimension = Math.max(0, Math.min(+event.target.max, +event.target.value));
        scheduleRefresh("symbols", 80);
      }
    });
    for (const name of ["first", "second"])
      box.querySelector(".symbols-" + name).addEventListener("input", (event) => {
        embeddingsState[name] = event.target.value;
        scheduleRefresh("symbols", 150);
      });
    const flat = box.querySelector(".symbols-flat");
    flat.setAttribute("role", "img");
    const highlight = (name) => {
      embeddingsState.over = name;
      if (resultByView.symbols) renderProjection(resultByView.symbols);
    };
    flat.addEventListener("pointermove", (event) => highlight(projectedTokenAt(flat, event)));
    flat.addEventListener("pointerleave", () => highlight(null));
    flat.addEventListener("blur", () => highlight(null));
    flat.addEventListener("click", () => {
      if (embeddingsState.over) {
        embeddingsState.symbol = embeddingsState.over;
        scheduleRefresh("symbols", 0);
      }
    });
    flat.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key],
        names = resultByView.symbols && resultByView.symbols.map.names;
      if (!names) return;
      if (event.key === "Enter" && embeddingsState.over) {
        embeddingsState.symbol = embeddingsState.over;
        scheduleRefresh("symbols", 0);
      }
      if (by) {
        event.preventDefault();
        highlight(names[(names.indexOf(embeddingsState.over) + by + names.length) % names.length]);
      }
    });
  },
  options: () => ({
    side: embeddingsState.side,
    symbol: embeddingsState.symbol,
    waves: embeddingsState.waves,
    dimension: embeddingsState.dimension,
    ...(embeddingsState.first === null ? {} : { first: embeddingsState.first }),
    ...(embeddingsState.second === null ? {} : { second: embeddingsState.second }),
  }),
  take(options) {
    for (const name of ["side", "symbol", "waves", "first", "second"])
      if (typeof options[name] === "string") embeddingsState[name] = options[name];
    if (Number.isInteger(options.dimension)) embeddingsState.dimension = options.dimension;
  },
  draw(data) {
    setPressed(queryView("symbols", ".choice"), data.side);
    embeddingsState.symbol = data.symbol;
    renderPositionEmbeddings(data);
    renderSinusoids(data);
    renderSinusoidDimension(data);
    renderNearestTokens(data);
    renderProjection(data);
    renderOrderDemo(data.order);
  },
  rows: (data) =>
    data.neighbours.map(([other, cosine]) => ({
      side: data.side,
      symbol: data.symbol,
      other,
      cosine,
    })),
};

function renderPositionEmbeddings(data) {
  const { weights, description: response, of, rms, symbols } = data.positions,
    caption = queryView("symbols", ".symbols-positions-words");
  queryView("symbols", ".symbols-positions").hidden = caption.hidden = !weights.length;
  if (!weights.length)
    return void (queryView("symbols", ".symbols-places .hint").textContent = response);
  queryView("symbols", ".symbols-places .hint").textContent =
    "Added to the token embedding; one row per position, " +
    response +
    ". RMS of a position vector: " +
    formatNumber(rms) +
    "; of a token embedding: " +
    formatNumber(symbols) +
    ". Both need a similar scale.";
  const cut =
    weights.length < of[0] || weights[0].length < of[1]
      ? " Displayed: the first " +
        weights.length +
        " of " +
        of[0] +
        " positions, " +
        weights[0].length +
        " of " +
        of[1] +
        " dimensions."
      : "";
  const maxValue = Math.max(...weights.flat().map(Math.abs));
  caption.dataset.resting =
    "Rows: positions of the " +
    data.side +
    ", from 0. Columns: dimensions. " +
    signedCaption(maxValue) +
    cut;
  mountMatrix(
    queryView("symbols", ".symbols-positions"),
    {
      weights,
      rows: weights.map((_, i) => String(i)),
      columns: thinLabels(
        weights[0].map((_, i) => i),
        queryView("symbols", ".symbols-positions"),
      ),
      signed: true,
      max: maxValue,
      size: 18,
    },
    { caption, hover: (r, k) => "Position " + r + ", dimension " + k + ": " + weights[r][k] + "." },
  );
}
function renderSinusoids(data) {
  const { weights, pictures, picture, positions, width } = data.waves,
    caption = queryView("symbols", ".symbols-waves-words"),
    box = queryView("symbols", ".symbols-pictures");
  if (!box.children.length)
    box.append(
      createSegmentedControl(
        pictures.map((name) => [
          name,
          name.replace("x", "×"),
          name.split(" ")[0] + " positions, " + name.split(" ")[2] + " dimensions",
        ]),
        picture,
        (value) => {
          embeddingsState.waves = value;
          embeddingsState.dimension = Math.min(embeddingsState.dimension, +value.split(" ")[2] - 1);
          scheduleRefresh("symbols", 0);
        },
        "Positions and dimensions",
      ),
    );
  setPressed(box.firstChild, picture);
  caption.dataset.resting =
    "Columns: positions 0 to " +
    (positions - 1) +
    ". Rows: dimensions 0 to " +
    (width - 1) +
    ", sines at the even ones, cosines at the odd ones. Blue is 1, orange -1.";
  mountMatrix(
    queryView("symbols", ".symbols-waves"),
    {
      weights,
      rows: weights.map((_, i) => String(i)),
      columns: weights[0].map((_, i) => (i % (positions > 60 ? 20 : 10) ? "" : String(i))),
      signed: true,
      max: 1,
      size: positions > 99 ? 6 : 9,
    },
    {
      caption,
      hover: (r, k) =>
        "Position " +
        k +
        ", dimension " +
        r +
        ": " +
        weights[r][k] +
        ". Wavelength: " +
        formatNumber(2 * Math.PI * 10000 ** ((2 * Math.floor(r / 2)) / width)) +
        " positions.",
    },
  );
}
const waveColors = () => [
  cssVariable("--pg-accent"),
  cssVariable("--pg-mark"),
  cssVariable("--pg-quiet-text"),
];
function renderSinusoidDimension(data) {
  const input = queryView("symbols", ".symbols-dimension"),
    canvas = queryView("symbols", ".symbols-lines");
  input.max = data.waves.width - 1;
  if (document.activeElement !== input) input.value = data.dimensions[2].dimension;
  const [c, width] = setUpCanvas(canvas, 190),
    left = 30,
    right = width - 8,
    top = 10,
    bottom = 150,
    n = data.waves.positions;
  const x = (at) => left + ((right - left) * at) / (n - 1),
    y = (value) => (top + bottom) / 2 - (value * (bottom - top)) / 2;
  c.font = "11px " + cssVariable("--font-mono");
  c.textBaseline = "middle";
  c.lineWidth = 1;
  for (const value of [-1, 0, 1]) {
    c.strokeStyle = cssVariable("--pg-grid");
    c.beginPath();
    c.moveTo(left, y(value));
    c.lineTo(right, y(value));
    c.stroke();
    c.fillStyle = cssVariable("--pg-quiet-text");
    c.textAlign = "right";
    c.fillText(value, left - 6, y(value));
  }
  c.textAlign = "center";
  for (let at = 0; at < n; at += n > 60 ? 20 : 10)
    if (x(at) < right - 70) c.fillText(at, x(at), 178);
  c.textAlign = "right";
  c.fillText("position", right, 178);
  data.dimensions.forEach(({ values, wavelength }, i) => {
    c.strokeStyle = c.fillStyle = waveColors()[i];
    c.lineWidth = 2;
    c.setLineDash(i === 2 ? [5, 4] : []);
    c.beginPath();
    values.forEach((value, at) => (at ? c.lineTo(x(at), y(value)) : c.moveTo(x(at), y(value))));
    c.stroke();
    c.setLineDash([]);
    if (wavelength <= n - 1) c.fillRect(x(wavelength) - 1, bottom + 4, 2, 12);
  });
  canvas.setAttribute("role", "img");
  canvas.setAttribute(
    "aria-label",
    data.dimensions
      .map(
        (d) =>
          "dimension " +
          d.dimension +
          " has a wavelength of " +
          formatNumber(d.wavelength) +
          " positions",
      )
      .join("; "),
  );
  queryView("symbols", ".symbols-lengths").replaceChildren(
    el(
      "tbody",
      {},
      ...data.dimensions.map((d, i) => {
        const line = el("i");
        line.style.borderColor = waveColors()[i];
        if (i === 2) line.style.borderTopStyle = "dashed";
        return el(
          "tr",
          {},
          el("td", {}, line),
          el("td", { textContent: "dimension " + d.dimension + " of " + data.waves.width }),
          el("td", {
            textContent: "wavelength " + formatNumber(d.wavelength) + " positions",
            title:
              "2π · 10000^(" +
              2 * Math.floor(d.dimension / 2) +
              "/" +
              data.waves.width +
              ") = " +
              d.wavelength,
          }),
        );
      }),
    ),
  );
}
function renderNearestTokens(data) {
  const select = queryView("symbols", ".symbols-symbol"),
    signature = data.symbols.join();
  if (select.dataset.signature !== signature) {
    select.dataset.signature = signature;
    select.replaceChildren(...data.symbols.map((name) => new Option(name, name)));
  }
  select.value = data.symbol;
  queryView("symbols", ".symbols-bars").replaceChildren(
    el(
      "tbody",
      {},
      ...data.neighbours.slice(0, 12).map(([name, cosine]) => {
        const bar = el("div", { className: "symbols-bar" + (cosine < 0 ? " symbols-below" : "") });
        bar.style.width = 50 * Math.abs(cosine) + "%";
        bar.style[cosine < 0 ? "marginRight" : "marginLeft"] = "50%";
        return el(
          "tr",
          {},
          el("td", { textContent: name }),
          el("td", {}, bar),
          el("td", { textContent: cosine.toFixed(2), title: String(cosine) }),
        );
      }),
    ),
  );
}
// The canvas position of a token. Both axes have the same scale, so distances are correct.
function projectionLayout(canvas, map) {
  const width = canvas.clientWidth,
    height = Math.round(Math.min(420, Math.max(240, width * 0.7)));
  const [xs, ys] = [0, 1].map((i) => map.places.map((place) => place[i])),
    low = [Math.min(...xs), Math.min(...ys)],
    high = [Math.max(...xs), Math.max(...ys)];
  const scale = Math.min(
      (width - 70) / (high[0] - low[0] || 1),
      (height - 70) / (high[1] - low[1] || 1),
    ),
    middle = [(low[0] + high[0]) / 2, (low[1] + high[1]) / 2];
  return {
    height,
    at: ([x, y]) => [
      width / 2 + 6 + (x - middle[0]) * scale,
      (height - 20) / 2 - (y - middle[1]) * scale,
    ],
  };
}
function projectedTokenAt(canvas, event) {
  const data = resultByView.symbols;
  if (!data) return null;
  const { at } = projectionLayout(canvas, data.map),
    off = data.map.places.map((place) => {
      const [x, y] = at(place);
      return Math.hypot(x - event.offsetX, y - event.offsetY);
    }),
    minValue = Math.min(...off);
  return minValue < 24 ? data.map.names[off.indexOf(minValue)] : null;
}
function renderProjection(data) {
  const canvas = queryView("symbols", ".symbols-flat"),
    { map } = data;
  if (!canvas.clientWidth) return;
  queryView("symbols", ".symbols-map .hint").textContent =
    "The first two principal components of the " +
    data.side +
    " embeddings explain " +
    formatPercent(map.explained[0]) +
    " and " +
    formatPercent(map.explained[1]) +
    " of the variance. Tokens that are close here may differ in the other " +
    Math.max(0, data.positions.of[1] - 2) +
    " dimensions.";
  const { height, at } = projectionLayout(canvas, map),
    [c, width] = setUpCanvas(canvas, height);
  c.strokeStyle = cssVariable("--pg-grid");
  c.strokeRect(0.5, 0.5, width - 1, height - 1);
  c.font = "11px " + cssVariable("--font");
  c.fillStyle = cssVariable("--pg-quiet-text");
  c.textBaseline = "alphabetic";
  c.textAlign = "right";
  c.fillText("component 1, " + formatPercent(map.explained[0]), width - 8, height - 8);
  c.save();
  c.translate(16, 8);
  c.rotate(-Math.PI / 2);
  c.fillText("component 2, " + formatPercent(map.explained[1]), 0, 0);
  c.restore();
  c.font = "600 14px " + cssVariable("--font-mono");
  c.textAlign = "center";
  c.textBaseline = "middle";
  map.names.forEach((name, i) => {
    const [x, y] = at(map.places[i]),
      marked = name === embeddingsState.over || name === data.symbol;
    c.fillStyle =
      name === embeddingsState.over
        ? cssVariable("--pg-mark")
        : marked
          ? cssVariable("--pg-accent")
          : cssVariable("--body-text-color");
    c.fillText(name, x, y);
    if (marked) {
      c.strokeStyle = c.fillStyle;
      c.lineWidth = 1.5;
      c.beginPath();
      c.roundRect(x - 6 - 4.2 * name.length, y - 12, 12 + 8.4 * name.length, 24, 6);
      c.stroke();
    }
  });
  const over = embeddingsState.over || data.symbol,
    i = map.names.indexOf(over);
  const words =
    over +
    " is at " +
    formatNumber(map.places[i][0]) +
    ", " +
    formatNumber(map.places[i][1]) +
    ". Click a token, or select it with the arrow keys and Enter, to see its nearest tokens above.";
  queryView("symbols", ".symbols-flat-words").textContent = words;
  canvas.setAttribute("aria-label", words);
}
function renderOrderDemo(order) {
  for (const [i, name] of [
    [0, "first"],
    [1, "second"],
  ]) {
    const input = queryView("symbols", "input.symbols-" + name);
    if (document.activeElement !== input) input.value = order.sentences[i];
  }
  queryView("symbols", ".symbols-problem").textContent = formatMessage(order.error || "");
  if (order.error) return;
  const rows = [
    ["words of the first, sorted", order.words[0].join(" ")],
    ["words of the second, sorted", order.words[1].join(" ")],
    [
      "distance without positions",
      formatNumber(order.without) + (order.without ? "" : ": the same set of vectors"),
    ],
    [
      "distance with positions",
      formatNumber(order.with) + (order.with ? "" : ": the same set of vectors"),
    ],
  ];
  queryView("symbols", ".symbols-distance").replaceChildren(
    el(
      "tbody",
      {},
      ...rows.map(([name, value]) =>
        el(
          "tr",
          {},
          el("td", { textContent: name }),
          el("td", {
            textContent: value,
            title: name.startsWith("distance")
              ? "Hausdorff distance: the largest distance of a vector in one set to the " +
                "nearest vector in the other set"
              : "",
          }),
        ),
      ),
    ),
  );
}

// ---------------------------------------------------------------- masks and sizes
const masksState = { scores: null, layer: 0, of: "model", measure: "no", head: 0 };
const formatMemory = (n) =>
  n >= 1e9
    ? (n / 1e9).toFixed(1) + " GB"
    : n >= 1e6
      ? (n / 1e6).toFixed(n < 1e8 ? 2 : 0) + " MB"
      : n >= 1e3
        ? (n / 1e3).toFixed(2) + " KB"
        : n + " bytes";
const formatInteger = (n) => n.toLocaleString("en");
function renderTable(table, head, rows) {
  table.replaceChildren(
    ...(head
      ? [
          el(
            "thead",
            {},
            el("tr", {}, ...head.map((text) => el("th", { scope: "col", textContent: text }))),
          ),
        ]
      : []),
    el(
      "tbody",
      {},
      ...rows.map((row) =>
        el(
          "tr",
          {},
          ...row.map((cell) =>
            cell instanceof Node
              ? cell
              : el("td", { textContent: cell === null || cell === undefined ? "" : cell }),
          ),
        ),
      ),
    ),
  );
}

VIEWS.sizes = {
  title: "Masks and sizes",
  explain:
    "Attention masks, the masked softmax, parameter counts and the memory of attention " +
    "weights, for your sequence and this model. Figures of well-known tutorials are listed " +
    "for comparison.",
  build(box) {
    box.classList.add("sizes-page");
    const table = (name) =>
      el(
        "div",
        { className: "sizes-scroll", tabIndex: 0 },
        el("table", { className: "picture " + name }),
      );
    box.append(
      createSection(
        "sizes",
        "padding",
        "Padding mask",
        "Sequences of a batch are padded to equal length with PAD, token id 0. The mask is " +
          "1 for tokens that may be attended to.",
        table("sizes-padded"),
        el("p", { className: "caption sizes-padded-words" }),
      ),
      createSection(
        "sizes",
        "ahead",
        "Causal mask",
        "In training, all target positions are computed in parallel. A position (row) may " +
          "attend only to itself and to earlier positions (columns); otherwise it could copy " +
          "the token that it must predict.",
        el("canvas", { className: "picture sizes-triangle" }),
        el("p", { className: "caption sizes-triangle-words" }),
      ),
      createSection(
        "sizes",
        "softmax",
        "Softmax without and with the mask",
        "Type one row of scores per line; zeros are padding. Without a mask, padding " +
          "receives attention.",
        el("textarea", {
          className: "sizes-scores",
          rows: 3,
          spellcheck: false,
          maxLength: 2000,
          ariaLabel: "Scores, one row per line",
        }),
        el("p", { className: "sizes-problem", role: "alert" }),
        table("sizes-rows"),
      ),
      createSection(
        "sizes",
        "kinds",
        "Four types of attention, on your sequence",
        "With the projections of one layer: bidirectional, causal, cross-attention, and " +
          "bidirectional with all heads of the model. The first three use a single head of " +
          "size d_model.",
        el("div", { className: "row sizes-layers" }),
        el("div", { className: "sizes-four" }),
      ),
      createSection(
        "sizes",
        "shapes",
        "Shapes inside multi-head attention",
        "",
        table("sizes-shapes-table"),
      ),
      createSection(
        "sizes",
        "parameters",
        "Parameters by component",
        "",
        el("div", { className: "row sizes-of" }),
        table("sizes-counts"),
        el("p", { className: "caption sizes-counts-words" }),
      ),
      createSection(
        "sizes",
        "quadratic",
        "Attention memory is quadratic in the length",
        "Attention weights of one head in float32, 4 bytes each. Twice the length needs " +
          "four times the memory. The first row is your sequence.",
        table("sizes-squares"),
        el(
          "div",
          { className: "row" },
          el("button", {
            type: "button",
            className: "quiet sizes-measure",
            textContent: "Measure on this server",
          }),
        ),
        el("p", { className: "caption sizes-squares-words" }),
      ),
    );
    box.querySelector(".sizes-scores").addEventListener("input", (event) => {
      masksState.scores = event.target.value;
      scheduleRefresh("sizes", 150);
    });
    box.querySelector(".sizes-of").append(
      createSegmentedControl(
        [
          ["model", "this model"],
          [
            "base",
            "the tutorial's base model",
            "Sizes of the paper, vocabularies of 37,000, attention without biases",
          ],
        ],
        masksState.of,
        (of) => {
          masksState.of = of;
          scheduleRefresh("sizes", 0);
        },
        "Model to count",
      ),
    );
    box.querySelector(".sizes-measure").addEventListener("click", () => {
      masksState.measure = "yes";
      queryView("sizes", ".sizes-measure").disabled = true;
      scheduleRefresh("sizes", 0);
    });
    box
      .querySelector(".sizes-four")
      .append(
        ...["bidirectional", "causal", "cross", "multi-head"].map((name) =>
          el(
            "figure",
            { className: "sizes-kind" },
            el("h4", { textContent: name }),
            el("canvas", { className: "picture" }),
            el("div", { className: "sizes-kind-heads" }),
            el("p", { className: "caption" }),
          ),
        ),
      );
  },
  options: () => ({
    layer: masksState.layer,
    of: masksState.of,
    measure: masksState.measure,
    ...(masksState.scores === null ? {} : { scores: masksState.scores }),
  }),
  take(options) {
    for (const name of ["of", "scores"])
      if (typeof options[name] === "string") masksState[name] = options[name];
    if (Number.isInteger(options.layer)) masksState.layer = options.layer;
  },
  draw(data) {
    renderMasks(data);
    renderSoftmax(data.softmax);
    renderAttentionTypes(data);
    renderShapes(data);
    renderParameterCounts(data.parameters);
    renderQuadraticCost(data);
  },
  rows: (data) =>
    data.parameters.rows.map(([of, ours, torch, why]) => ({
      part: of,
      ours,
      "nn.Transformer": torch,
      why,
    })),
};

const createMaskCell = (value) =>
  el("td", { textContent: value, className: value ? "" : "sizes-off" });
function renderMasks(data) {
  const { names, tokens, mask, added, changed, published } = data.padding,
    heading = (text) => el("th", { scope: "row", textContent: text });
  renderTable(queryView("sizes", ".sizes-padded"), null, [
    [
      heading("your sequence"),
      ...names.map((name, i) =>
        el("td", { textContent: name, className: mask[i] ? "" : "sizes-off" }),
      ),
    ],
    [
      heading("token id"),
      ...tokens.map((token, i) =>
        el("td", { textContent: token, className: mask[i] ? "" : "sizes-off" }),
      ),
    ],
    [heading("mask"), ...mask.map(createMaskCell)],
    [
      heading("tutorial: tokens"),
      ...published[0].map((token, i) =>
        el("td", { textContent: token, className: published[1][i] ? "" : "sizes-off" }),
      ),
    ],
    [heading("tutorial: mask"), ...published[1].map(createMaskCell)],
  ]);
  queryView("sizes", ".sizes-padded-words").textContent = added
    ? "With " +
      pluralize(added, "position") +
      " of padding, no logit changes by more than " +
      formatNumber(changed) +
      " (rounding): padding has no effect."
    : "This sequence has the maximum length of the model, so no padding can be added.";
  const { names: labels, mask: triangle } = data.causal,
    caption = queryView("sizes", ".sizes-triangle-words");
  caption.dataset.resting = "Rows: queries. Columns: keys. Masked positions are hatched.";
  mountMatrix(
    queryView("sizes", ".sizes-triangle"),
    { weights: triangle, rows: labels, columns: labels, possible: triangle, size: 26 },
    {
      caption,
      hover: (r, k) =>
        labels[r] +
        " (position " +
        (r + 1) +
        ") may attend to " +
        labels[k] +
        " (position " +
        (k + 1) +
        ").",
    },
  );
}
function renderSoftmax(result) {
  const field = queryView("sizes", ".sizes-scores");
  if (document.activeElement !== field) field.value = result.typed;
  queryView("sizes", ".sizes-problem").textContent = formatMessage(result.error || "");
  if (result.error) return;
  const digits = (values, real) =>
    values.map((value, i) =>
      el("td", {
        textContent: value === 0 ? "0" : value.toFixed(4),
        title: String(value),
        className: real[i] ? "" : "sizes-off",
      }),
    );
  const named = (text) => el("th", { scope: "row", textContent: text });
  renderTable(
    queryView("sizes", ".sizes-rows"),
    null,
    result.scores.flatMap((scores, r) => {
      const real = result.real[r],
        all = scores.map(() => 1),
        rows = [
          [
            named("scores " + (result.scores.length > 1 ? r + 1 : "")),
            ...scores.map((score, i) =>
              el("td", { textContent: score, className: real[i] ? "" : "sizes-off" }),
            ),
          ],
          [named("without the mask"), ...digits(result.plain[r], all)],
          ...(result.published
            ? [[named("as published"), ...digits(result.published.plain[r], all)]]
            : []),
          [named("with the mask"), ...digits(result.masked[r], real)],
          ...(result.published
            ? [[named("as published"), ...digits(result.published.masked[r], real)]]
            : []),
        ];
      return rows;
    }),
  );
  const each = result.published ? 5 : 3;
  [...queryView("sizes", ".sizes-rows").querySelectorAll("tr")].forEach((row, i) => {
    row.classList.toggle("sizes-first", i % each === 0);
    row.classList.toggle("sizes-quoted", row.firstChild.textContent === "as published");
  });
}
function renderAttentionTypes(data) {
  const box = queryView("sizes", ".sizes-layers");
  if (box.dataset.layers !== String(data.layers)) {
    box.dataset.layers = data.layers;
    box.replaceChildren(
      ...(data.layers > 1
        ? [
            el(
              "label",
              {},
              "layer ",
              createSegmentedControl(
                Array.from({ length: data.layers }, (_, i) => [i, String(i + 1)]),
                data.layer,
                (layer) => {
                  masksState.layer = layer;
                  scheduleRefresh("sizes", 0);
                },
                "Layer",
              ),
            ),
          ]
        : []),
    );
  }
  box.hidden = data.layers < 2;
  masksState.layer = data.layer;
  if (data.layers > 1) setPressed(box.querySelector(".choice"), data.layer);
  [...queryView("sizes", ".sizes-four").children].forEach((figure, i) => {
    const kind = data.kinds[i],
      heads = figure.querySelector(".sizes-kind-heads"),
      many = kind.name === "multi-head" && kind.heads.length > 1;
    const at = many ? Math.min(masksState.head, kind.heads.length - 1) : 0,
      weights = kind.heads[at],
      caption = figure.querySelector(".caption");
    heads.hidden = !many;
    if (many && heads.dataset.heads !== String(kind.heads.length)) {
      heads.dataset.heads = kind.heads.length;
      heads.replaceChildren(
        createSegmentedControl(
          kind.heads.map((_, h) => [h, String(h + 1), "head " + (h + 1)]),
          at,
          (h) => {
            masksState.head = h;
            redrawView("sizes");
          },
          "Head",
        ),
      );
    }
    if (many) setPressed(heads.firstChild, at);
    const cut =
      kind.of[1] > weights.length
        ? " The first " + weights.length + " of " + kind.of[1] + " tokens."
        : "";
    caption.dataset.resting =
      {
        bidirectional: "Source attends to source.",
        causal: "Source attends to source, with a causal mask.",
        cross: "Decoder input attends to source.",
        "multi-head": "Source attends to source, head " + (at + 1) + " of " + kind.of[0] + ".",
      }[kind.name] + cut;
    mountMatrix(
      figure.querySelector("canvas"),
      { weights, rows: kind.rows, columns: kind.columns, possible: kind.possible, size: 30 },
      {
        caption,
        hover: (r, k) =>
          kind.rows[r] +
          " attends to " +
          kind.columns[k] +
          " with weight " +
          weights[r][k].toFixed(3) +
          "; its row sums to one.",
      },
    );
  });
}
function renderShapes(data) {
  queryView("sizes", ".sizes-shapes .hint").textContent =
    "Self-attention of this model over the " +
    pluralize(data.length, "token") +
    " of your sequence, EOS included.";
  renderTable(
    queryView("sizes", ".sizes-shapes-table"),
    ["tensor", "definition", "shape"],
    data.shapes.map(([name, formula, shape]) => [name, formula, shape.join(" × ")]),
  );
}
function renderParameterCounts({ of, rows, published }) {
  setPressed(queryView("sizes", ".sizes-of .choice"), of);
  queryView("sizes", ".sizes-parameters .hint").textContent =
    of === "base"
      ? "The paper's base model as a tutorial counts it: d_model 512, 6 + 6 layers, 8 heads, " +
        "d_ff 2048, vocabularies of 37,000, attention without biases."
      : "Parameters of this model and of torch's nn.Transformer with the same sizes, " +
        "embeddings and output layer.";
  const sum = (k) => rows.reduce((total, row) => total + row[k], 0),
    total = (text) => el("td", { className: "sizes-total", textContent: text });
  renderTable(
    queryView("sizes", ".sizes-counts"),
    ["part", "this project", "nn.Transformer", "difference"],
    [
      ...rows.map(([name, ours, torch, why]) => [
        name,
        formatInteger(ours),
        formatInteger(torch),
        why,
      ]),
      [total("total"), total(formatInteger(sum(1))), total(formatInteger(sum(2))), total("")],
      ...(published
        ? [
            [
              "as published",
              formatInteger(published.ours),
              formatInteger(published.torch),
              published.ours === sum(1) && published.torch === sum(2)
                ? "equal"
                : "differs from the counts above",
            ],
          ]
        : []),
    ],
  );
  const difference = sum(2) - sum(1);
  queryView("sizes", ".sizes-counts-words").textContent = difference
    ? "nn.Transformer has " +
      formatInteger(Math.abs(difference)) +
      (difference > 0 ? " more." : " fewer.")
    : "Both have the same number of parameters in every component.";
}
function renderQuadraticCost(data) {
  const button = queryView("sizes", ".sizes-measure");
  button.disabled = data.measured;
  button.title = "One head on random vectors; the longest measured length needs 256 MB";
  renderTable(
    queryView("sizes", ".sizes-squares"),
    ["tokens", "weights", "memory", "published", ...(data.measured ? ["measured"] : [])],
    data.quadratic.map(([length, entries, n, published, measured]) => {
      const memory = el("td", { textContent: formatMemory(n), title: formatInteger(n) + " bytes" });
      return [
        formatInteger(length),
        formatInteger(entries),
        memory,
        published || "",
        ...(data.measured
          ? [
              measured
                ? el("td", {
                    textContent:
                      formatMemory(measured[0]) + ", " + formatNumber(measured[1]) + " s",
                    title: formatInteger(measured[0]) + " bytes",
                  })
                : "too large to measure",
            ]
          : []),
      ];
    }),
  );
  const last = data.quadratic.at(-1)[2];
  queryView("sizes", ".sizes-squares-words").textContent =
    "The tutorial's MB are 2^20 bytes, 1.05 million; its " +
    data.quadratic.at(-1)[3] +
    " is " +
    (last / 1e9).toFixed(1) +
    " GB of 10^9 bytes, or " +
    (last / 2 ** 30).toFixed(1) +
    " of 2^30.";
}
