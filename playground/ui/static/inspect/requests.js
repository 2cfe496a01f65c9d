import { NO_RESPONSE, request, requestWithRetry } from "../shared/api.js";
import { syncSuggestion } from "../shared/common.js";
import { formatMessage } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { saveState } from "./export.js";
import { state } from "./state.js";
import { $, root } from "./view.js";
import { VIEWS } from "./views.js";

let lastRequestId = 0;

const pendingViews = new Set(),
  SLOW_VIEWS = ["heads", "heads-over-training", "away"]; // views computed on hundreds of sequences
let refreshTimer = null;
// Request a view again after a short delay, so that several keystrokes cause one request.
export function scheduleRefresh(view = state.view, delayMs = 40) {
  pendingViews.add(view);
  clearTimeout(refreshTimer);
  refreshTimer = setTimeout(() => {
    const views = [...pendingViews];
    pendingViews.clear();
    views.forEach(loadView);
  }, delayMs);
}
export async function requestView(view, options, extra = {}) {
  const payload = {
    owner: state.owner,
    subject: state.subject,
    text: state.text,
    view,
    options,
    ...(state.step === null ? {} : { step: state.step }),
    ...extra,
  };
  try {
    return await request("inspect/view", payload, SLOW_VIEWS.includes(view) ? 300000 : 20000);
  } catch (error) {
    return {
      error: error.name === "TimeoutError" ? "the request timed out; try again" : NO_RESPONSE,
      again: !SLOW_VIEWS.includes(view),
    };
  }
}
async function loadView(view) {
  if (!state.subject || !VIEWS[view]) return;
  const requestId = ++lastRequestId,
    spec = VIEWS[view];
  spec.requestId = requestId;
  $(".stage").classList.add("waiting");
  const data = await requestWithRetry(
    () => requestView(spec.request || view, spec.options ? spec.options() : {}),
    () => spec.requestId === requestId,
    (error) => {
      if (view === state.view) showError(error, true);
    },
  );
  if (spec.requestId !== requestId) return; // a newer request is pending
  if (view === state.view) $(".stage").classList.remove("waiting");
  if (syncSuggestion($(".sequence"), data.question)) {
    state.text = $(".sequence").value;
    saveState();
    scheduleRefresh(view, 0);
    return;
  }
  if (data.error) {
    if (view === state.view) showError(data.error, data.again);
    return;
  } // the last result stays visible
  if (view === state.view) showError("");
  state.resultByView[view] = data;
  renderAnswer(data);
  redrawView(view);
  root.dataset.drawn = view + " " + state.text; // tests and benchmarks wait for this attribute
}
export function showError(text, isTransient = false) {
  // a transient error is not caused by the sequence
  $(".problem").textContent = formatMessage(text);
  if (text && !isTransient) $(".sequence").setAttribute("aria-invalid", "true");
  else $(".sequence").removeAttribute("aria-invalid");
}
export function redrawView(view = state.view) {
  if (state.resultByView[view] && VIEWS[view].box && VIEWS[view].box.offsetParent)
    VIEWS[view].draw(state.resultByView[view]);
}

// Show the generated tokens next to the sequence.
function renderAnswer(data) {
  if (!data.written) return;
  $(".answer").replaceChildren(
    ...diffTokens(data.written, data.answer),
    isCorrect(data)
      ? el("span", { className: "ok", textContent: "✓", title: "correct, including EOS" })
      : "",
  );
  $(".note").textContent = data.note || "";
}
export const isCorrect = ({ written, answer }) =>
  Boolean(answer) && written.join() === answer.join();
// The generated tokens compared with the target, which is null if it is unknown. A missing token is
// shown as _.
export function diffTokens(written, answer) {
  const symbols = (names) => names.filter((name) => name !== "EOS"),
    prediction = symbols(written),
    target = symbols(answer || written);
  return Array.from({ length: Math.max(prediction.length, target.length) }, (_, i) => {
    const wrong = prediction[i] !== target[i],
      symbol = el("span", { className: wrong ? "wrong" : "", textContent: prediction[i] ?? "_" });
    if (wrong) symbol.title = target[i] === undefined ? "extra token" : "target: " + target[i];
    return [symbol, " "];
  }).flat();
}
