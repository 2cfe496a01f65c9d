import { useEffect, useRef, useState } from "../../vendor/preact.js";
import { onThemeChange } from "../palette.js";

/**
 * Return the reference of a canvas. It is painted when an input, its size or the theme changes, and
 * not while it is hidden.
 * @param {(canvas: HTMLCanvasElement) => void} paint @param {unknown[]} inputs
 * @param {{ current: Element | null }} [box] whose size matters instead of that of the canvas
 */
export function useCanvas(paint, inputs, box) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null)),
    latest = useRef(paint);
  latest.current = paint;
  const repaint = () => {
    if (ref.current?.clientWidth) latest.current(ref.current);
  };
  useEffect(repaint, inputs);
  useEffect(() => {
    const resize = new ResizeObserver(repaint),
      stop = onThemeChange(repaint);
    resize.observe(/** @type {Element} */ ((box ?? ref).current));
    return () => {
      resize.disconnect();
      stop();
    };
  }, []);
  return ref;
}

let count = 0;

/** An id of one component. Preact's own ids repeat when several tabs are in one page. */
export function useUniqueId() {
  const [id] = useState(() => `pg-${++count}`);
  return id;
}
