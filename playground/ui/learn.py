"""Serve the Learn tab: lessons, the exercise Find the bug, and a page for teachers.

The front end is learn.html, .css and the scripts in this folder. The measurements are jobs of
lessons/classroom.py, and the page polls them. This module does not load torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gradio as gr
from starlette.requests import Request

from playground.lessons.classroom import LONGEST, Classroom
from playground.lessons.mistakes import MISTAKES, MYSTERY, SETTINGS, STEPS, chosen
from playground.lessons.tour import SCHEMES, STOPS, Stop
from playground.runs.registry import Registry

from .asked import Answerer, answer_owner
from .subject import whole
from .view import view

SHELL = ("common.js", "elements.js", "paint.js", "matrix.js", "learn.js", "lab_chart.js")
SCRIPTS = (
    *SHELL,
    "learn_pictures.js",
    "learn_tour.js",
    "learn_bugs.js",
    "learn_teach.js",
    "learn_begin.js",
)
STYLES = ("common.css", "learn.css")
MYSTERIES = 8  # seeds listed on the teacher's page


def learn_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key}."""
    return view("learn", STYLES, SCRIPTS)


class LearnPage:
    """Handlers of the tab\'s requests."""

    def __init__(self, registry: Registry, classroom: Classroom) -> None:
        self.registry, self.classroom = registry, classroom

    def answerers(self) -> dict[str, Answerer]:
        routes = {
            "learn-lessons": self.lessons,
            "learn-stop": self.begin_stop,
            "learn-bug": self.begin_bug,
            "learn-poll": self.poll,
            "learn-cancel": self.cancel,
            "learn-guess": self.guess,
            "learn-mysteries": self.mysteries,
        }
        return {name: _route(answer) for name, answer in routes.items()}

    def lessons(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Return all lessons and bugs without their answers, and the limits of this server."""
        stops = [{"name": name, **_stop(stop)} for name, stop in STOPS.items()]
        bugs = [{"name": name, "title": mistake.title} for name, mistake in MISTAKES.items()]
        machine = {
            "slots": self.registry.slots,
            "an_owner": self.registry.slots_an_owner,
            "measuring": self.classroom.places,
            "longest": LONGEST,
            "open": not self.registry.local_owner,
        }
        return {
            "stops": stops,
            "bugs": bugs,
            "machine": machine,
            "steps": SETTINGS["steps"],
            "most_steps": STEPS[1],
        }

    def begin_stop(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Start the measurement of a lesson; return its job `id`."""
        return {
            "id": self.classroom.begin_stop(
                what.get("stop"), what.get("prediction"), what.get("options"), owner
            )
        }

    def begin_bug(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Train a model with a bug beside the correct model; return the job `id`."""
        return {
            "id": self.classroom.begin_bug(
                what.get("bug"), what.get("seed"), what.get("steps"), owner
            )
        }

    def poll(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        return self.classroom.poll(what.get("id"), owner)

    def cancel(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        self.classroom.cancel(what.get("id"), owner)
        return {}

    def guess(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Check a guess of the bug or its line, or reveal the bug on request."""
        return self.classroom.guess(
            what.get("id"), owner, what.get("mistake"), what.get("line"), what.get("tell") is True
        )

    def mysteries(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Return which seed selects which bug, for teachers."""
        first = whole(what.get("first"))
        return {
            "mysteries": [
                [seed, MISTAKES[chosen(MYSTERY, seed)].title]
                for seed in range(first, first + MYSTERIES)
            ]
        }


def _stop(stop: Stop) -> dict[str, Any]:
    told = {
        name: getattr(stop, name)
        for name in ("title", "teaches", "do", "question", "kind", "low", "high", "unit", "within")
    }
    options = [
        {
            "name": name,
            "usual": usual,
            "words": stop.option_words[name],
            "choices": list(SCHEMES) if name == "positions" else [],
        }
        for name, usual in stop.options.items()
    ]
    return told | {"choices": list(stop.choices.items()), "options": options}


def _route(answer: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Answerer:
    async def serve(what: object, _: Request) -> dict[str, Any]:
        return await asyncio.to_thread(answer_owner, answer, what)

    return serve
