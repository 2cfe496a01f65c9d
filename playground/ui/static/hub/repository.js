import { copyText } from "../shared/common.js";
import { formatAge, formatCount, formatDuration, formatPercent } from "../shared/format.js";
import { buildLink } from "../shared/links.js";
import { setVisible } from "../shared/dom.js";
import { runWithProgress } from "./jobs.js";
import { addActionButton, createTableRow, openInTrain } from "./local_models.js";
import { $ } from "./view.js";

let openRepository = null;

export async function openRepo(repo, revision = "main") {
  openRepository = { repo, revision };
  const repository = openRepository;
  setVisible($(".opened"), true);
  $(".opened").scrollIntoView({ block: "nearest" });
  $(".opened-name").textContent =
    repo + (revision === "main" ? "" : " at " + revision.slice(0, 12));
  $(".opened-about").textContent = "";
  $(".verdict").textContent = "";
  for (const box of [$(".opened > .buttons"), $(".scores"), $(".opened-files"), $(".revisions")])
    setVisible(box, false);
  let response;
  try {
    response = await runWithProgress(
      { kind: "repo_info", repo, revision, retry: () => openRepo(repo, revision) },
      $(".opened-progress"),
      $(".opened-note"),
      $(".cancel-opened"),
      () => repository === openRepository,
    );
  } catch (error) {
    return;
  }
  if (repository !== openRepository) return;
  Object.assign(openRepository, response);
  const [layers, heads, width] = response.shape;
  const facts = [
    response.task,
    formatCount(layers, "layer") + " × " + formatCount(heads, "head") + ", width " + width,
    formatCount(response.parameters, "parameter"),
    "trained " +
      formatCount(response.step, "step") +
      (response.seconds
        ? " in " + formatDuration(response.seconds) + " on " + response.device
        : ""),
    response.resumable
      ? "can be trained further"
      : "weights only: can be inspected and run, but not trained further",
    formatCount(response.likes, "like"),
  ];
  $(".opened-about").textContent = facts.join(" · ") + ".";
  renderScores(null);
  $(".opened-files summary").textContent =
    formatCount(response.files_in_all, "file") +
    (response.files_in_all > response.files.length ? ", the first " + response.files.length : "");
  $(".opened-files tbody").replaceChildren(
    ...response.files.map((f) => createTableRow([[f.path], [f.size, "number"]])),
  );
  const older = response.revisions || [],
    others = (response.branches || []).filter((branch) => branch !== revision);
  $(".revisions summary").textContent =
    formatCount(older.length, "revision") +
    (others.length ? ", other branches: " + others.join(", ") : "");
  $(".revisions tbody").replaceChildren(
    ...older.map((r) => {
      const row = createTableRow([
        [r.commit.slice(0, 8), "tight"],
        [r.title],
        [formatAge(Date.now() / 1000 - r.when), "tight"],
      ]);
      if (r.commit === response.commit)
        row.append(Object.assign(document.createElement("td"), { textContent: "open" }));
      else addActionButton(row, "Open", () => openRepo(repo, r.commit));
      return row;
    }),
    ...others.map((branch) => {
      const row = createTableRow([[branch, "tight"], ["branch"], [""]]);
      addActionButton(row, "Open", () => openRepo(repo, branch));
      return row;
    }),
  );
  for (const box of [$(".opened > .buttons"), $(".opened-files")]) setVisible(box, true);
  $(".opened").scrollIntoView({ block: "nearest" });
  setVisible($(".revisions"), older.length + others.length > 1);
}
function renderScores(measured) {
  const card = openRepository.card,
    rows = [];
  if (card)
    rows.push(
      createTableRow([
        ["model card"],
        [formatPercent(card.exact_match), "number"],
        [card.n ? card.n.toLocaleString("en") : "not given", "number"],
      ]),
    );
  if (measured)
    rows.push(
      createTableRow([
        ["this server"],
        [formatPercent(measured.exact_match), "number"],
        [measured.n.toLocaleString("en"), "number"],
      ]),
    );
  setVisible($(".scores"), rows.length);
  $(".scores tbody").replaceChildren(...rows);
}
async function reproduceEvaluation() {
  const repository = openRepository;
  try {
    const response = await runWithProgress(
      {
        kind: "reproduce",
        repo: repository.repo,
        revision: repository.commit,
        retry: reproduceEvaluation,
      },
      $(".opened-progress"),
      $(".opened-note"),
      $(".cancel-opened"),
      () => repository === openRepository,
    );
    if (repository !== openRepository) return;
    renderScores(response.measured);
    const same =
      response.card &&
      Math.abs(response.card.exact_match - response.measured.exact_match) <
        0.5 / response.measured.n;
    const equal =
      "The scores are equal. The evaluation took " +
      formatDuration(response.measured_seconds) +
      ".";
    const different = "The scores differ: the card may describe other weights or another metric.";
    $(".verdict").textContent = !response.card
      ? "Its model card has no score to compare with."
      : same
        ? equal
        : different;
  } catch (error) {
    /* the note shows the error */
  }
}
async function importModel() {
  const repository = openRepository;
  try {
    const response = await runWithProgress(
      {
        kind: "pull",
        repo: repository.repo,
        revision: repository.commit,
        main: repository.revision === "main",
        retry: importModel,
      },
      $(".opened-progress"),
      $(".opened-note"),
      $(".cancel-opened"),
      () => repository === openRepository,
    );
    if (response.subject) openInTrain(response.subject);
  } catch (error) {
    /* the note shows the error */
  }
}

export function initRepository() {
  // ---------------------------------------------------------------- one model
  $(".link").addEventListener("click", () =>
    copyText(
      buildLink(
        "hub",
        openRepository.repo +
          (openRepository.revision === "main" ? "" : "@" + openRepository.revision),
      ),
      $(".link"),
      "The link",
    ),
  );
  $(".bring").addEventListener("click", importModel);
  $(".measure").addEventListener("click", reproduceEvaluation);
  $(".close-opened").addEventListener("click", () => {
    openRepository = null;
    setVisible($(".opened"), false);
  });
}
