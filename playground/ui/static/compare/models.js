// The names, sizes and locations of pretrained models.
import { computed, signal, useEffect } from "../vendor/preact.js";
import { formatBytes, formatCount, formatInteger, formatMessage } from "../shared/format.js";
import { store } from "../shared/store.js";
import {
  describeError,
  isOutage,
  localPathsAllowed,
  outage,
  reportOutage,
  runQuery,
} from "./jobs.js";
/** @import { FieldSpec } from "../shared/types.js" */

export const DEFAULT_MODELS = ["gpt2", "bert-base-uncased"];
const HUB_NAME = /^(?:[A-Za-z0-9][\w.-]{0,95}\/)?[A-Za-z0-9][\w.-]{0,95}$/;
const FINETUNED_NAME = /^tuned:[A-Za-z0-9][\w.-]{0,95}$/;
const LOAD_DELAY_MS = 500; // after the last key

/** @type {{ value: Map<string, any>, peek: () => Map<string, any> }} */
const modelFacts = signal(new Map()); // name -> a row of the job model-info
const pending = signal(/** @type {Set<string>} */ (new Set()));
const cachedModels = signal(/** @type {string[]} */ ([]));
export const modelNames = computed(() => [...new Set([...DEFAULT_MODELS, ...cachedModels.value])]);

export const isFolderName = (name) => /^[~./]/.test(name);

/** Return why a text is no name of a model; empty if it is one. */
export function validateModelName(text) {
  const name = text.trim(),
    isFolder = localPathsAllowed.value && isFolderName(name),
    isHubName = HUB_NAME.test(name) && !/--|\.\.|\.git$/.test(name);
  if (isHubName || isFolder || FINETUNED_NAME.test(name)) return "";
  const folder = localPathsAllowed.value ? ", or the path of a folder" : "";
  return `${name.slice(0, 80)} is no model name; enter user/name, or a name such as gpt2${folder}.`;
}

const setPending = (names, isPending) => {
  const next = new Set(pending.peek());
  for (const name of names) next[isPending ? "add" : "delete"](name);
  pending.value = next;
};
const setFacts = (name, row) => {
  if (row.message) reportOutage(row.code);
  const message = row.message && describeError(row.message, row.code, name);
  modelFacts.value = new Map(modelFacts.peek()).set(name, { ...row, message });
};

/** Load the sizes and locations of models; those that are known only with `isRefresh`. */
export async function loadModelFacts(names, isRefresh = false) {
  const missing = [...new Set(names.map((name) => name.trim()))].filter(
    (name) =>
      name &&
      !validateModelName(name) &&
      !pending.peek().has(name) &&
      (isRefresh || !modelFacts.peek().has(name)),
  );
  if (!missing.length || !store.owner.value) return;
  setPending(missing, true);
  const { models = [], ...response } = await runQuery("model-info", { models: missing });
  setPending(missing, false);
  if (response.error) return; // the sizes stay unknown; running a model reports the error
  localPathsAllowed.value = response.folders;
  if (models.some((row) => row.location === "hub")) outage.value = "";
  models.forEach((row, i) => setFacts(missing[i], row));
}

export async function listLocalModels() {
  const { models = [], folders, error } = await runQuery("cached-models", {});
  if (error) return; // the fields have fewer suggestions
  cachedModels.value = models.map((row) => row.name);
  localPathsAllowed.value = folders;
}

/** Load all facts again. The outage returns if it continues. */
export function retryConnection() {
  outage.value = "";
  return loadModelFacts([...modelFacts.value.keys()], true);
}

/** Whether a model can be used without a download. */
export const isLocal = (name) => {
  const row = modelFacts.value.get(name.trim());
  return Boolean(row && !row.message && row.location !== "hub");
};

export const hasChatTemplate = (name) =>
  Boolean(modelFacts.value.get(name.trim())?.has_chat_template);

/** Whether a model is not local, and the Hub cannot be reached. */
export const isUnavailable = (name) => isOutage(modelFacts.value.get(name.trim())?.code);

/** Describe what the use of a model requires, or why it cannot be used. */
export function describeModelCost(name) {
  const row = modelFacts.value.get(name.trim()),
    isPending = pending.value.has(name.trim());
  if (!row) return { text: isPending ? "Checking…" : "", isError: false };
  if (row.message) return { text: formatMessage(row.message), isError: !isOutage(row.code) };
  const parameters = row.parameters ? formatCount(row.parameters, "parameter") : "",
    size = row.bytes ? formatBytes(row.bytes) : "",
    memory = row.memory ? `${formatBytes(row.memory)} of memory` : "";
  const finetuned = name.startsWith("tuned:") ? "Fine-tuned here" : "In a local folder",
    storage = row.location === "directory" ? finetuned : "On this machine",
    parts =
      row.location === "hub"
        ? [`${size} to download, once`, parameters, memory]
        : [`${storage}: ${[parameters, size, memory].filter(Boolean).join(", ")}`];
  return { text: parts.filter(Boolean).join("; "), isError: false };
}

/** Describe the downloads that a benchmark of these models needs, and the models it skips. */
export function describeDownloads(names) {
  const skipped = names.filter(isUnavailable);
  if (skipped.length) return `Skipped, because not on this machine: ${skipped.join(", ")}.`;
  const rows = names.map((name) => modelFacts.value.get(name)),
    remote = rows.filter((row) => row?.location === "hub" && row.bytes);
  if (remote.length)
    return (
      `Downloads ${formatBytes(remote.reduce((sum, row) => sum + row.bytes, 0))} first, once: ` +
      `${remote.map((row) => row.name).join(", ")}.`
    );
  return rows.length && rows.every((row) => row && !row.message) ? "No download needed." : "";
}

/** A field for the name of a model, with its cost. @returns {FieldSpec} */
export const modelField = (name, label, value) => ({
  name,
  label,
  isRequired: true,
  maxLength: 200,
  suggestions: modelNames.value,
  hint: describeModelCost(value).text,
  validate: validateModelName,
});

/** The errors of the fields for models, by the names of the fields. */
export const modelErrors = (values) =>
  Object.fromEntries(
    ["model0", "model1", "model"].flatMap((name) => {
      const { text, isError } = describeModelCost(values[name] ?? "");
      return isError ? [[name, text]] : [];
    }),
  );

/** Load the facts of the models in a form, a moment after the last change. */
export function useModelFacts(names) {
  const key = names.join("\n"),
    owner = store.owner.value;
  useEffect(() => {
    const timer = setTimeout(() => loadModelFacts(names), LOAD_DELAY_MS);
    return () => clearTimeout(timer);
  }, [key, owner]);
}

export const shortModelName = (name) =>
  isFolderName(name) ? (name.split("/").filter(Boolean).pop() ?? name) : name;

export const describeModel = ({ model, parameters }) =>
  `Model: ${model}` + (parameters ? `, ${formatInteger(parameters)} parameters` : "");
