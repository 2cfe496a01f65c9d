// Pretrained models.
import { formatBytes, formatMessage } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { runBackgroundJob } from "./jobs.js";
import { state } from "./state.js";
import { $ } from "./view.js";

export const DEFAULT_MODELS = ["gpt2", "bert-base-uncased"];
export const modelFacts = new Map(),
  pendingModelFacts = new Set(),
  listeners = []; // model name -> row of the job model-info
let cachedModels = [];
// Request size and location of models. Cached models are requested again only with `anew`.
export async function loadModelFacts(names, force = false) {
  const missing = [...new Set(names.map((name) => name.trim()).filter(Boolean))].filter(
    (name) => !pendingModelFacts.has(name) && (force || !modelFacts.has(name)),
  );
  if (!missing.length || !state.owner) return;
  for (const name of missing) {
    pendingModelFacts.add(name);
    if (force) modelFacts.delete(name);
  }
  notifyListeners();
  const onRow = (row) => {
    modelFacts.set(row.name, row);
    pendingModelFacts.delete(row.name);
    notifyListeners();
  };
  try {
    const response = await runBackgroundJob("model-info", { models: missing }, onRow);
    state.localPathsAllowed = response.folders;
    response.models.forEach((row, i) => modelFacts.set(missing[i], row));
  } catch (error) {
    /* sizes stay unknown; running a model reports the error */
  }
  for (const name of missing) pendingModelFacts.delete(name);
  notifyListeners();
}
export async function listLocalModels() {
  try {
    const response = await runBackgroundJob("cached-models", {});
    cachedModels = response.models.map((row) => row.name);
    state.localPathsAllowed = response.folders;
  } catch (error) {
    /* the field has fewer suggestions */
  }
  notifyListeners();
}
function notifyListeners() {
  const unreachable = [...modelFacts.values()].find((row) => row.hub_unreachable);
  const text = unreachable ? formatMessage(unreachable.message) : "",
    net = $(".net");
  if (net.dataset.text !== text) {
    net.dataset.text = text;
    net.textContent = text;
    if (text) {
      const button = el("button", { type: "button", className: "quiet", textContent: "Retry" });
      button.addEventListener("click", () => loadModelFacts([...modelFacts.keys()], true));
      net.append(" ", button);
    }
  }
  listeners.forEach((listener) => listener());
}
// The cost of using a model: [text, whether it is an error].
export function formatModelCost(name) {
  const row = modelFacts.get(name.trim());
  if (!name.trim()) return ["", false];
  if (!row) return [pendingModelFacts.has(name.trim()) ? "checking" : "", false];
  if (row.message)
    return [
      row.hub_unreachable
        ? "not on this machine, and the Hub is not reachable"
        : formatMessage(row.message),
      true,
    ];
  const size = [
    row.parameters ? row.parameters.toLocaleString("en") + " parameters" : "",
    row.bytes ? formatBytes(row.bytes) : "",
  ]
    .filter(Boolean)
    .join(", ");
  return [
    row.location === "hub"
      ? formatBytes(row.bytes) +
        " to download, once" +
        (row.parameters ? "; " + row.parameters.toLocaleString("en") + " parameters" : "")
      : (row.location === "directory"
          ? name.startsWith("tuned:")
            ? "fine-tuned here"
            : "a local folder"
          : "on this machine") +
        ": " +
        size,
    false,
  ];
}
// A field for one model name. `change(name)` is called after each change; `field.value` is the
// name.
export function createModelPicker({ label = "Model", value = "gpt2", change = () => {} } = {}) {
  const id = "models-" + Math.random().toString(36).slice(2),
    input = el("input", {
      type: "text",
      className: "model",
      value,
      spellcheck: false,
      autocomplete: "off",
      maxLength: 200,
    });
  const list = el("datalist", { id }),
    takes = el("span", { className: "takes" }),
    box = el("label", { className: "model-field" }, label + " ", input, list, takes);
  input.setAttribute("list", id);
  const field = {
    box,
    input,
    get value() {
      return input.value.trim();
    },
    set value(name) {
      input.value = name;
      renderModelCost();
    },
  };
  let timer;
  function renderModelCost() {
    const [words, wrong] = formatModelCost(field.value);
    takes.textContent = words;
    takes.classList.toggle("error", wrong);
    renderSuggestions(list);
  }
  input.addEventListener("input", () => {
    clearTimeout(timer);
    renderModelCost();
    timer = setTimeout(() => {
      loadModelFacts([field.value]);
      change(field.value);
    }, 600);
  });
  input.addEventListener("change", () => {
    clearTimeout(timer);
    loadModelFacts([field.value]);
    change(field.value);
  });
  listeners.push(renderModelCost);
  field.loadFacts = () => loadModelFacts([field.value]);
  return field;
}
export function renderSuggestions(list) {
  const names = [...new Set([...DEFAULT_MODELS, ...cachedModels])];
  if (list.dataset.names === names.join()) return;
  list.dataset.names = names.join();
  list.replaceChildren(...names.map((name) => el("option", { value: name })));
}
