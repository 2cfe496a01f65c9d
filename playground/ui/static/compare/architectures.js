// Architectures with as many parameters as the selected model, trained on the same data. Each one
// is a run of the server.
import { html, signal, useEffect } from "../vendor/preact.js";
import { request, requestOrError } from "../shared/api.js";
import { Form, validateField } from "../shared/components/form.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatCount, formatInteger, formatMessage } from "../shared/format.js";
import { Resource } from "../shared/resource.js";
import { store } from "../shared/store.js";
import { activeRuns, addSet, ArchitectureRuns, isStopping } from "./architecture_runs.js";
import { subject } from "./state.js";
import { showResult } from "./view.js";

/** @import { FieldSpec } from "../shared/types.js" */

const TIMEOUT_MS = 60_000;
const LOAD_DELAY_MS = 400; // after the last key
const NOTE =
  "All architectures use the same training and held-out sequences and random initial weights. " +
  "Each uses its own optimizer unless you select the same one. A run stops at 99 % exact match. " +
  "Times depend on this machine and its load.";

/**
 * The fields of the form; an empty length is that of the selected model. While runs are active, the
 * button stops them, so the lengths have no limits.
 */
export function buildFields({ min_length: min }, optimizer, hasLimits = true) {
  const limits = hasLimits ? { min: 1, max: 512, isInteger: true } : {},
    length = { type: "number", ...limits },
    validate = (max) =>
      hasLimits && min !== "" && max !== "" && Number(max) < Number(min)
        ? `Maximum length is ${max}; enter at least the minimum length, ${min}.`
        : "";
  return /** @type {FieldSpec[]} */ ([
    { name: "min_length", label: "Minimum length", ...length },
    { name: "max_length", label: "Maximum length", ...length, validate },
    {
      name: "same_optimizer",
      label: "Same optimizer for all",
      type: "checkbox",
      hint: optimizer && `That of your model: ${optimizer}`,
    },
  ]);
}

// By default, each has the optimizer of its presets: that of another one may not suit it.
const values = signal(
  /** @type {any} */ ({ min_length: "", max_length: "", same_optimizer: false }),
);
const selected = signal(new Set(["bert", "gpt2", "bart", "transformer"]));
const isSending = signal(false);

const isValid = () =>
  buildFields(values.value).every((field) => !validateField(field, values.value[field.name]));
/** Return the fields of a request; those without lengths use the lengths of the model. */
const buildRequest = ({ min_length: min, max_length: max, same_optimizer }) => ({
  same_optimizer,
  ...(min === "" || max === "" ? {} : { min_length: Number(min), max_length: Number(max) }),
});

/** The architectures of the selected model's size. */
const answer = new Resource(async (fields) => {
  const { same_optimizer } = fields,
    payload = { owner: store.owner.value, subject: subject.value, ...fields },
    response = await request("architectures/matched", payload, TIMEOUT_MS);
  return { ...response, same_optimizer };
});
const { data: matched, error } = answer;

let loadedSubject = "";
async function loadArchitectures() {
  const isSameModel = loadedSubject === subject.value,
    { same_optimizer } = values.value,
    response = await (isSameModel
      ? answer.loadAfter(LOAD_DELAY_MS, buildRequest(values.value))
      : answer.load({ same_optimizer }));
  if (!response || response.error) return;
  loadedSubject = subject.value;
  if (!isSameModel) {
    const { min_length, max_length } = response;
    values.value = { ...values.value, min_length, max_length };
  }
}

const listSelected = () =>
  (matched.value?.architectures ?? []).filter(
    (each) => selected.value.has(each.architecture) && !each.error,
  );

async function trainArchitectures() {
  const { task, optimizer } = matched.value,
    request = buildRequest(values.value);
  isSending.value = true;
  const response = await requestOrError("architectures/train", {
    owner: store.owner.value,
    subject: subject.value,
    architectures: listSelected().map((each) => each.architecture),
    ...request,
  });
  isSending.value = false;
  error.value = formatMessage(response.error || "");
  if (!response.runs?.length) return;
  addSet(
    `${task}: ${formatCount(response.runs.length, "model")}, ` +
      (request.same_optimizer ? optimizer : "own optimizers"),
    response.runs,
  );
  showResult();
}

async function stopRuns() {
  isSending.value = true;
  const responses = await Promise.all(
    activeRuns.value.map((run) =>
      requestOrError("runs/action", {
        owner: store.owner.value,
        subject: run.subject,
        action: "stop",
      }),
    ),
  );
  isSending.value = false;
  error.value = formatMessage(responses.find((each) => each.error)?.error ?? "");
}

/** Describe the size of an architecture, beside that of the selected model. */
export function describeSize({ parameters, is_current: isCurrent }, target) {
  const difference = 100 * (parameters / target - 1),
    sign = difference > 0 ? "+" : "−";
  return (
    (isCurrent ? "Your model's architecture: " : "") +
    formatCount(parameters, "parameter") +
    (Math.abs(difference) < 0.05 ? "" : `, ${sign}${Math.abs(difference).toFixed(1)} %`)
  );
}

function Architecture({ option, target }) {
  const { architecture, title, description, error: problem } = option;
  const select = (event) => {
    const next = new Set(selected.value);
    next[event.currentTarget.checked ? "add" : "delete"](architecture);
    selected.value = next;
  };
  const { same_optimizer: isSame } = matched.value;
  return html`<li title=${description}>
    <label>
      <input
        type="checkbox"
        checked=${selected.value.has(architecture)}
        disabled=${Boolean(problem)}
        onChange=${select}
      />
      <span class="name">${title}</span>
    </label>
    ${
      problem
        ? html`<span class="pg-error cost">${formatMessage(problem)}</span>`
        : html`<span class="pg-hint amount" title=${describeSize(option, target)}
              >${formatInteger(option.parameters)}</span
            >
            ${!isSame && html`<span class="pg-hint cost">${option.optimizer}</span>`}`
    }
  </li>`;
}

/** Return what the button of the form does, and its label. */
function describeButton(count) {
  if (!activeRuns.value.length)
    return {
      onSubmit: trainArchitectures,
      submitLabel: "Train" + (count ? " " + formatCount(count, "model") : ""),
      isBusy: isSending.value,
    };
  return {
    onSubmit: stopRuns,
    submitLabel: isStopping.value
      ? "Stopping…"
      : `Stop ${formatCount(activeRuns.value.length, "run")}`,
    isBusy: isSending.value || isStopping.value,
  };
}

/** Load the architectures of the model, and again after a change of the form. */
function useArchitectures() {
  const owner = store.owner.value,
    ref = subject.value,
    { min_length: min, max_length: max, same_optimizer: isSame } = values.value;
  useEffect(() => {
    if (!owner || !ref || !isValid()) return;
    const isCurrent =
      loadedSubject === ref &&
      matched.value?.min_length === Number(min) &&
      matched.value?.max_length === Number(max) &&
      matched.value?.same_optimizer === isSame;
    if (!isCurrent) loadArchitectures();
  }, [owner, ref, min, max, isSame]);
}

export function Choices() {
  useArchitectures();
  const { architectures, task, parameters, optimizer } = matched.value ?? {},
    { onSubmit, ...button } = describeButton(listSelected().length),
    isTraining = activeRuns.value.length > 0,
    hasChoice = listSelected().length > 0 || !architectures;
  return html`<section class="side" aria-label="Architectures">
    <h3>Architectures</h3>
    <ul class="pg-list choices">
      ${architectures?.map(
        (option) =>
          html`<${Architecture}
            key=${option.architecture}
            option=${option}
            target=${parameters}
          />`,
      )}
    </ul>
    <${Form}
      class="compact"
      fields=${buildFields(values.value, optimizer, !isTraining)}
      values=${values.value}
      onInput=${(name, value) => (values.value = { ...values.value, [name]: value })}
      onSubmit=${onSubmit}
      ...${button}
      submitClass="train-all"
      disabledReason=${isTraining || hasChoice ? "" : "Select an architecture."}
    >
      <p class="pg-hint total-cost">
        ${
          !architectures
            ? "Computing parameter counts…"
            : isValid() && `${task}; your model has ${formatCount(parameters, "parameter")}.`
        }
      </p>
    <//>
    <${StatusMessage} kind="error" text=${isValid() ? error.value : ""} />
  </section>`;
}

export function Architectures() {
  return html`<div class="pg-columns of-architectures">
    <${Choices} />
    <section class="main-part" aria-label="Training curves">
      <p class="pg-hint fairness">${NOTE}</p>
      <${ArchitectureRuns} />
    </section>
  </div>`;
}
