// The picture of the open model in the dialog Share, and the clip of its training.
import { useCanvas } from "../shared/components/hooks.js";
import { downloadBlob } from "../shared/download.js";
import { thin } from "../shared/chart_data.js";
import { store } from "../shared/store.js";
import { html, useState } from "../vendor/preact.js";
import { fetchSnapshot, hasHistory } from "./data/snapshots.js";
import { setMessage } from "./messages.js";
import { HEIGHT, paintCard, WIDTH } from "./picture_card.js";
import { state } from "./state.js";

const FRAMES_PER_SECOND = 30;
const MAX_CLIP_STEPS = 40;
const CLIP_MS = 4000,
  END_MS = 1200; // of the last picture
const BITS_PER_SECOND = 5e6;
const CLIP_TYPE = ["video/mp4", "video/webm"].find((type) =>
  globalThis.MediaRecorder?.isTypeSupported(type),
);
const FAILED = "This did not work here. Try again, or save the picture.";

/** @typedef {import("./picture_card.js").Card} Card */

/**
 * Record what is painted on a canvas.
 * @param {HTMLCanvasElement} canvas @param {any[]} passes @param {(pass: any) => void} paint
 */
async function recordClip(canvas, passes, paint) {
  const recorder = new MediaRecorder(canvas.captureStream(FRAMES_PER_SECOND), {
      mimeType: CLIP_TYPE,
      videoBitsPerSecond: BITS_PER_SECOND,
    }),
    chunks = /** @type {Blob[]} */ ([]),
    wait = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms));
  recorder.ondataavailable = ({ data }) => chunks.push(data);
  const stopped = new Promise((resolve) => (recorder.onstop = resolve));
  recorder.start();
  for (const pass of passes) {
    paint(pass);
    await wait(CLIP_MS / passes.length);
  }
  await wait(END_MS);
  recorder.stop();
  await stopped;
  return new Blob(chunks, { type: CLIP_TYPE });
}

/**
 * The forward pass of the probe at recorded steps.
 * @param {number[]} steps
 */
const fetchPasses = (steps) =>
  Promise.all(
    steps.map(async (step) => {
      const { snapshot, probe_info: info = state.probeInfo, error } = await fetchSnapshot(step);
      if (error) throw new Error(error);
      return { axes: info.axes, source: info.source, ...snapshot };
    }),
  );

/** @param {HTMLCanvasElement} canvas @returns {Promise<Blob>} */
const toBlob = (canvas) =>
  new Promise((resolve) =>
    canvas.toBlob((blob) => resolve(/** @type {Blob} */ (blob)), "image/png"),
  );

/** @param {{ card: Card, pass: any, link: string }} props */
export function Picture({ card, pass, link }) {
  const [isRecording, setRecording] = useState(false),
    canvas = useCanvas((element) => paintCard(element, card, pass), [card, pass]),
    element = () => /** @type {HTMLCanvasElement} */ (canvas.current),
    name =
      card.name
        .toLowerCase()
        .match(/[a-z0-9]+/g)
        ?.join("-") ?? "model",
    asFile = (/** @type {Blob} */ blob) => new File([blob], name + ".png", { type: blob.type });
  const save = async () => {
    downloadBlob(name + ".png", await toBlob(element()));
    setMessage("file", "Picture saved");
  };
  const copy = async () => {
    const item = new ClipboardItem({ "image/png": toBlob(element()) });
    await navigator.clipboard.write([item]);
    setMessage("file", "Picture copied");
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
  /** @param {string} label @param {() => Promise<void>} action @param {unknown} isOffered */
  const button = (label, action, isOffered = true) =>
    isOffered &&
    html`<button
      type="button"
      class="pg-button"
      disabled=${isRecording}
      onClick=${() =>
        action().catch((error) => {
          if (error.name !== "AbortError") setMessage("file", FAILED, { isError: true });
        })}
    >
      ${label}
    </button>`;
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
    </p>`;
}
