"""The Learn tab: a tour whose questions are answered by measuring, mistakes to be found, and a page for teachers (learn.html, .css and
the scripts beside it). What is measured belongs to the classroom (lessons/classroom.py); the page asks how it goes. No torch in here."""

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
MYSTERIES = 8  # seeds whose mystery the teacher's page tells


def learn_view() -> gr.HTML:
    """The view. Its value is {"owner": whose page it is}."""
    return view("learn", STYLES, SCRIPTS)


class LearnPage:
    """What the tab's scripts may ask."""

    def __init__(self, registry: Registry, classroom: Classroom) -> None:
        self.registry, self.classroom = registry, classroom

    def answerers(self) -> dict[str, Answerer]:
        routes = {
            "learn-lessons": self.lessons, "learn-stop": self.begin_stop, "learn-bug": self.begin_bug, "learn-poll": self.poll,
            "learn-cancel": self.cancel, "learn-guess": self.guess, "learn-mysteries": self.mysteries,
        }  # fmt: skip
        return {name: _route(answer) for name, answer in routes.items()}

    def lessons(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Everything there is to be asked, without any answer; and the machine that it is asked on."""
        stops = [{"name": name, **_stop(stop)} for name, stop in STOPS.items()]
        bugs = [{"name": name, "title": mistake.title} for name, mistake in MISTAKES.items()]
        machine = {
            "slots": self.registry.slots, "an_owner": self.registry.slots_an_owner, "measuring": self.classroom.places,
            "longest": LONGEST, "open": not self.registry.local_owner,
        }  # fmt: skip
        return {
            "stops": stops,
            "bugs": bugs,
            "machine": machine,
            "steps": SETTINGS["steps"],
            "most_steps": STEPS[1],
        }

    def begin_stop(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Measure what a stop asks; the answer names the question by its `id`."""
        return {
            "id": self.classroom.begin_stop(
                what.get("stop"), what.get("prediction"), what.get("options"), owner
            )
        }

    def begin_bug(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Train a copy with a mistake beside a right one; the answer names the question by its `id`."""
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
        """Whether somebody has named the right mistake, or its line; or what it is, for those who give up."""
        return self.classroom.guess(
            what.get("id"), owner, what.get("mistake"), what.get("line"), what.get("tell") is True
        )

    def mysteries(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """For teachers: which mistake is behind which seed."""
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
