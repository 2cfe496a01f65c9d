import { createView } from "../shared/view.js";
import template from "./template.js";

export const { $, addViewListener, attach, onResizeOrThemeChange, root } = createView(template, [
  new URL("./inspect.css", import.meta.url),
  new URL("./analysis.css", import.meta.url),
  new URL("./tensors.css", import.meta.url),
]);
