"""A job of the Learn tab: the measurement of a lesson, or the comparison of a bug."""

from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

from playground.experiments.spec import Experiment
from playground.jobs.job import Job, JobStatus, Response

from .bugs import BUGS, RANDOM_BUG

HIDDEN_UNTIL_SOLVED = ("changed_line", "diff")  # hidden until the user identifies the line
# hidden until the user identifies the bug
HIDDEN_UNTIL_IDENTIFIED = ("source", *HIDDEN_UNTIL_SOLVED)


class MeasuredRun(TypedDict):
    """A run of a lesson."""

    label: str
    run: str
    steps: int


class LessonResult(TypedDict):
    """The measured value of a lesson, with its figures."""

    value: float | str | None
    outcome: str
    explanation: str
    figures: list[dict[str, Any]]
    options: dict[str, Any]
    runs: list[MeasuredRun]


class BugResult(TypedDict):
    """The comparison of both models; what an exercise hides is empty or absent."""

    seed: int
    steps: int
    is_hidden: bool
    name: str
    title: str
    bug_identified: bool
    line_identified: bool
    explanation: str
    origin: str
    n: int
    vocab_size: int
    curves: dict[str, Any]
    correct: dict[str, Any]
    buggy: dict[str, Any]
    source: NotRequired[dict[str, Any]]
    changed_line: NotRequired[int]
    diff: NotRequired[list[str]]


@dataclass(eq=False)
class Measurement(Job):
    """A job that hides the answers of an exercise until the user has found them.

    The job of a lesson is ready when its runs have ended; until then, it describes them.
    """

    name: str = ""  # of the lesson or of the bug
    request: dict[str, Any] = field(default_factory=dict)
    experiment: Experiment | None = None  # of a lesson: its runs
    pretrained: Job | None = None  # of a pretrained model, if the lesson has one
    bug_identified: bool = False  # for a bug: whether the user identified it
    line_identified: bool = False  # for a bug: whether the user identified its line

    def to_json(self, cursor: int = 0) -> Response:
        response = super().to_json(cursor)
        if not self.is_ready and response["status"] == JobStatus.QUEUED:
            response["status"] = JobStatus.RUNNING.value  # its runs train
        if response["result"] is not None:
            is_lesson = self.kind == "lesson"
            response["result"] = self._lesson_result() if is_lesson else self._bug_result()
        return response

    def _lesson_result(self) -> Response:
        return {**(self.result or {}), **self.request, "runs": self.partial["runs"]}

    def _bug_result(self) -> Response:
        hidden = (
            ()
            if self.line_identified
            else HIDDEN_UNTIL_SOLVED
            if self.bug_identified
            else HIDDEN_UNTIL_IDENTIFIED
        )
        result = {name: value for name, value in (self.result or {}).items() if name not in hidden}
        bug = BUGS[self.name]
        return {
            **result,
            **self.request,
            "name": self.name if self.bug_identified else RANDOM_BUG,
            "bug_identified": self.bug_identified,
            "line_identified": self.line_identified,
            "title": bug.title if self.bug_identified else "",
            "explanation": bug.explanation if self.line_identified else "",
            "origin": bug.origin if self.line_identified else "",
        }
