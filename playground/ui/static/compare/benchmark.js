import { formatBytes, formatCount } from "../shared/format.js";
import { downloadBlob, recordsToCsv } from "../shared/csv.js";
import { el } from "../shared/dom.js";
import {
  exampleRows,
  exportData,
  loadResults,
  onBenchmarkFinish,
  onBenchmarkRows,
  onBenchmarkStart,
  resultRows,
} from "./benchmark_results.js";
import { renderResults } from "./benchmark_table.js";
import { createJobRunner } from "./jobs.js";
import {
  DEFAULT_MODELS,
  formatModelCost,
  listeners,
  loadModelFacts,
  modelFacts,
  renderSuggestions,
} from "./pretrained_models.js";
import { state } from "./state.js";
import { loadLocal, saveLocal } from "./storage.js";

// Benchmark: several models on the same held-out sequences. comparison/benchmark.py sends the rows;
// this file keeps the newest of each.
export const MAX_MODELS = 6,
  RESULTS_KEY = "transformer-playground-compare-table",
  MAX_RESULTS_LENGTH = 2_500_000;
export const METRIC_COLUMNS = [
  [
    "exact_match",
    "exact match",
    "Fraction of examples with a completely correct answer: no missing and no extra tokens",
  ],
  [
    "token_accuracy",
    "token accuracy",
    "Fraction of target tokens that are predicted at the correct position",
  ],
  [
    "rank_accuracy",
    "ranking",
    "Fraction of ranked examples whose target is more probable than all other candidates; " +
      "the small mark is the chance level",
  ],
];
const FAIRNESS_NOTE =
  "Your model was trained on this task; pretrained models were trained on text only and " +
  "receive few-shot examples in the prompt. Your model therefore has an advantage.";
export const benchmarkResults = {
  what: null,
  settings: null,
  rows: new Map(),
  items: new Map(),
  leaks: [],
  estimates: new Map(),
  part: 0,
};

export const benchmarkSpec = {
  title: "Benchmark",
  explain:
    "Evaluates your model, pretrained models from the Hub, and trivial baselines on the " +
    "same held-out sequences with the same metrics.",
  build(box) {
    const form = loadLocal("table") || {};
    state.benchmarkForm = {
      models: Array.isArray(form.models)
        ? form.models.filter((each) => each && typeof each.name === "string").slice(0, MAX_MODELS)
        : DEFAULT_MODELS.map((name) => ({ name, on: true })),
      list: el("ul", { className: "suggestions" }),
      name: el("input", {
        type: "text",
        placeholder: "user/name",
        spellcheck: false,
        autocomplete: "off",
        maxLength: 200,
        title: "A model name on the Hub, or a folder if the app serves only this machine",
      }),
      names: el("datalist", { id: "compare-names" }),
      fields: {},
      sum: el("p", { className: "hint sum" }),
      problem: el("p", { className: "problem" }),
      go: el("button", {
        type: "submit",
        className: "quiet main run-benchmark",
        textContent: "Run",
      }),
      caption: el("p", { className: "fairness", textContent: FAIRNESS_NOTE }),
      body: el("tbody"),
      leaks: el("div", { className: "leaks" }),
      items: el("div", { className: "items" }),
      note: el("p", { className: "hint note" }),
      files: el("span", { className: "files" }),
    };
    state.benchmarkJob = createJobRunner("table", {
      onStart: onBenchmarkStart,
      onRows: onBenchmarkRows,
      onProgress: renderResults,
      onFinish: onBenchmarkFinish,
    });
    state.benchmarkForm.name.setAttribute("list", "compare-names");
    state.benchmarkForm.name.setAttribute("aria-label", "Another model");
    const adding = el(
      "form",
      { className: "adding" },
      state.benchmarkForm.name,
      state.benchmarkForm.names,
      el("button", { type: "submit", className: "quiet", textContent: "Add" }),
    );
    adding.addEventListener("submit", (event) => {
      event.preventDefault();
      addModel(state.benchmarkForm.name.value.trim());
    });
    state.benchmarkForm.problem.setAttribute("role", "alert");
    state.benchmarkForm.name.addEventListener("input", () => {
      state.benchmarkForm.problem.textContent = "";
    });
    const numbers = [
      ["n", "Examples", 20, 1, 500, "Held-out sequences for every model"],
      [
        "shots",
        "Few-shot examples",
        8,
        0,
        32,
        "Examples in the prompt of pretrained models, as many as fit into the context",
      ],
      [
        "rank",
        "Ranked examples",
        5,
        0,
        500,
        "Examples with candidate ranking; a model such as BERT needs about 100 forward " +
          "passes for each, which takes minutes on a CPU",
      ],
    ];
    const form2 = el(
      "form",
      { className: "numbers" },
      ...numbers.map(([name, label, value, min, max, title]) => {
        const input = el("input", {
          type: "number",
          min,
          max,
          step: 1,
          value: Number.isInteger(form[name]) ? form[name] : value,
          required: true,
          className: "of-" + name,
        });
        input.addEventListener("input", saveBenchmarkForm);
        state.benchmarkForm.fields[name] = input;
        return el("label", { title }, label, input);
      }),
      el("p", {
        className: "hint",
        textContent: "Ranking: is the target more probable than other answers of its length?",
      }),
      state.benchmarkForm.sum,
      state.benchmarkForm.go,
    );
    form2.addEventListener("submit", (event) => {
      event.preventDefault();
      runBenchmark();
    });
    const heads = [
        "model",
        ...METRIC_COLUMNS.map(([, text]) => text),
        "examples",
        "parameters",
        "time per example",
        "memory",
      ],
      titles = [
        "",
        ...METRIC_COLUMNS.map(([, , title]) => title),
        "Evaluated held-out sequences",
        "Trained parameters",
        "Seconds per output, without the time for ranking",
        "Memory of the weights; below, the growth of the model process",
      ];
    const head = el(
      "tr",
      {},
      ...heads.map((text, i) =>
        el("th", {
          scope: "col",
          textContent: text,
          title: titles[i],
          className: i === 0 ? "" : i < 4 ? "score" : "number",
        }),
      ),
    );
    for (const [text, make] of [
      [
        "Table (CSV)",
        () =>
          downloadBlob("compare.csv", new Blob([recordsToCsv(resultRows())], { type: "text/csv" })),
      ],
      [
        "Answers (CSV)",
        () =>
          downloadBlob(
            "compare-items.csv",
            new Blob([recordsToCsv(exampleRows())], { type: "text/csv" }),
          ),
      ],
      [
        "All data (JSON)",
        () =>
          downloadBlob(
            "compare.json",
            new Blob([JSON.stringify(exportData(), null, 1)], { type: "application/json" }),
          ),
      ],
    ]) {
      const button = el("button", { type: "button", className: "quiet", textContent: text });
      button.addEventListener("click", make);
      state.benchmarkForm.files.append(button);
    }
    state.benchmarkForm.whole = el(
      "table",
      { className: "sheet" },
      el("thead", {}, head),
      state.benchmarkForm.body,
    );
    box.append(
      el(
        "div",
        { className: "columns" },
        el(
          "section",
          { className: "side", ariaLabel: "Benchmark settings" },
          el("h3", { textContent: "Compared models" }),
          state.benchmarkForm.list,
          adding,
          state.benchmarkForm.problem,
          form2,
        ),
        el(
          "section",
          { className: "main-part", ariaLabel: "Benchmark results" },
          state.benchmarkJob.line,
          state.benchmarkForm.caption,
          el("div", { className: "scrolling", tabIndex: 0 }, state.benchmarkForm.whole),
          state.benchmarkForm.leaks,
          el(
            "div",
            { className: "bar" },
            el("h3", { textContent: "Results by example" }),
            state.benchmarkForm.files,
          ),
          state.benchmarkForm.note,
          state.benchmarkForm.items,
        ),
      ),
    );
    listeners.push(renderModelList);
    renderModelList();
    loadResults();
  },
  fields() {
    saveBenchmarkForm();
    return ["table"];
  },
  show() {
    renderModelList();
    loadModelFacts(state.benchmarkForm.models.map((each) => each.name));
  },
};

function renderModelList() {
  const signature = JSON.stringify(
    state.benchmarkForm.models.map((each) => [each, formatModelCost(each.name)]),
  );
  renderSuggestions(state.benchmarkForm.names);
  state.benchmarkForm.name.placeholder = state.localPathsAllowed
    ? "user/name, or a folder"
    : "user/name";
  if (state.benchmarkForm.list.dataset.signature === signature) return;
  state.benchmarkForm.list.dataset.signature = signature;
  state.benchmarkForm.list.replaceChildren(
    ...state.benchmarkForm.models.map((each) => {
      const [words, wrong] = formatModelCost(each.name),
        tick = el("input", { type: "checkbox", checked: each.on }),
        away = el("button", {
          type: "button",
          className: "away",
          textContent: "×",
          title: "Remove " + each.name,
          ariaLabel: "Remove " + each.name,
        });
      tick.addEventListener("change", () => {
        each.on = tick.checked;
        saveBenchmarkForm();
        renderModelList();
      });
      away.addEventListener("click", () => {
        state.benchmarkForm.models = state.benchmarkForm.models.filter((other) => other !== each);
        saveBenchmarkForm();
        renderModelList();
      });
      return el(
        "li",
        {},
        el("label", {}, tick, el("span", { className: "name", textContent: each.name })),
        away,
        el("span", { className: "takes" + (wrong ? " error" : ""), textContent: words }),
      );
    }),
  );
  renderCost();
}
function addModel(name) {
  const there = state.benchmarkForm.models.some((each) => each.name === name);
  state.benchmarkForm.problem.textContent = !name
    ? "Type a model name first, such as gpt2 or user/name."
    : there
      ? name + " is already in the list."
      : state.benchmarkForm.models.length >= MAX_MODELS
        ? "The limit is " + formatCount(MAX_MODELS, "model") + " besides yours; remove one first."
        : "";
  if (state.benchmarkForm.problem.textContent) return; // the typed name stays
  state.benchmarkForm.name.value = "";
  state.benchmarkForm.models.push({ name, on: true });
  saveBenchmarkForm();
  renderModelList();
  loadModelFacts([name]);
}
function renderCost() {
  const chosen = state.benchmarkForm.models.filter((each) => each.on),
    away = chosen
      .map((each) => modelFacts.get(each.name))
      .filter((row) => row && row.location === "hub" && row.bytes);
  const unknown = chosen.filter((each) => !modelFacts.has(each.name)).length;
  state.benchmarkForm.sum.textContent = away.length
    ? "Downloads " +
      formatBytes(away.reduce((sum, row) => sum + row.bytes, 0)) +
      " first, once: " +
      away.map((row) => row.name).join(", ") +
      "."
    : unknown || !chosen.length || chosen.some((each) => modelFacts.get(each.name).message)
      ? ""
      : "No download needed.";
}
const currentNumbers = () =>
  Object.fromEntries(
    Object.entries(state.benchmarkForm.fields).map(([name, input]) => [
      name,
      Math.round(+input.value),
    ]),
  );
export function saveBenchmarkForm() {
  saveLocal("table", { models: state.benchmarkForm.models, ...currentNumbers() });
}
export function runBenchmark() {
  const models = state.benchmarkForm.models.filter((each) => each.on).map((each) => each.name),
    { n, shots, rank } = currentNumbers();
  loadModelFacts(state.benchmarkForm.models.map((each) => each.name));
  state.benchmarkJob.run(
    "benchmark",
    { models, n, shots, rank: Math.min(n, rank), of: state.subject },
    state.subject,
  );
}
