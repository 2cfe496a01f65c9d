import { createSegmentedControl, el, setPressed } from "../shared/dom.js";
import { createAnalogyForm } from "./analogies.js";
import { autoRun } from "./inference_form.js";
import { createSizesPanel, loadSizes } from "./model_sizes.js";
import { listeners } from "./pretrained_models.js";
import { state } from "./state.js";
import { loadLocal, saveLocal } from "./storage.js";
import { root } from "./view.js";
import { VIEWS } from "./views.js";
import { createWordInContextForm } from "./word_in_context.js";

// Embeddings: one word in two contexts by layer, analogies, and sizes of well-known models
// (probing/embeddings.py, pretrained/model_facts.py).
export const embeddingsView = { part: "banks", banks: null, analogy: null, sizes: null };

export const embeddingsSpec = {
  title: "Embeddings",
  explain:
    "Contextual and input embeddings of pretrained models, and the sizes of well-known models.",
  build(box) {
    const before = loadLocal("meaning-part");
    embeddingsView.parts = {
      banks: createWordInContextForm("banks"),
      analogy: createAnalogyForm("analogy"),
      sizes: createSizesPanel(),
    };
    if (Object.hasOwn(embeddingsView.parts, before)) embeddingsView.part = before;
    embeddingsView.choice = createSegmentedControl(
      Object.entries(embeddingsView.parts).map(([name, part]) => [name, part.title, part.about]),
      embeddingsView.part,
      selectEmbeddingsTask,
      "Embedding task",
    );
    box.append(
      el("div", { className: "row parts" }, embeddingsView.choice),
      ...Object.values(embeddingsView.parts).map((part) => part.box),
    );
    listeners.push(autoRunEmbeddings);
    selectEmbeddingsTask(embeddingsView.part);
  },
  fields() {
    const { remember } = embeddingsView.parts[embeddingsView.part];
    if (remember) remember();
    return ["meaning-part", ...(remember ? ["free-" + embeddingsView.part] : [])];
  },
  show() {
    const part = embeddingsView.parts[embeddingsView.part];
    (part.fields || []).forEach((field) => field.loadFacts());
    if (part.draw) part.draw();
    autoRunEmbeddings();
  },
  chosen() {
    embeddingsView.parts.sizes.stale = true;
    if (state.view === "meaning" && embeddingsView.part === "sizes") loadSizes();
  },
};
function selectEmbeddingsTask(name) {
  embeddingsView.part = name;
  saveLocal("meaning-part", name);
  setPressed(embeddingsView.choice, name);
  for (const [each, part] of Object.entries(embeddingsView.parts)) part.box.hidden = each !== name;
  if (VIEWS.meaning.box.offsetParent) VIEWS.meaning.show();
}
function autoRunEmbeddings() {
  if (state.view !== "meaning" || !root.offsetParent) return;
  const part = embeddingsView.parts[embeddingsView.part];
  if (embeddingsView.part === "sizes") loadSizes();
  else autoRun(part.runner, "free-" + part.name, part.fields, part.run);
}
export const formatCosine = (x) => x.toFixed(2);
