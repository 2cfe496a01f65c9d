// Examples.
import { formatCount, formatMessage } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { benchmarkResults } from "./benchmark.js";
import { sortedRows } from "./benchmark_table.js";
import { state } from "./state.js";

const decodingSuffix = (row) =>
  /at once/.test(row.decoding)
    ? " (all slots)"
    : /one slot/.test(row.decoding)
      ? " (one slot)"
      : "";
export function renderExamples() {
  state.benchmarkForm.note.textContent = benchmarkResults.settings
    ? formatMessage(benchmarkResults.settings.note)
    : "Each example with its prompt, the model output and the parsed answer.";
  const existing = new Map(
      [...state.benchmarkForm.items.children].map((each) => [each.dataset.number, each]),
    ),
    examples =
      benchmarkResults.settings && benchmarkResults.settings.few_shot_examples.length
        ? benchmarkResults.settings.few_shot_examples
        : [];
  const boxes = [];
  if (examples.length) {
    const signature = JSON.stringify(examples);
    let box = existing.get("examples");
    if (!box || box.dataset.signature !== signature) {
      box = el(
        "details",
        {},
        el("summary", { className: "plain" }, "Few-shot examples (not held out)"),
        el("pre", {
          textContent: examples.map(([source, right]) => source + "  →  " + right).join("\n"),
        }),
      );
      box.dataset.number = "examples";
      box.dataset.signature = signature;
    }
    boxes.push(box);
  }
  for (const [at, answers] of [...benchmarkResults.items].sort(([a], [b]) => a - b)) {
    const by = sortedRows()
      .filter(([id]) => answers.has(id))
      .map(([id, row]) => [row, answers.get(id)]);
    if (!by.length) continue;
    const signature =
      by.map(([row, item]) => row.model + row.decoding + item.raw_output).join("\n") +
      by[0][1].source;
    let box = existing.get(String(at));
    if (!box) {
      box = el(
        "details",
        { className: "item" },
        el("summary"),
        el("div", { className: "answers" }),
      );
      box.dataset.number = at;
      box.addEventListener("toggle", () => {
        if (box.open) renderExample(box);
      });
    }
    box.by = by;
    if (box.dataset.signature !== signature) {
      box.dataset.signature = signature;
      const marks = by.map(([row, item]) =>
        el("span", {
          className: "mark " + (item.correct ? "ok" : "bad"),
          textContent: (item.correct ? "✓ " : "✗ ") + row.model + decodingSuffix(row),
          title: item.correct ? "correct" : "wrong",
        }),
      );
      box.firstChild.replaceChildren(
        el("span", {
          className: "question",
          textContent: by[0][1].source + " → " + by[0][1].target,
        }),
        el("span", { className: "marks" }, ...marks),
      );
      if (box.open) renderExample(box);
    }
    boxes.push(box);
  }
  const same =
    boxes.length === state.benchmarkForm.items.children.length &&
    boxes.every((box, i) => state.benchmarkForm.items.children[i] === box);
  if (!same) state.benchmarkForm.items.replaceChildren(...boxes);
}
function renderExample(box) {
  if (box.dataset.filled === box.dataset.signature) return;
  box.dataset.filled = box.dataset.signature;
  box.lastChild.replaceChildren(...box.by.map(([row, item]) => createAnswer(row, item)));
}
// The text of a token, with visible whitespace.
export const visibleWhitespace = (text) =>
  text.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
function createAnswer(row, item) {
  const part = (label, ...content) => [el("dt", { textContent: label }), el("dd", {}, ...content)];
  const tokens = el(
    "div",
    { className: "tokens" },
    ...item.tokens.map((token, i) =>
      el("span", {
        className: "token t" + (i % 4),
        textContent: visibleWhitespace(token),
        title:
          "token " +
          (i + 1) +
          " of " +
          item.tokens.length +
          (item.ids[i] === undefined ? "" : ", id " + item.ids[i]),
      }),
    ),
  );
  const right = item.target.split(" "),
    read = el("span", { className: "symbols" });
  if (item.prediction === null)
    read.append(
      el("span", {
        className: "wrong",
        textContent: "no answer: the output is not a list of tokens separated by spaces",
      }),
    );
  else {
    for (let i = 0; i < Math.max(right.length, item.prediction.length); i++) {
      const answer = item.prediction[i],
        fine = i < right.length && answer === right[i];
      read.append(
        el("span", {
          className: fine ? "" : "wrong",
          textContent: answer === undefined ? "_" : answer === null ? "?" : answer,
          title: fine
            ? "correct"
            : i >= right.length
              ? "extra token"
              : (answer === undefined
                  ? "missing"
                  : answer === null
                    ? "not a token of the task"
                    : "wrong") +
                "; target: " +
                right[i],
        }),
        " ",
      );
    }
    read.append(
      el("span", {
        className: item.correct ? "ok" : "wrong verdict",
        textContent: item.correct ? "✓ correct" : "✗ wrong",
      }),
    );
  }
  const parts = [];
  if (item.prompt) parts.push(...part("prompt", el("pre", { textContent: item.prompt })));
  if (item.tokens.length) parts.push(...part(formatCount(item.tokens.length, "token"), tokens));
  parts.push(
    ...part(
      "output",
      el("code", { className: "raw", textContent: visibleWhitespace(item.raw_output) }),
    ),
    ...part("parsed as", read),
  );
  if (item.candidates.length) {
    const sorted = [...item.candidates].sort(
      (a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity),
    );
    parts.push(
      ...part(
        "ranked",
        el(
          "details",
          {},
          el("summary", {
            className: "plain",
            textContent:
              "the target has rank " +
              item.rank +
              " of " +
              formatCount(sorted.length, "candidate") +
              " by log-probability",
          }),
          el(
            "table",
            { className: "candidates" },
            el(
              "tbody",
              {},
              ...sorted.map((each) =>
                el(
                  "tr",
                  { className: each.is_target ? "right" : "" },
                  el("td", { className: "mono", textContent: each.symbols }),
                  el("td", { textContent: each.origin + (each.is_target ? " ✓ target" : "") }),
                  el("td", {
                    className: "number",
                    textContent: each.score === null ? "–∞" : each.score.toFixed(2),
                  }),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }
  return el(
    "div",
    { className: "answer-of" },
    el("h4", { textContent: row.model + decodingSuffix(row) }),
    el("dl", {}, ...parts),
  );
}
