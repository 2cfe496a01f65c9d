// Masks and shapes.
import { createSegmentedControl, el } from "../shared/dom.js";
import { renderAttentionTypes, renderMasks, renderSoftmax } from "./attention_masks.js";
import { createSection } from "./embeddings.js";
import { renderParameterCounts, renderQuadraticCost, renderShapes } from "./parameter_counts.js";
import { scheduleRefresh } from "./requests.js";
import { queryView } from "./views.js";

export const masksState = { scores: null, layer: 0, of: "model", measure: "no", head: 0 };
export const formatMemory = (n) =>
  n >= 1e9
    ? (n / 1e9).toFixed(1) + " GB"
    : n >= 1e6
      ? (n / 1e6).toFixed(n < 1e8 ? 2 : 0) + " MB"
      : n >= 1e3
        ? (n / 1e3).toFixed(2) + " KB"
        : n + " bytes";
export const formatInteger = (n) => n.toLocaleString("en");
export function renderTable(table, head, rows) {
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

export const masksSpec = {
  title: "Masks and shapes",
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
  restoreOptions(options) {
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

export const createMaskCell = (value) =>
  el("td", { textContent: value, className: value ? "" : "sizes-off" });
