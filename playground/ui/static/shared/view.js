// The element of a tab in its panel.

/**
 * @param {string} tag @param {Record<string, any>} [properties] @param {(Node | string)[]} children
 * @returns {any}
 */
export function el(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

const stylesheets = new Map(); // URL -> a promise of its load event
/** Load a stylesheet that the page has not from the start. @param {URL} url */
export function loadStylesheet(url) {
  if (!stylesheets.has(url.href))
    stylesheets.set(
      url.href,
      new Promise((resolve) => {
        const link = el("link", { rel: "stylesheet", href: url.href });
        for (const kind of ["load", "error"]) link.addEventListener(kind, resolve);
        document.head.append(link);
      }),
    );
  return stylesheets.get(url.href);
}
/** Return an element with these classes. @param {string} className @param {URL[]} [styleUrls] */
export function createView(className, styleUrls = []) {
  const root = el("div", { className });
  /** Show the view in an element, once its styles are loaded. @param {Element} element */
  async function attach(element) {
    await Promise.all(styleUrls.map(loadStylesheet));
    element.replaceChildren(root);
  }
  return { root, attach };
}
// The address of the whole page with what an embedded view shows.
export function wholePageUrl() {
  const query = new URLSearchParams(location.search);
  query.delete("embed");
  query.delete("__theme");
  return location.origin + location.pathname + "?" + query;
}
