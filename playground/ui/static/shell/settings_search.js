// The search field of the settings, whose fields Gradio builds.
const fieldsOf = (panel) => panel.querySelectorAll("[id^=field-]");

/** Show the fields whose name, label or help contains all words. */
export function filterSettings(panel, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const field of fieldsOf(panel)) {
    const content = (field.id + " " + field.textContent).toLowerCase();
    field.classList.toggle("no-match", !words.every((word) => content.includes(word)));
  }
}

export function initSettingsSearch() {
  document.addEventListener("input", (event) => {
    const box = event.target.closest("#settings-search"),
      panel = document.querySelector("#advanced");
    if (box && panel) filterSettings(panel, event.target.value);
  });
}
