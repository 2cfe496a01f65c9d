"""Serve the Learn tab: lessons, the exercise Find the bug, and a page for teachers.

The front end is in ui/static/learn. The measurements are jobs of
lessons/service.py, and the page polls them. This module does not load torch.
"""

from typing import Annotated, Any

from pydantic import Field

from playground.experiments.progress import declared_step_s
from playground.lessons import lessons
from playground.lessons.bugs import (
    BUG_SETTINGS,
    BUGS,
    FIRST_SEED,
    RANDOM_BUG,
    STEPS_RANGE,
    resolve_bug,
)
from playground.lessons.lessons import LESSONS, Lesson
from playground.lessons.service import MEASUREMENT_TIMEOUT_S, LessonService
from playground.runs.registry import Registry
from playground.training.config import RunConfig

from .project_files import ProjectFiles, heading_anchor
from .routes import HandlerGroup, handler
from .schemas.base import Index, OwnerRequest

ANSWER_KEY_SEEDS = 8  # seeds listed on the teacher's page


class StartLesson(OwnerRequest):
    """A lesson with the user's prediction, which the lesson validates."""

    lesson: Any = None
    prediction: Any = None
    options: Any = None


class StartBug(OwnerRequest):
    """A bug to train, and the seed that chooses it and the initial weights.

    The responses hide the name of a hidden bug until a guess is correct.
    """

    bug: Any = None
    is_hidden: bool = False
    seed: Index
    steps: Annotated[int, Field(ge=STEPS_RANGE[0], le=STEPS_RANGE[1])]


class MeasurementRequest(OwnerRequest):
    """A measurement of the owner."""

    id: str | None = None


class SubmitGuess(MeasurementRequest):
    """A guess of the bug or of its line, or the request to reveal it."""

    bug: str | None = None
    line: int | None = None
    reveal: bool = False


class AnswerKey(OwnerRequest):
    """The first seed of the answer key."""

    first: Index = 0


class LessonHandlers(HandlerGroup):
    """The handlers of the Learn tab."""

    def __init__(self, registry: Registry, lesson_service: LessonService) -> None:
        self.registry, self.lesson_service = registry, lesson_service

    @handler("lessons/catalog", OwnerRequest)
    def catalog(self, request: OwnerRequest) -> dict[str, Any]:
        """Return all lessons and bugs without their answers, and the limits of this server."""
        bugs = [{"name": name, "title": bug.title} for name, bug in BUGS.items()]
        bug_config = RunConfig.from_flat(BUG_SETTINGS)
        machine = {
            "slots": self.registry.settings.slots,
            "slots_per_owner": self.registry.settings.slots_per_owner,
            "max_measurements": self.lesson_service.max_workers,
            "timeout_s": MEASUREMENT_TIMEOUT_S,
            "is_shared": not self.registry.single_owner,
        }
        return {
            "lessons": self._lessons(request.owner),
            "bugs": bugs,
            "machine": machine,
            "bug_seconds": 2 * BUG_SETTINGS["max_steps"] * declared_step_s(bug_config),
            "docs": ProjectFiles().links().get("Docs"),
            "sources": ProjectFiles().notebook(),
            "seed": FIRST_SEED,
            "steps": BUG_SETTINGS["max_steps"],
            "max_steps": STEPS_RANGE[1],
        }

    @handler("lessons/start", StartLesson)
    def start_lesson(self, request: StartLesson) -> dict[str, Any]:
        """Start the measurement of a lesson; return its job `id`."""
        return {
            "id": self.lesson_service.start_lesson(
                request.lesson, request.prediction, request.options, request.owner
            )
        }

    @handler("lessons/start-bug", StartBug)
    def start_bug(self, request: StartBug) -> dict[str, Any]:
        """Train a model with a bug and the correct model; return the job `id`."""
        return {
            "id": self.lesson_service.start_bug(
                request.bug, request.seed, request.steps, request.owner, request.is_hidden
            )
        }

    @handler("lessons/poll", MeasurementRequest)
    def poll(self, request: MeasurementRequest) -> dict[str, Any]:
        return self.lesson_service.poll(request.id, request.owner)

    @handler("lessons/cancel", MeasurementRequest)
    def cancel(self, request: MeasurementRequest) -> dict[str, Any]:
        self.lesson_service.cancel(request.id, request.owner)
        return {}

    @handler("lessons/guess", SubmitGuess)
    def submit_guess(self, request: SubmitGuess) -> dict[str, Any]:
        """Check a guess of the bug or its line, or reveal the bug on request."""
        return self.lesson_service.submit_guess(
            request.id, request.owner, request.bug, request.line, request.reveal
        )

    @handler("lessons/answer-key", AnswerKey)
    def answer_key(self, request: AnswerKey) -> dict[str, Any]:
        """Return which seed selects which bug, for teachers."""
        seeds = range(request.first, request.first + ANSWER_KEY_SEEDS)
        return {
            "random_bugs": [[seed, BUGS[resolve_bug(RANDOM_BUG, seed)].title] for seed in seeds]
        }

    def _lessons(self, owner: str) -> list[dict[str, Any]]:
        service, infos, trained = self.lesson_service, [], set[RunConfig]()
        for name, lesson in LESSONS.items():
            spec = lessons.experiment(lesson, lessons.validate_options(lesson, {}), service.base)
            configs = {variant.config(seed) for _, variant, seed in spec.planned_runs()}
            infos.append(
                {"name": name}
                | _lesson_info(lesson)
                | {
                    "reuses_runs": bool(trained & configs),
                    "estimate": service.experiments.estimate_plan(spec, owner),
                }
            )
            trained |= configs
        return infos


def _keep_together(value: Any) -> Any:
    """Prevent a line break between a number and its percent sign."""
    return value.replace(" %", "\u00a0%") if isinstance(value, str) else value


def _lesson_info(lesson: Lesson) -> dict[str, Any]:
    fields = lesson.model_dump(exclude={"base", "runs", "measure", "choices", "options"})
    return {name: _keep_together(value) for name, value in fields.items()} | {
        "sources_anchor": heading_anchor(lesson.sources),
        "choices": list(lesson.choices.items()),
        "options": [
            {"name": name} | option.model_dump(exclude={"setting"})
            for name, option in lesson.options.items()
        ],
    }
