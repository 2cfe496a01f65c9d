// ---------------------------------------------------------------- going back in time
// The weights of earlier steps are on the server; attention and answers are computed from them when somebody looks.
let lookCache = new Map(), playing = 0, wanting = 0;
const CACHED = 400; // looks kept in the page

const canRewind = () => recorded.length > 1;
function forgetLooks() { lookCache = new Map(); }

async function lookAt(step, wanted = () => false) {
  if (lookCache.has(step)) return lookCache.get(step);
  const cache = lookCache, reply = await persist(() => call("look", { owner, subject, step }), wanted, (error) => note($(".rewind-note"), error));
  if (reply.error) throw new Error(reply.error);
  stage = stage || reply.stage;
  cache.set(step, reply.snapshot);
  if (cache.size > CACHED) cache.delete(cache.keys().next().value);
  return reply.snapshot;
}

// Show the recorded step nearest to `step`: curves, attention, samples and "Try it" together.
async function view(step) {
  if (!canRewind()) return;
  const at = recorded[nearest(recorded, step)], mine = ++wanting, followed = generation;
  viewed = at; draw();
  try {
    const look = await lookAt(at, () => mine === wanting && followed === generation);
    if (mine !== wanting || followed !== generation) return;
    note($(".rewind-note"), "");
    shown = look; drawSamples(); draw(); ask();
  } catch (error) {
    if (mine === wanting) { note($(".rewind-note"), error.message, "error"); stopPlaying(); }
  }
}

function now() {
  stopPlaying(); wanting += 1; viewed = null; shown = snapshot;
  drawSamples(); draw(); ask();
}

function stopPlaying() {
  playing += 1;
  const button = $(".play");
  button.textContent = "▶"; button.setAttribute("aria-label", "Play from here"); delete button.dataset.playing;
}

async function play() {
  const mine = ++playing, button = $(".play"), followed = generation;
  button.textContent = "❚❚"; button.setAttribute("aria-label", "Pause the replay"); button.dataset.playing = "yes";
  let at = viewed === null || viewed >= recorded[recorded.length - 1] ? 0 : nearest(recorded, viewed) + 1;
  while (mine === playing && followed === generation && at < recorded.length) {
    const started = Date.now();
    for (const ahead of recorded.slice(at + 1, at + 4)) lookAt(ahead).catch(() => {}); // on their way while this one is looked at
    await view(recorded[at]);
    if (mine !== playing) return;
    at = nearest(recorded, recorded[at] ?? 0) + 1;
    await sleep(Math.max(0, 120 - (Date.now() - started)));
  }
  if (mine === playing) stopPlaying();
}

function drawRewind() {
  const box = $(".rewind"), slider = $(".scrub"), most = span(), at = viewed === null ? last.step || 0 : viewed;
  box.classList.toggle("off", !canRewind());
  slider.disabled = !canRewind(); $(".play").disabled = !canRewind();
  slider.max = most;
  if (document.activeElement !== slider || viewed !== null || !slider.matches(":active")) slider.value = at;
  slider.setAttribute("aria-valuetext", "step " + at);
  $(".viewing").textContent = viewed === null ? (canRewind() ? plural(recorded.length, "recorded step") + " to replay" : status === "checkpoint" ? "This checkpoint has only its last step" : "")
    : "Showing step " + viewed.toLocaleString("en") + " of " + (last.step || 0).toLocaleString("en");
  $(".now").hidden = viewed === null;
  $(".branch").hidden = !last.own || !count || (viewed === null && !["paused", "done", "stopped", "failed"].includes(status));
  $(".branch").textContent = "Continue from step " + at.toLocaleString("en") + " as a new run";
  if (viewed === null) note($(".rewind-note"), "");
}

$(".scrub").addEventListener("input", (event) => { stopPlaying(); +event.target.value >= recorded[recorded.length - 1] ? now() : view(+event.target.value); });
$(".scrub").addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
  if (!by || !canRewind()) return;
  event.preventDefault(); stopPlaying();
  const at = (viewed === null ? recorded.length - 1 : nearest(recorded, viewed)) + by;
  if (at >= recorded.length) now(); else view(recorded[Math.max(0, at)]);
});
$(".play").addEventListener("click", () => ($(".play").dataset.playing ? stopPlaying() : play()));
$(".now").addEventListener("click", now);
$(".branch").addEventListener("click", async () => {
  const reply = await doing({ do: "branch", step: viewed === null ? last.step : viewed });
  if (reply.subject) { const from = subject; await list(); open(reply.subject); if (overlays.size < OVERLAY.length) lay(from, true); }
});
