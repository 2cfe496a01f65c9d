// The user's own data: the input of the dataset panel, and the report of the server about it.
import { NO_RESPONSE, requestOrError, upload } from "../shared/api.js";
import { formatBytes, formatMessage } from "../shared/format.js";
import { Resource } from "../shared/resource.js";
import { store } from "../shared/store.js";
import { effect, untracked } from "../vendor/preact.js";
import { form, useDataset } from "./settings.js";
import { createReactive } from "./state.js";

/** @import {
 *   DatasetErrors, DatasetReport, PartialDataset, StoredDataset
 * } from "../shared/responses.js" */
/** @typedef {DatasetReport | PartialDataset | DatasetErrors} Report */

const MAX_BYTES = 50e6;
const TIMEOUT_MS = 300_000;
const TYPING_DELAY_MS = 500;
const MAX_NAME_LENGTH = 90;
const FILE_NOT_SENT = "the server did not respond, or the file changed; try again";

export const panel = createReactive({
  source: "text", // or "file" or "hub"
  text: "",
  file: /** @type {File | null} */ (null),
  repo: "",
  // What the user chose; empty if the server decides.
  firstLine: "", // "names" or "example"
  sourceColumn: "",
  targetColumn: "",
  config: "",
  split: "",
  // The names to choose from.
  columns: /** @type {string[]} */ ([]),
  configs: /** @type {string[]} */ ([]),
  splits: /** @type {string[]} */ ([]),
  report: /** @type {Report | null} */ (null),
  status: "", // of the request in progress
  storedDatasets: /** @type {StoredDataset[]} */ ([]),
});

/** Return the valid dataset on display. */
export const validDataset = () => (panel.report && "sha256" in panel.report ? panel.report : null);

/** Return the columns of sources and targets: those that the user chose, or the server. */
export function selectedColumns() {
  const { report } = panel,
    [source = "", target = ""] = report && "selected" in report ? report.selected : [];
  return [panel.sourceColumn || source, panel.targetColumn || target];
}

/** Return what the user has entered, as the name and the body of an upload. */
function currentUpload() {
  const { source, text, file } = panel,
    repo = panel.repo.trim().replace(/^hub:/, "");
  if (source === "file") {
    const ending = [...(file?.name ?? "")].slice(-MAX_NAME_LENGTH).join("");
    return file && { name: ending, body: file };
  }
  if (source === "hub") return repo && { name: "hub:" + repo, body: "" };
  return text.trim() && { name: "", body: text };
}

/** @param {string} name */
function uploadHeaders(name) {
  const { source, sourceColumn, targetColumn, firstLine, config, split } = panel,
    token = source === "hub" ? store.hubToken.value.trim() : "";
  return {
    "Content-Type": "application/octet-stream",
    "X-Owner": store.owner.value,
    "X-Name": encodeURIComponent(name),
    "X-Columns": targetColumn && encodeURIComponent(sourceColumn + "\t" + targetColumn),
    "X-First-Line": firstLine,
    "X-Config": encodeURIComponent(config),
    "X-Split": encodeURIComponent(split),
    ...(token && { "X-Hub-Token": encodeURIComponent(token) }),
  };
}

let typingTimer = 0;

/** The report that is requested last. */
const requested = new Resource(
  (send) => send(),
  (reason) => (panel.status = formatMessage(reason)),
);

/** Show a report, and drop the one that is requested. @param {Report | null} report */
function showReport(report) {
  clearTimeout(typingTimer);
  requested.clear();
  panel.status = "";
  panel.report = report;
  for (const name of /** @type {const} */ (["columns", "configs", "splits"])) {
    const names = report && name in report && /** @type {any} */ (report)[name];
    if (names?.length) panel[name] = names;
  }
}

/**
 * Show the report of a request, unless a later one replaces it.
 * @param {string} status
 * @param {() => Promise<Report>} send
 */
async function requestReport(status, send) {
  clearTimeout(typingTimer);
  panel.status = status;
  const report = await requested.load(send);
  if (report) showReport(report);
}

/**
 * Send data once, because they may be large. @param {string} name @param {Blob | string} body
 * @returns {Promise<Report>}
 */
const sendData = (name, body) =>
  upload("datasets", body, uploadHeaders(name), AbortSignal.timeout(TIMEOUT_MS)).catch(() => ({
    error: panel.source === "file" ? FILE_NOT_SENT : NO_RESPONSE,
  }));

/** Send the input to the server, and show its report. */
export async function readInput() {
  const input = currentUpload();
  if (!input) return showReport(null);
  const { name, body } = input,
    size = new Blob([body]).size;
  if (size > MAX_BYTES) {
    const limit = formatBytes(MAX_BYTES);
    showReport({ error: `the data has ${formatBytes(size)}; at most ${limit} are read` });
  } else await requestReport("Reading", () => sendData(name, body));
  const { sourceColumn, targetColumn, columns } = panel;
  if (targetColumn && !(columns.includes(sourceColumn) && columns.includes(targetColumn))) {
    clearColumns(); // of another table
    await readInput();
  }
}

/** @param {string} text */
export function setText(text) {
  panel.text = text;
  clearTimeout(typingTimer);
  typingTimer = setTimeout(readInput, TYPING_DELAY_MS);
}

/** @param {string} source */
export function selectSource(source) {
  if (source !== panel.source) clearChoices();
  panel.source = source;
  if (source === "hub") showReport(null);
  else readInput();
}

/** @param {File} file */
export function selectFile(file) {
  clearChoices();
  panel.file = file;
  readInput();
}

/** @param {string} repo */
export function setRepo(repo) {
  clearChoices();
  showReport(null); // of another dataset
  panel.repo = repo;
}

const clearColumns = () => Object.assign(panel, { sourceColumn: "", targetColumn: "" });

/** Drop what depends on the data. */
function clearChoices() {
  clearColumns();
  const names = { columns: [], configs: [], splits: [] };
  Object.assign(panel, names, { firstLine: "", config: "", split: "" });
}

/**
 * Set a choice of the user, and read the input again.
 * @param {"firstLine" | "config" | "split"} name
 * @param {string} value
 */
export function choose(name, value) {
  if (name === "config") {
    clearColumns(); // the columns and the splits of another configuration are others
    Object.assign(panel, { columns: [], splits: [], split: "" });
  }
  panel[name] = value;
  readInput();
}

/**
 * Choose a column of the table. One that is already chosen changes places with the other.
 * @param {"source" | "target"} side
 * @param {string} name
 */
export function chooseColumn(side, name) {
  let [source, target] = selectedColumns();
  if (side === "source") [source, target] = [name, target === name ? source : target];
  else [source, target] = [source === name ? target : source, name];
  Object.assign(panel, { sourceColumn: source, targetColumn: target });
  if (source && target) readInput();
}

/** @param {string} action @param {string} [sha256] of a dataset */
const sendAction = (action, sha256 = "") =>
  requestOrError("datasets/action", { action, owner: store.owner.value, sha256 }, TIMEOUT_MS);

/** Show a dataset that is on the server. @param {string} sha256 */
export const readStored = (sha256) => requestReport("Reading", () => sendAction("show", sha256));

async function loadStoredDatasets() {
  const { datasets } = await sendAction("list");
  if (datasets) panel.storedDatasets = datasets;
}

/** @param {string} sha256 */
export async function removeStored(sha256) {
  const { error } = await sendAction("remove", sha256);
  if (error) showReport({ error });
  else await loadStoredDatasets();
}

/** Store the dataset on display. */
async function storeDataset() {
  const dataset = validDataset();
  if (!dataset) return {};
  panel.status = "Saving the dataset";
  return { dataset, reply: await sendAction("use", dataset.sha256) };
}

/** Store the dataset on the server, and fill the form with it. */
export async function applyDataset() {
  let { dataset, reply } = await storeDataset();
  if (reply?.retryable) {
    await readInput(); // the server keeps an upload only for a while
    ({ dataset, reply } = await storeDataset());
  }
  if (!dataset) return;
  const error = reply.retryable
    ? "the server no longer has this dataset; upload it again"
    : reply.error;
  if (error) return showReport({ ...dataset, error });
  useDataset(dataset);
  panel.status = "";
  await loadStoredDatasets();
}

/** Show the dataset of the form whenever another one is selected there. */
export function followForm() {
  const stop = effect(() => void (store.owner.value && untracked(loadStoredDatasets)));
  const stopShowing = effect(() => {
    const { dataset_sha256: sha256 } = form.values;
    untracked(() => {
      if (sha256 && validDataset()?.sha256 !== sha256) readStored(sha256);
    });
  });
  return () => {
    stop();
    stopShowing();
  };
}
