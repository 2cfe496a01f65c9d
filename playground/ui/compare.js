// The Compare tab: the user's model and one view at a time that compares it with others. Everything
// that needs a pretrained model is a job in a separate process, which starts with the first job.
// The page polls the job and displays its results; it computes nothing itself.
//
// A view is a file compare_NAME.js (listed in VIEWS of compare.py) that defines
//
//   VIEWS.NAME = {
//     title      the label of its tab
//     explain    the text under the tabs
//     build(box) creates its elements and its job handlers, once
//     show()     called when it becomes visible or must be redrawn (new width, light or dark);
// optional
//     fields()   stores its field values and returns their storage keys, for links; optional
//     chosen()   called after each model selection, including the first; optional
//   };
//
// Shared by the views: `state.subject` (the selected model), `keep(name, value)` and `saved(name)`
// (browser storage),
//   createJobRunner(key, {...})  runs one job at a time, with a progress line; it survives a reload
//   modelField({...})     a field for a pretrained model that shows its download size first
//   modelFacts, loadModelFacts(names)  facts on pretrained models; a view requests them in show()
//   subjectNow()          the list entry of the selected model: name, task, parameters
const root = $(".compare"),
  VIEWS = { __proto__: null },
  STORAGE_KEY = "transformer-playground-compare";
const state = { subject: "", view: "table" };
let owner = "",
  runs = [],
  checkpoints = [],
  isStarted = false,
  storedState = {};

try {
  storedState = JSON.parse(localStorage.getItem(STORAGE_KEY) || "{}") || {};
} catch (error) {
  /* the stored value is malformed */
}
function saveLocal(name, value) {
  storedState[name] = value;
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(storedState));
  } catch (error) {
    /* storage is not available */
  }
}
const loadLocal = (name) => storedState[name];
// A link restores the fields of a view. Stored results of other inputs are discarded.
const LINK_FIELDS = /^(table|attention|finetune|free-[a-z]+|meaning-part)$/;
function applyLinkState() {
  const link = readLinkState("compare"),
    fields = link.fields && typeof link.fields === "object" ? link.fields : {};
  for (const [name, value] of Object.entries(fields)) {
    if (!LINK_FIELDS.test(name)) continue;
    storedState[name] = value;
    if (name.startsWith("free-")) delete storedState["job-" + name];
    if (name === "attention") for (const i of [0, 1]) delete storedState["job-attention-" + i];
  }
  for (const name of ["view", "subject"])
    if (typeof link[name] === "string") storedState[name] = link[name];
}
applyLinkState();
function buildViewLink() {
  const spec = VIEWS[state.view],
    names = spec.fields ? spec.fields() : [],
    mine = state.subject.startsWith("checkpoint:") ? { subject: state.subject } : {};
  return buildLink("compare", {
    view: state.view,
    ...mine,
    fields: Object.fromEntries(names.map((name) => [name, loadLocal(name)])),
  });
}
$(".link").addEventListener("click", () => copyText(buildViewLink(), $(".link"), "The link"));

// ---------------------------------------------------------------- jobs
const TERMINAL_STATUSES = ["done", "failed", "cancelled"];
// Run one job at a time. Callbacks of the view:
//   onStart(payload, isNew)           the job started, or (not `isNew`) was restored after a reload
//   onRows(rows, response, payload)   new result rows
//   onProgress(response, payload)     a status update of an active job
//   onFinish(response, payload)       the job ended; the returned text stays in the progress line
// The view inserts `line`: it shows the progress and has buttons to cancel and to retry. Its space
// is reserved, so the layout does not shift.
function createJobRunner(
  key,
  { onStart = () => {}, onRows = () => {}, onProgress = () => {}, onFinish = () => {} } = {},
) {
  const words = el("span", { className: "words" }),
    amount = el("span", { className: "amount" }),
    bar = el("i"),
    stop = el("button", { type: "button", className: "quiet cancel", textContent: "Cancel" });
  const again = el("button", {
      type: "button",
      className: "quiet again",
      textContent: "Try again",
      hidden: true,
    }),
    share = el("span", { className: "share" }, bar);
  const line = el("div", { className: "job-status" }, words, share, amount, stop, again),
    self = { line, busy: false, what: null };
  words.setAttribute("role", "status");
  let number = 0,
    job = null,
    lastRequest = null;
  function showMessage(text, wrong = false, retry = false) {
    words.textContent = self.busy ? formatMessage(text).replace(/\.$/, "") : formatMessage(text);
    words.classList.toggle("error", wrong);
    again.hidden = !retry;
    stop.hidden = !self.busy;
    share.hidden = amount.hidden = !self.busy;
    line.classList.toggle("idle", !self.busy && !text);
  }
  function renderProgress(response) {
    const progressText =
      response.status === "waiting"
        ? response.queue_position
          ? "queued: " + pluralize(response.queue_position, "job") + " ahead"
          : "queued"
        : response.message || "starting";
    showMessage(progressText);
    bar.style.width = response.total
      ? Math.min(100, (100 * response.done) / response.total) + "%"
      : "0";
    amount.textContent = !response.total
      ? ""
      : response.unit === "bytes"
        ? formatBytes(response.done) + " of " + formatBytes(response.total)
        : response.done.toLocaleString("en") +
          " of " +
          response.total.toLocaleString("en") +
          " " +
          response.unit;
  }
  async function follow(id, payload, isNew) {
    const runId = ++number;
    job = id;
    self.busy = true;
    self.what = payload;
    line.dataset.status = "working";
    if (isNew) {
      onStart(payload, true);
      renderProgress({ status: "working", message: "starting", total: 0 });
    }
    for (
      let cursor = 0, wait = 80, first = true;
      runId === number;
      wait = Math.min(400, wait * 1.5)
    ) {
      let response;
      try {
        response = await request("jobs/poll", { owner, job: id, cursor });
      } catch (error) {
        showMessage("the server did not respond; retrying");
        await sleep(1500);
        continue;
      }
      if (runId !== number) return;
      if (response.error) {
        // the job is no longer stored
        self.busy = false;
        saveLocal("job-" + key, null);
        line.dataset.status = "not-found";
        showMessage(isNew || !first ? response.error : "", true, isNew || !first);
        if (isNew || !first)
          onFinish({ status: "failed", message: response.error, again: true, rows: [] }, payload);
        return;
      }
      if (first && !isNew) onStart(payload, false);
      first = false;
      cursor = response.cursor;
      if (response.rows.length) onRows(response.rows, response, payload);
      if (TERMINAL_STATUSES.includes(response.status)) {
        self.busy = false;
        const summary = onFinish(response, payload) || "";
        showMessage(
          response.status === "done" ? summary : response.message,
          response.status === "failed",
          response.status === "failed",
        );
        line.dataset.status = response.status; // tests wait for this attribute
        return;
      }
      renderProgress(response);
      onProgress(response, payload);
      await sleep(document.hidden || !element.offsetParent ? 2500 : wait);
    }
  }
  // Start a job of `kind` with the request `what`. With `subject`, the server adds that checkpoint.
  self.run = async (kind, what, subject = "") => {
    const mine = ++number;
    lastRequest = [kind, what, subject];
    if (self.busy)
      try {
        await request("jobs/cancel", { owner, job });
      } catch (error) {
        /* it ends without the request */
      }
    self.busy = false;
    showMessage("starting");
    line.classList.remove("idle");
    let response;
    try {
      response = await request("jobs/submit", {
        owner,
        kind,
        what,
        ...(subject ? { subject } : {}),
      });
    } catch (error) {
      response = { error: NO_RESPONSE, again: true };
    }
    if (mine !== number) {
      if (response.job) request("jobs/cancel", { owner, job: response.job }).catch(() => {});
      return;
    } // a newer request was sent
    if (response.error) {
      showMessage(response.error, true, true);
      line.dataset.status = "failed";
      return;
    }
    saveLocal("job-" + key, { id: response.job, request: lastRequest });
    follow(response.job, what, true);
  };
  self.cancel = async () => {
    if (!self.busy) return;
    stop.disabled = true;
    try {
      await request("jobs/cancel", { owner, job });
    } catch (error) {
      /* the next poll reports its state */
    }
    stop.disabled = false;
  };
  // After a reload, continue with the stored job.
  self.find = () => {
    const before = loadLocal("job-" + key);
    if (!before || !before.id || !Array.isArray(before.request)) return;
    lastRequest = before.request;
    follow(before.id, lastRequest[1], false);
  };
  stop.addEventListener("click", self.cancel);
  again.addEventListener("click", () => lastRequest && self.run(...lastRequest));
  showMessage("");
  jobRunners.push(self);
  return self;
}
const jobRunners = [];
// Run a short job without a progress line. Return its result or throw an error with a message.
// `row` receives its rows. These jobs run one at a time and retry, because an owner may have only
// two jobs and those with a progress line have priority.
let backgroundQueue = Promise.resolve();
function runBackgroundJob(kind, payload, onRow = () => {}, subject = "") {
  const promise = backgroundQueue.then(() => runBackgroundJobNow(kind, payload, onRow, subject));
  backgroundQueue = promise.catch(() => {});
  return promise;
}
async function runBackgroundJobNow(kind, payload, onRow, subject) {
  const jobError = (message) => Object.assign(new Error(message), { isServerMessage: true });
  let submitted;
  for (let tries = 0; ; tries++) {
    submitted = await request("jobs/submit", {
      owner,
      kind,
      what: payload,
      ...(subject ? { subject } : {}),
    });
    if (submitted.job) break;
    if (!submitted.again || tries > 60) throw jobError(submitted.error);
    await sleep(1000);
  }
  for (let cursor = 0, wait = 60; ; wait = Math.min(300, wait * 1.5)) {
    const response = await request("jobs/poll", { owner, job: submitted.job, cursor });
    if (response.error) throw jobError(response.error);
    cursor = response.cursor;
    for (const each of response.rows) onRow(each);
    if (response.status === "done") return response.result;
    if (TERMINAL_STATUSES.includes(response.status)) throw jobError(response.message);
    await sleep(wait);
  }
}

// ---------------------------------------------------------------- pretrained models
const DEFAULT_MODELS = ["gpt2", "bert-base-uncased"];
const modelFacts = new Map(),
  pendingModelFacts = new Set(),
  listeners = []; // model name -> response of `about`
let cachedModels = [],
  localPathsAllowed = false;
// Request size and location of models. Cached models are requested again only with `anew`.
async function loadModelFacts(names, force = false) {
  const missing = [...new Set(names.map((name) => name.trim()).filter(Boolean))].filter(
    (name) => !pendingModelFacts.has(name) && (force || !modelFacts.has(name)),
  );
  if (!missing.length || !owner) return;
  for (const name of missing) {
    pendingModelFacts.add(name);
    if (force) modelFacts.delete(name);
  }
  notifyListeners();
  const onRow = (row) => {
    modelFacts.set(row.name, row);
    pendingModelFacts.delete(row.name);
    notifyListeners();
  };
  try {
    const response = await runBackgroundJob("model-info", { models: missing }, onRow);
    localPathsAllowed = response.folders;
    response.models.forEach((row, i) => modelFacts.set(missing[i], row));
  } catch (error) {
    /* sizes stay unknown; running a model reports the error */
  }
  for (const name of missing) pendingModelFacts.delete(name);
  notifyListeners();
}
async function listLocalModels() {
  try {
    const response = await runBackgroundJob("cached-models", {});
    cachedModels = response.models.map((row) => row.name);
    localPathsAllowed = response.folders;
  } catch (error) {
    /* the field has fewer suggestions */
  }
  notifyListeners();
}
function notifyListeners() {
  const unreached = [...modelFacts.values()].find((row) => row.unreached);
  const text = unreached ? formatMessage(unreached.message) : "",
    net = $(".net");
  if (net.dataset.text !== text) {
    net.dataset.text = text;
    net.textContent = text;
    if (text) {
      const button = el("button", { type: "button", className: "quiet", textContent: "Retry" });
      button.addEventListener("click", () => loadModelFacts([...modelFacts.keys()], true));
      net.append(" ", button);
    }
  }
  listeners.forEach((listener) => listener());
}
// The cost of using a model: [text, whether it is an error].
function formatModelCost(name) {
  const row = modelFacts.get(name.trim());
  if (!name.trim()) return ["", false];
  if (!row) return [pendingModelFacts.has(name.trim()) ? "checking" : "", false];
  if (row.message)
    return [
      row.unreached
        ? "not on this machine, and the Hub is not reachable"
        : formatMessage(row.message),
      true,
    ];
  const size = [
    row.parameters ? row.parameters.toLocaleString("en") + " parameters" : "",
    row.bytes ? formatBytes(row.bytes) : "",
  ]
    .filter(Boolean)
    .join(", ");
  return [
    row.where === "hub"
      ? formatBytes(row.bytes) +
        " to download, once" +
        (row.parameters ? "; " + row.parameters.toLocaleString("en") + " parameters" : "")
      : (row.where === "directory"
          ? name.startsWith("tuned:")
            ? "fine-tuned here"
            : "a local folder"
          : "on this machine") +
        ": " +
        size,
    false,
  ];
}
// A field for one model name. `change(name)` is called after each change; `field.value` is the
// name.
function createModelPicker({ label = "Model", value = "gpt2", change = () => {} } = {}) {
  const id = "models-" + Math.random().toString(36).slice(2),
    input = el("input", {
      type: "text",
      className: "model",
      value,
      spellcheck: false,
      autocomplete: "off",
      maxLength: 200,
    });
  const list = el("datalist", { id }),
    takes = el("span", { className: "takes" }),
    box = el("label", { className: "model-field" }, label + " ", input, list, takes);
  input.setAttribute("list", id);
  const field = {
    box,
    input,
    get value() {
      return input.value.trim();
    },
    set value(name) {
      input.value = name;
      renderModelCost();
    },
  };
  let timer;
  function renderModelCost() {
    const [words, wrong] = formatModelCost(field.value);
    takes.textContent = words;
    takes.classList.toggle("error", wrong);
    renderSuggestions(list);
  }
  input.addEventListener("input", () => {
    clearTimeout(timer);
    renderModelCost();
    timer = setTimeout(() => {
      loadModelFacts([field.value]);
      change(field.value);
    }, 600);
  });
  input.addEventListener("change", () => {
    clearTimeout(timer);
    loadModelFacts([field.value]);
    change(field.value);
  });
  listeners.push(renderModelCost);
  field.loadFacts = () => loadModelFacts([field.value]);
  return field;
}
function renderSuggestions(list) {
  const names = [...new Set([...DEFAULT_MODELS, ...cachedModels])];
  if (list.dataset.names === names.join()) return;
  list.dataset.names = names.join();
  list.replaceChildren(...names.map((name) => el("option", { value: name })));
}

// ---------------------------------------------------------------- views
function buildViews() {
  for (const [name, spec] of Object.entries(VIEWS)) {
    const tab = el("button", { type: "button", textContent: spec.title, id: "compare-" + name });
    tab.dataset.title = spec.title; // reserves the width of the bold label
    tab.setAttribute("role", "tab");
    tab.addEventListener("click", () => selectView(name));
    tab.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
        names = Object.keys(VIEWS);
      if (!by) return;
      event.preventDefault();
      const next = names[(names.indexOf(name) + by + names.length) % names.length];
      selectView(next);
      VIEWS[next].tab.focus();
    });
    $(".views").append(tab);
    spec.tab = tab;
    spec.box = el("div", { className: "of-" + name, hidden: true });
    spec.box.setAttribute("role", "tabpanel");
    spec.box.setAttribute("aria-labelledby", "compare-" + name);
    $(".stage").append(spec.box);
    spec.build(spec.box);
  }
}
function selectView(name) {
  if (!VIEWS[name]) name = Object.keys(VIEWS)[0];
  state.view = name;
  for (const [each, spec] of Object.entries(VIEWS)) {
    spec.tab.setAttribute("aria-selected", String(each === name));
    spec.tab.tabIndex = each === name ? 0 : -1;
    spec.box.hidden = each !== name;
  }
  $(".explain").textContent = VIEWS[name].explain;
  saveLocal("view", name);
  showView();
}
function showView() {
  const spec = VIEWS[state.view];
  if (spec && spec.show && spec.box && spec.box.offsetParent) spec.show();
}

// ---------------------------------------------------------------- the user's model
const currentModel = () =>
  [...runs, ...checkpoints].find((each) => each.subject === state.subject) || null;
async function loadModels() {
  let response;
  try {
    response = await request("runs/list", { owner });
  } catch (error) {
    return;
  }
  runs = response.runs.filter((run) => !run.deleted);
  checkpoints = response.checkpoints;
  const select = $(".subject"),
    signature = JSON.stringify([
      runs.map((r) => [r.subject, r.name]),
      checkpoints.map((c) => c.subject),
    ]);
  if (select.dataset.signature === signature) return;
  select.dataset.signature = signature;
  const group = (label, options) => {
    const box = el("optgroup", { label });
    box.append(...options);
    return box;
  };
  select.replaceChildren(
    ...[
      runs.length &&
        group(
          "Your runs",
          runs.map((r) => new Option(r.name, r.subject)),
        ),
      checkpoints.length &&
        group(
          "Included checkpoints",
          checkpoints.map((c) => new Option(c.name + ": " + c.about, c.subject)),
        ),
    ].filter(Boolean),
  );
  if (!currentModel())
    selectModel(
      checkpoints.some((c) => c.subject === "checkpoint:reverse")
        ? "checkpoint:reverse"
        : (runs[0] || checkpoints[0] || { subject: "" }).subject,
    );
  select.value = state.subject;
}
function selectModel(subject) {
  state.subject = subject;
  $(".subject").value = subject;
  saveLocal("subject", subject);
  for (const spec of Object.values(VIEWS)) if (spec.chosen) spec.chosen();
}
$(".subject").addEventListener("change", (event) => selectModel(event.target.value));
onResizeOrThemeChange(showView);

// ---------------------------------------------------------------- start
function mount() {
  let value = {};
  try {
    value = JSON.parse(props.value) || {};
  } catch (error) {
    return;
  }
  owner = value.owner || "";
}
async function init() {
  isStarted = true;
  if (typeof loadLocal("subject") === "string") state.subject = loadLocal("subject");
  const sent = takeHandOff("Compare");
  if (sent) state.subject = sent.subject;
  await loadModels();
  if (currentModel()) selectModel(state.subject);
  selectView(typeof loadLocal("view") === "string" ? loadLocal("view") : "table");
  jobRunners.forEach((each) => each.find());
  listLocalModels(); // this starts the model process, so it waits until the tab is visible
}
async function pollLoop() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await sleepWhileHidden(300);
    if (!owner || !element.offsetParent || document.hidden) continue;
    if (!isStarted) {
      await init();
      continue;
    }
    if (round % 12 === 0) await loadModels();
  }
}
addViewListener(window, "playground-Compare", () => {
  const sent = isStarted && takeHandOff("Compare");
  if (sent) loadModels().then(() => selectModel(sent.subject));
});
