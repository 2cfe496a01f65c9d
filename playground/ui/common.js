// What the scripts of every tab share. Each is a program of its own: `element` is the tab's.
const $ = (selector) => element.querySelector(selector);
const number = (x) => (x === 0 ? "0" : Math.abs(x) >= 0.0001 ? String(+x.toPrecision(3)) : x.toExponential(1));
const percent = (x) => (x === 1 ? "100 %" : (Math.floor(x * 1000) / 10).toFixed(1) + " %");
const duration = (s) => (s < 59.95 ? s.toFixed(1) + " s" : s < 3599.5 ? Math.floor(Math.round(s) / 60) + " min " + (Math.round(s) % 60) + " s" : Math.floor(Math.round(s / 60) / 60) + " h " + (Math.round(s / 60) % 60) + " min");
const ago = (s) => (s < 60 ? "just now" : s < 3600 ? Math.floor(s / 60) + " min" : s < 86400 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d");
const plural = (n, noun) => n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");
const bytes = (n) => (n < 1e6 ? Math.max(1, Math.round(n / 1e3)) + " KB" : n < 1e9 ? (n / 1e6).toFixed(n < 1e8 ? 1 : 0) + " MB" : (n / 1e9).toFixed(1) + " GB");
// As a sentence; a name such as user/name or gpt2 in front stays as it is written.
const sentenceOf = (text) => (text ? (/^\S*[/_.\d]\S*\s/.test(text) ? text[0] : text[0].toUpperCase()) + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".") : "");
const base = new URL("playground/", location.origin + location.pathname.replace(/\/?$/, "/"));
// Ask the server (asked.py). Throws when there is no answer. A rate limit (limits.py) delays the request instead of failing it.
async function call(name, request, within = 20000) {
  const until = Date.now() + within;
  for (;;) {
    const reply = await fetch(new URL("ask/" + name, base), {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request), signal: AbortSignal.timeout(within),
    });
    const wait = 1000 * (Number(reply.headers.get("Retry-After")) || 1);
    if (reply.status !== 429 || Date.now() + wait > until) {
      if (!reply.ok) throw new Error("the server answered " + reply.status);
      return reply.json();
    }
    await sleep(wait);
  }
}
// Ask until an answer comes that is not `again`, ever more slowly and for some minutes, as long as it is wanted. `told` hears why it takes long.
async function persist(ask, wanted, told) {
  const since = Date.now();
  for (let wait = 500; ; wait = Math.min(5000, 2 * wait)) {
    const reply = await ask();
    if (!reply.again || Date.now() - since > 150000 || !wanted()) return reply;
    if (Date.now() - since > 1000) told(reply.error);
    await sleep(wait);
    if (!wanted()) return reply;
  }
}
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
// Wait `ms` milliseconds; while the page is hidden, until it is shown again or `hidden` milliseconds have passed.
function rest(ms, hidden = Infinity) {
  if (!document.hidden) return sleep(ms);
  return new Promise((resolve) => {
    const timer = hidden < Infinity ? setTimeout(done, hidden) : 0;
    function done() { clearTimeout(timer); document.removeEventListener("visibilitychange", done); resolve(); }
    document.addEventListener("visibilitychange", done);
  });
}
// Add a listener that removes itself once this view has left the page.
function listen(target, kind, act) {
  const once = (event) => { if (element.isConnected) act(event); else target.removeEventListener(kind, once); };
  target.addEventListener(kind, once);
}
// Redraw when the size of this view or the page's theme changes, until the view has left the page.
function onAppearance(redraw) {
  let wasShown = false;
  const theme = new MutationObserver(() => { if (element.isConnected) redraw(); else if (wasShown) { theme.disconnect(); size.disconnect(); } });
  const size = new ResizeObserver(() => { wasShown = true; redraw(); });
  size.observe(root); theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
}
function note(box, text, kind = "") {
  box.textContent = text; box.classList.toggle("error", kind === "error"); delete box.dataset.lost;
}
// What a box proposes follows the model: its placeholder and, as long as nobody wrote another, its text. Whether the text changed.
function propose(box, question) {
  if (!question || box.placeholder === question) return false;
  const untouched = box.value === box.placeholder;
  box.placeholder = question;
  if (untouched) box.value = question;
  return untouched;
}
// A link that opens this page with `what` in its address.
const linkWith = (name, what) => location.origin + location.pathname + "?" + name + "=" + encodeURIComponent(typeof what === "string" ? what : JSON.stringify(what));
// What the address of the page carries under a name, once: from here on it is a visitor's page as any other.
function ofAddress(name) {
  const address = new URL(location), text = address.searchParams.get(name);
  if (text === null) return null;
  address.searchParams.delete(name);
  history.replaceState(history.state, "", address);
  return text;
}
// What somebody else's link carries, cut to what a form may hold.
function plain(value, depth = 0) {
  if (typeof value === "string") return value.slice(0, 4000);
  if (typeof value === "boolean" || Number.isFinite(value)) return value;
  if (value === null || typeof value !== "object" || depth > 3) return null;
  if (Array.isArray(value)) return value.slice(0, 20).map((each) => plain(each, depth + 1));
  return Object.fromEntries(Object.entries(value).slice(0, 20).map(([name, each]) => [name, plain(each, depth + 1)]));
}
function carried(name) {
  try { return plain(JSON.parse(ofAddress(name))) || {}; } catch (error) { return {}; } // an odd link
}
// Copy a text and say so in `label` for a moment; where the browser forbids it, show the text to be copied by hand.
async function copyText(text, label, what) {
  label.dataset.usual ||= label.textContent;
  try { await navigator.clipboard.writeText(text); label.textContent = "Copied"; } catch (error) { window.prompt(what, text); }
  setTimeout(() => { label.textContent = label.dataset.usual; }, 1500);
  label.dataset.copied = text;
}
// Go to another tab of the page. What is to be shown there waits in `window.playground` until the tab, which is made when it is
// first opened, takes it.
window.playground ||= {};
function goTo(tab, what) {
  window.playground[tab] = what;
  window.dispatchEvent(new CustomEvent("playground-" + tab));
  openTab(tab);
}
const TABS = "#tabs button[role=tab], #tabs .overflow-dropdown button"; // those that a narrow page has no room for stand in a menu
function openTab(tab) { [...document.querySelectorAll(TABS)].find((button) => button.textContent.trim() === tab)?.click(); }
function handedOver(tab) { const what = window.playground[tab]; delete window.playground[tab]; return what; }
