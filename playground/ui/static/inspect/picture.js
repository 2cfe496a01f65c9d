// A picture of an element as the page displays it.

const PADDING = 20,
  HEADER = 64;

/** Whether a color or style draws something. @param {string} color */
const isPaint = (color) => color !== "none" && !/^rgba\(.*, 0\)$/.test(color);

/** @param {CanvasRenderingContext2D} ctx @param {CSSStyleDeclaration} style */
function setFont(ctx, style, zoom = 1) {
  const size = parseFloat(style.fontSize) * zoom;
  ctx.font = `${style.fontWeight} ${size}px ${style.fontFamily}`;
  ctx.fillStyle = style.fill && style.fill !== "rgb(0, 0, 0)" ? style.fill : style.color;
  ctx.textBaseline = "middle";
}

/** Draw a text upwards around the center of a box. */
function paintVertical(ctx, text, { left, top, width, height }) {
  ctx.save();
  ctx.translate(left + width / 2, top + height / 2);
  ctx.rotate(-Math.PI / 2);
  ctx.textAlign = "center";
  ctx.fillText(text, 0, 0);
  ctx.restore();
}

/** Draw each word of a text, or its parts at a hyphen, where the page has it. @param {Text} node */
function paintText(ctx, node) {
  const parent = /** @type {Element} */ (node.parentElement),
    style = getComputedStyle(parent);
  setFont(ctx, style);
  if (style.writingMode.startsWith("vertical"))
    return paintVertical(ctx, parent.textContent.trim(), parent.getBoundingClientRect());
  const range = document.createRange();
  for (const { 0: word, index } of node.data.matchAll(/-?[^\s-]+-?|-/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const box = range.getBoundingClientRect();
    if (box.width) ctx.fillText(word, box.left, box.top + box.height / 2);
  }
}

/** @param {SVGGraphicsElement} shape a path, a rectangle or a text */
function paintShape(ctx, shape) {
  const style = getComputedStyle(shape),
    matrix = /** @type {DOMMatrix} */ (shape.getScreenCTM());
  if (shape.tagName === "text") {
    const box = shape.getBoundingClientRect(),
      text = shape.textContent.trim();
    setFont(ctx, style, Math.hypot(matrix.a, matrix.b));
    ctx.save();
    ctx.translate(box.left + box.width / 2, box.top + box.height / 2);
    ctx.rotate(Math.atan2(matrix.b, matrix.a));
    ctx.textAlign = "center";
    ctx.fillText(text, 0, 0);
    ctx.restore();
    return;
  }
  const path = new Path2D(shape.tagName === "path" ? (shape.getAttribute("d") ?? "") : "");
  if (shape instanceof SVGRectElement) {
    const [x, y, width, height, radius] = ["x", "y", "width", "height", "rx"].map((name) =>
      Number(shape.getAttribute(name)),
    );
    path.roundRect(x, y, width, height, radius);
  }
  ctx.save();
  ctx.transform(matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f);
  ctx.globalAlpha = Number(style.fillOpacity);
  ctx.fillStyle = style.fill;
  if (isPaint(style.fill)) ctx.fill(path);
  ctx.globalAlpha = Number(style.strokeOpacity);
  ctx.strokeStyle = style.stroke;
  ctx.lineWidth = parseFloat(style.strokeWidth);
  ctx.lineCap = /** @type {CanvasLineCap} */ (style.strokeLinecap);
  if (isPaint(style.stroke)) ctx.stroke(path);
  ctx.restore();
}

/** @param {Element} element */
function textOfControl(element) {
  if (element instanceof HTMLSelectElement) return element.selectedOptions[0]?.text;
  const isText = element instanceof HTMLInputElement && /text|number/.test(element.type);
  return isText ? element.value : "";
}

/** Draw the background and the border of an element, or its canvas. @param {Element} element */
function paintBox(ctx, element) {
  const style = getComputedStyle(element),
    { left, top, width, height } = element.getBoundingClientRect();
  if (element instanceof HTMLCanvasElement) {
    if (element.width) ctx.drawImage(element, left, top, width, height);
    ctx.strokeStyle = style.outlineColor;
    ctx.lineWidth = parseFloat(style.outlineWidth);
    if (style.outlineStyle === "solid") ctx.strokeRect(left, top, width, height);
    return;
  }
  ctx.fillStyle = style.backgroundColor;
  if (isPaint(style.backgroundColor)) ctx.fillRect(left, top, width, height);
  ctx.strokeStyle = style.borderTopColor;
  ctx.lineWidth = 1;
  if (parseFloat(style.borderLeftWidth) && parseFloat(style.borderTopWidth))
    ctx.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
  const value = textOfControl(element);
  if (!value) return;
  setFont(ctx, style);
  ctx.fillText(value, left + parseFloat(style.paddingLeft), top + height / 2);
}

/** @param {Element} element */
const isDisplayed = (element) =>
  element.checkVisibility() && !element.closest(".pg-visually-hidden, option, .pg-chart-tools");

/**
 * Return a canvas with an element below a title and a subtitle, in the resolution of the screen.
 * @param {HTMLElement} root
 * @param {string} title
 * @param {string} subtitle
 */
export function renderPicture(root, title, subtitle) {
  const canvas = document.createElement("canvas"),
    ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")),
    ratio = devicePixelRatio || 1,
    { left, top, width, height } = root.getBoundingClientRect(),
    body = getComputedStyle(document.body);
  canvas.width = ratio * (width + 2 * PADDING);
  canvas.height = ratio * (height + HEADER + PADDING);
  ctx.scale(ratio, ratio);
  ctx.fillStyle = body.getPropertyValue("--body-background-fill") || "#fff";
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.textBaseline = "top";
  for (const [text, font, y] of /** @type {const} */ ([
    [title, "600 15px ", 16],
    [subtitle, "12px ", 38],
  ])) {
    ctx.fillStyle = body.getPropertyValue("--body-text-color");
    ctx.font = font + body.fontFamily;
    ctx.fillText(text, PADDING, y);
  }
  ctx.translate(PADDING - left, HEADER - top);
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node instanceof Element ? node : /** @type {Element} */ (node.parentElement);
    if (!isDisplayed(element)) continue;
    if (node instanceof Text) {
      if (!element.closest("svg, select")) paintText(ctx, node);
    } else if (node instanceof SVGElement) {
      if (/^(path|rect|text)$/.test(node.tagName))
        paintShape(ctx, /** @type {SVGGraphicsElement} */ (node));
    } else paintBox(ctx, element);
  }
  return canvas;
}
