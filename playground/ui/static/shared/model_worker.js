// The Worker of the page. It has one model, and answers [id, method, ...] with [id, result] or
// [id, null, problem].
import { BrowserModel } from "./browser_model.js";

let model = /** @type {any} */ (null);

onmessage = ({ data: [id, method, ...args] }) => {
  try {
    if (method === "load") model = new BrowserModel(args[0], args[1]);
    postMessage([id, method === "load" ? null : model[method](...args)]);
  } catch (error) {
    const isUnsupported = method === "load" && error instanceof RangeError;
    postMessage([id, null, { isUnsupported, message: /** @type {Error} */ (error).message }]);
  }
};
