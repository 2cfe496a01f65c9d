// The questions of Find the bug: which bug it is, and which line differs.
import { html, signal } from "../vendor/preact.js";
import { formatMessage } from "../shared/format.js";
import { requestLesson } from "./measurement.js";
import { catalog } from "./state.js";

/** The hints of wrong guesses: {name, line}. */
export const feedback = signal(/** @type {{ name?: string, line?: string }} */ ({}));

/** Send a guess, or request the answer, and update the measurement. */
async function submitGuess(id, guess, onReply, prefix = "") {
  const key = "bug" in guess ? "name" : "line",
    reply = await requestLesson("guess", { id, ...guess });
  const text = reply.error ? formatMessage(reply.error) : reply.feedback && prefix + reply.feedback;
  feedback.value = { ...feedback.value, [key]: text };
  const response = await requestLesson("poll", { id });
  if (!response.error) onReply(response);
}

const ShowAnswer = ({ id, onReply }) =>
  html`<p>
    <button
      type="button"
      class="pg-button reveal"
      onClick=${() => submitGuess(id, { reveal: true }, onReply)}
    >
      Show answer
    </button>
  </p>`;

function NameQuestion({ id, onReply }) {
  return html`<div class="guess-name">
    <p class="question">Which bug is it?</p>
    <div class="guesses">
      ${catalog.value.bugs.map(
        ({ name, title }) =>
          html`<button
            key=${name}
            type="button"
            class="pg-button"
            onClick=${() => submitGuess(id, { bug: name }, onReply)}
          >
            ${title}
          </button>`,
      )}
    </div>
    <p class="clue" role="status">${feedback.value.name}</p>
    <${ShowAnswer} id=${id} onReply=${onReply} />
  </div>`;
}

function LineQuestion({ id, onReply, response: { is_hidden: isHidden, result, title } }) {
  const { file, first_line: first, lines } = result.source,
    guess = (i) => submitGuess(id, { line: i }, onReply, `Line ${first + i}: `);
  return html`<div class="guess-line">
    <p class="question">
      ${isHidden && `Correct: ${title}. `}Below is the correct source. Which line differs in the
      buggy model?
    </p>
    <p class="file">${file}</p>
    <ol class="source" start=${first}>
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
    <${ShowAnswer} id=${id} onReply=${onReply} />
  </div>`;
}

const DIFF_CLASSES = { "+": "plus", "-": "minus" };

const DiffLine = ({ line }) => html`<span class=${DIFF_CLASSES[line[0]]}>${line + "\n"}</span>`;

const Solution = ({ response: { explanation, origin, result, title } }) =>
  html`<div class="solved">
    <p class="verdict ok">${title}</p>
    <pre class="diff" tabindex="0">
${result.diff.map((line, i) => html`<${DiffLine} key=${i} line=${line} />`)}</pre>
    <p>${explanation}</p>
    <p class="pg-hint">Source: ${origin}.</p>
  </div>`;

/** The question that is next, or the solution. */
export function BugQuiz(props) {
  const { bug_identified: hasName, line_identified: hasLine } = props.response;
  if (hasLine) return html`<${Solution} ...${props} />`;
  return hasName ? html`<${LineQuestion} ...${props} />` : html`<${NameQuestion} ...${props} />`;
}
