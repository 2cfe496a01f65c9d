import { NO_RESPONSE, request } from "../shared/api.js";
import { formatMessage } from "../shared/format.js";
import { createSegmentedControl, el, setPressed } from "../shared/dom.js";
import { ENCODER_CAPTION, TOKEN_HINT } from "../shared/strings.js";
import { renderPanels } from "./attention_figures.js";
import { applyResult, createAttentionPanel } from "./attention_panel.js";
import { autoRun, runJob } from "./inference_form.js";
import { runBackgroundJob } from "./jobs.js";
import { listeners } from "./pretrained_models.js";
import { currentModel } from "./selected_model.js";
import { state } from "./state.js";
import { loadLocal, saveLocal } from "./storage.js";

// Attention of two pretrained models on the same prompt, each with its own tokens, or of one of
// them and the user's model. probing/attention.py computes the weights of pretrained
// models; those of the user's model come from the server as in Inspect.
// Above this number of tokens the selected head gets the full width of the panel.
export const WIDE_LAYOUT_TOKENS = 24;
export const DEFAULT_PROMPT = "The cat sat on the mat",
  DEFAULT_SEQUENCE = "3 1 4 1 5";
const DISPLAY_MODES = [
  ["map", "weights", "Softmax of the scores; each row sums to one"],
  ["scores", "scores", "Queries times keys, scaled, before the softmax"],
  ["token", "one token, all heads", TOKEN_HINT],
];
export const DISPLAY_CAPTIONS = {
  map: "Rows: queries. Columns: keys. Each row sums to one.",
  scores:
    "Query-key products divided by the square root of the head size, before the softmax: " +
    "blue is positive, orange negative.",
  token: "Rows: heads of the selected layer. Columns: keys of this token.",
};
// Captions for the user's model. Models with one stack process source and output as one sequence.
export const OWN_CAPTIONS = {
  cross: "Rows: the decoder tokens. Columns: the source.",
  encoder: ENCODER_CAPTION,
  decoder: "Rows: the decoder tokens. Columns: the tokens up to each of them.",
};
// `line`: panels that wait for their request
export const attentionView = { shape: "map", panels: [], line: [], isRunning: false };

export const attentionSpec = {
  title: "Attention",
  explain:
    "Attention of every head in two models on the same prompt. Select a head to enlarge " +
    "it; hover over a cell to read its weight or score.",
  build(box) {
    const form = loadLocal("attention") || {},
      text = (name, defaultValue) => (typeof form[name] === "string" ? form[name] : defaultValue);
    attentionView.text = el("input", {
      type: "text",
      className: "prompt",
      value: text("text", DEFAULT_PROMPT),
      maxLength: 1000,
      required: true,
      spellcheck: false,
    });
    attentionView.word = el("input", {
      type: "text",
      className: "word",
      value: text("word", "sat"),
      maxLength: 40,
      spellcheck: false,
    });
    attentionView.go = el("button", {
      type: "submit",
      className: "quiet main run-attention",
      textContent: "Run",
    });
    attentionView.choice = createSegmentedControl(
      DISPLAY_MODES,
      attentionView.shape,
      (value) => {
        attentionView.shape = value;
        renderPanels();
      },
      "Display",
    );
    const top = el(
      "form",
      { className: "row request" },
      el("label", {}, "Prompt ", attentionView.text),
      el(
        "label",
        { title: "The token whose attention is displayed for every head" },
        "Word ",
        attentionView.word,
      ),
      attentionView.go,
      el("span", { className: "shapes" }, attentionView.choice),
    );
    top.addEventListener("submit", (event) => {
      event.preventDefault();
      compareAttention();
    });
    attentionView.panels = [0, 1].map((i) => createAttentionPanel(i, form));
    box.append(
      top,
      el("div", { className: "side-by-side" }, ...attentionView.panels.map((panel) => panel.box)),
    );
    listeners.push(autoRunAttention);
  },
  fields() {
    saveAttentionForm();
    return ["attention"];
  },
  show() {
    attentionView.panels.forEach((panel) => panel.field.loadFacts());
    renderPanels();
    autoRunAttention();
  },
  chosen() {
    const panel = attentionView.panels[1];
    if (panel && panel.source === "own" && state.view === "attention") loadOwnAttention(panel);
  },
};
export function saveAttentionForm() {
  saveLocal("attention", {
    text: attentionView.text.value,
    word: attentionView.word.value,
    models: attentionView.panels.map((panel) => panel.field.value),
    source: attentionView.panels[1].source,
    own: attentionView.panels[1].sequence.value,
  });
}

// Both models, one after the other, because each may need a download.
function compareAttention() {
  saveAttentionForm();
  attentionView.line = attentionView.panels.filter((panel) => panel.source === "pretrained");
  if (attentionView.panels[1].source === "own") loadOwnAttention(attentionView.panels[1]);
  runNextPanel();
}
export function runNextPanel() {
  const panel = attentionView.line.shift();
  attentionView.isRunning = Boolean(panel);
  if (panel)
    runJob(panel.runner, "attention", {
      model: panel.field.value,
      text: attentionView.text.value,
      word: attentionView.word.value,
    }).then(() => {
      if (!panel.runner.busy) runNextPanel();
    });
}
function autoRunAttention() {
  if (state.view !== "attention") return;
  if (attentionView.panels[1].source === "own" && !attentionView.panels[1].data)
    loadOwnAttention(attentionView.panels[1]);
  for (const panel of attentionView.panels)
    if (panel.source === "pretrained")
      autoRun(panel.runner, "attention-" + panel.i, [panel.field], () => {
        attentionView.line.push(panel);
        if (!attentionView.isRunning) runNextPanel();
      });
}
export async function loadOwnAttention(panel) {
  if (!state.subject || !state.owner) return;
  const requestId = (panel.requestId = (panel.requestId || 0) + 1),
    words = panel.own.querySelector(".takes"),
    kind = panel.kind.querySelector("[aria-pressed=true]");
  let response;
  try {
    response = await request("inspect/view", {
      owner: state.owner,
      subject: state.subject,
      text: panel.sequence.value,
      view: "attention",
      options: { kind: kind ? kind.dataset.value : "cross", mode: "free-running" },
    });
  } catch (error) {
    response = { error: NO_RESPONSE };
  }
  if (requestId !== panel.requestId || panel.source !== "own") return;
  words.classList.toggle("error", Boolean(response.error));
  words.textContent = formatMessage(response.error || response.note || "");
  if (response.error) return; // the previous result stays visible
  for (const button of panel.kind.children)
    button.hidden = !response.kinds.includes(button.dataset.value);
  setPressed(panel.kind, response.kind);
  applyResult(panel, {
    ...response,
    own: true,
    causal: response.kind === "decoder",
    model: (currentModel() || { name: "your model" }).name,
    at: panel.data && panel.data.own ? panel.at : 0,
  });
}
// The scores of a head are requested separately, on demand.
export async function loadScores(panel) {
  const { data, layer, head } = panel,
    key = layer + 1 + "." + (head + 1);
  if (panel.scores.has(key)) return panel.scores.get(key);
  const response = await runBackgroundJob("attention", {
    model: data.model,
    text: data.text,
    word: data.word,
    layer: layer + 1,
    head: head + 1,
  });
  if (panel.before && panel.before.model === response.model && panel.before.text === response.text)
    panel.scores.set(key, response.scores);
  return response.scores;
}
