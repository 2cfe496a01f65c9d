import { formatCount, formatMessage, formatNumber } from "../shared/format.js";
import { createSegmentedControl, el, setPressed } from "../shared/dom.js";
import { mountMatrix } from "../shared/matrix.js";
import { createMaskCell, masksState, renderTable } from "./masks.js";
import { redrawView, scheduleRefresh } from "./requests.js";
import { queryView } from "./views.js";

export function renderMasks(data) {
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
      formatCount(added, "position") +
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
export function renderSoftmax(result) {
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
export function renderAttentionTypes(data) {
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
