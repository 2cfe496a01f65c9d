"""The Train tab: a form, three buttons, and the live view of whatever model is open."""

from __future__ import annotations

import asyncio
import html
import json
import re
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import gradio as gr

from playground.runs.registry import Registry, Run, SlotsBusy
from playground.training.manifest import CheckpointError, read_manifest
from playground.training.presets import PRESETS

from .form import OF_RECIPE, build_form, preset_values, problems, run_config, weight_and_problem

HERE = Path(__file__).parent
CHECKPOINT = "checkpoint:"
FIRST_CHECKPOINT = "reverse"
QUIET: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}
ANSWER_WITHIN = 15  # seconds
OWNER = re.compile(r"[A-Za-z0-9_-]{32}")
GONE = {"status": "gone", "message": "", "points": [], "more": False}


def live_view(registry: Registry) -> gr.HTML:
    """The view of one subject: a run's id or `checkpoint:NAME`."""

    async def poll(request: dict) -> dict:
        return await told(registry, request)

    async def ask(request: dict) -> dict:
        return await answered(registry, request)

    return gr.HTML(
        value=None,
        html_template=(HERE / "live.html").read_text(encoding="utf-8"),
        css_template=(HERE / "live.css").read_text(encoding="utf-8"),
        js_on_load=(HERE / "live.js").read_text(encoding="utf-8"),
        server_functions=[poll, ask],
        elem_id="live",
        padding=False,
    )


def whole(value: object) -> int:
    """A count from a page, which may send anything."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else 0


async def told(registry: Registry, request: object) -> dict[str, Any]:
    """What a page with so many points and snapshots does not know yet about its subject."""
    request = request if isinstance(request, dict) else {}
    subject = request.get("subject")
    if run := registry.find(subject):
        return registry.poll(run, whole(request.get("cursor")), whole(request.get("looks")))
    folder = checkpoint_folder(registry, subject)
    if folder is None:
        return GONE
    view = await answer_of(await asyncio.to_thread(registry.inspect, "view", folder))
    if "error" in view:
        return GONE | {"message": view["error"]}
    try:
        manifest = read_manifest(folder)
    except CheckpointError as error:
        return GONE | {"message": str(error)}
    shown = {"status": "checkpoint", "name": folder.name, "steps": manifest.step, "scores": manifest.scores}
    return view | shown | {"looks": 1, "more": False}


async def answered(registry: Registry, request: object) -> dict[str, Any]:
    """The subject's answer to what a visitor typed."""
    request = request if isinstance(request, dict) else {}
    subject, text = request.get("subject"), request.get("text")
    if not isinstance(text, str) or len(text) > 2000:
        return {"error": "type a sequence of at most 2,000 characters"}
    if run := registry.find(subject):
        if not run.live and not (run.folder / "config.json").exists():
            return {"error": "this run ended before it could save its weights"}
        return await answer_of(await asyncio.to_thread(registry.ask, run, text))
    folder = checkpoint_folder(registry, subject)
    if folder is None:
        return {"error": "no model is open; train one, or choose a checkpoint above"}
    return await answer_of(await asyncio.to_thread(registry.inspect, "ask", folder, text))


async def answer_of(future: Future[dict[str, Any]]) -> dict[str, Any]:
    """What a process answers, or that it is taking too long."""
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), ANSWER_WITHIN)
    except TimeoutError:
        return {"error": f"no answer within {ANSWER_WITHIN} s; the machine is busy, try again"}


def checkpoint_folder(registry: Registry, subject: object) -> Path | None:
    """The folder that `checkpoint:NAME` means, if NAME is one of those on offer."""
    if not isinstance(subject, str) or not subject.startswith(CHECKPOINT):
        return None
    return registry.checkpoints().get(subject.removeprefix(CHECKPOINT))


# What the page opens


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


# The visit: what a browser remembers. It is the browser's, so it is read with care.


def visited(owner: str, subject: str) -> str:
    return json.dumps({"owner": owner, "subject": subject})


def new_owner() -> str:
    """A secret that nobody can guess; whoever has it owns the runs that were started with it."""
    return secrets.token_urlsafe(24)


def known(visit_value: Any) -> tuple[str, str]:
    """Owner and subject out of a browser's memory; empty where there is nothing sensible."""
    try:
        memory = json.loads(visit_value)
        owner, subject = memory["owner"], memory["subject"]
        if OWNER.fullmatch(owner) and len(subject) < 300:
            return owner, subject
    except (TypeError, ValueError, KeyError, RecursionError):
        pass  # a first visit, or a memory of something else
    return "", ""
