// The Hub tab. The server runs every Hub operation as a job, and this script polls the job.
let owner = "",
  session = { way: "", signed_in: false },
  account = null,
  models = null,
  sortBy = "likes",
  runs = [],
  checkpoints = [];
let openRepository = null,
  pushPlan = null,
  isPublishing = false,
  autoPublish = null,
  isStarted = false,
  suggestedRepo = "",
  suggestedFor = "";
const ACTIVE_STATUSES = ["waiting", "starting", "training", "paused", "stopping"];
const setVisible = (box, yes) => {
  box.hidden = !yes;
};

// ---------------------------------------------------------------- jobs
// Start a job and poll it to its end. `onProgress` receives its messages, `started` its id, and
// `isCurrent` returns whether the job is still to be started. Resolves to the result of the job, or
// throws an error with its message.
async function runHubTask(task, onProgress = () => {}, onStart = () => {}, isCurrent = () => true) {
  // Only jobs that need a token send it, so that an invalid token does not affect the others.
  const token = ["account", "plan", "push"].includes(task.kind) || account ? $(".token").value : "";
  const reply = await requestWithRetry(
    () => request("hub/submit", { owner, token: token, ...task }),
    isCurrent,
    (busy) => onProgress(formatMessage(busy)),
  );
  if (reply.error)
    throw Object.assign(new Error(reply.error), { isServerMessage: true, again: reply.again });
  onStart(reply.job);
  for (let wait = 100, lost = 0; ; wait = Math.min(500, wait * 1.4)) {
    await sleep(wait);
    let job;
    try {
      job = await request("hub/poll", { owner, job: reply.job });
      lost = 0;
    } catch (error) {
      if (++lost > 40) throw error;
      continue;
    }
    if (job.status === "working") {
      onProgress(job.message);
      continue;
    }
    if (job.status === "done") return job.result;
    throw Object.assign(new Error(job.message), { isServerMessage: true, again: job.again });
  }
}
const errorText = (error) => formatMessage(error.isServerMessage ? error.message : NO_RESPONSE);

// Run a job with its progress in one element, and its error with a retry button in another.
// `isCurrent` returns whether the elements still belong to this job.
async function runWithProgress(task, progress, noteBox, cancelButton, isCurrent = () => true) {
  let job = null;
  setMessage(noteBox, "");
  progress.textContent = "Starting";
  setVisible(progress, true);
  if (cancelButton) {
    setVisible(cancelButton, true);
    cancelButton.onclick = () => job && request("hub/cancel", { owner, job }).catch(() => {});
  }
  const onProgress = (message) => {
    if (isCurrent()) progress.textContent = message;
    else if (job && task.kind !== "pull") {
      request("hub/cancel", { owner, job }).catch(() => {});
      job = null;
    }
  };
  try {
    return await runHubTask(task, onProgress, (id) => {
      job = id;
    });
  } catch (error) {
    if (isCurrent()) setMessage(noteBox, errorText(error), "error");
    if (isCurrent() && (error.again || !error.isServerMessage)) addRetryButton(noteBox, task.retry);
    throw error;
  } finally {
    if (isCurrent()) {
      setVisible(progress, false);
      if (cancelButton) setVisible(cancelButton, false);
    }
  }
}
function addRetryButton(box, onRetry) {
  if (!onRetry) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "Try again";
  button.onclick = onRetry;
  box.append(" ", button);
}

// ---------------------------------------------------------------- sign-in
async function loadSession() {
  try {
    session = await request("hub/session", { owner });
  } catch (error) {
    setMessage($(".publish-note"), errorText(error), "error");
    return;
  }
  setVisible($(".token-label"), ["machine", "typed"].includes(session.way));
  setVisible(
    $(".check"),
    ["machine", "typed"].includes(session.way) && session.signed_in && !account,
  );
  renderSession();
  renderModelSelect();
}
function renderSession() {
  const access =
    account &&
    "Token of " +
      account.name +
      (account.writes
        ? "; it has write access."
        : "; it is read-only. Publishing needs a token with write access.");
  const ofMachine = session.signed_in
    ? "This machine is signed in to the Hub" +
      (account ? " as " + account.name : "") +
      ". You can enter another token:"
    : "This machine is not signed in to the Hub: run hf auth login, or enter a token with " +
      "write access.";
  const words = {
    oauth: session.signed_in
      ? "Signed in as " + (session.name || "you") + "."
      : "Sign in above to publish; browsing and importing need no account.",
    none:
      "This Space has no sign-in, so it cannot publish. Download your checkpoints in the Train " +
      "tab, or duplicate the Space.",
    machine: account && $(".token").value.trim() ? access : ofMachine,
    typed: account
      ? access
      : "To publish, enter a token with write access. It is used for the operations that you " +
        "start, and not stored.",
  };
  const notice = session.lasting
    ? ""
    : " A restart of this Space deletes all runs: publish the models that you want to keep, or " +
      "download them in the Train tab.";
  $(".who").textContent = (words[session.way] || "") + notice;
}
async function verifyToken() {
  try {
    account = await runHubTask({ kind: "account" }, (message) => {
      $(".who").textContent = message;
    });
    setMessage($(".publish-note"), "");
  } catch (error) {
    account = null;
    setMessage($(".publish-note"), errorText(error), "error");
  }
  renderSession();
  setVisible($(".check"), !account);
  suggestRepo();
}
$(".check").addEventListener("click", verifyToken);
$(".token").addEventListener("input", () => {
  account = null;
  setVisible($(".check"), true);
  renderModelSelect();
});

// ---------------------------------------------------------------- models on this machine
async function loadModels() {
  let response;
  try {
    response = await request("runs/list", { owner });
  } catch (error) {
    return;
  }
  runs = response.runs.filter((run) => !run.deleted);
  checkpoints = response.checkpoints;
  renderModelSelect();
  renderLocalModels();
}
function renderModelSelect() {
  const select = $(".model"),
    before = select.value;
  const options = [
    ...runs.map((run) => [
      run.subject,
      run.name + (ACTIVE_STATUSES.includes(run.status) ? " · " + run.status : ""),
    ]),
    ...checkpoints.map((c) => [c.subject, c.name]),
  ];
  const signature = JSON.stringify(options);
  if (select.dataset.signature !== signature) {
    select.dataset.signature = signature;
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    let onShow = "";
    try {
      onShow = localStorage.getItem("transformer-playground-subject") || "";
    } catch (error) {
      /* the browser denies storage */
    }
    if (options.some(([value]) => value === before)) select.value = before;
    else {
      if (options.some(([value]) => value === onShow)) select.value = onShow;
      loadCheckpoints();
    }
  }
  const can = session.signed_in || $(".token").value.trim();
  $(".preview-push").disabled = !can || isPublishing || !options.length;
  const why = { oauth: "Sign in above first", none: "This Space cannot publish" }[session.way];
  $(".preview-push").title = can
    ? "Shows all changes; writes nothing"
    : why || "Enter a token above first";
  const run = runs.find((each) => each.subject === select.value);
  setVisible($(".keep"), Boolean(autoPublish) || (run && ACTIVE_STATUSES.includes(run.status)));
  renderAutoPublish();
}
async function loadCheckpoints(reset = true) {
  const subject = $(".model").value,
    select = $(".which");
  if (reset) {
    clearPlan();
    suggestRepo();
  }
  let response = {};
  try {
    response = await request("runs/details", { owner, subject });
  } catch (error) {
    return;
  }
  const signature = subject + JSON.stringify((response.checkpoints || []).map((c) => c.name));
  if (subject !== $(".model").value || signature === select.dataset.signature) return;
  select.dataset.signature = signature;
  const label = (c, at) =>
    (at ? "step " : "latest, step ") +
    c.step.toLocaleString("en") +
    (c.exact_match === null ? "" : ", exact match " + formatPercent(c.exact_match));
  const before = select.value,
    options = (response.checkpoints || []).map((c, at) => new Option(label(c, at), c.name));
  const none = subject.startsWith("run:")
    ? "none yet: pause the run or wait"
    : "the only checkpoint";
  select.replaceChildren(...(options.length ? options : [new Option(none, "")]));
  if (options.length) select.options[0].value = "";
  if (before && options.some((option) => option.value === before)) select.value = before;
}
function suggestRepo() {
  const box = $(".repo");
  const chosenNow = $(".model").value;
  // The user entered this name for this model.
  if (box.value && box.value !== suggestedRepo && chosenNow === suggestedFor) return;
  const chosen = [...runs, ...checkpoints].find((each) => each.subject === $(".model").value);
  if (!chosen) return;
  const title = chosen.task + " " + Math.round(chosen.parameters / 1000) + "k";
  const name = title
    .replace(/1–/, "")
    .replace(/[^A-Za-z0-9]+/g, "-")
    .replace(/^-|-$/g, "")
    .toLowerCase();
  const user = (account && account.name) || session.name || "";
  box.value = suggestedRepo = user ? user + "/" + name : "";
  suggestedFor = chosenNow;
  box.placeholder = (user || "you") + "/" + name;
}
function renderLocalModels() {
  const signature = JSON.stringify(
      [...runs, ...checkpoints].map((r) => [r.subject, r.name, r.task, r.parameters, r.best]),
    ),
    body = $(".here tbody");
  if (body.dataset.signature === signature) return; // keeps the focus of a button
  body.dataset.signature = signature;
  $(".here tbody").replaceChildren(
    ...[...runs, ...checkpoints].map((r) => {
      const row = createTableRow([
        [r.name, "name"],
        [r.task, "tight wide"],
        [r.parameters.toLocaleString("en"), "number wide"],
        [r.best === null ? "" : formatPercent(r.best), "number tight"],
      ]);
      addActionButton(row, "Open", () => openInTrain(r.subject));
      return row;
    }),
  );
}
const openInTrain = (subject) => navigate("Train", subject);
function createTableRow(cells) {
  const row = document.createElement("tr");
  for (const [text, kind] of cells) {
    const cell = document.createElement("td");
    cell.textContent = text;
    if (kind) cell.className = kind;
    row.append(cell);
  }
  return row;
}
function addActionButton(row, text, act) {
  const cell = document.createElement("td"),
    button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = text;
  button.addEventListener("click", act);
  cell.className = "tight";
  cell.append(button);
  row.append(cell);
}
$(".model").addEventListener("change", () => {
  if ($(".repo").value.endsWith("/")) $(".repo").value = "";
  loadCheckpoints();
  renderModelSelect();
  updateAutoPublish("status");
});

// ---------------------------------------------------------------- publishing
const pushRequest = () => ({
  subject: $(".model").value,
  checkpoint: $(".which").value,
  repo: $(".repo").value.trim(),
  private: $(".private").checked,
  data: $(".data").checked,
  license: $(".license").value.trim(),
});
function clearPlan() {
  pushPlan = null;
  setVisible($(".plan"), false);
}
async function previewPush() {
  if (!$(".repo").value.trim()) {
    if (!account && session.way !== "oauth") await verifyToken();
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
  isPublishing = true;
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
  isPublishing = false;
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
    ? pluralize(model.changes.filter((c) => c.what !== "same").length, "file") + ", " + total(model)
    : "no changes";
  const isTraining = runs.some(
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
  isPublishing = true;
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
  isPublishing = false;
  renderModelSelect();
}
$(".preview-push").addEventListener("click", previewPush);
$(".go").addEventListener("click", publish);
$(".not-now").addEventListener("click", clearPlan);
for (const selector of [".repo", ".license", ".private", ".data", ".which"])
  $(selector).addEventListener("input", clearPlan);

// ---- publishing during training
async function updateAutoPublish(action) {
  const subject = $(".model").value;
  if (!subject.startsWith("run:")) {
    autoPublish = null;
    renderAutoPublish();
    return;
  }
  try {
    const response = await request("hub/auto-publish", {
      owner,
      subject,
      do: action,
      token: $(".token").value,
      repo: $(".repo").value.trim(),
      private: $(".private").checked,
      license: $(".license").value.trim(),
      minutes: +$(".minutes").value,
    });
    if (subject !== $(".model").value) return;
    autoPublish = response.auto_publish;
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
function renderAutoPublish() {
  const k = autoPublish;
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
$(".keep-on").addEventListener("click", () => updateAutoPublish("start"));
$(".keep-off").addEventListener("click", () => updateAutoPublish("stop"));

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
async function loadGallery(force = true, tries = 0) {
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
    if (requestId === galleryRequestId && element.isConnected) loadGallery(true, tries + 1);
    return;
  }
  $(".gallery-words").textContent = models.length
    ? pluralize(models.length, "model") + " with the playground's tag"
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
        ? "from its model card, on " + pluralize(m.n, "held-out sequence")
        : "";
      addActionButton(row, "Open", () => openRepo(m.repo));
      return row;
    }),
  );
}
// Without an owner the page is still loading, and requests the list afterwards.
$(".again").addEventListener("click", () => {
  if (owner) loadGallery();
});
$(".any").addEventListener("submit", (event) => {
  event.preventDefault();
  const [repo, revision] = parseRepoAddress($(".any-repo").value);
  if (repo) openRepo(repo, revision);
});
// Parse a name, a name@revision, or the URL of a repository; returns [repository, revision].
function parseRepoAddress(text) {
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
async function openRepo(repo, revision = "main") {
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
    pluralize(layers, "layer") + " × " + pluralize(heads, "head") + ", width " + width,
    pluralize(response.parameters, "parameter"),
    "trained " +
      pluralize(response.step, "step") +
      (response.seconds
        ? " in " + formatDuration(response.seconds) + " on " + response.device
        : ""),
    response.resumable
      ? "can be trained further"
      : "weights only: can be inspected and run, but not trained further",
    pluralize(response.likes, "like"),
  ];
  $(".opened-about").textContent = facts.join(" · ") + ".";
  renderScores(null);
  $(".opened-files summary").textContent =
    pluralize(response.files_in_all, "file") +
    (response.files_in_all > response.files.length ? ", the first " + response.files.length : "");
  $(".opened-files tbody").replaceChildren(
    ...response.files.map((f) => createTableRow([[f.path], [f.size, "number"]])),
  );
  const older = response.revisions || [],
    others = (response.branches || []).filter((branch) => branch !== revision);
  $(".revisions summary").textContent =
    pluralize(older.length, "revision") +
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
$(".bring").addEventListener("click", importModel);
$(".measure").addEventListener("click", reproduceEvaluation);
$(".close-opened").addEventListener("click", () => {
  openRepository = null;
  setVisible($(".opened"), false);
});

// ---------------------------------------------------------------- start and polling
async function mount() {
  let value = {};
  try {
    value = JSON.parse(props.value) || {};
  } catch (error) {
    return;
  }
  owner = value.owner || "";
  if (!isStarted && element.offsetParent) init();
}
async function init() {
  isStarted = true;
  await loadSession();
  await loadModels();
  loadGallery(false);
  updateAutoPublish("status");
  const [repo, revision] = parseRepoAddress((takeQueryParam("hub") || "").slice(0, 300));
  if (repo) openRepo(repo, revision);
  if (session.way === "machine" && session.signed_in) verifyToken();
}
async function pollLoop() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await sleepWhileHidden(1000);
    if (!owner || !element.offsetParent || document.hidden) continue; // the tab is hidden
    if (!isStarted) {
      await init();
      continue;
    }
    if (round % 4 === 0) {
      if (session.way === "oauth" && !session.signed_in) await loadSession();
      await loadModels();
      await loadCheckpoints(false);
      await updateAutoPublish("status");
    }
  }
}
watch("value", mount);
mount();
pollLoop();
