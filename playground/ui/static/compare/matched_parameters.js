import { NO_RESPONSE, request } from "../shared/api.js";
import { formatCount, formatMessage } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { EXACT_MATCH_TITLE } from "../shared/strings.js";
import { renderFacts } from "./architecture_facts.js";
import { loadCurves, paintCurves, pollCurves, renderRuns } from "./learning_curves.js";
import { state } from "./state.js";
import { loadLocal, saveLocal } from "./storage.js";

// Architectures with as many parameters as the user's model, trained on the same data. Each one is
// a run of the server.
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
export const matchedArchitectures = {
  available: [],
  selected: new Set(["bert", "gpt2", "bart", "transformer"]),
  runs: [],
  curves: [],
  requestId: 0,
};

export const matchedParametersSpec = {
  title: "Matched parameters",
  explain:
    "Trains encoder-only, decoder-only and encoder-decoder models with the parameter count " +
    "of your model from scratch on the same data, and compares their steps to 99 % exact " +
    "match.",
  build(box) {
    const storedRuns = loadLocal("families");
    if (Array.isArray(storedRuns))
      matchedArchitectures.runs = storedRuns
        .filter((run) => run && typeof run.subject === "string")
        .slice(0, 8);
    const createLengthField = (name, label) =>
      el(
        "label",
        {},
        label,
        el("input", { type: "number", min: 1, max: 512, step: 1, className: name }),
      );
    state.architecturesView = {
      list: el("ul", { className: "suggestions" }),
      selectionText: el("p", { className: "hint sum" }),
      errorText: el("p", { className: "problem" }),
      trainButton: el("button", {
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
    state.architecturesView.errorText.setAttribute("role", "alert");
    for (const [canvas, text] of [
      [state.architecturesView.score, "Exact match of each architecture by training step"],
      [state.architecturesView.loss, "Loss of each architecture by training step"],
    ]) {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", text);
    }
    const form = el(
      "form",
      { className: "numbers" },
      createLengthField("shortest", "Minimum length"),
      createLengthField("max-length", "Maximum length"),
      state.architecturesView.selectionText,
      state.architecturesView.trainButton,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      trainArchitectures();
    });
    form.addEventListener("input", () => {
      clearTimeout(state.architecturesView.timer);
      state.architecturesView.timer = setTimeout(() => loadArchitectures(false), 400);
    });
    state.architecturesView.shortest = form.querySelector(".shortest");
    state.architecturesView.maxLength = form.querySelector(".max-length");
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
      ].map(([text, className]) => el("th", { scope: "col", textContent: text, className })),
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
          state.architecturesView.list,
          form,
          state.architecturesView.errorText,
        ),
        el(
          "section",
          { className: "main-part", ariaLabel: "Training curves" },
          state.architecturesView.caption,
          el(
            "div",
            { className: "charts" },
            chartBox(EXACT_MATCH_TITLE, state.architecturesView.score),
            chartBox("Loss (logarithmic)", state.architecturesView.loss),
          ),
          el(
            "div",
            { className: "scrolling", tabIndex: 0 },
            el(
              "table",
              { className: "sheet learners" },
              el("thead", {}, head),
              state.architecturesView.body,
            ),
          ),
        ),
      ),
      state.architecturesView.facts,
    );
    renderRuns();
    pollCurves();
  },
  show() {
    if (!matchedArchitectures.available.length) loadArchitectures(true);
    if (!state.architecturesView.facts.children.length) renderFacts();
    paintCurves();
  },
  chosen() {
    if (state.view === "families") loadArchitectures(true);
    else matchedArchitectures.available = [];
  },
};

async function loadArchitectures(reset) {
  const lengths =
      reset || !state.architecturesView.shortest.value
        ? {}
        : {
            min_length: +state.architecturesView.shortest.value,
            max_length: +state.architecturesView.maxLength.value,
          },
    requestKey = JSON.stringify([state.subject, lengths]);
  if (matchedArchitectures.pendingRequest === requestKey) return; // the same request is pending
  matchedArchitectures.pendingRequest = requestKey;
  const requestId = ++matchedArchitectures.requestId;
  if (!matchedArchitectures.available.length)
    state.architecturesView.selectionText.textContent = "Computing parameter counts…";
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
  if (requestId !== matchedArchitectures.requestId) return;
  matchedArchitectures.pendingRequest = "";
  state.architecturesView.errorText.textContent = formatMessage(response.error || "");
  state.architecturesView.trainButton.disabled = Boolean(response.error);
  if (response.error) return; // the previous list stays
  Object.assign(matchedArchitectures, {
    available: response.families,
    task: response.task,
    parameters: response.parameters,
  });
  if (reset) {
    state.architecturesView.shortest.value = response.min_length;
    state.architecturesView.maxLength.value = response.max_length;
  }
  renderArchitectures();
}
function renderArchitectures() {
  state.architecturesView.list.replaceChildren(
    ...matchedArchitectures.available.map((option) => {
      const checkbox = el("input", {
          type: "checkbox",
          checked: matchedArchitectures.selected.has(option.architecture),
          disabled: Boolean(option.error),
        }),
        difference = option.parameters
          ? option.parameters / matchedArchitectures.parameters - 1
          : 0;
      checkbox.addEventListener("change", () => {
        if (checkbox.checked) matchedArchitectures.selected.add(option.architecture);
        else matchedArchitectures.selected.delete(option.architecture);
        renderSelection();
      });
      return el(
        "li",
        { title: option.description },
        el("label", {}, checkbox, el("span", { className: "name", textContent: option.title })),
        el("span", {
          className: "takes" + (option.error ? " error" : ""),
          textContent: option.error
            ? formatMessage(option.error)
            : (option.is_current ? "your model's architecture: " : "") +
              option.parameters.toLocaleString("en") +
              " parameters" +
              (Math.abs(difference) < 0.0005
                ? ""
                : ", " +
                  (difference > 0 ? "+" : "−") +
                  Math.abs(100 * difference).toFixed(1) +
                  " %"),
        }),
      );
    }),
  );
  renderSelection();
}
function renderSelection() {
  const nSelected = matchedArchitectures.available.filter(
    (each) => matchedArchitectures.selected.has(each.architecture) && !each.error,
  ).length;
  state.architecturesView.selectionText.textContent =
    matchedArchitectures.task +
    "; your model has " +
    formatCount(matchedArchitectures.parameters, "parameter") +
    ".";
  state.architecturesView.trainButton.textContent = nSelected
    ? "Train " + formatCount(nSelected, "model")
    : "Train";
  state.architecturesView.trainButton.disabled = !nSelected;
}
async function trainArchitectures() {
  const architectures = matchedArchitectures.available
    .filter((each) => matchedArchitectures.selected.has(each.architecture) && !each.error)
    .map((each) => each.architecture);
  state.architecturesView.trainButton.disabled = true;
  let response;
  try {
    response = await request("architectures/train", {
      owner: state.owner,
      subject: state.subject,
      families: architectures,
      min_length: +state.architecturesView.shortest.value,
      max_length: +state.architecturesView.maxLength.value,
    });
  } catch (error) {
    response = { error: NO_RESPONSE };
  }
  state.architecturesView.trainButton.disabled = false;
  state.architecturesView.errorText.textContent = formatMessage(response.error || "");
  if (!response.runs || !response.runs.length) return;
  matchedArchitectures.runs = response.runs;
  matchedArchitectures.curves = [];
  saveLocal("families", matchedArchitectures.runs);
  renderRuns();
  await loadCurves();
}
