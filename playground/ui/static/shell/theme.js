// The skip link, and the switch between the light and the dark theme.
import { saveText } from "../shared/storage.js";

const THEME_KEY = "transformer-playground-theme"; // first.js reads it

/** @param {string} selector */
function findVisible(selector) {
  /** @type {NodeListOf<HTMLElement>} */
  const elements = document.querySelectorAll(selector);
  return [...elements].find((each) => each.offsetParent);
}

/** Focus the button that trains, if it is visible, or the panel of the selected tab. */
export function initSkipLink() {
  document.querySelector(".skip-link")?.addEventListener("click", (event) => {
    event.preventDefault();
    (findVisible("#train, #pause, #resume") ?? findVisible("#panels > [role=tabpanel]"))?.focus();
  });
}

export function initThemeSwitch() {
  const button = document.querySelector(".theme-switch"),
    { classList } = document.documentElement;
  const showState = () => button?.setAttribute("aria-pressed", String(classList.contains("dark")));
  showState();
  button?.addEventListener("click", () => {
    saveText(THEME_KEY, classList.toggle("dark") ? "dark" : "light");
    showState();
  });
}
