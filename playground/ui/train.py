"""The Train tab: a form, its buttons, and the live view of whatever model is open. The buttons that hold no form go from the
page's script to the server without Gradio's queue (runs.js): Pause is heard while others load."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from typing import Any

import gradio as gr

from playground.families import FAMILIES
from playground.runs.registry import CLIENT_ADDRESS, Registry
from playground.runs.run import Refused
from playground.tasks import ROWS, TASKS
from playground.training.config import Change, RunConfig
from playground.training.devices import ZERO, on_zero
from playground.training.presets import PRESETS

from .acts import settings_from
from .difficulty import task_in_html
from .form import (
    ADVANCED,
    OF_RECIPE,
    RECIPES,
    build_form,
    family_values,
    heard,
    length_for,
    preset_values,
    problems,
    run_config,
    shown_values,
    weight_and_problem,
)
from .limits import client_of
from .live import live_view
from .rows import panel_value
from .subject import CHECKPOINT, RUN, WATCH, run_on_show
from .visit import known, new_owner, visited

FIRST_CHECKPOINT = "reverse"
QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "concurrency_limit": None,
    "api_visibility": "private",
}
COMMAND = "() => document.querySelector('#live .live').dispatchEvent(new CustomEvent('command', {{ detail: '{}' }}))"
SLICES_AT_ONCE = 8  # visitors whose slices hold an event open; ZeroGPU itself has a line for more
# The speed that is chosen in the live view belongs to a run from its first step on.
WITH_SPEED = "(visit, speed, ...form) => [visit, document.querySelector('#live .speed')?.value ?? '0', ...form]"


def build_train_tab(
    registry: Registry, visit: gr.BrowserState
) -> tuple[list[Any], Callable[..., Any]]:
    """Place the tab. Returns the components that `opening` fills when a page loads, and `opening`."""
    with gr.Row(elem_id="train-page"):
        with gr.Column(elem_id="buttons", min_width=200):
            with gr.Row():
                train = gr.Button("Train", variant="primary", elem_id="train", size="md")
                pause = gr.Button("Pause", variant="primary", elem_id="pause", size="md")
                resume = gr.Button("Resume", variant="primary", elem_id="resume", size="md")
                step = gr.Button("Step", elem_id="step", size="md")
                stop = gr.Button("Stop", elem_id="stop", size="md")
            another = gr.Button(
                "Train another beside it", elem_id="another", size="sm", variant="secondary"
            )
            problem = gr.HTML("", elem_id="problem", padding=False)
        with gr.Column(elem_id="view", min_width=280):
            live = live_view()
        with gr.Column(elem_id="form", min_width=200):
            form, about, panel = build_form()
            size = gr.HTML(
                weight_and_problem({name: component.value for name, component in form.items()})[0],
                elem_id="size",
                padding=False,
            )
    speed = gr.Textbox("0", visible=False)

    names, components = list(form), list(form.values())

    def valued(values: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(names, values, strict=True))

    def start(
        request: gr.Request, visit_value: Any, speed: Any, *values: Any
    ) -> tuple[Any, Any, Any]:
        CLIENT_ADDRESS.set(
            client_of(request.request)
        )  # Gradio's queue runs this outside of the request
        owner = registry.local_owner or known(visit_value) or new_owner()
        try:
            wanted = Change(0, "speed", float(speed))
            run = registry.start(
                run_config(valued(values)), owner, changes=[wanted] if wanted.value else []
            )
        except (Refused, TypeError, ValueError) as error:
            return gr.skip(), gr.skip(), f"Not started: {html.escape(str(error))}."
        return visited(owner), show(owner, RUN + run.id), ""

    def validate(visit_value: Any, speed: Any, *values: Any) -> list[Any]:
        wrong = problems(names, values, registry.limits)
        fine = gr.validate(True, "")
        return [
            fine,
            fine,
            *(gr.validate(name not in wrong, wrong.get(name, "")) for name in names),
        ]

    def filled(config: RunConfig) -> list[Any]:
        """What the form shows of a run, and which recipe it follows, if any."""
        fields = shown_values(config) | config.to_fields()
        if fields["device"] == ZERO and not on_zero():
            fields["device"] = "auto"
        recipe = next(
            (name for name in RECIPES if preset_values(name).items() <= fields.items()), None
        )
        shown = gr.Radio(
            value=recipe,
            info=PRESETS[recipe].sentence if recipe else "Settings of a run or a link.",
        )
        return [shown if name == "preset" else fields[name] for name in names]

    def opening(owner: str, request: gr.Request) -> list[Any]:
        asked = dict(request.query_params) if request else {}
        trouble, fields = "", [gr.skip() for _ in names]
        if "settings" in asked:
            try:
                fields = filled(settings_from(asked["settings"]))
            except ValueError as error:
                trouble = f"The settings of this link were not taken: {html.escape(str(error))}."
        subject = (
            WATCH + asked["watch"]
            if "watch" in asked
            else CHECKPOINT + asked["model"]
            if "model" in asked
            else ""
        )
        return [show(owner, subject), trouble, *fields]

    def copy_settings(event: gr.SelectData) -> list[Any]:
        """Fill the form with the settings that the live view sends when somebody wants to use them."""
        try:
            return filled(settings_from(json.dumps(event.value)))
        except ValueError:
            return [gr.skip() for _ in names]

    def next_slice(event: gr.EventData) -> None:
        """Train a slice of the run on show with the GPU that is lent to whoever's event this is; over when the slice is."""
        run, own = run_on_show(registry, event._data)
        if run and own:
            registry.run_slice(run)

    def recipe_chosen(preset: str) -> list[Any]:
        values = preset_values(preset)
        return [gr.Radio(info=PRESETS[preset].sentence), *(values[name] for name in OF_RECIPE)]

    def family_chosen(family: str) -> list[Any]:
        values = family_values(family)
        recipe = next((name for name in RECIPES if preset_values(name) == values), None)
        info = (
            PRESETS[recipe].sentence
            if recipe
            else "Settings with which this kind of model learns well."
        )
        return [
            gr.Radio(value=recipe, info=info),
            *(values[name] for name in OF_RECIPE if name != "family"),
        ]

    def family_shown(family: str) -> list[Any]:
        """Its sentence, and those settings that it listens to."""
        return [
            gr.Dropdown(info=FAMILIES[family].sentence),
            *(gr.update(visible=heard(name, family)) for name in ADVANCED["Model"]),
        ]

    def task_chosen(visit_value: Any, task: Any, rows: Any) -> list[Any]:
        """What is known of the task, and the panel for rows where the task is made of them."""
        value = panel_value(registry.local_owner or known(visit_value), rows)
        symbols = type(form["symbols"])(visible=task in TASKS and TASKS[task].symbols is not None)
        return [
            task_in_html(task),
            gr.HTML(value=value, visible=True if task == ROWS else "hidden"),
            symbols,
        ]

    def task_length(task: Any, low: Any, high: Any) -> Any:
        length = length_for(task, low, high)
        return gr.skip() if length is None else length

    def use_rows(event: gr.SelectData) -> list[Any]:
        """Fill the form with the task of rows that the panel sends."""
        sent = event.value if isinstance(event.value, dict) else {}
        low, high, rows = sent.get("min_length"), sent.get("max_length"), sent.get("rows")
        if type(low) is not int or type(high) is not int or not isinstance(rows, str):
            return [gr.skip()] * 4
        return [ROWS, rows, low, high]

    def weigh(*values: Any) -> tuple[str, str]:
        return weight_and_problem(valued(values), registry.limits)

    for button in (train, another):
        button.click(
            start,
            [visit, speed, *components],
            [visit, live, problem],
            validator=validate,
            js=WITH_SPEED,
            **QUIET,
        )
    for button, command in ((pause, "pause"), (resume, "resume"), (step, "step"), (stop, "stop")):
        button.click(None, None, None, js=COMMAND.format(command))
    if registry.lender is not None:
        live.submit(next_slice, None, None, **QUIET | {"concurrency_limit": SLICES_AT_ONCE})
    filling = [
        live.select(copy_settings, None, components, **QUIET),
        panel.select(
            use_rows,
            None,
            [form["task"], form["rows"], form["min_length"], form["max_length"]],
            **QUIET,
        ),
    ]
    lengths = [form["task"], form["min_length"], form["max_length"]]
    filling.append(form["task"].input(task_length, lengths, [form["max_length"]], **QUIET))
    gr.on(
        [form["task"].change, form["rows"].change], task_chosen, [visit, form["task"], form["rows"]], [about, panel, form["symbols"]],
        trigger_mode="always_last", **QUIET,
    )  # fmt: skip
    recipe_changes = [form["preset"], *(form[name] for name in OF_RECIPE)]
    filling.append(form["preset"].input(recipe_chosen, [form["preset"]], recipe_changes, **QUIET))
    of_family = [form["preset"], *(form[name] for name in OF_RECIPE if name != "family")]
    filling.append(form["family"].input(family_chosen, [form["family"]], of_family, **QUIET))
    form["family"].change(
        family_shown,
        [form["family"]],
        [form["family"], *(form[name] for name in ADVANCED["Model"])],
        **QUIET,
    )
    in_turn = QUIET | {
        "concurrency_limit": 1
    }  # so that an answer to older values never comes after that to newer ones
    gr.on(
        [c.change for c in components],
        weigh,
        components,
        [size, problem],
        trigger_mode="always_last",
        **in_turn,
    )
    for filled_in in filling:  # many fields change at once, and the first of their changes is weighed before the last has arrived
        filled_in.then(weigh, components, [size, problem], **in_turn)
    return [live, problem, *components], opening


def show(owner: str, subject: str) -> str:
    """The live view's value: whose page it is, and what to show; the page itself remembers what it showed last."""
    return json.dumps({"owner": owner, "subject": subject, "first": CHECKPOINT + FIRST_CHECKPOINT})
