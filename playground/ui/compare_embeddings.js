// Embeddings: one word in two contexts by layer, analogies, and sizes of well-known models
// (probing/embeddings.py, pretrained/model_facts.py).
const embeddingsView = { part: "banks", banks: null, analogy: null, sizes: null };

VIEWS.meaning = {
  title: "Embeddings",
  explain:
    "Contextual and input embeddings of pretrained models, and the sizes of well-known models.",
  build(box) {
    const before = loadLocal("meaning-part");
    embeddingsView.parts = {
      banks: createWordInContextForm("banks"),
      analogy: createAnalogyForm("analogy"),
      sizes: createSizesPanel(),
    };
    if (Object.hasOwn(embeddingsView.parts, before)) embeddingsView.part = before;
    embeddingsView.choice = createSegmentedControl(
      Object.entries(embeddingsView.parts).map(([name, part]) => [name, part.title, part.about]),
      embeddingsView.part,
      selectEmbeddingsTask,
      "Embedding task",
    );
    box.append(
      el("div", { className: "row parts" }, embeddingsView.choice),
      ...Object.values(embeddingsView.parts).map((part) => part.box),
    );
    listeners.push(autoRunEmbeddings);
    selectEmbeddingsTask(embeddingsView.part);
  },
  fields() {
    const { remember } = embeddingsView.parts[embeddingsView.part];
    if (remember) remember();
    return ["meaning-part", ...(remember ? ["free-" + embeddingsView.part] : [])];
  },
  show() {
    const part = embeddingsView.parts[embeddingsView.part];
    (part.fields || []).forEach((field) => field.loadFacts());
    if (part.draw) part.draw();
    autoRunEmbeddings();
  },
  chosen() {
    embeddingsView.parts.sizes.stale = true;
    if (state.view === "meaning" && embeddingsView.part === "sizes") loadSizes();
  },
};
function selectEmbeddingsTask(name) {
  embeddingsView.part = name;
  saveLocal("meaning-part", name);
  setPressed(embeddingsView.choice, name);
  for (const [each, part] of Object.entries(embeddingsView.parts)) part.box.hidden = each !== name;
  if (VIEWS.meaning.box.offsetParent) VIEWS.meaning.show();
}
function autoRunEmbeddings() {
  if (state.view !== "meaning" || !root.offsetParent) return;
  const part = embeddingsView.parts[embeddingsView.part];
  if (embeddingsView.part === "sizes") loadSizes();
  else autoRun(part.runner, "free-" + part.name, part.fields, part.run);
}
const formatCosine = (x) => x.toFixed(2);

// ---------------------------------------------------------------- word in context
function createWordInContextForm(name) {
  const part = createInferenceForm(name, {
    title: "Word in context",
    about: "One word with two meanings, by layer",
    button: "Run",
    kind: "word-in-context",
    models: [["Model", "bert-base-uncased"]],
    controls: [
      [
        "text",
        "Text",
        createTextBox("The bank by the river was steep, but the bank refused my loan"),
      ],
      [
        "word",
        "Word that occurs twice",
        el("input", { type: "text", value: "bank", required: true, maxLength: 40 }),
      ],
      [
        "references",
        "Words to compare with",
        el("input", { type: "text", value: "river, shore, money, loan", maxLength: 330 }),
        "Up to eight words, separated by commas; each is a separate input",
      ],
    ],
    what: ({ fields, inputs }) => ({
      model: fields[0].value,
      text: inputs.text.value,
      word: inputs.word.value,
      references: inputs.references.value
        .split(",")
        .map((each) => each.trim())
        .filter(Boolean),
    }),
    empty:
      "Cosine similarity of the two occurrences after each layer. Both start from the same " +
      "token embedding; position and context separate them.",
    onFinish(part, response) {
      if (response.status !== "done") return "";
      embeddingsView.banks = response.result;
      renderWordInContext(part);
      paintWordInContext();
      return "Computed with " + response.result.model;
    },
  });
  part.draw = paintWordInContext;
  return part;
}
function renderWordInContext(part) {
  const result = embeddingsView.banks,
    [first, second] = result.places;
  const chart = (className, label) => {
    const canvas = el("canvas", { className });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", label);
    return canvas;
  };
  const key = (i, text) =>
    el(
      "span",
      { className: "key" },
      el("span", {
        className: "swatch" + (i % 2 ? " dashed" : ""),
        style: "--colour:var(--of-" + i + ")",
      }),
      text,
    );
  embeddingsView.alike = chart(
    "two-alike",
    "Cosine of the two occurrences by layer, and of other pairs of words",
  );
  embeddingsView.each = result.references.map((word) =>
    chart("reference-word", "Cosine of " + word + " with each of the two, by layer"),
  );
  embeddingsView.keys = el(
    "div",
    { className: "keys" },
    key(0, "the two " + result.word),
    key(1, "mean of other word pairs in the text"),
  );
  embeddingsView.keys2 = el(
    "div",
    { className: "keys" },
    key(0, "with the first " + result.word),
    key(1, "with the second"),
  );
  const tokens = el(
    "div",
    { className: "tokens" },
    ...result.tokens.map((token, i) => {
      const which = first.includes(i) ? 1 : second.includes(i) ? 2 : 0;
      return el("span", {
        className: "token" + (which ? " t" + (which - 1) + " marked" : ""),
        textContent: readableToken(token) + (which ? " " + which : ""),
        title: which
          ? (which === 1 ? "the first" : "the second") + " of the two compared occurrences"
          : "token " + (i + 1),
      });
    }),
  );
  const columns = [
      "layer",
      "the two",
      "other pairs",
      ...result.references.flatMap((word) => [word + " 1", word + " 2"]),
    ],
    cell = (value) =>
      el("td", {
        className: "number",
        textContent: value === null || value === undefined ? "–" : formatCosine(value),
        title: value === null || value === undefined ? "" : String(value),
      });
  const table = el(
    "table",
    { className: "sheet" },
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        ...columns.map((text) =>
          el("th", { scope: "col", className: "number", textContent: text }),
        ),
      ),
    ),
    el(
      "tbody",
      {},
      ...result.layers.map((each) =>
        el(
          "tr",
          {},
          el("td", { className: "number", textContent: each.layer || "in" }),
          cell(each.alike),
          cell(each.others),
          ...each.references.flatMap((pair) => (pair ? pair.map(cell) : [cell(null), cell(null)])),
        ),
      ),
    ),
  );
  part.out.replaceChildren(
    el("p", { className: "verdict", textContent: result.finding }),
    tokens,
    el("p", {
      className: "hint",
      textContent:
        "Cosine 1 is the same direction; layer 0 is the input of the first layer. Most " +
        "models have a high cosine for all pairs (Ethayarajh 2019), so compare with the " +
        "other pairs.",
    }),
    el(
      "div",
      { className: "charts" },
      el(
        "figure",
        {},
        el("figcaption", {
          textContent:
            "Similarity of the two occurrences in " + shortModelName(result) + ", by layer",
        }),
        embeddingsView.alike,
        embeddingsView.keys,
      ),
      el(
        "figure",
        {},
        el("figcaption", { textContent: "Similarity to single words" }),
        el(
          "div",
          { className: "small-charts" },
          ...result.references.map((word, i) =>
            el(
              "div",
              {},
              el("span", { className: "hint", textContent: word }),
              embeddingsView.each[i],
            ),
          ),
        ),
        embeddingsView.keys2,
      ),
    ),
    ...createNotes(result.notes),
    el(
      "details",
      { className: "numbers-of" },
      el("summary", { className: "plain", textContent: "The numbers" }),
      el("div", { className: "scrolling", tabIndex: 0 }, table),
    ),
  );
}
function paintWordInContext() {
  const result = embeddingsView.banks;
  if (!result || !embeddingsView.alike || !embeddingsView.alike.clientWidth) return;
  const { layers } = result,
    maxValue = Math.max(1, layers.length - 1),
    ticks = [
      [0, "0"],
      [0.5, "0.5"],
      [1, "1"],
    ],
    values = layers.flatMap((each) => [
      each.alike,
      each.others ?? 0,
      ...each.references.flatMap((pair) => pair || []),
    ]),
    low = Math.min(0, Math.floor(10 * Math.min(...values)) / 10);
  for (const keys of [embeddingsView.keys, embeddingsView.keys2])
    keys.style.cssText = [0, 1].map((i) => "--of-" + i + ":" + seriesColor(i)).join(";");
  paintLines(
    embeddingsView.alike,
    [
      layers.map((each) => [each.layer, each.alike]),
      layers.filter((each) => each.others !== null).map((each) => [each.layer, each.others]),
    ],
    [low, 1],
    ticks,
    maxValue,
    "layer",
  );
  embeddingsView.each.forEach((canvas, k) =>
    paintLines(
      canvas,
      [0, 1].map((side) =>
        layers
          .filter((each) => each.references[k])
          .map((each) => [each.layer, each.references[k][side]]),
      ),
      [low, 1],
      ticks,
      maxValue,
      "layer",
      92,
    ),
  );
  embeddingsView.alike.drawn = layers; // tests read this property
}

// ---------------------------------------------------------------- analogies
function createAnalogyForm(name) {
  const word = (value) =>
    el("input", { type: "text", value, required: true, maxLength: 40, spellcheck: false });
  return createInferenceForm(name, {
    title: "Analogies",
    about: "king − man + woman: sums of input embedding vectors",
    button: "Run",
    kind: "analogy",
    models: [["Model", "bert-base-uncased"]],
    controls: [
      ["plus", "Start", word("king")],
      ["minus", "Subtract", word("man")],
      ["also", "Add", word("woman")],
      ["expected", "Expected", word("queen")],
    ],
    what: ({ fields, inputs }) => ({
      model: fields[0].value,
      ...Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value])),
    }),
    empty:
      "The tokens nearest to the sum, and the rank of the expected word: among all tokens, " +
      "among all tokens except the three input words, and by similarity to one input word alone.",
    onFinish(part, response) {
      if (response.status !== "done") return "";
      const { result } = response,
        { words, expected } = result,
        ranks = [
          ["among all tokens", expected.with_input_words, "no exclusions"],
          [
            "without the three input words",
            expected.without_input_words,
            "as in Mikolov et al. 2013",
          ],
          [
            "nearest to " + words.plus + " alone",
            expected.of_the_first_alone,
            "no arithmetic, without the three input words",
          ],
        ];
      part.out.replaceChildren(
        el("p", { className: "verdict", textContent: result.finding }),
        el("h4", {
          textContent:
            "Rank of " + words.expected + " among " + pluralize(result.vocabulary, "token"),
        }),
        el(
          "table",
          { className: "sheet ranks" },
          el(
            "tbody",
            {},
            ...ranks.map(([text, rank, how]) =>
              el(
                "tr",
                {},
                el("td", {}, text, el("span", { className: "what", textContent: how })),
                el("td", { className: "number", textContent: "rank " + rank.toLocaleString("en") }),
              ),
            ),
          ),
        ),
        el("h4", {
          textContent:
            "Nearest to " +
            words.plus +
            " − " +
            words.minus +
            " + " +
            words.also +
            " in " +
            shortModelName(result) +
            ", by cosine",
        }),
        createBarList(
          result.nearest.map((each) => [
            readableToken(each.token) + (each.is_input ? " (input)" : ""),
            each.cosine,
            {
              chosen: each.id === tokenIdOf(result, "expected"),
              words: formatCosine(each.cosine),
              title: "id " + each.id,
            },
          ]),
        ),
      );
      return "Computed with " + result.model;
    },
  });
}
const tokenIdOf = (result, name) =>
  (result.nearest.find((each) => each.token === result.tokens[name]) || {}).id;

// ---------------------------------------------------------------- sizes
const SOURCE_LABELS = { here: "this model", counted: "counted here", cited: "cited" };
function createSizesPanel() {
  const out = el(
      "div",
      { className: "out" },
      el("p", { className: "hint", textContent: "Counting" }),
    ),
    line = createJobRunner("sizes", {
      onStart: () => {
        embeddingsView.parts.sizes.stale = false;
      },
      onFinish: (response) => {
        if (response.status === "done") {
          embeddingsView.sizes = response.result;
          renderSizes();
        }
      },
    });
  return {
    title: "Sizes",
    about: "Parameter counts of this model and of well-known models",
    runner: line,
    out,
    stale: true,
    box: el("div", { className: "part-sizes", hidden: true }, line.line, out),
  };
}
async function loadSizes() {
  const part = embeddingsView.parts.sizes,
    own = currentModel();
  if (!part.stale || !own || !owner || part.runner.busy) return;
  part.stale = false;
  await runJob(part.runner, "model-sizes", {
    parameters: own.parameters,
    name: own.name.slice(0, 80),
  });
}
function renderSizes() {
  const { models } = embeddingsView.sizes,
    logs = models.map((each) => Math.log10(each.parameters)),
    low = Math.floor(Math.min(...logs)),
    high = Math.ceil(Math.max(...logs)),
    times = (x) =>
      (x >= 10 ? Math.round(+x.toPrecision(2)).toLocaleString("en") : formatNumber(x)) + " ×";
  embeddingsView.parts.sizes.out.replaceChildren(
    el("p", {
      className: "fairness",
      textContent:
        "Each line of the scale is a factor of ten. Counted here: built from the published " +
        "configuration, without weights. Cited: as reported by the authors.",
    }),
    el(
      "div",
      { className: "scrolling", tabIndex: 0 },
      el(
        "table",
        { className: "sheet sizes" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ...["model", "parameters", "", "relative size", "method", "source"].map((text, i) =>
              i === 2
                ? el(
                    "th",
                    { scope: "col", ariaLabel: "on a scale" },
                    el(
                      "span",
                      { className: "ends" },
                      el("span", {}, "10", el("sup", { textContent: low })),
                      el("span", {}, "10", el("sup", { textContent: high })),
                    ),
                  )
                : el("th", {
                    scope: "col",
                    textContent: text,
                    className: [1, 3].includes(i) ? "number" : "",
                  }),
            ),
          ),
        ),
        el(
          "tbody",
          {},
          ...models.map((each, i) => {
            const dot = el("i");
            dot.style.left = (100 * (logs[i] - low)) / (high - low) + "%";
            return el(
              "tr",
              { className: each.how === "here" ? "own" : "" },
              el(
                "td",
                { className: "who" },
                el("span", { className: "name", textContent: each.name }),
              ),
              el("td", { className: "number", textContent: each.parameters.toLocaleString("en") }),
              el(
                "td",
                {},
                el("span", { className: "decades", style: "--decades:" + (high - low) }, dot),
              ),
              el("td", {
                className: "number",
                textContent: each.times === null ? "" : times(each.times),
              }),
              el("td", { className: "how", textContent: SOURCE_LABELS[each.how] }),
              el("td", {
                className: "what-of",
                textContent: each.how === "here" ? "" : each.source,
              }),
            );
          }),
        ),
      ),
    ),
  );
}
