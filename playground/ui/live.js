// ---------------------------------------------------------------- following a model
let asked = 0, askedAt = 0;
// After a command the server is asked often for a moment, beginning now: what was wanted shows as soon as it is true.
let eagerUntil = 0, wake = () => {};
const eager = () => { eagerUntil = Date.now() + 1500; wake(); };

function say() {
  root.dataset.status = status;
  root.dataset.own = last.own ? "yes" : "no";
  $(".sentence").textContent = sentence();
  drawHand();
  announce();
  const page = document.querySelector("#train-page");
  if (!page) return;
  const focused = document.activeElement, shownStatus = last.own || !GOING.includes(status) ? status : "watched";
  page.dataset.status = shownStatus;
  // The form's buttons are mounted on their own; the page's status in CSS shows the right ones until they are there.
  for (const [id, when] of [["step", ["paused"]], ["stop", ["waiting", "paused", "training", "stopping"]]]) {
    const button = page.querySelector("#" + id);
    if (button) button.disabled = !when.includes(shownStatus);
  }
  const primary = [...page.querySelectorAll("#train, #pause, #resume")];
  if (primary.includes(focused) && !focused.offsetParent) primary.find((button) => button.offsetParent)?.focus();
}

// Numbers that tick are not read out; what has become of the run is.
let announced = "";
function announce() {
  const news = [subject, status, last.message || ""].join("/");
  if (news === announced) return;
  announced = news;
  $(".announced").textContent = sentence();
}

async function follow(mine) {
  let wait = 0, unseen = 0; // polls of an ended run of which no weights are seen
  while (mine === generation && element.isConnected) {
    await new Promise((resolve) => { wake = resolve; setTimeout(resolve, Date.now() < eagerUntil ? Math.min(wait, 60) : wait); });
    try {
      const told = await call("poll", { owner, subject, known: fresh ? 0 : count, epoch: fresh ? -1 : epoch, looks: fresh ? 0 : looks, changes: fresh ? -1 : last.changes_version ?? -1 });
      if (mine !== generation) return;
      take(told);
      if (status === "checkpoint" || (status === "gone" && !told.again)) return;
      // An ended run goes on when its owner says so, here or in another tab.
      unseen = ENDED.includes(status) && !shown ? unseen + 1 : 0; // some never had any
      wait = status === "gone" || (ENDED.includes(status) && (shown || unseen > 30)) ? 2000 : document.hidden ? 2000 : ["paused", "waiting"].includes(status) ? 500 : count ? 200 : 60;
    } catch (error) {
      if (mine !== generation) return;
      $(".sentence").textContent = "No answer from the server; trying again";
      wait = Math.min(5000, Math.max(500, wait * 2));
    }
  }
}

function take(told) {
  const before = fresh ? "" : status, sawBefore = shown;
  if (fresh) begin();
  if ($(".hand-note").dataset.lost) note($(".hand-note"), "");
  told.changes ??= last.changes; // sent only when they are others
  last = told; status = told.status; scores = told.scores || null; recorded = told.recorded || [];
  const p = told.points;
  if (p.whole || told.epoch !== epoch) { curve = { steps: [], loss: [], learning_rate: [], gradient_norm: [] }; scored = []; }
  for (const name of ["steps", "loss", "learning_rate", "gradient_norm"]) for (const value of p[name]) curve[name].push(value);
  for (const s of p.scored) scored.push(s);
  // A page that has watched for hours asks for a curve that fits the screen instead of piling up points.
  count = curve.steps.length > 20000 ? 0 : p.count;
  if (told.epoch !== epoch) { epoch = told.epoch; forgetLooks(); }
  if (told.stage) { stage = told.stage; $(".accepts").textContent = "symbols " + stage.accepts; if (propose($(".sequence"), stage.question) && viewed !== null) ask(); }
  if (told.snapshot) { snapshot = told.snapshot; looks = told.looks; if (viewed === null) { shown = snapshot; root.classList.remove("old"); } }
  if (shown !== sawBefore) drawSamples();
  drawLengths(); say(); draw();
  if (viewed === null && (status !== before || (told.snapshot && (status !== "training" || Date.now() - askedAt > 1000)))) ask();
  if (status !== before) listSoon();
  takeView();
  if (told.slice && told.own) nextSlice();
}

// A GPU that is lent for seconds at a time is lent to whoever asks: this page, for the run on show, through an event of Gradio's,
// which says whose page it is. While one is under way, Gradio passes no other on.
let slicedAt = 0;
function nextSlice() {
  if (Date.now() - slicedAt < 2000) return;
  slicedAt = Date.now();
  trigger("submit", { owner, subject });
}

// The old picture stays until the first answer about the new subject is there.
function begin() {
  fresh = false; curve = { steps: [], loss: [], learning_rate: [], gradient_norm: [] }; scored = []; count = 0; epoch = -1; looks = 0;
  stage = snapshot = shown = scores = null; viewed = hoverStep = hoverCell = null; recorded = []; stopPlaying();
  // The last model's pictures stay, dimmed, until this one's are there: nothing jumps.
  root.classList.add("old"); delete $(".heads").dataset.signature;
  for (const selector of [".hand-note", ".runs-note", ".saved-note", ".try-note"]) note($(selector), "");
}

async function ask() {
  const text = $(".sequence").value, mine = ++asked, step = viewed;
  askedAt = Date.now();
  if (!text.trim()) { $(".answer").replaceChildren(); note($(".try-note"), ""); $(".sequence").removeAttribute("aria-invalid"); return; }
  if (!shown) return; // there is nothing to ask yet; it is asked when there is
  const once = async () => {
    try { return await call("try", { owner, subject, text, ...(step === null ? {} : { step }) }); } catch (error) { return { error: "no answer from the server; try again", again: true }; }
  };
  const reply = await persist(once, () => mine === asked, (error) => note($(".try-note"), error));
  if (mine !== asked) return;
  note($(".try-note"), reply.error || [step !== null && "with the weights of step " + reply.step.toLocaleString("en"), reply.note].filter(Boolean).join("; "), reply.error ? "error" : "");
  if (reply.error) { $(".answer").replaceChildren(); if (!reply.again) $(".sequence").setAttribute("aria-invalid", "true"); }
  else { $(".sequence").removeAttribute("aria-invalid"); reply.answer ? spell($(".answer"), reply.given, reply.answer) : $(".answer").replaceChildren(reply.given.join(" ")); }
}

// Show another model; the browser remembers it for the next visit.
function open(wanted) {
  const mine = ++generation, left = subject;
  asked += 1;
  // Two runs that were compared stay compared, whichever of them is on show.
  if (overlays.has(wanted) && left.startsWith("run:") && left !== wanted) { const place = overlays.get(wanted).place; overlays.delete(wanted); overlays.set(left, { place, curve: null }); }
  subject = wanted || ""; fresh = true;
  try { if (!subject.startsWith("watch:")) localStorage.setItem("transformer-playground-subject", subject); } catch (error) { /* this browser has no storage */ }
  if (/[?&](watch|model)=/.test(location.search) && subject !== linked) history.replaceState(null, "", location.pathname);
  offer();
  if (!subject) { begin(); last = {}; status = "empty"; say(); draw(); return; }
  follow(mine);
  setTimeout(() => { if (mine === generation && fresh) $(".sentence").textContent = "Opening"; }, 400);
}

// Another tab of the page sends one here.
function sentHere() {
  const wanted = handedOver("Train"), { subject: sent, over } = typeof wanted === "string" ? { subject: wanted } : wanted; // `over`: runs to lay over its curves
  list().then(() => { open(sent); if (over) layAll(over); });
}
listen(window, "playground-Train", sentHere);

// The browser remembers the tab, too; a link that says what to show comes first.
const LAST_TAB = "transformer-playground-tab", LINKS = ["inspect", "compare", "lab", "hub", "watch", "settings", "learn", "bug", "embed", "model"];
function returnToTab() {
  if (window.playground.returned) return;
  window.playground.returned = true;
  let tab = "";
  try { tab = localStorage.getItem(LAST_TAB) || ""; } catch (error) { /* this browser has no storage */ }
  const asked = new URLSearchParams(location.search);
  if (tab && tab !== "Train" && !LINKS.some((name) => asked.has(name))) setTimeout(() => openTab(tab), 0);
  document.addEventListener("click", (event) => {
    const button = event.target.closest(TABS);
    try { if (button) localStorage.setItem(LAST_TAB, button.textContent.trim()); } catch (error) { /* likewise */ }
  });
}

// Where the browser denies the page its storage, the server keeps the visit in a cookie. Where that fails as well, say what follows.
let keptOwner = ""; // in this closure only: no other script of the page needs it
async function keepVisit() {
  if (!owner || document.documentElement.dataset.embed || keptOwner === owner) return;
  keptOwner = owner;
  try { localStorage.setItem("transformer-playground-probe", "1"); localStorage.removeItem("transformer-playground-probe"); return; } catch (error) { /* no storage */ }
  let reply;
  try {
    await call("visit-keep", { owner });
    reply = await call("visit-kept", { owner });
  } catch (error) { keptOwner = ""; return; } // the next value tries again
  const inFrame = window.top !== window, box = $(".visit-note"), link = document.createElement("a");
  box.hidden = reply.kept;
  box.textContent = "This browser stores nothing for this page" + (inFrame ? " inside a frame" : "") + ". After a reload your runs will not be listed. ";
  if (!inFrame) { box.append("Allow this page to store site data to keep them."); return; }
  link.href = location.origin + location.pathname; link.target = "_blank"; link.rel = "noopener";
  link.textContent = "Open the page in a tab of its own"; box.append(link, " to keep them.");
}

function attach() {
  let value = {};
  try { value = JSON.parse(props.value) || {}; } catch (error) { return; }
  owner = value.owner || ""; first = value.first || "";
  keepVisit();
  const asked = new URLSearchParams(location.search), elsewhere = ["Inspect", "Compare", "Lab", "Hub", "Learn"].find((tab) => asked.has(tab.toLowerCase())) || (asked.has("bug") ? "Learn" : "");
  if (elsewhere && !window.playground.linked) { window.playground.linked = true; setTimeout(() => goTo(elsewhere), 0); }
  returnToTab();
  let remembered = "";
  try { remembered = localStorage.getItem("transformer-playground-subject") || ""; } catch (error) { /* this browser has no storage */ }
  if (value.subject) { if (!value.subject.startsWith("run:")) linked = value.subject; open(value.subject); list(); return; }
  listed().then((yes) => { if (yes) { open(known(remembered) ? remembered : known(first) ? first : offered()[0] || ""); layAll(laidBefore()); } });
}

// The list, once it has come; not, where something else was opened meanwhile.
async function listed() {
  const mine = generation;
  while (!(await list())) {
    $(".sentence").textContent = "No answer from the server; trying again";
    await sleep(1000);
    if (mine !== generation || !element.isConnected) return false;
  }
  return mine === generation;
}

// ---------------------------------------------------------------- what a person does with the pictures
let typing;
$(".sequence").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(ask, 150); });
$(".sequence").addEventListener("keydown", (event) => { if (event.key === "Enter") { clearTimeout(typing); ask(); } });
$(".log").addEventListener("change", draw);
$(".metric").addEventListener("change", (event) => { metric = event.target.value; event.target.title = METRICS[metric][1]; $(".switch").style.visibility = metric === "learning_rate" ? "hidden" : ""; draw(); });
$(".kinds").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) { setKind(button.dataset.kind); draw(); }
});
function setKind(wanted) {
  kind = wanted; hoverCell = null;
  for (const each of $(".kinds").children) each.setAttribute("aria-pressed", String(each.dataset.kind === wanted));
}
$(".heads").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) { head = [+button.dataset.layer, +button.dataset.head]; draw(); }
});
for (const canvas of element.querySelectorAll(".chart")) {
  canvas.addEventListener("pointermove", (event) => { if (curve && curve.steps.length) { hoverStep = Math.max(0, Math.min(last.step, canvas.toStep(event.offsetX))); draw(); } });
  canvas.addEventListener("pointerleave", () => { hoverStep = null; draw(); });
  canvas.addEventListener("click", (event) => { if (recorded.length > 1) view(canvas.toStep(event.offsetX)); });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !curve.steps.length) return;
    event.preventDefault();
    hoverStep = Math.max(1, Math.min(last.step, (hoverStep === null ? last.step : hoverStep) + by * (event.shiftKey ? 10 : 1)));
    draw();
  });
  canvas.addEventListener("blur", () => { hoverStep = null; draw(); });
}
const map = $(".focus-map");
function cellAt(event) {
  if (!stage || !stage.axes[kind]) return null;
  const [rows, columns] = stage.axes[kind].map((names) => names.length), size = Math.min(31, (map.clientWidth - 40) / columns);
  const cell = [Math.floor((event.offsetY - 22) / size), Math.floor((event.offsetX - 40) / size)];
  return cell[0] >= 0 && cell[1] >= 0 && cell[1] < columns && cell[0] < rows ? cell : null;
}
map.addEventListener("pointermove", (event) => { hoverCell = cellAt(event); draw(); });
map.addEventListener("pointerleave", () => { hoverCell = null; draw(); });
map.addEventListener("keydown", (event) => {
  const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!move || !stage || !stage.axes[kind]) return;
  event.preventDefault();
  const [r, k] = hoverCell || [0, 0], [rows, columns] = stage.axes[kind];
  hoverCell = hoverCell ? [Math.max(0, Math.min(rows.length - 1, r + move[0])), Math.max(0, Math.min(columns.length - 1, k + move[1]))] : [0, 0];
  draw();
});
map.addEventListener("blur", () => { hoverCell = null; draw(); });
onAppearance(draw);
