// The skip link, and the switch between the themes of Gradio.
import { loadText, saveText } from "../shared/storage.js";

const THEME_KEY = "transformer-playground-theme";

/** @param {string} theme */
function setTheme(theme) {
  document.body.classList.toggle("dark", theme === "dark");
  const button = document.querySelector(".theme-switch");
  button?.setAttribute("aria-pressed", String(theme === "dark"));
}

/** @param {string} selector */
function findVisible(selector) {
  /** @type {NodeListOf<HTMLElement>} */
  const elements = document.querySelectorAll(selector);
  return [...elements].filter((each) => each.offsetParent);
}

/** Focus the button that trains, if it is visible, or the panel of the selected tab. */
export function initSkipLink() {
  document.querySelector(".skip-link")?.addEventListener("click", (event) => {
    event.preventDefault();
    const [button] = findVisible("#train, #pause, #resume"),
      [panel] = findVisible("#tabs > [role=tabpanel]");
    if (panel) panel.tabIndex = -1; // so that it can have the focus
    (button ?? panel)?.focus();
  });
}

export function initThemeSwitch() {
  const button = document.querySelector(".theme-switch"),
    linkTheme = new URLSearchParams(location.search).get("__theme"),
    isDark = document.body.classList.contains("dark");
  if (!button) return;
  setTheme(linkTheme || loadText(THEME_KEY) || (isDark ? "dark" : "light"));
  button.addEventListener("click", () => {
    const theme = document.body.classList.contains("dark") ? "light" : "dark";
    setTheme(theme);
    saveText(THEME_KEY, theme);
  });
}
