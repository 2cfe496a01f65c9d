// Attention of two pretrained models on the same prompt, each with its own tokens, or of one of
// them and the selected model (pretrained/attention/prompt.py, inspect/view).
import { computed, effect, html, signal, useEffect } from "../vendor/preact.js";
import { request } from "../shared/api.js";
import { Form } from "../shared/components/form.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { formatMessage } from "../shared/format.js";
import { Resource } from "../shared/resource.js";
import { INPUT_SEQUENCE } from "../shared/strings.js";
import { store } from "../shared/store.js";
import { AttentionPanel, DISPLAY_OPTIONS, display, isFirstHidden } from "./attention_panel.js";
import { CompareJob } from "./jobs.js";
import { isLocal, loadModelFacts, modelErrors, modelField, useModelFacts } from "./models.js";
import { readableToken } from "./pipeline.js";
import { createForm, selectedModel, showResult, subject } from "./state.js";
/** @import { FieldSpec } from "../shared/types.js" */

const OWN_DELAY_MS = 150; // after the last key
const SOURCES = [
  { value: "pretrained", label: "another pretrained model" },
  { value: "own", label: "the selected model" },
];
const form = createForm("attention", {
  model0: "bert-base-uncased",
  model1: "gpt2",
  text: "The cat sat on the mat",
  source: "pretrained",
});

/** Return token names: a leading space becomes a dot, and bytes are joined to letters. */
export function tokenNames({ text, tokens, spans }) {
  const letters = [...text],
    isByteLevel = tokens.some((token) => /^[ĠĊ]/.test(token));
  return tokens.map((token, i) => {
    const piece = letters
      .slice(...spans[i])
      .join("")
      .trim();
    return isByteLevel && piece ? (token.startsWith("Ġ") ? "·" : "") + piece : readableToken(token);
  });
}

export function fromPretrained(result) {
  const names = tokenNames(result);
  return {
    ...result,
    rows: names,
    columns: names,
    possible: result.kind === "causal" ? result.mask : null,
  };
}

const results = [signal(/** @type {any} */ (null)), signal(/** @type {any} */ (null))];
const ownKind = signal("cross");
const isOwn = computed(() => form.value.source === "own");
const jobs = results.map(
  (result, i) =>
    new CompareJob("attention-" + i, {
      onEnd: (value) => {
        if (value) result.value = fromPretrained(value);
        loadModelFacts([modelName(i)], true); // it is on this machine now
      },
    }),
);
const modelName = (i) => String(form.value[i ? "model1" : "model0"]).trim();

const runPanel = (i) => jobs[i].start("attention", { model: modelName(i), text: form.value.text });

/** Run both models, one after the other, because each may need a download. */
async function run() {
  showResult();
  await runPanel(0);
  if (!isOwn.value) await runPanel(1);
}

const own = new Resource(async () => {
  const response = await request("inspect/view", {
    owner: store.owner.value,
    subject: subject.value,
    text: store.sequence.value,
    ...(store.step.value === null ? {} : { step: store.step.value }),
    view: "attention",
    options: { kind: ownKind.value, mode: "free-running" },
  });
  return {
    ...response,
    isOwn: true,
    model: selectedModel.value?.name ?? "the selected model",
    possible: response.kind === "decoder" ? response.possible : null,
  };
});

const formatNote = () => formatMessage(own.data.value?.note ?? "");

async function loadOwn() {
  const response = await own.loadAfter(OWN_DELAY_MS);
  if (response && !response.error) ownKind.value = response.kind;
}

const textField = (name, label, rest) => ({ name, label, isRequired: true, ...rest });

function buildFields(values) {
  const second = isOwn.value
    ? textField("own", INPUT_SEQUENCE, { maxLength: 400 })
    : modelField("model1", "Second model", values.model1);
  return /** @type {FieldSpec[]} */ ([
    textField("text", "Prompt", { maxLength: 1000 }),
    modelField("model0", "First model", values.model0),
    { name: "source", label: "Compare with", type: "select", options: SOURCES },
    second,
  ]);
}

/** Load what the second panel shows, and run models that are on this machine once. */
function useData(values) {
  const owner = store.owner.value,
    ownKey =
      isOwn.value && owner
        ? JSON.stringify([subject.value, store.step.value, store.sequence.value, ownKind.value])
        : "";
  useModelFacts([values.model0, isOwn.value ? "" : values.model1]);
  useEffect(() => {
    if (ownKey) loadOwn();
  }, [ownKey]);
  const isReady = [0, 1].map(
    (i) =>
      isLocal(modelName(i)) &&
      !(i && isOwn.value) &&
      jobs[i].state.value.status === "idle" &&
      !jobs[i].isStored,
  );
  useEffect(() => {
    isReady.forEach((ready, i) => ready && runPanel(i));
  }, [isReady.join()]);
}

export function Attention() {
  const values = form.value;
  useData(values);
  return html`<div class="pg-columns part-attention">
    <section class="side" aria-label="Input">
      <${Form}
        fields=${buildFields(values)}
        values=${{ ...values, own: store.sequence.value }}
        errors=${{ ...modelErrors(values), own: own.error.value || formatNote() }}
        onInput=${(name, value) => (name === "own" ? store.setInput(value) : form.set(name, value))}
        onSubmit=${run}
        submitLabel="Show attention"
        submitClass="run"
      />
    </section>
    <section class="main-part" aria-label="Result">
      <div class="job">
        ${jobs.map((job) => html`<${JobProgress} key=${job.key} job=${job} />`)}
      </div>
      <div class="pg-row">
        <${SegmentedControl} label="Display" options=${DISPLAY_OPTIONS} of=${display} />
        <label title="Pretrained models; the weights of a row sum to one again">
          <input
            type="checkbox"
            checked=${isFirstHidden.value}
            onChange=${() => (isFirstHidden.value = !isFirstHidden.value)}
          />
          without the first token
        </label>
      </div>
      <div class="pg-halves side-by-side">
        <${AttentionPanel} index=${0} data=${results[0].value} />
        <${AttentionPanel}
          index=${1}
          data=${isOwn.value ? own.data.value : results[1].value}
          kind=${isOwn.value ? ownKind : null}
        />
      </div>
    </section>
  </div>`;
}

// Another model has other kinds of attention.
effect(() => {
  if (subject.value) ownKind.value = "cross";
});
