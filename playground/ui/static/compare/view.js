import { createView } from "../shared/view.js";

export const { attach, root } = createView("compare pg", [
  new URL("./compare.css", import.meta.url),
  new URL("./experiments/experiments.css", import.meta.url),
]);

/** Scroll to the result of the open form unless it is visible. */
export function showResult() {
  const result = root.querySelector(".main-part"),
    top = result?.getBoundingClientRect().top ?? 0;
  if (top < 0 || top > innerHeight / 2) result?.scrollIntoView();
}
