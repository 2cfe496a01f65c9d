"""Start the measurements of the lessons.

A lesson trains the runs of an experiment, which uses runs of its owner with the same settings
again, and is then measured. A bug is trained and evaluated in one job. This module does not import
torch.
Threads: all public methods are safe to call from any thread.
"""

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from playground.errors import BusyError, UserError
from playground.experiments.service import ExperimentService
from playground.jobs.admission import CLIENT_ADDRESS, Client, limit
from playground.jobs.executors import ProcessPerJob
from playground.jobs.job import Job, JobStatus
from playground.jobs.policy import Policy
from playground.jobs.queue import JobQueue
from playground.runs.record import owner_id
from playground.runs.state import Run

from . import lessons
from .bugs import BUGS, RANDOM_BUG, hint, resolve_bug
from .measurement import ACTIVE_STATUSES, Measurement

MEASUREMENT_TIMEOUT_S = 180.0  # seconds, the timeout of one process
RESULT_TTL_S = 1800.0  # seconds without a poll until a measurement is deleted
UNPOLLED_TIMEOUT_S = 30.0  # seconds without a poll until a measurement is inactive


class LessonService:
    """The service that starts measurements and returns their results as values for JSON.

    Args:
        experiments: the service that trains the runs of lessons.
        base: default settings, which the settings of each lesson override.
        pretrained: the queue of the jobs with pretrained models; it has the kind "translate".
    """

    def __init__(
        self,
        experiments: ExperimentService,
        base: Mapping[str, Any] | None = None,
        pretrained: JobQueue | None = None,
    ) -> None:
        self.experiments, self.base, self.pretrained = experiments, dict(base or {}), pretrained
        self.max_workers = max(1, experiments.registry.settings.slots // 2)
        self.queue = JobQueue(
            ProcessPerJob(
                {
                    "bug": "playground.lessons.tasks:measure_bug",
                    "lesson": "playground.lessons.tasks:measure_lesson",
                },
                reports_progress=True,
            ),
            Policy(
                process="the measurement process",
                advice="stop a run or lower the steps, and measure again",
                max_running=self.max_workers,
                admission=replace(limit("measurements"), per_owner=None),
                run_timeout_s=MEASUREMENT_TIMEOUT_S,
                timeout_advice="lower the steps, or measure again later",
                cancel_message="cancelled; there is no measurement",
                # The measurement of an owner without a page starts after the next poll.
                start_polled_within_s=UNPOLLED_TIMEOUT_S,
            ),
        )
        self._measurements: dict[str, Measurement] = {}
        self._lock = threading.RLock()
        self._closed = False

    # Starting measurements

    def start_lesson(self, name: object, prediction: object, options: object, owner: str) -> str:
        """Start the measurement of a lesson and return its id.

        Raises:
            ConfigError: when the lesson, the prediction or an option is invalid; `field` names it.
            UserError: when the owner has too many active measurements or runs.
        """
        lesson = lessons.find(name)
        chosen_options = lessons.validate_options(lesson, options)
        request = {
            "prediction": lessons.validate_prediction(lesson, prediction),
            "options": chosen_options,
        }
        spec = lessons.experiment(lesson, chosen_options, self.base)
        with self._lock:
            measurement = self._new("lesson", str(name), request, owner)
            try:
                if lesson.has_translation:
                    measurement.translation = self._submit_translation(chosen_options, owner)
                names = [f"{lesson.title}: {label}" for label in lesson.runs]
                measurement.experiment = self.experiments.start_for_lesson(
                    spec.model_dump(), names, owner
                )
            except Exception:  # end what was started before the error
                self._stop_training(measurement, owner)
                raise
            self._measurements[measurement.id] = measurement
            self._advance(measurement, owner)
        return measurement.id

    def start_bug(
        self, name: object, seed: int, steps: int, owner: str, is_hidden: bool = False
    ) -> str:
        """Train a buggy and a correct copy, and return the id of the measurement.

        For "random", the seed chooses the bug. `is_hidden` hides a known bug like a random one.

        Raises:
            ConfigError: when no bug has this name.
            UserError: when the owner has too many active measurements.
        """
        bug = resolve_bug(name, seed)
        is_hidden = is_hidden or name == RANDOM_BUG
        request = {"seed": seed, "steps": steps, "is_hidden": is_hidden}
        with self._lock:
            measurement = self._new("bug", bug, request, owner)
            measurement.bug_identified = not is_hidden
            self._submit(measurement, measurement.name, seed, steps)
            self._measurements[measurement.id] = measurement
        return measurement.id

    def _new(self, kind: str, name: str, request: dict[str, Any], owner: str) -> Measurement:
        now, mark = time.monotonic(), owner_id(owner)
        for each in list(self._measurements.values()):
            if now - each.polled_at >= RESULT_TTL_S and each.status != "measuring":
                self._delete(each.id)
        admission, present = limit("measurements"), list(self._measurements.values())
        active = [
            Client(owner=each.owner)
            for each in present
            if each.status in ACTIVE_STATUSES
            and (now - each.polled_at < UNPOLLED_TIMEOUT_S or each.status == "measuring")
        ]
        replace(admission, total=None).admit(Client(owner=mark), active)
        abandoned = (
            each.id
            for each in sorted(present, key=lambda each: each.polled_at)
            if each.status != "measuring" and now - each.polled_at > UNPOLLED_TIMEOUT_S
        )
        admission.admit_or_evict(
            Client(CLIENT_ADDRESS.get()),
            {each.id: Client(each.address) for each in present},
            abandoned,
            self._delete,
        )
        if self._closed:
            raise BusyError("the server is stopping")
        return Measurement(secrets.token_urlsafe(12), mark, kind, name, request)

    def _delete(self, measurement_id: str) -> int:
        measurement = self._measurements.pop(measurement_id)
        if measurement.experiment is not None:
            self.experiments.forget(measurement.experiment)
        if measurement.job is not None:
            self.queue.cancel(measurement.job)
        return 1

    def _submit_translation(self, options: Mapping[str, Any], owner: str) -> Job:
        """Submit the translation of a lesson's sentence by a pretrained model."""
        if self.pretrained is None:
            raise UserError("this server has no process for pretrained models")
        model = options["pretrained"]
        request = {"model": model, "text": options["sentence"]}
        return self.pretrained.submit("translate", request, owner=owner, label=model)

    def _stop_training(self, measurement: Measurement, owner: str) -> None:
        """Stop the runs of a measurement, and its translation."""
        if measurement.translation is not None and self.pretrained is not None:
            self.pretrained.cancel(measurement.translation)
        if measurement.experiment is not None:
            self.experiments.pause(measurement.experiment, owner)

    # Actions of an owner

    def cancel(self, measurement_id: object, owner: str) -> None:
        """Cancel a measurement. The runs that it started stop and are saved.

        Raises:
            UserError: when this owner has no measurement with this id.
        """
        with self._lock:
            measurement = self._find(measurement_id, owner)
            if measurement.status not in ACTIVE_STATUSES:
                return
            if measurement.job is not None:
                self.queue.cancel(measurement.job)
            else:
                measurement.end("cancelled", "cancelled; there is no measurement")
            self._stop_training(measurement, owner)

    def submit_guess(
        self,
        measurement_id: object,
        owner: str,
        bug: object = None,
        line: object = None,
        give_up: bool = False,
    ) -> dict[str, Any]:
        """Check a guess of the bug or of its line (counted from 0), or reveal both.

        The result reports whether the guess is correct, with a hint when it is not.

        Raises:
            UserError: when there is no result yet.
        """
        with self._lock:
            measurement = self._find(measurement_id, owner)
            if measurement.kind != "bug" or measurement.result is None:
                raise UserError("there is no result yet; wait for it, or start again")
            if give_up:
                measurement.bug_identified = measurement.line_identified = True
                return {"is_correct": True, "feedback": ""}
            if bug is not None:
                is_correct = bug == measurement.name
                clue = hint(measurement.result).replace(" %", "\u00a0%")
                measurement.bug_identified = measurement.bug_identified or is_correct
                title = BUGS[bug].title if isinstance(bug, str) and bug in BUGS else "that"
                return {
                    "is_correct": is_correct,
                    "feedback": "" if is_correct else f"It is not “{title}”. {clue}",
                }
            is_correct = measurement.bug_identified and line == measurement.result["changed_line"]
            measurement.line_identified = measurement.line_identified or is_correct
            return {
                "is_correct": is_correct,
                "feedback": ""
                if is_correct
                else "That line is the same in both copies; another line differs.",
            }

    # Responses for a page

    def poll(self, measurement_id: object, owner: str) -> dict[str, Any]:
        """Return the state of a measurement, and its result when there is one.

        Polling counts as activity and keeps its runs from idling out.

        Raises:
            UserError: when this owner has no measurement with this id.
        """
        with self._lock:
            measurement = self._find(measurement_id, owner)
            measurement.touch()
            self._advance(measurement, owner)
            runs = {label: run for label, run in self._runs(measurement, owner).items() if run}
            return measurement.to_json(runs, self.experiments.registry.scheduler)

    def close(self) -> None:
        """End every measurement process. The registry manages the runs."""
        with self._lock:
            self._closed = True
            for measurement in self._measurements.values():
                if measurement.job is None:
                    measurement.end("cancelled", "the server is shutting down")
        self.queue.close()

    # The following methods require the lock

    def _find(self, measurement_id: object, owner: str) -> Measurement:
        measurement = (
            self._measurements.get(measurement_id) if isinstance(measurement_id, str) else None
        )
        if (
            measurement is None
            or not owner
            or not secrets.compare_digest(measurement.owner, owner_id(owner))
        ):
            raise UserError("this measurement no longer exists; measure again")
        return measurement

    def _advance(self, measurement: Measurement, owner: str) -> None:
        """Check the runs of a lesson; when all have ended, queue its measurement."""
        if measurement.experiment is None or measurement.status != "training":
            return
        is_paused = self.experiments.summary(measurement.experiment, owner)["state"] == "paused"
        trained = {}
        for label, run in self._runs(measurement, owner).items():
            if problem := _why_ended(run, is_paused=is_paused):
                measurement.end("failed", f"{label}: {problem}; measure again to continue")
            elif run is not None:
                run.last_viewed_at = time.monotonic()
                if run.status == "done" and not run.has_worker:
                    trained[label] = run
        translation = measurement.translation
        if translation is not None and translation.status in (
            JobStatus.FAILED,
            JobStatus.CANCELLED,
        ):
            measurement.end("failed", translation.message)
        if measurement.status == "failed":
            self._stop_training(measurement, owner)
        elif len(trained) == measurement.experiment.n_runs and (
            translation is None or translation.status is JobStatus.DONE
        ):
            self._measure(measurement, trained)

    def _runs(self, measurement: Measurement, owner: str) -> dict[str, Run | None]:
        """Return the runs of a lesson by label; None for a deleted one."""
        experiment = measurement.experiment
        if experiment is None:
            return {}
        runs = self.experiments.store.state(experiment).find_runs(self.experiments.registry, owner)
        keys = (key for key, *_ in experiment.planned_runs())
        labels = lessons.LESSONS[measurement.name].runs
        return {label: runs.get(key) for label, key in zip(labels, keys, strict=True)}

    def _measure(self, measurement: Measurement, trained: Mapping[str, Run]) -> None:
        """Submit the measurement of a lesson whose runs have ended."""
        runs = []
        for label, run in trained.items():
            checkpoints = run.checkpoints()
            if not checkpoints:
                measurement.end(
                    "failed",
                    f"{label}: the run has no readable checkpoint; delete it and measure again",
                )
                return
            runs.append([label, str(run.folder), str(checkpoints[0][0])])
        measure, options = lessons.LESSONS[measurement.name].measure, measurement.request["options"]
        if measurement.translation is not None:
            options = options | {"translation": measurement.translation.result}
        try:
            self._submit(measurement, measure, options, runs)
        except UserError as error:
            measurement.end("failed", str(error))

    def _submit(self, measurement: Measurement, *arguments: Any) -> None:
        measurement.job = self.queue.submit(
            measurement.kind, *arguments, owner=measurement.owner, address=measurement.address
        )


def _why_ended(run: Run | None, *, is_paused: bool) -> str:
    """Return why a run cannot be measured any more; empty if it can."""
    if run is None:
        return "the run was deleted"
    has_command = run.command_sent_at is not None or run.next_command  # to continue
    if run.status == "failed" or (is_paused and run.status != "done" and not has_command):
        return run.message or f"the run is {run.status}"
    return ""
