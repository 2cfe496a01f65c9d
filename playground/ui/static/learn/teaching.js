// For teachers: links to exercises, and the limits of the server.
import { html } from "../vendor/preact.js";
import { CopyButton } from "../shared/components/buttons.js";
import { formatCount } from "../shared/format.js";
import { ClassForm } from "./classroom.js";
import { describeDuration as describeBugDuration } from "./bug_exercise.js";
import { catalog, formatEstimate, RANDOM_BUG } from "./state.js";

const LOCAL_HOST = /^(localhost|127\.|0\.0\.0\.0|\[?::1?\]?$)/;
/** Return the links to lessons: [query, text], with the training time of each lesson. */
export function listLessonLinks(lessons) {
  const positions = lessons.flatMap((lesson) =>
    lesson.options
      .filter((option) => option.name === "positions")
      .flatMap((option) => option.choices.map((value) => [lesson, value])),
  );
  return [
    ["learn=start", "Start: how a transformer works"],
    ...lessons.map(({ estimate, name, title }) => [
      `learn=${name}`,
      title,
      formatEstimate(estimate),
    ]),
    ["learn=learning&seed=7", "Watch it learn with another seed"],
    ["learn=attention&text=2+7+1+8", "See what it attends to, for another sequence"],
    ...positions.map(([{ name, title }, value]) => [
      `learn=${name}&positions=${value}`,
      `${title}: ${value}`,
    ]),
  ];
}

function Links({ links }) {
  return html`<ul class="pg-list links-list">
    ${links.map(([query, text, duration]) => {
      const address = `${location.origin}${location.pathname}?${query}`;
      return html`<li key=${query}>
        <span> ${text}${duration && html`<span class="pg-sub duration">${duration}</span>`} </span>
        <span class="address"><a href=${address}>?${query}</a></span>
        <${CopyButton} text=${address} title="Copy this link" />
      </li>`;
    })}
  </ul>`;
}

/** Describe the limits of this server, for a class. */
export const describeMachine = ({
  is_shared: isShared,
  max_measurements: maxMeasurements,
  slots,
  slots_per_owner: perOwner,
  timeout_s: limit,
}) =>
  `This server trains ${formatCount(slots, "run")} at a time, at most ${perOwner} per user, and ` +
  `measures ${maxMeasurements} at a time, each for at most ${Math.round(limit)} s. ` +
  "Other runs are queued. " +
  (isShared
    ? "It accepts connections from other machines."
    : "It accepts connections only from this machine, because it was started without --host.");

/** A link to a document, or its path where the server has no documents. */
function Document({ name, text = `docs/${name}` }) {
  const { docs } = catalog.value;
  return docs
    ? html`<a href=${`${docs}/${name}`} target="_blank" rel="noopener">${text}</a>`
    : `docs/${name}`;
}

export function Teaching() {
  const { bugs, lessons, machine } = catalog.value;
  return html`<div>
      ${
        LOCAL_HOST.test(location.hostname) &&
        html`<p class="pg-note">
          The address of this page works only on this machine: pupils cannot open its links. Start
          the app with <code>--host 0.0.0.0</code>, and open the page with the machine's network
          address.
        </p>`
      }
      <${ClassForm} />
      <h3>Exercises by link</h3>
      <p>
        A link opens this page with an exercise prepared. Nothing trains until the pupil presses the
        button, and the page contains no answers before the measurement. All pupils with the same
        seed in the link train the same model.
      </p>
      <p>
        The times are those of the training, if no other runs train. A lesson reuses the models of
        earlier lessons. The measurement adds some seconds.
      </p>
      <${Links} links=${listLessonLinks(lessons)} />
    </div>
    <div>
      <h3>Bugs by link</h3>
      <p>
        The page hides the name of the bug until a guess is correct. The address of a known bug
        contains its name, that of a random bug does not.
        ${" "}${describeBugDuration(catalog.value.steps)}
      </p>
      <${Links}
        links=${[
          [`bug=${RANDOM_BUG}&seed=3`, "A random bug"],
          ...bugs.map(({ name, title }) => [`bug=${name}`, title]),
          ["bug=causal-mask&steps=120&seed=1", "Causal mask, with fewer steps and another seed"],
        ]}
      />
      <h3>Run a class</h3>
      <p>${describeMachine(machine)}</p>
      <p>
        Lesson plans for 45 and 90 minutes, and how to run a class on one machine, are in
        ${" "}<${Document} name="teaching.md" />. The${" "}
        <${Document} name="glossary.md" text="glossary" />
        ${" "}explains the terms.
      </p>
    </div>`;
}
