"""Serve the Learn tab: lessons, the exercise Find the bug, and the classes of teachers.

    class/open    returns the code of a new class
    class/join    {code}: counts a pupil
    class/guess   {code, lesson, guess}
    class/poll    {code, lesson}: returns its guesses in a lesson, to its teacher
    class/close   {code}: removes it, for its teacher

A code without a class answers 404. The front end is in ui/static/learn. The measurements are jobs
of lessons/service.py. This module does not load torch.
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
from playground.lessons.classes import CODE_LENGTH, TTL_S, Classes
from playground.lessons.lessons import LESSONS, Lesson
from playground.lessons.service import MEASUREMENT_TIMEOUT_S, BugResult, LessonJobs
from playground.runs.registry import Registry
from playground.training.run_config import RunConfig
from playground.ui.page import STATIC_DIR

from .project_files import ProjectFiles, heading_anchor
from .routes import HandlerGroup, handler
from .schemas.base import Index, Name, OwnerRequest, RequestBody, SubmitJob
from .schemas.responses import Done


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
    name: str
    title: str


class Machine(TypedDict):
    slots: int
    slots_per_owner: int
    max_measurements: int
    timeout_s: float
    is_shared: bool


class Catalog(TypedDict):
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
    def __init__(self, registry: Registry, jobs: LessonJobs) -> None:
        self.registry, self.jobs = registry, jobs

    @handler("lessons/catalog", OwnerRequest, Catalog)
    def catalog(self, request: OwnerRequest) -> dict[str, Any]:
        """Return all lessons and bugs without their answers, and the limits of this server."""
        step_s = declared_step_s(RunConfig.from_flat(BUG_SETTINGS))
        settings = self.registry.settings
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
    """Start the training of a lesson or of the two copies of a bug, or raise UserError."""
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


class ClassRequest(OwnerRequest):
    """A request about the class with a code."""

    code: Annotated[str, Field(min_length=CODE_LENGTH, max_length=CODE_LENGTH)]


class ClassGuess(ClassRequest):
    """A guess in a lesson, which the lesson validates."""

    lesson: Any = None
    guess: Any = None


class PollClass(ClassRequest):
    """The lesson whose guesses are sent."""

    lesson: Name = ""


class OpenedClass(TypedDict):
    code: str
    days: int


class ClassGuesses(TypedDict):
    lesson: str
    n_pupils: int
    n_guesses: dict[str, int]
    guesses: list[list[int] | int | str]


class ClassHandlers(HandlerGroup):
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.classes = Classes(registry.root / "classes")

    @handler("class/open", OwnerRequest, OpenedClass)
    def open(self, request: OwnerRequest) -> dict[str, Any]:
        opened = self.classes.open(request.owner, self.registry.client_address())
        return {"code": opened.code, "days": int(TTL_S // 86_400)}

    @handler("class/join", ClassRequest, Done, missing=404)
    def join(self, request: ClassRequest) -> dict[str, Any]:
        """Count a pupil."""
        self.classes.add(request.code, request.owner)
        return {}

    @handler("class/guess", ClassGuess, Done, missing=404)
    def guess(self, request: ClassGuess) -> dict[str, Any]:
        """Store the guess of a pupil, which replaces the one before."""
        lesson = lessons.find(request.lesson)
        guess = lessons.validate_guess(lesson, request.guess)
        self.classes.add(request.code, request.owner, lesson=request.lesson, guess=guess)
        return {}

    @handler("class/poll", PollClass, ClassGuesses, missing=404)
    def poll(self, request: PollClass) -> dict[str, Any]:
        return self.classes.summary(request.code, request.owner, request.lesson)

    @handler("class/close", ClassRequest, Done, missing=404)
    def close(self, request: ClassRequest) -> dict[str, Any]:
        self.classes.close(request.code, request.owner)
        return {}
