// A Worker of the engine in this process: the scope of worker.js is the global one.
/** @type {any} */
let page = null;
Object.assign(globalThis, {
  onmessage: null,
  postMessage: (/** @type {any} */ data) => setTimeout(() => page.onmessage({ data })),
  Worker: class {
    constructor() {
      page = this;
    }
    /** @param {any} data */
    postMessage(data) {
      setTimeout(() => /** @type {any} */ (globalThis).onmessage({ data: structuredClone(data) }));
    }
  },
});
await import("../../../playground/ui/static/engine/worker.js");
