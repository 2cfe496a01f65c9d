"""The measurements of the lessons, as jobs.

A lesson trains the runs of an experiment, which uses runs of its owner with the same settings
again, and is then measured. A bug is trained and evaluated in one job.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict, cast

from playground.errors import UserError
from playground.experiments.service import ExperimentService
from playground.experiments.spec import Experiment
from playground.jobs.admission import Policy, limit
from playground.jobs.executors import ProcessPerJob
from playground.jobs.job import Job, JobStatus, Progress, Response
from playground.jobs.queue import JobQueue
from playground.runs.snapshots import VIEWER_TTL_S
from playground.runs.state import Run

from . import lessons
from .bugs import BUGS, RANDOM_BUG, hint, resolve_bug

MEASUREMENT_TIMEOUT_S = 180.0  # seconds, the timeout of one process
RESULT_TTL_S = 1800.0  # seconds for which a result stays, and a measurement that is not polled
UNPOLLED_TIMEOUT_S = 30.0  # seconds without a poll until a measurement makes way for others
FUNCTIONS = {
    "bug": "playground.lessons.bug_comparison:compare",
    "lesson": "playground.lessons.measurements:measure_lesson",
}
HIDDEN_UNTIL_SOLVED = ("changed_line", "diff")  # until the user identifies the line
HIDDEN_UNTIL_IDENTIFIED = ("source", *HIDDEN_UNTIL_SOLVED)  # until the user identifies the bug


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
        if self.result is not None:
            response["result"] = (
                {**self.result, **self.request, "runs": self.partial["runs"]}
                if self.kind == "lesson"
                else self._bug_result(self.result)
            )
        return response

    def _bug_result(self, result: Response) -> Response:
        hidden: tuple[str, ...] = HIDDEN_UNTIL_IDENTIFIED
        if self.bug_identified:
            hidden = () if self.line_identified else HIDDEN_UNTIL_SOLVED
        bug = BUGS[self.name]
        return {
            **{name: value for name, value in result.items() if name not in hidden},
            **self.request,
            "name": self.name if self.bug_identified else RANDOM_BUG,
            "bug_identified": self.bug_identified,
            "line_identified": self.line_identified,
            "title": bug.title if self.bug_identified else "",
            "explanation": bug.explanation if self.line_identified else "",
            "origin": bug.origin if self.line_identified else "",
        }


class LessonJobs(JobQueue):
    """The measurements of a server. The settings of each lesson override those in `base`."""

    job_type = Measurement

    def __init__(
        self,
        experiments: ExperimentService,
        base: Mapping[str, Any] | None = None,
        pretrained: JobQueue | None = None,
    ) -> None:
        self.experiments, self.base, self.pretrained = experiments, dict(base or {}), pretrained
        self.max_workers = max(1, experiments.registry.settings.slots // 2)
        self._advancing = threading.RLock()
        admission = limit("measurements")
        policy = Policy(
            process="the measurement process",
            advice="stop a run or lower the steps, and measure again",
            max_running=self.max_workers,
            admission=admission,
            run_timeout_s=MEASUREMENT_TIMEOUT_S,
            timeout_advice="lower the steps, or measure again later",
            cancel_message="cancelled; there is no measurement",
            # The measurement of an owner without a page starts after the next poll.
            start_polled_within_s=UNPOLLED_TIMEOUT_S,
            unpolled_timeout_s=RESULT_TTL_S,
            result_ttl_s=RESULT_TTL_S,
            max_results=admission.total,
        )
        executor = ProcessPerJob(FUNCTIONS, reports_progress=True)
        super().__init__(executor, policy, on_done=self._stop_training)

    def submit_lesson(self, name: object, options: object, owner: str) -> Job:
        """Start the training of a lesson, whose measurement follows; or raise UserError."""
        lesson = lessons.find(name)
        chosen_options = lessons.validate_options(lesson, options)
        spec = lessons.experiment(lesson, chosen_options, self.base)
        fields = {"name": name, "request": {"options": chosen_options}, "is_ready": False}
        job = cast(Measurement, self.submit("lesson", owner=owner, **fields))
        try:
            if kind := lesson.pretrained_job:
                if self.pretrained is None:
                    raise UserError("this server has no process for pretrained models")
                model = chosen_options["pretrained"]
                prompt = {"model": model, "text": chosen_options["prompt"]}
                job.pretrained = self.pretrained.submit(kind, prompt, owner=owner, label=model)
            run_names = [f"{lesson.title}: {label}" for label in lesson.runs]
            job.experiment = self.experiments.start_for_lesson(spec.model_dump(), run_names, owner)
        except Exception:  # end what was started before the error
            self.cancel(job)
            raise
        self._advance(job)
        return job

    def submit_bug(
        self, name: object, seed: int, steps: int, owner: str, is_hidden: bool = False
    ) -> Job:
        """Train a buggy and a correct copy. Raises ConfigError or UserError.

        For "random", the seed chooses the bug. `is_hidden` hides a known bug like a random one.
        """
        bug = resolve_bug(name, seed)
        is_hidden = is_hidden or name == RANDOM_BUG
        return self.submit(
            "bug",
            bug,
            seed,
            steps,
            owner=owner,
            name=bug,
            request={"seed": seed, "steps": steps, "is_hidden": is_hidden},
            bug_identified=not is_hidden,
        )

    def poll(self, job_id: object, owner: str, cursor: int = 0) -> Response:
        """Return the state of a measurement; it keeps its runs from idling out."""
        job = self._get(job_id, owner)
        job.polled_at = self._clock()
        if job.pretrained is not None:
            job.pretrained.polled_at = time.monotonic()
        self._advance(job)
        return super().poll(job_id, owner, cursor)

    def submit_guess(
        self,
        job_id: object,
        owner: str,
        bug: object = None,
        line: object = None,
        give_up: bool = False,
    ) -> dict[str, Any]:
        """Check a guess of the bug or of its line (counted from 0), or reveal both.

        Returns the result as the user may now see it, with a hint for a wrong guess.
        """
        job = self._get(job_id, owner)
        if job.kind != "bug" or job.result is None:
            raise UserError("there is no result yet; wait for it, or start again")
        feedback = ""
        if give_up:
            job.bug_identified = job.line_identified = True
        elif bug is not None:
            is_correct = bug == job.name
            job.bug_identified = job.bug_identified or is_correct
            if not is_correct:
                title = BUGS[bug].title if isinstance(bug, str) and bug in BUGS else "that"
                feedback = f"It is not “{title}”. {hint(job.result)}".replace(" %", "\u00a0%")
        elif job.bug_identified and line == job.result["changed_line"]:
            job.line_identified = True
        else:
            feedback = "That line is the same in both copies; another line differs."
        return {"feedback": feedback, "result": job.to_json()["result"]}

    def _get(self, job_id: object, owner: str) -> Measurement:
        return cast(Measurement, self.get(job_id, owner))

    def _advance(self, job: Measurement) -> None:
        """Check the runs of a lesson; when all have ended, queue its measurement."""
        with self._advancing:
            if job.experiment is None or job.is_ready or not job.is_active:
                return
            summary = self.experiments.summary(job.experiment, job.owner)
            runs, trained = self._runs(job), {}
            for label, run in runs.items():
                if problem := _why_ended(run, is_paused=summary["state"] == "paused"):
                    self.fail(job, f"{label}: {problem}; measure again to continue")
                    return
                if run is not None:
                    # Not idle, but not watched either: no page has its weights.
                    run.last_viewed_at = max(run.last_viewed_at, time.monotonic() - VIEWER_TTL_S)
                    if run.status == "done" and not run.has_worker:
                        trained[label] = run
            pretrained, lost = job.pretrained, (JobStatus.FAILED, JobStatus.CANCELLED)
            if pretrained is not None and pretrained.status in lost:
                self.fail(job, pretrained.message)
                return
            self._describe_training(job, {label: run for label, run in runs.items() if run})
            if len(trained) < job.experiment.n_runs:
                return
            if pretrained is None or pretrained.status is JobStatus.DONE:
                self._measure(job, trained)
            else:
                job.message = pretrained.message or "Waiting for the pretrained model"
                job.progress = pretrained.progress

    def _describe_training(self, job: Measurement, runs: Mapping[str, Run]) -> None:
        """Set the progress of a lesson from its runs."""
        scheduler, started = self.experiments.registry.scheduler, runs.values()
        positions = filter(None, map(scheduler.position, started))
        first = min(positions, default=None)
        job.message = "Training" + (f"; queue position {first}" if first else "")
        steps = sum(run.step for run in started), sum(run.steps for run in started)
        job.progress = Progress(*steps, "steps")
        job.partial = {
            "runs": [
                {"label": label, "run": f"run:{run.id}", "steps": run.steps}
                for label, run in runs.items()
            ],
            "curves": [
                {"label": label, "evaluations": [each[:2] for each in points.evaluations]}
                for label, points in ((label, run.load_points()) for label, run in runs.items())
            ],
        }

    def _runs(self, job: Measurement) -> dict[str, Run | None]:
        """Return the runs of a lesson by label; None for a deleted one."""
        experiment = cast(Experiment, job.experiment)
        state = self.experiments.store.state(experiment)
        runs = state.find_runs(self.experiments.registry, job.owner)
        keys = (key for key, *_ in experiment.planned_runs())
        labels = lessons.LESSONS[job.name].runs
        return {label: runs.get(key) for label, key in zip(labels, keys, strict=True)}

    def _measure(self, job: Measurement, trained: Mapping[str, Run]) -> None:
        """Let the measurement of a lesson start whose runs have ended."""
        runs = []
        for label, run in trained.items():
            checkpoints = run.checkpoints()
            if not checkpoints:
                missing = "the run has no readable checkpoint; delete it and measure again"
                self.fail(job, f"{label}: {missing}")
                return
            runs.append([label, str(run.folder), str(checkpoints[0][0])])
        options = job.request["options"]
        if job.pretrained is not None:
            options = options | {"pretrained_result": job.pretrained.result}
        self.release(job, lessons.LESSONS[job.name].measure, options, runs)

    def _stop_training(self, ended: Job) -> None:
        """Stop the runs and the pretrained model of a measurement that ended before its process."""
        job = cast(Measurement, ended)
        with self._advancing:
            if job.pretrained is not None and self.pretrained is not None:
                self.pretrained.cancel(job.pretrained)
            if job.experiment is not None:
                if not job.is_ready:
                    self.experiments.pause(job.experiment, job.owner)
                self.experiments.store.forget(job.experiment)


def _why_ended(run: Run | None, *, is_paused: bool) -> str:
    """Return why a run cannot be measured any more; empty if it can."""
    if run is None:
        return "the run was deleted"
    has_command = run.command_sent_at is not None or run.next_command  # to continue
    if run.status == "failed" or (is_paused and run.status != "done" and not has_command):
        return run.message or f"the run is {run.status}"
    return ""
