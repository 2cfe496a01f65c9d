"""The Train tab: a form, its buttons, and the live view of the open model.

Buttons without form values use the JSON routes instead of Gradio's queue
(static/train/controls.js), so Pause works while other visitors load the page.
"""

import html
import json
from collections.abc import Callable
from typing import Any

import gradio as gr

from playground.architectures import ARCHITECTURES
from playground.common.devices import ZERO_GPU, is_zero_gpu
from playground.common.validation import parse
from playground.datasets.pairs import SHA256_PATTERN
from playground.errors import UserError
from playground.jobs.addresses import CLIENT_ADDRESS
from playground.runs.model_ref import (
    CHECKPOINT_PREFIX,
    RUN_PREFIX,
    ModelRef,
    resolve_run,
)
from playground.runs.owner_keys import new_owner_key, owner_from_session, session_value
from playground.runs.registry import Registry
from playground.tasks import LOOKUP, TASKS
from playground.training.config import RunConfig
from playground.training.presets import PRESETS
from playground.training.setting_changes import SettingChange

from .form_values import (
    architecture_values,
    estimate_and_validate,
    form_values,
    parse_settings,
    preset_values,
    run_config,
    suggested_max_length,
    validate_form,
)
from .setting_groups import (
    ADVANCED_SETTINGS,
    FORM_PRESETS,
    PRESET_SETTINGS,
    is_used_by_architecture,
)
from .task_info import task_description_html
from .training_form import build_form
from .views import live_view

FIRST_CHECKPOINT = "reverse"
SILENT_EVENT: dict[str, Any] = {
    "show_progress": "hidden",
    "concurrency_limit": None,
    "api_visibility": "private",
}
DISPATCH_COMMAND_JS = (
    "() => document.querySelector('#live .live').dispatchEvent(new "
    "CustomEvent('command', {{ detail: '{}' }}))"
)
MAX_ZEROGPU_EVENTS = 8  # concurrent slices; ZeroGPU queues further ones itself
# The speed selected in the live view applies to a new run from its first step.
FORM_WITH_SPEED_JS = (
    "(visit, speed, ...form) => [visit, document.querySelector('#live "
    ".speed')?.value ?? '0', ...form]"
)


def build_train_tab(
    registry: Registry,
    browser_state: gr.BrowserState,
    resolve_client_address: Callable[[Any], str],
) -> tuple[list[Any], Callable[..., Any]]:
    """Build the tab.

    `resolve_client_address` returns the client address of a request.

    Returns the components that `on_load` fills when a page loads, and `on_load`.
    """
    with gr.Row(elem_id="train-page"):
        with gr.Column(elem_id="buttons", min_width=200):
            with gr.Row():
                train = gr.Button("Train", variant="primary", elem_id="train", size="md")
                pause = gr.Button("Pause", variant="primary", elem_id="pause", size="md")
                resume = gr.Button("Resume", variant="primary", elem_id="resume", size="md")
                step = gr.Button("Step", elem_id="step", size="md")
                stop = gr.Button("Stop", elem_id="stop", size="md")
            train_another = gr.Button(
                "Start a parallel run", elem_id="another", size="sm", variant="secondary"
            )
            problem = gr.HTML("", elem_id="problem", padding=False)
        with gr.Column(elem_id="form", min_width=200):
            form, task_info, panel = build_form()
            size = gr.HTML(
                estimate_and_validate({name: component.value for name, component in form.items()})[
                    0
                ],
                elem_id="size",
                padding=False,
            )
        with gr.Column(elem_id="view", min_width=280):
            live = live_view()
    speed = gr.Textbox("0", visible=False)

    names, components = list(form), list(form.values())

    def form_dict(values: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(names, values, strict=True))

    def on_start(
        request: gr.Request, session_json: Any, speed: Any, *values: Any
    ) -> tuple[Any, Any, Any]:
        # Gradio's queue runs this outside the request
        CLIENT_ADDRESS.set(resolve_client_address(request))
        owner = registry.single_owner or owner_from_session(session_json) or new_owner_key()
        try:
            speed_change = SettingChange(0, "speed", float(speed))
            run = registry.start(
                run_config(form_dict(values)),
                owner,
                changes=[speed_change] if speed_change.value else [],
            )
        except (UserError, TypeError, ValueError) as error:
            return gr.skip(), gr.skip(), f"Not started: {html.escape(str(error))}."
        return session_value(owner), live_view_value(owner, RUN_PREFIX + run.id), ""

    def validate(session_json: Any, speed: Any, *values: Any) -> list[Any]:
        errors = validate_form(names, values, registry.settings.limits)
        valid = gr.validate(True, "")
        return [
            valid,
            valid,
            *(gr.validate(name not in errors, errors.get(name, "")) for name in names),
        ]

    def form_updates(config: RunConfig) -> list[Any]:
        """Return the form values of a run, and its preset, if any."""
        fields = form_values(config) | config.to_flat()
        if fields["device"] == ZERO_GPU and not is_zero_gpu():
            fields["device"] = "auto"
        preset = next(
            (name for name in FORM_PRESETS if preset_values(name).items() <= fields.items()), None
        )
        preset_update = gr.Radio(
            value=preset,
            info=PRESETS[preset].description if preset else "Settings of a run or a link.",
        )
        return [preset_update if name == "preset" else fields[name] for name in names]

    def on_load(owner: str, request: gr.Request) -> list[Any]:
        query = dict(request.query_params) if request else {}
        error_message, fields = "", [gr.skip() for _ in names]
        if "settings" in query:
            try:
                fields = form_updates(parse_settings(query["settings"]))
            except ValueError as error:
                error_message = (
                    f"The form ignores the settings of this link: {html.escape(str(error))}."
                )
        return [live_view_value(owner), error_message, *fields]

    def load_settings_into_form(event: gr.SelectData) -> list[Any]:
        """Fill the form with the settings that the live view sends."""
        try:
            return form_updates(parse_settings(json.dumps(event.value)))
        except ValueError:
            return [gr.skip() for _ in names]

    def run_next_slice(event: gr.EventData) -> None:
        """Train a slice of the open run with the GPU of this event.

        Returns at the end of the slice.
        """
        run, is_owner = resolve_run(registry, parse(ModelRef, event._data))
        if run and is_owner:
            registry.supervisor.run_slice(run)

    def on_preset_change(preset: str) -> list[Any]:
        values = preset_values(preset)
        return [
            gr.Radio(info=PRESETS[preset].description),
            *(values[name] for name in PRESET_SETTINGS),
        ]

    def on_architecture_change(family: str) -> list[Any]:
        values = architecture_values(family)
        preset = next((name for name in FORM_PRESETS if preset_values(name) == values), None)
        info = (
            PRESETS[preset].description if preset else "The default settings of this architecture."
        )
        return [
            gr.Radio(value=preset, info=info),
            *(values[name] for name in PRESET_SETTINGS if name != "architecture"),
        ]

    def architecture_updates(family: str) -> list[Any]:
        """Return the description of an architecture, and show its settings."""
        return [
            gr.Dropdown(info=ARCHITECTURES[family].description),
            *(
                gr.update(visible=is_used_by_architecture(name, family))
                for name in ADVANCED_SETTINGS["Model"]
            ),
        ]

    def on_task_change(session_json: Any, task: Any, rows: Any) -> list[Any]:
        """Return the description of the task; show the dataset panel for user data."""
        panel_json = panel_state(registry.single_owner or owner_from_session(session_json), rows)
        symbols = type(form["n_symbols"])(
            visible=task in TASKS and TASKS[task].n_symbols_range is not None
        )
        return [
            task_description_html(task),
            gr.HTML(value=panel_json, visible=True if task == LOOKUP else "hidden"),
            symbols,
        ]

    def on_task_input(task: Any, min_length: Any, max_length: Any) -> Any:
        length = suggested_max_length(task, min_length, max_length)
        return gr.skip() if length is None else length

    def apply_dataset(event: gr.SelectData) -> list[Any]:
        """Fill the form with the dataset that the panel sends."""
        dataset = event.value if isinstance(event.value, dict) else {}
        min_length, max_length, rows = (
            dataset.get("min_length"),
            dataset.get("max_length"),
            dataset.get("rows"),
        )
        if type(min_length) is not int or type(max_length) is not int or not isinstance(rows, str):
            return [gr.skip()] * 4
        return [LOOKUP, rows, min_length, max_length]

    def update_estimate(*values: Any) -> tuple[str, str]:
        return estimate_and_validate(form_dict(values), registry.settings.limits)

    for button in (train, train_another):
        button.click(
            on_start,
            [browser_state, speed, *components],
            [browser_state, live, problem],
            validator=validate,
            js=FORM_WITH_SPEED_JS,
            **SILENT_EVENT,
        )
    for button, command in ((pause, "pause"), (resume, "resume"), (step, "step"), (stop, "stop")):
        button.click(None, None, None, js=DISPATCH_COMMAND_JS.format(command))
    if registry.supervisor.slice_runner is not None:
        live.submit(
            run_next_slice, None, None, **SILENT_EVENT | {"concurrency_limit": MAX_ZEROGPU_EVENTS}
        )
    fill_events = [
        live.select(load_settings_into_form, None, components, **SILENT_EVENT),
        panel.select(
            apply_dataset,
            None,
            [form["task"], form["dataset_sha256"], form["min_length"], form["max_length"]],
            **SILENT_EVENT,
        ),
    ]
    lengths = [form["task"], form["min_length"], form["max_length"]]
    fill_events.append(
        form["task"].input(on_task_input, lengths, [form["max_length"]], **SILENT_EVENT)
    )
    gr.on(
        [form["task"].change, form["dataset_sha256"].change],
        on_task_change,
        [browser_state, form["task"], form["dataset_sha256"]],
        [task_info, panel, form["n_symbols"]],
        trigger_mode="always_last",
        **SILENT_EVENT,
    )
    preset_outputs = [form["preset"], *(form[name] for name in PRESET_SETTINGS)]
    fill_events.append(
        form["preset"].input(on_preset_change, [form["preset"]], preset_outputs, **SILENT_EVENT)
    )
    architecture_outputs = [
        form["preset"],
        *(form[name] for name in PRESET_SETTINGS if name != "architecture"),
    ]
    fill_events.append(
        form["architecture"].input(
            on_architecture_change, [form["architecture"]], architecture_outputs, **SILENT_EVENT
        )
    )
    form["architecture"].change(
        architecture_updates,
        [form["architecture"]],
        [form["architecture"], *(form[name] for name in ADVANCED_SETTINGS["Model"])],
        **SILENT_EVENT,
    )
    # so that responses arrive in the order of the requests
    sequential_event = SILENT_EVENT | {"concurrency_limit": 1}
    gr.on(
        [c.change for c in components],
        update_estimate,
        components,
        [size, problem],
        trigger_mode="always_last",
        **sequential_event,
    )
    # Many fields change at once; the estimate runs after the last change.
    for fill_event in fill_events:
        fill_event.then(update_estimate, components, [size, problem], **sequential_event)
    return [live, problem, *components], on_load


def live_view_value(owner: str, new_run: str = "") -> str:
    """Return the value of the live view: owner key, a new run to open, and the default model.

    The address of the page and the browser store the model that was open last.
    """
    return json.dumps(
        {"owner": owner, "subject": new_run, "first": CHECKPOINT_PREFIX + FIRST_CHECKPOINT}
    )


def panel_state(owner: str, content: Any) -> str:
    return json.dumps(
        {
            "owner": owner,
            "rows": content
            if isinstance(content, str) and SHA256_PATTERN.fullmatch(content)
            else "",
        }
    )
