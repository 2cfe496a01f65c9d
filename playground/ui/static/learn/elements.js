import { el } from "../shared/dom.js";

export const formatShare = (x) =>
  x === 1 ? "100 %" : +Math.min(99.9, 100 * x).toPrecision(3) + " %";
export const createButton = (text, act, title = "", className = "quiet") => {
  const made = el("button", { type: "button", className, textContent: text, title });
  made.addEventListener("click", act);
  return made;
};
export const createParagraph = (text, className = "") => el("p", { className, textContent: text });
