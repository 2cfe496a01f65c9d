// ---------------------------------------------------------------- lessons, one at a time
let stopName = "";
// by name: {prediction, options, id, told}
const stops = memory.stops && typeof memory.stops === "object" ? memory.stops : {};
function stateOf(name) {
  const own = (stops[name] ||= {});
  own.options ||= {};
  return own;
}
const keepStops = () => keep("stops", stops);
const stopOf = (name) => lessons.stops.find((each) => each.name === name);
const asking = new Set(); // lessons with a pending start request
const going = (own) => Boolean(own.id && (!own.told || UNDER_WAY.includes(own.told.status)));

function buildTour() {
  $(".tour").replaceChildren(
    paragraph(
      "Make a prediction, then measure. Each result comes from a model that is trained " +
        "now, for you. The Train tab lists these runs.",
      "hint",
    ),
    el(
      "ol",
      { className: "stations" },
      ...lessons.stops.map((stop, i) =>
        el(
          "li",
          {},
          button(String(i + 1), () => openStop(stop.name), stop.title, "station"),
        ),
      ),
    ),
    el("article", { className: "stop" }),
  );
  stopName = stopOf(memory.stop) ? memory.stop : lessons.stops[0].name;
}
function openStop(name) {
  stopName = name;
  keep("stop", name);
  buildStop();
}

function buildStop() {
  const stop = stopOf(stopName),
    own = stateOf(stopName),
    at = lessons.stops.indexOf(stop),
    next = lessons.stops[at + 1];
  const options = stop.options.map((option) => optionField(option, own));
  if (own.options.seed !== undefined)
    options.push(
      el(
        "span",
        { className: "of-link" },
        "Seed " + own.options.seed + ", from a link ",
        button("Use the default", () => {
          delete own.options.seed;
          forgetAnswer(own);
          buildStop();
        }),
      ),
    );
  const box = $(".stop");
  box.dataset.name = stop.name;
  box.replaceChildren(
    el("h3", { textContent: at + 1 + ". " + stop.title }),
    paragraph(stop.teaches),
    paragraph(stop.do, "do"),
    ...(options.length ? [el("div", { className: "options" }, ...options)] : []),
    paragraph(stop.question, "question"),
    stop.kind === "choice" ? choicesField(stop, own) : numberField(stop, own),
    el(
      "div",
      { className: "act" },
      button("Measure", measure, "Train the required models and compare", "quiet main measure"),
      button("Cancel", cancelStop, "", "quiet cancel"),
    ),
    paragraph("", "problem stop-note"),
    el(
      "div",
      { className: "state" },
      paragraph("", "words"),
      el("span", { className: "share" }, el("i")),
    ),
    el("div", { className: "live-picture" }),
    el(
      "div",
      { className: "outcome", hidden: true },
      el(
        "dl",
        { className: "beside" },
        el("dt", { textContent: "Prediction" }),
        el("dd", { className: "yours" }),
        el("dt", { textContent: "Measured" }),
        el("dd", { className: "measured" }),
      ),
      paragraph("", "verdict"),
      paragraph("", "says"),
      el("div", { className: "pictures" }),
      el("p", { className: "links" }),
    ),
    el(
      "p",
      { className: "onward" },
      next
        ? button("Next: " + next.title + " →", () => {
            openStop(next.name);
            root.scrollIntoView({ block: "start" });
          })
        : button("Find the bug →", () => show("bugs")),
    ),
  );
  $(".live-picture").hidden = true;
  if (stop.kind === "number") $(".stop .unit").textContent = stop.unit;
  drawStop();
}
function optionField(option, own) {
  const value = own.options[option.name] ?? option.usual;
  const field = option.choices.length
    ? el(
        "select",
        { className: "option" },
        ...option.choices.map((each) => el("option", { value: each, textContent: each })),
      )
    : el("input", { className: "option", type: "text", maxLength: 40 });
  field.value = value;
  field.name = option.name;
  if (option.choices.length && !option.choices.includes(field.value)) field.value = option.usual;
  field.addEventListener("input", () => {
    own.options[option.name] = field.value;
    forgetAnswer(own);
  });
  return el("label", {}, el("span", { textContent: option.words }), field);
}
function numberField(stop, own) {
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
    forgetAnswer(own);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") measure();
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
        stop.low + " to " + stop.high + (stop.within ? "; correct within " + stop.within : ""),
    }),
  );
}
function choicesField(stop, own) {
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
        forgetAnswer(own);
      });
      return el("label", {}, radio, el("span", { textContent: text }));
    }),
  );
}
// A new prediction or option discards the previous result.
function forgetAnswer(own) {
  if (own.told && !going(own)) {
    delete own.told;
    delete own.id;
  }
  keepStops();
  drawStop();
}
async function measure() {
  const name = stopName,
    own = stateOf(name);
  if (going(own) || asking.has(name)) return;
  note($(".stop-note"), "");
  asking.add(name);
  drawStop();
  const reply = await ask("stop", {
    stop: name,
    prediction: own.prediction ?? null,
    options: own.options,
  });
  asking.delete(name);
  if (reply.error) {
    drawStop();
    if (name === stopName) note($(".stop-note"), sentenceOf(reply.error), "error");
    return;
  }
  own.id = reply.id;
  delete own.told;
  keepStops();
  await followStop();
}
async function cancelStop() {
  const own = stateOf(stopName),
    reply = await ask("cancel", { id: own.id });
  if (reply.error) note($(".stop-note"), sentenceOf(reply.error), "error");
  await followStop();
}
// Poll the active lessons.
async function followStop() {
  for (const [name, own] of Object.entries(stops)) {
    if (!going(own)) continue;
    const told = await ask("poll", { id: own.id });
    if (told.lost) {
      if (name === stopName) note($(".stop-note"), sentenceOf(told.error), "error");
      continue;
    }
    if (name === stopName) note($(".stop-note"), "");
    if (told.error) {
      delete own.id;
      own.told = { status: "failed", sentence: told.error };
    } else own.told = told;
    if (!going(own)) keepStops();
    if (name === stopName) drawStop();
  }
  drawStations();
}
function drawStations() {
  lessons.stops.forEach((stop, i) => {
    const own = stops[stop.name] || {},
      mark = $(".stations").children[i].firstChild,
      result = own.told && own.told.result;
    mark.dataset.state = result
      ? result.right
        ? "right"
        : "measured"
      : own.id && going(own)
        ? "going"
        : "";
    mark.setAttribute("aria-current", String(stop.name === stopName));
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
const inLine = (runs) => {
  const waiting = runs.filter((run) => run.place);
  return waiting.length ? "; queue position " + waiting[0].place : "";
};
function drawStop() {
  if (!lessons || part !== "tour") return;
  drawStations();
  const box = $(".stop");
  if (box.dataset.name !== stopName) {
    buildStop();
    return;
  }
  const stop = stopOf(stopName),
    own = stateOf(stopName),
    told = own.told,
    busy = going(own) || asking.has(stopName),
    result = told && told.result;
  $(".measure").disabled = busy;
  $(".stop .cancel").hidden = !going(own);
  put($(".measure"), result ? "Measure again" : "Measure");
  for (const field of box.querySelectorAll(".option, .of-link button, .prediction, .predict input"))
    field.disabled = busy;
  const words = !told
    ? busy
      ? "starting …"
      : ""
    : told.status === "training"
      ? "training: step " + told.done + " of " + told.total + inLine(told.runs)
      : told.status === "waiting"
        ? "queued for measurement"
        : told.status === "measuring"
          ? "measuring …"
          : told.status === "done"
            ? ""
            : told.sentence;
  put($(".stop .words"), sentenceOf(words)).classList.toggle(
    "error",
    Boolean(told && told.status === "failed"),
  );
  $(".stop .state").hidden = !words;
  $(".stop .share").hidden = !busy;
  $(".stop .share i").style.width = told && told.total ? (100 * told.done) / told.total + "%" : 0;
  const live = busy && told && told.curves && told.curves.some((each) => each.scored.length);
  $(".live-picture").hidden = !live;
  if (live)
    drawPictures($(".live-picture"), [
      {
        kind: "curves",
        title: "Exact match on held-out sequences, so far",
        what: "share",
        most: Math.max(...told.runs.map((run) => run.steps)),
        series: told.curves.map((each) => ({
          label: each.label,
          xs: each.scored.map((s) => s[0]),
          ys: each.scored.map((s) => s[1]),
        })),
      },
    ]);
  $(".outcome").hidden = !result;
  if (!result) return;
  const worded =
    stop.kind === "choice"
      ? (stop.choices.find(([value]) => value === told.prediction) || ["", ""])[1]
      : told.prediction + (stop.unit === "%" ? " %" : "");
  put(
    $(".yours"),
    stop.kind === "choice"
      ? worded.split(":")[0]
      : stop.unit === "%"
        ? worded
        : stop.unit + " " + worded,
  );
  put($(".measured"), result.told);
  put(
    $(".stop .verdict"),
    result.answer === null
      ? "There was no prediction."
      : result.right
        ? "✓ Correct" + (stop.within ? ", within " + stop.within + "." : ".")
        : "Not correct.",
  ).className = "verdict " + (result.right ? "ok" : "off");
  put($(".says"), result.says);
  drawPictures($(".outcome .pictures"), result.pictures);
  const key = told.runs.map((run) => run.run).join();
  if ($(".stop .links").dataset.key !== key) {
    $(".stop .links").dataset.key = key;
    const subjects = told.runs.map((run) => run.run);
    $(".stop .links").replaceChildren(
      button(
        "Open in Train",
        () => goTo("Train", { subject: subjects[0], over: subjects.slice(1) }),
        "The training curves",
      ),
      " ",
      button(
        "Open in Inspect",
        () => goTo("Inspect", { subject: subjects[subjects.length - 1], step: null }),
        "All heads of the model",
      ),
    );
  }
}
