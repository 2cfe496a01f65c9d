import { createSegmentedControl, el, setPressed } from "../shared/dom.js";
import { createClassifyForm } from "./classification.js";
import { createFillMaskForm } from "./fill_mask.js";
import { createGenerationForm } from "./generation.js";
import { createTrainHeadForm } from "./head_training.js";
import { autoRun } from "./inference_form.js";
import { listeners } from "./pretrained_models.js";
import { state } from "./state.js";
import { loadLocal, saveLocal } from "./storage.js";
import { createTokenizerMismatchForm } from "./tokenizer_mismatch.js";
import { VIEWS } from "./views.js";

// Inference with any text and any model of the Hub: fill-mask, text generation, classification,
// training of a classification head, and a mismatched tokenizer (pretrained/inference.py,
// finetuning/classifier.py, probing/tokenizer_mismatch.py).
export const SAMPLE_CSV = `text,label
a good film and a fine story,good
what a good film,good
I loved every minute of it,good
a wonderful cast and a clever ending,good
the best evening in a long while,good
funny and warm and never too long,good
beautiful pictures and a moving score,good
I would gladly see it again,good
a great film for the whole family,good
sharp and honest and full of life,good
it made me laugh and think,good
a small masterpiece,good
a bad film and a weak story,bad
what a bad film,bad
I hated every minute of it,bad
a wooden cast and a foolish ending,bad
the worst evening in a long while,bad
dull and cold and far too long,bad
ugly pictures and a noisy score,bad
I would never see it again,bad
a poor film that nobody needs,bad
flat and false and without life,bad
it made me yawn and leave,bad
a complete waste of time,bad
`;
export const MAX_CSV_BYTES = 1_000_000; // bytes; equal to the limit of finetuning/labelled_texts.py
export const inferenceView = { task: "fill", forms: {} };

export const inferenceSpec = {
  title: "Inference",
  explain:
    "Runs any Hub model on any text. Only safetensors weights are loaded, never remote " +
    "code. The download size is shown first.",
  build(box) {
    const storedTask = loadLocal("free-part"),
      creators = {
        fill: createFillMaskForm,
        continue: createGenerationForm,
        classify: createClassifyForm,
        train: createTrainHeadForm,
        mismatch: createTokenizerMismatchForm,
      };
    if (Object.hasOwn(creators, storedTask)) inferenceView.task = storedTask;
    for (const [name, createForm] of Object.entries(creators))
      inferenceView.forms[name] = createForm(name);
    inferenceView.choice = createSegmentedControl(
      Object.entries(inferenceView.forms).map(([name, form]) => [name, form.title, form.about]),
      inferenceView.task,
      selectTask,
      "Task",
    );
    box.append(
      el("div", { className: "row parts" }, inferenceView.choice),
      ...Object.values(inferenceView.forms).map((form) => form.box),
    );
    listeners.push(autoRunInference);
    selectTask(inferenceView.task);
  },
  fields() {
    inferenceView.forms[inferenceView.task].remember();
    return ["free-part", "free-" + inferenceView.task];
  },
  show() {
    const form = inferenceView.forms[inferenceView.task];
    form.fields.forEach((field) => field.loadFacts());
    if (form.draw) form.draw();
    autoRunInference();
  },
};
export function selectTask(name) {
  inferenceView.task = name;
  saveLocal("free-part", name);
  setPressed(inferenceView.choice, name);
  for (const [task, form] of Object.entries(inferenceView.forms)) form.box.hidden = task !== name;
  if (VIEWS.free.box.offsetParent) VIEWS.free.show();
}
// The first task runs without a click if its model is already on this machine.
function autoRunInference() {
  if (state.view === "free" && inferenceView.task === "fill")
    autoRun(
      inferenceView.forms.fill.runner,
      "free-fill",
      inferenceView.forms.fill.fields,
      inferenceView.forms.fill.run,
    );
}
