// Elements and files.
export function el(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}
// Text for screen readers.
export const visuallyHidden = (text) => el("span", { className: "unseen", textContent: text });
// A group of buttons, one of which is pressed.
export function createSegmentedControl(options, selected, onChange, label) {
  const box = el("span", { className: "choice" });
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", label);
  for (const [value, text, title] of options) {
    const button = el("button", { type: "button", textContent: text, title: title || "" });
    button.setAttribute("aria-pressed", String(value === selected));
    button.dataset.value = value;
    button.addEventListener("click", () => {
      setPressed(box, value);
      onChange(value);
    });
    box.append(button);
  }
  return box;
}
export function setPressed(box, value) {
  for (const each of box.children)
    each.setAttribute("aria-pressed", String(each.dataset.value === String(value)));
}
export function downloadBlob(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
export function toCsv(rows) {
  if (!rows.length) return "";
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  // A spreadsheet would evaluate a cell that starts like a formula.
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /^[=+@\t]|^-[^\d.]/.test(text)
      ? "\"'" + text.replaceAll('"', '""') + '"'
      : /[",\n]/.test(text)
        ? '"' + text.replaceAll('"', '""') + '"'
        : text;
  };
  return (
    [keys.join(), ...rows.map((row) => keys.map((key) => cell(row[key])).join())].join("\n") + "\n"
  );
}
// Set a text; an unchanged text causes no mutation. Returns the element.
export function setText(box, text) {
  if (box.textContent !== text) box.textContent = text;
  return box;
}
export function setVisible(box, yes) {
  box.hidden = !yes;
}
