"""The Train tab: a form, its buttons, and the live view of the open model.

Buttons without form values use the JSON routes instead of Gradio's queue
(static/train/runs.js), so Pause works while other users load the page.
"""

import html
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import gradio as gr

from playground.architectures import ARCHITECTURES
from playground.datasets.pairs import SHA256_PATTERN
from playground.errors import UserError
from playground.jobs.addresses import CLIENT_ADDRESS
from playground.runs.access import CHECKPOINT_PREFIX, RUN_PREFIX, owns_dataset
from playground.runs.owner_keys import new_owner_key, owner_from_session
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
from .mount import build_view
from .setting_groups import (
    ADVANCED_SETTINGS,
    FORM_PRESETS,
    PRESET_SETTINGS,
    is_used_by_architecture,
)
from .task_info import task_description_html
from .training_form import build_form, preset_choices

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
# The speed selected in the live view applies to a new run from its first step.
FORM_WITH_SPEED_JS = (
    "(live, speed, ...form) => [live, document.querySelector('#live "
    ".speed')?.value ?? '0', ...form]"
)


class TrainTab:
    """The components of the tab, and the handlers of their events.

    `resolve_client_address` returns the client address of a request. `outputs` are the components
    that `on_load` fills when a page loads.
    """

    def __init__(
        self,
        registry: Registry,
        resolve_client_address: Callable[[Any], str],
    ) -> None:
        self.registry = registry
        self.resolve_client_address = resolve_client_address
        self.build()
        self.speed = gr.Textbox("0", visible=False)
        self.names, self.components = list(self.form), list(self.form.values())
        self.outputs = [self.live, self.problem, *self.components]
        self.connect_buttons()
        self.connect_task()
        self.connect_estimate(self.connect_fill_events())

    def build(self) -> None:
        with gr.Row(elem_id="train-page"):
            with gr.Column(elem_id="buttons", min_width=200):
                with gr.Row():
                    self.train = gr.Button("Train", variant="primary", elem_id="train", size="md")
                    self.pause = gr.Button("Pause", variant="primary", elem_id="pause", size="md")
                    self.resume = gr.Button(
                        "Resume", variant="primary", elem_id="resume", size="md"
                    )
                    self.step = gr.Button("Step", elem_id="step", size="md")
                    self.stop = gr.Button("Stop", elem_id="stop", size="md")
                # One of the two is visible, so that the form does not move when a run starts.
                self.train_another = gr.Button(
                    "Train another run", elem_id="another", size="sm", variant="secondary"
                )
                self.size = gr.HTML("", elem_id="size", padding=False)
                self.problem = gr.HTML("", elem_id="problem", padding=False)
                gr.HTML('<a href="#form">Task and settings</a>', elem_id="to-form", padding=False)
            with gr.Column(elem_id="form", min_width=200):
                self.form, self.task_info, self.panel, self.reset, self.presets = build_form()
            values = {name: component.value for name, component in self.form.items()}
            self.size.value = estimate_and_validate(values)[0]
            with gr.Column(elem_id="view", min_width=280):
                self.live = build_view("live", "train/main.js")

    def form_dict(self, values: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(self.names, values, strict=True))

    def owner_key(self, live_json: Any) -> str:
        """Return the owner key of a page, or an empty string."""
        return self.registry.single_owner or owner_from_session(live_json)

    def owns_dataset(self, live_json: Any) -> Callable[[str], bool]:
        return partial(owns_dataset, self.registry, self.owner_key(live_json))

    def on_start(
        self, request: gr.Request, live_json: Any, speed: Any, *values: Any
    ) -> tuple[Any, Any]:
        # Gradio's queue runs this outside the context of the request.
        CLIENT_ADDRESS.set(self.resolve_client_address(request))
        owner = self.owner_key(live_json) or new_owner_key()
        try:
            speed_change = SettingChange(0, "speed", float(speed))
            run = self.registry.start(
                run_config(self.form_dict(values), self.owns_dataset(live_json)),
                owner,
                changes=[speed_change] if speed_change.value else [],
            )
        except (UserError, TypeError, ValueError) as error:
            return gr.skip(), f"Not started: {html.escape(str(error))}."
        return live_view_value(owner, RUN_PREFIX + run.id), ""

    def validate(self, live_json: Any, speed: Any, *values: Any) -> list[Any]:
        errors = validate_form(
            self.names, values, self.registry.settings.limits, self.owns_dataset(live_json)
        )
        valid = gr.validate(True, "")
        return [
            valid,
            valid,
            *(gr.validate(name not in errors, errors.get(name, "")) for name in self.names),
        ]

    def form_updates(self, config: RunConfig) -> list[Any]:
        """Return the form values of a run, and its preset, if any."""
        fields = form_values(config) | config.to_flat()
        preset = next(
            (name for name in FORM_PRESETS if preset_values(name).items() <= fields.items()), None
        )
        fields["preset"] = preset_update(preset, "Settings of a run or a link.")
        return [fields[name] for name in self.names]

    def on_load(self, owner: str, request: gr.Request) -> list[Any]:
        query = dict(request.query_params) if request else {}
        error_message, fields = "", [gr.skip() for _ in self.names]
        if "settings" in query:
            try:
                fields = self.form_updates(parse_settings(query["settings"]))
            except ValueError as error:
                error_message = (
                    f"The form ignores the settings of this link: {html.escape(str(error))}."
                )
        return [live_view_value(owner), error_message, *fields]

    def load_settings_into_form(self, event: gr.SelectData) -> list[Any]:
        """Fill the form with the settings that the live view sends."""
        try:
            return self.form_updates(parse_settings(json.dumps(event.value)))
        except ValueError:
            return [gr.skip() for _ in self.names]

    def on_task_change(self, live_json: Any, task: Any, dataset_sha256: Any) -> list[Any]:
        """Return the description of the task; show the dataset panel for user data."""
        panel_json = panel_state(self.owner_key(live_json), dataset_sha256)
        symbols = type(self.form["n_symbols"])(
            visible=task in TASKS and TASKS[task].n_symbols_range is not None
        )
        return [
            task_description_html(task),
            gr.HTML(value=panel_json, visible=True if task == LOOKUP else "hidden"),
            symbols,
        ]

    def connect_buttons(self) -> None:
        inputs = [self.live, self.speed, *self.components]
        for button in (self.train, self.train_another):
            button.click(
                self.on_start,
                inputs,
                [self.live, self.problem],
                validator=self.validate,
                js=FORM_WITH_SPEED_JS,
                **SILENT_EVENT,
            )
        for command in ("pause", "resume", "step", "stop"):
            getattr(self, command).click(None, None, None, js=DISPATCH_COMMAND_JS.format(command))

    def connect_task(self) -> None:
        task, dataset = self.form["task"], self.form["dataset_sha256"]
        gr.on(
            [task.change, dataset.change],
            self.on_task_change,
            [self.live, task, dataset],
            [self.task_info, self.panel, self.form["n_symbols"]],
            trigger_mode="always_last",
            **SILENT_EVENT,
        )

    def connect_fill_events(self) -> list[Any]:
        """Connect the events that fill many fields at once, and return them."""
        form = self.form
        source = [form[name] for name in ("min_length", "max_length", "dataset_sha256")]
        settings = [form[name] for name in PRESET_SETTINGS]
        without_architecture = [form[name] for name in PRESET_SETTINGS if name != "architecture"]
        form["architecture"].change(
            architecture_updates,
            [form["architecture"]],
            [form["architecture"], *(form[name] for name in ADVANCED_SETTINGS["Model"])],
            **SILENT_EVENT,
        )
        return [
            self.live.select(self.load_settings_into_form, None, self.components, **SILENT_EVENT),
            self.panel.select(
                apply_dataset,
                None,
                [form["task"], form["dataset_sha256"], form["min_length"], form["max_length"]],
                **SILENT_EVENT,
            ),
            form["task"].input(on_task_input, [form["task"], *source], source, **SILENT_EVENT),
            form["preset"].input(
                on_preset_change, [form["preset"]], [form["preset"], *settings], **SILENT_EVENT
            ),
            *(
                button.click(
                    partial(on_preset_change, name),
                    None,
                    [form["preset"], *settings],
                    **SILENT_EVENT,
                )
                for name, button in self.presets.items()
            ),
            form["architecture"].input(
                on_architecture_change,
                [form["architecture"]],
                [form["preset"], *without_architecture],
                **SILENT_EVENT,
            ),
            self.reset.click(
                reset_settings,
                [form["preset"], form["architecture"]],
                without_architecture,
                **SILENT_EVENT,
            ),
        ]

    def connect_estimate(self, fill_events: list[Any]) -> None:
        inputs, outputs = [self.live, *self.components], [self.size, self.problem, self.reset]
        # One at a time, so that responses arrive in the order of the requests.
        sequential_event = SILENT_EVENT | {"concurrency_limit": 1}
        gr.on(
            [component.change for component in self.components],
            self.update_estimate,
            inputs,
            outputs,
            trigger_mode="always_last",
            **sequential_event,
        )
        # Many fields change at once; the estimate runs after the last change.
        for fill_event in fill_events:
            fill_event.then(self.update_estimate, inputs, outputs, **sequential_event)

    def update_estimate(self, live_json: Any, *values: Any) -> tuple[str, str, Any]:
        """Return the size of the model, the error of the form, and the state of Reset."""
        form_dict = self.form_dict(values)
        size, error = estimate_and_validate(
            form_dict, self.registry.settings.limits, self.owns_dataset(live_json)
        )
        changed = changed_settings(form_dict)
        return size + mark_fields(changed), error, reset_update(changed)


def preset_update(preset: str | None, info: str = "") -> Any:
    """Return the update of the preset; without a preset, `info` describes the settings."""
    info = PRESETS[preset].description if preset else info
    return gr.Radio(choices=preset_choices(preset), value=preset, info=info)


def on_preset_change(preset: str) -> list[Any]:
    values = preset_values(preset)
    return [preset_update(preset), *(values[name] for name in PRESET_SETTINGS)]


def on_architecture_change(architecture: str) -> list[Any]:
    values = architecture_values(architecture)
    preset = next((name for name in FORM_PRESETS if preset_values(name) == values), None)
    return [
        preset_update(preset, "The default settings of this architecture."),
        *(values[name] for name in PRESET_SETTINGS if name != "architecture"),
    ]


def architecture_updates(architecture: str) -> list[Any]:
    """Return the description of an architecture, and show its settings."""
    return [
        gr.Dropdown(info=ARCHITECTURES[architecture].description),
        *(
            gr.update(visible=is_used_by_architecture(name, architecture))
            for name in ADVANCED_SETTINGS["Model"]
        ),
    ]


def on_task_input(task: Any, min_length: Any, max_length: Any, dataset_sha256: Any) -> list[Any]:
    """Return the lengths and the dataset of a newly selected task."""
    if task in TASKS and dataset_sha256:  # the lengths are those of the dataset
        return [1, TASKS[task].default_max_length, ""]
    length = suggested_max_length(task, min_length, max_length)
    return [gr.skip(), gr.skip() if length is None else length, gr.skip()]


def apply_dataset(event: gr.SelectData) -> list[Any]:
    """Fill the form with the dataset that the panel sends."""
    dataset = event.value if isinstance(event.value, dict) else {}
    min_length = dataset.get("min_length")
    max_length = dataset.get("max_length")
    sha256 = dataset.get("sha256")
    if type(min_length) is not int or type(max_length) is not int or not isinstance(sha256, str):
        return [gr.skip()] * 4
    return [LOOKUP, sha256, min_length, max_length]


def expected_values(preset: Any, architecture: Any) -> dict[str, Any]:
    """Return the values of a preset, or without one the defaults of an architecture."""
    if preset in FORM_PRESETS:
        return preset_values(preset)
    return architecture_values(architecture if architecture in ARCHITECTURES else "transformer")


def changed_settings(values: dict[str, Any]) -> list[str]:
    """Return the settings of the form that differ from the preset."""
    architecture = values["architecture"]
    expected = expected_values(values["preset"], architecture)
    return [
        name
        for name in PRESET_SETTINGS
        if name != "architecture"
        and architecture in ARCHITECTURES
        and is_used_by_architecture(name, architecture)
        and values[name] != expected[name]
    ]


def mark_fields(names: list[str]) -> str:
    """Return a style element that marks the fields of settings."""
    if not names:
        return ""
    fields = ", ".join(f"#field-{name}" for name in names)
    return f"<style>{fields} {{ box-shadow: -8px 0 0 -5px var(--pg-accent); }}</style>"


def reset_update(names: list[str]) -> Any:
    """Return the button that resets these settings; it is hidden without changes."""
    noun = "setting" if len(names) == 1 else "settings"
    return gr.Button(f"Reset {len(names)} changed {noun}", visible=bool(names))


def reset_settings(preset: Any, architecture: Any) -> list[Any]:
    """Return the values of the preset for all settings but the architecture."""
    values = expected_values(preset, architecture)
    return [values[name] for name in PRESET_SETTINGS if name != "architecture"]


def live_view_value(owner: str, new_run: str = "") -> str:
    """Return the value of the live view: owner key, a new run to open, and the default model.

    The address of the page and the browser store the model that was open last.
    """
    return json.dumps(
        {"owner": owner, "subject": new_run, "first": CHECKPOINT_PREFIX + FIRST_CHECKPOINT}
    )


def panel_state(owner: str, sha256: Any) -> str:
    return json.dumps(
        {
            "owner": owner,
            "sha256": sha256
            if isinstance(sha256, str) and SHA256_PATTERN.fullmatch(sha256)
            else "",
        }
    )
