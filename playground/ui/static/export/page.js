// The page of an exported model: type an input, switch parts off, see the output change.
import { Button } from "../shared/components/buttons.js";
import { effect, html, render } from "../vendor/preact.js";
import { formatWholePercent } from "../shared/format.js";
import { describePass, DiagramNote } from "../shared/diagram/describe.js";
import { Diagram } from "../shared/diagram/diagram.js";
import { SelectedHead } from "../shared/diagram/head_map.js";
import { OpenBlock } from "../shared/diagram/open_block.js";
import { buildLinks } from "../shared/diagram/structure.js";
import { SwitchControls } from "../shared/diagram/switches.js";
import { data, hasTarget, importance, isRight, measureAll } from "./state.js";
import { measureScore, method, openBlock, outputTokens, parts, pass, problem } from "./state.js";
import { query, row, score, scores, select, selected, stacks, switchedOff } from "./state.js";
import { switches, text, toggleBlock, type, typeAnotherExample } from "./state.js";

const Input = () =>
  html`<div class="input">
    <label for="input" class="pg-clip" title=${data.accepts}
      >Input: <bdi>${data.accepts}</bdi></label
    >
    <div class="pg-row">
      <input
        id="input"
        value=${text.value}
        aria-invalid=${String(Boolean(problem.value))}
        aria-describedby="problem"
        autocomplete="off"
        spellcheck=${false}
        onInput=${(event) => type(event.target.value)}
      />
      <${Button} title="Another unseen input" onClick=${typeAnotherExample}>Another<//>
    </div>
    <p id="problem" class="pg-error" role="status">${problem.value}</p>
  </div>`;

const describeOutput = () =>
  (problem.value ? "Output of the last input" : "Output and probability") +
  (hasTarget.value ? "" : ", compared with the whole model’s") +
  (isRight.value ? "" : ": below each wrong token, the right one");

/** Highlight the query of a token of the output. @param {number} token */
function pointAt(token) {
  const { output, outputRow } = buildLinks(pass.value, selected.value.kind);
  row.value = output && outputRow + token;
}

const Output = () =>
  html`<div class=${"output" + (problem.value ? " stale" : "")}>
    <span>${describeOutput()}</span>
    <output for="input" onPointerLeave=${() => (row.value = null)}>
      ${outputTokens.value.map(
        ({ name, expected, probability, isRight, isEnd }, i) =>
          html`<span
            key=${i}
            class=${"token" + (isRight ? "" : " wrong") + (isEnd ? " end" : "")}
            title="Probability ${formatWholePercent(probability)}"
            onPointerEnter=${() => pointAt(i)}
          >
            <b class="pg-clip"><bdi>${name}</bdi></b>
            <i><i style=${{ width: `${100 * probability}%` }} /></i>
            <small>${!isRight && html`<bdi>${expected}</bdi>`}</small>
          </span>`,
      )}
    </output>
  </div>`;

const Controls = () =>
  html`<${SwitchControls}
    off=${switchedOff.value}
    nameOf=${switches.nameOf}
    isRight=${isRight.value}
    score=${score.value}
    method=${method.value}
    hasExamples=${true}
    onMethod=${(name) => (method.value = name)}
    onReset=${() => (switchedOff.value = [])}
  />`;

/** What the open block shows: the map of the selected head, and how a query gets its weights. */
const Details = ({ block, ...map }) =>
  html`<${OpenBlock}
    block=${block}
    contribution=${pass.value.contributions[block.component]}
    scores=${scores.value}
    onQuery=${(at) => (query.value = at)}
  >
    ${
      block.heads > 0 &&
      html`<${SelectedHead}
        ...${map}
        onHover=${(cell) => (row.value = cell && cell[0])}
        onSelect=${(at) => (query.value = at)}
      />`
    }
  <//>`;

function Model() {
  const block = openBlock.value,
    at = row.value ?? scores.value?.options.query ?? null,
    view = { pass: pass.value, selected: selected.value, row: at };
  return html`<div class="diagram">
    <${Diagram}
      ...${view}
      stacks=${stacks}
      label=${describePass(pass.value)}
      open=${block?.component ?? ""}
      details=${block && html`<${Details} ...${view} block=${block} />`}
      onSelect=${select}
      onBlock=${toggleBlock}
      onRow=${(next) => (row.value = next)}
      switches=${switches}
      importance=${importance.value}
      parts=${parts}
      minHeight=${60 + 22 * Math.min(14, data.max_tokens)}
      controls=${html`<${DiagramNote}
        ...${view}
        row=${row.value}
        isOff=${switches.isOff(selected.value)}
      />`}
    />
  </div>`;
}

const Page = () =>
  html`<div class="pg">
    <section class="pg-card try" aria-label="Input and output"><${Input} /><${Output} /></section>
    <section class="pg-card" aria-label="Model">
      <h2 class="pg-visually-hidden">Model</h2>
      <${Controls} /><${Model} />
    </section>
  </div>`;

const darkMode = matchMedia("(prefers-color-scheme: dark)"),
  setTheme = () => document.documentElement.classList.toggle("dark", darkMode.matches);
darkMode.addEventListener("change", setTheme);
setTheme();
const root = /** @type {Element} */ (document.getElementById("page"));
root.replaceChildren();
render(html`<${Page} />`, root);
effect(() => void measureScore());
effect(() => void measureAll());
