// Elements and files.
export function el(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
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
