import { setUpCanvas } from "../shared/canvas.js";
import { cssVariable } from "../shared/palette.js";
import { formatNumber } from "../shared/format.js";
import { createSegmentedControl, el, setPressed } from "../shared/dom.js";
import { mountMatrix } from "../shared/matrix.js";
import { signedCaption, thinLabels } from "./activations.js";
import { embeddingsState } from "./embeddings.js";
import { scheduleRefresh } from "./requests.js";
import { queryView } from "./views.js";

export function renderPositionEmbeddings(data) {
  const { weights, description: response, of, rms, symbols } = data.positions,
    caption = queryView("symbols", ".symbols-positions-words");
  queryView("symbols", ".symbols-positions").hidden = caption.hidden = !weights.length;
  if (!weights.length)
    return void (queryView("symbols", ".symbols-places .hint").textContent = response);
  queryView("symbols", ".symbols-places .hint").textContent =
    "Added to the token embedding; one row per position, " +
    response +
    ". RMS of a position vector: " +
    formatNumber(rms) +
    "; of a token embedding: " +
    formatNumber(symbols) +
    ". Both need a similar scale.";
  const cut =
    weights.length < of[0] || weights[0].length < of[1]
      ? " Displayed: the first " +
        weights.length +
        " of " +
        of[0] +
        " positions, " +
        weights[0].length +
        " of " +
        of[1] +
        " dimensions."
      : "";
  const maxValue = Math.max(...weights.flat().map(Math.abs));
  caption.dataset.resting =
    "Rows: positions of the " +
    data.side +
    ", from 0. Columns: dimensions. " +
    signedCaption(maxValue) +
    cut;
  mountMatrix(
    queryView("symbols", ".symbols-positions"),
    {
      weights,
      rows: weights.map((_, i) => String(i)),
      columns: thinLabels(
        weights[0].map((_, i) => i),
        queryView("symbols", ".symbols-positions"),
      ),
      signed: true,
      max: maxValue,
      size: 18,
    },
    { caption, hover: (r, k) => "Position " + r + ", dimension " + k + ": " + weights[r][k] + "." },
  );
}
export function renderSinusoids(data) {
  const { weights, pictures, picture, positions, width } = data.waves,
    caption = queryView("symbols", ".symbols-waves-words"),
    box = queryView("symbols", ".symbols-pictures");
  if (!box.children.length)
    box.append(
      createSegmentedControl(
        pictures.map((name) => [
          name,
          name.replace("x", "×"),
          name.split(" ")[0] + " positions, " + name.split(" ")[2] + " dimensions",
        ]),
        picture,
        (value) => {
          embeddingsState.waves = value;
          embeddingsState.dimension = Math.min(embeddingsState.dimension, +value.split(" ")[2] - 1);
          scheduleRefresh("symbols", 0);
        },
        "Positions and dimensions",
      ),
    );
  setPressed(box.firstChild, picture);
  caption.dataset.resting =
    "Columns: positions 0 to " +
    (positions - 1) +
    ". Rows: dimensions 0 to " +
    (width - 1) +
    ", sines at the even ones, cosines at the odd ones. Blue is 1, orange -1.";
  mountMatrix(
    queryView("symbols", ".symbols-waves"),
    {
      weights,
      rows: weights.map((_, i) => String(i)),
      columns: weights[0].map((_, i) => (i % (positions > 60 ? 20 : 10) ? "" : String(i))),
      signed: true,
      max: 1,
      size: positions > 99 ? 6 : 9,
    },
    {
      caption,
      hover: (r, k) =>
        "Position " +
        k +
        ", dimension " +
        r +
        ": " +
        weights[r][k] +
        ". Wavelength: " +
        formatNumber(2 * Math.PI * 10000 ** ((2 * Math.floor(r / 2)) / width)) +
        " positions.",
    },
  );
}
const waveColors = () => [
  cssVariable("--pg-accent"),
  cssVariable("--pg-mark"),
  cssVariable("--pg-quiet-text"),
];
export function renderSinusoidDimension(data) {
  const input = queryView("symbols", ".symbols-dimension"),
    canvas = queryView("symbols", ".symbols-lines");
  input.max = data.waves.width - 1;
  if (document.activeElement !== input) input.value = data.dimensions[2].dimension;
  const [c, width] = setUpCanvas(canvas, 190),
    left = 30,
    right = width - 8,
    top = 10,
    bottom = 150,
    n = data.waves.positions;
  const x = (at) => left + ((right - left) * at) / (n - 1),
    y = (value) => (top + bottom) / 2 - (value * (bottom - top)) / 2;
  c.font = "11px " + cssVariable("--font-mono");
  c.textBaseline = "middle";
  c.lineWidth = 1;
  for (const value of [-1, 0, 1]) {
    c.strokeStyle = cssVariable("--pg-grid");
    c.beginPath();
    c.moveTo(left, y(value));
    c.lineTo(right, y(value));
    c.stroke();
    c.fillStyle = cssVariable("--pg-quiet-text");
    c.textAlign = "right";
    c.fillText(value, left - 6, y(value));
  }
  c.textAlign = "center";
  for (let at = 0; at < n; at += n > 60 ? 20 : 10)
    if (x(at) < right - 70) c.fillText(at, x(at), 178);
  c.textAlign = "right";
  c.fillText("position", right, 178);
  data.dimensions.forEach(({ values, wavelength }, i) => {
    c.strokeStyle = c.fillStyle = waveColors()[i];
    c.lineWidth = 2;
    c.setLineDash(i === 2 ? [5, 4] : []);
    c.beginPath();
    values.forEach((value, at) => (at ? c.lineTo(x(at), y(value)) : c.moveTo(x(at), y(value))));
    c.stroke();
    c.setLineDash([]);
    if (wavelength <= n - 1) c.fillRect(x(wavelength) - 1, bottom + 4, 2, 12);
  });
  canvas.setAttribute("role", "img");
  canvas.setAttribute(
    "aria-label",
    data.dimensions
      .map(
        (d) =>
          "dimension " +
          d.dimension +
          " has a wavelength of " +
          formatNumber(d.wavelength) +
          " positions",
      )
      .join("; "),
  );
  queryView("symbols", ".symbols-lengths").replaceChildren(
    el(
      "tbody",
      {},
      ...data.dimensions.map((d, i) => {
        const line = el("i");
        line.style.borderColor = waveColors()[i];
        if (i === 2) line.style.borderTopStyle = "dashed";
        return el(
          "tr",
          {},
          el("td", {}, line),
          el("td", { textContent: "dimension " + d.dimension + " of " + data.waves.width }),
          el("td", {
            textContent: "wavelength " + formatNumber(d.wavelength) + " positions",
            title:
              "2π · 10000^(" +
              2 * Math.floor(d.dimension / 2) +
              "/" +
              data.waves.width +
              ") = " +
              d.wavelength,
          }),
        );
      }),
    ),
  );
}
