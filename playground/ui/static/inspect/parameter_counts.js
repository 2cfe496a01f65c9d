import { formatCount, formatNumber } from "../shared/format.js";
import { el, setPressed } from "../shared/dom.js";
import { formatInteger, formatMemory, renderTable } from "./masks.js";
import { queryView } from "./views.js";

export function renderShapes(data) {
  queryView("sizes", ".sizes-shapes .hint").textContent =
    "Self-attention of this model over the " +
    formatCount(data.length, "token") +
    " of your sequence, EOS included.";
  renderTable(
    queryView("sizes", ".sizes-shapes-table"),
    ["tensor", "definition", "shape"],
    data.shapes.map(([name, formula, shape]) => [name, formula, shape.join(" × ")]),
  );
}
export function renderParameterCounts({ of, rows, published }) {
  setPressed(queryView("sizes", ".sizes-of .choice"), of);
  queryView("sizes", ".sizes-parameters .hint").textContent =
    of === "base"
      ? "The paper's base model as a tutorial counts it: d_model 512, 6 + 6 layers, 8 heads, " +
        "d_ff 2048, vocabularies of 37,000, attention without biases."
      : "Parameters of this model and of torch's nn.Transformer with the same sizes, " +
        "embeddings and output layer.";
  const sum = (k) => rows.reduce((total, row) => total + row[k], 0),
    total = (text) => el("td", { className: "sizes-total", textContent: text });
  renderTable(
    queryView("sizes", ".sizes-counts"),
    ["part", "this project", "nn.Transformer", "difference"],
    [
      ...rows.map(([name, ours, torch, why]) => [
        name,
        formatInteger(ours),
        formatInteger(torch),
        why,
      ]),
      [total("total"), total(formatInteger(sum(1))), total(formatInteger(sum(2))), total("")],
      ...(published
        ? [
            [
              "tutorial's code, and PyTorch",
              formatInteger(published.ours),
              formatInteger(published.torch),
              published.ours === sum(1) && published.torch === sum(2)
                ? "equal"
                : "differs from the counts above",
            ],
          ]
        : []),
    ],
  );
  const difference = sum(2) - sum(1);
  queryView("sizes", ".sizes-counts-words").textContent = difference
    ? "nn.Transformer has " +
      formatInteger(Math.abs(difference)) +
      (difference > 0 ? " more." : " fewer.")
    : "Both have the same number of parameters in every component.";
}
export function renderQuadraticCost(data) {
  const button = queryView("sizes", ".sizes-measure");
  button.disabled = data.measured;
  button.title = "One head on random vectors; the longest measured length needs 256 MB";
  renderTable(
    queryView("sizes", ".sizes-squares"),
    ["tokens", "weights", "memory", "published", ...(data.measured ? ["measured"] : [])],
    data.quadratic.map(([length, entries, n, published, measured]) => {
      const memory = el("td", { textContent: formatMemory(n), title: formatInteger(n) + " bytes" });
      return [
        formatInteger(length),
        formatInteger(entries),
        memory,
        published || "",
        ...(data.measured
          ? [
              measured
                ? el("td", {
                    textContent:
                      formatMemory(measured[0]) + ", " + formatNumber(measured[1]) + " s",
                    title: formatInteger(measured[0]) + " bytes",
                  })
                : "too large to measure",
            ]
          : []),
      ];
    }),
  );
  const last = data.quadratic.at(-1)[2];
  queryView("sizes", ".sizes-squares-words").textContent =
    "The tutorial's MB are 2^20 bytes, 1.05 million; its " +
    data.quadratic.at(-1)[3] +
    " is " +
    (last / 1e9).toFixed(1) +
    " GB of 10^9 bytes, or " +
    (last / 2 ** 30).toFixed(1) +
    " of 2^30.";
}
