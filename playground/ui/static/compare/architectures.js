// Architectures with as many parameters as the selected model, trained on the same data. Each one
// is a run of the server.
import { html, signal, useEffect } from "../vendor/preact.js";
import { requestOrError } from "../shared/api.js";
import { Form } from "../shared/components/form.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatCount, formatMessage } from "../shared/format.js";
import { store } from "../shared/store.js";
import { ArchitectureFacts } from "./architecture_facts.js";
import { ArchitectureRuns, setRuns } from "./architecture_runs.js";
import { subject } from "./state.js";

/** @import { FieldSpec } from "../shared/types.js" */

const TIMEOUT_MS = 60_000;
const LOAD_DELAY_MS = 400; // after the last key
const MIN_DIFFERENCE = 0.0005; // smaller ones are not worth a number
const NOTE =
  "All architectures use the same training and held-out sequences, random initial weights, and " +
  "their own default learning rate. A run stops at 99 % exact match. Times depend on this " +
  "machine and its load.";
const FIELDS = /** @type {FieldSpec[]} */ ([
  { name: "min_length", label: "Minimum length" },
  { name: "max_length", label: "Maximum length" },
]).map((field) => ({ ...field, type: "number", min: 1, max: 512, isInteger: true }));

/** The lengths of the sequences; empty ones are those of the selected model. */
const lengths = signal(/** @type {any} */ ({ min_length: "", max_length: "" }));
/** The response with the architectures; null before. */
const matched = signal(/** @type {any} */ (null));
const selected = signal(new Set(["bert", "gpt2", "bart", "transformer"]));
const error = signal("");
const isTraining = signal(false);

const requestedLengths = ({ min_length: min, max_length: max }) =>
  min === "" || max === "" ? {} : { min_length: Number(min), max_length: Number(max) };

let loadedSubject = "",
  requestId = 0;
async function loadArchitectures() {
  const id = ++requestId,
    isSameModel = loadedSubject === subject.value;
  const response = await requestOrError(
    "architectures/matched",
    {
      owner: store.owner.value,
      subject: subject.value,
      ...(isSameModel ? requestedLengths(lengths.value) : {}),
    },
    TIMEOUT_MS,
  );
  if (id !== requestId) return;
  error.value = formatMessage(response.error || "");
  if (response.error) return; // the previous list stays
  loadedSubject = subject.value;
  matched.value = response;
  if (!isSameModel)
    lengths.value = { min_length: response.min_length, max_length: response.max_length };
}

const listSelected = () =>
  (matched.value?.architectures ?? []).filter(
    (each) => selected.value.has(each.architecture) && !each.error,
  );

async function trainArchitectures() {
  isTraining.value = true;
  const response = await requestOrError("architectures/train", {
    owner: store.owner.value,
    subject: subject.value,
    architectures: listSelected().map((each) => each.architecture),
    ...requestedLengths(lengths.value),
  });
  isTraining.value = false;
  error.value = formatMessage(response.error || "");
  if (response.runs?.length) setRuns(response.runs);
}

/** Describe the size of an architecture, beside that of the selected model. */
export function describeSize({ parameters, is_current: isCurrent }, target) {
  const difference = parameters / target - 1,
    sign = difference > 0 ? "+" : "−",
    text =
      Math.abs(difference) < MIN_DIFFERENCE
        ? ""
        : `, ${sign}${Math.abs(100 * difference).toFixed(1)} %`;
  return (
    (isCurrent ? "Your model's architecture: " : "") + formatCount(parameters, "parameter") + text
  );
}

function Architecture({ option, target }) {
  const { architecture, title, description, error: problem } = option;
  const select = (event) => {
    const next = new Set(selected.value);
    next[event.currentTarget.checked ? "add" : "delete"](architecture);
    selected.value = next;
  };
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
    <span class=${problem ? "pg-error cost" : "pg-hint cost"}>
      ${problem ? formatMessage(problem) : describeSize(option, target)}
    </span>
  </li>`;
}

function Choices() {
  const { architectures, task, parameters } = matched.value ?? {},
    count = listSelected().length;
  return html`<section class="side" aria-label="Architectures">
    <h3>Architectures</h3>
    <ul class="choices">
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
      fields=${FIELDS}
      values=${lengths.value}
      onInput=${(name, value) => (lengths.value = { ...lengths.value, [name]: value })}
      onSubmit=${trainArchitectures}
      submitLabel=${count ? "Train " + formatCount(count, "model") : "Train"}
      submitClass="train-all"
      isBusy=${isTraining.value}
      disabledReason=${count || !architectures ? "" : "Select an architecture."}
    >
      <p class="pg-hint total-cost">
        ${
          architectures
            ? `${task}; your model has ${formatCount(parameters, "parameter")}.`
            : "Computing parameter counts…"
        }
      </p>
    <//>
    <${StatusMessage} kind="error" text=${error.value} />
  </section>`;
}

export function Architectures() {
  const owner = store.owner.value,
    ref = subject.value,
    { min_length: min, max_length: max } = lengths.value;
  useEffect(() => {
    if (!owner || !ref) return undefined;
    const isCurrent =
      loadedSubject === ref &&
      matched.value?.min_length === Number(min) &&
      matched.value?.max_length === Number(max);
    if (isCurrent) return undefined;
    const timer = setTimeout(loadArchitectures, loadedSubject === ref ? LOAD_DELAY_MS : 0);
    return () => clearTimeout(timer);
  }, [owner, ref, min, max]);
  return html`<div class="columns of-architectures">
    <${Choices} />
    <section class="main-part" aria-label="Training curves">
      <p class="pg-hint fairness">${NOTE}</p>
      <${ArchitectureRuns} />
      <${ArchitectureFacts} />
    </section>
  </div>`;
}
