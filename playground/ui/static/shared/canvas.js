// Functions for every canvas.
export const cssVariable = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
export function setUpCanvas(canvas, height) {
  const ratio = devicePixelRatio || 1,
    width = canvas.clientWidth;
  if (height) canvas.style.height = height + "px";
  height = height || canvas.clientHeight;
  const w = Math.round(width * ratio),
    h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  return [c, width, height];
}

// A perceptually uniform ramp from background to text colour, the same in all views and readable
// without colour vision.
export const COLOR_SCALES = {
  light: [
    [255, 255, 255],
    [214, 230, 244],
    [150, 197, 226],
    [74, 146, 199],
    [24, 90, 160],
    [8, 42, 92],
  ],
  dark: [
    [24, 27, 33],
    [24, 52, 84],
    [36, 94, 146],
    [82, 150, 204],
    [158, 204, 238],
    [240, 249, 255],
  ],
};
// The ramp as red, green and blue for 0 to 1000 thousandths, cached for light and for dark.
export const colorTables = {};
export function colorTable() {
  const theme = document.body.classList.contains("dark") ? "dark" : "light",
    stops = COLOR_SCALES[theme];
  return (colorTables[theme] ||= Array.from({ length: 1001 }, (_, thousandths) => {
    const at = (thousandths / 1000) * (stops.length - 1),
      i = Math.min(stops.length - 2, Math.floor(at)),
      t = at - i;
    return stops[i].map((a, k) => Math.round(a + (stops[i + 1][k] - a) * t));
  }));
}
export const scaleColor = (thousandths) =>
  "rgb(" + colorTable()[Math.max(0, Math.min(1000, Math.round(thousandths)))].join() + ")";
