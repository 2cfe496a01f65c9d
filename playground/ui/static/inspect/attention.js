import { setUpCanvas } from "../shared/canvas.js";
import { cssVariable } from "../shared/palette.js";
import { createSegmentedControl, el, setPressed } from "../shared/dom.js";
import { mountMatrix, paintThumbnail, unpackWeights } from "../shared/matrix.js";
import {
  ATTENTION_KIND_OPTIONS,
  ENCODER_CAPTION,
  SINGLE_STACK_CAPTIONS,
  TOKEN_HINT,
} from "../shared/strings.js";
import { redrawView, scheduleRefresh } from "./requests.js";
import { state } from "./state.js";
import { queryView, VIEWS } from "./views.js";

const KIND_CAPTIONS = {
  cross: "Rows: generated tokens (queries). Columns: source tokens (keys).",
  encoder: ENCODER_CAPTION,
  decoder:
    "Rows: generated tokens (queries). Columns: decoder input so far (keys). Masked " +
    "positions are hatched.",
};
export const DECODING_MODES = [
  ["free-running", "free-running", "The decoder continues from its own output"],
  [
    "teacher-forced",
    "teacher-forced",
    "The decoder input is the target, shifted right, as in training",
  ],
  ["sampled", "sampled", "Each token is sampled from the predicted probabilities"],
];

const attentionState = {
  kind: "cross",
  mode: "free-running",
  layer: 1,
  head: 0,
  display: "map",
  token: null, // the index of the query in the display of one token
  hoveredToken: null, // [side, index] in the display of lines
};
export const attentionSpec = {
  title: "Attention",
  explain:
    "Attention weights of every head in every layer. Select a head to enlarge it; hover " +
    "over a cell to read its weight. Each row sums to one.",
  build(box) {
    box.append(
      el(
        "div",
        { className: "row" },
        createSegmentedControl(
          ATTENTION_KIND_OPTIONS,
          attentionState.kind,
          (value) => {
            attentionState.kind = value;
            attentionState.token = null;
            scheduleRefresh("attention");
          },
          "Kind of attention",
        ),
        el("span", { className: "hint" }, "decoder input"),
        el(
          "span",
          {},
          createSegmentedControl(
            DECODING_MODES.slice(0, 2),
            attentionState.mode,
            (value) => {
              attentionState.mode = value;
              scheduleRefresh("attention");
            },
            "Decoder input",
          ),
        ),
      ),
      el(
        "div",
        { className: "attention-two" },
        el("div", {}, el("div", { className: "attention-grid" })),
        el(
          "div",
          {},
          el(
            "div",
            { className: "row attention-shape" },
            createSegmentedControl(
              [
                ["map", "map"],
                [
                  "lines",
                  "lines",
                  "Line width: attention weight. Hover over a token to show only its lines",
                ],
                ["token", "one token, all heads", TOKEN_HINT],
              ],
              attentionState.display,
              (value) => {
                attentionState.display = value;
                redrawView("attention");
              },
              "Display",
            ),
          ),
          el("h4"),
          el("canvas", { className: "picture" }),
          el("p", { className: "caption" }),
        ),
      ),
    );
    const canvas = box.querySelector("canvas.picture");
    const highlightToken = (event) => {
      if (attentionState.display !== "lines") return;
      attentionState.hoveredToken = event ? tokenAtPointer(canvas, event) : null;
      paintAttentionLines(canvas, state.resultByView.attention);
    };
    canvas.addEventListener("pointermove", highlightToken);
    canvas.addEventListener("pointerleave", () => highlightToken(null));
    // Up and down move through the tokens, left and right change between queries and keys.
    canvas.addEventListener(
      "keydown",
      (event) => {
        const data = state.resultByView.attention;
        if (attentionState.display !== "lines" || !data || !event.key.startsWith("Arrow")) return;
        event.preventDefault();
        event.stopImmediatePropagation();
        const [side, index] = attentionState.hoveredToken || ["row", -1],
          newSide = { ArrowLeft: "row", ArrowRight: "column" }[event.key] || side;
        const nTokens = (newSide === "row" ? data.rows : data.columns).length;
        attentionState.hoveredToken = [
          newSide,
          Math.max(
            0,
            Math.min(nTokens - 1, index + ({ ArrowUp: -1, ArrowDown: 1 }[event.key] || 0)),
          ),
        ];
        paintAttentionLines(canvas, data);
        const name = (newSide === "row" ? data.rows : data.columns)[attentionState.hoveredToken[1]];
        queryView("attention", ".caption").textContent =
          "Position " +
          (attentionState.hoveredToken[1] + 1) +
          " (" +
          name +
          "), " +
          (newSide === "row" ? "as a query." : "as a key.");
      },
      true,
    );
  },
  options: () => ({ kind: attentionState.kind, mode: attentionState.mode }),
  restoreOptions(options) {
    for (const name of ["layer", "head"])
      if (Number.isInteger(options[name])) attentionState[name] = Math.max(0, options[name]);
    // Links of version 0.1.0 name the mode `way`.
    if (options.way)
      options.mode = { own: "free-running", right: "teacher-forced", drawn: "sampled" }[
        options.way
      ];
    for (const name of ["kind", "mode"])
      if (typeof options[name] === "string") {
        attentionState[name] = options[name];
        for (const box of VIEWS.attention.box.querySelectorAll(".choice"))
          if (box.querySelector(`[data-value="${CSS.escape(options[name])}"]`))
            setPressed(box, options[name]);
      }
  },
  draw(data) {
    const weightsByLayer = unpackWeights(data),
      grid = queryView("attention", ".attention-grid"),
      kindButtons = VIEWS.attention.box.querySelector(".choice");
    for (const button of kindButtons.children)
      button.hidden = !data.kinds.includes(button.dataset.value);
    attentionState.kind = data.kind;
    setPressed(kindButtons, data.kind);
    attentionState.layer = Math.min(attentionState.layer, data.layers - 1);
    attentionState.head = Math.min(attentionState.head, data.heads - 1);
    const signature = data.layers + "x" + data.heads;
    if (grid.dataset.signature !== signature) {
      grid.dataset.signature = signature;
      grid.style.gridTemplateColumns =
        "repeat(" + Math.max(4, Math.min(8, data.heads)) + ", minmax(0, 1fr))";
      grid.replaceChildren(
        ...weightsByLayer.flatMap((heads, l) => [
          el("div", {
            className: "layer",
            textContent:
              "layer " +
              (l + 1) +
              (l ? "" : data.heads > 1 ? ", heads 1 to " + data.heads : ", one head"),
          }),
          ...heads.map((_, h) => {
            const button = el("button", { type: "button" }, el("canvas"));
            button.setAttribute("aria-label", "layer " + (l + 1) + ", head " + (h + 1));
            button.addEventListener("click", () => {
              attentionState.layer = l;
              attentionState.head = h;
              redrawView("attention");
            });
            return button;
          }),
        ]),
      );
    }
    [...grid.querySelectorAll("button")].forEach((button, i) => {
      const l = Math.floor(i / data.heads),
        h = i % data.heads;
      button.setAttribute(
        "aria-pressed",
        String(l === attentionState.layer && h === attentionState.head),
      );
      paintThumbnail(button.firstChild, {
        weights: weightsByLayer[l][h],
        possible: data.kind === "decoder" ? data.possible : null,
      });
    });
    const canvas = queryView("attention", "canvas.picture"),
      caption = queryView("attention", ".caption"),
      name = "Layer " + (attentionState.layer + 1) + ", head " + (attentionState.head + 1);
    queryView("attention", "h4").textContent =
      attentionState.display === "token"
        ? "Row " +
          ((attentionState.token ?? 0) + 1) +
          " (" +
          data.rows[Math.min(attentionState.token ?? 0, data.rows.length - 1)] +
          ") in every head"
        : name;
    caption.dataset.resting =
      attentionState.display === "token"
        ? "Rows: heads as layer.head. Columns: keys of this one query."
        : (data.kinds.includes("cross")
            ? KIND_CAPTIONS[data.kind]
            : SINGLE_STACK_CAPTIONS[data.architecture] || SINGLE_STACK_CAPTIONS[data.kind]) +
          (document.body.classList.contains("dark")
            ? " Dark is 0, bright is 1."
            : " White is 0, dark is 1.");
    if (attentionState.display === "lines") {
      caption.textContent =
        "Left: queries. Right: keys. Hover over a token to show only its weights.";
      paintAttentionLines(canvas, data);
      return;
    }
    if (attentionState.display === "token") {
      const row = Math.min(attentionState.token ?? 0, data.rows.length - 1),
        headRows = weightsByLayer.flatMap((heads, l) =>
          heads.map((weights, h) => [l + 1 + "." + (h + 1), weights[row]]),
        );
      mountMatrix(
        canvas,
        {
          weights: headRows.map(([, weights]) => weights),
          rows: headRows.map(([label]) => label),
          columns: data.columns,
          possible: data.kind === "decoder" ? headRows.map(() => data.possible[row]) : null,
        },
        {
          caption,
          hover: (r, k) =>
            "Head " +
            headRows[r][0] +
            ": " +
            data.rows[row] +
            " attends to " +
            data.columns[k] +
            " (position " +
            (k + 1) +
            ") with weight " +
            headRows[r][1][k].toFixed(3) +
            ".",
          choose: (r) => {
            const [l, h] = headRows[r][0].split(".");
            attentionState.layer = l - 1;
            attentionState.head = h - 1;
            attentionState.display = "map";
            setPressed(queryView("attention", ".attention-shape .choice"), "map");
            redrawView("attention");
          },
        },
      );
      return;
    }
    const weights = weightsByLayer[attentionState.layer][attentionState.head];
    mountMatrix(
      canvas,
      {
        weights,
        rows: data.rows,
        columns: data.columns,
        possible: data.kind === "decoder" ? data.possible : null,
        chosen: null,
      },
      {
        caption,
        hover: (r, k) =>
          name +
          ": " +
          data.rows[r] +
          " (position " +
          (r + 1) +
          ") attends to " +
          data.columns[k] +
          " (position " +
          (k + 1) +
          ") with weight " +
          weights[r][k].toFixed(3) +
          ".",
        choose: (r) => {
          attentionState.token = r;
          attentionState.display = "token";
          setPressed(queryView("attention", ".attention-shape .choice"), "token");
          redrawView("attention");
        },
      },
    );
  },
  exportData: (data) => ({
    ...data,
    weights: unpackWeights(data).map((heads) =>
      heads.map((rows) => rows.map((row) => [...row].map((v) => +v.toFixed(3)))),
    ),
    all: undefined,
  }),
  rows: (data) =>
    unpackWeights(data).flatMap((heads, l) =>
      heads.flatMap((weights, h) =>
        weights.flatMap((row, r) =>
          [...row].map((weight, k) => ({
            kind: data.kind,
            layer: l + 1,
            head: h + 1,
            row: r + 1,
            from: data.rows[r],
            column: k + 1,
            to: data.columns[k],
            weight: +weight.toFixed(3),
            possible: data.possible[r][k],
          })),
        ),
      ),
    ),
};

function lineHeight(data) {
  return Math.max(16, Math.min(30, 420 / Math.max(data.rows.length, data.columns.length)));
}
function tokenAtPointer(canvas, event) {
  const data = state.resultByView.attention,
    height = lineHeight(data),
    index = Math.floor((event.offsetY - 6) / height),
    isQuery = event.offsetX < canvas.clientWidth / 2;
  return index >= 0 && index < (isQuery ? data.rows : data.columns).length
    ? [isQuery ? "row" : "column", index]
    : null;
}
// Draw lines from queries to keys. Their width is the attention weight.
function paintAttentionLines(canvas, data) {
  const weights = unpackWeights(data)[attentionState.layer][attentionState.head],
    height = lineHeight(data),
    nTokens = Math.max(data.rows.length, data.columns.length);
  const [context, width] = setUpCanvas(canvas, Math.round(12 + height * nTokens)),
    left = Math.min(120, width * 0.3),
    right = width - left,
    y = (i) => 6 + (i + 0.5) * height;
  const [side, index] = attentionState.hoveredToken || [];
  context.strokeStyle = cssVariable("--pg-accent");
  context.lineCap = "round";
  weights.forEach((row, r) =>
    row.forEach((weight, k) => {
      if (weight < 0.005 || (side === "row" && r !== index) || (side === "column" && k !== index))
        return;
      context.globalAlpha = 0.15 + 0.85 * weight;
      context.lineWidth = Math.max(0.5, 8 * weight);
      context.beginPath();
      context.moveTo(left + 6, y(r));
      context.lineTo(right - 6, y(k));
      context.stroke();
    }),
  );
  context.globalAlpha = 1;
  context.font = "13px " + cssVariable("--font-mono");
  context.textBaseline = "middle";
  context.fillStyle = cssVariable("--body-text-color");
  context.textAlign = "right";
  data.rows.forEach((token, r) => context.fillText(token, left, y(r)));
  context.textAlign = "left";
  data.columns.forEach((token, k) => context.fillText(token, right, y(k)));
}
