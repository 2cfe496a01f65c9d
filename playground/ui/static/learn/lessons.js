// Lessons, one at a time.
import { navigate, setMessage } from "../shared/common.js";
import { formatMessage } from "../shared/format.js";
import { el, setText } from "../shared/dom.js";
import { EXACT_MATCH_TITLE } from "../shared/strings.js";
import { createButton, createParagraph } from "./elements.js";
import { renderFigures } from "./figures.js";
import { requestLesson, saveLocal, storedState } from "./requests.js";
import { ACTIVE_STATUSES, showSection } from "./sections.js";
import { state } from "./state.js";
import { $, root } from "./view.js";

let lessonId = "";
// by name: {prediction, options, id, response}
const lessonStates =
  storedState.stops && typeof storedState.stops === "object" ? storedState.stops : {};
export function lessonState(name) {
  const own = (lessonStates[name] ||= {});
  own.options ||= {};
  return own;
}
const saveLessonStates = () => saveLocal("stops", lessonStates);
const findLesson = (name) => state.catalog.stops.find((each) => each.name === name);
const startingLessons = new Set(); // lessons with a pending start request
export const isActive = (own) =>
  Boolean(own.id && (!own.response || ACTIVE_STATUSES.includes(own.response.status)));

export function buildLessons() {
  $(".tour").replaceChildren(
    createParagraph(
      "Make a prediction, then measure. Each result comes from a model that is trained " +
        "now, for you. The lists of other tabs do not contain these runs.",
      "hint",
    ),
    el(
      "ol",
      { className: "stations" },
      ...state.catalog.stops.map((stop, i) =>
        el(
          "li",
          {},
          createButton(String(i + 1), () => openLesson(stop.name), stop.title, "station"),
        ),
      ),
    ),
    el("article", { className: "stop" }),
  );
  lessonId = findLesson(storedState.stop) ? storedState.stop : state.catalog.stops[0].name;
}
export function openLesson(name) {
  lessonId = name;
  saveLocal("stop", name);
  buildLesson();
}

function buildLesson() {
  const stop = findLesson(lessonId),
    own = lessonState(lessonId),
    at = state.catalog.stops.indexOf(stop),
    next = state.catalog.stops[at + 1];
  const options = stop.options.map((option) => createOptionField(option, own));
  if (own.options.seed !== undefined)
    options.push(
      el(
        "span",
        { className: "of-link" },
        "Seed " + own.options.seed + ", from a link ",
        createButton("Use the default", () => {
          delete own.options.seed;
          clearResult(own);
          buildLesson();
        }),
      ),
    );
  const box = $(".stop");
  box.dataset.name = stop.name;
  box.replaceChildren(
    el("h3", { textContent: at + 1 + ". " + stop.title }),
    createParagraph(stop.teaches),
    createParagraph(stop.do, "do"),
    ...(options.length ? [el("div", { className: "options" }, ...options)] : []),
    createParagraph(stop.question, "question"),
    stop.kind === "choice" ? createChoicesField(stop, own) : createNumberField(stop, own),
    el(
      "div",
      { className: "act" },
      createButton(
        "Measure",
        measureLesson,
        "Train the required models and compare",
        "quiet main measure",
      ),
      createButton("Cancel", cancelLesson, "", "quiet cancel"),
    ),
    createParagraph("", "problem stop-note"),
    el(
      "div",
      { className: "state" },
      createParagraph("", "words"),
      el("span", { className: "share" }, el("i")),
    ),
    el("div", { className: "live-picture" }),
    el(
      "div",
      { className: "outcome", hidden: true },
      el(
        "dl",
        { className: "side-by-side" },
        el("dt", { textContent: "Prediction" }),
        el("dd", { className: "yours" }),
        el("dt", { textContent: "Measured" }),
        el("dd", { className: "measured" }),
      ),
      createParagraph("", "verdict"),
      createParagraph("", "explanation"),
      el("div", { className: "pictures" }),
      el("p", { className: "links" }),
    ),
    el(
      "p",
      { className: "onward" },
      next
        ? createButton("Next: " + next.title + " →", () => {
            openLesson(next.name);
            root.scrollIntoView({ block: "start" });
          })
        : createButton("Find the bug →", () => showSection("bugs")),
    ),
  );
  $(".live-picture").hidden = true;
  if (stop.kind === "number") $(".stop .unit").textContent = stop.unit;
  renderLesson();
}
function createOptionField(option, own) {
  const value = own.options[option.name] ?? option.default;
  const field = option.choices.length
    ? el(
        "select",
        { className: "option" },
        ...option.choices.map((each) => el("option", { value: each, textContent: each })),
      )
    : el("input", { className: "option", type: "text", maxLength: 40 });
  field.value = value;
  field.name = option.name;
  if (option.choices.length && !option.choices.includes(field.value)) field.value = option.default;
  field.addEventListener("input", () => {
    own.options[option.name] = field.value;
    clearResult(own);
  });
  return el("label", {}, el("span", { textContent: option.words }), field);
}
function createNumberField(stop, own) {
  const field = el("input", {
    type: "number",
    className: "prediction",
    min: stop.low,
    max: stop.high,
    step: "any",
    value: own.prediction ?? "",
  });
  field.setAttribute("aria-label", "Your prediction");
  field.addEventListener("input", () => {
    own.prediction = field.value === "" ? null : +field.value;
    clearResult(own);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") measureLesson();
  });
  return el(
    "label",
    { className: "predict" },
    el("span", { textContent: "Your prediction" }),
    field,
    el("span", { className: "unit" }),
    el("span", {
      className: "hint",
      textContent:
        `${stop.low} to ${stop.high}` +
        (stop.within ? `; correct if at most ${stop.within} off` : ""),
    }),
  );
}
function createChoicesField(stop, own) {
  return el(
    "fieldset",
    { className: "predict" },
    ...stop.choices.map(([value, text]) => {
      const radio = el("input", {
        type: "radio",
        name: "learn-prediction",
        value,
        checked: own.prediction === value,
      });
      radio.addEventListener("change", () => {
        own.prediction = value;
        clearResult(own);
      });
      return el("label", {}, radio, el("span", { textContent: text }));
    }),
  );
}
// A new prediction or option discards the previous result.
function clearResult(own) {
  if (own.response && !isActive(own)) {
    delete own.response;
    delete own.id;
  }
  saveLessonStates();
  renderLesson();
}
async function measureLesson() {
  const name = lessonId,
    own = lessonState(name);
  if (isActive(own) || startingLessons.has(name)) return;
  setMessage($(".stop-note"), "");
  startingLessons.add(name);
  renderLesson();
  const reply = await requestLesson("start", {
    stop: name,
    prediction: own.prediction ?? null,
    options: own.options,
  });
  startingLessons.delete(name);
  if (reply.error) {
    renderLesson();
    if (name === lessonId) setMessage($(".stop-note"), formatMessage(reply.error), "error");
    return;
  }
  own.id = reply.id;
  delete own.response;
  saveLessonStates();
  await pollLesson();
}
async function cancelLesson() {
  const own = lessonState(lessonId),
    reply = await requestLesson("cancel", { id: own.id });
  if (reply.error) setMessage($(".stop-note"), formatMessage(reply.error), "error");
  await pollLesson();
}
// Poll the active lessons.
export async function pollLesson() {
  for (const [name, own] of Object.entries(lessonStates)) {
    if (!isActive(own)) continue;
    const response = await requestLesson("poll", { id: own.id });
    if (response.lost) {
      if (name === lessonId) setMessage($(".stop-note"), formatMessage(response.error), "error");
      continue;
    }
    if (name === lessonId) setMessage($(".stop-note"), "");
    if (response.error) {
      delete own.id;
      own.response = { status: "failed", message: response.error };
    } else own.response = response;
    if (!isActive(own)) saveLessonStates();
    if (name === lessonId) renderLesson();
  }
  renderLessonNav();
}
function renderLessonNav() {
  state.catalog.stops.forEach((stop, i) => {
    const own = lessonStates[stop.name] || {},
      mark = $(".stations").children[i].firstChild,
      result = own.response && own.response.result;
    mark.dataset.state = result
      ? result.right
        ? "right"
        : "measured"
      : own.id && isActive(own)
        ? "running"
        : "";
    mark.setAttribute("aria-current", String(stop.name === lessonId));
    mark.setAttribute(
      "aria-label",
      i +
        1 +
        ". " +
        stop.title +
        (result ? (result.right ? ", predicted correctly" : ", measured") : ""),
    );
  });
}
const formatQueueNote = (runs) => {
  const waiting = runs.filter((run) => run.queue_position);
  return waiting.length ? "; queue position " + waiting[0].queue_position : "";
};
export function renderLesson() {
  if (!state.catalog || state.currentSection !== "tour") return;
  renderLessonNav();
  const box = $(".stop");
  if (box.dataset.name !== lessonId) {
    buildLesson();
    return;
  }
  const stop = findLesson(lessonId),
    own = lessonState(lessonId),
    response = own.response,
    busy = isActive(own) || startingLessons.has(lessonId),
    result = response && response.result;
  $(".measure").disabled = busy;
  $(".stop .cancel").hidden = !isActive(own);
  setText($(".measure"), result ? "Measure again" : "Measure");
  for (const field of box.querySelectorAll(".option, .of-link button, .prediction, .predict input"))
    field.disabled = busy;
  const words = !response
    ? busy
      ? "starting …"
      : ""
    : response.status === "training"
      ? "training: step " + response.done + " of " + response.total + formatQueueNote(response.runs)
      : response.status === "waiting"
        ? "queued for measurement"
        : response.status === "measuring"
          ? "measuring …"
          : response.status === "done"
            ? ""
            : response.message;
  setText($(".stop .words"), formatMessage(words)).classList.toggle(
    "error",
    Boolean(response && response.status === "failed"),
  );
  $(".stop .state").hidden = !words;
  $(".stop .share").hidden = !busy;
  $(".stop .share i").style.width =
    response && response.total ? (100 * response.done) / response.total + "%" : 0;
  const live =
    busy && response && response.curves && response.curves.some((each) => each.evaluations.length);
  $(".live-picture").hidden = !live;
  if (live)
    renderFigures($(".live-picture"), [
      {
        kind: "curves",
        title: EXACT_MATCH_TITLE + ", so far",
        what: "share",
        max: Math.max(...response.runs.map((run) => run.steps)),
        series: response.curves.map((each) => ({
          label: each.label,
          xs: each.evaluations.map((s) => s[0]),
          ys: each.evaluations.map((s) => s[1]),
        })),
      },
    ]);
  $(".outcome").hidden = !result;
  if (!result) return;
  const worded =
    stop.kind === "choice"
      ? (stop.choices.find(([value]) => value === response.prediction) || ["", ""])[1]
      : response.prediction + (stop.unit === "%" ? " %" : "");
  setText(
    $(".yours"),
    stop.kind === "choice"
      ? worded.split(":")[0]
      : stop.unit === "%"
        ? worded
        : stop.unit + " " + worded,
  );
  setText($(".measured"), result.outcome);
  setText(
    $(".stop .verdict"),
    result.answer === null
      ? "There is no measured value to compare with your prediction."
      : result.right
        ? "✓ Correct" + (stop.within ? ", within " + stop.within + "." : ".")
        : "Not correct.",
  ).className = "verdict " + (result.right ? "ok" : "off");
  setText($(".explanation"), result.explanation);
  renderFigures($(".outcome .pictures"), result.pictures);
  const key = response.runs.map((run) => run.run).join();
  if ($(".stop .links").dataset.key !== key) {
    $(".stop .links").dataset.key = key;
    const subjects = response.runs.map((run) => run.run);
    $(".stop .links").replaceChildren(
      createButton(
        "Open in Train",
        () => navigate("Train", { subject: subjects[0], over: subjects.slice(1) }),
        "The training curves",
      ),
      " ",
      createButton(
        "Open in Inspect",
        () => navigate("Inspect", { subject: subjects[subjects.length - 1], step: null }),
        "All heads of the model",
      ),
    );
  }
}
