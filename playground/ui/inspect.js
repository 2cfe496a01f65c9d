// The Inspect tab: a model, a training step, an input sequence, and one view of them at a time.
// The views are in the files after this one. Each view requests its data from the server and draws
// the response. The server computes every number from the model.
const root = $(".inspect"),
  VIEWS = { __proto__: null }; // no prototype: a link may contain any view name
const state = { subject: "", step: null, text: "3 1 4 1 5", view: "attention" };
const $v = (view, selector) => VIEWS[view].box.querySelector(selector);
let owner = "",
  runs = [],
  checkpoints = [],
  seen = false,
  asked = 0,
  recorded = [],
  answers = {}; // view -> its latest data

// ---------------------------------------------------------------- requests
const waiting = new Set(),
  SLOW = ["heads", "heads-over-training", "away"]; // views computed on hundreds of sequences
let timer = null;
// Request a view again after a short delay, so that several keystrokes cause one request.
function refresh(view = state.view, after = 40) {
  waiting.add(view);
  clearTimeout(timer);
  timer = setTimeout(() => {
    const views = [...waiting];
    waiting.clear();
    views.forEach(fetchView);
  }, after);
}
async function ask(view, options, extra = {}) {
  const request = {
    owner,
    subject: state.subject,
    text: state.text,
    view,
    options,
    ...(state.step === null ? {} : { step: state.step }),
    ...extra,
  };
  try {
    return await call("inspect", request, SLOW.includes(view) ? 300000 : 20000);
  } catch (error) {
    return {
      error:
        error.name === "TimeoutError"
          ? "the request timed out; try again"
          : "the server did not respond; try again",
      again: !SLOW.includes(view),
    };
  }
}
async function fetchView(view) {
  if (!state.subject || !VIEWS[view]) return;
  const mine = ++asked,
    spec = VIEWS[view];
  spec.asked = mine;
  $(".stage").classList.add("waiting");
  const data = await persist(
    () => ask(spec.asks || view, spec.want ? spec.want() : {}),
    () => spec.asked === mine,
    (error) => {
      if (view === state.view) problem(error, true);
    },
  );
  if (spec.asked !== mine) return; // a newer request is pending
  if (view === state.view) $(".stage").classList.remove("waiting");
  if (propose($(".sequence"), data.question)) {
    state.text = $(".sequence").value;
    remember();
    refresh(view, 0);
    return;
  }
  if (data.error) {
    if (view === state.view) problem(data.error, data.again);
    return;
  } // the last result stays visible
  if (view === state.view) problem("");
  answers[view] = data;
  said(data);
  redraw(view);
  root.dataset.drawn = view + " " + state.text; // tests and benchmarks wait for this attribute
}
function problem(text, passing = false) {
  // a transient error is not caused by the sequence
  $(".problem").textContent = sentenceOf(text);
  if (text && !passing) $(".sequence").setAttribute("aria-invalid", "true");
  else $(".sequence").removeAttribute("aria-invalid");
}
function redraw(view = state.view) {
  if (answers[view] && VIEWS[view].box && VIEWS[view].box.offsetParent)
    VIEWS[view].draw(answers[view]);
}

// Show the generated tokens next to the sequence.
function said(data) {
  if (!data.written) return;
  $(".answer").replaceChildren(
    ...marked(data.written, data.answer),
    isRight(data)
      ? el("span", { className: "ok", textContent: "✓", title: "correct, including EOS" })
      : "",
  );
  $(".note").textContent = data.note || "";
}
const isRight = ({ written, answer }) => Boolean(answer) && written.join() === answer.join();
// The generated tokens compared with the target, which is null if it is unknown. A missing token is
// shown as _.
function marked(written, answer) {
  const symbols = (names) => names.filter((name) => name !== "EOS"),
    given = symbols(written),
    right = symbols(answer || written);
  return Array.from({ length: Math.max(given.length, right.length) }, (_, i) => {
    const wrong = given[i] !== right[i],
      symbol = el("span", { className: wrong ? "wrong" : "", textContent: given[i] ?? "_" });
    if (wrong) symbol.title = right[i] === undefined ? "extra token" : "target: " + right[i];
    return [symbol, " "];
  }).flat();
}

// ---------------------------------------------------------------- views
function buildViews() {
  for (const [name, spec] of Object.entries(VIEWS)) {
    const tab = el("button", { type: "button", textContent: spec.title, id: "view-" + name });
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
    spec.box.setAttribute("aria-labelledby", "view-" + name);
    $(".stage").append(spec.box);
    spec.build(spec.box);
  }
}
function go(name) {
  if (!VIEWS[name]) name = "attention";
  state.view = name;
  for (const [each, spec] of Object.entries(VIEWS)) {
    spec.tab.setAttribute("aria-selected", String(each === name));
    spec.tab.tabIndex = each === name ? 0 : -1;
    spec.box.hidden = each !== name;
  }
  $(".explain").textContent = VIEWS[name].explain;
  problem("");
  $(".stage").classList.remove("waiting");
  remember();
  redraw(name);
  refresh(name, 0);
}

// ---------------------------------------------------------------- the model
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
    foreign =
      state.subject && ![...runs, ...checkpoints].some((each) => each.subject === state.subject);
  const signature = JSON.stringify([
    runs.map((r) => [r.subject, r.name]),
    checkpoints.map((c) => c.subject),
    foreign && state.subject,
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
      foreign && group("Shared with you", [new Option("a shared run", state.subject)]),
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
  if (!state.subject)
    choose(
      checkpoints.some((c) => c.subject === "checkpoint:reverse")
        ? "checkpoint:reverse"
        : (runs[0] || checkpoints[0] || { subject: "" }).subject,
    );
  select.value = state.subject;
}
function choose(subject, step = null) {
  state.subject = subject;
  state.step = step;
  answers = {};
  recorded = [];
  $(".subject").value = subject;
  for (const spec of Object.values(VIEWS)) if (spec.forget) spec.forget();
  remember();
  steps();
  refresh(state.view, 0);
}
// The steps of a run with stored weights.
async function steps() {
  const subject = state.subject,
    isRun = /^(run|watch):/.test(subject);
  $(".at-step").hidden = !isRun;
  if (!isRun) return;
  let told;
  try {
    told = await call("poll", { owner, subject, known: 0, epoch: -1, looks: 0 });
  } catch (error) {
    return;
  }
  if (subject !== state.subject) return;
  recorded = told.recorded || [];
  $(".at-step").hidden = recorded.length < 2;
  $(".step").max = Math.max(1, recorded.length - 1);
  $(".step").value =
    state.step === null
      ? recorded.length - 1
      : Math.max(
          0,
          recorded.findIndex((each) => each >= state.step),
        );
  sayStep(told.step);
}
function sayStep(last) {
  $(".step-words").textContent = recorded.length
    ? (state.step === null ? "latest, " : "") +
      (state.step === null ? recorded[recorded.length - 1] : state.step).toLocaleString("en")
    : "";
}

// ---------------------------------------------------------------- links and export
function remember() {
  try {
    localStorage.setItem(
      "transformer-playground-inspect",
      JSON.stringify({
        subject: state.subject,
        step: state.step,
        text: state.text,
        view: state.view,
      }),
    );
  } catch (error) {
    /* storage is not available */
  }
}
async function linkToView() {
  const what = {
    subject: state.subject,
    step: state.step,
    text: state.text,
    view: state.view,
    options: VIEWS[state.view].want ? VIEWS[state.view].want() : {},
  };
  if (what.subject.startsWith("run:")) {
    let told = {};
    try {
      told = await call("about", { owner, subject: what.subject });
    } catch (error) {
      /* then only this browser can open the link */
    }
    if (told.watch) what.subject = "watch:" + told.watch; // read-only for everyone with the link
  }
  return linkWith("inspect", what);
}
$(".link").addEventListener("click", async () =>
  copyText(await linkToView(), $(".link"), "The link"),
);
// HTML that embeds this view in another site (embed.py).
async function copyFrame() {
  const title = "Transformer Playground: " + VIEWS[state.view].title;
  const code =
    `<iframe src="${await linkToView()}&amp;embed=inspect" title="${title}" ` +
    `width="100%" height="600" style="border: 0" loading="lazy"></iframe>`;
  await copyText(code, $(".export summary"), "The embed code");
}

// Draw all elements of the view with the class `picture` into one image, from top to bottom.
function picture() {
  const parts = [...VIEWS[state.view].box.querySelectorAll(".picture")].filter(
    (part) => part.offsetParent && part.clientWidth,
  );
  const scale = 2,
    gap = 18,
    width = Math.max(320, ...parts.map((part) => part.clientWidth)) + 40;
  const height = 64 + parts.reduce((sum, part) => sum + part.clientHeight + gap, 0) + 10;
  const canvas = el("canvas", { width: width * scale, height: height * scale }),
    c = canvas.getContext("2d");
  c.scale(scale, scale);
  c.fillStyle =
    getComputedStyle(document.body).getPropertyValue("--body-background-fill") || "#fff";
  c.fillRect(0, 0, width, height);
  c.fillStyle = css("--body-text-color");
  c.font = "600 15px " + css("--font");
  c.textBaseline = "top";
  c.fillText(VIEWS[state.view].title, 20, 16);
  c.font = "12px " + css("--font");
  c.fillStyle = css("--pg-quiet-text");
  c.fillText(
    ($(".subject").selectedOptions[0] || { text: "" }).text +
      (answers[state.view] && answers[state.view].step !== undefined
        ? " · step " + answers[state.view].step
        : "") +
      " · " +
      state.text,
    20,
    38,
  );
  let y = 64;
  for (const part of parts) {
    if (part.tagName === "CANVAS") c.drawImage(part, 20, y, part.clientWidth, part.clientHeight);
    else {
      const from = part.getBoundingClientRect();
      for (const cell of part.querySelectorAll("th, td")) {
        const box = cell.getBoundingClientRect(),
          style = getComputedStyle(cell),
          x = 20 + box.left - from.left,
          top = y + box.top - from.top;
        if (style.backgroundColor !== "rgba(0, 0, 0, 0)") {
          c.fillStyle = style.backgroundColor;
          c.fillRect(x, top, box.width, box.height);
        }
        c.font = style.fontWeight + " " + style.fontSize + " " + style.fontFamily;
        c.fillStyle = style.color;
        c.textBaseline = "middle";
        const right = style.textAlign === "right" || style.textAlign === "end";
        c.textAlign = right ? "right" : style.textAlign === "center" ? "center" : "left";
        c.fillText(
          cell.innerText.trim().split("\n")[0].slice(0, 120),
          right
            ? x + box.width - parseFloat(style.paddingRight)
            : c.textAlign === "center"
              ? x + box.width / 2
              : x + parseFloat(style.paddingLeft),
          top + box.height / 2,
        );
      }
      c.textAlign = "left";
      for (const bar of part.querySelectorAll(".bar")) {
        const box = bar.getBoundingClientRect();
        c.fillStyle = getComputedStyle(bar).backgroundColor;
        c.fillRect(20 + box.left - from.left, y + box.top - from.top, box.width, box.height);
      }
    }
    y += part.clientHeight + gap;
  }
  return canvas;
}
// Figures for print are drawn by the server.
async function figures(name) {
  const label = $(".export summary");
  label.textContent = "Drawing";
  let told;
  try {
    told = await call(
      "inspect-figures",
      {
        owner,
        subject: state.subject,
        text: state.text,
        ...(state.step === null ? {} : { step: state.step }),
      },
      300000,
    );
  } catch (error) {
    told = { error: "the server did not respond; try again" };
  }
  label.textContent = "Export";
  if (told.error) {
    problem(told.error);
    return;
  }
  save(
    name.replace(state.view, "figures") + ".zip",
    new Blob([Uint8Array.from(atob(told.zip), (c) => c.charCodeAt(0))], {
      type: "application/zip",
    }),
  );
}
$(".export").addEventListener("click", (event) => {
  const as = event.target.dataset.as,
    data = answers[state.view],
    spec = VIEWS[state.view];
  if (as === "frame") {
    $(".export").open = false;
    copyFrame();
    return;
  }
  if (!as || !data) return;
  $(".export").open = false;
  const name =
    "inspect-" + state.view + "-" + state.text.replace(/[^A-Za-z0-9]+/g, "").slice(0, 20);
  if (as === "figures") {
    figures(name);
    return;
  }
  if (as === "png") picture().toBlob((blob) => save(name + ".png", blob));
  else if (as === "json")
    save(
      name + ".json",
      new Blob(
        [
          JSON.stringify(
            {
              model: ($(".subject").selectedOptions[0] || {}).text,
              text: state.text,
              view: state.view,
              options: spec.want ? spec.want() : {},
              ...(spec.unpacked ? spec.unpacked(data) : data),
            },
            null,
            1,
          ),
        ],
        { type: "application/json" },
      ),
    );
  else
    save(name + ".csv", new Blob([csvOf(spec.rows ? spec.rows(data) : [])], { type: "text/csv" }));
});

// ---------------------------------------------------------------- what a person does
let typing;
$(".sequence").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    state.text = $(".sequence").value;
    remember();
    refresh(state.view, 0);
  }, 20);
});
$(".subject").addEventListener("change", (event) => choose(event.target.value));
$(".step").addEventListener("input", (event) => {
  const at = +event.target.value;
  state.step = at >= recorded.length - 1 ? null : recorded[at];
  sayStep();
  remember();
  refresh();
});
onAppearance(() => redraw());

// ---------------------------------------------------------------- start
function attach() {
  let value = {};
  try {
    value = JSON.parse(props.value) || {};
  } catch (error) {
    return;
  }
  owner = value.owner || "";
  let wanted = {};
  try {
    wanted =
      JSON.parse(value.wanted || "null") ||
      JSON.parse(localStorage.getItem("transformer-playground-inspect") || "{}");
  } catch (error) {
    /* the stored value is malformed */
  }
  if (!seen) {
    if (typeof wanted.subject === "string") state.subject = wanted.subject;
    if (Number.isInteger(wanted.step)) state.step = wanted.step;
    if (typeof wanted.text === "string") state.text = wanted.text.slice(0, 400);
    if (typeof wanted.view === "string" && VIEWS[wanted.view]) state.view = wanted.view;
    if (wanted.options && VIEWS[state.view].take)
      try {
        VIEWS[state.view].take(wanted.options);
      } catch (error) {
        /* the link is malformed */
      }
  }
  $(".sequence").value = state.text;
}
async function start() {
  seen = true;
  const sent = handedOver("Inspect");
  if (sent) {
    state.subject = sent.subject;
    state.step = sent.step ?? null;
  }
  const remembered = state.subject;
  await list();
  if (
    remembered &&
    !/^watch:/.test(remembered) &&
    ![...runs, ...checkpoints].some((each) => each.subject === remembered)
  ) {
    state.subject = "";
    $(".subject").dataset.signature = "";
    await list();
  }
  steps();
  go(state.view);
}
async function goOn() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await rest(300);
    if (
      !(owner || document.documentElement.dataset.embed) ||
      !element.offsetParent ||
      document.hidden
    )
      continue;
    if (!seen) {
      await start();
      continue;
    }
    if (round % 12 === 0) {
      await list();
      const run = runs.find((each) => each.subject === state.subject);
      if (run && run.status === "training") {
        await steps();
        if (state.step === null && !VIEWS[state.view].slow) refresh();
      }
    }
  }
}
// The Train tab can send a model here before this tab is initialized.
function sentHere() {
  const wanted = seen && handedOver("Inspect");
  if (wanted) list().then(() => choose(wanted.subject, wanted.step ?? null));
}
listen(window, "playground-Inspect", sentHere);
