// The runs of the architectures: their curves and their table.
import { computed, html, signal, useMemo } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { Field } from "../shared/components/form.js";
import { formatCount, formatDuration, formatInteger, formatPercent } from "../shared/format.js";
import { resolveColor } from "../shared/palette.js";
import { poller } from "../shared/poller.js";
import { ACTIVE_STATUSES, store } from "../shared/store.js";
import { EXACT_MATCH_TITLE } from "../shared/strings.js";
import { loadLocal, saveLocal, view } from "./state.js";
import { toSeries, TrainingCharts } from "./training_charts.js";

const MAX_SETS = 6;
const POLL_MS = 700;
const NO_CURVE = { status: "waiting", evaluations: [], steps: [], loss: [], step: 0, name: "" };

/**
 * Return the stored sets of runs.
 * @param {any} stored
 * @returns {{ label: string, runs: any[] }[]}
 */
export function readSets(stored) {
  if (!Array.isArray(stored)) return [];
  return stored
    .map(({ label, runs }) => ({
      label: String(label),
      runs: Array.isArray(runs) ? runs.filter((run) => typeof run?.subject === "string") : [],
    }))
    .filter(({ runs }) => runs.length);
}

/** The runs that were started together, the latest first: {subject, title, architecture}. */
const sets = signal(readSets(loadLocal("families")));
const selectedSet = signal(0);
const runs = computed(() => sets.value[selectedSet.value]?.runs ?? []);
/** The curves by the subjects of their runs. */
const curves = signal(/** @type {Map<string, any>} */ (new Map()));

const setSets = (value) => {
  sets.value = value.slice(0, MAX_SETS);
  saveLocal("families", sets.value);
};
/** Show new runs. The earlier ones stay in the list of sets. */
export function addSet(label, newRuns) {
  selectedSet.value = 0;
  curves.value = new Map([
    ...curves.value,
    ...newRuns.map((run) => /** @type {[string, any]} */ ([run.subject, NO_CURVE])),
  ]);
  setSets([{ label, runs: newRuns }, ...sets.value]);
}

const curveOf = (run) => curves.value.get(run.subject) ?? NO_CURVE;
const isComplete = (run) =>
  curves.value.has(run.subject) && !ACTIVE_STATUSES.includes(curveOf(run).status);
/** The runs of the latest set that the server has not ended. */
export const activeRuns = computed(() =>
  (sets.value[0]?.runs ?? []).filter((run) => curves.value.has(run.subject) && !isComplete(run)),
);
/** Whether all of these are about to stop. */
export const isStopping = computed(() =>
  activeRuns.value.every((run) => curveOf(run).status === "stopping"),
);

/** The runs whose curves are missing or grow: of the selected set and of the latest one. */
const listRequested = () => [
  ...new Set(
    [...runs.value, ...(sets.value[0]?.runs ?? [])]
      .filter((run) => !isComplete(run))
      .map((run) => run.subject),
  ),
];
/** Apply a response with the curves of these runs. Deleted runs have none. */
function setCurves(response, requested) {
  const received = new Map(response.curves.map((curve) => [curve.subject, curve])),
    isDeleted = (run) => requested.includes(run.subject) && !received.has(run.subject);
  curves.value = new Map([...curves.value, ...received]);
  if (sets.value.some((set) => set.runs.some(isDeleted)))
    setSets(
      readSets(sets.value.map((set) => ({ ...set, runs: set.runs.filter((r) => !isDeleted(r)) }))),
    );
}

/** Poll the curves while a run is active and the view is visible. */
export function subscribeToCurves(isVisible) {
  let requested = listRequested();
  return poller.subscribe({
    route: "runs/curves",
    payload: () => {
      requested = listRequested();
      return requested.length ? { owner: store.owner.value, subjects: requested } : null;
    },
    intervalMs: POLL_MS,
    isVisible: () => view.value === "architectures" && isVisible(),
    onData: (response) => setCurves(response, requested),
  });
}

/** Describe the state of a run. */
export function describeRun({ status, step, steps_in_all: steps, queue_position: position }) {
  if (status === "waiting" && position) return "queued";
  if (status === "done" || status === "stopped") return `${status} at step ${formatInteger(step)}`;
  return status + (step ? `, step ${formatInteger(step)} of ${formatInteger(steps)}` : "");
}

const RunName = ({ row }) =>
  html`<span class="pg-swatch" style=${{ background: resolveColor(row.index) }}></span>
    <span class="name" title=${row.curve.name}>${row.title}</span>
    <span class="pg-sub">${row.optimizer}</span>
    <span class="pg-sub">${describeRun(row.curve)}</span>`;

function ExactMatch({ curve }) {
  const last = curve.evaluations[curve.evaluations.length - 1];
  if (!last) return "–";
  const [step, score, , count] = last;
  return html`<span title=${`of ${formatCount(count, "held-out sequence")} at step ${step}`}>
    ${formatPercent(score)}
  </span>`;
}

const COLUMNS = [
  { key: "title", label: "architecture", render: (row) => html`<${RunName} row=${row} />` },
  {
    key: "parameters",
    label: "parameters",
    isNumber: true,
    isOptional: true,
    render: (row) => (row.parameters ? formatInteger(row.parameters) : ""),
  },
  {
    key: "steps",
    label: "steps to 99 %",
    isNumber: true,
    value: (row) => row.curve.reached?.[0],
    render: ({ curve }) =>
      html`<span class="reached">${curve.reached ? formatInteger(curve.reached[0]) : "–"}</span>`,
  },
  {
    key: "seconds",
    label: "time to 99 %",
    isNumber: true,
    isOptional: true,
    value: (row) => row.curve.reached?.[1],
    render: ({ curve }) => (curve.reached ? formatDuration(curve.reached[1]) : "–"),
  },
  {
    key: "score",
    label: "exact match",
    isNumber: true,
    value: (row) => row.curve.evaluations.at(-1)?.[1],
    render: (row) => html`<${ExactMatch} curve=${row.curve} />`,
  },
];

const RunActions = ({ subject }) =>
  html`<button
      type="button"
      class="pg-button"
      onClick=${() => store.open("train", { model: subject })}
    >
      Open in Train
    </button>
    <button
      type="button"
      class="pg-button"
      onClick=${() => store.open("inspect", { model: subject })}
    >
      Inspect
    </button>`;

/** The choice of a set, once there are several. */
export function SetChoice() {
  const all = sets.value;
  if (all.length < 2) return null;
  const options = all.map(({ label }, i) => ({
    value: String(i),
    label: `${all.length - i}. ${label}`,
  }));
  return html`<${Field}
    field=${{ name: "set", label: "Training", type: "select", options }}
    value=${String(selectedSet.value)}
    onInput=${(value) => (selectedSet.value = Number(value))}
  />`;
}

export function ArchitectureRuns() {
  const rows = runs.value.map((run, index) => ({ ...run, index, curve: curveOf(run) }));
  const buildSeries = (read) =>
    rows.map(({ subject, title, curve, index }) => ({
      ...read(title, curve, index),
      key: subject,
    }));
  const scores = useMemo(
      () =>
        buildSeries((title, { evaluations }, index) =>
          toSeries(title, evaluations, ([step, score]) => [step, score], index),
        ),
      [runs.value, curves.value],
    ),
    losses = useMemo(
      () =>
        buildSeries((title, { steps, loss }, index) =>
          toSeries(title, steps, (step, at) => [step, loss[at]], index),
        ),
      [runs.value, curves.value],
    );
  const optimizers = new Set(rows.map(({ optimizer }) => optimizer).filter(Boolean));
  return html`<${SetChoice} />
    ${
      optimizers.size > 1 &&
      html`<p class="pg-hint mixed-optimizers">
        These runs have different optimizers. The curves show the effect of both, the architecture
        and the optimizer.
      </p>`
    }
    ${
      rows.length > 0 &&
      html`<${TrainingCharts} scoreLabel=${EXACT_MATCH_TITLE} scores=${scores} losses=${losses} />`
    }
    <${DataTable}
      class="learners"
      caption="Runs of the architectures"
      isCaptionHidden
      columns=${COLUMNS}
      rows=${rows}
      rowKey=${(row) => row.subject}
      emptyText="No runs yet. Select architectures and press Train: their curves appear here."
      actions=${(row) => html`<${RunActions} subject=${row.subject} />`}
    />`;
}
