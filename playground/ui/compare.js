// The Compare tab: the user's model and one view at a time that compares it with others. Everything
// that needs a pretrained model is a job in a separate process, which starts with the first job.
// The
// page polls the job and displays its results; it computes nothing itself.
//
// A view is a file compare_NAME.js (listed in VIEWS of compare.py) that defines
//
//   VIEWS.NAME = {
//     title      the label of its tab
//     explain    the sentence under the tabs
//     build(box) creates its elements and its job handlers, once
//     show()     called when it becomes visible or must be redrawn (new width, light or dark);
// optional
//     fields()   stores its field values and returns their storage keys, for links; optional
//     chosen()   called after each model selection, including the first; optional
//   };
//
// Shared by the views: `state.subject` (the selected model), `keep(name, value)` and `kept(name)`
// (browser storage),
//   asker(key, {...})     runs one job at a time, with a progress line; it survives a reload
//   modelField({...})     a field for a pretrained model that shows its download size first
//   known, lookUp(names)  information on pretrained models; a view requests it in show()
//   subjectNow()          the list entry of the selected model: name, task, parameters
const root = $(".compare"),
  VIEWS = { __proto__: null },
  MEMORY = "transformer-playground-compare";
const state = { subject: "", view: "table" };
let owner = "",
  runs = [],
  checkpoints = [],
  seen = false,
  memory = {};

try {
  memory = JSON.parse(localStorage.getItem(MEMORY) || "{}") || {};
} catch (error) {
  /* the stored value is malformed */
}
function keep(name, value) {
  memory[name] = value;
  try {
    localStorage.setItem(MEMORY, JSON.stringify(memory));
  } catch (error) {
    /* storage is not available */
  }
}
const kept = (name) => memory[name];
// A link restores the fields of a view. Stored results of other inputs are discarded.
const CARRIED = /^(table|attention|finetune|free-[a-z]+|meaning-part)$/;
function takeLink() {
  const link = carried("compare"),
    fields = link.fields && typeof link.fields === "object" ? link.fields : {};
  for (const [name, value] of Object.entries(fields)) {
    if (!CARRIED.test(name)) continue;
    memory[name] = value;
    if (name.startsWith("free-")) delete memory["job-" + name];
    if (name === "attention") for (const i of [0, 1]) delete memory["job-attention-" + i];
  }
  for (const name of ["view", "subject"])
    if (typeof link[name] === "string") memory[name] = link[name];
}
takeLink();
function linkToView() {
  const spec = VIEWS[state.view],
    names = spec.fields ? spec.fields() : [],
    mine = state.subject.startsWith("checkpoint:") ? { subject: state.subject } : {};
  return linkWith("compare", {
    view: state.view,
    ...mine,
    fields: Object.fromEntries(names.map((name) => [name, kept(name)])),
  });
}
$(".link").addEventListener("click", () => copyText(linkToView(), $(".link"), "The link"));

// ---------------------------------------------------------------- jobs
const OVER = ["done", "failed", "cancelled"];
// Run one job at a time. Callbacks of the view:
//   begun(what, anew)           the job started, or (`anew` is false) was restored after a reload
//   rows(new rows, told, what)  new result rows
//   going(told, what)           a status update of an active job
//   over(told, what)            the job ended; the returned text stays in the progress line
// The view inserts `line`: it shows the progress and has buttons to cancel and to retry. Its space
// is
// reserved, so the layout does not shift.
function asker(key, { begun = () => {}, rows = () => {}, going = () => {}, over = () => {} } = {}) {
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
  const line = el("div", { className: "going" }, words, share, amount, stop, again),
    self = { line, busy: false, what: null };
  words.setAttribute("role", "status");
  let number = 0,
    job = null,
    request = null;
  function say(text, wrong = false, retry = false) {
    words.textContent = self.busy ? sentenceOf(text).replace(/\.$/, "") : sentenceOf(text);
    words.classList.toggle("error", wrong);
    again.hidden = !retry;
    stop.hidden = !self.busy;
    share.hidden = amount.hidden = !self.busy;
    line.classList.toggle("idle", !self.busy && !text);
  }
  function sayHow(told) {
    const left =
      told.status === "waiting"
        ? told.place
          ? "queued: " + plural(told.place, "job") + " ahead"
          : "queued"
        : told.sentence || "starting";
    say(left);
    bar.style.width = told.total ? Math.min(100, (100 * told.done) / told.total) + "%" : "0";
    amount.textContent = !told.total
      ? ""
      : told.unit === "bytes"
        ? bytes(told.done) + " of " + bytes(told.total)
        : told.done.toLocaleString("en") +
          " of " +
          told.total.toLocaleString("en") +
          " " +
          told.unit;
  }
  async function follow(id, what, anew) {
    const mine = ++number;
    job = id;
    self.busy = true;
    self.what = what;
    line.dataset.status = "working";
    if (anew) {
      begun(what, true);
      sayHow({ status: "working", sentence: "starting", total: 0 });
    }
    for (
      let cursor = 0, wait = 80, first = true;
      mine === number;
      wait = Math.min(400, wait * 1.5)
    ) {
      let told;
      try {
        told = await call("compare-poll", { owner, job: id, cursor });
      } catch (error) {
        say("the server did not respond; retrying");
        await sleep(1500);
        continue;
      }
      if (mine !== number) return;
      if (told.error) {
        // the job is no longer stored
        self.busy = false;
        keep("job-" + key, null);
        line.dataset.status = "gone";
        say(anew || !first ? told.error : "", true, anew || !first);
        if (anew || !first)
          over({ status: "failed", sentence: told.error, again: true, rows: [] }, what);
        return;
      }
      if (first && !anew) begun(what, false);
      first = false;
      cursor = told.cursor;
      if (told.rows.length) rows(told.rows, told, what);
      if (OVER.includes(told.status)) {
        self.busy = false;
        const summary = over(told, what) || "";
        say(
          told.status === "done" ? summary : told.sentence,
          told.status === "failed",
          told.status === "failed",
        );
        line.dataset.status = told.status; // tests wait for this attribute
        return;
      }
      sayHow(told);
      going(told, what);
      await sleep(document.hidden || !element.offsetParent ? 2500 : wait);
    }
  }
  // Start a job of `kind` with the request `what`. With `subject`, the server adds that checkpoint.
  self.ask = async (kind, what, subject = "") => {
    const mine = ++number;
    request = [kind, what, subject];
    if (self.busy)
      try {
        await call("compare-cancel", { owner, job });
      } catch (error) {
        /* it ends without the request */
      }
    self.busy = false;
    say("starting");
    line.classList.remove("idle");
    let told;
    try {
      told = await call("compare-begin", { owner, kind, what, ...(subject ? { subject } : {}) });
    } catch (error) {
      told = { error: "the server did not respond; try again", again: true };
    }
    if (mine !== number) {
      if (told.job) call("compare-cancel", { owner, job: told.job }).catch(() => {});
      return;
    } // a newer request was sent
    if (told.error) {
      say(told.error, true, true);
      line.dataset.status = "failed";
      return;
    }
    keep("job-" + key, { id: told.job, request });
    follow(told.job, what, true);
  };
  self.cancel = async () => {
    if (!self.busy) return;
    stop.disabled = true;
    try {
      await call("compare-cancel", { owner, job });
    } catch (error) {
      /* the next poll reports its state */
    }
    stop.disabled = false;
  };
  // After a reload, continue with the stored job.
  self.find = () => {
    const before = kept("job-" + key);
    if (!before || !before.id || !Array.isArray(before.request)) return;
    request = before.request;
    follow(before.id, request[1], false);
  };
  stop.addEventListener("click", self.cancel);
  again.addEventListener("click", () => request && self.ask(...request));
  say("");
  askers.push(self);
  return self;
}
const askers = [];
// Run a short job without a progress line. Return its result or throw an error with a message.
// `row`
// receives its rows. These jobs run one at a time and retry, because an owner may have only two
// jobs
// and those with a progress line have priority.
let quiet = Promise.resolve();
function quietly(kind, what, row = () => {}, subject = "") {
  const mine = quiet.then(() => quietlyNow(kind, what, row, subject));
  quiet = mine.catch(() => {});
  return mine;
}
async function quietlyNow(kind, what, row, subject) {
  const wrong = (sentence) => Object.assign(new Error(sentence), { told: true });
  let begun;
  for (let tries = 0; ; tries++) {
    begun = await call("compare-begin", { owner, kind, what, ...(subject ? { subject } : {}) });
    if (begun.job) break;
    if (!begun.again || tries > 60) throw wrong(begun.error);
    await sleep(1000);
  }
  for (let cursor = 0, wait = 60; ; wait = Math.min(300, wait * 1.5)) {
    const told = await call("compare-poll", { owner, job: begun.job, cursor });
    if (told.error) throw wrong(told.error);
    cursor = told.cursor;
    for (const each of told.rows) row(each);
    if (told.status === "done") return told.result;
    if (OVER.includes(told.status)) throw wrong(told.sentence);
    await sleep(wait);
  }
}

// ---------------------------------------------------------------- pretrained models
const SUGGESTED = ["gpt2", "bert-base-uncased"];
const known = new Map(),
  looking = new Set(),
  listeners = []; // model name -> response of `about`
let onMachine = [],
  foldersToo = false;
// Request size and location of models. Known models are requested again only with `anew`.
async function lookUp(names, anew = false) {
  const wanted = [...new Set(names.map((name) => name.trim()).filter(Boolean))].filter(
    (name) => !looking.has(name) && (anew || !known.has(name)),
  );
  if (!wanted.length || !owner) return;
  for (const name of wanted) {
    looking.add(name);
    if (anew) known.delete(name);
  }
  tellListeners();
  const came = (row) => {
    known.set(row.name, row);
    looking.delete(row.name);
    tellListeners();
  };
  try {
    const told = await quietly("about", { models: wanted }, came);
    foldersToo = told.folders;
    told.models.forEach((row, i) => known.set(wanted[i], row));
  } catch (error) {
    /* sizes stay unknown; running a model reports the error */
  }
  for (const name of wanted) looking.delete(name);
  tellListeners();
}
async function lookAround() {
  try {
    const told = await quietly("cached", {});
    onMachine = told.models.map((row) => row.name);
    foldersToo = told.folders;
  } catch (error) {
    /* the field has fewer suggestions */
  }
  tellListeners();
}
function tellListeners() {
  const unreached = [...known.values()].find((row) => row.unreached);
  const text = unreached ? sentenceOf(unreached.sentence) : "",
    net = $(".net");
  if (net.dataset.text !== text) {
    net.dataset.text = text;
    net.textContent = text;
    if (text) {
      const button = el("button", { type: "button", className: "quiet", textContent: "Retry" });
      button.addEventListener("click", () => lookUp([...known.keys()], true));
      net.append(" ", button);
    }
  }
  listeners.forEach((listener) => listener());
}
// The cost of using a model: [text, whether it is an error].
function whatItTakes(name) {
  const row = known.get(name.trim());
  if (!name.trim()) return ["", false];
  if (!row) return [looking.has(name.trim()) ? "checking" : "", false];
  if (row.sentence)
    return [
      row.unreached
        ? "not on this machine, and the Hub is not reachable"
        : sentenceOf(row.sentence),
      true,
    ];
  const size = [
    row.parameters ? row.parameters.toLocaleString("en") + " parameters" : "",
    row.bytes ? bytes(row.bytes) : "",
  ]
    .filter(Boolean)
    .join(", ");
  return [
    row.where === "hub"
      ? bytes(row.bytes) +
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
function modelField({ label = "Model", value = "gpt2", change = () => {} } = {}) {
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
      say();
    },
  };
  let timer;
  function say() {
    const [words, wrong] = whatItTakes(field.value);
    takes.textContent = words;
    takes.classList.toggle("error", wrong);
    offer(list);
  }
  input.addEventListener("input", () => {
    clearTimeout(timer);
    say();
    timer = setTimeout(() => {
      lookUp([field.value]);
      change(field.value);
    }, 600);
  });
  input.addEventListener("change", () => {
    clearTimeout(timer);
    lookUp([field.value]);
    change(field.value);
  });
  listeners.push(say);
  field.look = () => lookUp([field.value]);
  return field;
}
function offer(list) {
  const names = [...new Set([...SUGGESTED, ...onMachine])];
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
    tab.addEventListener("click", () => go(name));
    tab.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
        names = Object.keys(VIEWS);
      if (!by) return;
      event.preventDefault();
      const next = names[(names.indexOf(name) + by + names.length) % names.length];
      go(next);
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
function go(name) {
  if (!VIEWS[name]) name = Object.keys(VIEWS)[0];
  state.view = name;
  for (const [each, spec] of Object.entries(VIEWS)) {
    spec.tab.setAttribute("aria-selected", String(each === name));
    spec.tab.tabIndex = each === name ? 0 : -1;
    spec.box.hidden = each !== name;
  }
  $(".explain").textContent = VIEWS[name].explain;
  keep("view", name);
  show();
}
function show() {
  const spec = VIEWS[state.view];
  if (spec && spec.show && spec.box && spec.box.offsetParent) spec.show();
}

// ---------------------------------------------------------------- the user's model
const subjectNow = () =>
  [...runs, ...checkpoints].find((each) => each.subject === state.subject) || null;
async function list() {
  let told;
  try {
    told = await call("runs", { owner });
  } catch (error) {
    return;
  }
  runs = told.runs.filter((run) => !run.deleted);
  checkpoints = told.checkpoints;
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
  if (!subjectNow())
    choose(
      checkpoints.some((c) => c.subject === "checkpoint:reverse")
        ? "checkpoint:reverse"
        : (runs[0] || checkpoints[0] || { subject: "" }).subject,
    );
  select.value = state.subject;
}
function choose(subject) {
  state.subject = subject;
  $(".subject").value = subject;
  keep("subject", subject);
  for (const spec of Object.values(VIEWS)) if (spec.chosen) spec.chosen();
}
$(".subject").addEventListener("change", (event) => choose(event.target.value));
onAppearance(show);

// ---------------------------------------------------------------- start
function attach() {
  let value = {};
  try {
    value = JSON.parse(props.value) || {};
  } catch (error) {
    return;
  }
  owner = value.owner || "";
}
async function start() {
  seen = true;
  if (typeof kept("subject") === "string") state.subject = kept("subject");
  const sent = handedOver("Compare");
  if (sent) state.subject = sent.subject;
  await list();
  if (subjectNow()) choose(state.subject);
  go(typeof kept("view") === "string" ? kept("view") : "table");
  askers.forEach((each) => each.find());
  lookAround(); // this starts the model process, so it waits until the tab is visible
}
async function goOn() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await rest(300);
    if (!owner || !element.offsetParent || document.hidden) continue;
    if (!seen) {
      await start();
      continue;
    }
    if (round % 12 === 0) await list();
  }
}
listen(window, "playground-Compare", () => {
  const sent = seen && handedOver("Compare");
  if (sent) list().then(() => choose(sent.subject));
});
