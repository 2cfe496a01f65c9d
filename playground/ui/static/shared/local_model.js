// A model in the browser: a Worker runs the engine on the weights of a step.
import { signal } from "../vendor/preact.js";
import { download, request } from "./api.js";
import { store } from "./store.js";
/** @import { ModelDescription } from "./responses.js" */
/**
 * Stored weights, as their URL names them, and what the Worker has of them.
 * @typedef {{ subject: string, step: number, series_id: number }} Weights
 * @typedef {{ error?: string, step: number, nParameters: number,
 *   components: import("../engine/types.js").Component[], description: ModelDescription }} Loaded
 */

const BYTES_PER_PARAMETER = 4;
const NO_WEIGHTS = { key: "", weights: /** @type {Weights | null} */ (null) };

/** A model that the browser cannot run although it should. */
export const unsupported = signal("");

/** A failure of the Worker. */
class WorkerError extends Error {
  /** @param {string} message @param {boolean} [isUnsupported] whether the engine lacks the model */
  constructor(message, isUnsupported = false) {
    super(`the model does not run in this browser (${message}); reload the page`);
    this.isUnsupported = isUnsupported;
  }
}

/** The description of a model, once. */
let described = { subject: "", ready: Promise.resolve(/** @type {any} */ (null)) };

/** @param {string} subject */
function describe(subject) {
  if (described.subject !== subject)
    described = { subject, ready: request("runs/model", { owner: store.owner.value, subject }) };
  return described.ready;
}

export class LocalModel {
  constructor() {
    this.worker = /** @type {Worker | null} */ (null);
    this.lastId = 0;
    /** @type {Map<number, { resolve: (result: any) => void, reject: (error: Error) => void }>} */
    this.calls = new Map();
    /** The weights that the Worker has, or will have. */
    this.current = NO_WEIGHTS;
    this.ready = Promise.resolve(/** @type {any} */ (null));
  }

  /** Call a method of the model in the Worker. @param {string} method @param {any[]} args */
  call(method, ...args) {
    this.worker ??= this.startWorker();
    return new Promise((resolve, reject) => {
      this.calls.set(++this.lastId, { resolve, reject });
      this.worker?.postMessage([this.lastId, method, ...args]);
    });
  }

  startWorker() {
    const started = new Worker(new URL("./model_worker.js", import.meta.url), { type: "module" });
    started.onmessage = ({ data: [id, result, problem] }) => {
      const { resolve, reject } = /** @type {any} */ (this.calls.get(id));
      this.calls.delete(id);
      if (problem) reject(new WorkerError(problem.message, problem.isUnsupported));
      else resolve(result);
    };
    started.onerror = () => {
      for (const { reject } of this.calls.values())
        reject(new WorkerError("its program could not be loaded"));
      this.calls.clear();
      this.worker = null;
      this.current = NO_WEIGHTS;
    };
    return started;
  }

  /** Return whether the Worker has weights, or will have them. @param {Weights | null} weights */
  has(weights) {
    return this.current.key === JSON.stringify(weights);
  }

  /** Unless the Worker has them. @param {Weights} weights @returns {Promise<Loaded>} */
  load(weights) {
    if (!this.has(weights)) {
      this.current = { key: JSON.stringify(weights), weights };
      this.ready = this.fetch(weights);
      const forget = () => {
        if (this.has(weights)) this.current = NO_WEIGHTS;
        described.subject = "";
      };
      this.ready.then(({ error }) => error && forget(), forget);
    }
    return this.ready;
  }

  /**
   * Load weights and compute with them. Return null for a model that the engine lacks, and else the
   * error of the Worker. One of the network is thrown, so that the request is sent again.
   * @param {Weights} weights @param {(loaded: Loaded) => Promise<any>} compute
   */
  async use(weights, compute) {
    try {
      const loaded = await this.load(weights);
      return loaded.error ? loaded : await compute(loaded);
    } catch (error) {
      if (!(error instanceof WorkerError)) throw error;
      if (!error.isUnsupported) return { error: error.message };
      unsupported.value = weights.subject;
      return null;
    }
  }

  /** @param {Weights} weights */
  async fetch(weights) {
    const [description, file] = await Promise.all([
        describe(weights.subject),
        download("weights", weights, { "X-Owner": store.owner.value }),
      ]),
      failed = [description, file].find((each) => each.error);
    if (failed) return failed;
    if (!this.has(weights)) return this.ready; // newer weights
    await this.call("load", description, file.bytes);
    const components = await this.call("components");
    return {
      components,
      step: Number(file.headers.get("X-Step")),
      nParameters: file.bytes.byteLength / BYTES_PER_PARAMETER,
      description,
    };
  }

  /**
   * Count the right examples and tokens with components switched off, in pieces between other
   * calls. Return null once the Worker has other weights, or `canContinue` returns false for the
   * count so far.
   * @param {number} n of examples @param {import("../engine/types.js").Component[]} off
   * @param {string} method @param {(right: number, measured: number) => boolean} [canContinue]
   * @param {number} [nMeans] examples of the means
   */
  async count(n, off, method, canContinue = () => true, nMeans = undefined) {
    const { key } = this.current;
    let right = 0,
      tokens = 0,
      logProbability = 0;
    for (let at = 0; at < n;) {
      const piece = await this.call("count", at, n, off, method, nMeans);
      right += piece.right;
      tokens += piece.tokens;
      logProbability += piece.logProbability;
      at = piece.next;
      if (key !== this.current.key || !canContinue(right, at)) return null;
    }
    return { right, tokens, logProbability };
  }
}
