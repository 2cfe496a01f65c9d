// The ranked components; before a measurement, all components in the order of the model.
import { formatCount, formatMessage, formatNumber, formatPercent } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { ablationState } from "./ablation.js";
import { diffTokens, isCorrect, requestView, scheduleRefresh } from "./requests.js";
import {
  describeSample,
  formatSigned,
  formatWithMinusSign,
  shortHeadName,
  signedBar,
} from "./slow_views.js";
import { state } from "./state.js";
import { queryView, VIEWS } from "./views.js";

export function renderAblation(own, data) {
  const body = queryView("away", ".away-table tbody"),
    keep = ablationState.set === "keep";
  const isHead = (name) => name.includes("head ");
  const rows = data
    ? data.rows
    : ablationState.set === "groups"
      ? Object.entries(own.groups).map(([name, parts]) => ({ name, parts }))
      : [
          ...own.parts
            .filter((name) => !keep || isHead(name))
            .map((name) => ({ name, parts: [name] })),
          ...(keep
            ? Object.entries(own.groups)
                .filter(([, parts]) => isHead(parts[0]))
                .map(([name, parts]) => ({ name, parts }))
            : []),
        ];
  queryView("away", ".away-what").textContent = keep ? "kept heads" : "ablated component";
  const signature = JSON.stringify([
    ablationState.set,
    ablationState.how,
    data && data.step,
    rows.map((row) => row.name),
  ]);
  if (body.dataset.signature !== signature) {
    body.dataset.signature = signature;
    const losses = data ? rows.map((row) => data.before.log_probability - row.log_probability) : [],
      maxValue = Math.max(1e-9, ...losses),
      minValue = Math.min(0, ...losses);
    body.replaceChildren(
      ...rows.map((row, i) => {
        const box = el("input", { type: "checkbox" }),
          before = data && data.before;
        box.setAttribute("aria-label", (keep ? "Keep " : "Ablate ") + row.name);
        box.addEventListener("change", () => {
          for (const part of row.parts)
            if (box.checked) ablationState.parts.add(part);
            else ablationState.parts.delete(part);
          updateCheckboxes();
          scheduleRefresh("away", 0);
        });
        const label = el(
          "label",
          {},
          el("span", { className: "away-long", textContent: row.name }),
          el("span", {
            className: "away-short",
            textContent: row.name.replace(
              /^(encoder|decoder|cross)(?: self)?-attention, layer (\d+), head (\d+)$/,
              "$1 $2.$3",
            ),
          }),
        );
        label.addEventListener("click", () => box.click());
        const line = el("tr", {}, el("td", {}, box), el("td", { className: "away-name" }, label));
        box.parts = row.parts;
        if (!data) return line;
        const bar = el("div", { className: "away-exact bar" }),
          axis = el("div", { className: "away-exact-axis" }, bar);
        bar.style.width = 100 * row.exact_match + "%";
        axis.style.setProperty("--before", 100 * before.exact_match + "%");
        axis.title =
          formatPercent(before.exact_match) +
          " before, " +
          formatPercent(row.exact_match) +
          " after, " +
          describeSample(data);
        const lost = signedBar(losses[i], minValue, maxValue, "away-lost");
        lost.title =
          "Log-probability " +
          formatNumber(before.log_probability) +
          " before, " +
          formatNumber(row.log_probability) +
          " after, in nats, mean " +
          describeSample(data);
        line.append(
          el(
            "td",
            { className: "away-right", title: axis.title },
            el("span", {
              className: "away-before",
              textContent: formatPercent(before.exact_match) + " → ",
            }),
            formatPercent(row.exact_match),
          ),
          el("td", { className: "away-bars" }, axis),
          el("td", {
            className: "away-right",
            textContent: Math.abs(losses[i]) < 0.0005 ? "0" : formatWithMinusSign(losses[i]),
            title: lost.title,
          }),
          el("td", { className: "away-bars" }, lost),
        );
        return line;
      }),
    );
  }
  updateCheckboxes();
}
function updateCheckboxes() {
  for (const box of VIEWS.away.box.querySelectorAll(".away-table input"))
    box.checked = box.parts.every((part) => ablationState.parts.has(part));
}
export function renderAblationOfInput(own) {
  const keep = ablationState.set === "keep",
    n = ablationState.parts.size;
  const { answer } = own,
    mark = (written) =>
      !answer
        ? []
        : [
            isCorrect({ written, answer })
              ? el("span", { className: "ok", textContent: "✓" })
              : el("span", { className: "away-cross", textContent: "✗" }),
          ];
  const ofWhat = answer
    ? "Log-probability of the whole target of this sequence, teacher-forced"
    : "Log-probability of the output of the intact model; the target is unknown";
  const line = (what, { written, log_probability: log }) =>
    el(
      "tr",
      {},
      el("td", { textContent: what }),
      el("td", { className: "away-symbols" }, ...diffTokens(written, answer), ...mark(written)),
      el("td", {
        className: "away-right",
        textContent: formatWithMinusSign(log) + " nats",
        title: ofWhat,
      }),
    );
  queryView("away", ".away-own tbody").replaceChildren(
    line("intact", own.whole),
    ...(n
      ? [
          line(
            keep
              ? "kept " +
                  n +
                  " of " +
                  formatCount(own.parts.filter((name) => name.includes("head ")).length, "head")
              : "without " + formatCount(n, "component"),
            own.without,
          ),
        ]
      : []),
  );
  queryView("away", ".away-own-words").textContent = n
    ? (keep ? "Kept: " : "Ablated: ") + [...ablationState.parts].join("; ") + "."
    : keep
      ? "Select heads in the list to keep; all others are ablated for this sequence."
      : "Select components in the list to ablate them for this sequence.";
  queryView("away", ".away-none").hidden = !n;
}

// Patching has its own request, sent after a new sequence, position or token.
export async function runPatching() {
  const result = state.resultByView.away,
    requestId = ++ablationState.requestId,
    n = result.source.length - 1;
  ablationState.position = Math.min(ablationState.position, n - 1);
  if (
    !result.symbols.includes(ablationState.symbol) ||
    ablationState.symbol === result.source[ablationState.position]
  )
    ablationState.symbol =
      result.symbols[
        (result.symbols.indexOf(result.source[ablationState.position]) + 1) % result.symbols.length
      ];
  const data = await requestView("patch", {
    source_position: ablationState.position,
    symbol: ablationState.symbol,
  });
  if (requestId !== ablationState.requestId) return;
  ablationState.error = data.error || "";
  if (!data.error) ablationState.patch = data;
  renderPatching();
}
export function renderPatching() {
  const data = ablationState.patch,
    own = state.resultByView.away,
    words = queryView("away", ".away-patch-words");
  queryView("away", ".away-position").replaceChildren(
    ...own.source
      .slice(0, -1)
      .map(
        (name, i) =>
          new Option(name + " at position " + (i + 1), i, false, i === ablationState.position),
      ),
  );
  words.classList.toggle("away-error", Boolean(ablationState.error));
  words.textContent = formatMessage(ablationState.error);
  queryView("away", ".away-symbol").replaceChildren(
    ...own.symbols
      .filter((name) => name !== own.source[ablationState.position])
      .map((name) => new Option(name, name, false, name === ablationState.symbol)),
  );
  if (!data) {
    queryView("away", ".away-patch tbody").replaceChildren();
    return;
  }
  if (!ablationState.error)
    words.textContent =
      "With " +
      data.changed.join(" ") +
      ", the target at position " +
      (data.position + 1) +
      " is " +
      data.other +
      " instead of " +
      data.token +
      ". Logit of " +
      data.token +
      " minus logit of " +
      data.other +
      ": " +
      formatSigned(data.before) +
      " clean, " +
      formatSigned(data.after) +
      " corrupted. The bars show the fraction of this difference that each head recovers. " +
      "Fractions need not sum to 1, because heads depend on each other.";
  const ranked = [...data.heads].sort((a, b) => b.recovered - a.recovered),
    low = Math.min(0, ...ranked.map((h) => h.recovered)),
    high = Math.max(1, ...ranked.map((h) => h.recovered));
  queryView("away", ".away-patch tbody").replaceChildren(
    ...ranked.map((head) => {
      const title =
        head.name +
        ": " +
        formatNumber(head.recovered) +
        " of the logit difference is recovered, on this sequence, teacher-forced";
      return el(
        "tr",
        { title },
        el("td", { textContent: shortHeadName(head) }),
        el("td", { className: "away-bars" }, signedBar(head.recovered, low, high, "away-share")),
        el("td", {
          className: "away-right",
          textContent: (head.recovered <= -0.005 ? "−" : "") + Math.abs(head.recovered).toFixed(2),
        }),
      );
    }),
  );
}
