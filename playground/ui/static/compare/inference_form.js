// Run a form once without a click if all its models are on this machine and no job is stored.
import { sleep } from "../shared/api.js";
import { formatCount, formatMessage, formatPercent } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { visibleWhitespace } from "./benchmark_examples.js";
import { createJobRunner, jobRunners } from "./jobs.js";
import { createModelPicker, loadModelFacts, modelFacts } from "./pretrained_models.js";
import { state } from "./state.js";
import { loadLocal, saveLocal } from "./storage.js";
import { root } from "./view.js";

export function autoRun(jobRunner, key, fields, start) {
  if (
    jobRunner.done ||
    jobRunner.busy ||
    loadLocal("job-" + key) ||
    !state.owner ||
    !root.offsetParent
  )
    return;
  if (
    !fields.every((field) => {
      const row = modelFacts.get(field.value);
      return row && !row.message && row.location !== "hub";
    })
  )
    return;
  jobRunner.done = true;
  start();
}
// An owner may have two jobs at a time. If another job with a progress line is active, wait for the
// short jobs first, but not indefinitely.
export async function runJob(jobRunner, kind, request) {
  jobRunner.done = true;
  while (!state.owner) await sleep(100); // the owner key has not arrived yet
  if (jobRunners.some((each) => each !== jobRunner && each.busy))
    await Promise.race([state.backgroundQueue, sleep(2500)]);
  await jobRunner.run(kind, request);
}
export const createTokenList = (list) =>
  el(
    "div",
    { className: "tokens" },
    ...list.map((token, i) =>
      el("span", {
        className: "token t" + (i % 4),
        textContent: visibleWhitespace(token.word),
        title: "token " + (i + 1) + " of " + list.length + ": " + token.token + ", id " + token.id,
      }),
    ),
  );
export const formatProbability = (x) => (x > 0 && x < 0.001 ? "< 0.1 %" : formatPercent(x));
// Readable names of tokens that start with a space or a line break.
export const readableToken = (token) => token.replaceAll(/[Ġ▁]/g, "·").replaceAll("Ċ", "↵");
// Probabilities (or other fractions) as bars: [label, value, { chosen, title, words }].
export function createBarList(rows) {
  return el(
    "table",
    { className: "shares" },
    el(
      "tbody",
      {},
      ...rows.map(
        ([label, value, { chosen = false, title = "", words = formatProbability(value) } = {}]) => {
          const bar = el("i");
          bar.style.width = Math.max(0.5, 100 * Math.min(1, Math.max(0, value))) + "%";
          return el(
            "tr",
            { className: chosen ? "chosen" : "" },
            el("th", { scope: "row", textContent: label, title }),
            el("td", { className: "bar-of" }, bar),
            el("td", { className: "number", textContent: words, title: String(value) }),
          );
        },
      ),
    ),
  );
}
// The name of a model; for a folder, the last part of its path.
export const shortModelName = ({ model }) =>
  /^[~/.]/.test(model) ? model.split("/").filter(Boolean).pop() || model : model;
export const createNotes = (notes) =>
  notes.map((text) => el("p", { className: "hint", textContent: formatMessage(text) }));
export const describeModel = (result) =>
  "Model: " +
  result.model +
  (result.parameters ? ", " + formatCount(result.parameters, "parameter") : "");
// A form on the left and its result on the right. Controls are [key, label, element, title]; their
// values are stored. `createExtraFields` creates the elements below the first control.
export function createInferenceForm(
  name,
  {
    title,
    about,
    button,
    kind,
    models,
    controls,
    buildRequest,
    empty,
    createExtraFields = null,
    onStart = () => {},
    onRows = () => {},
    onFinish = () => "",
  },
) {
  const storedValues = loadLocal("free-" + name) || {},
    inputs = {};
  // saved by version 0.2.0, or contained in one of its links
  if (storedValues.way)
    storedValues.decoding = storedValues.way === "drawn" ? "sampling" : storedValues.way;
  const part = {
    name,
    title,
    about,
    inputs,
    out: el("div", { className: "out" }, el("p", { className: "hint", textContent: empty })),
  };
  const remember = () =>
    saveLocal("free-" + name, {
      ...Object.fromEntries(part.fields.map((field, i) => ["model" + i, field.value])),
      ...Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value])),
    });
  part.fields = models.map(([label, value], i) =>
    createModelPicker({
      label,
      value: storedValues["model" + i] || value,
      change: () => {
        part.runner.done = true;
        remember();
      },
    }),
  );
  part.runner = createJobRunner("free-" + name, {
    onStart: (payload, isNew) => {
      part.runner.done = true;
      part.isNewJob = true;
      onStart(part, payload, isNew);
    },
    onRows: (list, response, payload) => {
      onRows(part, list, payload);
    },
    onFinish: (response, payload) => {
      loadModelFacts(
        part.fields.map((field) => field.value),
        true,
      ); // the downloaded models are now on this machine
      return onFinish(part, response, payload);
    },
  });
  const labels = controls.map(([key, label, input, hint = ""]) => {
    inputs[key] = input;
    if (typeof storedValues[key] === "string") input.value = storedValues[key];
    input.addEventListener("input", remember);
    input.addEventListener("change", remember);
    return el(
      "label",
      {
        title: hint,
        className: input.tagName === "TEXTAREA" || input.type === "text" ? "long" : "",
      },
      label,
      input,
    );
  });
  part.go = el("button", { type: "submit", className: "quiet main", textContent: button });
  part.run = () => runJob(part.runner, kind, buildRequest(part));
  const form = el(
    "form",
    { className: "numbers" },
    ...part.fields.map((field) => field.box),
    ...labels.slice(0, 1),
    ...(createExtraFields ? [createExtraFields(part)] : []),
    ...labels.slice(1),
    part.go,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    remember();
    part.run();
  });
  part.box = el(
    "div",
    { className: "columns part-" + name, hidden: true },
    el("section", { className: "side", ariaLabel: title }, form),
    el("section", { className: "main-part", ariaLabel: "Result" }, part.runner.line, part.out),
  );
  part.remember = remember;
  return part;
}
export const createTextBox = (value, rows = 3) =>
  el("textarea", { value, rows, maxLength: 4000, required: true, spellcheck: false });
export const createNumberBox = (value, min, max, step = 1) =>
  el("input", { type: "number", value, min, max, step, required: true });
export const toInteger = (input) => Math.round(+input.value);
