// Ablation.
import { formatMessage, formatPercent } from "../shared/format.js";
import { createSegmentedControl, el, setPressed, visuallyHidden } from "../shared/dom.js";
import {
  renderAblation,
  renderInputAblation,
  renderPatching,
  runPatching,
} from "./ablation_results.js";
import { redrawView, scheduleRefresh } from "./requests.js";
import {
  cacheKey,
  describeSample,
  formatWithMinusSign,
  loadSlowView,
  slowResults,
} from "./slow_views.js";
import { state } from "./state.js";
import { queryView, VIEWS } from "./views.js";

export const ablationState = {
  mode: "zero",
  set: "single",
  parts: new Set(),
  position: 0,
  symbol: null,
  patch: null,
  inputKey: "", // model, step and sequence of the last patching request
  requestId: 0,
  error: "",
};
const ABLATION_MODES = [
  [
    "zero",
    "zero",
    "Zero ablation: the output is replaced by zero, a value that did not occur in training",
  ],
  [
    "mean",
    "mean",
    "Mean ablation: the output is replaced by its mean at that position over the held-out " +
      "sequences, which removes its dependence on the input",
  ],
];
const ABLATION_SETS = [
  [
    "single",
    "single components",
    "Each head, each feed-forward network, and the position vectors, one at a time",
  ],
  ["groups", "groups", "Components of one group, ablated together"],
  ["keep", "keep only", "One head, or a group of heads, is kept; all other heads are ablated"],
];

export const ablationSpec = {
  title: "Ablation",
  explain:
    "Replaces the output of a component and measures the effect on held-out sequences. The " +
    "log-probability of the target can change even where exact match does not.",
  request: "away-answer",
  build(box) {
    const measure = el("button", {
      type: "button",
      className: "quiet away-measure",
      textContent: "Measure",
    });
    measure.addEventListener("click", () =>
      loadSlowView(
        "away",
        { how: ablationState.mode, set: ablationState.set },
        "away",
        state.resultByView.away,
      ),
    );
    const none = el("button", {
      type: "button",
      className: "quiet away-none",
      textContent: "Restore all",
    });
    none.addEventListener("click", () => {
      ablationState.parts.clear();
      redrawView("away");
      scheduleRefresh("away", 0);
    });
    const position = el("select", {
        className: "away-position",
        ariaLabel: "Position in the source",
      }),
      symbol = el("select", { className: "away-symbol", ariaLabel: "Replacement token" });
    position.addEventListener("change", () => {
      ablationState.position = +position.value;
      ablationState.symbol = null;
      runPatching();
    });
    symbol.addEventListener("change", () => {
      ablationState.symbol = symbol.value;
      runPatching();
    });
    box.append(
      el(
        "div",
        { className: "away-two" },
        el(
          "div",
          {},
          el(
            "div",
            { className: "row" },
            createSegmentedControl(
              ABLATION_SETS,
              ablationState.set,
              (value) => {
                if ((value === "keep") !== (ablationState.set === "keep"))
                  ablationState.parts.clear();
                ablationState.set = value;
                redrawView("away");
                scheduleRefresh("away", 0);
              },
              "Components to ablate",
            ),
            el(
              "span",
              { className: "away-columns" },
              "replaced with ",
              createSegmentedControl(
                ABLATION_MODES,
                ablationState.mode,
                (value) => {
                  ablationState.mode = value;
                  redrawView("away");
                  scheduleRefresh("away", 0);
                },
                "Replacement value",
              ),
            ),
            measure,
          ),
          el("p", { className: "hint away-words", role: "status" }),
          el("p", { className: "away-finding" }),
          el(
            "table",
            { className: "away-table picture" },
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                el("th", { scope: "col" }, visuallyHidden("Select")),
                el(
                  "th",
                  { scope: "col", className: "away-what" },
                  visuallyHidden("Ablated component"),
                ),
                el("th", {
                  scope: "col",
                  className: "away-right",
                  textContent: "exact match",
                  title:
                    "Fraction of the held-out sequences with a completely correct answer, " +
                    "before and after",
                }),
                el("th", { scope: "col" }, visuallyHidden("change")),
                el("th", {
                  scope: "col",
                  className: "away-right",
                  textContent: "drop in nats",
                  title:
                    "Mean drop of the log-probability of the whole target, in nats, over " +
                    "the same sequences",
                }),
                el("th", { scope: "col" }, visuallyHidden("bar chart")),
              ),
            ),
            el("tbody"),
          ),
        ),
        el(
          "div",
          {},
          el("h4", { textContent: "On your sequence" }),
          el("table", { className: "away-own picture" }, el("tbody")),
          el("p", { className: "hint away-own-words" }),
          none,
          el("h4", {
            className: "away-patch-title",
            textContent: "Activation patching",
            title:
              "Meng et al. 2022: the model runs on the corrupted sequence, with the output " +
              "of one head at a time replaced by its output on the clean sequence",
          }),
          el(
            "div",
            { className: "row" },
            el("label", {}, "replace ", position),
            el("label", {}, " with ", symbol),
          ),
          el("p", { className: "hint away-patch-words", role: "status" }),
          el("table", { className: "away-patch picture" }, el("tbody")),
        ),
      ),
    );
  },
  options: () => ({
    how: ablationState.mode,
    set: ablationState.set,
    keep: ablationState.set === "keep" && ablationState.parts.size > 0,
    parts: [...ablationState.parts],
  }),
  restoreOptions(options) {
    if (ABLATION_MODES.some(([name]) => name === options.how)) ablationState.mode = options.how;
    if (ABLATION_SETS.some(([name]) => name === options.set)) ablationState.set = options.set;
    if (Array.isArray(options.parts))
      ablationState.parts = new Set(options.parts.filter((name) => typeof name === "string"));
    for (const box of VIEWS.away.box.querySelectorAll(".choice"))
      for (const value of [ablationState.mode, ablationState.set])
        if (box.querySelector(`[data-value="${value}"]`)) setPressed(box, value);
  },
  draw(response) {
    const result = slowResults.get(
        cacheKey("away", { how: ablationState.mode, set: ablationState.set }),
      ),
      data = result && result.data;
    const words = queryView("away", ".away-words"),
      measure = queryView("away", ".away-measure");
    words.classList.toggle("away-error", Boolean(result && result.error));
    words.textContent = !result
      ? "Not measured yet."
      : result.busy
        ? "Measuring one component at a time."
        : result.error
          ? formatMessage(result.error)
          : "Baseline: exact match " +
            formatPercent(data.before.exact_match) +
            ", log-probability " +
            formatWithMinusSign(data.before.log_probability) +
            " nats, " +
            describeSample(data) +
            (data.fewer ? " (fewer than 512, because of the size of the model)" : "") +
            (data.step === response.step
              ? "."
              : "; measured at step " +
                data.step.toLocaleString("en") +
                ", the model is now at step " +
                response.step.toLocaleString("en") +
                ".");
    measure.disabled = Boolean(result && result.busy);
    measure.textContent = data ? "Measure again" : "Measure";
    queryView("away", ".away-finding").textContent = data ? data.finding : "";
    renderAblation(response, data);
    renderInputAblation(response);
    const inputKey = JSON.stringify([state.subject, response.step, response.source]);
    if (inputKey !== ablationState.inputKey) {
      ablationState.inputKey = inputKey;
      runPatching();
    } else renderPatching();
  },
  reset() {
    ablationState.parts.clear();
    ablationState.patch = null;
    ablationState.inputKey = "";
    ablationState.position = 0;
    ablationState.symbol = null;
  },
  exportData: (response) => ({
    own: response,
    patching: ablationState.patch,
    measured: ABLATION_SETS.map(([set]) =>
      slowResults.get(cacheKey("away", { how: ablationState.mode, set })),
    )
      .filter((result) => result && result.data)
      .map((result) => result.data),
  }),
  rows: (response) =>
    ABLATION_SETS.flatMap(([set]) => {
      const result = slowResults.get(cacheKey("away", { how: ablationState.mode, set }));
      return result && result.data
        ? result.data.rows.map((row) => ({
            set,
            how: ablationState.mode,
            part: row.name,
            exact_match_before: result.data.before.exact_match,
            exact_match_after: row.exact_match,
            log_probability_before: result.data.before.log_probability,
            log_probability_after: row.log_probability,
            sequences: result.data.sequences,
            step: result.data.step,
          }))
        : [];
    }).concat(
      ablationState.patch
        ? ablationState.patch.heads.map((head) => ({
            set: "patching",
            part: head.name,
            share_recovered: head.recovered,
            step: response.step,
          }))
        : [],
    ),
};
