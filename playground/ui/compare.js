// The Compare tab: the visitor's model, and one view at a time that holds it against others. What needs a pretrained model is a job of
// the comparer, a process of its own that starts with the first job; this asks how the job goes. Nothing shown is computed here.
//
// A view is a file compare_NAME.js (named in VIEWS of compare.py) that says
//
//   VIEWS.NAME = {
//     title      what its tab reads
//     explain    the sentence under the tabs
//     build(box) makes its elements, once; its askers, too
//     show()     called whenever it comes on screen, or must be drawn anew (another width, light or dark); optional
//     fields()   remembers what its fields hold, and names what it has kept it under: a link carries that; optional
//     chosen()   called when another model was chosen above, the first one included; optional
//   };
//
// What views share: `state.subject` (the model above), `keep(name, value)` and `kept(name)` (what the browser remembers),
//   asker(key, {...})     one question at a time to the comparer, with its line of progress; found again after a reload
//   modelField({...})     a field for a pretrained model that says what it would take before anything is fetched
//   known, lookUp(names)  what is known of pretrained models; a view looks up its own in show()
//   subjectNow()          the row of the chosen model in the lists of the server: name, task, parameters
const root = $(".compare"), VIEWS = { __proto__: null }, MEMORY = "transformer-playground-compare";
const state = { subject: "", view: "table" };
let owner = "", runs = [], checkpoints = [], seen = false, memory = {};

try { memory = JSON.parse(localStorage.getItem(MEMORY) || "{}") || {}; } catch (error) { /* nothing sensible */ }
function keep(name, value) {
  memory[name] = value;
  try { localStorage.setItem(MEMORY, JSON.stringify(memory)); } catch (error) { /* a browser without a memory */ }
}
const kept = (name) => memory[name];
// A link opens a view with what its fields hold; short answers to something else are not found again beneath them.
const CARRIED = /^(table|attention|finetune|free-[a-z]+|meaning-part)$/;
function takeLink() {
  const link = carried("compare"), fields = link.fields && typeof link.fields === "object" ? link.fields : {};
  for (const [name, value] of Object.entries(fields)) {
    if (!CARRIED.test(name)) continue;
    memory[name] = value;
    if (name.startsWith("free-")) delete memory["job-" + name];
    if (name === "attention") for (const i of [0, 1]) delete memory["job-attention-" + i];
  }
  for (const name of ["view", "subject"]) if (typeof link[name] === "string") memory[name] = link[name];
}
takeLink();
function linkToView() {
  const spec = VIEWS[state.view], names = spec.fields ? spec.fields() : [], mine = state.subject.startsWith("checkpoint:") ? { subject: state.subject } : {};
  return linkWith("compare", { view: state.view, ...mine, fields: Object.fromEntries(names.map((name) => [name, kept(name)])) });
}
$(".link").addEventListener("click", () => copyText(linkToView(), $(".link"), "The link"));

// ---------------------------------------------------------------- asking
const OVER = ["done", "failed", "cancelled"];
// One question at a time. The view says what follows:
//   begun(what, anew)       one begins, or (`anew` false) is found again after a reload
//   rows(new ones, told, what)  as they come
//   going(told, what)       it was heard of, and is not over
//   over(told, what)        it has ended, whichever way; what this returns stays in the line
// `line` is to be put into the view: it says how it goes, lets one cancel or try again, and has a place of its own, so that nothing moves.
function asker(key, { begun = () => {}, rows = () => {}, going = () => {}, over = () => {} } = {}) {
  const words = el("span", { className: "words" }), amount = el("span", { className: "amount" }), bar = el("i"), stop = el("button", { type: "button", className: "quiet cancel", textContent: "Cancel" });
  const again = el("button", { type: "button", className: "quiet again", textContent: "Try again", hidden: true }), share = el("span", { className: "share" }, bar);
  const line = el("div", { className: "going" }, words, share, amount, stop, again), self = { line, busy: false, what: null };
  words.setAttribute("role", "status");
  let number = 0, job = null, request = null;
  function say(text, wrong = false, retry = false) {
    words.textContent = self.busy ? sentenceOf(text).replace(/\.$/, "") : sentenceOf(text); words.classList.toggle("error", wrong);
    again.hidden = !retry; stop.hidden = !self.busy; share.hidden = amount.hidden = !self.busy;
    line.classList.toggle("idle", !self.busy && !text);
  }
  function sayHow(told) {
    const left = told.status === "waiting" ? (told.place ? "waiting: " + plural(told.place, "question") + " before this one" : "waiting for its turn") : told.sentence || "beginning";
    say(left);
    bar.style.width = told.total ? Math.min(100, (100 * told.done) / told.total) + "%" : "0";
    amount.textContent = !told.total ? "" : told.unit === "bytes" ? bytes(told.done) + " of " + bytes(told.total) : told.done.toLocaleString("en") + " of " + told.total.toLocaleString("en") + " " + told.unit;
  }
  async function follow(id, what, anew) {
    const mine = ++number;
    job = id; self.busy = true; self.what = what; line.dataset.status = "working";
    if (anew) { begun(what, true); sayHow({ status: "working", sentence: "beginning", total: 0 }); }
    for (let cursor = 0, wait = 80, first = true; mine === number; wait = Math.min(400, wait * 1.5)) {
      let told;
      try { told = await call("compare-poll", { owner, job: id, cursor }); } catch (error) { say("no answer from the server; asking again"); await sleep(1500); continue; }
      if (mine !== number) return;
      if (told.error) { // kept no more
        self.busy = false; keep("job-" + key, null); line.dataset.status = "gone";
        say(anew || !first ? told.error : "", true, anew || !first);
        if (anew || !first) over({ status: "failed", sentence: told.error, again: true, rows: [] }, what);
        return;
      }
      if (first && !anew) begun(what, false);
      first = false; cursor = told.cursor;
      if (told.rows.length) rows(told.rows, told, what);
      if (OVER.includes(told.status)) {
        self.busy = false;
        const summary = over(told, what) || "";
        say(told.status === "done" ? summary : told.sentence, told.status === "failed", told.status === "failed");
        line.dataset.status = told.status; // tests wait for it
        return;
      }
      sayHow(told);
      going(told, what);
      await sleep(document.hidden || !element.offsetParent ? 2500 : wait);
    }
  }
  // Begin `kind` with `what`; with `subject`, the server adds that model's checkpoint.
  self.ask = async (kind, what, subject = "") => {
    const mine = ++number;
    request = [kind, what, subject];
    if (self.busy) try { await call("compare-cancel", { owner, job }); } catch (error) { /* then it ends by itself */ }
    self.busy = false; say("beginning"); line.classList.remove("idle");
    let told;
    try { told = await call("compare-begin", { owner, kind, what, ...(subject ? { subject } : {}) }); } catch (error) { told = { error: "no answer from the server; try again", again: true }; }
    if (mine !== number) { if (told.job) call("compare-cancel", { owner, job: told.job }).catch(() => {}); return; } // asked anew meanwhile
    if (told.error) { say(told.error, true, true); line.dataset.status = "failed"; return; }
    keep("job-" + key, { id: told.job, request });
    follow(told.job, what, true);
  };
  self.cancel = async () => {
    if (!self.busy) return;
    stop.disabled = true;
    try { await call("compare-cancel", { owner, job }); } catch (error) { /* it is asked about again in a moment */ }
    stop.disabled = false;
  };
  // After a reload: what was under way, or is still kept.
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
// A short question without a line: its result, or an error with a sentence. `row` is called with what comes before. One at a time, and with
// patience: a visitor may have two jobs, and those with a line go first.
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
const known = new Map(), looking = new Set(), listeners = []; // name -> what `about` says of it
let onMachine = [], foldersToo = false;
// Find out what models would take; those that are known are not asked about again, unless `anew`.
async function lookUp(names, anew = false) {
  const wanted = [...new Set(names.map((name) => name.trim()).filter(Boolean))].filter((name) => !looking.has(name) && (anew || !known.has(name)));
  if (!wanted.length || !owner) return;
  for (const name of wanted) { looking.add(name); if (anew) known.delete(name); }
  tellListeners();
  const came = (row) => { known.set(row.name, row); looking.delete(row.name); tellListeners(); };
  try {
    const told = await quietly("about", { models: wanted }, came);
    foldersToo = told.folders;
    told.models.forEach((row, i) => known.set(wanted[i], row));
  } catch (error) { /* what they would take stays unsaid; asking them says what is wrong */ }
  for (const name of wanted) looking.delete(name);
  tellListeners();
}
async function lookAround() {
  try { const told = await quietly("cached", {}); onMachine = told.models.map((row) => row.name); foldersToo = told.folders; } catch (error) { /* the field suggests less */ }
  tellListeners();
}
function tellListeners() {
  const unreached = [...known.values()].find((row) => row.unreached);
  const text = unreached ? sentenceOf(unreached.sentence) : "", net = $(".net");
  if (net.dataset.text !== text) {
    net.dataset.text = text; net.textContent = text;
    if (text) { const button = el("button", { type: "button", className: "quiet", textContent: "Look again" }); button.addEventListener("click", () => lookUp([...known.keys()], true)); net.append(" ", button); }
  }
  listeners.forEach((listener) => listener());
}
// What using a model would take: [words, whether something is wrong].
function whatItTakes(name) {
  const row = known.get(name.trim());
  if (!name.trim()) return ["", false];
  if (!row) return [looking.has(name.trim()) ? "looking it up" : "", false];
  if (row.sentence) return [row.unreached ? "not on this machine, and the Hub cannot be reached" : sentenceOf(row.sentence), true];
  const size = [row.parameters ? row.parameters.toLocaleString("en") + " parameters" : "", row.bytes ? bytes(row.bytes) : ""].filter(Boolean).join(", ");
  return [row.where === "hub" ? bytes(row.bytes) + " to fetch, once" + (row.parameters ? "; " + row.parameters.toLocaleString("en") + " parameters" : "") : (row.where === "directory" ? (name.startsWith("tuned:") ? "fine-tuned here" : "a folder of this machine") : "on this machine") + ": " + size, false];
}
// A field for one model. `change(name)` when another was settled on; `field.value` is its name.
function modelField({ label = "Model", value = "gpt2", change = () => {} } = {}) {
  const id = "models-" + Math.random().toString(36).slice(2), input = el("input", { type: "text", className: "model", value, spellcheck: false, autocomplete: "off", maxLength: 200 });
  const list = el("datalist", { id }), takes = el("span", { className: "takes" }), box = el("label", { className: "model-field" }, label + " ", input, list, takes);
  input.setAttribute("list", id);
  const field = { box, input, get value() { return input.value.trim(); }, set value(name) { input.value = name; say(); } };
  let timer;
  function say() {
    const [words, wrong] = whatItTakes(field.value);
    takes.textContent = words; takes.classList.toggle("error", wrong);
    offer(list);
  }
  input.addEventListener("input", () => { clearTimeout(timer); say(); timer = setTimeout(() => { lookUp([field.value]); change(field.value); }, 600); });
  input.addEventListener("change", () => { clearTimeout(timer); lookUp([field.value]); change(field.value); });
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
    tab.dataset.title = spec.title; // as wide as it is when it is bold
    tab.setAttribute("role", "tab");
    tab.addEventListener("click", () => go(name));
    tab.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], names = Object.keys(VIEWS);
      if (!by) return;
      event.preventDefault();
      const next = names[(names.indexOf(name) + by + names.length) % names.length];
      go(next); VIEWS[next].tab.focus();
    });
    $(".views").append(tab);
    spec.tab = tab;
    spec.box = el("div", { className: "of-" + name, hidden: true });
    spec.box.setAttribute("role", "tabpanel"); spec.box.setAttribute("aria-labelledby", "compare-" + name);
    $(".stage").append(spec.box);
    spec.build(spec.box);
  }
}
function go(name) {
  if (!VIEWS[name]) name = Object.keys(VIEWS)[0];
  state.view = name;
  for (const [each, spec] of Object.entries(VIEWS)) {
    spec.tab.setAttribute("aria-selected", String(each === name)); spec.tab.tabIndex = each === name ? 0 : -1;
    spec.box.hidden = each !== name;
  }
  $(".explain").textContent = VIEWS[name].explain;
  keep("view", name);
  show();
}
function show() { const spec = VIEWS[state.view]; if (spec && spec.show && spec.box && spec.box.offsetParent) spec.show(); }

// ---------------------------------------------------------------- the visitor's model
const subjectNow = () => [...runs, ...checkpoints].find((each) => each.subject === state.subject) || null;
async function list() {
  let told;
  try { told = await call("runs", { owner }); } catch (error) { return; }
  runs = told.runs.filter((run) => !run.deleted); checkpoints = told.checkpoints;
  const select = $(".subject"), signature = JSON.stringify([runs.map((r) => [r.subject, r.name]), checkpoints.map((c) => c.subject)]);
  if (select.dataset.signature === signature) return;
  select.dataset.signature = signature;
  const group = (label, options) => { const box = el("optgroup", { label }); box.append(...options); return box; };
  select.replaceChildren(...[
    runs.length && group("Your runs", runs.map((r) => new Option(r.name, r.subject))),
    checkpoints.length && group("Checkpoints that come with the playground", checkpoints.map((c) => new Option(c.name + ": " + c.about, c.subject))),
  ].filter(Boolean));
  if (!subjectNow()) choose(checkpoints.some((c) => c.subject === "checkpoint:reverse") ? "checkpoint:reverse" : (runs[0] || checkpoints[0] || { subject: "" }).subject);
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

// ---------------------------------------------------------------- beginning
function attach() {
  let value = {};
  try { value = JSON.parse(props.value) || {}; } catch (error) { return; }
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
  lookAround(); // now the comparer starts, not before anybody looks
}
async function goOn() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await rest(300);
    if (!owner || !element.offsetParent || document.hidden) continue;
    if (!seen) { await start(); continue; }
    if (round % 12 === 0) await list();
  }
}
listen(window, "playground-Compare", () => { const sent = seen && handedOver("Compare"); if (sent) list().then(() => choose(sent.subject)); });
