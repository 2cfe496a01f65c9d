// What the view polls: the experiments, and what changes with their states.
import { effect } from "../../vendor/preact.js";
import { errorMessage } from "../../shared/api.js";
import { poller } from "../../shared/poller.js";
import { store } from "../../shared/store.js";
import { view } from "../state.js";
import { root } from "../view.js";
import { loadOutcomes } from "./outcomes.js";
import {
  applyPoll,
  claims,
  details,
  experiments,
  isAnyRunning,
  lines,
  openId,
  presets,
  setError,
  settings,
} from "./state.js";

const RUNNING_INTERVAL_MS = 1000;
const IDLE_INTERVAL_MS = 4000;
const CLAIMS_INTERVAL_MS = 2500;
const LONG_INTERVAL_MS = 60_000; // other changes wake the poller

const isVisible = () => view.value === "experiments" && Boolean(root.offsetParent);
/** @param {string} part @param {(response: any) => void} onData */
const createHandlers = (part, onData) => ({
  onData: (/** @type {any} */ response) => {
    setError(part, response.error);
    if (!response.error) onData(response);
  },
  onError: (/** @type {Error} */ error) => setError(part, errorMessage(error)),
});

const withOwner = (payload = {}) =>
  store.owner.value ? { owner: store.owner.value, ...payload } : null;

export function startPolling() {
  poller.subscribe({
    route: "experiments/poll",
    payload: () =>
      withOwner({
        open: openId.value,
        ...(details.value?.id === openId.value && {
          version: details.value.version,
          drawn: [...lines.value.keys()],
        }),
      }),
    get intervalMs() {
      return isAnyRunning.value ? RUNNING_INTERVAL_MS : IDLE_INTERVAL_MS;
    },
    isVisible,
    ...createHandlers("poll", applyPoll),
  });
  poller.subscribe({
    route: "experiments/presets",
    payload: withOwner,
    intervalMs: LONG_INTERVAL_MS,
    isVisible,
    ...createHandlers("presets", (response) => {
      presets.value = response.presets;
      if (!settings.value.length) settings.value = response.settings;
    }),
  });
  poller.subscribe({
    route: "replications/list",
    payload: withOwner,
    get intervalMs() {
      return claims.value.some((each) => each.state === "running")
        ? CLAIMS_INTERVAL_MS
        : LONG_INTERVAL_MS;
    },
    isVisible,
    ...createHandlers("claims", (response) => {
      claims.value = response.claims;
      loadOutcomes();
    }),
  });
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
