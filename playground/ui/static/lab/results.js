// The open experiment.
import { navigate, setMessage } from "../shared/common.js";
import { formatMessage } from "../shared/format.js";
import { downloadBlob } from "../shared/csv.js";
import { el, setText, visuallyHidden } from "../shared/dom.js";
import { EXACT_MATCH_TITLE } from "../shared/strings.js";
import { syncRows } from "./elements.js";
import { createActions, describeStatus, renderActions } from "./experiments.js";
import { formatEstimate } from "./presets.js";
import { renderCharts } from "./result_charts.js";
import { exportCsv, exportFigures, fileName } from "./result_files.js";
import { renderRuns, renderTable, renderUntrainedNote } from "./result_tables.js";
import { state } from "./state.js";
import { $, onResizeOrThemeChange } from "./view.js";

const INITIAL_VARIANTS = 12; // lines that are visible by default
let hiddenVariantsOf = "";

export function buildResults() {
  const figure = (title, className, text) => {
    const canvas = el("canvas", { className }),
      caption = el("p", { className: "caption" }),
      box = el(
        "figure",
        {},
        el("figcaption", { textContent: title, title: text }),
        canvas,
        caption,
      );
    caption.setAttribute("aria-live", "polite");
    return { canvas, caption, box, title };
  };
  state.resultsView = {
    title: el("h3", { className: "title" }),
    words: el("p", { className: "words" }),
    bar: el("span", { className: "share" }, el("i")),
    actions: null,
    summary: el("p", { className: "summary" }),
    also: el("p", { className: "also" }),
    legend: el("div", { className: "legend" }),
    byLength: figure(
      "Exact match by length",
      "by-length-chart",
      "Held-out sequences of each length, free-running",
    ),
    heat: figure(
      "Heat map",
      "heat-chart",
      "Medians of the same data; darker (brighter in dark mode) is a higher exact match",
    ),
    score: figure(EXACT_MATCH_TITLE, "score-chart", "Evaluated free-running during training"),
    loss: figure(
      "Training loss (logarithmic)",
      "loss-chart",
      "Mean cross-entropy of the training batches between two evaluations",
    ),
    head: el("thead"),
    body: el("tbody"),
    untrained: el("p", { className: "hint untrained" }),
    links: el("div", { className: "bar" }),
    note: el("p", { className: "problem results-note" }),
    runsBody: el("tbody"),
    runsWords: el("summary"),
    empty: el("p", {
      className: "empty",
      textContent:
        "No experiment is open. Run a prepared experiment to see its summary, curves and table.",
    }),
  };
  state.resultsView.note.setAttribute("role", "alert");
  state.resultsView.summary.setAttribute("aria-live", "polite");
  state.resultsView.legend.setAttribute("role", "group");
  state.resultsView.legend.setAttribute("aria-label", "Visible lines");
  const button = (text, title, act, className = "") => {
    const made = el("button", {
      type: "button",
      className: "quiet " + className,
      textContent: text,
      title,
    });
    made.addEventListener("click", act);
    return made;
  };
  state.resultsView.all = button(
    "Curves in Train",
    "Overlay one run of each line in the Train tab: the first finished seed",
    () =>
      overlayInTrain(
        visibleVariants()
          .map((cell) => cell.seeds.find((run) => run.done) || cell.seeds.find((run) => run.run))
          .filter(Boolean)
          .map((run) => run.run),
      ),
    "all-in-train",
  );
  state.resultsView.files = el(
    "span",
    { className: "files" },
    button("CSV", "Every number in the table", exportCsv, "as-csv"),
    button(
      "JSON",
      "All results with the settings",
      () =>
        downloadBlob(
          fileName("json"),
          new Blob(
            [
              JSON.stringify(
                {
                  name: state.details.name,
                  question: state.details.question,
                  ...state.details.results,
                  runs: state.details.lines,
                },
                null,
                1,
              ),
            ],
            { type: "application/json" },
          ),
        ),
      "as-json",
    ),
    button("Figures", "PNG, SVG and PDF in one zip file", exportFigures, "as-figures"),
  );
  state.resultsView.links.append(state.resultsView.all, state.resultsView.files);
  state.resultsView.runs = el(
    "details",
    { className: "runs-of" },
    state.resultsView.runsWords,
    el(
      "div",
      { className: "scrolling", tabIndex: 0 },
      el(
        "table",
        { className: "sheet" },
        el(
          "thead",
          {},
          createHeadRow([
            ["run", ""],
            ["seed", "number"],
            ["status", ""],
            ["actions", ""],
          ]),
        ),
        state.resultsView.runsBody,
      ),
    ),
  );
  state.resultsView.whole = el(
    "div",
    { className: "whole", hidden: true },
    el("div", { className: "headline" }, state.resultsView.title),
    state.resultsView.words,
    state.resultsView.bar,
    state.resultsView.summary,
    state.resultsView.also,
    state.resultsView.legend,
    el(
      "div",
      { className: "charts wide" },
      state.resultsView.byLength.box,
      state.resultsView.heat.box,
    ),
    el("div", { className: "charts" }, state.resultsView.score.box, state.resultsView.loss.box),
    el(
      "div",
      { className: "scrolling", tabIndex: 0 },
      el("table", { className: "sheet cells" }, state.resultsView.head, state.resultsView.body),
    ),
    state.resultsView.untrained,
    state.resultsView.links,
    state.resultsView.note,
    state.resultsView.runs,
  );
  $(".results").append(state.resultsView.empty, state.resultsView.whole);
  onResizeOrThemeChange(renderCharts);
}
export const createHeadRow = (names) =>
  el(
    "tr",
    {},
    ...names.map(([text, kind, title, hidden]) =>
      el(
        "th",
        { scope: "col", className: kind, title: title || "" },
        hidden ? visuallyHidden(hidden) : text,
      ),
    ),
  );
export const currentVariants = () => state.details.results.results.cells;
const visibleVariants = () =>
  currentVariants().filter((cell) => !state.hiddenVariants.has(cell.label));
export function overlayInTrain(subjects) {
  if (subjects.length) navigate("Train", { subject: subjects[0], over: subjects.slice(1) });
}

export function renderResults() {
  const details = state.details;
  state.resultsView.empty.hidden = Boolean(details);
  state.resultsView.whole.hidden = !details;
  if (!details) return;
  if (hiddenVariantsOf !== details.id) {
    hiddenVariantsOf = details.id;
    state.hiddenVariants = new Set(
      currentVariants()
        .slice(INITIAL_VARIANTS)
        .map((cell) => cell.label),
    );
    setMessage(state.resultsView.note, "");
    if (state.resultsView.actions) state.resultsView.actions.remove();
    state.resultsView.actions = createActions(details.id, state.resultsView.note);
    state.resultsView.title.parentElement.append(state.resultsView.actions);
  }
  state.resultsView.whole.dataset.experiment = details.id;
  state.resultsView.whole.dataset.kind = details.kind;
  state.resultsView.whole.dataset.state = details.state;
  // tests wait for this attribute
  state.resultsView.whole.dataset.done = details.statuses.done || 0;
  const row = state.experiments.find((each) => each.id === details.id);
  setText(state.resultsView.title, details.question || details.name);
  renderActions(state.resultsView.whole, details);
  const activeLines = details.lines
    .filter((line) => line.status === "training")
    .map(
      (line) =>
        (currentVariants().find((cell) => cell.label === line.cell) || { short: line.cell }).short +
        ", seed " +
        line.seed +
        " at step " +
        line.step.toLocaleString("en") +
        " of " +
        line.steps.toLocaleString("en"),
    );
  const left =
    details.state === "done"
      ? ""
      : activeLines.length
        ? " · " +
          activeLines.slice(0, 2).join("; ") +
          (activeLines.length > 2 ? "; and " + (activeLines.length - 2) + " more" : "")
        : "";
  setText(
    state.resultsView.words,
    formatMessage(describeStatus(details)).slice(0, -1) +
      left +
      (details.state === "running" && details.estimate.seconds
        ? " · " + formatEstimate(details.estimate) + " left"
        : "") +
      (details.message ? ". " + formatMessage(details.message) : ""),
  ).classList.toggle("error", Boolean(details.message));
  state.resultsView.bar.firstChild.style.width = 100 * (row ? row.share : 0) + "%";
  state.resultsView.bar.style.visibility = details.state === "done" ? "hidden" : "";
  const lengths = details.results.lengths;
  setText(state.resultsView.summary, lengths ? lengths.summary : details.results.results.summary);
  setText(state.resultsView.also, lengths ? details.results.results.summary : "").hidden = !lengths;
  renderLegend();
  renderTable();
  renderUntrainedNote();
  renderRuns();
  renderCharts();
}
function renderLegend() {
  syncRows(
    state.resultsView.legend,
    currentVariants(),
    (cell) => cell.label,
    (cell) => {
      const button = el(
        "button",
        { type: "button" },
        el("canvas"),
        el("span", { textContent: cell.short }),
      );
      button.title = cell.label + ": show or hide its line";
      button.addEventListener("click", () => {
        if (state.hiddenVariants.has(cell.label)) state.hiddenVariants.delete(cell.label);
        else state.hiddenVariants.add(cell.label);
        renderLegend();
        renderCharts();
      });
      return button;
    },
    (button, cell) => {
      button.setAttribute("aria-pressed", String(!state.hiddenVariants.has(cell.label)));
      setText(button.lastChild, cell.short);
    },
  );
}
