// The buttons of the API page that copy its code.
const CONFIRMATION_MS = 1500;

async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return "Copied";
  } catch {
    // without HTTPS a browser has no clipboard, so the user copies the selection
    getSelection().selectAllChildren(code);
    return "Selected";
  }
}

for (const button of document.querySelectorAll(".code button")) {
  const label = button.firstElementChild;
  button.addEventListener("click", async () => {
    label.textContent = await copy(button.parentElement.querySelector("code"));
    setTimeout(() => (label.textContent = "Copy"), CONFIRMATION_MS);
  });
}
