"""Serve the Learn tab: lessons, the exercise Find the bug, and a page for teachers.

The front end is in ui/static/learn. The measurements are jobs of
lessons/service.py, and the page polls them. This module does not load torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from playground.lessons.bugs import BUG_SETTINGS, BUGS, RANDOM_BUG, STEPS_RANGE, resolve_bug
from playground.lessons.lessons import LESSONS, SCHEMES, Lesson
from playground.lessons.service import MEASUREMENT_TIMEOUT_S, LessonService
from playground.runs.model_ref import non_negative_int
from playground.runs.registry import Registry

from .routes import Handler, call_owner_handler

ANSWER_KEY_SEEDS = 8  # seeds listed on the teacher's page


class LearnPage:
    """Handlers of the tab\'s requests."""

    def __init__(self, registry: Registry, lesson_service: LessonService) -> None:
        self.registry, self.lesson_service = registry, lesson_service

    def handlers(self) -> dict[str, Handler]:
        routes = {
            "lessons/catalog": self.catalog,
            "lessons/start": self.start_lesson,
            "lessons/start-bug": self.start_bug,
            "lessons/poll": self.poll,
            "lessons/cancel": self.cancel,
            "lessons/guess": self.submit_guess,
            "lessons/answer-key": self.answer_key,
        }
        return {name: _owner_handler(answer) for name, answer in routes.items()}

    def catalog(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return all lessons and bugs without their answers, and the limits of this server."""
        lessons = [{"name": name, **_lesson_info(lesson)} for name, lesson in LESSONS.items()]
        bugs = [{"name": name, "title": bug.title} for name, bug in BUGS.items()]
        machine = {
            "slots": self.registry.settings.slots,
            "an_owner": self.registry.settings.slots_per_owner,
            "measuring": self.lesson_service.max_workers,
            "timeout_s": MEASUREMENT_TIMEOUT_S,
            "open": not self.registry.single_owner,
        }
        return {
            "stops": lessons,
            "bugs": bugs,
            "machine": machine,
            "steps": BUG_SETTINGS["max_steps"],
            "max_steps": STEPS_RANGE[1],
        }

    def start_lesson(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Start the measurement of a lesson; return its job `id`."""
        return {
            "id": self.lesson_service.start_lesson(
                payload.get("stop"), payload.get("prediction"), payload.get("options"), owner
            )
        }

    def start_bug(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Train a model with a bug beside the correct model; return the job `id`."""
        return {
            "id": self.lesson_service.start_bug(
                payload.get("bug"), payload.get("seed"), payload.get("steps"), owner
            )
        }

    def poll(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        return self.lesson_service.poll(payload.get("id"), owner)

    def cancel(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        self.lesson_service.cancel(payload.get("id"), owner)
        return {}

    def submit_guess(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Check a guess of the bug or its line, or reveal the bug on request."""
        return self.lesson_service.submit_guess(
            payload.get("id"),
            owner,
            payload.get("mistake"),
            payload.get("line"),
            payload.get("reveal") is True,
        )

    def answer_key(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return which seed selects which bug, for teachers."""
        first_seed = non_negative_int(payload.get("first"))
        return {
            "mysteries": [
                [seed, BUGS[resolve_bug(RANDOM_BUG, seed)].title]
                for seed in range(first_seed, first_seed + ANSWER_KEY_SEEDS)
            ]
        }


def _lesson_info(lesson: Lesson) -> dict[str, Any]:
    fields = {
        name: getattr(lesson, name)
        for name in ("title", "teaches", "do", "question", "kind", "low", "high", "unit", "within")
    }
    options = [
        {
            "name": name,
            "default": default,
            "words": lesson.option_labels[name],
            "choices": list(SCHEMES) if name == "positions" else [],
        }
        for name, default in lesson.options.items()
    ]
    return fields | {"choices": list(lesson.choices.items()), "options": options}


def _owner_handler(handler: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Handler:
    async def endpoint(payload: object, _: Request) -> dict[str, Any]:
        return await asyncio.to_thread(call_owner_handler, handler, payload)

    return endpoint
