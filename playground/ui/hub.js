// The Hub tab. The server runs every Hub operation as a job, and this script polls the job.
let owner = "",
  me = { way: "", signed_in: false },
  account = null,
  models = null,
  sortBy = "likes",
  runs = [],
  checkpoints = [];
let opened = null,
  planned = null,
  publishing = false,
  keeping = null,
  seen = false,
  proposed = "",
  proposedFor = "";
const GOING = ["waiting", "starting", "training", "paused", "stopping"];
const show = (box, yes) => {
  box.hidden = !yes;
};

// ---------------------------------------------------------------- jobs
// Start a job and poll it to its end. `say` receives its progress messages, `started` its id, and
// `wanted` returns whether the job is still to be started. Resolves to the result of the job, or
// throws an error with its message.
async function errand(what, say = () => {}, started = () => {}, wanted = () => true) {
  // Only jobs that need a token send it, so that an invalid token does not affect the others.
  const typed = ["account", "plan", "push"].includes(what.kind) || account ? $(".token").value : "";
  const reply = await persist(
    () => call("hub-start", { owner, token: typed, ...what }),
    wanted,
    (busy) => say(sentenceOf(busy)),
  );
  if (reply.error) throw Object.assign(new Error(reply.error), { told: true, again: reply.again });
  started(reply.job);
  for (let wait = 100, lost = 0; ; wait = Math.min(500, wait * 1.4)) {
    await sleep(wait);
    let job;
    try {
      job = await call("hub-job", { owner, job: reply.job });
      lost = 0;
    } catch (error) {
      if (++lost > 40) throw error;
      continue;
    }
    if (job.status === "working") {
      say(job.sentence);
      continue;
    }
    if (job.status === "done") return job.result;
    throw Object.assign(new Error(job.sentence), { told: true, again: job.again });
  }
}
const wrong = (error) =>
  sentenceOf(error.told ? error.message : "no response from the server; try again");

// Run a job with its progress in one element, and its error with a retry button in another.
// `wanted` returns whether the elements still belong to this job.
async function visibly(what, progress, noteBox, cancelButton, wanted = () => true) {
  let job = null;
  note(noteBox, "");
  progress.textContent = "Starting";
  show(progress, true);
  if (cancelButton) {
    show(cancelButton, true);
    cancelButton.onclick = () => job && call("hub-cancel", { owner, job }).catch(() => {});
  }
  const onProgress = (sentence) => {
    if (wanted()) progress.textContent = sentence;
    else if (job && what.kind !== "pull") {
      call("hub-cancel", { owner, job }).catch(() => {});
      job = null;
    }
  };
  try {
    return await errand(what, onProgress, (id) => {
      job = id;
    });
  } catch (error) {
    if (wanted()) note(noteBox, wrong(error), "error");
    if (wanted() && (error.again || !error.told)) retryButton(noteBox, what.retry);
    throw error;
  } finally {
    if (wanted()) {
      show(progress, false);
      if (cancelButton) show(cancelButton, false);
    }
  }
}
function retryButton(box, again) {
  if (!again) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "Try again";
  button.onclick = again;
  box.append(" ", button);
}

// ---------------------------------------------------------------- sign-in
async function who() {
  try {
    me = await call("hub-who", { owner });
  } catch (error) {
    note($(".publish-note"), wrong(error), "error");
    return;
  }
  show($(".token-label"), ["machine", "typed"].includes(me.way));
  show($(".check"), ["machine", "typed"].includes(me.way) && me.signed_in && !account);
  sayWho();
  offer();
}
function sayWho() {
  const access =
    account &&
    "Token of " +
      account.name +
      (account.writes
        ? "; it has write access."
        : "; it is read-only. Publishing needs a token with write access.");
  const ofMachine = me.signed_in
    ? "This machine is signed in to the Hub" +
      (account ? " as " + account.name : "") +
      ". You can enter another token:"
    : "This machine is not signed in to the Hub: run hf auth login, or enter a token with " +
      "write access.";
  const words = {
    oauth: me.signed_in
      ? "Signed in as " + (me.name || "you") + "."
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
  const notice = me.lasting
    ? ""
    : " A restart of this Space deletes all runs: publish the models that you want to keep, or " +
      "download them in the Train tab.";
  $(".who").textContent = (words[me.way] || "") + notice;
}
async function check() {
  try {
    account = await errand({ kind: "account" }, (sentence) => {
      $(".who").textContent = sentence;
    });
    note($(".publish-note"), "");
  } catch (error) {
    account = null;
    note($(".publish-note"), wrong(error), "error");
  }
  sayWho();
  show($(".check"), !account);
  propose();
}
$(".check").addEventListener("click", check);
$(".token").addEventListener("input", () => {
  account = null;
  show($(".check"), true);
  offer();
});

// ---------------------------------------------------------------- models on this machine
async function list() {
  let told;
  try {
    told = await call("runs", { owner });
  } catch (error) {
    return;
  }
  runs = told.runs.filter((run) => !run.deleted);
  checkpoints = told.checkpoints;
  offer();
  drawHere();
}
function offer() {
  const select = $(".model"),
    before = select.value;
  const wanted = [
    ...runs.map((run) => [
      run.subject,
      run.name + (GOING.includes(run.status) ? " · " + run.status : ""),
    ]),
    ...checkpoints.map((c) => [c.subject, c.name]),
  ];
  const signature = JSON.stringify(wanted);
  if (select.dataset.signature !== signature) {
    select.dataset.signature = signature;
    select.replaceChildren(...wanted.map(([value, text]) => new Option(text, value)));
    let onShow = "";
    try {
      onShow = localStorage.getItem("transformer-playground-subject") || "";
    } catch (error) {
      /* the browser denies storage */
    }
    if (wanted.some(([value]) => value === before)) select.value = before;
    else {
      if (wanted.some(([value]) => value === onShow)) select.value = onShow;
      which();
    }
  }
  const can = me.signed_in || $(".token").value.trim();
  $(".look-first").disabled = !can || publishing || !wanted.length;
  const why = { oauth: "Sign in above first", none: "This Space cannot publish" }[me.way];
  $(".look-first").title = can
    ? "Shows all changes; writes nothing"
    : why || "Enter a token above first";
  const run = runs.find((each) => each.subject === select.value);
  show($(".keep"), Boolean(keeping) || (run && GOING.includes(run.status)));
  drawKeep();
}
async function which(anew = true) {
  const subject = $(".model").value,
    select = $(".which");
  if (anew) {
    forget();
    propose();
  }
  let told = {};
  try {
    told = await call("about", { owner, subject });
  } catch (error) {
    return;
  }
  const signature = subject + JSON.stringify((told.checkpoints || []).map((c) => c.name));
  if (subject !== $(".model").value || signature === select.dataset.signature) return;
  select.dataset.signature = signature;
  const label = (c, at) =>
    (at ? "step " : "latest, step ") +
    c.step.toLocaleString("en") +
    (c.exact_match === null ? "" : ", exact match " + percent(c.exact_match));
  const before = select.value,
    options = (told.checkpoints || []).map((c, at) => new Option(label(c, at), c.name));
  const none = subject.startsWith("run:")
    ? "none yet: pause the run or wait"
    : "the only checkpoint";
  select.replaceChildren(...(options.length ? options : [new Option(none, "")]));
  if (options.length) select.options[0].value = "";
  if (before && options.some((option) => option.value === before)) select.value = before;
}
function propose() {
  const box = $(".repo");
  const chosenNow = $(".model").value;
  // The user entered this name for this model.
  if (box.value && box.value !== proposed && chosenNow === proposedFor) return;
  const chosen = [...runs, ...checkpoints].find((each) => each.subject === $(".model").value);
  if (!chosen) return;
  const title = chosen.task + " " + Math.round(chosen.parameters / 1000) + "k";
  const name = title
    .replace(/1–/, "")
    .replace(/[^A-Za-z0-9]+/g, "-")
    .replace(/^-|-$/g, "")
    .toLowerCase();
  const user = (account && account.name) || me.name || "";
  box.value = proposed = user ? user + "/" + name : "";
  proposedFor = chosenNow;
  box.placeholder = (user || "you") + "/" + name;
}
function drawHere() {
  const signature = JSON.stringify(
      [...runs, ...checkpoints].map((r) => [r.subject, r.name, r.task, r.parameters, r.best]),
    ),
    body = $(".here tbody");
  if (body.dataset.signature === signature) return; // keeps the focus of a button
  body.dataset.signature = signature;
  $(".here tbody").replaceChildren(
    ...[...runs, ...checkpoints].map((r) => {
      const row = tableRow([
        [r.name, "name"],
        [r.task, "tight wide"],
        [r.parameters.toLocaleString("en"), "number wide"],
        [r.best === null ? "" : percent(r.best), "number tight"],
      ]);
      action(row, "Open", () => openInTrain(r.subject));
      return row;
    }),
  );
}
const openInTrain = (subject) => goTo("Train", subject);
function tableRow(cells) {
  const row = document.createElement("tr");
  for (const [text, kind] of cells) {
    const cell = document.createElement("td");
    cell.textContent = text;
    if (kind) cell.className = kind;
    row.append(cell);
  }
  return row;
}
function action(row, text, act) {
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
  which();
  offer();
  keep("tell");
});

// ---------------------------------------------------------------- publishing
const wishes = () => ({
  subject: $(".model").value,
  checkpoint: $(".which").value,
  repo: $(".repo").value.trim(),
  private: $(".private").checked,
  data: $(".data").checked,
  license: $(".license").value.trim(),
});
function forget() {
  planned = null;
  show($(".plan"), false);
}
async function lookFirst() {
  if (!$(".repo").value.trim()) {
    if (!account && me.way !== "oauth") await check();
    propose();
    if (!$(".repo").value.trim()) {
      $(".repo").focus();
      note($(".publish-note"), "Enter a repository name first: user/name.", "error");
      return;
    }
  }
  const wish = wishes();
  forget();
  show($(".published"), false);
  publishing = true;
  offer();
  try {
    planned = {
      wish,
      ...(await visibly(
        { kind: "plan", ...wish, retry: lookFirst },
        $(".progress"),
        $(".publish-note"),
        $(".publish .cancel"),
      )),
    };
    drawPlan();
  } catch (error) {
    /* the note shows the error */
  }
  publishing = false;
  offer();
}
function drawPlan() {
  const plans = planned.plans,
    model = plans[plans.length - 1],
    data = plans.length > 1 ? plans[0] : null;
  const counted = (p) =>
    Object.entries(
      p.changes.reduce((sums, c) => ({ ...sums, [c.what]: (sums[c.what] || 0) + 1 }), {}),
    )
      .map(([what, n]) => n + " " + what)
      .join(", ");
  const total = (p) =>
    bytes(
      p.changes
        .filter((c) => ["new", "changed"].includes(c.what))
        .reduce((sum, c) => sum + c.size, 0),
    );
  const writes = plans.some((p) => p.changes.some((c) => c.what !== "same"));
  const step = "step " + planned.step.toLocaleString("en"),
    visibility = model.private ? "private" : "public";
  const target = model.exists
    ? model.repo + " already exists (" + visibility + "). One commit changes it: "
    : "New " + visibility + " repository " + model.repo + ": ";
  const size = writes
    ? plural(model.changes.filter((c) => c.what !== "same").length, "file") + ", " + total(model)
    : "no changes";
  const isTraining = runs.some(
    (r) => r.subject === planned.wish.subject && r.status === "training",
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
    data ? [tableRow([[p.kind === "dataset" ? "Dataset" : "Model", "group"]])] : [];
  const fileRow = (c) => tableRow([[c.path], [bytes(c.size), "number tight"], [c.what, c.what]]);
  $(".files tbody").replaceChildren(
    ...plans.flatMap((p) => [...heading(p), ...p.changes.map(fileRow)]),
  );
  $(".card-preview pre").textContent = planned.card;
  if (!writes) $(".what").textContent = model.repo + " already has this checkpoint, " + step + ".";
  show($(".go"), writes);
  $(".not-now").textContent = writes ? "Cancel" : "Close";
  show($(".plan"), true);
}
async function publish() {
  const { wish, plans } = planned;
  show($(".plan"), false);
  publishing = true;
  offer();
  try {
    const result = await visibly(
      { kind: "push", ...wish, expected: plans[plans.length - 1].parent, retry: lookFirst },
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
    show($(".published"), true);
    planned = null;
    gallery();
  } catch (error) {
    /* the note shows the error */
  }
  publishing = false;
  offer();
}
$(".look-first").addEventListener("click", lookFirst);
$(".go").addEventListener("click", publish);
$(".not-now").addEventListener("click", forget);
for (const selector of [".repo", ".license", ".private", ".data", ".which"])
  $(selector).addEventListener("input", forget);

// ---- publishing during training
async function keep(act) {
  const subject = $(".model").value;
  if (!subject.startsWith("run:")) {
    keeping = null;
    drawKeep();
    return;
  }
  try {
    const told = await call("hub-keep", {
      owner,
      subject,
      do: act,
      token: $(".token").value,
      repo: $(".repo").value.trim(),
      private: $(".private").checked,
      license: $(".license").value.trim(),
      minutes: +$(".minutes").value,
    });
    if (subject !== $(".model").value) return;
    keeping = told.kept;
    if (act !== "tell") note($(".keep-note"), sentenceOf(told.error || ""), "error");
  } catch (error) {
    if (act !== "tell") note($(".keep-note"), wrong(error), "error");
  }
  drawKeep();
}
function keepStatus(k) {
  if (k.now) return "Publishing now.";
  if (k.pushed === null) return "Nothing published yet.";
  const when = k.ago < 60 ? "just now" : ago(k.ago) + " ago";
  return (
    "Step " +
    k.pushed.toLocaleString("en") +
    " published " +
    when +
    (k.in ? ", next in " + Math.ceil(k.in / 60) + " min." : ".")
  );
}
function drawKeep() {
  const k = keeping;
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
    note(box, sentenceOf(k.trouble), "error");
    box.dataset.trouble = "yes";
  } else if (box.dataset.trouble) {
    note(box, "");
    delete box.dataset.trouble;
  }
  show($(".keep-on"), !k);
  show($(".keep-every"), !k);
  show($(".keep-off"), Boolean(k));
}
$(".keep-on").addEventListener("click", () => keep("start"));
$(".keep-off").addEventListener("click", () => keep("stop"));

// ---------------------------------------------------------------- the gallery
const COLUMNS = [
  ["repo", "model", ""],
  ["task", "task", "wide"],
  ["parameters", "parameters", "number wide"],
  ["exact_match", "exact match", "number"],
  ["likes", "likes", "number wide"],
  ["when", "updated", "number wide"],
];
let galleries = 0; // number of requests: only the response to the latest is drawn
async function gallery(again = true, tries = 0) {
  if (!again && galleries) return; // a refresh came before the page was loaded
  const mine = ++galleries;
  $(".gallery-words").textContent = "Loading";
  note($(".gallery-note"), "");
  try {
    const found = (
      await errand(
        { kind: "gallery", again },
        (sentence) => {
          if (mine === galleries) $(".gallery-words").textContent = sentence;
        },
        undefined,
        () => mine === galleries,
      )
    ).models;
    if (mine !== galleries) return;
    models = found;
  } catch (error) {
    if (mine !== galleries) return;
    note($(".gallery-note"), wrong(error) + " The models on this machine are below.", "error");
    $(".gallery-words").textContent = models ? "earlier list" : "";
    retryButton($(".gallery-note"), () => gallery());
    if (!error.again || tries > 2) return;
    await sleep(4000 * 2 ** tries); // temporary errors are retried a few times
    if (mine === galleries && element.isConnected) gallery(true, tries + 1);
    return;
  }
  $(".gallery-words").textContent = models.length
    ? plural(models.length, "model") + " with the playground's tag"
    : "No model has the playground's tag yet. Publish the first one.";
  drawGallery();
}
function drawGallery() {
  show($(".models"), models && models.length);
  $(".models thead tr").replaceChildren(
    ...COLUMNS.map(([key, label, kind]) => {
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
        drawGallery();
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
      const row = tableRow([
        [m.repo, "name"],
        [m.task || "", "tight wide"],
        [m.parameters ? m.parameters.toLocaleString("en") : "", "number wide"],
        [
          m.exact_match === null || m.exact_match === undefined ? "" : percent(m.exact_match),
          "number tight",
        ],
        [String(m.likes), "number wide"],
        [m.when ? ago(Date.now() / 1000 - m.when) : "", "number wide tight"],
      ]);
      row.children[3].title = m.n
        ? "from its model card, on " + plural(m.n, "held-out sequence")
        : "";
      action(row, "Open", () => look(m.repo));
      return row;
    }),
  );
}
// Without an owner the page is still loading, and requests the list afterwards.
$(".again").addEventListener("click", () => {
  if (owner) gallery();
});
$(".any").addEventListener("submit", (event) => {
  event.preventDefault();
  const [repo, revision] = address($(".any-repo").value);
  if (repo) look(repo, revision);
});
// Parse a name, a name@revision, or the URL of a repository; returns [repository, revision].
function address(text) {
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
    linkWith("hub", opened.repo + (opened.revision === "main" ? "" : "@" + opened.revision)),
    $(".link"),
    "The link",
  ),
);
async function look(repo, revision = "main") {
  opened = { repo, revision };
  const mine = opened;
  show($(".opened"), true);
  $(".opened").scrollIntoView({ block: "nearest" });
  $(".opened-name").textContent =
    repo + (revision === "main" ? "" : " at " + revision.slice(0, 12));
  $(".opened-about").textContent = "";
  $(".verdict").textContent = "";
  for (const box of [$(".opened > .buttons"), $(".scores"), $(".opened-files"), $(".revisions")])
    show(box, false);
  let told;
  try {
    told = await visibly(
      { kind: "look", repo, revision, retry: () => look(repo, revision) },
      $(".opened-progress"),
      $(".opened-note"),
      $(".cancel-opened"),
      () => mine === opened,
    );
  } catch (error) {
    return;
  }
  if (mine !== opened) return;
  Object.assign(opened, told);
  const [layers, heads, width] = told.shape;
  const facts = [
    told.task,
    plural(layers, "layer") + " × " + plural(heads, "head") + ", width " + width,
    plural(told.parameters, "parameter"),
    "trained " +
      plural(told.step, "step") +
      (told.seconds ? " in " + duration(told.seconds) + " on " + told.device : ""),
    told.resumable
      ? "can be trained further"
      : "weights only: can be inspected and run, but not trained further",
    plural(told.likes, "like"),
  ];
  $(".opened-about").textContent = facts.join(" · ") + ".";
  drawScores(null);
  $(".opened-files summary").textContent =
    plural(told.files_in_all, "file") +
    (told.files_in_all > told.files.length ? ", the first " + told.files.length : "");
  $(".opened-files tbody").replaceChildren(
    ...told.files.map((f) => tableRow([[f.path], [f.size, "number"]])),
  );
  const older = told.revisions || [],
    others = (told.branches || []).filter((branch) => branch !== revision);
  $(".revisions summary").textContent =
    plural(older.length, "revision") +
    (others.length ? ", other branches: " + others.join(", ") : "");
  $(".revisions tbody").replaceChildren(
    ...older.map((r) => {
      const row = tableRow([
        [r.commit.slice(0, 8), "tight"],
        [r.title],
        [ago(Date.now() / 1000 - r.when), "tight"],
      ]);
      if (r.commit === told.commit)
        row.append(Object.assign(document.createElement("td"), { textContent: "open" }));
      else action(row, "Open", () => look(repo, r.commit));
      return row;
    }),
    ...others.map((branch) => {
      const row = tableRow([[branch, "tight"], ["branch"], [""]]);
      action(row, "Open", () => look(repo, branch));
      return row;
    }),
  );
  for (const box of [$(".opened > .buttons"), $(".opened-files")]) show(box, true);
  $(".opened").scrollIntoView({ block: "nearest" });
  show($(".revisions"), older.length + others.length > 1);
}
function drawScores(measured) {
  const card = opened.card,
    rows = [];
  if (card)
    rows.push(
      tableRow([
        ["model card"],
        [percent(card.exact_match), "number"],
        [card.n ? card.n.toLocaleString("en") : "not given", "number"],
      ]),
    );
  if (measured)
    rows.push(
      tableRow([
        ["this server"],
        [percent(measured.exact_match), "number"],
        [measured.n.toLocaleString("en"), "number"],
      ]),
    );
  show($(".scores"), rows.length);
  $(".scores tbody").replaceChildren(...rows);
}
async function measure() {
  const mine = opened;
  try {
    const told = await visibly(
      { kind: "reproduce", repo: mine.repo, revision: mine.commit, retry: measure },
      $(".opened-progress"),
      $(".opened-note"),
      $(".cancel-opened"),
      () => mine === opened,
    );
    if (mine !== opened) return;
    drawScores(told.measured);
    const same =
      told.card &&
      Math.abs(told.card.exact_match - told.measured.exact_match) < 0.5 / told.measured.n;
    const equal =
      "The scores are equal. The evaluation took " + duration(told.measured_seconds) + ".";
    const different = "The scores differ: the card may describe other weights or another metric.";
    $(".verdict").textContent = !told.card
      ? "Its model card has no score to compare with."
      : same
        ? equal
        : different;
  } catch (error) {
    /* the note shows the error */
  }
}
async function bring() {
  const mine = opened;
  try {
    const told = await visibly(
      {
        kind: "pull",
        repo: mine.repo,
        revision: mine.commit,
        main: mine.revision === "main",
        retry: bring,
      },
      $(".opened-progress"),
      $(".opened-note"),
      $(".cancel-opened"),
      () => mine === opened,
    );
    if (told.subject) openInTrain(told.subject);
  } catch (error) {
    /* the note shows the error */
  }
}
$(".bring").addEventListener("click", bring);
$(".measure").addEventListener("click", measure);
$(".close-opened").addEventListener("click", () => {
  opened = null;
  show($(".opened"), false);
});

// ---------------------------------------------------------------- start and polling
async function attach() {
  let value = {};
  try {
    value = JSON.parse(props.value) || {};
  } catch (error) {
    return;
  }
  owner = value.owner || "";
  if (!seen && element.offsetParent) begin();
}
async function begin() {
  seen = true;
  await who();
  await list();
  gallery(false);
  keep("tell");
  const [repo, revision] = address((ofAddress("hub") || "").slice(0, 300));
  if (repo) look(repo, revision);
  if (me.way === "machine" && me.signed_in) check();
}
async function goOn() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await rest(1000);
    if (!owner || !element.offsetParent || document.hidden) continue; // the tab is hidden
    if (!seen) {
      await begin();
      continue;
    }
    if (round % 4 === 0) {
      if (me.way === "oauth" && !me.signed_in) await who();
      await list();
      await which(false);
      await keep("tell");
    }
  }
}
watch("value", attach);
attach();
goOn();
