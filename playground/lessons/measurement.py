"""A measurement of a lesson or of a bug, and its state as values for JSON."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from playground.experiments.spec import Experiment
from playground.jobs.admission import CLIENT_ADDRESS
from playground.jobs.job import Job, JobStatus
from playground.runs.scheduler import RunScheduler
from playground.runs.state import Run

from . import lessons
from .bugs import BUGS, RANDOM_BUG

ACTIVE_STATUSES = ("training", "waiting", "measuring")
_ACTIVE_JOB_STATUSES = {JobStatus.QUEUED: "waiting", JobStatus.RUNNING: "measuring"}
HIDDEN_UNTIL_SOLVED = ("changed_line", "diff")  # hidden until the user identifies the line
# hidden until the user identifies the bug
HIDDEN_UNTIL_IDENTIFIED = ("source", "silent_variant", *HIDDEN_UNTIL_SOLVED)


@dataclass
class Measurement:
    """A measurement, with its state and its result."""

    id: str
    owner: str  # the owner's fingerprint
    kind: str  # lesson or bug
    name: str
    request: dict[str, Any]
    job: Job | None = None  # after the training
    translation: Job | None = None  # of a pretrained model, if the lesson has one
    ended: str = ""  # failed or cancelled, if it ended before its job
    message: str = ""
    experiment: Experiment | None = None  # of a lesson: its runs
    bug_identified: bool = False  # for a bug: whether the user identified it
    line_identified: bool = False  # for a bug: whether the user identified its line
    address: str = field(default_factory=CLIENT_ADDRESS.get)  # of the client that made the request
    polled_at: float = field(default_factory=time.monotonic)

    @property
    def status(self) -> str:
        """The status: training, waiting (for a process), measuring, done, failed or cancelled."""
        if self.ended:
            return self.ended
        if self.job is None:
            return "training"
        status = self.job.status
        return _ACTIVE_JOB_STATUSES.get(status, status.value)

    @property
    def result(self) -> dict[str, Any] | None:
        return self.job.result if self.job is not None else None

    def end(self, status: str, message: str) -> None:
        """End the measurement, unless it has ended."""
        if self.status in ACTIVE_STATUSES:
            self.ended, self.message = status, message

    def touch(self) -> None:
        """Record that the page of the owner polls."""
        self.polled_at = time.monotonic()
        for job in (self.job, self.translation):
            if job is not None:
                job.polled_at = self.polled_at

    def to_json(self, runs: Mapping[str, Run], scheduler: RunScheduler) -> dict[str, Any]:
        """Return the state, and the result when there is one; `runs` has those of a lesson."""
        status = self.status  # read before `result`, which the queue sets earlier
        message = self.message or (self.job.message if self.job and not self.job.is_active else "")
        response = {"id": self.id, "kind": self.kind, "status": status, "message": message}
        return response | (
            self._lesson_response(runs, scheduler, status)
            if self.kind == "lesson"
            else self._bug_response(status)
        )

    def _lesson_response(
        self, runs: Mapping[str, Run], scheduler: RunScheduler, status: str
    ) -> dict[str, Any]:
        rows: list[dict[str, Any]] = [
            {
                "label": label,
                "run": f"run:{run.id}",
                "status": run.status,
                "step": run.step,
                "steps": run.steps,
                "queue_position": scheduler.position(run),
            }
            for label, run in runs.items()
        ]
        response: dict[str, Any] = {
            "name": self.name,
            **self.request,
            "runs": rows,
            "result": None,
            "done": sum(row["step"] for row in rows),
            "total": sum(row["steps"] for row in rows),
        }
        if self.translation is not None and self.translation.is_active:
            response["translation"] = self.translation.to_json()
        if status == "training":
            response["curves"] = [
                {
                    "label": label,
                    "evaluations": [each[:2] for each in run.load_points().evaluations],
                }
                for label, run in runs.items()
            ]
        if self.result is not None:
            lesson, prediction = lessons.LESSONS[self.name], self.request["prediction"]
            is_correct = lessons.is_correct(lesson, prediction, self.result["value"])
            response["result"] = self.result | {"is_correct": is_correct}
        return response

    def _bug_response(self, status: str) -> dict[str, Any]:
        bug = BUGS[self.name]
        response: dict[str, Any] = {
            **self.request,
            "name": self.name if self.bug_identified else RANDOM_BUG,
            "result": None,
            "bug_identified": self.bug_identified,
            "line_identified": self.line_identified,
        }
        if self.job is not None and status in ACTIVE_STATUSES:
            response |= self.job.partial
        if self.bug_identified:
            response["title"] = bug.title
        if self.line_identified:
            response |= {"explanation": bug.explanation, "origin": bug.origin}
        if self.result is not None:
            hidden = (
                ()
                if self.line_identified
                else HIDDEN_UNTIL_SOLVED
                if self.bug_identified
                else HIDDEN_UNTIL_IDENTIFIED
            )
            response["result"] = {
                name: value for name, value in self.result.items() if name not in hidden
            }
        return response
