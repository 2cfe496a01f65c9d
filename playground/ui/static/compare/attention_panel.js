// One model.
import { createSegmentedControl, el } from "../shared/dom.js";
import { ATTENTION_KIND_OPTIONS } from "../shared/strings.js";
import {
  DEFAULT_SEQUENCE,
  loadOwnAttention,
  runNextPanel,
  saveAttentionForm,
} from "./attention.js";
import { renderPanel, selectHead } from "./attention_figures.js";
import { readableToken } from "./inference_form.js";
import { createJobRunner } from "./jobs.js";
import { createModelPicker, loadModelFacts } from "./pretrained_models.js";

export function createAttentionPanel(i, form) {
  const models = Array.isArray(form.models) ? form.models : [],
    panel = {
      i,
      source: i === 1 && form.source === "own" ? "own" : "pretrained",
      layer: 0,
      head: 0,
      at: 0,
      scores: new Map(),
    };
  panel.field = createModelPicker({
    label: i ? "Second model" : "Model",
    value:
      typeof models[i] === "string" && models[i] ? models[i] : ["bert-base-uncased", "gpt2"][i],
    change: () => {
      panel.runner.done = true;
      saveAttentionForm();
    },
  });
  panel.runner = createJobRunner("attention-" + i, {
    onStart: () => {
      panel.runner.done = true;
    },
    onFinish: (response) => {
      loadModelFacts([panel.field.value], true);
      if (response.status === "done") applyPretrainedResult(panel, response.result);
      runNextPanel();
      return response.status === "done"
        ? [response.result.direction, response.result.note].filter(Boolean).join("; ")
        : "";
    },
  });
  panel.sequence = el("input", {
    type: "text",
    className: "own-sequence",
    value: typeof form.own === "string" ? form.own : DEFAULT_SEQUENCE,
    maxLength: 400,
    spellcheck: false,
  });
  panel.sequence.addEventListener("input", () => {
    clearTimeout(panel.timer);
    panel.timer = setTimeout(() => {
      saveAttentionForm();
      loadOwnAttention(panel);
    }, 150);
  });
  panel.kind = createSegmentedControl(
    ATTENTION_KIND_OPTIONS,
    "cross",
    () => loadOwnAttention(panel),
    "Kind of attention",
  );
  panel.own = el(
    "div",
    { className: "own", hidden: true },
    el("label", { className: "model-field" }, "Input sequence ", panel.sequence),
    panel.kind,
    el("span", { className: "takes" }),
  );
  panel.pretrained = el("div", {}, panel.field.box, panel.runner.line);
  panel.grid = el("div", { className: "heads-grid" });
  panel.name = el("h4");
  panel.canvas = el("canvas", { className: "large" });
  panel.caption = el("p", { className: "caption" });
  panel.grid.setAttribute("role", "group");
  panel.grid.setAttribute("aria-label", "Heads; use the arrow keys to move");
  panel.grid.addEventListener("keydown", (event) => {
    const by = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: panel.data && -panel.data.heads,
      ArrowDown: panel.data && panel.data.heads,
    }[event.key];
    if (!by) return;
    event.preventDefault();
    const at = panel.layer * panel.data.heads + panel.head + by;
    if (at < 0 || at >= panel.data.layers * panel.data.heads) return;
    selectHead(panel, Math.floor(at / panel.data.heads), at % panel.data.heads);
    panel.grid.querySelectorAll("button")[at].focus();
  });
  panel.nothing = el("p", {
    className: "hint nothing-yet",
    textContent: "Press Run to download the model and show its attention heads.",
  });
  panel.inputText = el(
    "div",
    { className: "heads-two", hidden: true },
    panel.grid,
    el("div", {}, panel.name, panel.canvas, panel.caption),
  );
  panel.box = el(
    "section",
    { className: "panel-" + i, ariaLabel: i ? "Second model" : "Pretrained model" },
    ...(i
      ? [
          el(
            "div",
            { className: "row" },
            createSegmentedControl(
              [
                ["pretrained", "another model"],
                ["own", "your model", "The model selected above, on a sequence of its task"],
              ],
              panel.source,
              (value) => {
                panel.source = value;
                saveAttentionForm();
                selectSource(panel);
              },
              "Second model",
            ),
          ),
        ]
      : [el("div", { className: "row spacer" })]),
    panel.pretrained,
    panel.own,
    panel.nothing,
    panel.inputText,
  );
  panel.pretrained.hidden = panel.source === "own";
  panel.own.hidden = panel.source !== "own";
  return panel;
}
function selectSource(panel) {
  panel.pretrained.hidden = panel.source === "own";
  panel.own.hidden = panel.source !== "own";
  if (panel.source === "own") loadOwnAttention(panel);
  else if (panel.before) {
    panel.data = panel.before;
    selectHead(panel, 0, 0);
  } else {
    panel.data = null;
    renderPanel(panel);
  }
}
export function applyResult(panel, data) {
  panel.data = data;
  panel.layer = Math.min(panel.layer, data.layers - 1);
  panel.head = Math.min(panel.head, data.heads - 1);
  panel.at = Math.max(0, Math.min(data.rows.length - 1, data.at));
  renderPanel(panel);
}
function applyPretrainedResult(panel, result) {
  const names = tokenNames(result),
    same = panel.before && panel.before.model === result.model && panel.before.text === result.text;
  if (!same) panel.scores = new Map();
  panel.scores.set(result.layer + "." + result.head, result.scores);
  panel.before = {
    ...result,
    rows: names,
    columns: names,
    causal: result.kind === "causal",
    possible: result.mask,
    at: result.word_tokens.length ? result.word_tokens[0][0] : 0,
  };
  if (panel.source === "pretrained") applyResult(panel, panel.before);
}
// Readable token names: a leading space becomes a dot, and bytes are joined to letters.
function tokenNames(result) {
  const letters = [...result.text],
    ofBytes = result.tokens.some((token) => /^[ĠĊ]/.test(token));
  return result.tokens.map((token, i) => {
    const [begin, end] = result.spans[i],
      piece = letters.slice(begin, end).join("");
    if (ofBytes && piece.trim()) return (token.startsWith("Ġ") ? "·" : "") + piece.trim();
    return readableToken(token);
  });
}
