// Rendering.
import { NO_RESPONSE } from "../shared/api.js";
import { formatMessage, formatNumber } from "../shared/format.js";
import { el, setPressed } from "../shared/dom.js";
import { mountMatrix, paintThumbnail, unpackWeights } from "../shared/matrix.js";
import { SINGLE_STACK_CAPTIONS } from "../shared/strings.js";
import {
  attentionView,
  DISPLAY_CAPTIONS,
  loadScores,
  OWN_CAPTIONS,
  WIDE_LAYOUT_TOKENS,
} from "./attention.js";
import { shortModelName } from "./inference_form.js";

export function renderPanels() {
  setPressed(attentionView.choice, attentionView.shape);
  attentionView.panels.forEach(renderPanel);
}
export function selectHead(panel, layer, head) {
  panel.layer = layer;
  panel.head = head;
  renderPanel(panel);
}
export function renderPanel(panel) {
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
