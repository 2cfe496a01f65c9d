// The state of the experiments, and their requests. Components read the signals.
import { computed, effect, signal } from "../../vendor/preact.js";
import { view } from "../state.js";
import { errorMessage, requestOrError, requestWithRetry } from "../../shared/api.js";
import { formatDuration, formatMessage } from "../../shared/format.js";
import { poller } from "../../shared/poller.js";
import { createStorage } from "../../shared/storage.js";
import { store } from "../../shared/store.js";

export const STORED_PREFIX = "stored:"; // of the id of a result that the app includes

export const { loadLocal, saveLocal } = createStorage("transformer-playground-experiments");
const storedId = loadLocal("open");

/** The owner's experiments, newest first; null before the first response. */
export const experiments = signal(/** @type {any[] | null} */ (null));
/** The id of the open experiment; empty without one. */
export const openId = signal(typeof storedId === "string" ? storedId : "");
/** The id of the experiment whose result takes the focus when it is on the page. */
export const focusedId = signal("");
/** The open experiment; null before its first response. */
export const details = signal(/** @type {any} */ (null));
/** The variants that the charts draw: the color of the line of each label. */
export const lines = signal(/** @type {Map<string, number>} */ (new Map()));
export const presets = signal(/** @type {any[]} */ ([]));
/** The settings that an experiment can vary. */
export const settings = signal(/** @type {any[]} */ ([]));
export const claims = signal(/** @type {any[]} */ ([]));
/** The errors of the last requests, by the part of the tab that shows them. */
export const errors = signal(/** @type {Record<string, string>} */ ({}));

export const variants = computed(() => details.value?.results.results.variants ?? []);

/** Replace the names of settings in a text, such as n_layers, by their labels. */
export function labelSettings(/** @type {string} */ text) {
  const labels = new Map(
    settings.value.map(({ name, label }) => [name, label[0].toLowerCase() + label.slice(1)]),
  );
  return text.replace(/\b[a-z]+(_[a-z0-9]+)+\b/g, (name) => labels.get(name) ?? name);
}

/** @param {string} part @param {string | undefined} error */
export function setError(part, error) {
  errors.value = { ...errors.value, [part]: formatMessage(error) };
}

/**
 * Send a request of the owner. A lost connection returns an error too.
 * @param {string} route @param {object} [payload] @param {number} [timeoutMs]
 * @returns {Promise<any>}
 */
export const requestAsOwner = (route, payload, timeoutMs) =>
  requestOrError(route, { owner: store.owner.value, ...payload }, timeoutMs);

/**
 * Send a request of the owner. Returns null after an error, which `part` of the tab shows.
 * @param {string} part @param {string} route @param {object} payload @returns {Promise<any>}
 */
export async function send(part, route, payload) {
  const response = await requestAsOwner(route, payload);
  setError(part, response.error);
  return response.error ? null : response;
}

/** @param {string} id */
function setOpenId(id) {
  openId.value = id;
  saveLocal("open", id);
}

/** Show an experiment and move to its result; the browser remembers it. @param {string} id */
export function openExperiment(id) {
  focusedId.value = id;
  setOpenId(id);
}

export const closeExperiment = () => setOpenId("");

/** Apply a response of `experiments/poll`. @param {any} response */
export function applyPoll({ experiments: list, open }) {
  experiments.value = list;
  if (open?.id !== openId.value) {
    const isListed = list.some((each) => each.id === openId.value);
    if (!open && !isListed && !openId.value.startsWith(STORED_PREFIX)) setOpenId("");
    return;
  }
  const isNew = details.value?.id !== open.id;
  details.value = { ...open, results: open.results ?? details.value.results };
  if (!isNew) return;
  const drawn = new Set(open.results.results.drawn),
    labels = variants.value.map((each) => each.label).filter((label) => drawn.has(label));
  lines.value = new Map(labels.map((label, color) => [label, color]));
}

/** Show or hide the lines of a variant; a new line has the first free color. */
export function toggleVariant(/** @type {string} */ label) {
  const next = new Map(lines.value),
    used = new Set(next.values());
  let color = 0;
  while (used.has(color)) color++;
  if (!next.delete(label)) next.set(label, color);
  lines.value = next;
}

/**
 * Format an expected duration, or its limit.
 * @param {{ seconds: number, is_limit?: boolean }} estimate
 */
export function formatEstimate({ seconds, is_limit: isLimit }) {
  if (seconds < 60) return "less than 1 min";
  return (
    (isLimit ? "up to " : "about ") +
    (seconds < 3570 ? Math.round(seconds / 60) + " min" : formatDuration(seconds))
  );
}

/** @param {number} position */
export const formatQueuePosition = (position) => `position ${position} in the queue`;

// The outcomes of replications: measured on the server once a run has ended.

const TIMEOUT_MS = 200_000;

/** The outcomes by `outcomeKey`; null while one is computed. */
export const outcomes = signal(/** @type {Record<string, any>} */ ({}));

/** Return the key of the outcome of a claim: another experiment or step has another one. */
export const outcomeKey = ({ name, experiment, step }) => [name, experiment, step].join();

/** Request the outcomes that are missing. */
export function loadOutcomes() {
  for (const claim of claims.value)
    if (claim.state === "done" && !(outcomeKey(claim) in outcomes.value)) loadOutcome(claim);
}

async function loadOutcome(claim) {
  const key = outcomeKey(claim),
    set = (/** @type {any} */ value) => (outcomes.value = { ...outcomes.value, [key]: value });
  set(null);
  const response = await requestWithRetry(() =>
    requestAsOwner("replications/outcome", { name: claim.name }, TIMEOUT_MS),
  );
  setError("claims", response.error);
  if (response.error) {
    const { [key]: _, ...rest } = outcomes.value;
    outcomes.value = rest; // the next poll requests it again
  } else set(response);
}

// What the view polls: the experiments, and what changes with their states.

const RUNNING_INTERVAL_MS = 1000;
const IDLE_INTERVAL_MS = 4000;
const CLAIMS_INTERVAL_MS = 2500;
const LONG_INTERVAL_MS = 60_000; // other changes wake the poller

const isVisible = () => view.value === "experiments" && store.tab.value === "compare";
const withOwner = (payload = {}) =>
  store.owner.value ? { owner: store.owner.value, ...payload } : null;

/**
 * Poll a route while the view is visible; `part` of the tab shows its errors.
 * @param {string} part @param {string} route @param {() => number} interval
 * @param {(response: any) => void} onData @param {() => object} [payload]
 */
function poll(part, route, interval, onData, payload = () => ({})) {
  poller.subscribe({
    route,
    payload: () => withOwner(payload()),
    get intervalMs() {
      return interval();
    },
    isVisible,
    onData: (/** @type {any} */ response) => {
      setError(part, response.error);
      if (!response.error) onData(response);
    },
    onError: (/** @type {Error} */ error) => setError(part, errorMessage(error)),
  });
}

const pollExperiments = () => ({
  open: openId.value,
  ...(details.value?.id === openId.value && {
    version: details.value.version,
    drawn: [...lines.value.keys()],
  }),
});

export function startPolling() {
  const isRunning = (/** @type {any[] | null} */ rows) =>
      rows?.some((row) => row.state === "running"),
    interval = () => (isRunning(experiments.value) ? RUNNING_INTERVAL_MS : IDLE_INTERVAL_MS);
  poll("poll", "experiments/poll", interval, applyPoll, pollExperiments);
  poll(
    "presets",
    "experiments/presets",
    () => LONG_INTERVAL_MS,
    (response) => {
      presets.value = response.presets;
      if (!settings.value.length) settings.value = response.settings;
    },
  );
  poll(
    "claims",
    "replications/list",
    () => (isRunning(claims.value) ? CLAIMS_INTERVAL_MS : LONG_INTERVAL_MS),
    (response) => {
      claims.value = response.claims;
      loadOutcomes();
    },
  );
  wakeOnChanges();
}

/** Poll at once when other lines are drawn, or when a run or an experiment opens or ends. */
function wakeOnChanges() {
  let states = "";
  effect(() => {
    const rows = experiments.value ?? [],
      current = JSON.stringify([
        view.value,
        openId.value,
        [...lines.value.keys()],
        rows.map((row) => [row.id, row.state, row.statuses.done]),
      ]);
    if (current !== states) poller.wakeAll();
    states = current;
  });
}
