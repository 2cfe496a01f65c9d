import { NO_RESPONSE, request } from "../shared/api.js";
import { formatCount, formatMessage } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { EXACT_MATCH_TITLE } from "../shared/strings.js";
import { renderFacts } from "./architecture_facts.js";
import { loadCurves, paintCurves, renderLearners, watchFamilies } from "./learning_curves.js";
import { state } from "./state.js";
import { loadLocal, saveLocal } from "./storage.js";

// Matched parameters: other architectures with the parameter count of the user's model, trained on
// the same data by the same Trainer. They are ordinary runs.
export const SERIES_COLORS = [
  ["#d98200", "#ffb000"],
  ["#00795a", "#2fd6a5"],
  ["#b8478c", "#f08fc4"],
  ["#5b3fc4", "#b7a4ff"],
  ["#c0392b", "#ff7b61"],
  ["#7a5c00", "#d9c34a"],
];
export const TARGET_SCORE = 0.99,
  ACTIVE_STATUSES = ["waiting", "starting", "training", "stopping"];
export const matchedFamilies = {
  offered: [],
  chosen: new Set(["bert", "gpt2", "bart", "transformer"]),
  runs: [],
  curves: [],
  requestId: 0,
  lengths: null,
};

export const matchedParametersSpec = {
  title: "Matched parameters",
  explain:
    "Trains encoder-only, decoder-only and encoder-decoder models with the parameter count " +
    "of your model from scratch on the same data, and compares their steps to 99 % exact " +
    "match.",
  build(box) {
    const before = loadLocal("families");
    if (Array.isArray(before))
      matchedFamilies.runs = before
        .filter((each) => each && typeof each.subject === "string")
        .slice(0, 8);
    const length = (name, label) =>
      el(
        "label",
        {},
        label,
        el("input", { type: "number", min: 1, max: 512, step: 1, className: name }),
      );
    state.familiesView = {
      list: el("ul", { className: "suggestions" }),
      words: el("p", { className: "hint sum" }),
      problem: el("p", { className: "problem" }),
      go: el("button", {
        type: "submit",
        className: "quiet main train-them",
        textContent: "Train",
      }),
      caption: el("p", {
        className: "fairness",
        textContent:
          "All architectures use the same training and held-out sequences, random initial " +
          "weights, and their own default learning rate. A run stops at 99 % exact match. " +
          "Times depend on this machine and its load.",
      }),
      score: el("canvas", { className: "score-chart" }),
      loss: el("canvas", { className: "loss-chart" }),
      body: el("tbody"),
      facts: el("div", { className: "facts" }),
    };
    state.familiesView.problem.setAttribute("role", "alert");
    for (const [canvas, text] of [
      [state.familiesView.score, "Exact match of each architecture by training step"],
      [state.familiesView.loss, "Loss of each architecture by training step"],
    ]) {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", text);
    }
    const form = el(
      "form",
      { className: "numbers" },
      length("shortest", "Shortest"),
      length("max-length", "Longest"),
      state.familiesView.words,
      state.familiesView.go,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      trainFamilies();
    });
    form.addEventListener("input", () => {
      clearTimeout(state.familiesView.timer);
      state.familiesView.timer = setTimeout(() => loadMatchedFamilies(false), 400);
    });
    state.familiesView.shortest = form.querySelector(".shortest");
    state.familiesView.maxLength = form.querySelector(".max-length");
    const head = el(
      "tr",
      {},
      ...[
        ["architecture", ""],
        ["status", ""],
        ["parameters", "number"],
        ["steps to 99 %", "number"],
        ["time to 99 %", "number"],
        ["exact match", "number"],
        ["actions", ""],
      ].map(([text, kind]) => el("th", { scope: "col", textContent: text, className: kind })),
    );
    const chartBox = (title, canvas) =>
      el("figure", {}, el("figcaption", { textContent: title }), canvas);
    box.append(
      el(
        "div",
        { className: "columns" },
        el(
          "section",
          { className: "side", ariaLabel: "Architectures" },
          el("h3", { textContent: "Architectures" }),
          state.familiesView.list,
          form,
          state.familiesView.problem,
        ),
        el(
          "section",
          { className: "main-part", ariaLabel: "Training curves" },
          state.familiesView.caption,
          el(
            "div",
            { className: "charts" },
            chartBox(EXACT_MATCH_TITLE, state.familiesView.score),
            chartBox("Loss (logarithmic)", state.familiesView.loss),
          ),
          el(
            "div",
            { className: "scrolling", tabIndex: 0 },
            el(
              "table",
              { className: "sheet learners" },
              el("thead", {}, head),
              state.familiesView.body,
            ),
          ),
        ),
      ),
      state.familiesView.facts,
    );
    renderLearners();
    watchFamilies();
  },
  show() {
    if (!matchedFamilies.offered.length) loadMatchedFamilies(true);
    if (!state.familiesView.facts.children.length) renderFacts();
    paintCurves();
  },
  chosen() {
    matchedFamilies.lengths = null;
    if (state.view === "families") loadMatchedFamilies(true);
    else matchedFamilies.offered = [];
  },
};

// ---------------------------------------------------------------- available architectures
async function loadMatchedFamilies(reset) {
  const lengths =
      reset || !state.familiesView.shortest.value
        ? {}
        : {
            min_length: +state.familiesView.shortest.value,
            max_length: +state.familiesView.maxLength.value,
          },
    requestKey = JSON.stringify([state.subject, lengths]);
  if (matchedFamilies.question === requestKey) return; // already requested
  matchedFamilies.question = requestKey;
  const requestId = ++matchedFamilies.requestId;
  if (!matchedFamilies.offered.length)
    state.familiesView.words.textContent = "Matching parameter counts";
  let response;
  try {
    response = await request(
      "architectures/matched",
      { owner: state.owner, subject: state.subject, ...lengths },
      60000,
    );
  } catch (error) {
    response = { error: NO_RESPONSE };
  }
  if (requestId !== matchedFamilies.requestId) return;
  matchedFamilies.question = "";
  state.familiesView.problem.textContent = formatMessage(response.error || "");
  state.familiesView.go.disabled = Boolean(response.error);
  if (response.error) return; // the previous list stays
  Object.assign(matchedFamilies, {
    offered: response.families,
    task: response.task,
    parameters: response.parameters,
  });
  if (reset) {
    state.familiesView.shortest.value = response.min_length;
    state.familiesView.maxLength.value = response.max_length;
  }
  renderFamilies();
}
function renderFamilies() {
  state.familiesView.list.replaceChildren(
    ...matchedFamilies.offered.map((each) => {
      const tick = el("input", {
          type: "checkbox",
          checked: matchedFamilies.chosen.has(each.architecture),
          disabled: Boolean(each.error),
        }),
        off = each.parameters ? each.parameters / matchedFamilies.parameters - 1 : 0;
      tick.addEventListener("change", () => {
        if (tick.checked) matchedFamilies.chosen.add(each.architecture);
        else matchedFamilies.chosen.delete(each.architecture);
        renderFamilyNote();
      });
      return el(
        "li",
        { title: each.description },
        el("label", {}, tick, el("span", { className: "name", textContent: each.title })),
        el("span", {
          className: "takes" + (each.error ? " error" : ""),
          textContent: each.error
            ? formatMessage(each.error)
            : (each.is_current ? "like yours: " : "") +
              each.parameters.toLocaleString("en") +
              " parameters" +
              (Math.abs(off) < 0.0005
                ? ""
                : ", " + (off > 0 ? "+" : "−") + Math.abs(100 * off).toFixed(1) + " %"),
        }),
      );
    }),
  );
  renderFamilyNote();
}
function renderFamilyNote() {
  const n = matchedFamilies.offered.filter(
    (each) => matchedFamilies.chosen.has(each.architecture) && !each.error,
  ).length;
  state.familiesView.words.textContent =
    matchedFamilies.task +
    "; your model has " +
    formatCount(matchedFamilies.parameters, "parameter") +
    ".";
  state.familiesView.go.textContent = n ? "Train " + formatCount(n, "model") : "Train";
  state.familiesView.go.disabled = !n;
}
async function trainFamilies() {
  const families = matchedFamilies.offered
    .filter((each) => matchedFamilies.chosen.has(each.architecture) && !each.error)
    .map((each) => each.architecture);
  state.familiesView.go.disabled = true;
  let response;
  try {
    response = await request("architectures/train", {
      owner: state.owner,
      subject: state.subject,
      families,
      min_length: +state.familiesView.shortest.value,
      max_length: +state.familiesView.maxLength.value,
    });
  } catch (error) {
    response = { error: NO_RESPONSE };
  }
  state.familiesView.go.disabled = false;
  state.familiesView.problem.textContent = formatMessage(response.error || "");
  if (!response.runs || !response.runs.length) return;
  matchedFamilies.runs = response.runs;
  matchedFamilies.curves = [];
  saveLocal("families", matchedFamilies.runs);
  renderLearners();
  await loadCurves();
}
