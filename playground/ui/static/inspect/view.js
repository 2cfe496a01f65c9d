import { createView } from "../shared/view.js";

export const { addViewListener, attach, onResizeOrThemeChange, root } = createView(
  '<div class="inspect pg"></div>',
  ["./inspect.css", "./analysis.css", "./tensors.css"].map(
    (path) => new URL(path, import.meta.url),
  ),
);
export const isVisible = () => Boolean(root.offsetParent);
