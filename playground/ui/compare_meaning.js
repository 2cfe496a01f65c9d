// "Meaning": one word in two places, layer by layer; sums of word vectors; how large well-known models are (comparison/meaning.py, known.py).
const meaning = { part: "banks", banks: null, analogy: null, sizes: null };

VIEWS.meaning = {
  title: "Meaning",
  explain: "What the numbers inside a pretrained model have to do with what words mean, and how many numbers well-known models have.",
  build(box) {
    const before = kept("meaning-part");
    meaning.parts = { banks: banksPart("banks"), analogy: analogyPart("analogy"), sizes: sizesPart() };
    if (Object.hasOwn(meaning.parts, before)) meaning.part = before;
    meaning.choice = choice(Object.entries(meaning.parts).map(([name, part]) => [name, part.title, part.about]), meaning.part, toMeaning, "What to look at");
    box.append(el("div", { className: "row parts" }, meaning.choice), ...Object.values(meaning.parts).map((part) => part.box));
    listeners.push(meaningAtOnce);
    toMeaning(meaning.part);
  },
  fields() { const { remember } = meaning.parts[meaning.part]; if (remember) remember(); return ["meaning-part", ...(remember ? ["free-" + meaning.part] : [])]; },
  show() { const part = meaning.parts[meaning.part]; (part.fields || []).forEach((field) => field.look()); if (part.draw) part.draw(); meaningAtOnce(); },
  chosen() { meaning.parts.sizes.stale = true; if (state.view === "meaning" && meaning.part === "sizes") askSizes(); },
};
function toMeaning(name) {
  meaning.part = name;
  keep("meaning-part", name);
  press(meaning.choice, name);
  for (const [each, part] of Object.entries(meaning.parts)) part.box.hidden = each !== name;
  if (VIEWS.meaning.box.offsetParent) VIEWS.meaning.show();
}
function meaningAtOnce() {
  if (state.view !== "meaning" || !root.offsetParent) return;
  const part = meaning.parts[meaning.part];
  if (meaning.part === "sizes") askSizes();
  else atOnce(part.asker, "free-" + part.name, part.fields, part.ask);
}
const cosine = (x) => x.toFixed(2);

// ---------------------------------------------------------------- two banks
function banksPart(name) {
  const part = freePart(name, {
    title: "Two banks", about: "One word with two meanings, layer by layer", button: "Look", kind: "banks",
    models: [["Model", "bert-base-uncased"]],
    controls: [
      ["text", "Text", textBox("The bank by the river was steep, but the bank refused my loan")],
      ["word", "The word that stands there twice", el("input", { type: "text", value: "bank", required: true, maxLength: 40 })],
      ["beside", "Words to hold beside it", el("input", { type: "text", value: "river, shore, money, loan", maxLength: 330 }), "Up to eight, with commas between them; each is given to the model alone"],
    ],
    what: ({ fields, inputs }) => ({ model: fields[0].value, text: inputs.text.value, word: inputs.word.value, beside: inputs.beside.value.split(",").map((each) => each.trim()).filter(Boolean) }),
    empty: "How alike the two occurrences are after each layer will be here. They begin as one word with one vector; what stands around them draws them apart.",
    over(part, told) {
      if (told.status !== "done") return "";
      meaning.banks = told.result;
      buildBanks(part); drawBanks();
      return "Looked at in " + told.result.model;
    },
  });
  part.draw = drawBanks;
  return part;
}
function buildBanks(part) {
  const result = meaning.banks, [first, second] = result.places;
  const chart = (className, label) => { const canvas = el("canvas", { className }); canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", label); return canvas; };
  const key = (i, text) => el("span", { className: "key" }, el("span", { className: "swatch" + (i % 2 ? " dashed" : ""), style: "--colour:var(--of-" + i + ")" }), text);
  meaning.alike = chart("two-alike", "Cosine of the two occurrences by layer, and of other pairs of words");
  meaning.each = result.beside.map((word) => chart("beside-word", "Cosine of " + word + " with each of the two, by layer"));
  meaning.keys = el("div", { className: "keys" }, key(0, "the two " + result.word), key(1, "other pairs of words in the text, on average"));
  meaning.keys2 = el("div", { className: "keys" }, key(0, "with the first " + result.word), key(1, "with the second"));
  const tokens = el("div", { className: "tokens" }, ...result.tokens.map((token, i) => { const which = first.includes(i) ? 1 : second.includes(i) ? 2 : 0; return el("span", { className: "token" + (which ? " t" + (which - 1) + " marked" : ""), textContent: readable(token) + (which ? " " + which : ""), title: which ? (which === 1 ? "the first" : "the second") + " of the two that are compared" : "token " + (i + 1) }); }));
  const columns = ["layer", "the two", "other pairs", ...result.beside.flatMap((word) => [word + " 1", word + " 2"])], cell = (value) => el("td", { className: "number", textContent: value === null || value === undefined ? "–" : cosine(value), title: value === null || value === undefined ? "" : String(value) });
  const table = el("table", { className: "sheet" }, el("thead", {}, el("tr", {}, ...columns.map((text) => el("th", { scope: "col", className: "number", textContent: text })))), el("tbody", {}, ...result.layers.map((each) => el("tr", {}, el("td", { className: "number", textContent: each.layer || "in" }), cell(each.alike), cell(each.others), ...each.beside.flatMap((pair) => (pair ? pair.map(cell) : [cell(null), cell(null)]))))));
  part.out.replaceChildren(
    el("p", { className: "verdict", textContent: result.finding }), tokens,
    el("p", { className: "hint", textContent: "A cosine of 1 is the same direction. Layer 0 is what goes into the first layer. In most models all vectors point much the same way (Ethayarajh 2019), so hold every cosine against that of other pairs." }),
    el("div", { className: "charts" }, el("figure", {}, el("figcaption", { textContent: "How alike the two are in " + shortName(result) + ", by layer" }), meaning.alike, meaning.keys),
      el("figure", {}, el("figcaption", { textContent: "Beside words that are given to the model alone" }), el("div", { className: "small-charts" }, ...result.beside.map((word, i) => el("div", {}, el("span", { className: "hint", textContent: word }), meaning.each[i]))), meaning.keys2)),
    ...hints(result.notes), el("details", { className: "numbers-of" }, el("summary", { className: "plain", textContent: "The numbers" }), el("div", { className: "scrolling", tabIndex: 0 }, table)));
}
function drawBanks() {
  const result = meaning.banks;
  if (!result || !meaning.alike || !meaning.alike.clientWidth) return;
  const { layers } = result, most = Math.max(1, layers.length - 1), ticks = [[0, "0"], [0.5, "0.5"], [1, "1"]], values = layers.flatMap((each) => [each.alike, each.others ?? 0, ...each.beside.flatMap((pair) => pair || [])]), low = Math.min(0, Math.floor(10 * Math.min(...values)) / 10);
  for (const keys of [meaning.keys, meaning.keys2]) keys.style.cssText = [0, 1].map((i) => "--of-" + i + ":" + hueOf(i)).join(";");
  lines(meaning.alike, [layers.map((each) => [each.layer, each.alike]), layers.filter((each) => each.others !== null).map((each) => [each.layer, each.others])], [low, 1], ticks, most, "layer");
  meaning.each.forEach((canvas, k) => lines(canvas, [0, 1].map((side) => layers.filter((each) => each.beside[k]).map((each) => [each.layer, each.beside[k][side]])), [low, 1], ticks, most, "layer", 92));
  meaning.alike.drawn = layers; // tests read it
}

// ---------------------------------------------------------------- king - man + woman
function analogyPart(name) {
  const word = (value) => el("input", { type: "text", value, required: true, maxLength: 40, spellcheck: false });
  return freePart(name, {
    title: "king − man + woman", about: "Sums of the vectors of a model's input embedding", button: "Add up", kind: "analogy",
    models: [["Model", "bert-base-uncased"]],
    controls: [["plus", "From", word("king")], ["minus", "take away", word("man")], ["also", "add", word("woman")], ["expected", "and expect", word("queen")]],
    what: ({ fields, inputs }) => ({ model: fields[0].value, ...Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value])) }),
    empty: "What lies nearest to the sum will be here, and where the expected word comes: among all tokens, with the three given words left out, and without any arithmetic.",
    over(part, told) {
      if (told.status !== "done") return "";
      const { result } = told, { words, expected } = result, ranks = [["among all tokens", expected.with_given, "nothing left out"], ["the three given words left out", expected.without_given, "as Mikolov et al. 2013 do"], ["beside " + words.plus + " alone", expected.of_the_first_alone, "no arithmetic, the three left out as well"]];
      part.out.replaceChildren(
        el("p", { className: "verdict", textContent: result.finding }),
        el("h4", { textContent: "Where " + words.expected + " comes, of " + plural(result.vocabulary, "token") }),
        el("table", { className: "sheet ranks" }, el("tbody", {}, ...ranks.map(([text, rank, how]) => el("tr", {}, el("td", {}, text, el("span", { className: "what", textContent: how })), el("td", { className: "number", textContent: "number " + rank.toLocaleString("en") }))))),
        el("h4", { textContent: "Nearest to " + words.plus + " − " + words.minus + " + " + words.also + " in " + shortName(result) + ", by cosine" }),
        bars(result.nearest.map((each) => [readable(each.token) + (each.given ? " (given)" : ""), each.cosine, { chosen: each.id === idOf(result, "expected"), words: cosine(each.cosine), title: "id " + each.id }])));
      return "Looked at in " + result.model;
    },
  });
}
const idOf = (result, name) => (result.nearest.find((each) => each.token === result.tokens[name]) || {}).id;

// ---------------------------------------------------------------- sizes
const HOW = { here: "this one", counted: "counted here", cited: "cited" };
function sizesPart() {
  const out = el("div", { className: "out" }, el("p", { className: "hint", textContent: "Counting" })), line = asker("sizes", { begun: () => { meaning.parts.sizes.stale = false; }, over: (told) => { if (told.status === "done") { meaning.sizes = told.result; drawSizes(); } } });
  return { title: "Sizes", about: "Well-known models beside this one, by the number of their parameters", asker: line, out, stale: true, box: el("div", { className: "part-sizes", hidden: true }, line.line, out) };
}
async function askSizes() {
  const part = meaning.parts.sizes, own = subjectNow();
  if (!part.stale || !own || !owner || part.asker.busy) return;
  part.stale = false;
  await askNow(part.asker, "sizes", { parameters: own.parameters, name: own.name.slice(0, 80) });
}
function drawSizes() {
  const { models } = meaning.sizes, logs = models.map((each) => Math.log10(each.parameters)), low = Math.floor(Math.min(...logs)), high = Math.ceil(Math.max(...logs)), times = (x) => (x >= 10 ? Math.round(+x.toPrecision(2)).toLocaleString("en") : number(x)) + " ×";
  meaning.parts.sizes.out.replaceChildren(
    el("p", { className: "fairness", textContent: "From line to line of the scale there are ten times as many parameters. Counted here: built from its published configuration, without weights. Cited: as its authors say." }),
    el("div", { className: "scrolling", tabIndex: 0 }, el("table", { className: "sheet sizes" }, el("thead", {}, el("tr", {}, ...["model", "parameters", "", "as many as here", "how", "source"].map((text, i) => (i === 2 ? el("th", { scope: "col", ariaLabel: "on a scale" }, el("span", { className: "ends" }, el("span", {}, "10", el("sup", { textContent: low })), el("span", {}, "10", el("sup", { textContent: high })))) : el("th", { scope: "col", textContent: text, className: [1, 3].includes(i) ? "number" : "" }))))),
      el("tbody", {}, ...models.map((each, i) => { const dot = el("i"); dot.style.left = (100 * (logs[i] - low)) / (high - low) + "%"; return el("tr", { className: each.how === "here" ? "own" : "" }, el("td", { className: "who" }, el("span", { className: "name", textContent: each.name })), el("td", { className: "number", textContent: each.parameters.toLocaleString("en") }), el("td", {}, el("span", { className: "decades", style: "--decades:" + (high - low) }, dot)), el("td", { className: "number", textContent: each.times === null ? "" : times(each.times) }), el("td", { className: "how", textContent: HOW[each.how] }), el("td", { className: "what-of", textContent: each.how === "here" ? "" : each.source })); })))));
}
