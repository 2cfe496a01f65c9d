"""Start the measurements of the lessons.

A lesson trains runs of its owner through the registry, with its queue and its limits, and is then
measured. A lesson reuses runs of the owner that have the same settings. A bug is trained and
evaluated in one job. This module does not import torch.
Threads: all public methods are safe to call from any thread.
"""

import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from playground.errors import BusyError, UserError
from playground.jobs.admission import CLIENT_ADDRESS, Client, limit
from playground.jobs.executors import ProcessPerJob
from playground.jobs.job import Job, JobStatus
from playground.jobs.policy import Policy
from playground.jobs.queue import JobQueue
from playground.runs.record import WEIGHTS_EVICTED, owner_id
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.training.config import RunConfig

from . import lessons
from .bugs import BUGS, RANDOM_BUG, hint, resolve_bug
from .measurement import ACTIVE_STATUSES, Measurement

MEASUREMENT_TIMEOUT_S = 180.0  # seconds, the timeout of one process
RESULT_TTL_S = 1800.0  # seconds without a poll until a measurement is deleted
UNPOLLED_TIMEOUT_S = 30.0  # seconds without a poll until a measurement is inactive


class LessonService:
    """The service that starts measurements and returns their results as values for JSON.

    Args:
        base: default settings, which the settings of each lesson override.
        pretrained: the queue of the jobs with pretrained models; it has the kind "translate".
    """

    def __init__(
        self,
        registry: Registry,
        base: Mapping[str, Any] | None = None,
        pretrained: JobQueue | None = None,
    ) -> None:
        self.registry, self.base, self.pretrained = registry, dict(base or {}), pretrained
        self.max_workers = max(1, registry.settings.slots // 2)
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
        with self._lock:
            measurement = self._new("lesson", str(name), request, owner)
            try:
                if lesson.has_translation:
                    measurement.translation = self._submit_translation(chosen_options, owner)
                for label, config in lessons.configs(lesson, chosen_options, self.base).items():
                    measurement.runs[label] = self._reuse_or_start_run(
                        measurement, config, owner, f"{lesson.title}: {label}"
                    )
            except Exception:  # stop what was started before the error
                self._stop_training(measurement)
                raise
            self._measurements[measurement.id] = measurement
            self._advance(measurement)
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
                self._delete(each)
        admission, address = limit("measurements"), CLIENT_ADDRESS.get()
        active = [
            Client(owner=each.owner)
            for each in self._measurements.values()
            if each.status in ACTIVE_STATUSES
            and (now - each.polled_at < UNPOLLED_TIMEOUT_S or each.status == "measuring")
        ]
        replace(admission, total=None).admit(Client(owner=mark), active)
        present = [Client(each.address) for each in self._measurements.values()]
        if reached := admission.exceeded(Client(address), present):
            self._evict_one(now, address if reached == "address" else "")
            present = [Client(each.address) for each in self._measurements.values()]
        admission.admit(Client(address), present)
        if self._closed:
            raise BusyError("the server is stopping")
        return Measurement(secrets.token_urlsafe(12), mark, kind, name, request)

    def _evict_one(self, now: float, address: str = "") -> None:
        """Delete the measurement that has been inactive longest, of one address or of all."""
        left = [
            each
            for each in self._measurements.values()
            if each.status != "measuring"
            and now - each.polled_at > UNPOLLED_TIMEOUT_S
            and address in ("", each.address)
        ]
        if left:
            self._delete(min(left, key=lambda each: each.polled_at))

    def _delete(self, measurement: Measurement) -> None:
        del self._measurements[measurement.id]
        if measurement.job is not None:
            self.queue.cancel(measurement.job)

    def _find_reusable_run(self, owner: str, config: RunConfig) -> Run | None:
        """Return a run of the owner with the same settings, preferably a finished one.

        Excluded are failed runs, runs whose settings changed during training, and imported
        checkpoints, whose training is unknown.
        """
        owned = [
            run
            for run in self.registry.list_for_owner(owner)
            if run.config == config
            and run.deleted_at is None
            and run.status != "failed"
            and not run.modified_settings
            and not run.branched_from
            and not run.imported
            and (run.status != "done" or run.checkpoints())
            and run.evicted != WEIGHTS_EVICTED
        ]
        return max(owned, key=lambda run: (run.status == "done", run.created), default=None)

    def _reuse_or_start_run(
        self, measurement: Measurement, config: RunConfig, owner: str, name: str
    ) -> Run:
        """Reuse, resume or start a run with these settings."""
        run = self._find_reusable_run(owner, config)
        if run is None:
            run = self.registry.start(config, owner, name=name, origin="lesson")
        elif run.status == "stopping":
            raise UserError("the run is still being saved; try again in a moment")
        elif run.status in ("paused", "stopped"):
            self.registry.control(run, "resume")
        else:
            return run
        measurement.started_runs.append(run)
        return run

    def _submit_translation(self, options: Mapping[str, Any], owner: str) -> Job:
        """Submit the translation of a lesson's sentence by a pretrained model."""
        if self.pretrained is None:
            raise UserError("this server has no process for pretrained models")
        model = options["pretrained"]
        request = {"model": model, "text": options["sentence"]}
        return self.pretrained.submit("translate", request, owner=owner, label=model)

    def _stop_training(self, measurement: Measurement) -> None:
        """Stop the runs that a measurement started, and its translation."""
        if measurement.translation is not None and self.pretrained is not None:
            self.pretrained.cancel(measurement.translation)
        for run in measurement.started_runs:
            if run.has_worker or run.status == "waiting":
                with suppress(UserError):  # the registry ends a process that does not respond
                    self.registry.control(run, "stop")

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
            self._stop_training(measurement)

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
            if measurement.status == "training":
                self._advance(measurement)
            return measurement.to_json(self.registry)

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

    def _advance(self, measurement: Measurement) -> None:
        """Check the runs of a lesson; when all have ended, queue its measurement."""
        now = time.monotonic()
        for label, run in measurement.runs.items():
            run.last_viewed_at = now
            # A command to continue is pending.
            has_command = run.command_sent_at is not None or run.next_command
            if (
                run.status == "failed"
                or (run.status in ("stopped", "paused") and not has_command)
                or run.deleted_at is not None
            ):
                how = run.message or (
                    "the run was deleted"
                    if run.deleted_at is not None
                    else f"the run is {run.status}"
                )
                measurement.end("failed", f"{label}: {how}; measure again to continue")
        translation = measurement.translation
        if translation is not None and translation.status in (
            JobStatus.FAILED,
            JobStatus.CANCELLED,
        ):
            measurement.end("failed", translation.message)
            self._stop_training(measurement)
        is_translated = translation is None or translation.status is JobStatus.DONE
        if (
            measurement.status == "training"
            and is_translated
            and all(
                run.status == "done" and not run.has_worker for run in measurement.runs.values()
            )
        ):
            self._measure(measurement)

    def _measure(self, measurement: Measurement) -> None:
        """Submit the measurement of a lesson whose runs have ended."""
        runs = []
        for label, run in measurement.runs.items():
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
