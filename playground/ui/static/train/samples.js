import { formatPercent } from "../shared/format.js";
import { state } from "./state.js";
import { SPECIAL_TOKENS } from "./status.js";
import { $ } from "./view.js";

// Tokens of a prediction; wrong ones have an underline and bold type in addition to the colour.
export function renderAnswer(box, prediction, target) {
  box.replaceChildren();
  for (let i = 0; i < Math.max(prediction.length, target.length); i++) {
    const isWrong = prediction[i] !== target[i],
      symbol = document.createElement("span");
    const [glyph, meaning] =
      prediction[i] === undefined
        ? ["_", "missing"]
        : SPECIAL_TOKENS[prediction[i]] || [prediction[i], ""];
    symbol.textContent = glyph;
    if (isWrong) {
      symbol.className = "wrong";
      symbol.title = [meaning, target[i] === undefined ? "extra token" : "should be " + target[i]]
        .filter(Boolean)
        .join("; ");
    }
    box.append(symbol, " ");
  }
  const mark = document.createElement("span"),
    isCorrect = prediction.join() === target.join();
  mark.textContent = isCorrect ? "✓" : "✗";
  mark.className = isCorrect ? "ok" : "wrong";
  mark.style.textDecoration = "none";
  mark.setAttribute("aria-label", isCorrect ? "right" : "wrong");
  box.append(mark);
}

export function renderSamples() {
  if (!state.displayedSnapshot) return;
  const body = $(".samples tbody");
  body.replaceChildren(
    ...state.displayedSnapshot.samples.map(({ source, target, prediction }) => {
      const row = document.createElement("tr"),
        cells = [0, 1, 2].map(() => row.insertCell());
      const use = document.createElement("button");
      use.type = "button";
      use.className = "sample";
      use.textContent = source.join(" ");
      use.setAttribute("aria-label", "Try " + source.join(" "));
      cells[0].append(use);
      cells[1].textContent = "→";
      renderAnswer(cells[2], prediction, target);
      return row;
    }),
  );
  $(".samples").classList.toggle(
    "long",
    state.displayedSnapshot.samples.some((s) => s.source.length > 12),
  );
  const right = state.displayedSnapshot.samples.filter(
    (s) => s.prediction.join() === s.target.join(),
  ).length;
  $(".right-of").textContent =
    right +
    " of " +
    state.displayedSnapshot.samples.length +
    " right" +
    (state.viewedStep === null ? "" : " at step " + state.displayedSnapshot.step);
}

export function renderLengths() {
  const box = $(".lengths");
  box.hidden = !state.scores;
  if (!state.scores) return;
  box.querySelector("tbody").replaceChildren(
    ...state.scores.by_length.map((s) => {
      const row = document.createElement("tr");
      for (const text of [
        s.length,
        s.n,
        s.available === null ? "over 10,000" : s.available.toLocaleString("en"),
        s.exact_match === null ? "none held out" : formatPercent(s.exact_match),
      ])
        row.insertCell().textContent = text;
      return row;
    }),
  );
}
