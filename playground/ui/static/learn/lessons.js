// The lessons: a guess, a measurement, and the comparison of both.
import { Button } from "../shared/components/buttons.js";
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { Field } from "../shared/components/form.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { formatMessage } from "../shared/format.js";
import { isActive, Job } from "../shared/job.js";
import { store } from "../shared/store.js";
import { EXACT_MATCH_TITLE } from "../shared/strings.js";
import { Figures } from "./figures.js";
import { cloudOf, isGuessSent, sendGuess } from "./classroom.js";
import { describeScore, Guess, isNear, measuredLines } from "./guess.js";
import {
  catalog,
  formatEstimate,
  lessonName,
  lessonStates,
  openLesson,
  saveLocal,
  showSection,
} from "./state.js";

/** @type {Map<string, Job>} */
const jobs = new Map();

/** Return the job of a lesson. */
function jobOf(name) {
  const onSubmit = (job) => setLessonState(name, { ...withoutResult(name), job });
  if (!jobs.has(name)) jobs.set(name, new Job({ onSubmit }));
  return /** @type {Job} */ (jobs.get(name));
}

const lessonState = (name) => ({ options: {}, ...lessonStates.value[name] });
export const isBusy = (name) => isActive(jobOf(name).state.value);

function withoutResult(name) {
  const { result: _, ...state } = lessonState(name);
  return state;
}

function setLessonState(name, state) {
  lessonStates.value = { ...lessonStates.value, [name]: state };
  saveLocal("lessons", lessonStates.value);
}

/** Change the guess or the options, which discards the previous result. */
export const changeInput = (name, changes) =>
  setLessonState(name, { ...withoutResult(name), ...changes });

function changeGuess(lesson, guess) {
  changeInput(lesson.name, { guess });
  sendGuess(lesson, guess);
}

const changeOptions = (name, changes) =>
  changeInput(name, { options: { ...lessonState(name).options, ...changes } });

const withoutSeed = ({ seed: _, ...options }) => options;
const toKey = (options) => JSON.stringify(Object.entries(options).sort());

/** Open a lesson with the options of a link. A result of other options is discarded. */
export function openLinkedLesson(name, linked) {
  const before = lessonState(name).options,
    options = { ...withoutSeed(before), ...linked };
  if (toKey(options) !== toKey(before)) changeInput(name, { options });
  openLesson(name);
}

/** Store the result of the job of a lesson at its end. */
async function storeResult(name, running) {
  const result = await running,
    { job: _, ...state } = lessonState(name);
  if (!isBusy(name)) setLessonState(name, result ? { ...state, result } : state);
}

function toPayload(name) {
  return { kind: "lesson", request: { lesson: name, options: lessonState(name).options } };
}

/** Follow what was active when the page was closed. */
export function resumeLessons() {
  for (const [name, { job }] of Object.entries(lessonStates.value))
    if (job) storeResult(name, jobOf(name).resume(store.owner.value, job, toPayload(name)));
}

export function measure(name) {
  if (!isBusy(name)) return storeResult(name, jobOf(name).run(store.owner.value, toPayload(name)));
}

/** Open the result that the app includes, without a training (scripts/record_lessons.py). */
async function openRecorded(name) {
  const url = new URL(`./recorded/${name}.json`, import.meta.url),
    result = await (await fetch(url)).json();
  setLessonState(name, { ...withoutResult(name), result });
}

/** Return the state of a lesson in the list. */
export function lessonStatus(name) {
  if (isBusy(name)) return "running";
  const { guess, result } = lessonState(name),
    lesson = catalog.value.lessons.find((each) => each.name === name);
  if (!result) return "";
  return guess !== undefined && isNear(lesson, guess, result) ? "near" : "measured";
}

const STATUS_LABELS = { near: "guessed right", measured: "measured", running: "running" };
const STATUS_MARKS = { near: "✓", measured: "•", running: "…" };

/** Link the notebook with the numbers of published texts, or its section with this anchor. */
function SourcesLink({ anchor = "", ...props }) {
  const href = catalog.value.sources + (anchor && `#${anchor}`);
  return html`<a ...${props} href=${href} target="_blank" rel="noopener" />`;
}

function LessonList() {
  const list = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const open = list.current.querySelector('[aria-current="true"]');
    open.scrollIntoView?.({ block: "nearest", inline: "center" }); // on a phone, sideways
  }, [lessonName.value]);
  return html`<nav aria-label="Lessons">
    <ol ref=${list} class="stations">
      ${catalog.value.lessons.map(({ name, title }, i) => {
        const state = lessonStatus(name);
        return html`<li key=${name}>
          <button
            type="button"
            class="station"
            data-state=${state}
            aria-current=${String(name === lessonName.value)}
            onClick=${() => openLesson(name)}
          >
            <span class="number">${i + 1}</span>
            <span>${title}</span>
            <span class="mark" aria-hidden="true">${STATUS_MARKS[state]}</span>
            <span class="pg-visually-hidden">${STATUS_LABELS[state]}</span>
          </button>
        </li>`;
      })}
      <li>
        <button
          type="button"
          class="station"
          onClick=${() => store.open("compare", { section: "experiments" })}
        >
          <span class="number" aria-hidden="true">→</span>
          <span>Experiments</span>
        </button>
      </li>
      <li>
        <${SourcesLink} class="station">
          <span class="number" aria-hidden="true">↗</span>
          <span>Sources</span>
        <//>
      </li>
    </ol>
  </nav>`;
}

function Options({ lesson, state, isDisabled }) {
  const { name, options: specs } = lesson,
    { seed } = state.options;
  if (!specs.length && seed === undefined) return null;
  return html`<fieldset class="pg-row options" disabled=${isDisabled}>
    <legend class="pg-visually-hidden">Options</legend>
    ${specs.map(
      (option) =>
        html`<${Field}
          key=${option.name}
          class="option"
          field=${{
            name: option.name,
            label: option.label,
            type: option.choices.length ? "select" : "text",
            options: option.choices.map((value) => ({ value, label: value })),
            maxLength: 200,
          }}
          value=${state.options[option.name] ?? option.default}
          onInput=${(value) => changeOptions(name, { [option.name]: value })}
        />`,
    )}
    ${
      seed !== undefined &&
      html`<span class="linked-seed">
        Seed ${seed}, from a link ${" "}
        <${Button} onClick=${() => changeInput(name, { options: withoutSeed(state.options) })}>
          Use the default
        <//>
      </span>`
    }
  </fieldset>`;
}

function Choices({ lesson, state, isDisabled }) {
  const cloud = cloudOf(lesson.name);
  return html`<fieldset class="predict" disabled=${isDisabled}>
    <legend class="pg-visually-hidden">Your guess</legend>
    ${lesson.choices.map(
      ([value, text]) =>
        html`<label key=${value}>
          <input
            type="radio"
            name="learn-guess"
            value=${value}
            checked=${state.guess === value}
            onChange=${() => changeGuess(lesson, value)}
          />
          <span>${text}</span>
          ${cloud.length > 0 && html`<b>${cloud.filter((each) => each === value).length}</b>`}
        </label>`,
    )}
  </fieldset>`;
}

/** Return a measured choice in the words of the choice, without its explanation. */
export const formatOutcome = ({ choices }, { outcome, value }) =>
  (outcome === value && choices.find(([each]) => each === value)?.[1].split(":")[0]) || outcome;

function Outcome({ lesson, guess, result }) {
  const { figures, note, runs } = result,
    subjects = runs.map((run) => run.run),
    hasOwnFigure = lesson.kind === "curve",
    others = figures.filter((each) => !hasOwnFigure || each.kind !== "curves");
  const hasGuess = guess !== undefined,
    mark = !hasGuess ? "" : isNear(lesson, guess, result) ? "ok" : "off";
  return html`<div class="outcome">
    <p class=${"verdict " + mark} role="status">
      ${hasGuess && describeScore(lesson, guess, result)}
      ${
        lesson.kind !== "curve" &&
        html`${" "}<span class="measured">Measured: ${formatOutcome(lesson, result)}.</span>`
      }
    </p>
    <p class="explanation">${formatMessage(result.explanation)}</p>
    <${Figures} figures=${others} />
    ${note ? html`<p class="pg-hint">${note}</p>` : html`<${OpenRuns} subjects=${subjects} />`}
  </div>`;
}

const OpenRuns = ({ subjects }) =>
  html`<p class="pg-buttons links">
    <${Button}
      onClick=${() => store.open("train", { model: subjects[0], over: subjects.slice(1).join() })}
    >
      Open in Train
    <//>
    <${Button} onClick=${() => store.open("inspect", { model: subjects.at(-1) })}>
      Open in Inspect
    <//>
  </p>`;

/** Return the exact match of the training so far, as lines of a figure. */
export const partialLines = ({ curves = [] }) =>
  curves.map(({ evaluations, label }) => ({
    label,
    xs: evaluations.map((each) => each[0]),
    ys: evaluations.map((each) => each[1]),
  }));

/** Describe how long the training of a lesson takes. */
export const describeDuration = ({
  estimate,
  pretrained_job: isPretrained,
  reuses_runs: isReusing,
}) =>
  `Training takes ${formatEstimate(estimate)}` +
  (isReusing ? ", less if an earlier lesson has trained this model." : ".") +
  (isPretrained ? " The download of the pretrained model takes longer." : "");

/** The figure to draw on; without one, that of a running training. */
function LessonFigure({ lesson, state, isLocked, result }) {
  const { name, kind } = lesson,
    partial = partialLines(jobOf(name).state.value.partial).filter(({ xs }) => xs.length);
  if (kind === "choice")
    return partial.length > 0 && html`<${Figures} figures=${[buildLiveFigure(partial)]} />`;
  const lines = result ? measuredLines(result) : lesson.unit === "step" ? partial : [];
  return html`<${Guess}
    lesson=${lesson}
    guess=${state.guess ?? null}
    onChange=${(guess) => changeGuess(lesson, guess)}
    isLocked=${isLocked}
    measured=${kind === "curve" ? lines : []}
    value=${kind === "number" ? (result?.value ?? null) : null}
    cloud=${cloudOf(name)}
  />`;
}

const buildLiveFigure = (series) => ({
  kind: "curves",
  title: EXACT_MATCH_TITLE + ", so far",
  metric: "exact_match",
  series,
});

const WITHOUT_GUESS = {
  curve: "Draw the curve that you expect first.",
  number: "Click where you expect the value first.",
  choice: "Select an answer first.",
};

const LessonText = ({ lesson }) =>
  html`<div class="exercise">
    <h3>${catalog.value.lessons.indexOf(lesson) + 1}. ${lesson.title}</h3>
    <p>
      ${lesson.introduction}${" "}
      ${
        lesson.sources &&
        html`<${SourcesLink} anchor=${lesson.sources_anchor}>Sources: ${lesson.sources}<//>`
      }
    </p>
    <p class="instruction">${lesson.instruction}</p>
  </div>`;

function Lesson({ lesson }) {
  const { name } = lesson,
    state = lessonState(name),
    isDisabled = isBusy(name),
    { result } = isDisabled ? {} : state,
    isLocked = isDisabled || Boolean(result),
    [error, setError] = useState(""),
    hasGuess = state.guess !== undefined || cloudOf(name).length > 0; // a teacher needs none
  const answer = (find) => {
    if (hasGuess) find(name);
    setError(hasGuess ? "" : WITHOUT_GUESS[lesson.kind]);
  };
  const onSubmit = (event) => {
    event.preventDefault();
    if (result) changeInput(name, { guess: undefined });
    else answer(measure);
  };
  return html`<article class="lesson" data-name=${name}>
    <${LessonText} lesson=${lesson} />
    <div class="finding">
      <form novalidate onSubmit=${onSubmit}>
        <${Options} lesson=${lesson} state=${state} isDisabled=${isDisabled} />
        <p class="pg-note question">${lesson.question}</p>
        ${
          lesson.kind === "choice" &&
          html`<${Choices} lesson=${lesson} state=${state} isDisabled=${isLocked} />`
        }
        <${LessonFigure} lesson=${lesson} state=${state} isLocked=${isLocked} result=${result} />
        ${isGuessSent(name) && html`<p class="sent">✓ Your teacher has your guess.</p>`}
        <p class="pg-buttons">
          <button type="submit" class="pg-button primary measure" disabled=${isDisabled}>
            ${result ? "Guess again" : (lesson.pretrained_job ? "Load" : "Train") + " and measure"}
          </button>
          ${
            lesson.is_recorded &&
            !result &&
            html`<${Button}
              class="recorded"
              disabled=${isDisabled}
              onClick=${() => answer(openRecorded)}
            >
              Open a stored result
            <//>`
          }
          ${
            error && !hasGuess
              ? html`<span class="pg-error" role="alert">${error}</span>`
              : !result && html`<span class="pg-hint duration">${describeDuration(lesson)}</span>`
          }
        </p>
      </form>
      <${JobProgress} job=${jobOf(name)} onRetry=${() => measure(name)} />
      ${result && html`<${Outcome} lesson=${lesson} guess=${state.guess} result=${result} />`}
    </div>
    <${Onward} name=${name} />
  </article>`;
}

function Onward({ name }) {
  const { lessons } = catalog.value,
    next = lessons[lessons.findIndex((each) => each.name === name) + 1];
  const open = (event) => {
    const tab = event.currentTarget.closest(".learn");
    if (next) openLesson(next.name);
    else showSection("bugs");
    tab?.scrollIntoView({ block: "start" });
  };
  return html`<p class="pg-buttons">
    <${Button} class="long next-lesson" onClick=${open}>
      ${next ? `Next: ${next.title} →` : "Daily bug →"}
    <//>
  </p>`;
}

export function Lessons() {
  const lesson = catalog.value.lessons.find((each) => each.name === lessonName.value);
  return html`<${LessonList} /> <${Lesson} key=${lesson.name} lesson=${lesson} />`;
}
