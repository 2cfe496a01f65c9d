// The first lesson: the diagram of a trained model, with a caption for each of its parts.
import { html, signal, useEffect } from "../vendor/preact.js";
import { request } from "../shared/api.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { StepSlider } from "../shared/components/step_slider.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { Resource } from "../shared/resource.js";
import { store } from "../shared/store.js";
import { PictureDiagram } from "./diagram.js";
import { describePart, PARTS, partOfBlock } from "./picture_text.js";

const MODEL = "checkpoint:reverse";
const DELAY_MS = 150; // after the last input
const FIRST_INPUT = "3 1 4 1 5";

/** The model: the response of `runs/poll`; null before it. */
const model = signal(/** @type {any} */ (null));
/** The displayed forward pass, with its step. */
const pass = signal(/** @type {any} */ (null));
const part = signal(PARTS[0].value);
const selection = signal({ kind: "encoder", layer: 0, head: 0 });
const text = signal(FIRST_INPUT);
const step = signal(0);
const answer = new Resource(async (route, payload) => {
    const fields = { owner: store.owner.value, subject: MODEL, ...payload },
      { message, ...response } = await request(route, fields);
    return { error: message, ...response };
  }),
  { error } = answer;

/** Send a request for the model; an error is shown, and the result is null. */
async function load(route, payload = {}, delayMs = 0) {
  const response = await answer.loadAfter(delayMs, route, payload);
  return response?.error ? null : response;
}

async function loadTypedPass(delayMs = 0) {
  const { step: last } = model.value,
    payload = { text: text.value, with_forward_pass: true },
    response = await load("runs/predict", payload, delayMs);
  if (!response) return;
  if (!response.forward_pass) error.value = "This sequence is too long for the diagram.";
  else pass.value = { step: last, ...response.forward_pass };
  step.value = last;
}

async function loadStep() {
  const { axes, source } = model.value.probe_info,
    response = await load("runs/snapshot", { step: step.value }, DELAY_MS);
  if (response) pass.value = { axes, source, ...response.snapshot };
}

async function loadModel() {
  const response = await load("runs/poll");
  if (!response) return;
  model.value = response;
  step.value = response.step;
  pass.value = { ...response.probe_info, ...response.snapshot };
  await loadTypedPass();
}

function openPart(name) {
  const next = PARTS.find((each) => each.value === name) ?? PARTS[0];
  part.value = next.value;
  if (selection.value.kind !== next.select && pass.value) {
    const layer = next.select === "cross" ? pass.value.attention.cross.length - 1 : 0;
    selection.value = { kind: next.select, layer, head: 0 };
  }
  if (next.value !== "output" && model.value && step.value !== model.value.step) loadTypedPass();
}

/** Select a head, and the part that explains it unless the current one does. */
function selectHead(kind, layer, head) {
  selection.value = { kind, layer, head };
  if (part.value === "tokens" || part.value === "residual" || partOfBlock(kind) !== part.value)
    if (part.value !== "output") part.value = partOfBlock(kind);
}

function typeInput(value) {
  text.value = value;
  if (value.trim() && model.value) loadTypedPass(DELAY_MS);
}

function Step() {
  const { step: last, weight_steps: steps } = model.value;
  const onStep = (next) => {
    step.value = next ?? last;
    loadStep();
  };
  return html`<label class="picture-step">
    Step
    <${StepSlider} steps=${steps} step=${step.value} onStep=${onStep} max=${last} />
    <output>${pass.value.step}&nbsp;of&nbsp;${last}</output>
  </label>`;
}

function Caption() {
  const current = PARTS.find((each) => each.value === part.value) ?? PARTS[0],
    { points, probe_info: info } = model.value,
    loss = points.loss[points.steps.indexOf(pass.value.step)];
  const view = { info, loss, pass: pass.value, selection: selection.value };
  const next = PARTS[PARTS.indexOf(current) + 1],
    options = selection.value;
  const openInInspect = () =>
    store.open("inspect", {
      model: MODEL,
      input: text.value,
      section: "attention",
      options: JSON.stringify(options),
    });
  return html`<div class="picture-caption">
    <h4>${current.title}</h4>
    <p>${current.text}</p>
    <p class="pg-note picture-measured" aria-live="polite">${describePart(current.value, view)}</p>
    <p class="instruction">${current.task}</p>
    ${current.value === "output" && html`<${Step} />`}
    <p class="pg-buttons">
      ${
        next &&
        html`<button
          type="button"
          class="pg-button primary picture-next"
          onClick=${() => openPart(next.value)}
        >
          Continue: ${next.label}
        </button>`
      }
      <button type="button" class="pg-button" onClick=${openInInspect}>Open in Inspect</button>
    </p>
  </div>`;
}

const Steps = () =>
  html`<${SegmentedControl}
    label="Parts of the model"
    options=${PARTS.map(({ label, title, value }, i) => ({
      value,
      title,
      label: `${i + 1} ${label}`,
    }))}
    value=${part.value}
    onChange=${openPart}
  />`;

export function Picture() {
  useEffect(() => {
    if (!model.value) loadModel();
  }, []);
  return html`<p>
      This diagram is a trained model that reverses digits, and every number in it is computed by
      this model. The encoder reads the source, which is the input; the decoder generates the
      output.
    </p>
    <div class="pg-row picture-controls">
      <${Steps} />
      <label>
        Sequence
        <input
          type="text"
          class="picture-text"
          maxlength="60"
          value=${text.value}
          onInput=${(event) => typeInput(event.currentTarget.value)}
        />
      </label>
    </div>
    <${StatusMessage} kind="error" text=${error.value} onRetry=${model.value ? null : loadModel} />
    ${
      pass.value &&
      html`<div class="picture">
        <${PictureDiagram}
          info=${model.value.probe_info}
          pass=${pass.value}
          selection=${selection.value}
          part=${part.value}
          onSelect=${selectHead}
          onBlock=${(kind) => openPart(partOfBlock(kind))}
        />
        <${Caption} />
      </div>`
    }`;
}
