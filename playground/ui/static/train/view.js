import { createView } from "../shared/view.js";
import template from "./template.js";

export const { $, addViewListener, attach, gradio, onResizeOrThemeChange, root } = createView(
  template,
  [new URL("./live.css", import.meta.url), new URL("./diagram/diagram.css", import.meta.url)],
);
