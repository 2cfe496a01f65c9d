// A document without a browser. It has no layout, so elements have the size that a test gives them,
// and a canvas records what is drawn.
import { Window } from "happy-dom";

const window = new Window({ url: "https://example.org/space/?__theme=light" });
const CANVAS_WIDTH = 300;

class ObserverStub {
  observe() {}
  disconnect() {}
}

for (const name of [
  "document",
  "localStorage",
  "location",
  "history",
  "CustomEvent",
  "DOMParser",
  "Event",
  "KeyboardEvent",
  "MouseEvent",
  "Element",
  "HTMLElement",
  "HTMLFormElement",
  "MutationObserver",
  "Node",
])
  globalThis[name] = window[name];
Object.assign(globalThis, {
  window,
  Path2D: class {
    addPath() {}
    arc() {}
    closePath() {}
    lineTo() {}
    moveTo() {}
    rect() {}
  },
  ResizeObserver: ObserverStub,
  devicePixelRatio: 1,
  getComputedStyle: window.getComputedStyle.bind(window),
  matchMedia: () => ({ matches: false, addEventListener() {}, removeEventListener() {} }),
  requestAnimationFrame: (callback) => setTimeout(callback, 0),
  cancelAnimationFrame: clearTimeout,
});
Object.assign(window, { devicePixelRatio: 1, matchMedia: globalThis.matchMedia });
Object.defineProperty(globalThis, "navigator", { value: window.navigator, configurable: true });

/** The calls of all canvases, as [name of the method, arguments]. */
export const canvasCalls = [];
const contexts = new WeakMap();

function makeContext(canvas) {
  const own = { canvas };
  return new Proxy(own, {
    get(target, name) {
      if (name in target) return target[name];
      return (...args) => {
        canvasCalls.push([name, args]);
        if (name === "measureText") return { width: 7 * String(args[0]).length };
        if (name === "createImageData")
          return { data: new Uint8ClampedArray(4 * args[0] * args[1]) };
        return undefined;
      };
    },
    set(target, name, value) {
      target[name] = value;
      return true;
    },
  });
}
window.HTMLCanvasElement.prototype.getContext = function getContext() {
  if (!contexts.has(this)) contexts.set(this, makeContext(this));
  return contexts.get(this);
};
window.HTMLCanvasElement.prototype.toBlob = function toBlob(callback, type) {
  callback(new Blob(["picture"], { type }));
};
for (const [name, size] of Object.entries({ clientWidth: CANVAS_WIDTH, clientHeight: 100 }))
  Object.defineProperty(window.HTMLElement.prototype, name, {
    configurable: true,
    get: () => size,
  });

/** Return an empty element in the document. */
export function makeBox() {
  const box = document.createElement("div");
  document.body.replaceChildren(box);
  return box;
}

/** Wait until Preact and uPlot have drawn: some rounds of tasks. */
export async function settle() {
  for (let i = 0; i < 6; i++) await new Promise((resolve) => setTimeout(resolve, 0));
}

/** Send a key to an element. */
export const press = (element, key) =>
  element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));

/** Enter a value into a control, as a user does. */
export function enter(control, value) {
  if (control.type === "checkbox") control.checked = value;
  else control.value = value;
  control.dispatchEvent(new Event("input", { bubbles: true }));
  control.dispatchEvent(new Event("change", { bubbles: true }));
}
