// Where an experiment trains: on this machine, or in jobs of SLURM or of Hugging Face.
import { baseUrl } from "../../shared/api.js";
import { DataTable } from "../../shared/components/data_table.js";
import { formatCount, formatDuration, formatInteger } from "../../shared/format.js";
import { store } from "../../shared/store.js";
import { effect, html, signal, untracked } from "../../vendor/preact.js";
import { experiments, requestAsOwner } from "./state.js";
/** @import { Places } from "../../shared/responses.js" */

export const JOB_DEFAULTS = { on: "", partition: "", cores: 1, minutes: 60, flavor: "" };
const NAMES = { slurm: "SLURM", "hf-jobs": "Hugging Face Jobs" };
const DOLLARS = new Intl.NumberFormat("en", { style: "currency", currency: "USD" });
const SIGN_IN = "Sign in with access to jobs";
const NO_TOKEN =
  "This machine is not signed in: run hf auth login, or enter a token with write access in Hub.";

/** The places of this server, with the machines for the experiment of the form; null before. */
export const places = signal(/** @type {Places | null} */ (null));

/** Return where to train, as fields of a request. @param {Record<string, any>} values */
export function toJobs({ on, partition, cores, minutes, flavor }) {
  const options = { minutes: Number(minutes) };
  if (on === "slurm") return { on, options: { ...options, partition, cores: Number(cores) } };
  if (on !== "hf-jobs") return {};
  return { on, options: { ...options, flavor: flavor || findMachine("")?.flavor } };
}

/** Load the places, and give the server the token that the jobs of this owner need. */
export async function loadPlaces(request = {}) {
  const token = store.hubToken.value.trim(),
    response = await requestAsOwner("experiments/places", { ...request, token });
  if (!response.error) places.value = response;
  return response;
}
effect(() => {
  const isWaiting = experiments.value?.some((row) => row.elsewhere?.needs_token);
  if (store.owner.value && (isWaiting || isWaiting === undefined)) untracked(loadPlaces);
});

/** The machine of a flavor; by default the cheapest. @param {string} flavor */
const findMachine = (flavor) =>
  places.value?.machines.find((each) => each.flavor === flavor) ?? places.value?.machines[0];

/** @param {any} machine */
const describeMachine = ({ name, cpu, hourly, cost }) =>
  `${name}, ${cpu}: ${DOLLARS.format(hourly)} an hour, about ${DOLLARS.format(cost)} in all`;

/** Describe what the jobs cost; empty for other places. @param {Record<string, any>} values */
export function describePrice({ on, flavor }) {
  const machine = on === "hf-jobs" && findMachine(flavor);
  if (!machine) return "";
  return (
    `${formatCount(places.value?.jobs ?? 0, "job")}, each about ` +
    `${formatDuration(machine.seconds)}; about ${DOLLARS.format(machine.cost)} in all. Your ` +
    "Hugging Face account pays; a job that fails is repeated, which costs more."
  );
}

/** @param {number} runs @param {Record<string, any>} values */
export function labelStart(runs, { on, flavor }) {
  const machine = on === "hf-jobs" && findMachine(flavor),
    price = machine ? ` for about ${DOLLARS.format(machine.cost)}` : "";
  return `Start ${formatCount(runs, "run")}${price}`;
}

/** Whether the place of a form can train now. @param {Record<string, any>} values */
export const isPlaceReady = ({ on, flavor }) =>
  on !== "hf-jobs" || (places.value?.hf_jobs === "ready" && Boolean(findMachine(flavor)));

/**
 * Return the fields of a form for the place of the training; none where only this machine can.
 * @param {Record<string, any>} values @returns {import("../../shared/types.js").FieldSpec[]}
 */
export function listPlaceFields({ on }) {
  const { slurm = false, hf_jobs: access = "off", machines = [] } = places.value ?? {};
  if (!slurm && access === "off") return [];
  const options = [{ value: "", label: "this machine" }];
  if (slurm) options.push({ value: "slurm", label: NAMES.slurm });
  if (access !== "off") options.push({ value: "hf-jobs", label: NAMES["hf-jobs"] });
  const number = { type: /** @type {const} */ ("number"), isInteger: true, isRequired: true },
    minutes = { name: "minutes", label: "Time limit of a job, in minutes", min: 1, ...number },
    slurmFields = [
      { name: "partition", label: "Partition", placeholder: "the cluster's default" },
      { name: "cores", label: "Cores of a job; one run trains on each", min: 1, ...number },
      minutes,
    ],
    jobFields = [
      {
        name: "flavor",
        label: "Machine",
        type: /** @type {const} */ ("select"),
        options: machines.map((each) => ({ value: each.flavor, label: describeMachine(each) })),
      },
      minutes,
    ],
    fields = { slurm: slurmFields, "hf-jobs": machines.length ? jobFields : [] }[on] ?? [];
  return [{ name: "on", label: "Run on", type: "select", options }, ...fields];
}

/** How to sign in for jobs: with a scope that no other part of the page requests. */
export function JobsSignIn() {
  const access = places.value?.hf_jobs;
  if (access === "no-token") return html`<p class="pg-hint">${NO_TOKEN}</p>`;
  if (access !== "sign-in") return null;
  const url = new URL("../login/huggingface?scope=jobs", baseUrl);
  url.searchParams.set("_target_url", location.pathname + location.search);
  return html`<p>
    <a class="pg-button" href=${url.href} target=${window.top === window ? undefined : "_blank"}
      >${SIGN_IN}</a
    >
  </p>`;
}

/** Describe the shards of an experiment: SLURM: 2 of 4 jobs done, 1 running, 1 pending. */
export function describeShards({ backend, shards }) {
  const states = new Map();
  for (const { state } of shards) if (state) states.set(state, (states.get(state) ?? 0) + 1);
  const done = shards.filter((each) => each.done === each.runs).length,
    others = [...states].map(([state, n]) => `${n} ${state.toLowerCase()}`);
  return [
    `${NAMES[backend]}: ${done} of ${formatCount(shards.length, "job")} done`,
    ...others,
  ].join(", ");
}

const COLUMNS = /** @type {import("../../shared/types.js").Column<any>[]} */ ([
  { key: "shard", label: "job", isNumber: true, value: ({ index }) => index + 1 },
  { key: "done", label: "runs done", isNumber: true },
  { key: "runs", label: "of", isNumber: true, render: ({ runs }) => formatInteger(runs) },
  {
    key: "state",
    label: "state",
    value: ({ state, done, runs }) => (done === runs ? "done" : state.toLowerCase() || "no job"),
  },
]);

export const ShardsTable = ({ elsewhere }) =>
  html`<details class="shards">
    <summary>${describeShards(elsewhere)}</summary>
    <${DataTable}
      caption="Jobs"
      columns=${COLUMNS}
      rows=${elsewhere.shards.map((shard, index) => ({ ...shard, index }))}
      rowKey=${({ index }) => String(index)}
    />
  </details>`;
