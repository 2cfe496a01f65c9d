import { setMessage } from "../shared/common.js";
import { downloadBlob } from "../shared/csv.js";
import { setText } from "../shared/dom.js";
import { addPeriod } from "./elements.js";
import { requestExperiments } from "./requests.js";
import { state } from "./state.js";

let isExporting = false;

export const fileName = (kind) =>
  (state.details.name.replace(/[^A-Za-z0-9]+/g, "-").replace(/^-+|-+$/g, "") || "experiment") +
  "." +
  kind;
export async function exportCsv() {
  const name = fileName("csv"),
    reply = await requestExperiments("experiments/csv", { experiment: state.details.id });
  setMessage(state.resultsView.note, addPeriod(reply.error || ""), "error");
  if (!reply.error) downloadBlob(name, new Blob([reply.csv], { type: "text/csv" }));
}
export async function exportFigures() {
  if (isExporting) return;
  isExporting = true;
  const name = fileName("zip"),
    button = state.resultsView.files.querySelector(".as-figures");
  button.disabled = true;
  setText(button, "Drawing");
  const reply = await requestExperiments(
    "experiments/figures",
    { experiment: state.details.id },
    150000,
  );
  isExporting = false;
  button.disabled = false;
  setText(button, "Figures");
  setMessage(state.resultsView.note, addPeriod(reply.error || ""), "error");
  if (!reply.error)
    downloadBlob(
      name,
      new Blob([Uint8Array.from(atob(reply.zip), (one) => one.charCodeAt(0))], {
        type: "application/zip",
      }),
    );
}
