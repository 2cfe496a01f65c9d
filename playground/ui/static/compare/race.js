// Race: models that train side by side, in turns of equal CPU time. A stored race plays until one
// has run here.
import { Button } from "../shared/components/buttons.js";
import { computed, effect, html, signal, useEffect, useMemo } from "../vendor/preact.js";
import { toSeries } from "../shared/chart_data.js";
import { Field, validateField } from "../shared/components/form.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { LineChart } from "../shared/components/line_chart.js";
import { TokenStrip, TokenText } from "../shared/components/token_strip.js";
import { formatCount, formatPercent, formatWholePercent } from "../shared/format.js";
import { isActive } from "../shared/job.js";
import { resolveColor } from "../shared/palette.js";
import { EXACT_MATCH_TITLE } from "../shared/strings.js";
import { CompareJob } from "./jobs.js";
import { createForm, recordedResult, subject } from "./state.js";

const PLAY_MS = 8000;
const FRAME_MS = 100;
const MAX_LANES = 4;
const CHART_OPTIONS = {
  label: EXACT_MATCH_TITLE,
  xLabel: "CPU seconds",
  formatX: (/** @type {number} */ x) => x.toFixed(1),
  xRange: /** @type {any} */ ([0, null]),
  yRange: [0, 1.02],
  formatY: formatPercent,
  formatTick: formatWholePercent,
};

/** @import { FieldSpec } from "../shared/types.js" */
/** @typedef {{ lane: number, step: number, seconds: number, exact_match: number,
 *   output: string[], has_reached: boolean }} Row */

export const form = createForm("race", {
  lanes: ["transformer", "one-head", "decoder-only", "recurrent"],
  seed: 0,
});
/** The race that the app includes; its data is null before it has arrived. */
const file = recordedResult("race");
const stored = file.data;
/** The lanes of the race that ran here, and its rows; null without one. */
const own = signal(/** @type {any} */ (null));
const rows = signal(/** @type {Row[]} */ ([]));
/** The CPU time up to which the stored race is drawn. */
const clock = signal(Infinity);

const job = new CompareJob("race", {
  onStart: () => {
    own.value = null;
    rows.value = [];
  },
  onRows: (more) => (rows.value = [...rows.value, ...more]),
});
effect(() => {
  const { partial, result } = /** @type {any} */ (job.state.value);
  if (partial.lanes ?? result?.lanes) own.value = partial.lanes ? partial : result;
});

const race = computed(() => own.value ?? (isActive(job.state.value) ? null : stored.value));
const visibleRows = computed(() =>
  own.value ? rows.value : (race.value?.rows ?? []).filter((row) => row.seconds <= clock.value),
);

/**
 * Return the latest row of each lane with its place; lanes that have reached 99 % are placed by
 * their CPU time.
 * @param {number} count @param {Row[]} all
 */
export function placeLanes(count, all) {
  const latest = Array.from({ length: count }, (_, lane) => all.findLast((r) => r.lane === lane)),
    reached = latest
      .flatMap((row) => (row?.has_reached ? [row] : []))
      .sort((a, b) => a.seconds - b.seconds);
  return latest.map((row) => ({ row, place: row?.has_reached ? reached.indexOf(row) + 1 : 0 }));
}

/** Play the stored race; without motion, its end is there at once. */
function play() {
  const end = Math.max(...stored.value.rows.map((row) => row.seconds)),
    startedAt = performance.now();
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return () => {};
  clock.value = 0;
  const timer = setInterval(() => {
    const share = (performance.now() - startedAt) / PLAY_MS;
    clock.value = share < 1 ? share * end : Infinity;
    if (share >= 1) clearInterval(timer);
  }, FRAME_MS);
  return () => {
    clearInterval(timer);
    clock.value = Infinity;
  };
}

/** Load the stored race, and play it once. */
function useStoredRace() {
  useEffect(() => {
    let stop = () => {};
    (async () => {
      if (!stored.value && (await file.load()) && !own.value) stop = play();
    })();
    return () => stop();
  }, []);
}

const runRace = () =>
  job.start("race", { lanes: form.value.lanes, seed: Number(form.value.seed) }, subject.value);

export function describeLane({ row, place }) {
  if (!row) return "";
  if (!place) return formatPercent(row.exact_match);
  return `${["1st", "2nd", "3rd", "4th"][place - 1]}: 99 % after ${row.seconds.toFixed(1)} s`;
}

function Lane({ lane, index, state, target }) {
  const { row, place } = state;
  return html`<li class=${place === 1 ? "lane winner" : "lane"}>
    <span class="pg-swatch" style=${{ background: resolveColor(index) }}></span>
    <b class="name" title=${formatCount(lane.parameters, "parameter")}>${lane.title}</b>
    <span class="standing">${describeLane(state)}</span>
    <progress
      max="1"
      value=${row?.exact_match ?? 0}
      style=${{ accentColor: resolveColor(index) }}
      aria-label=${"Exact match of " + lane.title}
    ></progress>
    <${TokenStrip}
      label=${"Output of " + lane.title}
      tokens=${row?.output ?? []}
      targets=${target}
    />
  </li>`;
}

function Lanes() {
  const { lanes, seed, source, target } = race.value,
    states = placeLanes(lanes.length, visibleRows.value),
    winner = states.findIndex(({ place }) => place === 1),
    describeWinner = () =>
      winner >= 0 &&
      `${lanes[winner].title} is first with seed ${seed}, in one race; ` +
        "other seeds may give another order.";
  const series = useMemo(
    () =>
      lanes.map(({ title }, index) => {
        const ofLane = visibleRows.value.filter((row) => row.lane === index);
        return toSeries(
          title,
          ofLane.map((row) => [row.seconds, row.exact_match]),
          index,
        );
      }),
    [race.value, visibleRows.value],
  );
  return html`<div class="pg-halves">
    <div>
      <p class="pg-quiet">
        Input ${" "}<span class="pg-mono"><${TokenText} tokens=${source} /></span>
      </p>
      <ol class="pg-list lanes">
        ${lanes.map(
          (lane, index) =>
            html`<${Lane}
              key=${lane.name}
              lane=${lane}
              index=${index}
              state=${states[index]}
              target=${target}
            />`,
        )}
      </ol>
      <p class="winner-note" role="status">${describeWinner()}</p>
    </div>
    <${LineChart} options=${CHART_OPTIONS} series=${series} />
  </div>`;
}

const SEED = /** @type {FieldSpec} */ ({
  name: "seed",
  label: "Seed",
  type: "number",
  min: 0,
  max: 999_999,
  isInteger: true,
  isRequired: true,
});

function Choices() {
  const { lanes, seed } = form.value,
    { choices } = stored.value;
  const select = (name, isOn) =>
    form.set("lanes", isOn ? [...lanes, name] : lanes.filter((each) => each !== name));
  return html`<details class="choose">
    <summary>Lanes and seed</summary>
    <fieldset class="pg-row">
      <legend class="pg-visually-hidden">Two to four lanes</legend>
      ${Object.entries(choices).map(
        ([name, title]) =>
          html`<label key=${name}>
            <input
              type="checkbox"
              checked=${lanes.includes(name)}
              disabled=${!lanes.includes(name) && lanes.length >= MAX_LANES}
              onChange=${(event) => select(name, event.currentTarget.checked)}
            />
            ${" " + title}
          </label>`,
      )}
    </fieldset>
    <${Field}
      field=${SEED}
      value=${seed}
      error=${validateField(SEED, seed)}
      onInput=${(value) => form.set("seed", value)}
    />
  </details>`;
}

export function Race() {
  useStoredRace();
  const isBusy = isActive(job.state.value),
    canRun = form.value.lanes.length >= 2 && !validateField(SEED, form.value.seed);
  return html`<div class="of-race" data-status=${job.state.value.status}>
    <p class="pg-row">
      <${Button}
        class="primary run"
        title="Trains the lanes on the task of your model, in turns of equal CPU time"
        disabled=${isBusy || !canRun}
        onClick=${runRace}
      >
        Run it here
      <//>
      ${race.value?.rows && html`<${Button} onClick=${play}>Replay<//>`}
      <span class="pg-quiet">
        ${
          race.value &&
          (own.value
            ? `Seed ${race.value.seed}`
            : `Recorded with seed ${race.value.seed}: ${race.value.machine}`)
        }
      </span>
    </p>
    <${JobProgress} job=${job} />
    ${race.value && html`<${Lanes} />`} ${stored.value && html`<${Choices} />`}
  </div>`;
}
