// The diagram of one generation step: source tokens above, generated tokens below, and arcs from
// the next token to the tokens that it attends to.
import { html } from "../vendor/preact.js";
import { formatPercent, formatToken } from "../shared/format.js";
import { pageWidth } from "./state.js";
import { describeWeights, linkStyle } from "./token_links.js";

const MIN_CELL = 24, // with which 12 tokens fit a phone
  MAX_CELL = 104,
  MIN_NOTE_CELL = 50, // for a probability below each token
  SOURCE_Y = 34,
  OUTPUT_Y = 200,
  BOX = 54, // height of a token
  HEIGHT = 345;

/**
 * Return the width of a token, and the centers of the tokens of both rows.
 * @param {number} nSource
 * @param {number} nOutput without SOS
 * @param {number} available width
 */
export function layoutTokens(nSource, nOutput, available) {
  const longest = Math.max(nSource, nOutput + 1),
    cell = Math.max(MIN_CELL, Math.min(MAX_CELL, Math.floor(available / longest))),
    width = cell * longest;
  const center = (n) => (i) => width / 2 + (i + 0.5 - n / 2) * cell;
  return { cell, width, source: center(nSource), output: center(nOutput + 1) };
}

function Token({ x, y, cell, name, kind = "", weight = 0, color = "", note = "", onClick }) {
  const text = formatToken(name),
    fontSize = Math.min(32, (1.5 * (cell - 8)) / Math.max(1, text.length));
  return html`<g class=${"token " + kind} onClick=${onClick}>
    <rect
      x=${x - cell / 2 + 3}
      y=${y - BOX / 2}
      width=${cell - 6}
      height=${BOX}
      rx="6"
      style=${{ fill: color, fillOpacity: 0.5 * weight }}
    />
    <rect
      class="frame"
      x=${x - cell / 2 + 3}
      y=${y - BOX / 2}
      width=${cell - 6}
      height=${BOX}
      rx="6"
    />
    <text x=${x} y=${y + 1} style=${{ fontSize }}>${text}</text>
    ${note && html`<text class="note" x=${x} y=${y + BOX / 2 + 14}>${note}</text>`}
  </g>`;
}

/** The arcs from the next token up to the source, and below to the decoder input. */
function Arcs({ layout, at, cross, decoder }) {
  const from = layout.output(at + 1),
    top = SOURCE_Y + BOX / 2,
    bottom = OUTPUT_Y - BOX / 2,
    middle = (top + bottom) / 2,
    below = OUTPUT_Y + BOX / 2 + 22;
  const arc = (key, d, weight, color) =>
    html`<path key=${key} d=${d} style=${linkStyle(weight, color)} />`;
  return [
    cross.map((weight, i) => {
      const to = layout.source(i),
        d = `M${from} ${bottom}C${from} ${middle} ${to} ${middle} ${to} ${top}`;
      return arc("cross" + i, d, weight, "var(--pg-cross)");
    }),
    decoder.map((weight, i) => {
      // The query of the next token is the latest token, so the arcs start there.
      const start = layout.output(at),
        to = layout.output(i),
        low = below + (i === at ? 26 : Math.min(90, 26 + 0.35 * Math.abs(start - to))),
        [left, right] = i === at ? [start - 14, to + 14] : [start, to],
        d = `M${left} ${below}C${left} ${low} ${right} ${low} ${right} ${below}`;
      return arc("decoder" + i, d, weight, "var(--pg-decoder)");
    }),
  ];
}

function SourceTokens({ source, layout, cross }) {
  return source.map(
    (name, i) =>
      html`<${Token}
        key=${i}
        x=${layout.source(i)}
        y=${SOURCE_Y}
        cell=${layout.cell}
        name=${name}
        weight=${cross[i]}
        color="var(--pg-cross)"
      />`,
  );
}

/**
 * @param {{
 *   data: any,
 *   at: number,
 *   cross: number[],
 *   decoder: number[],
 *   onSelect: (position: number) => void,
 * }} props `cross` and `decoder` are the weights of the step `at`
 */
export function GenerationDiagram({ data, at, cross, decoder, onSelect }) {
  const step = data.steps[at],
    layout = layoutTokens(data.source.length, data.steps.length, pageWidth.value),
    { cell, width } = layout;
  const label =
    `Next token: ${step.token}, probability ${formatPercent(step.probability)}. Attends to ` +
    `${describeWeights(data.source, cross)}.`;
  // Teacher forcing: the decoder input is the target, not the prediction.
  const input = (i) => (i < at + 1 ? step.prefix[i] : "");
  const renderOutput = ({ token, target, probability }, i) => {
    const isWrong = target !== null && target !== token,
      isNext = i === at,
      hasProbability = isNext || cell >= MIN_NOTE_CELL,
      note = (isWrong ? "✗ " : "") + (hasProbability ? formatPercent(probability) : "");
    if (i > at)
      return html`<${Token}
        key=${i}
        x=${layout.output(i + 1)}
        y=${OUTPUT_Y}
        cell=${cell}
        name=""
        kind="later"
        onClick=${() => onSelect(i)}
      />`;
    return html`<${Token}
      key=${i}
      x=${layout.output(i + 1)}
      y=${OUTPUT_Y}
      cell=${cell}
      name=${isNext ? token : input(i + 1)}
      kind=${(isNext ? "next" : "") + (isWrong ? " wrong" : "")}
      weight=${isNext ? 0 : decoder[i + 1]}
      color="var(--pg-decoder)"
      note=${note}
      onClick=${() => onSelect(i)}
    />`;
  };
  return html`<div class="generation-diagram">
    <svg width=${width} height=${HEIGHT} role="img" aria-label=${label}>
      <${Arcs} layout=${layout} at=${at} cross=${cross} decoder=${decoder} />
      <${SourceTokens} source=${data.source} layout=${layout} cross=${cross} />
      <${Token}
        x=${layout.output(0)}
        y=${OUTPUT_Y}
        cell=${cell}
        name=${step.prefix[0]}
        weight=${decoder[0]}
        color="var(--pg-decoder)"
      />
      ${data.steps.map(renderOutput)}
    </svg>
  </div>`;
}
