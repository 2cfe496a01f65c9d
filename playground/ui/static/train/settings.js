// The values of the form of a run. Presets, architectures and tasks fill it from the schema of the
// server, which validates every value and alone decides whether a run can start.
import { request, requestOrError } from "../shared/api.js";
import { formatMessage } from "../shared/format.js";
import { Resource } from "../shared/resource.js";
import { store } from "../shared/store.js";
import { batch } from "../vendor/preact.js";
import { fetchDetails, loadRuns } from "./data/actions.js";
import { announce, openModel } from "./data/model_poll.js";
import { setMessage } from "./messages.js";
import { createReactive, state } from "./state.js";

const CHECK_DELAY_MS = 200;
const OWN_DATA = "dataset";
/** @typedef {Record<string, any>} Values by the name of the field */

/** What ui/form_schema.py describes. @type {any} */
export let schema;

export const form = createReactive({
  values: /** @type {Values} */ ({}),
  errors: /** @type {Record<string, string>} */ ({}), // by field
  size: "", // of the model of the next run
  message: "", // an error that concerns no field
  notice: "", // what filled the form
  presetHint: "", // without a preset: where the values come from
  isStarting: false,
});

/** @param {any} description the schema */
export function initForm(description) {
  schema = description;
  Object.assign(form, { values: schema.defaults, size: schema.size });
}

const check = new Resource((values) => request("form/check", { owner: store.owner.value, values }));

/**
 * Change values, and have the server check the form after the last change.
 * @param {Values} changes
 */
export async function setValues(changes) {
  form.values = { ...form.values, ...changes };
  const reply = await check.loadAfter(CHECK_DELAY_MS, form.values);
  if (reply) showReply(reply);
}

/** @param {{ size?: string, errors?: Record<string, string>, error?: any }} reply */
function showReply({ size = "", errors = {}, error = "" }) {
  batch(() => Object.assign(form, { size, errors, message: formatMessage(error) }));
}

const architecture = () => schema.architectures[form.values.architecture];

/** Return whether the form shows a setting. @param {string} name */
export const isUsed = (name) =>
  (!schema.model_settings.includes(name) || architecture().settings.includes(name)) &&
  (name !== "n_symbols" || schema.tasks[form.values.task]?.has_symbols === true);

/** The preset with these values; null without one. @param {Values} values */
const findPreset = (values) =>
  Object.keys(schema.presets).find((name) =>
    Object.entries(schema.presets[name].values).every(([key, value]) => values[key] === value),
  ) ?? null;

/** The values of the preset, or without one the defaults of the architecture. */
const expectedValues = () => (schema.presets[form.values.preset] ?? architecture()).values;

/** The settings that differ from the preset. @returns {string[]} */
export const changedSettings = () =>
  schema.preset_settings.filter(
    (/** @type {string} */ name) =>
      name !== "architecture" && isUsed(name) && form.values[name] !== expectedValues()[name],
  );

export const resetSettings = () =>
  setValues({ ...expectedValues(), architecture: form.values.architecture });

/** @param {string} preset */
const selectPreset = (preset) => setValues({ ...schema.presets[preset].values, preset });

/** @param {string} name */
function selectArchitecture(name) {
  const { values } = schema.architectures[name];
  form.presetHint = "The default settings of this architecture.";
  setValues({ ...values, preset: findPreset(values) });
}

/** A task has its own maximum length, unless the user typed one. @param {string} task */
function selectTask(task) {
  const { min_length: low, max_length: high, dataset_sha256: sha256 } = form.values,
    maxLength = schema.tasks[task]?.max_length,
    tasks = /** @type {{ max_length: number }[]} */ (Object.values(schema.tasks)),
    isDefault = low === 1 && tasks.some((each) => each.max_length === high);
  if (maxLength && sha256)
    setValues({ task, min_length: 1, max_length: maxLength, dataset_sha256: "" });
  else setValues(maxLength && isDefault ? { task, max_length: maxLength } : { task });
}

/** @type {Record<string, (value: any) => void>} */
const SELECTORS = { task: selectTask, architecture: selectArchitecture, preset: selectPreset };

/** Change a field, and the fields that it fills. @param {string} name @param {any} value */
export function setValue(name, value) {
  form.notice = "";
  const select = SELECTORS[name];
  if (select) select(value);
  else setValues({ [name]: value });
}

/** @param {{ sha256: string, source_lengths: [number, number] }} dataset */
export const useDataset = ({ sha256, source_lengths: [min_length, max_length] }) =>
  setValues({ task: OWN_DATA, dataset_sha256: sha256, min_length, max_length });

/**
 * Fill the form with settings as JSON, and report it. Returns the error.
 * @param {string} settings @param {string} [origin] of the settings
 */
export async function fillForm(settings, origin = "run") {
  const { values, error = "" } = await requestOrError("form/fill", { settings });
  if (!values) return formatMessage(error);
  form.presetHint = "Settings of a run or a link.";
  const { task, min_length: low, max_length: high } = values;
  form.notice =
    `The form now has the settings of this ${origin}: ${task}, lengths ${low} to ${high}. ` +
    "Press Train to start a run.";
  setValues({ ...values, preset: findPreset(values) });
  return "";
}

/** Fill the form with the settings in the address of the page. */
export async function followSettingsLink() {
  const settings = new URLSearchParams(location.search).get("settings");
  const error = settings && (await fillForm(settings, "link"));
  if (error) form.message = "The form ignores the settings of this link: " + error;
}

/** Fill the form with the settings of a model. @param {string} ref */
export async function loadSettings(ref) {
  const { settings, error = "" } = await fetchDetails(ref),
    problem = settings ? await fillForm(JSON.stringify(settings)) : formatMessage(error);
  if (problem) setMessage("runs", problem, { isError: true });
  else setMessage("runs", "");
}

/** Start a run with the values of the form, and open it. */
export async function startRun() {
  if (form.isStarting) return;
  form.isStarting = true;
  state.isTrainInviting = false;
  announce("starting", "Starting");
  const speed = Number(state.speed),
    payload = { owner: store.owner.value, values: form.values, speed },
    { subject, errors = {}, error } = await requestOrError("form/start", payload),
    message = error ? "Not started: " + formatMessage(error) : "";
  batch(() => Object.assign(form, { isStarting: false, errors, message, notice: "" }));
  if (!subject) {
    check.clear(); // the errors are those of the present values
    announce("");
    return;
  }
  loadRuns();
  openModel(subject);
}
