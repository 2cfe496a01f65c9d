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
// Set a text; an unchanged text causes no mutation. Returns the element.
export function setText(box, text) {
  const node = box.firstChild;
  // The text node stays, so that nothing is added or removed.
  if (box.childNodes.length === 1 && node.nodeType === Node.TEXT_NODE) {
    if (node.data !== text) node.data = text;
  } else if (box.textContent !== text) box.textContent = text;
  return box;
}
export function setVisible(box, yes) {
  box.hidden = !yes;
}
