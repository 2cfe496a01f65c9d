import { setUpCanvas } from "../shared/canvas.js";
import { cssVariable } from "../shared/palette.js";
import { formatMessage, formatNumber, formatPercent } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { embeddingsState } from "./embeddings.js";
import { state } from "./state.js";
import { queryView } from "./views.js";

export function renderNearestTokens(data) {
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
export function projectedTokenAt(canvas, event) {
  const data = state.resultByView.symbols;
  if (!data) return null;
  const { at } = projectionLayout(canvas, data.map),
    off = data.map.places.map((place) => {
      const [x, y] = at(place);
      return Math.hypot(x - event.offsetX, y - event.offsetY);
    }),
    minValue = Math.min(...off);
  return minValue < 24 ? data.map.names[off.indexOf(minValue)] : null;
}
export function renderProjection(data) {
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
export function renderOrderDemo(order) {
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
