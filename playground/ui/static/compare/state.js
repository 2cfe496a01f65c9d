// The state of the tab: the selected view and section, the selected model, and what this browser
// remembers.
import { computed, effect, signal, useEffect } from "../vendor/preact.js";
import { parseLinkState, readViewState } from "../shared/links.js";
import { Resource } from "../shared/resource.js";
import { createStorage } from "../shared/storage.js";
import { rememberedModel, store } from "../shared/store.js";
import { createView } from "../shared/view.js";

const DEFAULT_MODEL = "checkpoint:reverse";
export const VIEWS = [
  { value: "race", label: "Race" },
  { value: "experiments", label: "Experiments" },
  { value: "benchmark", label: "Benchmark" },
  { value: "pretrained", label: "Pretrained" },
];
// A link has the fields of one form. It never has a job, because that belongs to other input.
const LINK_FIELDS = /^(table|race|attention|finetune|free-[a-z]+)$/;

const { storedState, saveLocal, loadLocal } = createStorage("transformer-playground-compare");
export { loadLocal, saveLocal };

/** Store what a link contains, before the forms read it. */
export function applyLink(/** @type {URLSearchParams} */ params, stored = storedState) {
  for (const [name, value] of Object.entries(parseLinkState(params.get("fields")))) {
    if (!LINK_FIELDS.test(name)) continue;
    stored[name] = value;
    delete stored["job-" + name];
  }
  stored.view = params.get("section") ?? stored.view;
  stored.section = params.get("part") ?? stored.section;
}
if (readViewState(location.search).tab === "compare")
  applyLink(new URLSearchParams(location.search));

const isKnownView = (/** @type {unknown} */ name) => VIEWS.some((each) => each.value === name);
export const view = signal(isKnownView(storedState.view) ? storedState.view : VIEWS[0].value);
/** The name of the section of the pretrained models; empty for the first one. */
export const section = signal(String(storedState.section ?? ""));
effect(() => {
  saveLocal("view", view.value);
  saveLocal("section", section.value);
});

/** The run or checkpoint that the views compare with others; null before the lists have arrived. */
export const selectedModel = computed(
  () =>
    store.find(store.model.value ?? rememberedModel()) ??
    store.find(DEFAULT_MODEL) ??
    store.runs.value[0] ??
    store.checkpoints.value[0] ??
    null,
);
/** Whether the open model is a run that another user shares. */
export const isSharedModel = computed(() => Boolean(store.model.value?.startsWith("watch:")));
export const subject = computed(() => selectedModel.value?.subject ?? "");

const canHold = (before, value) =>
  typeof before === typeof value ||
  (typeof before === "number" && typeof value === "string") ||
  (typeof before === "string" && typeof value === "number");

/**
 * The values of a form, which this browser remembers under a name.
 * @template {Record<string, any>} Values
 * @param {string} name @param {Values} defaults
 * @param {(stored: Record<string, any>) => Record<string, any>} [validate] drops invalid values
 */
export function createForm(name, defaults, validate = (stored) => stored) {
  const saved = loadLocal(name),
    stored = saved && typeof saved === "object" ? validate(saved) : {},
    values = Object.fromEntries(
      Object.entries(defaults).map(([key, value]) => [
        key,
        Object.hasOwn(stored, key) && canHold(value, stored[key]) ? stored[key] : value,
      ]),
    ),
    form = signal(/** @type {Values} */ (values));
  return Object.assign(form, {
    name,
    /** @param {string} key @param {any} value */
    set: (key, value) => {
      form.value = { ...form.value, [key]: value };
      saveLocal(name, form.value);
    },
  });
}

/** What a link to the selected view has: the values of its form, and no run. */
export function sharedParams(/** @type {string} */ formName) {
  const values = formName && loadLocal(formName);
  return {
    model: subject.value.startsWith("checkpoint:") ? subject.value : null,
    fields: values ? JSON.stringify({ [formName]: values }) : null,
  };
}

/** Return a result that the app includes, which is displayed until a job has run here. */
export const recordedResult = (/** @type {string} */ name) =>
  new Resource(async () =>
    (await fetch(new URL(`./${name}.json`, import.meta.url), { headers: {} })).json(),
  );

/** Apply a recorded result if `isNeeded` returns true, also once it has arrived. */
export function useRecorded(name, isNeeded, apply) {
  useEffect(() => {
    if (!isNeeded()) return;
    recordedResult(name)
      .load()
      .then((recorded) => isNeeded() && apply(recorded));
  }, []);
}

export const compareView = {
  read: () => ({ section: view.value, part: section.value || null, fields: null }),
  apply(/** @type {URLSearchParams} */ params) {
    const name = params.get("section");
    if (isKnownView(name)) view.value = name;
    section.value = params.get("part") ?? section.value;
  },
};

export const { attach, root } = createView("compare pg", [
  new URL("./compare.css", import.meta.url),
  new URL("./experiments/experiments.css", import.meta.url),
]);

/** Scroll to the result of the open form unless it is visible. */
export function showResult() {
  const result = root.querySelector(".main-part"),
    top = result?.getBoundingClientRect().top ?? 0;
  if (top < 0 || top > innerHeight / 2) result?.scrollIntoView();
}
