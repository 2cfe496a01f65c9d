// Links and files of the open section.
import { html, useState } from "../vendor/preact.js";
import { copyCanvas } from "../shared/canvas.js";
import { CopyButton } from "../shared/components/copy_field.js";
import { Menu } from "../shared/components/menu.js";
import { writeParams } from "../shared/links.js";
import { recordsToCsv } from "../shared/csv.js";
import { downloadBlob, downloadFile, downloadJson } from "../shared/download.js";
import { buildShareLink } from "../shared/share_link.js";
import { store } from "../shared/store.js";
import { modelOptions } from "../shell/model_bar.js";
import { openSection, results, VIEWS } from "./state.js";
import { root } from "./view.js";

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
  { format: "csv", label: "Data (CSV)" },
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
  if (format === "csv") return downloadFile(name + ".csv", recordsToCsv(spec.rows?.(data) ?? []));
  downloadJson(name + ".json", {
    model: modelOptions().find((each) => each.value === store.model.value)?.label ?? "",
    text: store.sequence.value,
    view: section,
    options: spec.options?.() ?? {},
    ...(spec.exportData?.(data) ?? data),
  });
}

export function ExportMenu() {
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
