import { createView } from "../shared/view.js";

export const { attach, onResizeOrThemeChange, root } = createView("inspect pg", [
  new URL("./inspect.css", import.meta.url),
  new URL("./analysis.css", import.meta.url),
  new URL("./tensors.css", import.meta.url),
]);
export const isVisible = () => Boolean(root.offsetParent);
