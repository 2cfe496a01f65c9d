// The state that the tabs share. Components read the signals and draw themselves again when one
// changes.

import { batch, computed, signal } from "../vendor/preact.js";
import { request } from "./api.js";
import { readViewState, writeParams } from "./links.js";
import { poller as pagePoller } from "./poller.js";
import { loadText, saveText } from "./storage.js";
/** @import { CheckpointSummary, ModelRef, Option, Subscription } from "./types.js" */
/** @import { RunList, RunSummary } from "./responses.js" */
/** @import { Poller } from "./poller.js" */

/**
 * How the state of a tab gets into the address, and back: its parameters, null for defaults.
 * @typedef {Record<string, any>} Params
 * @typedef {{
 *   read: () => Params,
 *   apply: (params: URLSearchParams) => void,
 *   link?: () => Params,
 * }} TabView `link` returns what a link for others has, where that differs from the address
 */

export const DEFAULT_TAB = "train";
const MODEL_KEY = "transformer-playground-subject";
export const ACTIVE_STATUSES = ["waiting", "starting", "training", "paused", "stopping"];

/** The model that this browser opened last; empty without one. */
export const rememberedModel = () => loadText(MODEL_KEY) ?? "";

/** @param {RunSummary[]} runs @param {CheckpointSummary[]} checkpoints @returns {Option[]} */
const buildModelOptions = (runs, checkpoints) => [
  ...runs.map((run) => ({ value: run.subject, label: run.name, group: "Your runs" })),
  ...checkpoints.map((each) => ({
    value: each.subject,
    label: each.name,
    title: each.about,
    group: "Checkpoints",
  })),
];

export class Store {
  constructor() {
    this.owner = signal("");
    /** The token that the user entered in the Hub tab. */
    this.hubToken = signal("");
    this.runs = signal(/** @type {RunSummary[]} */ ([]));
    this.checkpoints = signal(/** @type {CheckpointSummary[]} */ ([]));
    /** Runs that can be restored for some minutes. */
    this.deletedRuns = signal(/** @type {RunSummary[]} */ ([]));
    /** The notes of the server about its storage and device, and its number of training slots. */
    this.server = signal({ storage_message: "", device: "", note: "", slots: 0, now: 0 });
    /** The error of the last request for the runs; empty after a response. */
    this.connectionError = signal("");
    this.tab = signal(/** @type {string | null} */ (null));
    /** What each tab adds to the address. */
    this.views = signal(/** @type {Record<string, TabView>} */ ({}));
    this.model = signal(/** @type {ModelRef | null} */ (null));
    /** The step to show; null for the latest. */
    this.step = signal(/** @type {number | null} */ (null));
    /** Whether the recorded steps are being played. */
    this.isPlaying = signal(false);
    /** The typed sequence; null for the one that the model suggests. */
    this.input = signal(/** @type {string | null} */ (null));
    this.suggestedInput = signal("3 1 4 1 5");
    /** The steps of the model with stored weights; one or none without a history. */
    this.weightSteps = signal(/** @type {number[]} */ ([]));
    /** Of the stored weights; null if the page cannot run the model, undefined until known. */
    this.weightSeries = signal(/** @type {number | null | undefined} */ (undefined));
    /** The last training step of the model. */
    this.latestStep = signal(0);
    this.modelName = signal("");
    /** Why the user may not see examples of the model or use it; empty if they may. */
    this.privacy = signal("");
    /** Whether the model cannot read the typed sequence. */
    this.isInputInvalid = signal(false);
    /** The model for which the sequence was typed. @type {ModelRef | null} */
    this.inputModel = null;
    /** The sequence for all tabs. */
    this.sequence = computed(() => this.input.value ?? this.suggestedInput.value);
    /** How many commands the server has executed for this page, and how many it executes. */
    this.commandCount = 0;
    this.pendingCommands = 0;
    this.wakeModels = () => {}; // polls the lists at once
    /** The runs that lists show: those of the user, and the open one. */
    this.listedRuns = computed(() =>
      this.runs.value.filter((run) => run.subject === this.model.value || run.origin === "user"),
    );
    /** The `aria-live` of values of the model: while it trains, they change by themselves. */
    this.liveness = computed(() => {
      const model = this.find(this.model.value);
      return model && "status" in model && model.status === "training" ? "off" : "polite";
    });
    this.models = computed(() => buildModelOptions(this.listedRuns.value, this.checkpoints.value));
  }

  /** Return the run or checkpoint of a model reference. @param {ModelRef | null} ref */
  find(ref) {
    return (
      this.runs.value.find((each) => each.subject === ref) ??
      this.checkpoints.value.find((each) => each.subject === ref) ??
      null
    );
  }

  /**
   * Send a command that changes the lists. Responses to older requests for the lists are dropped,
   * because they have the state before the command.
   * @template T
   * @param {() => Promise<T>} send @returns {Promise<T>}
   */
  async runCommand(send) {
    this.pendingCommands += 1;
    try {
      return await send();
    } finally {
      this.pendingCommands -= 1;
      this.commandCount += 1;
      this.wakeModels();
    }
  }

  /** @param {number} sentAfter the number of executed commands when the request was sent */
  isOutdated(sentAfter) {
    return this.pendingCommands > 0 || sentAfter !== this.commandCount;
  }

  /** Null if it is outdated. @param {(route: string, payload: object) => Promise<any>} [send] */
  async loadModels(send = request) {
    const sentAfter = this.commandCount,
      response = await send("runs/list", { owner: this.owner.value });
    if (this.isOutdated(sentAfter)) return null;
    this.setModels(response);
    return response;
  }

  /** Replace the lists by a response of `runs/list`. @param {RunList} response */
  setModels(response) {
    const { runs, checkpoints, ...server } = response,
      isDeleted = (/** @type {RunSummary} */ run) => run.deleted;
    batch(() => {
      this.connectionError.value = "";
      setIfChanged(
        this.runs,
        runs.filter((run) => !isDeleted(run)),
      );
      setIfChanged(this.deletedRuns, runs.filter(isDeleted));
      setIfChanged(this.checkpoints, checkpoints);
      this.server.value = server;
    });
  }

  /** Open a model in all tabs. @param {ModelRef} ref @param {number | null} [step] */
  openModel(ref, step = null) {
    batch(() => {
      if (ref !== this.model.value) {
        this.weightSteps.value = [];
        this.weightSeries.value = undefined;
        this.latestStep.value = 0;
        this.modelName.value = "";
      }
      this.model.value = ref;
      this.step.value = step;
    });
    if (!ref.startsWith("watch:")) saveText(MODEL_KEY, ref);
  }

  /** Set the sequence for all tabs; that of the model is not stored. @param {string} text */
  setInput(text) {
    this.inputModel = this.model.value;
    this.input.value = text === this.suggestedInput.value ? null : text;
  }

  /** Apply the address of the page. One without a model keeps the open one. */
  readAddress(search = location.search) {
    const state = readViewState(search);
    batch(() => {
      this.tab.value = state.tab;
      this.views.peek()[state.tab ?? DEFAULT_TAB]?.apply(new URLSearchParams(search));
      if (state.model) this.openModel(state.model, state.step);
      this.step.value = state.step;
      this.input.value = state.input;
      this.inputModel = this.model.value;
    });
  }

  /** Or the remembered one, or else any. @param {ModelRef} defaultRef */
  openRememberedModel(defaultRef) {
    const refs = this.models.value.map((option) => option.value);
    const ref = [rememberedModel(), defaultRef].find((each) => refs.includes(each)) ?? refs[0];
    if (ref) this.openModel(ref, this.step.value);
  }

  /** Connect the state of a tab with the address. @param {string} tab @param {TabView} view */
  addView(tab, view) {
    const held = this.views.peek()[tab]?.read(),
      isLinked = (readViewState(location.search).tab ?? DEFAULT_TAB) === tab;
    if (held) view.apply(toSearchParams(held));
    else if (isLinked) view.apply(new URLSearchParams(location.search));
    this.views.value = { ...this.views.peek(), [tab]: view };
  }

  /**
   * Open a tab, with a model, its step, a sequence, and parameters of the tab.
   * @param {string} tab
   * @param {{ model?: ModelRef, step?: number | null, input?: string } & Params} state
   */
  open(tab, { model, step = null, input, ...params }) {
    batch(() => {
      if (model) this.openModel(model, step);
      if (input) this.setInput(input);
      const view = this.views.peek()[tab];
      if (view) view.apply(toSearchParams({ ...view.read(), ...params }));
      // until its modules are loaded
      else this.views.value = { ...this.views.peek(), [tab]: { read: () => params, apply() {} } };
      this.tab.value = tab;
    });
  }

  /** The parameters of the open tab. */
  readView() {
    return this.views.value[this.tab.value ?? DEFAULT_TAB]?.read() ?? {};
  }

  /** Return the address of the page with the current state. */
  buildAddress(href = location.href) {
    const others = Object.values(this.views.value).flatMap(({ read }) => Object.keys(read()));
    return writeParams(href, {
      ...Object.fromEntries(others.map((name) => [name, null])),
      ...this.readView(),
      tab: this.tab.value,
      model: this.model.value,
      step: this.step.value,
      input: this.input.value,
    });
  }

  /** Return a link to what the page shows, with other parameters. @param {Params} params */
  buildLink(params) {
    return writeParams(this.buildAddress(location.origin + location.pathname), {
      ...(params.model === null ? { step: null, input: null } : {}),
      ...params,
    });
  }

  /** Return a link that opens what the open tab shows, without the user's own models. */
  buildViewLink() {
    const { link } = this.views.value[this.tab.value ?? DEFAULT_TAB] ?? {};
    return this.buildLink({ model: null, ...link?.() });
  }

  /**
   * Poll the lists of runs and checkpoints.
   * @param {Pick<Subscription, "intervalMs" | "hiddenIntervalMs">} intervals
   * @param {Pick<Poller, "subscribe">} [poller]
   */
  subscribeToModels(intervals, poller = pagePoller) {
    let sentAfter = 0;
    this.wakeModels = poller.subscribe({
      route: "runs/list",
      payload: () => {
        sentAfter = this.commandCount;
        return this.owner.value ? { owner: this.owner.value } : null;
      },
      ...intervals,
      onData: (response) => !this.isOutdated(sentAfter) && this.setModels(response),
      onError: (error) => {
        this.connectionError.value = error.message;
      },
    }).wake;
  }
}

/**
 * Keep the old value of an equal list, so that nothing is drawn again.
 * @template T
 * @param {{ value: T, peek: () => T }} target @param {T} value
 */
function setIfChanged(target, value) {
  if (JSON.stringify(target.peek()) !== JSON.stringify(value)) target.value = value;
}

/** @param {Params} params */
const toSearchParams = (params) =>
  new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null));

/** Ties take the later one. @param {ArrayLike<number>} sorted @param {number} target */
export function nearestIndex(sorted, target) {
  let low = 0,
    high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sorted[middle] <= target) low = middle;
    else high = middle - 1;
  }
  const isNextNearer = sorted[low + 1] - target <= Math.abs(target - sorted[low]);
  return isNextNearer ? low + 1 : low;
}

export const store = new Store();
