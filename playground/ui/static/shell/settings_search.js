// The search field of the settings, whose fields Gradio builds.
const fieldsOf = (/** @type {Element} */ panel) => panel.querySelectorAll("[id^=field-]");

/**
 * Show the fields whose name, label or help contains all words.
 * @param {Element} panel
 * @param {string} text
 */
export function filterSettings(panel, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const field of fieldsOf(panel)) {
    const content = (field.id + " " + field.textContent).toLowerCase();
    field.classList.toggle("no-match", !words.every((word) => content.includes(word)));
  }
}

export function initSettingsSearch() {
  document.addEventListener("input", (/** @type {any} */ { target }) => {
    const panel = document.querySelector("#advanced");
    if (panel && target.closest("#settings-search")) filterSettings(panel, target.value);
  });
  document.addEventListener("keydown", (event) => {
    const title = /** @type {HTMLElement | null} */ (
      document.querySelector("#advanced > button.open")
    );
    // Escape closes an open list of choices first.
    if (!title || event.key !== "Escape" || document.querySelector("ul[role=listbox]")) return;
    title.click();
    title.focus();
  });
}
