import { createView } from "../shared/view.js";

const view = createView("live pg", [
  new URL("./form.css", import.meta.url),
  new URL("./live.css", import.meta.url),
  new URL("./diagram/diagram.css", import.meta.url),
]);

export const { addViewListener, attach, loadStyles, onResizeOrThemeChange, root } = view;
/** Return the first element of the view that matches. @type {(selector: string) => any} */
export const $ = view.$;
