// Workers of the engine in this process, each with a copy of worker.js in the global scope.
import { AsyncLocalStorage } from "node:async_hooks";

const WORKER = "../../../playground/ui/static/shared/model_worker.js",
  answering = new AsyncLocalStorage();
let loading = /** @type {Promise<any>} */ (Promise.resolve()),
  count = 0;
Object.assign(globalThis, {
  onmessage: null,
  postMessage(/** @type {any} */ data) {
    const worker = /** @type {any} */ (answering.getStore());
    setTimeout(() => worker.onmessage({ data }));
  },
  Worker: class {
    constructor() {
      this.ready = loading = loading.then(async () => {
        await import(`${WORKER}?${++count}`);
        return globalThis.onmessage;
      });
    }
    /** @param {any} data */
    async postMessage(data) {
      const copy = structuredClone(data),
        handle = await this.ready;
      setTimeout(() => answering.run(this, () => handle({ data: copy })));
    }
  },
});
