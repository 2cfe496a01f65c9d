import { request } from "../shared/api.js";
import { setMessage } from "../shared/common.js";
import { formatAge, formatBytes, formatCount, formatMessage } from "../shared/format.js";
import { setVisible } from "../shared/dom.js";
import { verifyToken } from "./account.js";
import { loadGallery } from "./gallery.js";
import { errorText, runWithProgress } from "./jobs.js";
import { createTableRow, renderModelSelect, suggestRepo } from "./local_models.js";
import { state } from "./state.js";
import { $ } from "./view.js";

let pushPlan = null;

// ---------------------------------------------------------------- publishing
const pushRequest = () => ({
  subject: $(".model").value,
  checkpoint: $(".which").value,
  repo: $(".repo").value.trim(),
  private: $(".private").checked,
  data: $(".data").checked,
  license: $(".license").value.trim(),
});
export function clearPlan() {
  pushPlan = null;
  setVisible($(".plan"), false);
}
async function previewPush() {
  if (!$(".repo").value.trim()) {
    if (!state.account && state.session.way !== "oauth") await verifyToken();
    suggestRepo();
    if (!$(".repo").value.trim()) {
      $(".repo").focus();
      setMessage($(".publish-note"), "Enter a repository name first: user/name.", "error");
      return;
    }
  }
  const wish = pushRequest();
  clearPlan();
  setVisible($(".published"), false);
  state.isPublishing = true;
  renderModelSelect();
  try {
    pushPlan = {
      wish,
      ...(await runWithProgress(
        { kind: "plan", ...wish, retry: previewPush },
        $(".progress"),
        $(".publish-note"),
        $(".publish .cancel"),
      )),
    };
    renderPlan();
  } catch (error) {
    /* the note shows the error */
  }
  state.isPublishing = false;
  renderModelSelect();
}
function renderPlan() {
  const plans = pushPlan.plans,
    model = plans[plans.length - 1],
    data = plans.length > 1 ? plans[0] : null;
  const counted = (p) =>
    Object.entries(
      p.changes.reduce((sums, c) => ({ ...sums, [c.what]: (sums[c.what] || 0) + 1 }), {}),
    )
      .map(([what, n]) => n + " " + what)
      .join(", ");
  const total = (p) =>
    formatBytes(
      p.changes
        .filter((c) => ["new", "changed"].includes(c.what))
        .reduce((sum, c) => sum + c.size, 0),
    );
  const writes = plans.some((p) => p.changes.some((c) => c.what !== "same"));
  const step = "step " + pushPlan.step.toLocaleString("en"),
    visibility = model.private ? "private" : "public";
  const target = model.exists
    ? model.repo + " already exists (" + visibility + "). One commit changes it: "
    : "New " + visibility + " repository " + model.repo + ": ";
  const size = writes
    ? formatCount(model.changes.filter((c) => c.what !== "same").length, "file") +
      ", " +
      total(model)
    : "no changes";
  const isTraining = state.runs.some(
    (r) => r.subject === pushPlan.wish.subject && r.status === "training",
  );
  const ofRun = isTraining ? " The run continues; its latest checkpoint is published." : "";
  const ofData = data
    ? " Its training set " +
      (data.exists ? "changes the dataset " : "becomes the new dataset ") +
      data.repo +
      ", " +
      total(data) +
      "."
    : "";
  $(".what").textContent = target + step + ", " + size + "." + ofRun + ofData;
  $(".files-summary").textContent = "Files: " + counted(model);
  const heading = (p) =>
    data ? [createTableRow([[p.kind === "dataset" ? "Dataset" : "Model", "group"]])] : [];
  const fileRow = (c) =>
    createTableRow([[c.path], [formatBytes(c.size), "number tight"], [c.what, c.what]]);
  $(".files tbody").replaceChildren(
    ...plans.flatMap((p) => [...heading(p), ...p.changes.map(fileRow)]),
  );
  $(".card-preview pre").textContent = pushPlan.card;
  if (!writes) $(".what").textContent = model.repo + " already has this checkpoint, " + step + ".";
  setVisible($(".go"), writes);
  $(".not-now").textContent = writes ? "Cancel" : "Close";
  setVisible($(".plan"), true);
}
async function publish() {
  const { wish, plans } = pushPlan;
  setVisible($(".plan"), false);
  state.isPublishing = true;
  renderModelSelect();
  try {
    const result = await runWithProgress(
      { kind: "push", ...wish, expected: plans[plans.length - 1].parent, retry: previewPush },
      $(".progress"),
      $(".publish-note"),
      $(".publish .cancel"),
    );
    const link = document.createElement("a");
    link.href = link.textContent = result.url;
    link.target = "_blank";
    link.rel = "noopener";
    $(".published").replaceChildren(
      "Published, step " + result.step.toLocaleString("en") + ": ",
      link,
    );
    setVisible($(".published"), true);
    pushPlan = null;
    loadGallery();
  } catch (error) {
    /* the note shows the error */
  }
  state.isPublishing = false;
  renderModelSelect();
}

// ---- publishing during training
export async function updateAutoPublish(action) {
  const subject = $(".model").value;
  if (!subject.startsWith("run:")) {
    state.autoPublish = null;
    renderAutoPublish();
    return;
  }
  try {
    const response = await request("hub/auto-publish", {
      owner: state.owner,
      subject,
      do: action,
      token: $(".token").value,
      repo: $(".repo").value.trim(),
      private: $(".private").checked,
      license: $(".license").value.trim(),
      minutes: +$(".minutes").value,
    });
    if (subject !== $(".model").value) return;
    state.autoPublish = response.auto_publish;
    if (action !== "status")
      setMessage($(".keep-note"), formatMessage(response.error || ""), "error");
  } catch (error) {
    if (action !== "status") setMessage($(".keep-note"), errorText(error), "error");
  }
  renderAutoPublish();
}
function keepStatus(k) {
  if (k.now) return "Publishing now.";
  if (k.pushed === null) return "Nothing published yet.";
  const when = k.ago < 60 ? "just now" : formatAge(k.ago) + " ago";
  return (
    "Step " +
    k.pushed.toLocaleString("en") +
    " published " +
    when +
    (k.in ? ", next in " + Math.ceil(k.in / 60) + " min." : ".")
  );
}
export function renderAutoPublish() {
  const k = state.autoPublish;
  const off =
    "Commits the latest checkpoint to the branch while-training, and the final one to main. Your " +
    "token stays in memory until the run ends or the server stops; it is not written to disk.";
  $(".keep-words").textContent = k
    ? "Publishes to " +
      k.repo +
      ", branch " +
      k.branch +
      ", every " +
      k.minutes +
      " min, and to main at the end. " +
      keepStatus(k)
    : off;
  const box = $(".keep-note");
  if (k && k.trouble) {
    setMessage(box, formatMessage(k.trouble), "error");
    box.dataset.trouble = "yes";
  } else if (box.dataset.trouble) {
    setMessage(box, "");
    delete box.dataset.trouble;
  }
  setVisible($(".keep-on"), !k);
  setVisible($(".keep-every"), !k);
  setVisible($(".keep-off"), Boolean(k));
}

export function initPublishing() {
  $(".preview-push").addEventListener("click", previewPush);
  $(".go").addEventListener("click", publish);
  $(".not-now").addEventListener("click", clearPlan);
  for (const selector of [".repo", ".license", ".private", ".data", ".which"])
    $(selector).addEventListener("input", clearPlan);
  $(".keep-on").addEventListener("click", () => updateAutoPublish("start"));
  $(".keep-off").addEventListener("click", () => updateAutoPublish("stop"));
}
