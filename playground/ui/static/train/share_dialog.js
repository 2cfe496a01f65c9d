// Links to a view, embedded frames and code.
// A link names a model (watch=ID or model=NAME) and a view of it: step, attention type, head, curve
// and sequence.
import { NO_RESPONSE, request } from "../shared/api.js";
import { setMessage } from "../shared/common.js";
import { formatMessage } from "../shared/format.js";
import { takeQueryParam } from "../shared/links.js";
import { store } from "../shared/store.js";
import { selectKind } from "./input.js";
import { scheduleRender } from "./rendering.js";
import { fetchDetails } from "./runs.js";
import { pageUrl } from "./shortcuts.js";
import { state } from "./state.js";
import { METRICS } from "./status.js";
import { $ } from "./view.js";

export const linkParams = new URLSearchParams(location.search),
  embeddedView = document.documentElement.dataset.embed || "";
if (!embeddedView) for (const name of ["kind", "head", "curve", "log"]) takeQueryParam(name);
// The link's view, until the model is drawn.
let pendingLinkState = ["watch", "model"].some((name) => linkParams.has(name)) ? linkParams : null;

export function applyLinkState() {
  if (!pendingLinkState || !state.displayedSnapshot || !/^(watch|checkpoint):/.test(state.modelRef))
    return;
  const link = pendingLinkState,
    linkedKind = link.get("kind"),
    // the name of version 0.1.0
    curve = link.get("curve") === "gradient_norm" ? "grad_norm" : link.get("curve");
  pendingLinkState = null;
  if (Object.hasOwn(state.probeInfo.axes, linkedKind)) selectKind(linkedKind);
  if (Object.hasOwn(METRICS, curve)) {
    $(".metric").value = curve;
    $(".metric").dispatchEvent(new Event("change"));
  }
  if (link.get("log") === "no") $(".log").checked = false;
  scheduleRender();
}

// Return the head of the link while its model is displayed; null if the model lacks this head.
export function linkedHead(layers) {
  const at =
    state.modelRef === state.linkedModel &&
    /^(\d{1,2})\.(\d{1,2})$/.exec(linkParams.get("head") || "");
  return at && layers[at[1] - 1]?.[at[2] - 1] ? [at[1] - 1, at[2] - 1] : null;
}

// Return the query of a link to the current view. `named` is {watch: ID} or {model: NAME}.
function currentLinkState(named) {
  const query = new URLSearchParams();
  if (state.viewedStep !== null) query.set("step", state.viewedStep);
  if (state.selectedKind !== "cross") query.set("kind", state.selectedKind);
  const layers = state.displayedSnapshot && state.displayedSnapshot.attention[state.selectedKind];
  if (layers && (state.selectedHead[0] !== layers.length - 1 || state.selectedHead[1]))
    query.set("head", state.selectedHead[0] + 1 + "." + (state.selectedHead[1] + 1));
  if (state.selectedMetric !== "loss") query.set("curve", state.selectedMetric);
  if (!$(".log").checked) query.set("log", "no");
  if (store.input.value) query.set("text", store.input.value);
  for (const [name, value] of Object.entries(named)) query.set(name, value);
  return query;
}

const EMBED_HEIGHTS = { learning: 480, attention: 520, try: 160, samples: 300 };
function renderEmbedCode() {
  const view = $(".embed-view").value,
    dialog = $(".sharing"),
    query = new URLSearchParams(dialog.dataset.query || "");
  query.set("embed", view);
  if ($(".embed-dark").checked) query.set("__theme", "dark");
  const url = (pageUrl() + "?" + query).replaceAll("&", "&amp;");
  const size = `width="100%" height="${EMBED_HEIGHTS[view]}" style="border: 0" loading="lazy"`;
  $(".embed-code").value =
    `<iframe src="${url}" title="Transformer Playground: ${view}" ${size}></iframe>`;
}

// Return a Python program that runs the displayed model and starts a run with its task.
function renderSnippet(model, settings) {
  const text = JSON.stringify(store.sequence.value || store.suggestedInput.value);
  const { task, min_length, max_length, dataset_sha256 } = settings;
  const named = { task, min_length, max_length, ...(dataset_sha256 ? { dataset_sha256 } : {}) };
  return `from gradio_client import Client

playground = Client(${JSON.stringify(pageUrl())})
print(playground.predict(model=${JSON.stringify(model)}, sequence=${text}, api_name="/predict"))

run = playground.predict(settings=${JSON.stringify(named)}, api_name="/start")
print(playground.predict(model=run["run"], owner=run["owner"], api_name="/status"))`;
}

async function openShareDialog() {
  const response = await fetchDetails(state.modelRef);
  if (response.error) {
    setMessage($(".hand-note"), response.error, "error");
    return;
  }
  const shareId =
    response.share_id || (state.modelRef.startsWith("watch:") ? state.modelRef.slice(6) : "");
  const linkTarget = shareId ? { watch: shareId } : { model: state.modelRef.split(":")[1] },
    query = currentLinkState(linkTarget).toString();
  $(".watch-link").value = pageUrl() + "?" + query;
  $(".link-means").textContent = shareId
    ? "Link to this view of the run. Viewers can replay it, but cannot pause, stop or delete it."
    : "Link to this view of the model";
  $(".settings-link").value =
    pageUrl() + "?settings=" + encodeURIComponent(JSON.stringify(response.settings));
  $(".settings-json").value = JSON.stringify(response.settings, null, 1);
  $(".program").value = renderSnippet(
    shareId ? "watch:" + shareId : state.modelRef,
    response.settings,
  );
  $(".agents").hidden = !(window.gradio_config || {}).mcp_server;
  $(".agents-address").textContent = pageUrl().replace(/\/?$/, "/") + "gradio_api/mcp/";
  $(".sharing").dataset.query = query;
  setMessage($(".report-note"), "");
  renderEmbedCode();
  $(".sharing").showModal();
}

export function initShareDialog() {
  $(".share").addEventListener("click", openShareDialog);
  for (const name of ["embed-view", "embed-dark"])
    $("." + name).addEventListener("change", renderEmbedCode);

  $(".make-report").addEventListener("click", async () => {
    const button = $(".make-report"),
      of = state.modelRef;
    button.disabled = true;
    setMessage($(".report-note"), "Creating the report");
    let reply;
    try {
      reply = await request("runs/report", { owner: state.owner, subject: of }, 120000);
    } catch (error) {
      reply = { error: NO_RESPONSE };
    }
    button.disabled = false;
    setMessage($(".report-note"), formatMessage(reply.error || ""), "error");
    if (reply.error) return;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([reply.html], { type: "text/html" }));
    link.download = reply.name;
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}
