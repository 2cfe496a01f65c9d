// The questions of Find the bug: which bug it is, and which line differs.
import { Button } from "../shared/components/buttons.js";
import { html, signal } from "../vendor/preact.js";
import { formatMessage } from "../shared/format.js";
import { addMark, NextClue } from "./daily_bug.js";
import { bugState, catalog, requestLesson } from "./state.js";

/** The hints of wrong guesses: {name, line}. */
export const feedback = signal(/** @type {{ name?: string, line?: string }} */ ({}));

/** Send a guess, or request the answer, and show the result with what it reveals. */
async function submitGuess(guess, prefix = "") {
  const { job } = bugState.value,
    key = "bug" in guess ? "name" : "line",
    reply = await requestLesson("guess", { job, ...guess });
  const text = reply.error ? formatMessage(reply.error) : reply.feedback && prefix + reply.feedback;
  feedback.value = { ...feedback.value, [key]: text };
  if (!reply.result || bugState.value.job !== job) return;
  if (!bugState.value.result.bug_identified)
    addMark(guess.reveal ? "answer" : reply.result.bug_identified ? "hit" : "miss");
  bugState.value = { ...bugState.value, result: reply.result };
  // What follows the guess may be below the screen.
  requestAnimationFrame(() =>
    document.querySelector(".guess-line, .solved")?.scrollIntoView?.({ block: "nearest" }),
  );
}

const ShowAnswer = () =>
  html`<p>
    <${Button} class="reveal" onClick=${() => submitGuess({ reveal: true })}>Show answer<//>
  </p>`;

function NameQuestion({ result }) {
  return html`<div class="guess-name">
    <p class="pg-note question">Which bug is it?</p>
    <div class="guesses">
      ${catalog.value.bugs.map(
        ({ name, title }) =>
          html`<${Button} key=${name} class="long" onClick=${() => submitGuess({ bug: name })}>
            ${title}
          <//>`,
      )}
    </div>
    <p class="clue" role="status">${feedback.value.name}</p>
    <${NextClue} result=${result} />
    <${ShowAnswer} />
  </div>`;
}

function LineQuestion({ result: { is_hidden: isHidden, source, title } }) {
  const { file, first_line: first, lines } = source,
    guess = (i) => submitGuess({ line: i }, `Line ${first + i}: `);
  return html`<div class="guess-line">
    <p class="pg-note question">
      ${isHidden && `Correct: ${title}. `}Below is the correct source. Which line differs in the
      buggy model?
    </p>
    <p class="file">${file}</p>
    <ol class="pg-card source" start=${first}>
      ${lines.map(
        (text, i) =>
          html`<li key=${i} value=${first + i}>
            <button
              type="button"
              class="line"
              title=${`Line ${first + i}`}
              onClick=${() => guess(i)}
            >
              ${text || " "}
            </button>
          </li>`,
      )}
    </ol>
    <p class="clue" role="status">${feedback.value.line}</p>
    <${ShowAnswer} />
  </div>`;
}

const DIFF_CLASSES = { "+": "plus", "-": "minus" };

const DiffLine = ({ line }) => html`<span class=${DIFF_CLASSES[line[0]]}>${line + "\n"}</span>`;

const Solution = ({ result: { diff, explanation, origin, title } }) =>
  html`<div class="solved">
    <p class="verdict ok">${title}</p>
    <pre class="diff" tabindex="0">
${diff.map((line, i) => html`<${DiffLine} key=${i} line=${line} />`)}</pre>
    <p>${explanation}</p>
    <p class="pg-hint">Source: ${origin}.</p>
  </div>`;

/** The question that is next, or the solution. */
export function BugQuiz({ result }) {
  if (result.line_identified) return html`<${Solution} result=${result} />`;
  return result.bug_identified
    ? html`<${LineQuestion} result=${result} />`
    : html`<${NameQuestion} result=${result} />`;
}
