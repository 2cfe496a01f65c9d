// Workers of the engine in this process, each with a copy of worker.js in the global scope.
const WORKER = "../../../playground/ui/static/shared/model_worker.js";
let loading = /** @type {Promise<any>} */ (Promise.resolve()),
  count = 0,
  answering = /** @type {any} */ (null);
Object.assign(globalThis, {
  onmessage: null,
  postMessage(/** @type {any} */ data) {
    const worker = answering;
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
      setTimeout(() => {
        answering = this;
        handle({ data: copy });
      });
    }
  },
});
