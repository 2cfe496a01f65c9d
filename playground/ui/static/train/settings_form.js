// The form of a run, and the buttons above it.
import { Button } from "../shared/components/buttons.js";
import { Field } from "../shared/components/form.js";
import { store } from "../shared/store.js";
import { loadStylesheet } from "../shared/view.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { sendCommand } from "./data/actions.js";
import {
  changedSettings,
  form,
  isUsed,
  resetSettings,
  schema,
  setValue,
  startRun,
} from "./settings.js";
import { state } from "./state.js";
import { buttonStatus } from "./top_bar.js";

/** @import { Option } from "../shared/types.js" */

const BUSY_STATUSES = ["training", "starting", "stopping", "paused"];

/** Each button: its id, its label, and the statuses that show it. */
const COMMANDS = /** @type {[string, string, string[]][]} */ ([
  ["pause", "Pause", ["training", "starting", "stopping"]],
  ["resume", "Resume", ["paused"]],
  ["step", "Step", ["paused"]],
  ["stop", "Stop", ["paused", "training", "waiting", "stopping"]],
]);

/** One of Train, Pause and Resume is visible; the focus follows it. */
function RunButtons() {
  const row = useRef(/** @type {HTMLElement | null} */ (null)),
    status = buttonStatus();
  useLayoutEffect(() => {
    if (
      row.current?.contains(document.activeElement) &&
      document.activeElement?.matches("[hidden]")
    )
      /** @type {HTMLElement | null} */ (
        row.current.querySelector(".primary:not([hidden])")
      )?.focus();
  }, [status]);
  return html`<div class="row" ref=${row}>
    <${Button}
      id="train"
      class=${state.isTrainInviting ? "primary invites" : "primary"}
      hidden=${BUSY_STATUSES.includes(status)}
      onClick=${startRun}
    >
      Train
    <//>
    ${COMMANDS.map(
      ([id, label, statuses]) =>
        html`<${Button}
          key=${id}
          id=${id}
          class=${id === "pause" || id === "resume" ? "primary" : ""}
          hidden=${!statuses.includes(status)}
          onClick=${() => sendCommand(id)}
        >
          ${label}
        <//>`,
    )}
  </div>`;
}

/** One of the button, the size and the error stands above the form, which does not move. */
export function Buttons() {
  const isBusy = BUSY_STATUSES.includes(buttonStatus()),
    problem = form.message || Object.values(form.errors)[0] || "";
  return html`<div id="buttons" class="pg">
    <${RunButtons} />
    <${Button} id="another" hidden=${!isBusy} onClick=${startRun}>Train another run<//>
    <p id="size" class="pg-quiet" hidden=${isBusy || problem}>${form.size}</p>
    <p id="form-notice" class="pg-note" role="status" hidden=${!form.notice}>${form.notice}</p>
    <p id="problem" class="pg-error" role="alert" hidden=${!problem}>${problem}</p>
    <${Button} id="to-form" class="of-sheet" popovertarget="form">Task and settings<//>
  </div>`;
}

/** Return whether the server has another device than the CPU; it reports this after its start. */
const hasGpu = () => !/^(Training on cpu(?!.* mps )|$)/.test(store.server.value.device);

/** The form offers no device without a choice, unless a link selects it. */
const isOffered = (/** @type {string} */ name) =>
  isUsed(name) && (name !== "device" || hasGpu() || ["cuda", "mps"].includes(form.values.device));

/** What an option does, by the name of the field. */
const HINTS = /** @type {Record<string, (value: string) => string>} */ ({
  architecture: (name) => schema.architectures[name].description,
  preset: (name) => schema.presets[name]?.description ?? form.presetHint,
});

/** What the form changes in the options of a field, by its name. */
const OPTIONS = /** @type {Record<string, (options: Option[]) => Option[]>} */ ({
  // An advanced preset is offered only while it is selected.
  preset: (options) =>
    options.filter(
      ({ value }) => value === form.values.preset || !schema.advanced_presets.includes(value),
    ),
  // A gallery: the user's own data, then each task with its example.
  task: ([...options]) =>
    [/** @type {Option} */ (options.pop()), ...options].map((option) => ({
      ...option,
      example: schema.tasks[option.value]?.example,
    })),
});

/**
 * A setting. A number keeps the text that the user types, unless its value changes otherwise.
 * @param {{ name: string }} props
 */
function Setting({ name }) {
  const field = schema.fields[name],
    value = form.values[name],
    // The first choices need no words.
    hint = (value !== schema.defaults[name] && HINTS[name]?.(value)) || field.hint,
    options = OPTIONS[name]?.(field.options) ?? field.options,
    isNumber = field.type === "number",
    empty = field.placeholder ? 0 : null, // the value that a word stands for
    parse = (/** @type {string} */ entered) => (entered === "" ? empty : Number(entered)),
    [text, setText] = useState("");
  return html`<div
    id=${"field-" + name}
    class=${changedSettings().includes(name) ? "changed" : undefined}
    hidden=${!isOffered(name)}
  >
    <${Field}
      field=${{ ...field, hint, options }}
      value=${isNumber && parse(text) === value ? text : value}
      error=${form.errors[name]}
      onInput=${(entered) => {
        if (isNumber) setText(entered);
        setValue(name, isNumber ? parse(entered) : entered);
      }}
    />
  </div>`;
}

function AboutTask() {
  const task = schema.tasks[form.values.task];
  if (!task) return null;
  const { description, example, lengths, difficulty, conditions } = task;
  return html`<div id="about-task" class="pg-quiet" title=${`${difficulty} ${conditions}`.trim()}>
    <p>${description}</p>
    <p class="example">${example}</p>
    ${lengths && html`<p>${lengths}</p>`}
  </div>`;
}

const loadPanel = () => import("./dataset_panel.js");
const PANEL_STYLES = new URL("./dataset_panel.css", import.meta.url);

/** The panel for the user's own data, whose module most visits do not need. */
function OwnData() {
  const [Panel, setPanel] = useState(/** @type {any} */ (null));
  useEffect(() => {
    Promise.all([loadPanel(), loadStylesheet(PANEL_STYLES)]).then(([{ DatasetPanel }]) =>
      setPanel(() => DatasetPanel),
    );
  }, []);
  return html`<div class="pg-card dataset-panel">${Panel && html`<${Panel} />`}</div>`;
}

/** Return the settings whose name, label or help contains all words. @param {string} text */
function findSettings(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return Object.values(schema.fields)
    .filter(({ name, label, hint }) => {
      const content = `${name} ${label} ${hint}`.toLowerCase();
      return words.every((word) => content.includes(word));
    })
    .map(({ name }) => name);
}

/** @param {string} preset @returns {string} */
const labelOf = (preset) =>
  schema.fields.preset.options.find((/** @type {any} */ { value }) => value === preset).label;

/** @param {{ search: string, onSearch: (text: string) => void, hasMatch: boolean }} props */
function SettingsBar({ search, onSearch, hasMatch }) {
  const { length } = changedSettings();
  return html`<div id="settings-bar" class="pg-row">
    <input
      id="settings-search"
      type="text"
      placeholder="Search settings"
      aria-label="Search settings"
      value=${search}
      onInput=${(event) => onSearch(event.currentTarget.value)}
    />
    ${schema.advanced_presets.map(
      (/** @type {string} */ name) =>
        html`<${Button} key=${name} onClick=${() => setValue("preset", name)}>
          ${"Preset " + labelOf(name)}
        <//>`,
    )}
    <${Button} id="settings-reset" hidden=${!length} onClick=${resetSettings}>
      Reset ${length} changed ${length === 1 ? "setting" : "settings"}
    <//>
    <span role="status">${hasMatch ? "" : "No setting matches."}</span>
  </div>`;
}

/** The other settings: a panel on a wide page. Escape closes it. */
function Advanced() {
  const box = useRef(/** @type {HTMLDetailsElement | null} */ (null)),
    [search, setSearch] = useState(""),
    matching = findSettings(search).filter(isOffered),
    groups = /** @type {[string, string[]][]} */ (Object.entries(schema.groups)).map(
      ([title, names]) => ({
        title,
        names,
        matches: names.filter((each) => matching.includes(each)),
      }),
    );
  useEffect(() => {
    const onKeyDown = (/** @type {KeyboardEvent} */ { key }) => {
      if (key !== "Escape" || !box.current?.open) return;
      box.current.open = false;
      box.current.querySelector("summary")?.focus();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
  return html`<details id="advanced" ref=${box}>
    <summary>Advanced settings</summary>
    <div class="settings">
      <${SettingsBar}
        search=${search}
        onSearch=${setSearch}
        hasMatch=${groups.some(({ matches }) => matches.length)}
      />
      <p class="device pg-hint">${store.server.value.device}</p>
      ${groups.map(
        ({ title, names, matches }) =>
          html`<details class="group" key=${title} open hidden=${!matches.length}>
            <summary>${title}</summary>
            <div class="fields">
              ${names.map(
                (name) =>
                  html`<div key=${name} hidden=${!matches.includes(name)}>
                    <${Setting} name=${name} />
                  </div>`,
              )}
            </div>
          </details>`,
      )}
    </div>
  </details>`;
}

export const SettingsForm = () =>
  html`<div id="form" class="pg" popover>
    <${Setting} name="task" /><${AboutTask} />
    ${form.values.task === "dataset" && html`<${OwnData} />`}
    <div class="pair"><${Setting} name="min_length" /><${Setting} name="max_length" /></div>
    <${Setting} name="architecture" /><${Setting} name="preset" /><${Setting} name="device" />
    <${Advanced} />
    <${Button} class="of-sheet" popovertarget="form">Close<//>
  </div>`;
