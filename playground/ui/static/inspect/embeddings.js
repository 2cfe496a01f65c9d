// Embeddings.
import { createSegmentedControl, el, setPressed } from "../shared/dom.js";
import {
  projectedTokenAt,
  renderNearestTokens,
  renderOrderDemo,
  renderProjection,
} from "./embedding_projection.js";
import {
  renderPositionEmbeddings,
  renderSinusoidDimension,
  renderSinusoids,
} from "./position_embeddings.js";
import { scheduleRefresh } from "./requests.js";
import { state } from "./state.js";
import { queryView } from "./views.js";

export const embeddingsState = {
  side: "source",
  symbol: "",
  waves: "50 x 64",
  dimension: 30,
  first: null,
  second: null,
  over: null,
};
export const createSection = (view, name, title, description, ...children) =>
  el(
    "section",
    { className: view + "-part " + view + "-" + name },
    el("h4", { textContent: title }),
    el("p", { className: "hint", textContent: description }),
    ...children,
  );

export const embeddingsSpec = {
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
          "opposite. If a task treats all tokens alike, no two embeddings are close.",
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
      if (state.resultByView.symbols) renderProjection(state.resultByView.symbols);
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
        names = state.resultByView.symbols && state.resultByView.symbols.map.names;
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
  restoreOptions(options) {
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
