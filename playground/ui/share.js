// ------------------------------------------------------- links to a view, embedded frames and code
// A link names a model (watch=ID or model=NAME) and a view of it: step, attention type, head, curve
// and sequence.
const ofLink = new URLSearchParams(location.search),
  embedded = document.documentElement.dataset.embed || "";
// The link's view, until the model is drawn.
let toTake = ["watch", "model"].some((name) => ofLink.has(name)) ? ofLink : null;

function takeView() {
  if (!toTake || !shown || !/^(watch|checkpoint):/.test(subject)) return;
  const link = toTake,
    wanted = link.get("kind");
  toTake = null;
  if (Object.hasOwn(stage.axes, wanted)) setKind(wanted);
  if (Object.hasOwn(METRICS, link.get("curve"))) {
    $(".metric").value = link.get("curve");
    $(".metric").dispatchEvent(new Event("change"));
  }
  if (link.get("log") === "no") $(".log").checked = false;
  if (link.has("text")) {
    $(".sequence").value = link.get("text").slice(0, 400);
    ask();
  }
  const step = Number(link.get("step"));
  if (link.has("step") && Number.isInteger(step) && canRewind()) view(step);
  else draw();
}

// Return the head of the link while its model is displayed; null if the model lacks this head.
function headOfLink(layers) {
  const at = subject === linked && /^(\d{1,2})\.(\d{1,2})$/.exec(ofLink.get("head") || "");
  return at && layers[at[1] - 1]?.[at[2] - 1] ? [at[1] - 1, at[2] - 1] : null;
}

// Return the query of a link to the current view. `named` is {watch: ID} or {model: NAME}.
function viewNow(named) {
  const query = new URLSearchParams();
  if (viewed !== null) query.set("step", viewed);
  if (kind !== "cross") query.set("kind", kind);
  const layers = shown && shown.attention[kind];
  if (layers && (head[0] !== layers.length - 1 || head[1]))
    query.set("head", head[0] + 1 + "." + (head[1] + 1));
  if (metric !== "loss") query.set("curve", metric);
  if (!$(".log").checked) query.set("log", "no");
  const text = $(".sequence").value;
  if (text && text !== $(".sequence").placeholder) query.set("text", text);
  for (const [name, value] of Object.entries(named)) query.set(name, value);
  return query;
}

const HEIGHTS = { learning: 480, attention: 520, try: 160, samples: 300 };
function drawFrame() {
  const which = $(".embed-view").value,
    dialog = $(".sharing"),
    query = new URLSearchParams(dialog.dataset.query || "");
  query.set("embed", which);
  if ($(".embed-dark").checked) query.set("__theme", "dark");
  const address = (page() + "?" + query).replaceAll("&", "&amp;");
  const size = `width="100%" height="${HEIGHTS[which]}" style="border: 0" loading="lazy"`;
  $(".embed-code").value =
    `<iframe src="${address}" title="Transformer Playground: ${which}" ${size}></iframe>`;
}

// Return a Python program that runs the displayed model and starts a run with its task.
function program(model, settings) {
  const text = JSON.stringify($(".sequence").value || $(".sequence").placeholder);
  const { task, min_length, max_length, rows } = settings;
  const named = { task, min_length, max_length, ...(rows ? { rows } : {}) };
  return `from gradio_client import Client

playground = Client(${JSON.stringify(page())})
print(playground.predict(model=${JSON.stringify(model)}, sequence=${text}, api_name="/predict"))

run = playground.predict(settings=${JSON.stringify(named)}, api_name="/start")
print(playground.predict(model=run["run"], owner=run["owner"], api_name="/status"))`;
}

async function share() {
  const told = await about(subject);
  if (told.error) {
    note($(".hand-note"), told.error, "error");
    return;
  }
  const watched = told.watch || (subject.startsWith("watch:") ? subject.slice(6) : "");
  const named = watched ? { watch: watched } : { model: subject.split(":")[1] },
    query = viewNow(named).toString();
  $(".watch-link").value = page() + "?" + query;
  $(".link-means").textContent = watched
    ? "Link to this view of the run. Viewers can replay it, but cannot pause, stop or delete it."
    : "Link to this view of the model";
  $(".settings-link").value =
    page() + "?settings=" + encodeURIComponent(JSON.stringify(told.settings));
  $(".settings-json").value = JSON.stringify(told.settings, null, 1);
  $(".program").value = program(watched ? "watch:" + watched : subject, told.settings);
  $(".agents").hidden = !(window.gradio_config || {}).mcp_server;
  $(".agents-address").textContent = page().replace(/\/?$/, "/") + "gradio_api/mcp/";
  $(".sharing").dataset.query = query;
  note($(".report-note"), "");
  drawFrame();
  $(".sharing").showModal();
}
$(".share").addEventListener("click", share);
for (const name of ["embed-view", "embed-dark"])
  $("." + name).addEventListener("change", drawFrame);

$(".make-report").addEventListener("click", async () => {
  const button = $(".make-report"),
    of = subject;
  button.disabled = true;
  note($(".report-note"), "Creating the report");
  let reply;
  try {
    reply = await call("report", { owner, subject: of }, 120000);
  } catch (error) {
    reply = { error: "no response from the server; try again" };
  }
  button.disabled = false;
  note($(".report-note"), sentenceOf(reply.error || ""), "error");
  if (reply.error) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([reply.html], { type: "text/html" }));
  link.download = reply.name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
});

// In a frame, a link to the whole page with the same model and view.
if (embedded) {
  const whole = new URLSearchParams(location.search),
    inspect = embedded === "inspect";
  whole.delete("embed");
  whole.delete("__theme");
  $(".open-whole").href = page() + "?" + whole;
  if (inspect)
    document.querySelector("#inspect .open-whole")?.setAttribute("href", $(".open-whole").href);
}

$(".sequence").value = "3 1 4 1 5";
begin();
watch("value", attach);
attach();
keepListing();
