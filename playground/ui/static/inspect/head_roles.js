import { formatCount, formatMessage } from "../shared/format.js";
import { createSegmentedControl, el, setPressed } from "../shared/dom.js";
import { renderHeadHistory, renderHeadScores } from "./head_scores.js";
import { redrawView } from "./requests.js";
import { cacheKey, describeSample, loadSlowView, slowResults } from "./slow_views.js";
import { state } from "./state.js";
import { queryView } from "./views.js";

export const PATTERNS = [
  "diagonal",
  "anti-diagonal",
  "previous",
  "next",
  "first",
  "last",
  "uniform",
];
export const PATTERN_DESCRIPTIONS = {
  diagonal: "position i attends to position i",
  "anti-diagonal": "position i attends to position i counted from the end",
  previous: "position i attends to i − 1",
  next: "position i attends to i + 1",
  first: "every position attends to the first",
  last: "every position attends to EOS, the end of the source",
  uniform: "every position attends equally to all positions (score: overlap with uniform weights)",
};
// The colour-blind-safe palette of Okabe and Ito. Dashes distinguish the lines without colour. The
// selected pattern has the accent colour.
export const PATTERN_STYLES = {
  diagonal: ["#d98200", "#ffb000", []],
  "anti-diagonal": ["#00795a", "#2fd6a5", []],
  previous: ["#b8478c", "#f08fc4", [6, 3]],
  next: ["#c0392b", "#ff7b61", [2, 2]],
  first: ["#7a5c00", "#d9c34a", [6, 3]],
  last: ["#5b3fc4", "#b7a4ff", [2, 2]],
  uniform: ["#6b7280", "#c3c8d1", []],
  aligned: ["#16181d", "#f2f4f7", [1, 3]],
};
const HEAD_COLUMNS = [
  ["name", "head", "attention type, layer.head"],
  ...PATTERNS.map((name) => [
    name,
    name,
    "Fraction of the attention weights: " + PATTERN_DESCRIPTIONS[name],
  ]),
  [
    "entropy",
    "entropy",
    "Entropy of the weights of a row, in nats; 0 means that all weight is on one position",
  ],
  [
    "aligned",
    "aligned",
    "Fraction of the attention on the source token that determines this target token",
  ],
  [
    "distance",
    "distance",
    "Mean distance of the attention from that token, in positions (earth mover's distance)",
  ],
  ["description", "role", "Description of the pattern with the largest fraction of the attention"],
];
export const headScoresState = {
  sort: "name",
  isDescending: false,
  kind: "all",
  head: null,
  pattern: null,
  historyIndex: null,
  latest: null,
  timer: null,
};
export const columnValue = (head, column) =>
  PATTERNS.includes(column) ? head.patterns[column] : column === "name" ? 0 : head[column];

export const headRolesSpec = {
  title: "Head roles",
  explain:
    "How much of each head's attention follows a pattern, as a fraction over held-out " +
    "sequences. The tick in a cell marks the value of uniform attention.",
  request: "away-answer",
  build(box) {
    const headerRow = el("tr");
    for (const [name, text, title] of HEAD_COLUMNS) {
      const button = el("button", { type: "button", textContent: text, title });
      button.addEventListener("click", () => {
        headScoresState.isDescending =
          headScoresState.sort === name
            ? !headScoresState.isDescending
            : !["name", "description", "distance", "entropy"].includes(name);
        headScoresState.sort = name;
        redrawView("heads");
      });
      headerRow.append(
        el(
          "th",
          {
            scope: "col",
            className:
              name === "description" || name === "name"
                ? ""
                : PATTERNS.includes(name)
                  ? "heads-middle"
                  : "heads-number",
          },
          button,
        ),
      );
      headerRow.lastChild.dataset.column = name;
    }
    const patternSelect = el(
      "select",
      { className: "heads-pattern", ariaLabel: "Pattern" },
      ...PATTERNS.map((name) => new Option(name)),
    );
    patternSelect.addEventListener("change", () => {
      headScoresState.pattern = patternSelect.value;
      redrawView("heads");
    });
    const measureButton = el("button", {
      type: "button",
      className: "quiet heads-measure",
      textContent: "Measure over training",
      title: "Computes these scores at up to 24 steps with stored weights; takes some seconds",
    });
    measureButton.addEventListener("click", () =>
      loadSlowView("heads-over-training", {}, "heads", state.resultByView.heads),
    );
    box.append(
      el(
        "div",
        { className: "row" },
        createSegmentedControl(
          [
            ["all", "all"],
            ["cross", "cross"],
            ["encoder", "encoder"],
            ["decoder", "decoder"],
          ],
          headScoresState.kind,
          (value) => {
            headScoresState.kind = value;
            redrawView("heads");
          },
          "Kind of attention",
        ),
        el("span", { className: "hint heads-words" }),
      ),
      el(
        "div",
        { className: "heads-scroll" },
        el("table", { className: "heads-table picture" }, el("thead", {}, headerRow), el("tbody")),
      ),
      el(
        "div",
        { className: "row heads-when" },
        el("h4", { textContent: "Scores over training" }),
        measureButton,
        el("span", { className: "hint heads-over-words" }),
      ),
      el(
        "div",
        { className: "heads-two", hidden: true },
        el(
          "div",
          {},
          el("h4", { className: "heads-chart-title" }),
          el("canvas", { className: "heads-chart picture", tabIndex: 0 }),
          el("p", { className: "heads-legend" }),
          el("p", { className: "caption heads-chart-words" }),
        ),
        el(
          "div",
          {},
          el("h4", {}, "All heads: fraction on ", patternSelect),
          el("canvas", { className: "heads-map picture" }),
          el("p", { className: "caption heads-map-words" }),
        ),
      ),
    );
    const canvas = box.querySelector(".heads-chart");
    canvas.setAttribute("role", "img");
    const selectStep = (index) => {
      headScoresState.historyIndex = index;
      renderHeadHistory();
    };
    canvas.addEventListener("pointermove", (event) =>
      selectStep(canvas.nearest ? canvas.nearest(event.offsetX) : null),
    );
    canvas.addEventListener("pointerleave", () => selectStep(null));
    canvas.addEventListener("blur", () => selectStep(null));
    canvas.addEventListener("keydown", (event) => {
      const offset = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
        history = headHistory();
      if (!offset || !history) return;
      event.preventDefault();
      event.stopPropagation();
      selectStep(
        Math.max(
          0,
          Math.min(
            history.steps.length - 1,
            headScoresState.historyIndex === null
              ? offset > 0
                ? 0
                : history.steps.length - 1
              : headScoresState.historyIndex + offset,
          ),
        ),
      );
    });
  },
  draw(response) {
    const result = slowResults.get(cacheKey("heads", {}));
    // While a run trains, each new step requests new scores; the previous scores stay until then.
    // The delay merges the steps of a moving slider into one request.
    if (
      !result ||
      (!result.busy && result.of !== response && (result.error || result.data.step < response.step))
    ) {
      clearTimeout(headScoresState.timer);
      const key = cacheKey("heads", {});
      headScoresState.timer = setTimeout(
        () => {
          if (key === cacheKey("heads", {})) loadSlowView("heads", {}, "heads", response);
        },
        result || headScoresState.latest ? 250 : 0,
      );
    }
    const data = (result && result.data) || headScoresState.latest,
      isStale = !result || !result.data;
    const statusText = queryView("heads", ".heads-words");
    statusText.classList.toggle("heads-error", Boolean(result && result.error));
    statusText.textContent =
      result && result.error
        ? formatMessage(result.error)
        : isStale
          ? "Measuring."
          : formatMessage(describeSample(data) + ", teacher-forced");
    queryView("heads", ".heads-table").classList.toggle("heads-stale", isStale);
    if (!data) return;
    headScoresState.latest = data;
    if (!data.heads.some((head) => head.name === headScoresState.head))
      headScoresState.head = data.heads.reduce((best, head) =>
        (head.aligned || 0) > (best.aligned || 0) ? head : best,
      ).name;
    renderHeadScores(data);
    const history = slowResults.get(cacheKey("heads-over-training", {})),
      hasHistory = /^(run|watch):/.test(state.subject) && state.weightSteps.length > 1;
    queryView("heads", ".heads-measure").disabled = !hasHistory || Boolean(history && history.busy);
    queryView("heads", ".heads-over-words").textContent = !hasHistory
      ? "Only runs store the weights of earlier steps. Train a run and open it here."
      : !history
        ? ""
        : history.busy
          ? "Measuring."
          : history.error
            ? formatMessage(history.error)
            : formatMessage(
                formatCount(history.data.steps.length, "step") +
                  " of " +
                  history.data.n_steps.toLocaleString("en") +
                  " stored, " +
                  describeSample(history.data),
              );
    queryView("heads", ".heads-two").hidden = !headHistory();
    renderHeadHistory();
  },
  options: () => ({
    kind: headScoresState.kind,
    sort: headScoresState.sort,
    down: headScoresState.isDescending,
    head: headScoresState.head,
  }),
  restoreOptions(options) {
    if (["all", "cross", "encoder", "decoder"].includes(options.kind)) {
      headScoresState.kind = options.kind;
      setPressed(queryView("heads", ".choice"), options.kind);
    }
    if (HEAD_COLUMNS.some(([name]) => name === options.sort)) {
      headScoresState.sort = options.sort;
      headScoresState.isDescending = options.down === true;
    }
    if (typeof options.head === "string") headScoresState.head = options.head;
  },
  reset() {
    headScoresState.latest = null;
    headScoresState.head = null;
    headScoresState.pattern = null;
  },
  exportData: () => ({ ...headScoresState.latest, over_training: headHistory() }),
  rows: () => [
    ...(headScoresState.latest
      ? headScoresState.latest.heads.map((head) =>
          toScoreRow(
            headScoresState.latest.step,
            head,
            (score) => score,
            head.aligned,
            head.entropy,
            {
              distance: head.distance,
              pattern: head.description,
            },
          ),
        )
      : []),
    ...(headHistory()
      ? headHistory().steps.flatMap((step, i) =>
          headHistory().heads.map((head) =>
            toScoreRow(
              step,
              head,
              (scores) => scores && scores[i],
              head.aligned[i],
              head.entropy[i],
              {},
            ),
          ),
        )
      : []),
  ],
};
const toScoreRow = (step, head, selectScore, aligned, entropy, extraColumns) => ({
  step,
  kind: head.kind,
  layer: head.layer,
  head: head.head,
  ...Object.fromEntries(PATTERNS.map((name) => [name, selectScore(head.patterns[name])])),
  entropy,
  aligned,
  ...extraColumns,
});
export function headHistory() {
  const history = slowResults.get(cacheKey("heads-over-training", {}));
  return history && history.data;
}
