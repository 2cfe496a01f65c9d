// The panel for the user's own data. The server parses the text or file and returns a summary or an
// error; "Use this dataset" stores the dataset there and fills the form.
import { baseUrl, NO_RESPONSE, request, requestWithRetry } from "../shared/api.js";
import { formatBytes, formatCount, formatMessage } from "../shared/format.js";
import { el, setVisible } from "../shared/dom.js";
import { createView } from "../shared/view.js";
import template from "./dataset_panel_template.js";

const { $, attach, gradio } = createView(template, [
  new URL("./dataset_panel.css", import.meta.url),
]);
let owner = "",
  formDataset = null,
  inputMode = "text",
  file = null,
  datasetReport = null,
  pendingRequest = null,
  debounceTimer;
const formatLengthRange = ([low, high]) =>
  low === high
    ? formatCount(low, "symbol")
    : low.toLocaleString("en") + " to " + formatCount(high, "symbol");

function currentInput() {
  if (inputMode === "text") return { name: "", body: $(".text").value };
  if (inputMode === "file") return file && { name: file.name, body: file };
  const repo = $(".repo").value.trim();
  return repo && { name: "hub:" + repo, body: "" };
}
function columnNames() {
  if ($(".columns").hidden) return "";
  const names = [$(".column-source").value.trim(), $(".column-target").value.trim()];
  return names[0] || names[1] ? names.join("\t") : "";
}
/** Send a dataset; return the report of the server, or an error. */
async function sendDataset({ name, body }, signal) {
  const headers = {
    "Content-Type": "application/octet-stream",
    "X-Owner": owner,
    "X-Name": encodeURIComponent([...name].slice(-90).join("")),
    "X-Columns": encodeURIComponent(columnNames()),
    "X-Words": $(".words").value,
  };
  try {
    const response = await fetch(new URL("datasets", baseUrl), {
      method: "POST",
      headers,
      body,
      signal: AbortSignal.any([signal, AbortSignal.timeout(300000)]),
    });
    const isJson = response.headers.get("content-type")?.includes("json");
    return isJson ? await response.json() : { error: await response.text() };
  } catch (error) {
    const isTimeout = error.name === "TimeoutError";
    return {
      error: isTimeout
        ? "reading took too long; upload a smaller file"
        : "the server did not respond, or the file changed; try again",
    };
  }
}
async function uploadDataset() {
  clearTimeout(debounceTimer);
  if (pendingRequest) pendingRequest.abort();
  const currentUpload = currentInput(),
    controller = (pendingRequest = new AbortController());
  if (!currentUpload || (inputMode === "text" && !currentUpload.body.trim())) {
    pendingRequest = null;
    renderReport(null);
    return;
  }
  const size =
    currentUpload.body.size === undefined
      ? new Blob([currentUpload.body]).size
      : currentUpload.body.size;
  if (size > 50e6) {
    renderReport({
      error: "there are " + formatBytes(size) + "; at most 50 MB are read, so leave some out",
    });
    return;
  }
  datasetReport = null;
  $(".use").disabled = true;
  $(".report").classList.add("old");
  setStatus(
    inputMode === "hub"
      ? "Reading the dataset"
      : size > 2e6
        ? "Sending and reading " + formatBytes(size)
        : "Reading",
  );
  const reply = await sendDataset(currentUpload, controller.signal);
  if (controller.signal.aborted) return;
  if (controller === pendingRequest) {
    pendingRequest = null;
    renderReport(reply);
  }
}
// Preview a dataset.
async function previewDataset(content) {
  if (pendingRequest) pendingRequest.abort();
  const controller = (pendingRequest = new AbortController());
  datasetReport = null;
  $(".use").disabled = true;
  setStatus("Reading");
  let reply;
  try {
    reply = await requestWithRetry(
      () => request("datasets/action", { action: "show", owner, content }, 130000),
      () => controller === pendingRequest,
      (busy) => setStatus(formatMessage(busy)),
    );
  } catch (error) {
    reply = { error: NO_RESPONSE };
  }
  if (controller === pendingRequest) {
    pendingRequest = null;
    renderReport(reply.content ? { ...reply, isStored: true } : reply);
  }
}
const setStatus = (text) => {
  $(".state").textContent = text;
};

function renderReport(report) {
  datasetReport = report && report.content ? report : null;
  const lines = (report && report.lines) || [],
    errorMessage = (report && report.error) || "";
  setVisible($(".problem"), Boolean(errorMessage));
  $(".problem p").textContent = lines.length
    ? formatCount(report.bad, "line") + " rejected:"
    : formatMessage(errorMessage);
  $(".problem ul").replaceChildren(
    ...lines.map((line) => el("li", { textContent: formatMessage(line) })),
    ...(report && report.bad > lines.length
      ? [
          el("li", {
            textContent: "And " + (report.bad - lines.length).toLocaleString("en") + " more.",
          }),
        ]
      : []),
  );
  if (report && report.columns && report.columns.length) {
    setVisible($(".columns"), true);
    $("datalist").replaceChildren(...report.columns.map((name) => el("option", { value: name })));
  }
  setVisible($(".report"), Boolean(report && report.preview));
  $(".report").classList.remove("old");
  if (report && report.preview) {
    $(".preview tbody").replaceChildren(
      ...report.preview.map(([source, target]) =>
        el("tr", {}, createTokenCell(source), createTokenCell(target)),
      ),
    );
    renderCounts(report);
  }
  updateUseButton();
}
const createTokenCell = (symbols) =>
  el(
    "td",
    {},
    ...symbols.flatMap((symbol) => [el("span", { className: "token", textContent: symbol }), ""]),
  );
function renderCounts(report) {
  const alphabet = report.vocabulary.slice(0, 12).join(" ") + (report.symbols > 12 ? " …" : "");
  const pairs = [
    ["rows", report.rows.toLocaleString("en"), "Distinct sources"],
    [
      "vocabulary",
      report.symbols.toLocaleString("en") +
        " different " +
        (report.words ? "words: " : "characters: ") +
        alphabet,
      "Of sources and targets together",
    ],
    ["sources", formatLengthRange(report.source), "Shortest and longest"],
    ["targets", formatLengthRange(report.target), "Shortest and longest"],
    [
      "held out",
      report.held_out === null ? "one in sixteen" : report.held_out.toLocaleString("en"),
      "Never train the model; a hash of the source chooses them",
    ],
    report.duplicates && [
      "repeated",
      formatCount(report.duplicates, "row") + ", left out",
      "An earlier line has the same source and target",
    ],
    report.contradictions && [
      "contradicting",
      formatCount(report.contradictions, "row") +
        ", left out: line " +
        report.contradicted.map((n) => n.toLocaleString("en")).join(", ") +
        (report.contradictions > report.contradicted.length ? " and more" : ""),
      "An earlier line has the same source with another target; the first line counts",
    ],
  ].filter(Boolean);
  $(".counts").replaceChildren(
    ...pairs.flatMap(([name, value, title]) => [
      el("dt", { textContent: name, title }),
      el("dd", { textContent: value, title }),
    ]),
  );
}
// Update the button and the line above it from the parsed dataset and the form.
function updateUseButton() {
  const same = datasetReport && datasetReport.content === formDataset;
  $(".use").disabled = !datasetReport || same;
  $(".use").textContent = same ? "The form uses this dataset" : "Use this dataset";
  setStatus(same ? "" : formDataset && datasetReport ? "The form uses another dataset." : "");
}

async function useDataset() {
  $(".use").disabled = true;
  setStatus("Saving the dataset");
  let reply;
  try {
    reply = await request(
      "datasets/action",
      { action: "use", owner, content: datasetReport.content },
      60000,
    );
    if (reply.retryable) {
      await uploadDataset();
      if (!datasetReport) return;
      reply = await request(
        "datasets/action",
        { action: "use", owner, content: datasetReport.content },
        60000,
      );
    }
    if (reply.retryable)
      reply = { error: "the server no longer has this dataset; upload it again" };
  } catch (error) {
    reply = { error: NO_RESPONSE };
  }
  if (reply.error) {
    renderReport({ ...datasetReport, error: reply.error });
    return;
  }
  gradio.trigger("select", {
    index: 0,
    value: {
      rows: datasetReport.content,
      min_length: datasetReport.source[0],
      max_length: datasetReport.source[1],
    },
  });
  formDataset = datasetReport.content;
  updateUseButton();
  renderStoredDatasets();
}
async function renderStoredDatasets() {
  let datasets;
  try {
    datasets = (await request("datasets/action", { action: "list", owner })).datasets || [];
  } catch (error) {
    return;
  }
  setVisible($(".shelf"), datasets.length > 0);
  $(".shelf summary").textContent = formatCount(datasets.length, "dataset") + " on this server";
  $(".shelf ul").replaceChildren(
    ...datasets.map((each) => {
      const words =
        each.rows.toLocaleString("en") +
        " rows of " +
        each.vocabulary.join(" ") +
        (each.symbols > each.vocabulary.length ? " …" : "");
      const pick = el("button", {
        type: "button",
        className: "pick",
        textContent: words,
        title:
          formatCount(each.symbols, "symbol") +
          " · " +
          formatBytes(each.bytes) +
          " · " +
          each.content.slice(0, 12),
      });
      const remove = el("button", {
        type: "button",
        className: "quiet",
        textContent: "Remove",
        title: "Removes it from this server",
      });
      pick.addEventListener("click", () => previewDataset(each.content));
      remove.addEventListener("click", async () => {
        remove.disabled = true;
        let reply;
        try {
          reply = await request("datasets/action", {
            action: "remove",
            owner,
            content: each.content,
          });
        } catch (error) {
          reply = { error: NO_RESPONSE };
        }
        if (reply.error) {
          renderReport({ error: reply.error });
          remove.disabled = false;
        } else renderStoredDatasets();
      });
      return el("li", {}, pick, remove);
    }),
  );
}

function clearColumns() {
  for (const name of ["source", "target"]) $(".column-" + name).value = "";
  $("datalist").replaceChildren();
}
function selectMode(mode) {
  if (mode !== inputMode) clearColumns();
  inputMode = mode;
  for (const button of $(".ways").children)
    button.setAttribute("aria-pressed", String(button.dataset.way === inputMode));
  for (const name of ["text", "file", "hub"]) setVisible($(".of-" + name), name === inputMode);
  setVisible(
    $(".columns"),
    inputMode === "hub" || (inputMode === "file" && Boolean(file) && /\.csv$/i.test(file.name)),
  );
  if (inputMode !== "hub") uploadDataset();
  else renderReport(null);
}

function onValueChange(value) {
  const before = formDataset;
  owner = value.owner || "";
  formDataset = value.rows || "";
  if (before === null) renderStoredDatasets();
  if (
    formDataset &&
    formDataset !== before &&
    !(datasetReport && datasetReport.content === formDataset)
  )
    previewDataset(formDataset);
  else updateUseButton();
}

$(".ways").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) selectMode(button.dataset.way);
});
$(".text").addEventListener("input", () => {
  clearTimeout(debounceTimer);
  debounceTimer = setTimeout(uploadDataset, 500);
});
// Tab inserts a tab into a line that has none; otherwise it moves the focus.
$(".text").addEventListener("keydown", (event) => {
  const box = event.target;
  if (
    event.key !== "Tab" ||
    event.shiftKey ||
    event.ctrlKey ||
    event.altKey ||
    event.metaKey ||
    box.selectionStart !== box.selectionEnd
  )
    return;
  const begin = box.value.lastIndexOf("\n", box.selectionStart - 1) + 1,
    end = (box.value + "\n").indexOf("\n", box.selectionStart),
    line = box.value.slice(begin, end);
  if (!line.trim() || line.includes("\t")) return;
  event.preventDefault();
  box.setRangeText("\t", box.selectionStart, box.selectionEnd, "end");
  box.dispatchEvent(new Event("input"));
});
$(".choose").addEventListener("click", () => $(".file").click());
$(".file").addEventListener("change", (event) => {
  if (!event.target.files[0]) return;
  file = event.target.files[0];
  event.target.value = "";
  $(".file-name").textContent = file.name + ", " + formatBytes(file.size);
  clearColumns();
  selectMode("file");
});
$(".of-hub").addEventListener("submit", (event) => {
  event.preventDefault();
  uploadDataset();
});
$(".words").addEventListener("change", uploadDataset);
for (const name of ["source", "target"])
  $(".column-" + name).addEventListener("change", () => {
    if (Boolean($(".column-source").value.trim()) === Boolean($(".column-target").value.trim()))
      uploadDataset(); // both columns, or neither
  });
$(".use").addEventListener("click", useDataset);

// Show the panel in the element of its Gradio component.
export default async function main(component) {
  await attach(component, onValueChange);
}
