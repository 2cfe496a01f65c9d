import { createView } from "../shared/view.js";
import template from "./template.js";

export const { $, addViewListener, attach, onResizeOrThemeChange, root } = createView(template, [
  new URL("./compare.css", import.meta.url),
]);
