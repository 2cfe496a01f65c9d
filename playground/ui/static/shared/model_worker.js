// The Worker of the page. It has one model, and answers [id, method, ...] with [id, result] or
// [id, null, problem].
import { BrowserModel } from "./browser_model.js";

const REPORT_MS = 100; // between two counts that the page gets

let model = /** @type {any} */ (null),
  nCalls = 0;

onmessage = async ({ data: [id, method, ...args] }) => {
  nCalls++;
  try {
    if (method === "load") model = new BrowserModel(args[0], args[1]);
    if (method === "load") postMessage([id, null]);
    else postMessage([id, await (method === "count" ? count(args) : model[method](...args))]);
  } catch (error) {
    const isUnsupported = method === "load" && error instanceof RangeError;
    postMessage([id, null, { isUnsupported, message: /** @type {Error} */ (error).message }]);
  }
};

/**
 * Count in pieces until it is time to report, or another call has come.
 * @param {any[]} args of the model's method
 */
async function count([from, to, ...args]) {
  const call = nCalls,
    end = performance.now() + REPORT_MS,
    sum = model.count(from, to, ...args);
  while (sum.next < to && performance.now() < end) {
    await nextTask();
    if (call !== nCalls) break;
    const { next, ...counts } = model.count(sum.next, to, ...args);
    for (const [name, value] of Object.entries(counts)) sum[name] += value;
    sum.next = next;
  }
  return sum;
}

/** Messages that wait come first. A timeout would add 4 ms to each piece. */
const nextTask = () =>
  new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve(null);
    };
    port2.postMessage(null);
  });
