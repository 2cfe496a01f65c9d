"""Serve the Learn tab: lessons, the exercise Find the bug, and a page for teachers.

The front end is in ui/static/learn. The measurements are jobs of lessons/service.py. This module
does not load torch.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field

from playground.common.validation import parse
from playground.experiments.progress import Estimate
from playground.experiments.variant import declared_step_s
from playground.jobs.job import Job
from playground.lessons import lessons
from playground.lessons.bugs import (
    BUG_SETTINGS,
    BUGS,
    FIRST_SEED,
    STEPS_RANGE,
)
from playground.lessons.lessons import LESSONS, Lesson
from playground.lessons.service import MEASUREMENT_TIMEOUT_S, BugResult, LessonJobs
from playground.runs.registry import Registry
from playground.training.run_config import RunConfig
from playground.ui.page import STATIC_DIR

from .project_files import ProjectFiles, heading_anchor
from .routes import HandlerGroup, handler
from .schemas.base import Index, Name, OwnerRequest, RequestBody, SubmitJob


class LessonRequest(RequestBody):
    """A lesson with its options, which it validates."""

    lesson: Any = None
    options: Any = None


class BugRequest(RequestBody):
    """A bug to train, and the seed that chooses it and the initial weights.

    The responses hide the name of a hidden bug until a guess is correct.
    """

    bug: Any = None
    is_hidden: bool = False
    seed: Index
    steps: Annotated[int, Field(ge=STEPS_RANGE[0], le=STEPS_RANGE[1])]


class SubmitGuess(OwnerRequest):
    """A guess of the bug or of its line, or the request to reveal it."""

    job: Name
    bug: str | None = None
    line: int | None = None
    reveal: bool = False


class LessonOption(TypedDict):
    """An option that the user can change; one without choices is a text."""

    name: str
    label: str
    default: str
    choices: list[str]


class LessonInfo(TypedDict):
    """A lesson without its answer; see `lessons.Lesson`."""

    name: str
    title: str
    introduction: str
    instruction: str
    question: str
    kind: Literal["curve", "number", "choice"]
    low: int
    high: int
    unit: str
    tolerance: int
    choices: list[tuple[str, str]]
    options: list[LessonOption]
    pretrained_job: Literal["", "translate", "next-token"]
    sources: str
    sources_anchor: str
    is_recorded: bool
    reuses_runs: bool
    estimate: Estimate


class BugInfo(TypedDict):
    """A bug without its line."""

    name: str
    title: str


class Machine(TypedDict):
    """The limits of this server."""

    slots: int
    slots_per_owner: int
    max_measurements: int
    timeout_s: float
    is_shared: bool


class Catalog(TypedDict):
    """The response of `lessons/catalog`."""

    lessons: list[LessonInfo]
    bugs: list[BugInfo]
    machine: Machine
    bug_seconds: float
    docs: str | None
    sources: str | None
    seed: int
    steps: int
    max_steps: int


class GuessResult(TypedDict):
    """A hint for a wrong guess, and the result as the user may now see it."""

    feedback: str
    result: BugResult


class LessonHandlers(HandlerGroup):
    """The handlers of the Learn tab."""

    def __init__(self, registry: Registry, jobs: LessonJobs) -> None:
        self.registry, self.jobs = registry, jobs

    @handler("lessons/catalog", OwnerRequest, Catalog)
    def catalog(self, request: OwnerRequest) -> dict[str, Any]:
        """Return all lessons and bugs without their answers, and the limits of this server."""
        step_s, settings = (
            declared_step_s(RunConfig.from_flat(BUG_SETTINGS)),
            self.registry.settings,
        )
        return {
            "lessons": self._lessons(request.owner),
            "bugs": [{"name": name, "title": bug.title} for name, bug in BUGS.items()],
            "machine": {
                "slots": settings.slots,
                "slots_per_owner": settings.slots_per_owner,
                "max_measurements": self.jobs.max_workers,
                "timeout_s": MEASUREMENT_TIMEOUT_S,
                "is_shared": not self.registry.single_owner,
            },
            "bug_seconds": 2 * BUG_SETTINGS["max_steps"] * step_s,
            "docs": ProjectFiles().links().get("Docs"),
            "sources": ProjectFiles().notebook(),
            "seed": FIRST_SEED,
            "steps": BUG_SETTINGS["max_steps"],
            "max_steps": STEPS_RANGE[1],
        }

    @handler("lessons/guess", SubmitGuess, GuessResult)
    def submit_guess(self, request: SubmitGuess) -> dict[str, Any]:
        """Check a guess of the bug or its line, or reveal the bug on request."""
        return self.jobs.submit_guess(
            request.job, request.owner, request.bug, request.line, request.reveal
        )

    def _lessons(self, owner: str) -> list[dict[str, Any]]:
        jobs, infos, trained = self.jobs, [], set[RunConfig]()
        for name, lesson in LESSONS.items():
            spec = lessons.experiment(lesson, lessons.validate_options(lesson, {}), jobs.base)
            configs = {variant.config(seed) for _, variant, seed in spec.planned_runs()}
            own = {
                "name": name,
                "is_recorded": recorded_path(name).is_file(),
                "reuses_runs": bool(trained & configs),
                "estimate": jobs.experiments.estimate_plan(spec, owner),
            }
            infos.append(_lesson_info(lesson) | own)
            trained |= configs
        return infos


def recorded_path(name: str) -> Path:
    """Return the path of the recorded result of a lesson (scripts/record_lessons.py)."""
    return STATIC_DIR / "learn" / "recorded" / f"{name}.json"


def start_lesson_job(jobs: LessonJobs, request: SubmitJob) -> Job:
    """Start the training of a lesson, or of the two copies of a bug.

    Raises UserError for an invalid request, or above a limit.
    """
    if request.kind == "lesson":
        fields = parse(LessonRequest, request.request)
        return jobs.submit_lesson(fields.lesson, fields.options, request.owner)
    bug = parse(BugRequest, request.request)
    return jobs.submit_bug(bug.bug, bug.seed, bug.steps, request.owner, bug.is_hidden)


def _lesson_info(lesson: Lesson) -> dict[str, Any]:
    fields = lesson.model_dump(exclude={"base", "runs", "measure", "choices", "options"})
    together = {  # no line break between a number and its percent sign
        name: value.replace(" %", "\u00a0%") if isinstance(value, str) else value
        for name, value in fields.items()
    }
    return together | {
        "sources_anchor": heading_anchor(lesson.sources),
        "choices": list(lesson.choices.items()),
        "options": [
            {"name": name} | option.model_dump(exclude={"setting"})
            for name, option in lesson.options.items()
        ],
    }
