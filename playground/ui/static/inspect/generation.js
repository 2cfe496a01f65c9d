import { formatPercent } from "../shared/format.js";
import { createSegmentedControl, el } from "../shared/dom.js";
import { mountMatrix } from "../shared/matrix.js";
import { DECODING_MODES } from "./attention.js";
import { redrawView, scheduleRefresh } from "./requests.js";
import { state } from "./state.js";
import { queryView, VIEWS } from "./views.js";

const decodingState = {
  mode: "free-running",
  stepIndex: 0,
  playbackTimer: null,
  temperature: 1,
  seed: 0,
};
export const decodingSpec = {
  title: "Decoding",
  explain:
    "Each decoding step: the tokens so far, the five most probable next tokens, and the " +
    "attention weights of every head.",
  build(box) {
    const samplingFields = el(
      "label",
      { className: "steps-chance", hidden: true },
      "temperature ",
      el("input", {
        type: "number",
        className: "steps-temperature",
        min: "0.1",
        max: "5",
        step: "0.1",
        value: "1",
        style: "width: 72px",
      }),
      " seed ",
      el("input", {
        type: "number",
        className: "steps-seed",
        min: "0",
        step: "1",
        value: "0",
        style: "width: 72px",
      }),
    );
    box.append(
      el(
        "div",
        { className: "row" },
        createSegmentedControl(
          DECODING_MODES,
          decodingState.mode,
          (value) => {
            decodingState.mode = value;
            samplingFields.hidden = value !== "sampled";
            stopPlayback();
            scheduleRefresh("steps");
          },
          "Decoding mode",
        ),
        samplingFields,
      ),
      el(
        "div",
        { className: "row" },
        el(
          "div",
          { className: "steps-bar" },
          el("button", {
            type: "button",
            className: "quiet steps-play",
            textContent: "▶",
            title: "Play",
          }),
          el("input", {
            type: "range",
            className: "steps-at",
            min: "0",
            value: "0",
            step: "1",
            ariaLabel: "Output position",
          }),
          el("output", { className: "hint steps-words" }),
        ),
      ),
      el("p", { className: "steps-written" }),
      el(
        "div",
        { className: "steps-two" },
        el(
          "div",
          {},
          el("h4", {
            textContent: "Next-token probabilities",
            title: "Softmax of the logits at this position",
          }),
          el("table", { className: "steps-bars picture" }, el("tbody")),
        ),
        el(
          "div",
          {},
          el("h4", { textContent: "Attention of each head to the source" }),
          el("canvas", { className: "steps-cross picture" }),
          el("p", { className: "caption steps-cross-words" }),
        ),
        el(
          "div",
          {},
          el("h4", { textContent: "Attention of each head to the decoder input" }),
          el("canvas", { className: "steps-decoder picture" }),
          el("p", { className: "caption steps-decoder-words" }),
        ),
      ),
    );
    box.querySelector(".steps-at").addEventListener("input", (event) => {
      stopPlayback();
      decodingState.stepIndex = +event.target.value;
      redrawView("steps");
    });
    box
      .querySelector(".steps-play")
      .addEventListener("click", () =>
        decodingState.playbackTimer ? stopPlayback() : startPlayback(),
      );
    for (const name of ["temperature", "seed"])
      box.querySelector(".steps-" + name).addEventListener("input", (event) => {
        decodingState[name] = +event.target.value;
        scheduleRefresh("steps", 200);
      });
  },
  options: () => ({
    mode: decodingState.mode,
    ...(decodingState.mode === "sampled"
      ? { temperature: decodingState.temperature, seed: decodingState.seed }
      : {}),
  }),
  draw(data) {
    const nSteps = data.steps.length;
    decodingState.stepIndex = Math.min(decodingState.stepIndex, nSteps - 1);
    const step = data.steps[decodingState.stepIndex],
      slider = queryView("steps", ".steps-at");
    slider.max = nSteps - 1;
    slider.value = decodingState.stepIndex;
    queryView("steps", ".steps-words").textContent =
      "position " + (decodingState.stepIndex + 1) + " of " + nSteps;
    const isWrong = step.right !== null && step.right !== step.chosen;
    queryView("steps", ".steps-written").replaceChildren(
      step.prefix.slice(1).join(" ") + (step.prefix.length > 1 ? " " : ""),
      el("span", {
        className: "next" + (isWrong ? " wrong" : ""),
        textContent: step.chosen,
        title: isWrong
          ? "target: " + step.right
          : "with probability " + formatPercent(step.probability),
      }),
    );
    queryView("steps", ".steps-bars tbody").replaceChildren(
      ...step.candidates.map(([token, probability]) => {
        const bar = el("div", { className: "bar" });
        bar.style.width = Math.max(1, 100 * probability) + "%";
        return el(
          "tr",
          { className: token === step.chosen ? "chosen" : "" },
          el("td", { textContent: token }),
          el("td", {}, bar),
          el("td", { textContent: formatPercent(probability), title: String(probability) }),
        );
      }),
    );
    const drawAttention = (kind, columns) => {
      const weights = step[kind].map((row) => row.map((thousandths) => thousandths / 1000)),
        caption = queryView("steps", ".steps-" + kind + "-words");
      caption.dataset.resting =
        "Rows: heads as layer.head. Columns: " +
        (kind === "cross" ? "source tokens." : "decoder input so far.");
      mountMatrix(
        queryView("steps", ".steps-" + kind),
        { weights, rows: data.heads, columns, size: 34 },
        {
          caption,
          hover: (row, column) =>
            "Head " +
            data.heads[row] +
            " attends to " +
            columns[column] +
            " (position " +
            (column + 1) +
            ") with weight " +
            weights[row][column].toFixed(3) +
            ".",
        },
      );
    };
    drawAttention("cross", data.source);
    drawAttention("decoder", step.prefix);
  },
  rows: (data) =>
    data.steps.flatMap((step, i) =>
      step.candidates.map(([token, probability], rank) => ({
        place: i + 1,
        prefix: step.prefix.join(" "),
        rank: rank + 1,
        symbol: token,
        probability,
        chosen: token === step.chosen,
        right: step.right,
      })),
    ),
};
function stopPlayback() {
  clearInterval(decodingState.playbackTimer);
  decodingState.playbackTimer = null;
  const playButton = VIEWS.steps.box && queryView("steps", ".steps-play");
  if (playButton) {
    playButton.textContent = "▶";
    playButton.title = "Play";
  }
}
function startPlayback() {
  const data = state.resultByView.steps;
  if (!data) return;
  if (decodingState.stepIndex >= data.steps.length - 1) decodingState.stepIndex = -1;
  const showNextStep = () => {
    if (
      !state.resultByView.steps ||
      decodingState.stepIndex >= state.resultByView.steps.steps.length - 1
    ) {
      stopPlayback();
      return;
    }
    decodingState.stepIndex += 1;
    redrawView("steps");
  };
  showNextStep();
  decodingState.playbackTimer = setInterval(showNextStep, 900);
  queryView("steps", ".steps-play").textContent = "❚❚";
  queryView("steps", ".steps-play").title = "Pause";
}
