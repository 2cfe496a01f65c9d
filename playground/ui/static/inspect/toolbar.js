// The prediction for the input, and Export. The page's header has model, step, input and Share.
import { html, useState } from "../vendor/preact.js";
import { copyCanvas } from "../shared/canvas.js";
import { CopyButton } from "../shared/components/buttons.js";
import { Menu } from "../shared/components/menu.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import { downloadBlob, downloadJson } from "../shared/download.js";
import { writeParams } from "../shared/links.js";
import { buildShareLink } from "../shared/share_link.js";
import { store } from "../shared/store.js";
import { modelOptions, SequenceInput } from "../shell/model_bar.js";
import { openSection, prediction, problem, results, root, VIEWS } from "./state.js";

function Prediction() {
  const data = prediction.value;
  if (!data) return null;
  const withoutEos = (tokens) => tokens.filter((token) => token !== "EOS"),
    // Only EOS differs: the strip shows it.
    isEosWrong =
      data.target &&
      withoutEos(data.prediction).join() === withoutEos(data.target).join() &&
      data.prediction.join() !== data.target.join(),
    clean = isEosWrong ? (tokens) => tokens : withoutEos;
  return html`<${TokenStrip}
    label="Prediction"
    tokens=${clean(data.prediction)}
    targets=${data.target && !store.isInputInvalid.value ? clean(data.target) : undefined}
  />`;
}

/** Whether parts of the model are off in Train: the views here are of the whole model. */
const hasPartsOff = () => Boolean(store.views.value.train?.read().off);

const isEmbedded = Boolean(document.documentElement.dataset.embed);

export const Toolbar = () =>
  html`<div class="pg-row toolbar">
    ${isEmbedded && html`<${SequenceInput} />`}
    <span class="pg-quiet">Prediction</span>
    <span class="arrow" aria-hidden="true">→</span>
    <output
      class=${"answer" + (store.isInputInvalid.value ? " stale" : "")}
      aria-live=${store.liveness.value}
      ><${Prediction}
    /></output>
    <span class="note pg-quiet">${prediction.value?.note}</span>
    ${hasPartsOff() && html`<span class="pg-quiet">Here, all parts are on.</span>`}
    <p class="pg-error problem" role="alert">${problem.value}</p>
    <span class="right top"><${ExportMenu} /></span>
  </div>`;

// Links and files of the open section.

// HTML that embeds this view in another site (embedding.py).
async function buildEmbedCode() {
  const title = "Transformer Playground: " + VIEWS[openSection.value].title,
    link = writeParams(await buildShareLink(), { embed: "inspect" });
  return (
    `<iframe src="${link.replaceAll("&", "&amp;")}" title="${title}" ` +
    `width="100%" height="600" style="border: 0" loading="lazy"></iframe>`
  );
}

/** Return the first heat map of the open section. @returns {HTMLCanvasElement | null} */
const findHeatMap = () => root.querySelector(".stage .pg-heat-map canvas");

const EXPORTS = [
  { format: "png", label: "Heat map (PNG)", title: "The first heat map of this view" },
  { format: "json", label: "Data (JSON)" },
];

function exportView(format) {
  const section = openSection.value,
    data = results.value[section],
    spec = VIEWS[section],
    sequence = store.sequence.value.replace(/[^A-Za-z0-9]+/g, "").slice(0, 20),
    name = `inspect-${section}-${sequence}`;
  if (!data) return;
  const heatMap = findHeatMap();
  if (format === "png" && heatMap)
    return copyCanvas(heatMap).canvas.toBlob((blob) => blob && downloadBlob(name + ".png", blob));
  downloadJson(name + ".json", {
    model: modelOptions().find((each) => each.value === store.model.value)?.label ?? "",
    text: store.sequence.value,
    view: section,
    options: spec.options?.() ?? {},
    ...(spec.exportData?.(data) ?? data),
  });
}

function ExportMenu() {
  const [hasHeatMap, setHasHeatMap] = useState(false);
  return html`<div class="export" onToggleCapture=${() => setHasHeatMap(Boolean(findHeatMap()))}>
    <${Menu} label="Export" text="Export" class="as-button">
      ${EXPORTS.filter(({ format }) => format !== "png" || hasHeatMap).map(
        ({ format, label, title }) =>
          html`<button
            key=${format}
            type="button"
            data-format=${format}
            title=${title}
            onClick=${() => exportView(format)}
          >
            ${label}
          </button>`,
      )}
      <${CopyButton}
        label="Copy embed code (HTML)"
        title="HTML that embeds this view in another page"
        text=${buildEmbedCode}
      />
    <//>
  </div>`;
}
