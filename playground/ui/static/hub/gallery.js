import { sleep } from "../shared/api.js";
import { setMessage } from "../shared/common.js";
import { formatAge, formatCount, formatPercent } from "../shared/format.js";
import { setVisible } from "../shared/dom.js";
import { addRetryButton, errorText, runHubTask } from "./jobs.js";
import { addActionButton, createTableRow } from "./local_models.js";
import { openRepo } from "./repository.js";
import { state } from "./state.js";
import { $, root } from "./view.js";

let models = null,
  sortBy = "likes";

// ---------------------------------------------------------------- the gallery
const GALLERY_COLUMNS = [
  ["repo", "model", ""],
  ["task", "task", "wide"],
  ["parameters", "parameters", "number wide"],
  ["exact_match", "exact match", "number"],
  ["likes", "likes", "number wide"],
  ["when", "updated", "number wide"],
];
let galleryRequestId = 0; // number of requests: only the response to the latest is drawn
export async function loadGallery(force = true, tries = 0) {
  if (!force && galleryRequestId) return; // a refresh came before the page was loaded
  const requestId = ++galleryRequestId;
  $(".gallery-words").textContent = "Loading";
  setMessage($(".gallery-note"), "");
  try {
    const galleryModels = (
      await runHubTask(
        { kind: "gallery", again: force },
        (message) => {
          if (requestId === galleryRequestId) $(".gallery-words").textContent = message;
        },
        undefined,
        () => requestId === galleryRequestId,
      )
    ).models;
    if (requestId !== galleryRequestId) return;
    models = galleryModels;
  } catch (error) {
    if (requestId !== galleryRequestId) return;
    setMessage(
      $(".gallery-note"),
      errorText(error) + " The models on this machine are below.",
      "error",
    );
    $(".gallery-words").textContent = models ? "earlier list" : "";
    addRetryButton($(".gallery-note"), () => loadGallery());
    if (!error.again || tries > 2) return;
    await sleep(4000 * 2 ** tries); // temporary errors are retried a few times
    if (requestId === galleryRequestId && root.isConnected) loadGallery(true, tries + 1);
    return;
  }
  $(".gallery-words").textContent = models.length
    ? formatCount(models.length, "model") + " with the playground's tag"
    : "No model has the playground's tag yet. Publish the first one.";
  renderGallery();
}
function renderGallery() {
  setVisible($(".models"), models && models.length);
  $(".models thead tr").replaceChildren(
    ...GALLERY_COLUMNS.map(([key, label, kind]) => {
      const cell = document.createElement("th"),
        button = document.createElement("button");
      cell.scope = "col";
      cell.className = kind;
      button.type = "button";
      button.textContent = label;
      button.title = "Sort by " + label;
      if (key === sortBy)
        cell.setAttribute("aria-sort", ["repo", "task"].includes(key) ? "ascending" : "descending");
      button.addEventListener("click", () => {
        sortBy = key;
        renderGallery();
      });
      cell.append(button);
      return cell;
    }),
    document.createElement("th"),
  );
  const by = (m) => (m[sortBy] === null || m[sortBy] === undefined ? -Infinity : m[sortBy]);
  const sorted = [...models].sort((a, b) =>
    ["repo", "task"].includes(sortBy)
      ? String(a[sortBy]).localeCompare(String(b[sortBy]))
      : by(b) - by(a),
  );
  $(".models tbody").replaceChildren(
    ...sorted.map((m) => {
      const row = createTableRow([
        [m.repo, "name"],
        [m.task || "", "tight wide"],
        [m.parameters ? m.parameters.toLocaleString("en") : "", "number wide"],
        [
          m.exact_match === null || m.exact_match === undefined ? "" : formatPercent(m.exact_match),
          "number tight",
        ],
        [String(m.likes), "number wide"],
        [m.when ? formatAge(Date.now() / 1000 - m.when) : "", "number wide tight"],
      ]);
      row.children[3].title = m.n
        ? "from its model card, on " + formatCount(m.n, "held-out sequence")
        : "";
      addActionButton(row, "Open", () => openRepo(m.repo));
      return row;
    }),
  );
}
// Parse a name, a name@revision, or the URL of a repository; returns [repository, revision].
export function parseRepoAddress(text) {
  const path = text
      .trim()
      .replace(/^https?:\/\/[^/]+\//, "")
      .replace(/[?#].*$/, "")
      .replace(/\/+$/, ""),
    tree = /^([^/]+\/[^/]+)\/(?:tree|commit)\/(.+)$/.exec(path);
  if (tree) return [tree[1], tree[2]];
  const [repo, revision] = path.split("@");
  return [repo, revision || "main"];
}

export function initGallery() {
  // Without an owner the page is still loading, and requests the list afterwards.
  $(".again").addEventListener("click", () => {
    if (state.owner) loadGallery();
  });
  $(".any").addEventListener("submit", (event) => {
    event.preventDefault();
    const [repo, revision] = parseRepoAddress($(".any-repo").value);
    if (repo) openRepo(repo, revision);
  });
}
