// Word in context.
import { el } from "../shared/dom.js";
import { embeddingsView, formatCosine } from "./embeddings.js";
import {
  createInferenceForm,
  createNotes,
  createTextBox,
  readableToken,
  shortModelName,
} from "./inference_form.js";
import { paintLines, seriesColor } from "./learning_curves.js";

export function createWordInContextForm(name) {
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
    buildRequest: ({ fields, inputs }) => ({
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
    [first, second] = result.occurrences;
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
          cell(each.similarity),
          cell(each.baseline),
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
      each.similarity,
      each.baseline ?? 0,
      ...each.references.flatMap((pair) => pair || []),
    ]),
    low = Math.min(0, Math.floor(10 * Math.min(...values)) / 10);
  for (const keys of [embeddingsView.keys, embeddingsView.keys2])
    keys.style.cssText = [0, 1].map((i) => "--of-" + i + ":" + seriesColor(i)).join(";");
  paintLines(
    embeddingsView.alike,
    [
      layers.map((each) => [each.layer, each.similarity]),
      layers.filter((each) => each.baseline !== null).map((each) => [each.layer, each.baseline]),
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
