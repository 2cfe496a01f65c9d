import { createView } from "../shared/view.js";

const view = createView("live pg");

export const { addViewListener, attach, onResizeOrThemeChange, root } = view;
/** Return the first element of the view that matches. @type {(selector: string) => any} */
export const $ = view.$;
