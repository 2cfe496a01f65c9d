// The diagram of the Train tab, beside the article of Start.
import { html, useMemo, useState } from "../vendor/preact.js";
import { Diagram } from "../shared/diagram/diagram.js";
import { buildStacks, describeHead } from "../shared/diagram/structure.js";

/**
 * @param {{
 *   info: any,
 *   pass: any,
 *   selection: { kind: string, layer: number, head: number },
 *   part: string,
 *   onSelect: (kind: string, layer: number, head: number) => void,
 *   onBlock: (kind: string) => void,
 * }} props `part` is highlighted; `onBlock` receives the kind of a clicked block
 */
export function PictureDiagram({ info, pass, selection, part, onSelect, onBlock }) {
  const [row, setRow] = useState(/** @type {number | null} */ (null)),
    stacks = useMemo(() => buildStacks(info, pass.attention), [info]),
    { kind, layer, head } = selection;
  return html`<div class="diagram" data-part=${part}>
    <${Diagram}
      stacks=${stacks}
      pass=${pass}
      selected=${selection}
      label=${"Attention weights between tokens: " + describeHead(kind, layer, head, false)}
      row=${row}
      onSelect=${onSelect}
      onBlock=${(/** @type {{ kind: string }} */ block) => onBlock(block.kind)}
      onRow=${setRow}
    />
  </div>`;
}
