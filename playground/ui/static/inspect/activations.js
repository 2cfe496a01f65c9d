// The forward pass, one tensor at a time.
import { Button } from "../shared/components/buttons.js";
import { html, useLayoutEffect, useMemo, useRef } from "../vendor/preact.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { formatMessage, formatNumber } from "../shared/format.js";
import { createOptions } from "./section_parts.js";

const { options, update, restore } = createOptions({ stage: "", head: 0 });

const stageKey = (stage) => `${stage.block}/${stage.name}`;
const capitalize = (text) => formatMessage(text).slice(0, -1);

/** Move from the requested stage, so that a held key works while requests are pending. */
function moveStage({ stages, chosen }, offset) {
  const requested = stages.findIndex((stage) => stageKey(stage) === options.value.stage),
    next = stages[(requested < 0 ? chosen.stage : requested) + offset];
  if (next) update({ stage: stageKey(next) });
}

/** Format a value of a tensor, everywhere with the same four decimals. */
export const formatResult = (value) =>
  value === null ? "−∞" : String(+value.toFixed(4)).replace("-", "−");

export function groupStages(stages) {
  const blocks = new Map();
  stages.forEach((stage, index) => {
    if (!blocks.has(stage.block)) blocks.set(stage.block, []);
    blocks.get(stage.block).push({ ...stage, index });
  });
  return [...blocks];
}

const isDimension = ({ axes }) => axes[1].startsWith("dimensions");

/** Return the name of a column. Rows and columns count from 1, dimensions from 0. */
export const nameColumn = (chosen, k) =>
  isDimension(chosen) ? `dimension ${k}` : `column ${k + 1} (${chosen.columns[k]})`;

/** All steps, by block. The block of the current step is open and in view. */
function StageList({ data: { stages, chosen } }) {
  const list = useRef(/** @type {HTMLElement | null} */ (null)),
    blocks = useMemo(() => groupStages(stages), [stages]);
  useLayoutEffect(() => {
    const nav = /** @type {HTMLElement} */ (list.current),
      button = /** @type {HTMLElement} */ (nav.querySelector("[aria-current=true]")),
      block = /** @type {HTMLElement} */ (button.parentElement);
    for (const each of nav.querySelectorAll("details")) each.open = each === block;
    if (nav.contains(document.activeElement)) button.focus({ preventScroll: true });
    const top = block.offsetTop,
      bottom = top + block.offsetHeight;
    if (top < nav.scrollTop || bottom > nav.scrollTop + nav.clientHeight)
      nav.scrollTop = Math.min(top, Math.max(0, bottom - nav.clientHeight));
  }, [chosen.stage, stages.length]);
  return html`<nav ref=${list} class="trace-list" aria-label="Steps">
    ${blocks.map(
      ([block, members]) =>
        html`<details key=${block}>
          <summary>${block}</summary>
          ${members.map(
            (stage) =>
              html`<button
                key=${stage.name}
                type="button"
                title=${stage.formula}
                aria-current=${String(stage.index === chosen.stage)}
                onClick=${() => update({ stage: stageKey(stage) })}
              >
                <span>${stage.index + 1}. ${stage.name}</span>
                <span class="pg-quiet">${stage.shape.split(" = ")[1]}</span>
              </button>`,
          )}
        </details>`,
    )}
  </nav>`;
}

function Tensor({ stage, chosen }) {
  const head = chosen.heads ? `head ${chosen.head + 1}, ` : "";
  const data = useMemo(
    () => ({
      rows: chosen.rows,
      columns: isDimension(chosen) ? chosen.columns.map((_, k) => String(k)) : chosen.columns,
      values: chosen.weights,
      mask: chosen.possible,
      isSigned: chosen.signed,
      max: chosen.max,
    }),
    [chosen],
  );
  return html`<div class="trace-tensor">
    <${HeatMapView}
      label=${capitalize(stage.name)}
      data=${data}
      caption=${`Rows: ${chosen.axes[0]}. Columns: ${chosen.axes[1]}.`}
      describe=${(r, k) =>
        `${capitalize(stage.name)}, ${head}row ${r + 1} (${chosen.rows[r]}), ` +
        `${nameColumn(chosen, k)}: ${formatResult(chosen.weights[r][k])}.`}
    />
  </div>`;
}

/** The position in the forward pass, with buttons for the previous and the next step. */
const StepBar = ({ data, data: { stages, chosen } }) =>
  html`<div class="pg-row row trace-bar">
    <${Button}
      class="trace-previous"
      title="Left arrow"
      disabled=${chosen.stage === 0}
      onClick=${() => moveStage(data, -1)}
    >
      ← Previous
    <//>
    <${Button}
      class="trace-next"
      title="Right arrow"
      disabled=${chosen.stage === stages.length - 1}
      onClick=${() => moveStage(data, 1)}
    >
      Next →
    <//>
    <output class="pg-quiet trace-progress">step ${chosen.stage + 1} of ${stages.length}</output>
  </div>`;

/** The current step: its formula, code and tensor. */
function Stage({ data, data: { stages, chosen } }) {
  const stage = stages[chosen.stage],
    range =
      stage.low === null ? "" : `; from ${formatNumber(stage.low)} to ${formatNumber(stage.high)}`,
    heads = Array.from({ length: chosen.heads }, (_, h) => ({
      value: String(h),
      label: String(h + 1),
    }));
  return html`<section class="trace-stage">
    <${StepBar} data=${data} />
    <h4 class="trace-name" aria-live="polite">${capitalize(stage.block)}: ${stage.name}</h4>
    <p class="trace-formula">${stage.formula}</p>
    <p class="trace-shape pg-quiet" title=${stage.shape}>
      ${stage.words}${range}${chosen.truncation ? `; displayed: ${chosen.truncation}` : ""}${
        stage.contribution === null
          ? ""
          : `. The output has ${stage.contribution.toFixed(2)} times the norm of x`
      }
    </p>
    <p class="pg-note trace-code">
      <span class="pg-sub">${stage.file}:${stage.line}</span><code>${stage.text}</code>
    </p>
    ${
      heads.length > 1 &&
      html`<div class="pg-row row trace-heads">
        head
        <${SegmentedControl}
          label="Head"
          options=${heads}
          value=${String(chosen.head)}
          onChange=${(head) => update({ head: Number(head) })}
        />
      </div>`
    }
    <${Tensor} stage=${stage} chosen=${chosen} />
    ${
      chosen.most_likely &&
      html`<p class="trace-most-likely">
        Largest in each row: <b>${chosen.most_likely.join(" ")}</b>
      </p>`
    }
  </section>`;
}

function Activations({ data }) {
  const onKeyDown = (event) => {
    const offset = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (
      !offset ||
      event.defaultPrevented ||
      event.target.closest("canvas, input, select, textarea")
    )
      return;
    event.preventDefault();
    moveStage(data, offset);
  };
  return html`<div onKeyDown=${onKeyDown}>
    <div class="pg-columns trace-columns">
      <${StageList} data=${data} />
      <${Stage} data=${data} />
    </div>
  </div>`;
}

export const activationsSpec = {
  subView: "numbers",
  title: "Activations",
  explain:
    "All tensors of the forward pass in order of computation, with the target as decoder input. " +
    "The left and right arrow keys change the step. Positions count from 1, dimensions from 0.",
  Component: Activations,
  options: () => options.value,
  restoreOptions: restore,
};
