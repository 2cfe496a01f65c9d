// Arrow keys between the heads of a diagram.
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
/** Move between the heads below `root` with the arrow keys, in the order of the picture. */
export function moveFocus(event, root) {
  const direction = DIRECTIONS[event.key],
    button = event.target.closest(".head");
  if (!direction || !button) return;
  event.preventDefault();
  const from = center(button),
    [dx, dy] = direction;
  let best = /** @type {any} */ (null),
    bestDistance = Infinity;
  for (const other of root.querySelectorAll(".head")) {
    const to = center(other),
      along = (to.x - from.x) * dx + (to.y - from.y) * dy,
      across = Math.abs((to.x - from.x) * dy) + Math.abs((to.y - from.y) * dx);
    if (along > 2 && along + 3 * across < bestDistance) {
      bestDistance = along + 3 * across;
      best = other;
    }
  }
  if (!best) return;
  best.focus();
  best.click();
}

function center(element) {
  const box = element.getBoundingClientRect();
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}
