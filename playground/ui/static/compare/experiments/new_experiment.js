// The form of a new experiment.
import { computed, effect, html, signal, untracked } from "../../vendor/preact.js";
import { CopyButton } from "../../shared/components/buttons.js";
import { Form } from "../../shared/components/form.js";
import { StatusMessage } from "../../shared/components/status_message.js";
import { formatCount, formatMessage } from "../../shared/format.js";
import { parseLinkState } from "../../shared/links.js";
import { Resource } from "../../shared/resource.js";
import { store } from "../../shared/store.js";
import {
  JOB_DEFAULTS,
  JobsSignIn,
  describePrice,
  isPlaceReady,
  labelStart,
  listPlaceFields,
  loadPlaces,
  toJobs,
} from "./run_on.js";
import {
  formatEstimate,
  labelSettings,
  loadLocal,
  openExperiment,
  requestAsOwner,
  saveLocal,
  settings,
} from "./state.js";

const PLAN_DELAY_MS = 400; // after the last key
const DEFAULTS = {
  base: "",
  "setting-0": "norm_placement",
  "values-0": "pre, post",
  "setting-1": "",
  "values-1": "",
  seeds: "0, 1, 2, 3, 4",
  kind: "grid",
  times: 5,
  n: 200,
  name: "",
  ...JOB_DEFAULTS,
};
const KIND_OPTIONS = [
  { value: "grid", label: "training curves", title: "Exact match and loss over the steps" },
  {
    value: "lengths",
    label: "length generalization",
    title: "Also evaluates sequences longer than the training sequences",
  },
];

const isOpen = signal(false);
export const form = signal(toValues(loadLocal("own")));
/** The response of `experiments/plan` to the form, or its error; null before. */
export const plan = signal(/** @type {any} */ (null));
const isStarting = signal(false);
const answer = new Resource(async () => {
  const { on } = form.value,
    request = { form: toRequest(form.value), on };
  const [response, prices] = await Promise.all([
    requestAsOwner("experiments/plan", request),
    on === "hf-jobs" ? loadPlaces(request) : null,
  ]);
  return response.error ? response : { ...response, priceError: prices?.error };
});

/** Return the form of the server. @param {Record<string, any>} values of the fields */
export function toRequest(values) {
  const { base, seeds, kind, name, times, n } = values;
  const grid = [0, 1]
    .filter((i) => values[`setting-${i}`])
    .map((i) => [values[`setting-${i}`], values[`values-${i}`]]);
  const lengths = kind === "lengths" ? { times: times && Number(times), n: n && Number(n) } : {};
  return { base, grid, seeds, kind, name, ...lengths };
}

/** Return the values of the fields for a form of the server, of this browser or of a link. */
export function toValues(stored) {
  const values = /** @type {Record<string, any>} */ ({ ...DEFAULTS }),
    grid = Array.isArray(stored?.grid) ? stored.grid.filter(Array.isArray).slice(0, 2) : [];
  for (const name of ["base", "seeds", "name"])
    if (typeof stored?.[name] === "string") values[name] = stored[name];
  for (const name of ["times", "n"])
    if (typeof stored?.[name] === "number") values[name] = stored[name];
  if (stored?.kind === "lengths") values.kind = "lengths";
  grid.forEach(([name, text], i) => {
    if (typeof name !== "string" || typeof text !== "string") return;
    Object.assign(values, { [`setting-${i}`]: name, [`values-${i}`]: text });
  });
  return values;
}

/** Return the errors of a plan by field; those without a field have the key "form". */
export function placeError({ error, field }, values) {
  if (!error) return {};
  const varied = [0, 1].find((i) => values[`setting-${i}`] && values[`setting-${i}`] === field),
    isField = ["base", "seeds", "times", "n", "name", ...Object.keys(JOB_DEFAULTS)].includes(field),
    key = varied !== undefined ? `values-${varied}` : field === "grid" ? "values-0" : field;
  return {
    [varied !== undefined || field === "grid" || isField ? key : "form"]: formatMessage(
      labelSettings(error),
    ),
  };
}

/** The form of a link; the browser remembers its later values. */
export const formView = {
  read: () => ({ form: null }),
  apply(/** @type {URLSearchParams} */ params) {
    const link = parseLinkState(params.get("form"));
    if (!Array.isArray(link.grid)) return;
    form.value = toValues(link);
    isOpen.value = true;
  },
};

/** @param {string} name */
const findSetting = (name) => settings.value.find((each) => each.name === name);

/** @param {string} name @param {any} value */
function changeForm(name, value) {
  const changes = { [name]: value };
  if (name.startsWith("setting-"))
    changes[name.replace("setting", "values")] = findSetting(value)?.suggested ?? "";
  form.value = { ...form.value, ...changes };
  saveLocal("own", toRequest(form.value));
  planExperiment(PLAN_DELAY_MS);
}

async function planExperiment(delayMs = 0) {
  plan.value = (await answer.loadAfter(delayMs)) ?? plan.value;
}
effect(() => {
  if (isOpen.value && store.owner.value) untracked(planExperiment);
});

async function startExperiment() {
  isStarting.value = true;
  const jobs = toJobs(form.value),
    response = await requestAsOwner("experiments/submit", {
      form: toRequest(form.value),
      ...jobs,
      token: store.hubToken.value.trim(),
    });
  isStarting.value = false;
  if (response.error) plan.value = response;
  else openExperiment(response.experiment);
}

/** @param {any} setting */
const describeSetting = (setting) =>
  setting &&
  `${formatMessage(setting.help)} Accepts ${setting.accepts}; default ${setting.default}.`;

/** The settings as options; a label that is not the name of the setting has the name too. */
const settingOptions = computed(() =>
  settings.value.map(({ name, label, group }) => ({
    value: name,
    group,
    label: label.toLowerCase().replaceAll(" ", "_") === name ? label : `${label} (${name})`,
  })),
);

/**
 * Return the fields of the form; the hint of the seeds is the p-value that they can reach.
 * @param {Record<string, any>} values @param {string} [test] of the plan
 * @returns {import("../../shared/types.js").FieldSpec[]}
 */
export function listFields(values, test) {
  const varied = [0, 1].flatMap((i) => {
    const ordinal = i ? "Second" : "First",
      options = settingOptions.value,
      select = {
        name: `setting-${i}`,
        label: i ? "Second varied setting (optional)" : "Varied setting",
        type: /** @type {const} */ ("select"),
        options: i ? [{ value: "", label: "none" }, ...options] : options,
      },
      text = {
        name: `values-${i}`,
        label: `${ordinal} setting's values`,
        placeholder: "comma-separated values",
        maxLength: 600,
        hint: describeSetting(findSetting(values[select.name])),
      };
    return values[select.name] ? [select, text] : [select];
  });
  const lengths = [
    {
      name: "times",
      label: "Maximum length, as a multiple of the training length (times)",
      min: 1,
      max: 20,
    },
    { name: "n", label: "Sequences per length (n)", min: 20, max: 2000 },
  ].map((field) => ({ ...field, type: /** @type {const} */ ("number"), isInteger: true }));
  return [
    {
      name: "base",
      label: "Other settings from",
      type: "select",
      options: [{ value: "", label: "short runs" }, ...store.models.value],
      hint: values.base
        ? ""
        : values.kind === "lengths"
          ? "They have 1,000 steps."
          : "They end at 99 % exact match, or after 600 steps.",
    },
    ...varied,
    { name: "seeds", label: "Seeds", hint: test },
    { name: "kind", label: "Compare", type: "select", options: KIND_OPTIONS },
    ...(values.kind === "lengths" ? lengths : []),
    { name: "name", label: "Name", placeholder: "from the varied settings", maxLength: 60 },
    ...listPlaceFields(values),
  ];
}

/** Describe the runs of a plan, and their duration on this machine or their price. */
export function describePlan(
  { runs, variants, estimate },
  /** @type {Record<string, any>} */ values = {},
) {
  return [
    `${formatCount(runs, "run")}: ${formatCount(variants.length, "combination")} with ` +
      `${formatCount(runs / variants.length, "seed")}` +
      (values.on ? "." : `; ${formatEstimate(estimate)}.`),
    describePrice(values),
  ].filter(Boolean);
}

const copyLink = () => {
  const request = toRequest(form.value),
    isPublic = request.base.startsWith("checkpoint:");
  return store.buildLink({
    model: null,
    form: JSON.stringify({ ...request, base: isPublic ? request.base : "" }),
  });
};

/** Remember whether the form is open, and move an opened form into view. @param {any} event */
function onToggle({ currentTarget: box }) {
  isOpen.value = box.open;
  if (box.open) box.scrollIntoView?.({ block: "nearest" });
}

export function NewExperiment() {
  const values = form.value,
    current = plan.value,
    isPlanned = Boolean(current && !current.error),
    errors = current ? placeError(current, values) : {},
    isEmpty = (name) => name.startsWith("values-") && !values[name], // a hint is enough
    priceError = current?.priceError,
    lines = isPlanned ? describePlan(current, values) : [],
    isReady = isPlanned && isPlaceReady(values);
  return html`<details class="own" open=${isOpen.value} onToggle=${onToggle}>
    <summary>New experiment</summary>
    <${Form}
      fields=${listFields(values, isPlanned ? current.test : "")}
      values=${values}
      errors=${Object.fromEntries(Object.entries(errors).filter(([name]) => !isEmpty(name)))}
      onInput=${changeForm}
      onSubmit=${startExperiment}
      submitLabel=${isPlanned ? labelStart(current.runs, values) : "Start"}
      submitClass="begin"
      isBusy=${isStarting.value || !isReady}
    >
      ${values.on === "hf-jobs" && html`<${JobsSignIn} />`}
      <${StatusMessage} kind="error" text=${errors.form ?? formatMessage(priceError)} />
      <p class="plan pg-hint" role="status" title=${isPlanned ? current.estimate.message : ""}>
        ${lines.map((line) => html`<span key=${line}>${line}</span>`)}
      </p>
    <//>
    <p class="pg-buttons">
      <${CopyButton}
        class="link"
        label="Copy link"
        title="Copies a link to this page with your experiment filled in"
        text=${copyLink}
      />
    </p>
  </details>`;
}
