// Links and export.
import { cssVariable } from "../shared/palette.js";
import { NO_RESPONSE, request } from "../shared/api.js";
import { copyText } from "../shared/common.js";
import { buildLink } from "../shared/links.js";
import { downloadBlob, recordsToCsv } from "../shared/csv.js";
import { el } from "../shared/dom.js";
import { showError } from "./requests.js";
import { state } from "./state.js";
import { $ } from "./view.js";
import { VIEWS } from "./views.js";

export function saveState() {
  try {
    localStorage.setItem(
      "transformer-playground-inspect",
      JSON.stringify({
        subject: state.subject,
        step: state.step,
        text: state.text,
        view: state.view,
      }),
    );
  } catch (error) {
    /* storage is not available */
  }
}
async function buildViewLink() {
  const linkState = {
    subject: state.subject,
    step: state.step,
    text: state.text,
    view: state.view,
    options: VIEWS[state.view].options ? VIEWS[state.view].options() : {},
  };
  if (linkState.subject.startsWith("run:")) {
    let response = {};
    try {
      response = await request("runs/details", { owner: state.owner, subject: linkState.subject });
    } catch (error) {
      /* then only this browser can open the link */
    }
    // A share id gives read-only access.
    if (response.share_id) linkState.subject = "watch:" + response.share_id;
  }
  return buildLink("inspect", linkState);
}
// HTML that embeds this view in another site (embedding.py).
async function copyEmbedCode() {
  const title = "Transformer Playground: " + VIEWS[state.view].title;
  const code =
    `<iframe src="${await buildViewLink()}&amp;embed=inspect" title="${title}" ` +
    `width="100%" height="600" style="border: 0" loading="lazy"></iframe>`;
  await copyText(code, $(".export summary"), "The embed code");
}

// Draw all elements of the view with the class `picture` into one image, from top to bottom.
function renderPicture() {
  const parts = [...VIEWS[state.view].box.querySelectorAll(".picture")].filter(
    (part) => part.offsetParent && part.clientWidth,
  );
  const scale = 2,
    gap = 18,
    width = Math.max(320, ...parts.map((part) => part.clientWidth)) + 40;
  const height = 64 + parts.reduce((sum, part) => sum + part.clientHeight + gap, 0) + 10;
  const canvas = el("canvas", { width: width * scale, height: height * scale }),
    c = canvas.getContext("2d");
  c.scale(scale, scale);
  c.fillStyle =
    getComputedStyle(document.body).getPropertyValue("--body-background-fill") || "#fff";
  c.fillRect(0, 0, width, height);
  c.fillStyle = cssVariable("--body-text-color");
  c.font = "600 15px " + cssVariable("--font");
  c.textBaseline = "top";
  c.fillText(VIEWS[state.view].title, 20, 16);
  c.font = "12px " + cssVariable("--font");
  c.fillStyle = cssVariable("--pg-quiet-text");
  c.fillText(
    ($(".subject").selectedOptions[0] || { text: "" }).text +
      (state.resultByView[state.view] && state.resultByView[state.view].step !== undefined
        ? " · step " + state.resultByView[state.view].step
        : "") +
      " · " +
      state.text,
    20,
    38,
  );
  let y = 64;
  for (const part of parts) {
    if (part.tagName === "CANVAS") c.drawImage(part, 20, y, part.clientWidth, part.clientHeight);
    else {
      const from = part.getBoundingClientRect();
      for (const cell of part.querySelectorAll("th, td")) {
        const box = cell.getBoundingClientRect(),
          style = getComputedStyle(cell),
          x = 20 + box.left - from.left,
          top = y + box.top - from.top;
        if (style.backgroundColor !== "rgba(0, 0, 0, 0)") {
          c.fillStyle = style.backgroundColor;
          c.fillRect(x, top, box.width, box.height);
        }
        c.font = style.fontWeight + " " + style.fontSize + " " + style.fontFamily;
        c.fillStyle = style.color;
        c.textBaseline = "middle";
        const right = style.textAlign === "right" || style.textAlign === "end";
        c.textAlign = right ? "right" : style.textAlign === "center" ? "center" : "left";
        c.fillText(
          cell.innerText.trim().split("\n")[0].slice(0, 120),
          right
            ? x + box.width - parseFloat(style.paddingRight)
            : c.textAlign === "center"
              ? x + box.width / 2
              : x + parseFloat(style.paddingLeft),
          top + box.height / 2,
        );
      }
      c.textAlign = "left";
      for (const bar of part.querySelectorAll(".bar")) {
        const box = bar.getBoundingClientRect();
        c.fillStyle = getComputedStyle(bar).backgroundColor;
        c.fillRect(20 + box.left - from.left, y + box.top - from.top, box.width, box.height);
      }
    }
    y += part.clientHeight + gap;
  }
  return canvas;
}
// Figures for print are drawn by the server.
async function exportFigures(name) {
  const label = $(".export summary");
  label.textContent = "Drawing";
  let response;
  try {
    response = await request(
      "inspect/figures",
      {
        owner: state.owner,
        subject: state.subject,
        text: state.text,
        ...(state.step === null ? {} : { step: state.step }),
      },
      300000,
    );
  } catch (error) {
    response = { error: NO_RESPONSE };
  }
  label.textContent = "Export";
  if (response.error) {
    showError(response.error);
    return;
  }
  downloadBlob(
    name.replace(state.view, "figures") + ".zip",
    new Blob([Uint8Array.from(atob(response.zip), (c) => c.charCodeAt(0))], {
      type: "application/zip",
    }),
  );
}

export function initExport() {
  $(".link").addEventListener("click", async () =>
    copyText(await buildViewLink(), $(".link"), "The link"),
  );
  $(".export").addEventListener("click", (event) => {
    const as = event.target.dataset.as,
      data = state.resultByView[state.view],
      spec = VIEWS[state.view];
    if (as === "frame") {
      $(".export").open = false;
      copyEmbedCode();
      return;
    }
    if (!as || !data) return;
    $(".export").open = false;
    const name =
      "inspect-" + state.view + "-" + state.text.replace(/[^A-Za-z0-9]+/g, "").slice(0, 20);
    if (as === "figures") {
      exportFigures(name);
      return;
    }
    if (as === "png") renderPicture().toBlob((blob) => downloadBlob(name + ".png", blob));
    else if (as === "json")
      downloadBlob(
        name + ".json",
        new Blob(
          [
            JSON.stringify(
              {
                model: ($(".subject").selectedOptions[0] || {}).text,
                text: state.text,
                view: state.view,
                options: spec.options ? spec.options() : {},
                ...(spec.exportData ? spec.exportData(data) : data),
              },
              null,
              1,
            ),
          ],
          { type: "application/json" },
        ),
      );
    else
      downloadBlob(
        name + ".csv",
        new Blob([recordsToCsv(spec.rows ? spec.rows(data) : [])], { type: "text/csv" }),
      );
  });
}
