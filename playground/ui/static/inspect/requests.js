// The answers of the sections: of the model in this page where it can run, and else of the server.
import { batch, effect, untracked } from "../vendor/preact.js";
import { NO_RESPONSE, request } from "../shared/api.js";
import { unpackWeights } from "../shared/attention_weights.js";
import { formatMessage } from "../shared/format.js";
import { Resource } from "../shared/resource.js";
import { store } from "../shared/store.js";
import { answerLocally } from "./local_views.js";
import {
  isVisible,
  notApplicable,
  openSection,
  prediction,
  problem,
  results,
  root,
  VIEWS,
} from "./state.js";

// Views that the server computes on hundreds of sequences.
const SLOW_VIEWS = ["heads", "ablation"];
const INPUT_FIELD = "text"; // of an error of the input
const NOT_APPLICABLE = "not-applicable"; // code of a section that the architecture lacks
const PRIVATE = "private"; // code of a section for which the user lacks the owner's consent
const TRAINING_INTERVAL_MS = 3000; // between two requests while the model trains
let requestedSelection = "",
  requestedAt = 0;

const selection = () =>
  JSON.stringify([
    ...[store.model.value, store.step.value, store.sequence.value, openSection.value],
    openSection.value === "ablation" && store.weightSeries.value,
  ]);

const answer = new Resource(async () => {
  const spec = VIEWS[openSection.value],
    options = spec.options?.() ?? {};
  requestedSelection = selection();
  requestedAt = Date.now();
  return (
    (spec.isLocal && (await answerLocally(options))) ||
    requestView(spec.request ?? openSection.value, options)
  );
}, showError);
export const isWaiting = answer.isPending;

export async function requestView(view, options, extra = {}) {
  const isSlow = SLOW_VIEWS.includes(view);
  const payload = {
    owner: store.owner.value,
    subject: store.model.value ?? "",
    text: store.sequence.value,
    view,
    options,
    ...(store.step.value === null ? {} : { step: store.step.value }),
    ...extra,
  };
  try {
    const reply = await request("inspect/view", payload, isSlow ? 300_000 : 20_000);
    return view === "attention" && !reply.error
      ? { ...reply, weights: unpackWeights(reply) }
      : reply;
  } catch (error) {
    return {
      error:
        /** @type {Error} */ (error).name === "TimeoutError"
          ? "the request timed out; try again"
          : NO_RESPONSE,
      retryable: !isSlow,
    };
  }
}

/** Request the open section, after a pause that joins several keystrokes. */
export async function refresh(delayMs = 40) {
  const section = openSection.value;
  if (!store.model.value || !VIEWS[section] || !isVisible()) return;
  if (section === "ablation" && store.weightSeries.value === undefined) return; // known soon
  const data = await answer.loadAfter(delayMs);
  if (!data) return;
  if (data.code === PRIVATE) restrictToHeadRoles(data, section);
  if (applyDefaultInput(data)) return refresh(0);
  showResponseError(data);
  batch(() => {
    if (data.prediction) prediction.value = data;
    if (!data.error) results.value = { ...results.value, [section]: data };
  });
  if (data.error) return; // the last result stays visible
  root.dataset.drawn = section + " " + store.sequence.value; // for tests and benchmarks
}

// Turn the refusal of a model whose owner keeps its examples private into the reason why it has no
// section but the roles of the heads, which show no tokens.
function restrictToHeadRoles(data, view) {
  Object.assign(data, { prediction: [], views: ["heads"], step: store.latestStep.value });
  if (view === "heads") data.error = "";
  else data.code = NOT_APPLICABLE;
}

/** Replace a sequence that was typed for another model, if this one does not accept it. */
function applyDefaultInput({ default_input, error, field }) {
  const before = store.sequence.value;
  batch(() => {
    if (default_input) store.suggestedInput.value = default_input;
    const isOfOtherModel = store.input.value !== null && store.inputModel !== store.model.value;
    if (error && field === INPUT_FIELD && isOfOtherModel) store.input.value = null;
  });
  return store.sequence.value !== before;
}

/** Show the error of a response: in the section, if the architecture does not have the view. */
export function showResponseError({ error = "", field, code }) {
  const isNotApplicable = code === NOT_APPLICABLE;
  notApplicable.value = isNotApplicable ? formatMessage(error) : "";
  showError(isNotApplicable ? "" : error, field);
}

/** Show an error; `field` names the invalid field. @param {string} text @param {string} [field] */
export function showError(text, field = "") {
  problem.value = formatMessage(text);
  store.isInputInvalid.value = field === INPUT_FIELD;
}

/** Request the open section when the model, the step or the input changes, once it is visible. */
export function watchSelection() {
  let model = store.model.peek();
  effect(() => {
    const isStale = requestedSelection !== selection() && isVisible();
    untracked(() => {
      if (model !== store.model.value) onModelChange();
      model = store.model.value;
      if (isStale) refresh(0);
    });
  });
  effect(() => {
    const isNewStep = store.weightSteps.value.length > 1,
      isDue = Date.now() - requestedAt > TRAINING_INTERVAL_MS;
    if (isNewStep && isDue && isVisible() && store.step.peek() === null) refresh();
  });
}

function onModelChange() {
  for (const spec of Object.values(VIEWS)) spec.reset?.();
  // The open section shows its old picture until the new one is there.
  const open = openSection.value;
  results.value = results.value[open] ? { [open]: results.value[open] } : {};
}
