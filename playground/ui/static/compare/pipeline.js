// A section with a form and the result of its job: the state, and the component.
import { html, signal, useEffect } from "../vendor/preact.js";
import { Form } from "../shared/components/form.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import { formatMessage } from "../shared/format.js";
import { CompareJob } from "./jobs.js";
import {
  describeModel,
  isLocal,
  loadModelFacts,
  modelErrors,
  modelField,
  useModelFacts,
} from "./models.js";
import { createForm, useRecorded, showResult, subject } from "./state.js";
/** @import { FieldSpec } from "../shared/types.js" */

const isModelField = ({ name }) => /^model0?$/.test(name);
const modelsOf = (fields, values) =>
  fields.filter(isModelField).map(({ name }) => String(values[name]).trim());

export const PRETRAINED_MODEL = "Pretrained model";

export const modelInput = (value, label = PRETRAINED_MODEL) => ({ name: "model0", label, value });
/** @returns {PipelineField} */
export const textArea = (name, label, value, rest = {}) => ({
  name,
  label,
  value,
  type: "textarea",
  isRequired: true,
  maxLength: 4000,
  ...rest,
});
/** @returns {PipelineField} */
export const numberInput = (name, label, value, min, max, rest = {}) => ({
  name,
  label,
  value,
  type: "number",
  min,
  max,
  isRequired: true,
  isInteger: true,
  ...rest,
});

/** Return the request of a form: numbers as numbers, without empty ones. */
export function toRequest(fields, values) {
  return Object.fromEntries(
    fields
      .filter(({ name, type }) => type !== "number" || values[name] !== "")
      .map((field) => {
        const { name, type } = field,
          value = values[name];
        if (isModelField(field)) return ["model", value.trim()];
        return [name, type === "number" ? Number(value) : value];
      }),
  );
}

/**
 * @typedef {FieldSpec & { value?: any }} PipelineField `value` is the default
 * @typedef {{ kind: string, fields: PipelineField[],
 *   isVisible?: (field: PipelineField, values: any) => boolean,
 *   buildRequest?: (request: any) => any, submitLabel: string, emptyText: string,
 *   describe?: (result: any) => string, isAutomatic?: boolean, hasRows?: boolean,
 *   needsSubject?: boolean, isRecorded?: boolean, formName?: string, onEnd?: () => void,
 *   Result: (props: any) => any, Controls?: (props: any) => any }} PipelineSpec `isAutomatic` runs
 *   the section once without a click if its models are local; `emptyText` completes “Press … to
 *   see”; `hasRows` shows rows before the result;
 *   `needsSubject` sends the selected model; `Controls` follow the fields; `describe` returns the
 *   text of a job that is done; `isRecorded` shows a result of the app until one is there
 */

/**
 * Return the state of a section and its component `View`. The last result stays until the next job
 * ends, or has its first row.
 * @param {string} name @param {PipelineSpec} spec
 */
export function createPipeline(name, spec) {
  const { kind, formName = "free-" + name, isVisible = () => true } = spec,
    defaults = Object.fromEntries(spec.fields.map((field) => [field.name, field.value])),
    values = createForm(formName, defaults),
    result = signal(/** @type {any} */ (null)),
    rows = signal(/** @type {any[]} */ ([])),
    request = signal(/** @type {any} */ (null)),
    origin = signal(""), // of a recorded result
    visibleFields = () => spec.fields.filter((field) => isVisible(field, values.value));
  let isNew = false;
  const job = new CompareJob(formName, {
    onStart: () => (isNew = true),
    onRows: (more, newRequest) => {
      if (!spec.hasRows) return;
      if (isNew) result.value = null;
      rows.value = isNew ? more : [...rows.value, ...more];
      request.value = newRequest;
      origin.value = "";
      isNew = false;
    },
    onEnd: (value) => {
      if (value) [result.value, origin.value] = [value, ""];
      loadModelFacts(modelsOf(spec.fields, values.value), true); // they are on this machine now
      spec.onEnd?.();
    },
  });
  /** @returns {any} */
  const buildRequest = () => {
    const built = toRequest(visibleFields(), values.value);
    return spec.buildRequest ? spec.buildRequest(built) : built;
  };
  const run = () => job.start(kind, buildRequest(), spec.needsSubject ? subject.value : ""),
    start = () => {
      run();
      showResult();
    },
    pipeline = {
      ...{ name, spec, values, job, result, rows, request, origin },
      ...{ run, start, buildRequest, visibleFields },
    },
    View = () => html`<${PipelineView} pipeline=${pipeline} />`;
  return { ...pipeline, View };
}

/** Run a section once, without a click, if its models are on this machine. */
function useAutoRun({ spec, values, job, run }) {
  const isReady = spec.isAutomatic && modelsOf(spec.fields, values.value).every(isLocal);
  useEffect(() => {
    if (isReady && job.state.value.status === "idle" && !job.isStored) run();
  }, [isReady]);
}

const toField = (field, values) =>
  isModelField(field) ? modelField(field.name, field.label, values[field.name]) : field;

function PipelineView({ pipeline }) {
  const { name, spec, job, rows, request, origin, run, start } = pipeline,
    values = pipeline.values.value,
    result = pipeline.result.value,
    { describe = describeModel, Result, Controls } = spec;
  useModelFacts(modelsOf(spec.fields, values));
  useAutoRun(pipeline);
  useRecorded(
    name,
    () => spec.isRecorded && job.state.value.status === "idle" && !job.isStored && !origin.value,
    (recorded) => {
      pipeline.result.value = recorded.result;
      rows.value = recorded.rows;
      request.value = recorded.request;
      origin.value = recorded.machine;
    },
  );
  return html`<div class=${`pg-columns part-${name}`} data-status=${job.state.value.status}>
    <section class="side" aria-label="Input">
      <${Form}
        fields=${pipeline.visibleFields().map((field) => toField(field, values))}
        values=${values}
        errors=${modelErrors(values)}
        onInput=${pipeline.values.set}
        onSubmit=${start}
        submitLabel=${origin.value ? "Run it here" : spec.submitLabel}
        submitClass="run"
        >${Controls && html`<${Controls} />`}<//
      >
    </section>
    <section class="main-part" aria-label="Result">
      <div class="job">
        <${JobProgress} job=${job} doneText=${result ? describe(result) : ""} onRetry=${run} />
      </div>
      ${
        result || rows.value.length
          ? html`<div class="pipeline-output">
              ${origin.value && html`<p class="pg-quiet">Recorded: ${origin.value}</p>`}
              <${Result} result=${result} rows=${rows.value} request=${request.value} />
            </div>`
          : html`<p class="pg-hint pg-empty">Press ${spec.submitLabel} to see ${spec.emptyText}</p>`
      }
    </section>
  </div>`;
}

/** The text of a token, with visible whitespace. */
export const visibleWhitespace = (text) =>
  text.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
/** The name of a token of a tokenizer that marks spaces and line breaks. */
export const readableToken = (token) => token.replaceAll(/[Ġ▁]/g, "·").replaceAll("Ċ", "↵");

/** @param {{ tokens: { word: string, token: string, id: number }[] }} props */
export const ModelTokens = ({ tokens }) =>
  html`<${TokenStrip}
    label="Input tokens"
    tokens=${tokens.map((each) => visibleWhitespace(each.word))}
    titles=${tokens.map((each, i) => `position ${i + 1}: ${each.token}, id ${each.id}`)}
  />`;

/** @param {{ notes: string[] }} props */
export const Notes = ({ notes }) =>
  notes.map((note) => html`<p key=${note} class="pg-hint">${formatMessage(note)}</p>`);
