import { useLayoutEffect, useRef } from "../../vendor/preact.js";
import { onThemeChange } from "../palette.js";

/**
 * Return the reference of a canvas. It is painted when an input, its size or the theme changes.
 * @param {(canvas: HTMLCanvasElement) => void} paint
 * @param {unknown[]} inputs
 */
export function useCanvas(paint, inputs) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null)),
    latest = useRef(paint);
  latest.current = paint;
  const repaint = () => latest.current(/** @type {HTMLCanvasElement} */ (ref.current));
  useLayoutEffect(repaint, inputs);
  useLayoutEffect(() => {
    const resize = new ResizeObserver(repaint),
      stop = onThemeChange(repaint);
    resize.observe(/** @type {HTMLCanvasElement} */ (ref.current));
    return () => {
      resize.disconnect();
      stop();
    };
  }, []);
  return ref;
}
