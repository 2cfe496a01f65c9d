import { createView } from "../shared/view.js";
import template from "./template.js";

export const { $, attach, onResizeOrThemeChange, root } = createView(template, [
  new URL("./lab.css", import.meta.url),
]);
