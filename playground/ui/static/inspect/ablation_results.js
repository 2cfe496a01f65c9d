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

// List the components by the effect of their ablation; without a measurement, in model order.
export function renderAblation(response, measurement) {
  const body = queryView("away", ".away-table tbody"),
    isKeepOnly = ablationState.set === "keep";
  const isHead = (name) => name.includes("head ");
  const rows = measurement
    ? measurement.rows
    : ablationState.set === "groups"
      ? Object.entries(response.groups).map(([name, parts]) => ({ name, parts }))
      : [
          ...response.parts
            .filter((name) => !isKeepOnly || isHead(name))
            .map((name) => ({ name, parts: [name] })),
          ...(isKeepOnly
            ? Object.entries(response.groups)
                .filter(([, parts]) => isHead(parts[0]))
                .map(([name, parts]) => ({ name, parts }))
            : []),
        ];
  queryView("away", ".away-what").textContent = isKeepOnly ? "kept heads" : "ablated component";
  const signature = JSON.stringify([
    ablationState.set,
    ablationState.mode,
    measurement && measurement.step,
    rows.map((row) => row.name),
  ]);
  if (body.dataset.signature !== signature) {
    body.dataset.signature = signature;
    const lossIncreases = measurement
        ? rows.map((row) => measurement.before.log_probability - row.log_probability)
        : [],
      maxLoss = Math.max(1e-9, ...lossIncreases),
      minLoss = Math.min(0, ...lossIncreases);
    body.replaceChildren(
      ...rows.map((row, i) => {
        const checkbox = el("input", { type: "checkbox" }),
          baseline = measurement && measurement.before;
        checkbox.setAttribute("aria-label", (isKeepOnly ? "Keep " : "Ablate ") + row.name);
        checkbox.addEventListener("change", () => {
          for (const part of row.parts)
            if (checkbox.checked) ablationState.parts.add(part);
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
        label.addEventListener("click", () => checkbox.click());
        const tableRow = el(
          "tr",
          {},
          el("td", {}, checkbox),
          el("td", { className: "away-name" }, label),
        );
        checkbox.parts = row.parts;
        if (!measurement) return tableRow;
        const accuracyBar = el("div", { className: "away-exact bar" }),
          accuracyAxis = el("div", { className: "away-exact-axis" }, accuracyBar);
        accuracyBar.style.width = 100 * row.exact_match + "%";
        accuracyAxis.style.setProperty("--before", 100 * baseline.exact_match + "%");
        accuracyAxis.title =
          formatPercent(baseline.exact_match) +
          " before, " +
          formatPercent(row.exact_match) +
          " after, " +
          describeSample(measurement);
        const lossBar = signedBar(lossIncreases[i], minLoss, maxLoss, "away-lost");
        lossBar.title =
          "Log-probability " +
          formatNumber(baseline.log_probability) +
          " before, " +
          formatNumber(row.log_probability) +
          " after, in nats, mean " +
          describeSample(measurement);
        tableRow.append(
          el(
            "td",
            { className: "away-right", title: accuracyAxis.title },
            el("span", {
              className: "away-before",
              textContent: formatPercent(baseline.exact_match) + " → ",
            }),
            formatPercent(row.exact_match),
          ),
          el("td", { className: "away-bars" }, accuracyAxis),
          el("td", {
            className: "away-right",
            textContent:
              Math.abs(lossIncreases[i]) < 0.0005 ? "0" : formatWithMinusSign(lossIncreases[i]),
            title: lossBar.title,
          }),
          el("td", { className: "away-bars" }, lossBar),
        );
        return tableRow;
      }),
    );
  }
  updateCheckboxes();
}
function updateCheckboxes() {
  for (const checkbox of VIEWS.away.box.querySelectorAll(".away-table input"))
    checkbox.checked = checkbox.parts.every((part) => ablationState.parts.has(part));
}
// Show the generated tokens before and after the selected components are ablated.
export function renderInputAblation(response) {
  const isKeepOnly = ablationState.set === "keep",
    nParts = ablationState.parts.size;
  const { answer: target } = response,
    createMark = (generated) =>
      !target
        ? []
        : [
            isCorrect({ written: generated, answer: target })
              ? el("span", { className: "ok", textContent: "✓" })
              : el("span", { className: "away-cross", textContent: "✗" }),
          ];
  const logProbabilityTitle = target
    ? "Log-probability of the whole target of this sequence, teacher-forced"
    : "Log-probability of the output of the intact model; the target is unknown";
  const createRow = (label, { written: generated, log_probability: logProbability }) =>
    el(
      "tr",
      {},
      el("td", { textContent: label }),
      el(
        "td",
        { className: "away-symbols" },
        ...diffTokens(generated, target),
        ...createMark(generated),
      ),
      el("td", {
        className: "away-right",
        textContent: formatWithMinusSign(logProbability) + " nats",
        title: logProbabilityTitle,
      }),
    );
  queryView("away", ".away-own tbody").replaceChildren(
    createRow("intact", response.whole),
    ...(nParts
      ? [
          createRow(
            isKeepOnly
              ? "kept " +
                  nParts +
                  " of " +
                  formatCount(
                    response.parts.filter((name) => name.includes("head ")).length,
                    "head",
                  )
              : "without " + formatCount(nParts, "component"),
            response.without,
          ),
        ]
      : []),
  );
  queryView("away", ".away-own-words").textContent = nParts
    ? (isKeepOnly ? "Kept: " : "Ablated: ") + [...ablationState.parts].join("; ") + "."
    : isKeepOnly
      ? "Select heads in the list to keep; all others are ablated for this sequence."
      : "Select components in the list to ablate them for this sequence.";
  queryView("away", ".away-none").hidden = !nParts;
}

// Request the patching results again after a change of the sequence, the position or the token.
export async function runPatching() {
  const response = state.resultByView.away,
    requestId = ++ablationState.requestId,
    maxPosition = response.source.length - 2;
  ablationState.position = Math.min(ablationState.position, maxPosition);
  if (
    !response.symbols.includes(ablationState.symbol) ||
    ablationState.symbol === response.source[ablationState.position]
  )
    ablationState.symbol =
      response.symbols[
        (response.symbols.indexOf(response.source[ablationState.position]) + 1) %
          response.symbols.length
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
    response = state.resultByView.away,
    explanation = queryView("away", ".away-patch-words");
  queryView("away", ".away-position").replaceChildren(
    ...response.source
      .slice(0, -1)
      .map(
        (token, i) =>
          new Option(token + " at position " + (i + 1), i, false, i === ablationState.position),
      ),
  );
  explanation.classList.toggle("away-error", Boolean(ablationState.error));
  explanation.textContent = formatMessage(ablationState.error);
  queryView("away", ".away-symbol").replaceChildren(
    ...response.symbols
      .filter((token) => token !== response.source[ablationState.position])
      .map((token) => new Option(token, token, false, token === ablationState.symbol)),
  );
  if (!data) {
    queryView("away", ".away-patch tbody").replaceChildren();
    return;
  }
  if (!ablationState.error)
    explanation.textContent =
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
    low = Math.min(0, ...ranked.map((head) => head.recovered)),
    high = Math.max(1, ...ranked.map((head) => head.recovered));
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
