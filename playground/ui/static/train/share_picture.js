// The picture of the open model in the dialog Share, and the clip of its training.
// It is painted from data, for any step: an example with its attention, the curve of the exact
// match, one sentence, and an address.
import { Button } from "../shared/components/buttons.js";
import { sleep } from "../shared/api.js";
import { useCanvas } from "../shared/components/hooks.js";
import { paintCurves } from "../shared/diagram/paint.js";
import { buildLinks } from "../shared/diagram/structure.js";
import { downloadBlob } from "../shared/download.js";
import { thin } from "../shared/chart_data.js";
import { formatCount, formatPercent, formatToken } from "../shared/format.js";
import { cssVariable } from "../shared/palette.js";
import { store } from "../shared/store.js";
import { html, useState } from "../vendor/preact.js";
import { fetchSnapshot, hasHistory } from "./data/snapshots.js";
import { Message, setMessage } from "./messages.js";
import { state } from "./state.js";

const WIDTH = 1200,
  HEIGHT = 630; // as sites show pictures of links
const LEFT = 56,
  RIGHT = WIDTH - LEFT;
const EXAMPLE = { top: 206, height: 350, right: 540, tokenWidth: 84 };
const CURVE = { left: 650, top: 200, height: 310 };
const MAX_ROW_HEIGHT = 56;
const FRAMES_PER_SECOND = 30;
const MAX_CLIP_STEPS = 40;
const CLIP_MS = 4000,
  END_MS = 1200; // of the last picture
const BITS_PER_SECOND = 5e6;
const CLIP_TYPE = ["video/mp4", "video/webm"].find((type) =>
  globalThis.MediaRecorder?.isTypeSupported(type),
);
const FAILED = "This did not work here. Try again, or save the picture.";

/** Record what is painted on a canvas. */
async function recordClip(canvas, passes, paint) {
  const recorder = new MediaRecorder(canvas.captureStream(FRAMES_PER_SECOND), {
      mimeType: CLIP_TYPE,
      videoBitsPerSecond: BITS_PER_SECOND,
    }),
    chunks = /** @type {Blob[]} */ ([]);
  recorder.ondataavailable = ({ data }) => chunks.push(data);
  const stopped = new Promise((resolve) => (recorder.onstop = resolve));
  recorder.start();
  for (const pass of passes) {
    paint(pass);
    await sleep(CLIP_MS / passes.length);
  }
  await sleep(END_MS);
  recorder.stop();
  await stopped;
  return new Blob(chunks, { type: CLIP_TYPE });
}

/** The forward pass of the probe at recorded steps. */
const fetchPasses = (steps) =>
  Promise.all(
    steps.map(async (step) => {
      const { snapshot, probe_info: info = state.probeInfo, error } = await fetchSnapshot(step);
      if (error) throw new Error(error);
      return { axes: info.axes, source: info.source, ...snapshot };
    }),
  );

/** @returns {Promise<Blob>} */
const toBlob = (canvas) => new Promise((resolve) => canvas.toBlob(resolve, "image/png"));

export function Picture({ card, pass, link }) {
  const [isRecording, setRecording] = useState(false),
    canvas = useCanvas((element) => paintCard(element, card, pass), [card, pass]),
    element = () => /** @type {HTMLCanvasElement} */ (canvas.current),
    name =
      card.name
        .toLowerCase()
        .match(/[a-z0-9]+/g)
        ?.join("-") ?? "model",
    asFile = (blob) => new File([blob], name + ".png", { type: blob.type });
  const save = async () => {
    downloadBlob(name + ".png", await toBlob(element()));
    setMessage("picture", "Picture saved");
  };
  const copy = async () => {
    const item = new ClipboardItem({ "image/png": toBlob(element()) });
    await navigator.clipboard.write([item]);
    setMessage("picture", "Picture copied");
  };
  const share = async () =>
    navigator.share({ files: [asFile(await toBlob(element()))], text: card.result, url: link });
  const saveClip = async () => {
    setRecording(true);
    try {
      const passes = await fetchPasses(thin(store.weightSteps.value, MAX_CLIP_STEPS)),
        clip = await recordClip(element(), passes, (each) => paintCard(element(), card, each));
      downloadBlob(`${name}.${clip.type.slice("video/".length)}`, clip);
    } finally {
      setRecording(false);
      paintCard(element(), card, pass);
    }
  };
  const button = (label, action, isOffered = /** @type {unknown} */ (true)) =>
    isOffered &&
    html`<${Button}
      disabled=${isRecording}
      onClick=${() =>
        action().catch((error) => {
          if (error.name !== "AbortError") setMessage("picture", FAILED, { isError: true });
        })}
    >
      ${label}
    <//>`;
  return html`<canvas
      ref=${canvas}
      class="picture"
      width=${WIDTH}
      height=${HEIGHT}
      role="img"
      aria-label=${`${card.name}. ${card.result}`}
    ></canvas>
    <p class="pg-row">
      ${button("Copy picture", copy, globalThis.ClipboardItem && navigator.clipboard)}
      ${button("Save picture", save)}
      ${button(isRecording ? "Recording" : "Save clip", saveClip, CLIP_TYPE && hasHistory())}
      ${button("Send", share, navigator.canShare?.({ files: [asFile(new Blob())] }))}
    </p>
    <${Message} name="picture" class="picture-note" />`;
}

/**
 * Paint the card with the forward pass of a step. `result` is the sentence of the server, or
 * without parts of the model that of this page.
 * @param {HTMLCanvasElement} canvas
 */
export function paintCard(canvas, card, pass) {
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")),
    evaluations = card.evaluations.filter(([step]) => step <= pass.step),
    latest = evaluations.at(-1),
    hasResult = pass.step >= card.lastStep || (card.hasPartsOff && pass.isFromEngine);
  c.fillStyle = cssVariable("--pg-background");
  c.fillRect(0, 0, WIDTH, HEIGHT);
  c.fillStyle = cssVariable("--pg-accent");
  c.fillRect(0, 0, WIDTH, 10);
  c.textBaseline = "middle";
  write(c, card.name, LEFT, 72, { size: 46, weight: "bold" });
  const score =
    latest &&
    ` · ${formatPercent(latest[1])} of ${formatCount(latest[3], "unseen sequence")} right`;
  const sentence =
    hasResult && card.result ? card.result : formatCount(pass.step, "step") + (score ?? "");
  write(c, sentence, LEFT, 130, { size: 28, color: "--pg-quiet-text" });
  if (pass.attention[card.selected.kind])
    write(c, card.head, LEFT, 186, { size: 22, color: "--pg-quiet-text" });
  paintExample(c, card.selected, pass);
  paintCurve(c, evaluations, Math.max(1, card.lastStep));
  write(c, card.address, LEFT, 596, { size: 22, color: "--pg-quiet-text" });
  write(c, "Transformer Playground", RIGHT, 596, {
    size: 22,
    color: "--pg-accent",
    align: "right",
  });
}

/** Write a line, narrower if the card has no space for it. */
function write(c, text, x, y, { size, weight = "", color = "--pg-text", ...style }) {
  const { align = "left", font = "--pg-font" } = style;
  c.font = `${weight} ${size}px ${cssVariable(font)}`;
  c.fillStyle = cssVariable(color);
  c.textAlign = align;
  c.fillText(text, x, y, RIGHT - LEFT);
}

/** The tokens of the example, and the links of the selected head from the input to the output. */
function paintExample(c, { kind, layer, head }, pass) {
  const links = buildLinks(pass, kind),
    { keys, queries, output, outputRow } = links,
    weights = pass.attention[kind]?.[layer]?.[head],
    { top, height, right, tokenWidth } = EXAMPLE,
    rowHeight = Math.min(MAX_ROW_HEIGHT, height / Math.max(keys.length, queries.length)),
    y = (names, i) => top + height / 2 + (i + 0.5 - names.length / 2) * rowHeight,
    mono = { size: Math.min(30, 0.68 * rowHeight), font: "--pg-mono" };
  if (weights)
    paintCurves(
      c,
      { ...links, heads: [], highlight: null, owner: null },
      { weights, color: `--pg-${kind}` },
      {
        keysX: LEFT + tokenWidth,
        queriesX: right - tokenWidth,
        fanX: 0,
        ownerX: 0,
        keyY: (i) => y(keys, i),
        queryY: (i) => y(queries, i),
        rowHeight,
      },
    );
  keys.forEach((token, i) => write(c, formatToken(token), LEFT, y(keys, i), mono));
  queries.forEach((query, i) => {
    const at = i - outputRow,
      token = output?.predicted[at] ?? query,
      isRight = token === output?.target[at],
      color = !output || at < 0 ? "--pg-text" : isRight ? "--pg-good" : "--pg-bad";
    write(c, formatToken(token), right, y(queries, i), { ...mono, color, align: "right" });
  });
}

/** The exact match up to a step, on the axis of all steps. */
function paintCurve(c, evaluations, lastStep) {
  const { left, top, height } = CURVE,
    width = RIGHT - left,
    x = (step) => left + (step / lastStep) * width,
    y = (score) => top + (1 - score) * height,
    quiet = { size: 20, color: "--pg-quiet-text" };
  write(c, "Unseen sequences right", left, top - 28, quiet);
  c.lineCap = c.lineJoin = "round";
  for (const share of [0, 0.5, 1]) {
    c.fillStyle = cssVariable("--pg-grid");
    c.fillRect(left, y(share), width, 2);
    write(c, `${100 * share} %`, left - 12, y(share), { ...quiet, align: "right" });
  }
  write(c, "0", left, top + height + 24, quiet);
  write(c, formatCount(lastStep, "step"), RIGHT, top + height + 24, { ...quiet, align: "right" });
  c.strokeStyle = c.fillStyle = cssVariable("--pg-accent");
  c.lineWidth = 6;
  c.beginPath();
  for (const [step, score] of evaluations) c.lineTo(x(step), y(score));
  c.stroke();
  const latest = evaluations.at(-1);
  if (!latest) return;
  c.beginPath();
  c.arc(x(latest[0]), y(latest[1]), 9, 0, 2 * Math.PI);
  c.fill();
}
