// Start: an article whose sections explain the parts of a trained model, beside its diagram. The
// diagram stays in sight; first, the recorded training of the model plays.
import { Button } from "../shared/components/buttons.js";
import { html, signal, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { request, sleep } from "../shared/api.js";
import { StepSlider } from "../shared/components/step_slider.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { Diagram } from "../shared/diagram/diagram.js";
import { buildStacks, describeHead } from "../shared/diagram/structure.js";
import { Resource } from "../shared/resource.js";
import { store } from "../shared/store.js";
import { describePart, PARTS, partOfBlock } from "./start_text.js";
import { catalog, openLesson } from "./state.js";

const MODEL = "checkpoint:reverse";
const DELAY_MS = 150; // after the last input
const FIRST_INPUT = "3 1 4 1 5";
const FRAME_MS = 250;
const MAX_FRAMES = 24;

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

async function loadStep(delayMs = 0) {
  const { axes, source } = model.value.probe_info,
    response = await load("runs/snapshot", { step: step.value }, delayMs);
  if (response) pass.value = { axes, source, ...response.snapshot };
}

/** Play the training until its end, or until the user does something else. */
async function playTraining() {
  const { step: last, weight_steps: steps } = model.value,
    stride = Math.ceil(steps.length / MAX_FRAMES),
    frames = [...steps.filter((each, i) => i % stride === 0 && each !== last), last];
  for (const [i, next] of frames.entries()) {
    if (part.value !== PARTS[0].value || (i && step.value !== frames[i - 1])) return;
    step.value = next;
    await Promise.all([loadStep(), sleep(FRAME_MS)]);
  }
}

async function loadModel() {
  const response = await load("runs/poll");
  if (!response) return;
  model.value = response;
  step.value = response.step;
  pass.value = { ...response.probe_info, ...response.snapshot };
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) await playTraining();
}

/** Select what a section explains, when it is in the middle of the window. */
function openPart(name) {
  if (part.value === name || !model.value) return;
  const next = PARTS.find((each) => each.value === name) ?? PARTS[0];
  part.value = next.value;
  if (selection.value.kind !== next.select && pass.value) {
    const layer = next.select === "cross" ? pass.value.attention.cross.length - 1 : 0;
    selection.value = { kind: next.select, layer, head: 0 };
  }
  loadTypedPass();
}

function selectHead(kind, layer, head) {
  selection.value = { kind, layer, head };
}

function typeInput(value) {
  text.value = value;
  if (value.trim() && model.value) loadTypedPass(DELAY_MS);
}

function Step() {
  const { step: last, weight_steps: steps } = model.value;
  const onStep = (next) => {
    step.value = next ?? last;
    loadStep(DELAY_MS);
  };
  return html`<label class="picture-step">
    Step
    <${StepSlider} steps=${steps} step=${step.value} onStep=${onStep} max=${last} />
    <output>${step.value} of ${last}</output>
  </label>`;
}

function Part({ value, title, text, task }) {
  const box = useRef(/** @type {any} */ (null)),
    isCurrent = part.value === value,
    { points, probe_info: info } = model.value,
    loss = points.loss[points.steps.indexOf(pass.value.step)];
  useEffect(() => {
    const onMove = (entries) => entries.at(-1).isIntersecting && openPart(value);
    const observer = new IntersectionObserver(onMove, { rootMargin: "-72% 0px -28%" });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const view = { info, loss, pass: pass.value, selection: selection.value };
  return html`<section ref=${box} id=${"start-" + value} aria-current=${String(isCurrent)}>
    <h3>${title}</h3>
    <p>${text}</p>
    ${isCurrent && html`<p class="pg-note picture-measured">${describePart(value, view)}</p>`}
    <p class="instruction">${task}</p>
  </section>`;
}

const Last = () =>
  html`<section>
    <h3>Now guess</h3>
    <p>
      You have seen every part of the model. In the lessons you draw what you expect, and then a
      model trains and shows what happens.
    </p>
    <p class="pg-buttons">
      <${Button} class="primary" onClick=${() => openLesson(catalog.value.lessons[0].name)}>
        Lesson 1: ${catalog.value.lessons[0].title}
      <//>
      <${Button} onClick=${() => store.open("inspect", { model: MODEL, input: text.value })}>
        Open in Inspect
      <//>
    </p>
  </section>`;

const Controls = () =>
  html`<div class="pg-row picture-controls">
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
    ${part.value === PARTS[0].value && html`<${Step} />`}
  </div>`;

/** The diagram of the Train tab. A click on a block goes to the section that explains it. */
function Picture() {
  const [row, setRow] = useState(/** @type {number | null} */ (null)),
    { probe_info: info } = model.value,
    stacks = useMemo(() => buildStacks(info, pass.value.attention), [info]),
    { kind, layer, head } = selection.value;
  const openBlock = (block) =>
    document
      .getElementById("start-" + partOfBlock(block.kind))
      ?.scrollIntoView({ block: "center" });
  return html`<div class="diagram" data-part=${part.value}>
    <${Diagram}
      stacks=${stacks}
      pass=${pass.value}
      selected=${selection.value}
      label=${"Attention weights between tokens: " + describeHead(kind, layer, head, false)}
      row=${row}
      onSelect=${selectHead}
      onBlock=${openBlock}
      onRow=${setRow}
    />
  </div>`;
}

export function Start() {
  useEffect(() => {
    if (!model.value) loadModel();
  }, []);
  return html`<${StatusMessage}
      kind="error"
      text=${error.value}
      onRetry=${model.value ? null : loadModel}
    />
    ${
      pass.value &&
      html`<div class="article">
        <div class="stage">
          <${Controls} />
          <${Picture} />
        </div>
        <div>
          ${PARTS.map((each) => html`<${Part} key=${each.value} ...${each} />`)}
          <${Last} />
        </div>
      </div>`
    }`;
}
