// The runs of the architectures: their curves and their table.
import { html, signal, useMemo } from "../vendor/preact.js";
import { navigate } from "../shared/common.js";
import { DataTable } from "../shared/components/data_table.js";
import { formatCount, formatDuration, formatInteger, formatPercent } from "../shared/format.js";
import { resolveColor } from "../shared/palette.js";
import { poller } from "../shared/poller.js";
import { ACTIVE_STATUSES, store } from "../shared/store.js";
import { EXACT_MATCH_TITLE } from "../shared/strings.js";
import { loadLocal, saveLocal, view } from "./state.js";
import { toSeries, TrainingCharts } from "./training_charts.js";

const MAX_RUNS = 8;
const POLL_MS = 700;
const NO_CURVE = { status: "waiting", evaluations: [], loss: [], step: 0, steps: 0, name: "" };

const stored = loadLocal("families");
/** The runs of the last training: {subject, title, architecture}. */
export const runs = signal(
  /** @type {any[]} */ (
    Array.isArray(stored)
      ? stored.filter((run) => typeof run?.subject === "string").slice(0, MAX_RUNS)
      : []
  ),
);
const curves = signal(/** @type {any[]} */ ([]));

export function setRuns(value) {
  runs.value = value;
  saveLocal("families", value);
}

/** Apply a response with the curves. Deleted runs have none. */
function setCurves(response) {
  const existing = runs.value.filter((run) =>
    response.curves.some((curve) => curve.subject === run.subject),
  );
  if (existing.length < runs.value.length) setRuns(existing);
  curves.value = response.curves;
}

const curveOf = (run) => curves.value.find((each) => each.subject === run.subject) ?? NO_CURVE;
const isComplete = () =>
  runs.value.every((run) => {
    const curve = curveOf(run);
    return curve !== NO_CURVE && !ACTIVE_STATUSES.includes(curve.status);
  });

/** Poll the curves while a run is active and the view is visible. */
export const subscribeToCurves = (isVisible) =>
  poller.subscribe({
    route: "architectures/curves",
    payload: () =>
      isComplete()
        ? null
        : { owner: store.owner.value, subjects: runs.value.map((run) => run.subject) },
    intervalMs: POLL_MS,
    isVisible: () => view.value === "architectures" && isVisible(),
    onData: setCurves,
  });

/** Describe the state of a run. */
export function describeRun({ status, step, steps, queue_position: position }) {
  if (status === "waiting" && position) return "queued";
  if (status === "done" || status === "stopped") return `${status} at step ${formatInteger(step)}`;
  return status + (step ? `, step ${formatInteger(step)} of ${formatInteger(steps)}` : "");
}

function RunName({ row }) {
  return html`<span class="swatch" style=${{ background: resolveColor(row.index) }}></span>
    <span class="name">${row.title}</span>
    <span class="what">${row.curve.name.replace(row.title + ": ", "")}</span>`;
}

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
  { key: "status", label: "status", value: (row) => describeRun(row.curve) },
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
  html`<button type="button" class="pg-button" onClick=${() => navigate("Train", subject)}>
      Show curves
    </button>
    <button
      type="button"
      class="pg-button"
      onClick=${() => navigate("Inspect", { subject, step: null })}
    >
      Inspect
    </button>`;

export function ArchitectureRuns() {
  const rows = runs.value.map((run, index) => {
    const curve = curveOf(run);
    return { ...run, index, curve, parameters: curve.parameters };
  });
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
      () => buildSeries((title, { loss }, index) => toSeries(title, loss, (point) => point, index)),
      [runs.value, curves.value],
    );
  return html`${
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
