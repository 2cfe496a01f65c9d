// ---------------------------------------------------------------- the runs, and what their owner does with them
let runs = [], checkpoints = [], serverNow = 0, slots = 0, listing = null, listAgainAt = 0, showHidden = false, savedShown = "";
const known = (s) => offered().includes(s);
const offered = () => [...runs.filter((r) => !r.deleted).map((r) => r.subject), ...checkpoints.map((c) => c.subject)];

// Have the server do something with a run; what it answers stands where the hand is: at the run on show, or at the list.
async function doing(what, of = subject, box = of === subject ? $(".hand-note") : $(".runs-note")) {
  let reply, lost = false;
  try { reply = await call("do", { owner, subject: of, ...what }); eager(); } catch (error) { reply = { error: "no answer from the server; try again" }; lost = true; }
  note(box, reply.error ? reply.error[0].toUpperCase() + reply.error.slice(1) + "." : "", "error");
  if (lost) box.dataset.lost = "yes";
  listSoon();
  return reply;
}

async function about(of) {
  try { return await call("about", { owner, subject: of }); } catch (error) { return { error: "No answer from the server; try again." }; }
}

// ---- the list
async function list() {
  let told;
  try { told = await call("runs", { owner }); } catch (error) { return false; }
  runs = told.runs; checkpoints = told.checkpoints; serverNow = told.now; slots = told.slots;
  if ($(".room-note").textContent !== told.room) $(".room-note").textContent = told.room;
  $(".device").textContent = sentenceOf(told.device); $(".home-note").textContent = told.note; $(".home-note").hidden = !told.note;
  offer(); drawRuns();
  const gone = [...overlays.keys()].filter((s) => !runs.some((r) => r.subject === s && !r.deleted));
  if (gone.length) { gone.forEach((s) => overlays.delete(s)); drawLegend(); draw(); }
  return true;
}
function listSoon() { listAgainAt = 0; }
async function keepListing() {
  while (element.isConnected) {
    if (Date.now() >= listAgainAt && owner) {
      listAgainAt = Date.now() + (document.hidden ? 10000 : runs.some((r) => GOING.includes(r.status) && r.status !== "paused") ? 1500 : 4000);
      await list();
      await overlay();
      if ($(".saved").open && last.own && savedShown !== subject + last.saved) await drawSaved();
    }
    const wasHidden = document.hidden;
    await rest(150, 10000); // a hidden page lists its runs too, or the server would take its owner for gone
    if (wasHidden && !document.hidden) listSoon();
  }
}

// The choice of the model on show.
function offer() {
  const select = $(".subject"), mine = runs.filter((r) => !r.deleted && (!r.hidden || r.subject === subject));
  const signature = JSON.stringify([mine.map((r) => [r.subject, r.name]), checkpoints, subject.startsWith("watch:") && [subject, last.name]]);
  if (select.dataset.signature !== signature) {
    select.dataset.signature = signature;
    const group = (label, options) => {
      const box = document.createElement("optgroup");
      box.label = label;
      box.append(...options.map(([value, text]) => new Option(text, value)));
      return box;
    };
    select.replaceChildren(...[
      subject.startsWith("watch:") && group("Shared with you", [[subject, last.name || "a run"]]),
      mine.length && group("Your runs", mine.map((r) => [r.subject, r.name])),
      checkpoints.length && group("Checkpoints that come with the playground", checkpoints.map((c) => [c.subject, c.name + ": " + c.about])),
    ].filter(Boolean));
  }
  if (select.value !== subject) select.value = subject;
}

const STATES = { waiting: "queued", starting: "starting", training: "training", paused: "paused", stopping: "stopping", done: "done", stopped: "stopped", failed: "failed" };
function drawRuns() {
  const body = $(".runs tbody"), visible = runs.filter((r) => !r.deleted && (showHidden || !r.hidden));
  const rows = new Map([...body.children].map((row) => [row.dataset.subject, row]));
  const hidden = runs.filter((r) => r.hidden && !r.deleted).length;
  $(".no-runs").hidden = visible.length > 0;
  $(".runs table").hidden = !visible.length;
  $(".show-hidden").hidden = !hidden;
  $(".show-hidden").textContent = showHidden ? "Hide hidden runs" : "Show " + plural(hidden, "hidden run");
  const wanted = visible.map((r) => {
    const row = rows.get(r.subject) || newRow(r.subject), cell = (name, text) => { const c = row.querySelector("." + name); if (c.textContent !== text) c.textContent = text; return c; };
    rows.delete(r.subject);
    row.classList.toggle("open", r.subject === subject);
    row.classList.toggle("hidden-run", r.hidden);
    if (!row.querySelector(".renaming")) { cell("name", r.name).title = r.name; }
    cell("state", r.place ? nth(r.place) : r.slice ? "next slice" : STATES[r.status] || r.status).dataset.status = r.status;
    cell("task", r.task);
    cell("size", r.shape[0] + " × " + r.shape[1] + ", " + Math.round(r.parameters / 1000) + " K").title = plural(r.shape[0], "layer") + ", " + plural(r.shape[1], "head") + ", d_model " + r.shape[2] + ", " + r.parameters.toLocaleString("en") + " parameters";
    cell("best", r.best === null ? "–" : percent(r.best)).title = r.best === null ? "" : "of " + plural(r.scored, "held-out sequence");
    cell("step-of", r.step.toLocaleString("en") + (r.step < r.steps ? " of " + r.steps.toLocaleString("en") : ""));
    cell("age", ago(serverNow - r.created));
    const box = row.querySelector(".lay"), on = overlays.has(r.subject), self = r.subject === subject;
    box.checked = on || self; box.disabled = self || (!on && overlays.size >= OVERLAY.length);
    box.title = self ? "Shown" : box.disabled ? "At most eight curves can be overlaid" : "Overlay its curves on those shown";
    row.style.setProperty("--colour", self ? "var(--pg-accent)" : on ? overlayColour(overlays.get(r.subject).place) : "transparent");
    row.querySelector("[data-do=hide]").textContent = r.hidden ? "Show again" : "Hide";
    row.querySelector("[data-do=resume]").hidden = !["paused", "stopped", "failed"].includes(r.status);
    row.querySelector("[data-do=stop]").hidden = !GOING.includes(r.status);
    return row;
  });
  for (const row of rows.values()) row.remove();
  wanted.forEach((row, at) => { if (body.children[at] !== row) body.insertBefore(row, body.children[at] || null); });
  const deleted = runs.filter((r) => r.deleted);
  $(".undo").hidden = !deleted.length;
  if ($(".undo").dataset.of !== deleted.map((r) => r.subject).join()) {
    $(".undo").dataset.of = deleted.map((r) => r.subject).join();
    $(".undo").replaceChildren("Deleted; removed permanently after ten minutes: ", ...deleted.map((r) => {
      const button = document.createElement("button");
      button.type = "button"; button.className = "quiet"; button.textContent = "Undo “" + r.name + "”";
      button.addEventListener("click", async () => { await doing({ do: "undelete" }, r.subject); await list(); open(r.subject); });
      return button;
    }));
  }
  $(".differ").disabled = !overlays.size;
}

function newRow(of) {
  const row = $(".row-template").content.firstElementChild.cloneNode(true);
  row.dataset.subject = of;
  const find = () => runs.find((r) => r.subject === of);
  row.querySelector(".name").addEventListener("click", () => { open(of); if ($(".top").getBoundingClientRect().top < 0) $(".top").scrollIntoView({ behavior: "smooth" }); });
  row.querySelector(".lay").addEventListener("change", (event) => { lay(of, event.target.checked); });
  const menu = row.querySelector("details");
  menu.addEventListener("toggle", () => { menu.classList.toggle("up", menu.getBoundingClientRect().bottom + 280 > document.documentElement.scrollHeight - scrollY); });
  menu.addEventListener("click", async (event) => {
    const what = event.target.closest("button")?.dataset.do, run = find();
    if (!what || !run) return;
    menu.open = false;
    if (what === "rename") return rename(row, run);
    if (what === "use") return use(of);
    if (what === "hide") await doing({ do: run.hidden ? "show" : "hide" }, of);
    else if (what === "delete") { const reply = await doing({ do: "delete" }, of); if (!reply.error) { overlays.delete(of); if (of === subject) open(first); } }
    else if (what === "again") { const reply = await doing({ do: "again" }, of); if (reply.subject) { await list(); open(reply.subject); } }
    else await doing({ do: what }, of);
    await list();
  });
  return row;
}

function rename(row, run) {
  const cell = row.querySelector(".name"), input = document.createElement("input");
  input.className = "renaming"; input.value = run.name; input.maxLength = 80; input.setAttribute("aria-label", "New name");
  cell.replaceWith(input); input.focus(); input.select();
  let over = false;
  const end = async (take, back = true) => { // `back`: to where the keyboard was; not when it is at work elsewhere already
    if (over) return;
    over = true; input.replaceWith(cell);
    if (take && input.value.trim() && input.value !== run.name) { cell.textContent = input.value; await doing({ do: "rename", name: input.value }, run.subject); await list(); }
    if (back) cell.focus();
  };
  input.addEventListener("keydown", (event) => { event.stopPropagation(); if (event.key === "Enter") end(true); if (event.key === "Escape") end(false); });
  input.addEventListener("blur", () => end(true, false));
}

root.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && element.querySelector("details.menu[open]");
  if (menu) { menu.open = false; menu.querySelector("summary").focus(); }
});
listen(document, "click", (event) => { for (const menu of element.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false; });
$(".show-hidden").addEventListener("click", () => { showHidden = !showHidden; drawRuns(); });
$(".subject").addEventListener("change", (event) => open(event.target.value));

// ---- curves laid over those on show
function lay(of, on) {
  if (on) overlays.set(of, { place: OVERLAY.findIndex((_, place) => ![...overlays.values()].some((o) => o.place === place)), curve: null });
  else overlays.delete(of);
  drawRuns(); drawLegend(); draw();
  overlay(true);
}

// The browser remembers what lies over the curves, as it remembers what is on show.
const LAID = "transformer-playground-laid";
let recalled = false; // before that, an empty list of them says nothing
function laidBefore() {
  try { return JSON.parse(localStorage.getItem(LAID) || "[]").filter((s) => runs.some((r) => r.subject === s && !r.deleted)); } catch (error) { return []; }
}
function layAll(subjects) {
  recalled = true;
  overlays.clear();
  subjects.filter((s) => s !== subject).slice(0, OVERLAY.length).forEach((s, place) => overlays.set(s, { place, curve: null }));
  drawRuns(); overlay(true);
}

async function overlay(now = false) {
  const goesOn = (s, o) => !ENDED.includes(o.status) || runs.some((r) => r.subject === s && r.status !== o.status);
  const wanted = [...overlays].filter(([s, o]) => s !== subject && (now || !o.curve || goesOn(s, o))).map(([s]) => s);
  overlays.delete(subject);
  if (recalled || overlays.size) try { localStorage.setItem(LAID, JSON.stringify([...overlays.keys()])); } catch (error) { /* this browser has no storage */ }
  if (wanted.length) {
    let told;
    try { told = await call("curves", { owner, subjects: wanted }); } catch (error) { return; }
    for (const c of told.curves) if (overlays.has(c.subject)) Object.assign(overlays.get(c.subject), { curve: c, status: c.status, name: c.name });
    draw();
  }
  drawLegend();
}

function drawLegend() {
  const box = $(".overlay-legend"), name = (runs.find((r) => r.subject === subject) || last).name || "on show";
  box.hidden = !overlays.size;
  const entry = (colour, text, of, dashed) => {
    const item = document.createElement("span"), swatch = document.createElement("i"), words = document.createElement("span");
    item.className = "entry"; swatch.style.borderTopColor = colour; swatch.style.borderTopStyle = dashed ? "dashed" : "solid"; words.textContent = text; words.title = text;
    item.append(swatch, words);
    if (of) {
      const off = document.createElement("button");
      off.type = "button"; off.textContent = "×"; off.setAttribute("aria-label", "Take " + text + " off the curves");
      off.addEventListener("click", () => lay(of, false));
      item.append(off);
    }
    return item;
  };
  const nameOf = (s, o) => (runs.find((r) => r.subject === s) || o).name || "";
  box.replaceChildren(entry(css("--pg-accent"), name), ...[...overlays].map(([s, o]) => entry(overlayColour(o.place), nameOf(s, o), s, o.place % 2)));
}

// ---- two configurations, field by field
async function differ() {
  const subjects = [subject, ...overlays.keys()].slice(0, 8), told = [];
  for (const s of subjects) told.push(await about(s));
  const wrong = told.find((t) => t.error);
  if (wrong) { note($(".runs-note"), sentenceOf(wrong.error), "error"); return; }
  const names = subjects.map((s, i) => told[i].name || s.split(":")[1]), fields = [...new Set(told.flatMap((t) => Object.keys(t.settings)))];
  const all = $(".every-field").checked, table = $(".differences");
  const rows = fields.filter((f) => all || new Set(told.map((t) => JSON.stringify(t.settings?.[f]))).size > 1);
  const line = (tag, cells) => { const row = document.createElement("tr"); row.append(...cells.map((text) => { const cell = document.createElement(tag); cell.textContent = text; return cell; })); if (tag === "th") [...row.cells].forEach((cell, at) => { cell.title = cell.textContent; if (at) cell.style.borderBottom = "3px solid " + (at === 1 ? css("--pg-accent") : overlayColour(overlays.get(subjects[at - 1]).place)); }); return row; };
  const changed = (t) => (t.changes || []).filter(([, setting]) => !["speed", "threads"].includes(setting)).map(([step, setting, value]) => setting + " " + value + " from step " + step).join("; ") || "none";
  const body = rows.map((f) => line("td", [f, ...told.map((t) => String(t.settings?.[f] ?? ""))]));
  if (all || new Set(told.map(changed)).size > 1) body.push(line("td", ["changed on the way", ...told.map(changed)]));
  table.replaceChildren(line("th", ["setting", ...names]), ...body);
  $(".alike").hidden = body.length > 0; table.hidden = !body.length;
  if (!$(".compare").open) $(".compare").showModal();
}
$(".differ").addEventListener("click", differ);
$(".every-field").addEventListener("change", differ);

// ---- a hand at the run on show
const SETTINGS = { rate: "learning_rate", target: "steps" };
function drawHand() {
  const own = last.own && subject.startsWith("run:"), set = (box, value) => { if (document.activeElement !== box && box.value !== String(value)) box.value = value; };
  for (const [name, setting] of Object.entries(SETTINGS)) { const box = $("." + name); set(box, last[setting] ?? ""); box.disabled = !own; }
  if (own && document.activeElement !== $(".speed") && GOING.includes(status)) set($(".speed"), last.speed || 0);
  $(".resume-here").hidden = !own || !["stopped", "failed", "done"].includes(status);
  $(".resume-here").textContent = status === "done" ? "Train on" : "Resume";
  $(".speed").title = "Slow motion shows single steps. New runs start at this speed.";
  $(".keep").hidden = !own || !["training", "paused"].includes(status) || !last.live;
  $(".share").disabled = !subject || status === "gone";
  $(".saved").hidden = !own;
}
for (const [name, setting] of Object.entries(SETTINGS))
  $("." + name).addEventListener("change", async (event) => {
    const box = event.target, reply = box.value.trim() ? await doing({ do: "change", setting, value: Number(box.value) }) : {};
    if (reply.error || !box.value.trim()) box.value = last[setting];
  });
$(".speed").addEventListener("change", (event) => { if (last.own && GOING.includes(status)) doing({ do: "change", setting: "speed", value: Number(event.target.value) }); });
$(".resume-here").addEventListener("click", () => doing({ do: status === "done" ? "extend" : "resume" }));
$(".keep").addEventListener("click", async () => { const reply = await doing({ do: "keep" }); if (!reply.error) note($(".hand-note"), status === "paused" ? "Checkpoint of step " + last.step + " kept." : "Keeping a checkpoint of this moment; it will stand under Checkpoints of this run."); });
root.addEventListener("command", (event) => command(event.detail));

async function command(what) {
  if (!last.own) return;
  const words = { pause: "Pausing", resume: "Resuming", stop: "Stopping and saving" }[what];
  if (words && GOING.includes(status)) $(".sentence").textContent = words;
  await doing({ do: what });
}

// ---- checkpoints of the run on show
async function drawSaved() {
  const shownOf = subject, version = subject + last.saved, told = await about(shownOf);
  if (shownOf !== subject || !told.checkpoints) return;
  savedShown = version;
  const body = $(".saved tbody"), signature = shownOf + JSON.stringify(told.checkpoints);
  if (body.dataset.signature === signature) return; // a button that asks whether one is sure goes on asking
  body.dataset.signature = signature;
  $(".saved .none").hidden = told.checkpoints.length > 0;
  body.replaceChildren(...told.checkpoints.map((c, at) => {
    const row = document.createElement("tr"), cells = ["step " + c.step.toLocaleString("en"), c.kept ? "kept" : at ? "the one before" : "latest", c.exact_match === null ? "–" : percent(c.exact_match), bytes(c.bytes), ago(Date.now() / 1000 - c.written)];
    for (const text of cells) row.insertCell().textContent = text;
    const actions = row.insertCell(), add = (text, act) => { const b = document.createElement("button"); b.type = "button"; b.className = "quiet"; b.textContent = text; b.setAttribute("aria-label", text + ", step " + c.step); b.addEventListener("click", act); actions.append(b); };
    add("Download", () => download(c.name));
    if (c.resumable) add("Continue as a new run", async () => { const reply = await doing({ do: "branch", step: c.step }); if (reply.subject) { await list(); open(reply.subject); } });
    let sure = false;
    add("Delete", async (event) => {
      if (!sure) { sure = true; event.target.textContent = "Delete permanently"; return; }
      sure = false; event.target.textContent = "Delete";
      await doing({ do: "remove", checkpoint: c.name }, subject, $(".saved-note"));
      await drawSaved();
    });
    return row;
  }));
}
$(".saved").addEventListener("toggle", () => { if ($(".saved").open) drawSaved(); });

async function download(name) {
  const reply = await doing({ do: "download", checkpoint: name });
  if (!reply.ticket) return;
  const link = document.createElement("a");
  link.href = new URL("checkpoint/" + reply.ticket, base); link.download = "";
  document.body.append(link); link.click(); link.remove();
}
$(".upload").addEventListener("click", () => $(".file").click());
$(".file").addEventListener("change", async (event) => {
  const file = event.target.files[0], box = $(".runs-note");
  if (!file) return;
  note(box, "Checking " + file.name);
  try {
    const answer = await fetch(new URL("checkpoint", base), { method: "POST", body: file, headers: { "x-owner": owner, "x-name": encodeURIComponent(file.name.replace(/\.zip$/i, "")) } });
    const reply = answer.headers.get("content-type")?.includes("json") ? await answer.json() : { error: await answer.text() };
    note(box, reply.error ? file.name + " was not taken: " + reply.error + "." : "", "error");
    if (reply.subject) { await list(); open(reply.subject); }
  } catch (error) { note(box, file.name + " could not be sent; it may be too large, or the server is gone.", "error"); }
  event.target.value = "";
});

// ---- sharing
async function use(of) {
  const told = await about(of);
  if (told.settings && told.settings.task === "rows" && !told.settings.rows) note($(".runs-note"), "This run uses a dataset of its owner. Select Your own data as the task and add your own.", "error");
  else if (told.settings) { trigger("select", { index: 0, value: told.settings }); note($(".runs-note"), "The form now has its settings. Press Train to start a run."); }
  else note($(".runs-note"), sentenceOf(told.error || ""), "error");
}
const page = () => location.origin + location.pathname;
$(".look-into").addEventListener("click", () => goTo("Inspect", { subject, step: viewed }));
$(".use-these").addEventListener("click", () => { $(".sharing").close(); use(subject); });
for (const button of element.querySelectorAll(".copy")) button.addEventListener("click", async () => {
  const box = button.parentElement.querySelector("input, textarea");
  box.select();
  try { await navigator.clipboard.writeText(box.value); } catch (error) { document.execCommand("copy"); }
  button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500);
});
for (const dialog of element.querySelectorAll("dialog")) dialog.addEventListener("click", (event) => { if (event.target === dialog || event.target.closest(".close")) dialog.close(); });

// ---- keyboard
function keys(event) {
  if (event.defaultPrevented || !element.offsetParent) return; // another tab's own key, or nobody sees what it would do
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable], dialog, [role=tab]")) return;
  const onButton = event.target.closest("button, summary, canvas, a");
  if (event.key === " " && !onButton && ["training", "paused"].includes(status)) { event.preventDefault(); command(status === "paused" ? "resume" : "pause"); }
  else if (event.key === "ArrowRight" && event.target.tagName !== "CANVAS" && status === "paused") { event.preventDefault(); command("step"); }
  else if (event.key === "?") $(".keys").showModal();
}
listen(document, "keydown", keys);
$(".show-keys").addEventListener("click", () => $(".keys").showModal());
