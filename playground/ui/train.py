"""The Train tab: a form, its buttons, and the live view of whatever model is open."""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from playground.runs.registry import Registry, Run, SlotsBusy
from playground.training.manifest import CheckpointError, read_manifest
from playground.training.presets import PRESETS

from .form import OF_RECIPE, build_form, preset_values, problems, run_config, weight_and_problem
from .live import CHECKPOINT, live_view
from .visit import known, new_owner, visited

FIRST_CHECKPOINT = "reverse"
QUIET: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}


def subjects(registry: Registry, owner: str) -> list[tuple[str, str]]:
    """What an owner may open: their runs, newest first, then the checkpoints."""
    runs = [(run_label(number, run), run.id) for number, run in enumerate(registry.of_owner(owner), start=1)][::-1]
    shown = []
    for name, folder in registry.checkpoints().items():
        try:
            shown.append((checkpoint_label(name, folder), CHECKPOINT + name))
        except (CheckpointError, OSError):
            continue  # a folder in the making or a broken one: opening it by name says what is wrong
    return runs + shown


def run_label(number: int, run: Run) -> str:
    return f"run {number}: {run.config.task.task} {describe(run.config)}"


def checkpoint_label(name: str, folder: Path) -> str:
    return f"checkpoint {name}: {describe(read_manifest(folder).config)}"


def describe(config: Any) -> str:
    """A run in a few words: lengths and shape."""
    task, model = config.task, config.model
    lengths = f"{task.min_length}–{task.max_length}" if task.min_length < task.max_length else str(task.max_length)
    shape = f"{model.n_layers} layer{'s' * (model.n_layers > 1)} × {model.n_heads} head{'s' * (model.n_heads > 1)}"
    return f"{lengths}, {shape}"


def build_train_tab(registry: Registry, visit: gr.BrowserState) -> tuple[gr.Dropdown, gr.HTML, Callable[..., Any]]:
    """Place the tab. Returns what the frame wires up: the choice of subject, the live view, and `opening` for a page's load."""
    with gr.Row(elem_id="train-page"):
        with gr.Column(elem_id="buttons", min_width=200):
            with gr.Row():
                train = gr.Button("Train", variant="primary", elem_id="train", size="md")
                pause = gr.Button("Pause", variant="primary", elem_id="pause", size="md")
                resume = gr.Button("Resume", variant="primary", elem_id="resume", size="md")
                step = gr.Button("Step", elem_id="step", size="md")
                stop = gr.Button("Stop", elem_id="stop", size="md")
            problem = gr.HTML("", elem_id="problem", padding=False)
        with gr.Column(elem_id="view", min_width=280):
            subject = gr.Dropdown([], label="Model on show", container=False, elem_id="subject", filterable=False)
            live = live_view(registry)
        with gr.Column(elem_id="form", min_width=200):
            form = build_form()
            size = gr.HTML(
                weight_and_problem({name: component.value for name, component in form.items()})[0], elem_id="size", padding=False
            )

    names, components = list(form), list(form.values())

    def valued(values: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(names, values, strict=True))

    def start(visit_value: Any, *values: Any) -> tuple[Any, Any, Any, Any]:
        owner = known(visit_value)[0] or new_owner()
        try:
            run = registry.start(run_config(valued(values)), owner)
        except (SlotsBusy, ValueError) as error:
            return gr.skip(), gr.skip(), gr.skip(), f"Not started: {html.escape(str(error))}."
        return visited(owner, run.id), run.id, gr.Dropdown(subjects(registry, owner), value=run.id), ""

    def validate(visit_value: Any, *values: Any) -> list[Any]:
        wrong = problems(names, values)
        return [gr.validate(True, ""), *(gr.validate(name not in wrong, wrong.get(name, "")) for name in names)]

    def control(action: str) -> Callable[[Any], None]:
        def act(visit_value: Any) -> None:
            owner, chosen = known(visit_value)
            run = registry.find(chosen)
            if run is not None and run.owner == owner:
                registry.control(run, action)

        act.__name__ = action
        return act

    def choose(chosen: str, visit_value: Any) -> tuple[Any, Any]:
        owner, _ = known(visit_value)
        return visited(owner, chosen), chosen

    def opening(visit_value: Any) -> tuple[Any, Any, Any]:
        owner, chosen = known(visit_value)
        owner = owner or new_owner()
        on_offer = subjects(registry, owner)
        if chosen not in [value for _, value in on_offer]:
            first = CHECKPOINT + FIRST_CHECKPOINT
            chosen = first if first in [value for _, value in on_offer] else (on_offer[0][1] if on_offer else "")
        return visited(owner, chosen), chosen, gr.Dropdown(on_offer, value=chosen or None)

    def recipe_chosen(preset: str) -> list[Any]:
        values = preset_values(preset)
        return [gr.Radio(info=PRESETS[preset].sentence), *(values[name] for name in OF_RECIPE)]

    def weigh(*values: Any) -> tuple[str, str]:
        return weight_and_problem(valued(values))

    train.click(start, [visit, *components], [visit, live, subject, problem], validator=validate, **QUIET)
    for button, action in ((pause, "pause"), (resume, "resume"), (step, "step"), (stop, "stop")):
        button.click(control(action), [visit], None, **QUIET)
    subject.select(choose, [subject, visit], [visit, live], **QUIET)
    form["preset"].input(recipe_chosen, [form["preset"]], [form["preset"], *(form[name] for name in OF_RECIPE)], **QUIET)
    gr.on([c.change for c in components], weigh, components, [size, problem], trigger_mode="always_last", **QUIET)
    return subject, live, opening
