// The sections of the view Pretrained models. A section is one entry of SECTIONS.
import { html } from "../vendor/preact.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { Attention } from "./attention.js";
import { FillMask, Generation, Translation } from "./generation.js";
import { Finetuning } from "./finetune.js";
import { section } from "./state.js";

/**
 * `name` is the name in links and in the storage, `form` the key of the values of its form, and
 * `about` the sentence above the section.
 * @type {{ name: string, title: string, about: string, form: string, Component: () => any }[]}
 */
export const SECTIONS = [
  {
    name: "continue",
    title: "Text generation",
    about: "A causal language model continues a text. Each token has its alternatives.",
    form: "free-continue",
    Component: Generation,
  },
  {
    name: "fill",
    title: "Fill-mask",
    about: "A masked language model predicts each masked token.",
    form: "free-fill",
    Component: FillMask,
  },
  {
    name: "attention",
    title: "Attention",
    about: "Attention of every head in two models on the same prompt.",
    form: "attention",
    Component: Attention,
  },
  {
    name: "translate",
    title: "Translation",
    about:
      "An encoder-decoder, as in the Train tab, but pretrained: its output, and the attention of " +
      "every head.",
    form: "free-translate",
    Component: Translation,
  },
  {
    name: "finetune",
    title: "Fine-tuning",
    about: "Fine-tunes a pretrained model on the task of your model for a few steps.",
    form: "finetune",
    Component: Finetuning,
  },
];

export const currentSection = () =>
  SECTIONS.find((each) => each.name === section.value) ?? SECTIONS[0];

export function Pretrained() {
  const { name, title, about, Component } = currentSection();
  return html`<div class="parts">
      <${SegmentedControl}
        label="Section"
        options=${SECTIONS.map((each) => ({ value: each.name, label: each.title }))}
        value=${name}
        onChange=${(value) => (section.value = value)}
      />
    </div>
    <h3 class="pg-visually-hidden">${title}</h3>
    <p class="pg-hint about">${about}</p>
    <${Component} key=${name} />`;
}
