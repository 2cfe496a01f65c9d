// The panel for rows of one's own. What is typed or chosen is read by the server, which says what is in it or what is wrong;
// "Use this dataset" keeps them there and fills the form.
let owner = "", inForm = null, way = "text", file = null, found = null, sending = null, typing;
const root = $(".bring");
const show = (selector, yes) => { $(selector).hidden = !yes; };
const span = ([low, high]) => (low === high ? plural(low, "symbol") : low.toLocaleString("en") + " to " + plural(high, "symbol"));
const el = (tag, properties = {}, ...children) => { const made = Object.assign(document.createElement(tag), properties); made.append(...children); return made; };

// ---------------------------------------------------------------- reading
function what() {
  if (way === "text") return { name: "", body: $(".text").value };
  if (way === "file") return file && { name: file.name, body: file };
  const repo = $(".repo").value.trim();
  return repo && { name: "hub:" + repo, body: "" };
}
function columns() {
  if ($(".columns").hidden) return "";
  const names = [$(".column-source").value.trim(), $(".column-target").value.trim()];
  return names[0] || names[1] ? names.join("\t") : "";
}
async function read() {
  clearTimeout(typing);
  if (sending) sending.abort();
  const given = what(), mine = sending = new AbortController();
  if (!given || (way === "text" && !given.body.trim())) { sending = null; draw(null); return; }
  const size = given.body.size === undefined ? new Blob([given.body]).size : given.body.size;
  if (size > 50e6) { draw({ error: "there are " + bytes(size) + "; at most 50 MB are read, so leave some out" }); return; }
  found = null; $(".use").disabled = true; $(".found").classList.add("old");
  say(way === "hub" ? "Reading the dataset" : size > 2e6 ? "Sending and reading " + bytes(size) : "Reading");
  let reply;
  try {
    const headers = { "Content-Type": "application/octet-stream", "X-Owner": owner, "X-Name": encodeURIComponent([...given.name].slice(-90).join("")), "X-Columns": encodeURIComponent(columns()), "X-Words": $(".words").value };
    const answer = await fetch(new URL("rows", base), { method: "POST", headers, body: given.body, signal: AbortSignal.any([mine.signal, AbortSignal.timeout(300000)]) });
    reply = answer.headers.get("content-type")?.includes("json") ? await answer.json() : { error: await answer.text() };
  } catch (error) {
    if (mine.signal.aborted) return;
    reply = { error: error.name === "TimeoutError" ? "reading took too long; upload a smaller file" : "no answer from the server, or the file changed meanwhile; try again" };
  }
  if (mine === sending) { sending = null; draw(reply); }
}
// Rows that are kept on the server.
async function look(content) {
  if (sending) sending.abort();
  const mine = sending = new AbortController();
  found = null; $(".use").disabled = true; say("Reading");
  let reply;
  try { reply = await persist(() => call("rows", { do: "show", owner, content }, 130000), () => mine === sending, (busy) => say(sentenceOf(busy))); } catch (error) { reply = { error: "no answer from the server; try again" }; }
  if (mine === sending) { sending = null; draw(reply.content ? { ...reply, kept: true } : reply); }
}
const say = (text) => { $(".state").textContent = text; };

// ---------------------------------------------------------------- what was found
function draw(report) {
  found = report && report.content ? report : null;
  const lines = (report && report.lines) || [], wrong = (report && report.error) || "";
  show(".problem", Boolean(wrong));
  $(".problem p").textContent = lines.length ? plural(report.bad, "line") + " cannot be taken:" : sentenceOf(wrong);
  $(".problem ul").replaceChildren(...lines.map((line) => el("li", { textContent: sentenceOf(line) })), ...(report && report.bad > lines.length ? [el("li", { textContent: "And " + (report.bad - lines.length).toLocaleString("en") + " more." })] : []));
  if (report && report.columns && report.columns.length) { show(".columns", true); $("datalist").replaceChildren(...report.columns.map((name) => el("option", { value: name }))); }
  show(".found", Boolean(report && report.preview));
  $(".found").classList.remove("old");
  if (report && report.preview) { $(".preview tbody").replaceChildren(...report.preview.map(([source, target]) => el("tr", {}, tokens(source), tokens(target)))); counts(report); }
  settle();
}
const tokens = (symbols) => el("td", {}, ...symbols.flatMap((symbol) => [el("span", { className: "token", textContent: symbol }), ""]));
function counts(report) {
  const alphabet = report.vocabulary.slice(0, 12).join(" ") + (report.symbols > 12 ? " …" : "");
  const pairs = [
    ["rows", report.rows.toLocaleString("en"), "Distinct sources"],
    ["vocabulary", report.symbols.toLocaleString("en") + " different " + (report.words ? "words: " : "characters: ") + alphabet, "Of sources and targets together"],
    ["sources", span(report.source), "Shortest and longest"], ["targets", span(report.target), "Shortest and longest"],
    ["held out", report.held_out === null ? "one in sixteen" : report.held_out.toLocaleString("en"), "Never train the model; a hash of the source chooses them"],
    report.duplicates && ["repeated", plural(report.duplicates, "row") + ", left out", "An earlier line has the same source and target"],
    report.contradictions && ["contradicting", plural(report.contradictions, "row") + ", left out: line " + report.contradicted.map((n) => n.toLocaleString("en")).join(", ") + (report.contradictions > report.contradicted.length ? " and more" : ""), "Their source stood there before with another target; the first is kept"],
  ].filter(Boolean);
  $(".counts").replaceChildren(...pairs.flatMap(([name, value, title]) => [el("dt", { textContent: name, title }), el("dd", { textContent: value, title })]));
}
// The button and the line above it follow from what was found and what the form has.
function settle() {
  const same = found && found.content === inForm;
  $(".use").disabled = !found || same;
  $(".use").textContent = same ? "The form uses this dataset" : "Use this dataset";
  say(same ? "" : inForm && found ? "The form uses another dataset." : "");
}

// ---------------------------------------------------------------- using and keeping
async function use() {
  $(".use").disabled = true; say("Saving the dataset");
  let reply;
  try {
    reply = await call("rows", { do: "use", owner, content: found.content }, 60000);
    if (reply.again) { await read(); if (!found) return; reply = await call("rows", { do: "use", owner, content: found.content }, 60000); }
    if (reply.again) reply = { error: "the server no longer has this dataset; upload it again" };
  } catch (error) { reply = { error: "no answer from the server; try again" }; }
  if (reply.error) { draw({ ...found, error: reply.error }); return; }
  trigger("select", { index: 0, value: { rows: found.content, min_length: found.source[0], max_length: found.source[1] } });
  inForm = found.content;
  settle(); shelve();
}
async function shelve() {
  let kept;
  try { kept = (await call("rows", { do: "list", owner })).kept || []; } catch (error) { return; }
  show(".shelf", kept.length > 0);
  $(".shelf summary").textContent = plural(kept.length, "dataset") + " on this server";
  $(".shelf ul").replaceChildren(...kept.map((each) => {
    const words = each.rows.toLocaleString("en") + " rows of " + each.vocabulary.join(" ") + (each.symbols > each.vocabulary.length ? " …" : "");
    const pick = el("button", { type: "button", className: "pick", textContent: words, title: plural(each.symbols, "symbol") + " · " + bytes(each.bytes) + " · " + each.content.slice(0, 12) });
    const remove = el("button", { type: "button", className: "quiet", textContent: "Remove", title: "Removes it from this server" });
    pick.addEventListener("click", () => look(each.content));
    remove.addEventListener("click", async () => {
      remove.disabled = true;
      let reply;
      try { reply = await call("rows", { do: "remove", owner, content: each.content }); } catch (error) { reply = { error: "no answer from the server; try again" }; }
      if (reply.error) { draw({ error: reply.error }); remove.disabled = false; } else shelve();
    });
    return el("li", {}, pick, remove);
  }));
}

// ---------------------------------------------------------------- what a person does
function forgetColumns() {
  for (const name of ["source", "target"]) $(".column-" + name).value = "";
  $("datalist").replaceChildren();
}
function go(wanted) {
  if (wanted !== way) forgetColumns();
  way = wanted;
  for (const button of $(".ways").children) button.setAttribute("aria-pressed", String(button.dataset.way === way));
  for (const name of ["text", "file", "hub"]) show(".of-" + name, name === way);
  show(".columns", way === "hub" || (way === "file" && Boolean(file) && /\.csv$/i.test(file.name)));
  if (way !== "hub") read(); else draw(null);
}
$(".ways").addEventListener("click", (event) => { const button = event.target.closest("button"); if (button) go(button.dataset.way); });
$(".text").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(read, 500); });
// The key between source and target: a line without a tab takes one, any other lets the key go on to the next field.
$(".text").addEventListener("keydown", (event) => {
  const box = event.target;
  if (event.key !== "Tab" || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey || box.selectionStart !== box.selectionEnd) return;
  const begin = box.value.lastIndexOf("\n", box.selectionStart - 1) + 1, end = (box.value + "\n").indexOf("\n", box.selectionStart), line = box.value.slice(begin, end);
  if (!line.trim() || line.includes("\t")) return;
  event.preventDefault();
  box.setRangeText("\t", box.selectionStart, box.selectionEnd, "end");
  box.dispatchEvent(new Event("input"));
});
$(".choose").addEventListener("click", () => $(".file").click());
$(".file").addEventListener("change", (event) => {
  if (!event.target.files[0]) return;
  file = event.target.files[0]; event.target.value = "";
  $(".file-name").textContent = file.name + ", " + bytes(file.size);
  forgetColumns();
  go("file");
});
$(".of-hub").addEventListener("submit", (event) => { event.preventDefault(); read(); });
$(".words").addEventListener("change", read);
for (const name of ["source", "target"]) $(".column-" + name).addEventListener("change", () => {
  if (Boolean($(".column-source").value.trim()) === Boolean($(".column-target").value.trim())) read(); // else the other one is still to come
});
$(".use").addEventListener("click", use);

function attach() {
  let value = {};
  try { value = JSON.parse(props.value) || {}; } catch (error) { return; }
  const before = inForm;
  owner = value.owner || ""; inForm = value.rows || "";
  if (before === null) shelve();
  if (inForm && inForm !== before && !(found && found.content === inForm)) look(inForm); else settle();
}
watch("value", attach);
attach();
