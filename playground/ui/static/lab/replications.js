// Replications of published claims.
import { requestWithRetry } from "../shared/api.js";
import { navigate, setMessage } from "../shared/common.js";
import { el, setText } from "../shared/dom.js";
import { addPeriod, formatQueuePosition, syncRows } from "./elements.js";
import { openExperiment } from "./experiments.js";
import { requestExperiments } from "./requests.js";
import { createHeadRow } from "./results.js";
import { $, root } from "./view.js";

const ACTIVE_STATUSES = ["waiting", "starting", "training", "stopping", "running"];
const outcomes = new Map(); // replication key -> outcome
let replications = [],
  replicationsLoadedAt = 0,
  isLoadingReplications = false;

export function buildReplications() {
  $(".claims thead").append(
    createHeadRow([
      ["claim", ""],
      ["setting", ""],
      ["published", ""],
      ["reproduced", ""],
      ["", "", "", "outcome"],
      ["", "", "", "actions"],
    ]),
  );
}
export const shouldRefreshReplications = () =>
  replications.some((each) => ACTIVE_STATUSES.includes(each.state)) &&
  Date.now() - replicationsLoadedAt > 2500;
export async function loadReplications() {
  if (isLoadingReplications) return;
  isLoadingReplications = true;
  const reply = await requestExperiments("replications/list");
  isLoadingReplications = false;
  replicationsLoadedAt = Date.now();
  if (reply.error) {
    setMessage($(".published-note"), addPeriod(reply.error), "error");
    return;
  }
  replications = reply.claims;
  renderReplications();
  for (const each of replications) loadOutcome(each);
}
const replicationKey = (each) => [each.name, each.run || each.experiment, each.step].join();
async function loadOutcome(each) {
  if (each.state !== "done" || outcomes.has(replicationKey(each))) return;
  outcomes.set(replicationKey(each), null); // requested
  const reply = await requestWithRetry(
    () => requestExperiments("replications/outcome", { name: each.name }, 200000),
    () => root.isConnected,
    () => {},
  );
  if (reply.lost || reply.again) outcomes.delete(replicationKey(each));
  else outcomes.set(replicationKey(each), reply);
  renderReplications();
}
function renderReplications() {
  const rows = replications.flatMap((each) => [
    { each, more: false },
    { each, more: true },
  ]);
  syncRows(
    $(".claims tbody"),
    rows,
    ({ each, more }) => each.name + (more ? "/more" : ""),
    ({ each, more }) => (more ? createDetailsRow(each) : createReplicationRow(each)),
    (row, { each, more }) => (more ? null : renderReplicationRow(row, each)),
  );
}
function createReplicationRow(each) {
  const button = (text, className, act) => {
    const made = el("button", {
      type: "button",
      className: "quiet " + className,
      textContent: text,
    });
    made.addEventListener("click", act);
    return made;
  };
  const details = button("Details", "details", () => {
    const more = $(".claims tr[data-key='" + each.name + "/more']");
    more.hidden = !more.hidden;
    details.setAttribute("aria-expanded", String(!more.hidden));
  });
  details.setAttribute("aria-expanded", "false");
  details.setAttribute("aria-label", "Details of: " + each.title);
  const runIt = button("Run", "run-it", async () => {
    runIt.disabled = true;
    const reply = await requestExperiments("replications/start", { name: each.name });
    setMessage($(".published-note"), addPeriod(reply.error || ""), "error");
    runIt.disabled = false;
    if (reply.experiment) openExperiment(reply.experiment);
    await loadReplications();
  });
  runIt.setAttribute("aria-label", "Run: " + each.title);
  const openLink = button("Open", "open-run", () => {
    const now = replications.find((one) => one.name === each.name);
    if (now.experiment) openExperiment(now.experiment, true);
    else navigate("Train", now.run);
  });
  return el(
    "tr",
    { className: "claim" },
    el(
      "td",
      { className: "who" },
      el("span", { className: "name", textContent: each.title }),
      el("span", { className: "what", textContent: each.source }),
    ),
    el(
      "td",
      { className: "setting" },
      el("span", { textContent: each.setting }),
      el("span", {
        className: "what",
        textContent: each.parameters ? each.parameters.toLocaleString("en") + " parameters" : "",
      }),
    ),
    el("td", { className: "statement", textContent: each.statement }),
    el("td", { className: "ours" }),
    el("td", { className: "verdict" }),
    el("td", { className: "links" }, runIt, openLink, details),
  );
}
function createDetailsRow(each) {
  const copy = el("button", { type: "button", className: "quiet", textContent: "Copy" }),
    code = el("code", { textContent: each.command });
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(each.command);
    } catch (error) {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    copy.textContent = "Copied";
    setTimeout(() => {
      copy.textContent = "Copy";
    }, 1500);
  });
  const settings = Object.entries(each.settings)
    .map(
      ([name, value]) =>
        name +
        " " +
        (Array.isArray(value)
          ? value.join(", ")
          : value === true
            ? "on"
            : value === false
              ? "off"
              : value),
    )
    .join(" · ");
  const line = (term, ...inside) => [el("dt", { textContent: term }), el("dd", {}, ...inside)];
  return el(
    "tr",
    { className: "more", hidden: true },
    el(
      "td",
      { colSpan: 6 },
      el(
        "dl",
        {},
        ...line("criterion", addPeriod(each.rule)),
        ...line(
          "differences",
          el("ul", {}, ...each.differs.map((text) => el("li", { textContent: addPeriod(text) }))),
        ),
        ...line("settings", settings + (each.is_experiment ? "" : " · seed " + each.seed)),
        ...line("command", code, " ", copy),
      ),
    ),
  );
}
function renderReplicationRow(row, each) {
  const outcome = outcomes.get(replicationKey(each)),
    ran = each.state !== "none";
  row.dataset.state = each.state;
  row.dataset.passed =
    outcome && outcome.passed !== null && outcome.passed !== undefined
      ? String(outcome.passed)
      : "";
  const share = each.steps ? Math.floor((100 * each.step) / each.steps) + " %" : "";
  const how = each.missing
    ? addPeriod(each.missing)
    : !ran
      ? "not run yet"
      : each.state === "done"
        ? outcome === undefined || outcome === null
          ? "comparing"
          : outcome.written || addPeriod(outcome.error || outcome.summary)
        : each.queue_position
          ? formatQueuePosition(each.queue_position)
          : each.experiment
            ? each.state + ", " + share
            : each.state +
              (each.step
                ? ", step " +
                  each.step.toLocaleString("en") +
                  " of " +
                  each.steps.toLocaleString("en")
                : "") +
              (each.message ? ": " + each.message : "");
  setText(row.querySelector(".ours"), how).classList.toggle(
    "nothing",
    !outcome || !outcome.written,
  );
  const passed = outcome ? outcome.passed : null,
    isCompared = each.state === "done" && Boolean(outcome?.written); // without a criterion
  setText(
    row.querySelector(".verdict"),
    passed === true
      ? "✓ " + (outcome.word || "pass")
      : passed === false
        ? "✗ fail"
        : isCompared
          ? "compared"
          : "",
  ).title = outcome && outcome.summary ? outcome.summary : "";
  row.querySelector(".verdict").classList.toggle("ok", passed === true);
  row.querySelector(".verdict").classList.toggle("bad", passed === false);
  row.querySelector(".run-it").hidden =
    Boolean(each.missing) ||
    ACTIVE_STATUSES.includes(each.state) ||
    each.state === "done" ||
    each.state === "paused";
  row.querySelector(".open-run").hidden = !each.run && !each.experiment;
}
