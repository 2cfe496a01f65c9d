// Logit lens.
import { formatMessage, formatPercent } from "../shared/format.js";
import { createSegmentedControl, el } from "../shared/dom.js";
import { requestView } from "./requests.js";
import { formatSigned, shadeCell, signedBar } from "./slow_views.js";
import { state } from "./state.js";
import { queryView, VIEWS } from "./views.js";

const logitLensState = {
  at: [null, 0],
  symbol: null,
  against: null,
  order: "size",
  parts: null,
  error: "",
  requestId: 0,
  of: null,
};
export const logitLensSpec = {
  title: "Logit lens",
  explain:
    "Predictions of each decoder layer, teacher-forced. Darker cells have a higher " +
    "probability; correct tokens are framed. Select a cell to see the contribution of each " +
    "component to the logit.",
  build(box) {
    const symbol = el("select", { className: "lens-symbol", ariaLabel: "Token" }),
      against = el("select", { className: "lens-against", ariaLabel: "Baseline token" });
    symbol.addEventListener("change", () => {
      logitLensState.symbol = symbol.value;
      if (logitLensState.against === symbol.value) logitLensState.against = null;
      loadAttribution();
    });
    against.addEventListener("change", () => {
      logitLensState.against =
        { runner: null, none: "" }[against.value] === undefined
          ? against.value
          : { runner: null, none: "" }[against.value];
      loadAttribution();
    });
    box.append(
      el("div", { className: "lens-scroll" }, el("table", { className: "lens-table picture" })),
      el("p", { className: "caption lens-caption" }),
      el("h4", {
        className: "lens-title",
        textContent: "Direct logit attribution",
        title:
          "The output of each component, passed through the final norm with a fixed scale " +
          "and through the output projection",
      }),
      el(
        "div",
        { className: "row" },
        el("label", {}, "token ", symbol),
        el("label", {}, "minus ", against),
        el(
          "span",
          { className: "lens-columns" },
          "sort by ",
          createSegmentedControl(
            [
              ["size", "magnitude"],
              ["model", "model order"],
            ],
            logitLensState.order,
            (value) => {
              logitLensState.order = value;
              renderAttribution();
            },
            "Order",
          ),
        ),
      ),
      el("p", { className: "hint lens-words", role: "status" }),
      el("table", { className: "lens-parts picture" }, el("tbody")),
    );
    box.querySelector(".lens-table").addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[
        event.key
      ];
      if (!step || !state.resultByView.lens) return;
      event.preventDefault();
      event.stopPropagation();
      const data = state.resultByView.lens,
        bound = (i, n) => Math.max(0, Math.min(n - 1, i));
      selectCell(
        [
          bound(logitLensState.at[0] + step[0], data.layers.length),
          bound(logitLensState.at[1] + step[1], data.right.length),
        ],
        true,
      );
    });
  },
  draw(data) {
    const layers = data.layers.length,
      n = data.right.length,
      focused = document.activeElement && document.activeElement.matches(".lens-cell");
    logitLensState.at = [
      Math.min(logitLensState.at[0] ?? layers - 1, layers - 1),
      Math.min(logitLensState.at[1], n - 1),
    ];
    const heading = (text, names, title) =>
      el(
        "tr",
        { title },
        el("th", { scope: "row", textContent: text }),
        ...names.map((name) => el("th", { scope: "col", textContent: name })),
      );
    queryView("lens", ".lens-table").replaceChildren(
      el(
        "thead",
        {},
        heading(
          "position",
          data.right.map((_, i) => i + 1),
          "Positions of the output",
        ),
        heading("input", data.decoder_input, "Decoder input at this position"),
        data.answer
          ? heading("target", data.right, "Correct next token")
          : heading("output", data.right, "Generated next token; the target is unknown"),
      ),
      el(
        "tbody",
        {},
        ...data.layers.map((name, l) =>
          el(
            "tr",
            {},
            el("th", { scope: "row", textContent: name }),
            ...data.candidates[l].map((candidates, t) => {
              const [[symbol, probability]] = candidates,
                cell = el("td", { className: "lens-cell", textContent: symbol, tabIndex: -1 });
              shadeCell(cell, probability);
              if (symbol === data.right[t]) cell.classList.add("lens-right");
              cell.setAttribute("aria-label", describeCell(data, l, t));
              cell.addEventListener("pointerenter", () => {
                queryView("lens", ".lens-caption").textContent = describeCell(data, l, t);
              });
              cell.addEventListener("pointerleave", () => renderSelection());
              cell.addEventListener("click", () => selectCell([l, t], true));
              cell.addEventListener("focus", () => {
                if (logitLensState.at[0] !== l || logitLensState.at[1] !== t) selectCell([l, t]);
              });
              return cell;
            }),
          ),
        ),
      ),
    );
    renderSelection(focused);
    if (data !== logitLensState.of) {
      logitLensState.of = data;
      loadAttribution();
    } else renderAttribution();
  },
  reset() {
    logitLensState.at = [null, 0];
    logitLensState.symbol = logitLensState.against = logitLensState.parts = null;
    logitLensState.error = "";
  },
  options: () => ({
    at: logitLensState.at,
    symbol: logitLensState.symbol,
    against: logitLensState.against,
  }),
  restoreOptions({ at, symbol, against }) {
    if (Array.isArray(at) && at.length === 2 && at.every((i) => Number.isInteger(i) && i >= 0))
      logitLensState.at = at;
    for (const [name, value] of [
      ["symbol", symbol],
      ["against", against],
    ])
      if (typeof value === "string") logitLensState[name] = value;
  },
  exportData: (data) => ({ ...data, contributions: logitLensState.parts }),
  rows: (data) => [
    ...data.layers.flatMap((layer, l) =>
      data.candidates[l].flatMap((candidates, t) =>
        candidates.map(([symbol, probability], rank) => ({
          layer,
          place: t + 1,
          decoder_input: data.decoder_input[t],
          rank: rank + 1,
          symbol,
          probability,
          [data.answer ? "right" : "written"]: data.right[t],
          ["probability_of_" + (data.answer ? "right" : "written")]: data.of_right[l][t],
        })),
      ),
    ),
    ...(logitLensState.parts
      ? logitLensState.parts.parts.map((part) => ({
          place: logitLensState.parts.position + 1,
          part: part.name,
          symbol: logitLensState.parts.symbol,
          against: logitLensState.parts.against,
          logit: part.logit,
        }))
      : []),
  ],
};
function describeCell(data, l, t) {
  const where = l ? "After " + data.layers[l] : "Before the first layer";
  return (
    where +
    ", position " +
    (t + 1) +
    ": " +
    data.candidates[l][t].map(([name, p]) => name + " (" + formatPercent(p) + ")").join(", ") +
    ". " +
    (data.answer ? "Target: " : "The target is unknown; the model generated ") +
    data.right[t] +
    ", with probability " +
    formatPercent(data.of_right[l][t]) +
    "."
  );
}
function renderSelection(focus = false) {
  const data = state.resultByView.lens,
    [l, t] = logitLensState.at,
    table = queryView("lens", ".lens-table"),
    rows = [...table.tBodies[0].rows];
  for (const row of table.rows)
    [...row.cells].forEach((cell, k) => cell.classList.toggle("lens-column", k === t + 1));
  rows.forEach((row, r) =>
    [...row.cells].slice(1).forEach((cell, k) => {
      cell.tabIndex = r === l && k === t ? 0 : -1;
    }),
  );
  queryView("lens", ".lens-caption").textContent = describeCell(data, l, t);
  if (focus) rows[l].cells[t + 1].focus();
}
function selectCell(at, focus = false) {
  const moved = at[1] !== logitLensState.at[1];
  logitLensState.at = at;
  renderSelection(focus);
  if (moved) {
    logitLensState.symbol = logitLensState.against = null;
    loadAttribution();
  }
}
async function loadAttribution() {
  const requestId = ++logitLensState.requestId,
    options = {
      position: logitLensState.at[1],
      ...(logitLensState.symbol === null ? {} : { symbol: logitLensState.symbol }),
      ...(logitLensState.against === null ? {} : { against: logitLensState.against }),
    };
  const data = await requestView("contributions", options);
  if (requestId !== logitLensState.requestId) return; // the position or the sequence has changed
  logitLensState.error = data.error || "";
  logitLensState.parts = data.error
    ? /post-norm/.test(data.error)
      ? null
      : logitLensState.parts
    : data;
  renderAttribution();
}
function renderAttribution() {
  const data = state.resultByView.lens,
    attribution = logitLensState.parts,
    words = queryView("lens", ".lens-words"),
    body = queryView("lens", ".lens-parts tbody");
  // a post-norm model has no attribution; this is not an error
  words.classList.toggle("lens-error", Boolean(logitLensState.error && attribution));
  for (const each of VIEWS.lens.box.querySelectorAll(".row > *")) each.hidden = !attribution;
  words.textContent = formatMessage(logitLensState.error);
  if (!attribution) {
    body.replaceChildren();
    return;
  }
  const { symbol, against, runner_up: runner } = attribution,
    of = symbol + (against === null ? "" : " minus " + against);
  queryView("lens", ".lens-symbol").replaceChildren(
    ...data.vocabulary.map(
      (name) =>
        new Option(
          name + (data.answer && name === data.right[attribution.position] ? " (target)" : ""),
          name,
          false,
          name === symbol,
        ),
    ),
  );
  queryView("lens", ".lens-against").replaceChildren(
    new Option(runner + " (most probable other)", "runner", false, logitLensState.against === null),
    new Option("none", "none", false, logitLensState.against === ""),
    ...data.vocabulary
      .filter((name) => name !== symbol)
      .map((name) => new Option(name, name, false, name === logitLensState.against)),
  );
  if (!logitLensState.error)
    words.textContent =
      "Position " +
      (attribution.position + 1) +
      ": the contributions sum to " +
      formatSigned(attribution.sum) +
      "; the model's logit of " +
      of +
      " is " +
      formatSigned(attribution.logit) +
      ". The scale of the final norm is fixed, so the bars decompose the logit; they do " +
      "not show the effect of an ablation." +
      (against === null
        ? " The softmax ignores a constant in all logits, so a single logit has little meaning."
        : "");
  const ranked =
    logitLensState.order === "size"
      ? [...attribution.parts].sort((a, b) => Math.abs(b.logit) - Math.abs(a.logit))
      : attribution.parts;
  const low = Math.min(0, ...ranked.map((part) => part.logit)),
    high = Math.max(0, ...ranked.map((part) => part.logit));
  const line = (name, value, className) =>
    el(
      "tr",
      {
        className,
        title:
          name +
          ": " +
          formatSigned(value) +
          " to the logit of " +
          of +
          " at position " +
          (attribution.position + 1) +
          ", on this sequence",
      },
      el("td", { textContent: name }),
      el(
        "td",
        { className: "lens-bars" },
        className ? "" : signedBar(value, low, high, "lens-bar"),
      ),
      el("td", { className: "lens-number", textContent: formatSigned(value) }),
    );
  body.replaceChildren(
    ...ranked.map((part) => line(part.name, part.logit, "")),
    line("sum", attribution.sum, "lens-sum"),
  );
}
