/**
 * Create an element.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {(Node | string)[]} children
 * @returns {any}
 */
export function el(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}
/**
 * Set a text; an unchanged text causes no mutation. Returns the element.
 * @param {any} box
 * @param {string} text
 */
export function setText(box, text) {
  const node = box.firstChild;
  // The text node stays, so that nothing is added or removed.
  if (box.childNodes.length === 1 && node.nodeType === Node.TEXT_NODE) {
    if (node.data !== text) node.data = text;
  } else if (box.textContent !== text) box.textContent = text;
  return box;
}
