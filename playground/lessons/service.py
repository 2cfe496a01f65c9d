"""Queue and run the measurements of the lessons.

A lesson trains runs of its owner through the registry, with its queue and its limits, and is then
measured. A bug is trained and evaluated in a separate process. The number of measurement processes
is limited; each has a timeout and ends at once when its owner cancels. A lesson reuses runs of the
owner that have the same settings. This module does not import torch.
Threads: all public methods are safe to call from any thread.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from playground.errors import UserError
from playground.jobs.addresses import CLIENT_ADDRESS, max_per_address, uses_full_share
from playground.jobs.process import WorkerProcess
from playground.models.config_fields import ConfigError, short_repr
from playground.runs.record import WEIGHTS_EVICTED, owner_id
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.training.config import RunConfig

from . import lessons
from .bugs import BUGS, RANDOM_BUG, STEPS_RANGE, hint, resolve_bug

log = logging.getLogger(__name__)

MAX_PER_OWNER = 2  # active measurements of one owner
MAX_TOTAL = 200
MEASUREMENT_TIMEOUT_S = 180.0  # seconds, the timeout of one process
RESULT_TTL_S = 1800.0  # seconds without a poll until a measurement is deleted
UNPOLLED_TIMEOUT_S = 30.0  # seconds without a poll until a measurement is inactive
KILLED_EXIT_CODES = (-9, 137)  # exit codes after SIGKILL
ACTIVE_STATUSES = ("training", "waiting", "measuring")
HIDDEN_UNTIL_SOLVED = ("changed", "diff")  # hidden until the user identifies the line
# hidden until the user identifies the bug
HIDDEN_UNTIL_IDENTIFIED = ("source", "unnoticed", *HIDDEN_UNTIL_SOLVED)


@dataclass
class Measurement:
    """A measurement, with its state and its result."""

    id: str
    owner: str  # the owner's fingerprint
    kind: str  # stop or bug
    name: str
    request: dict[str, Any]
    status: str = "training"  # waiting (for a process), measuring, done, failed, cancelled
    message: str = ""
    # the latest progress message of its process
    progress: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)  # of a lesson, by label
    # the runs that this measurement started or resumed
    started_runs: list[Run] = field(default_factory=list)
    result: dict[str, Any] | None = None
    process: WorkerProcess | None = None
    bug_identified: bool = False  # for a bug: whether the user identified it
    line_identified: bool = False  # for a bug: whether the user identified its line
    address: str = field(default_factory=CLIENT_ADDRESS.get)  # of the client that made the request
    polled_at: float = field(default_factory=time.monotonic)

    def finish(self, status: str, message: str = "") -> None:
        if self.status in ACTIVE_STATUSES:
            self.status, self.message = status, message


class LessonService:
    """The service that starts measurements and returns their results as values for JSON.

    `base` contains default settings, which the settings of each lesson override.
    """

    def __init__(self, registry: Registry, base: Mapping[str, Any] | None = None) -> None:
        self.registry, self.base = registry, dict(base or {})
        self.max_workers = max(1, registry.settings.slots // 2)
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
            measurement = self._new("stop", str(name), request, owner)
            try:
                for label, config in lessons.configs(lesson, chosen_options, self.base).items():
                    measurement.runs[label] = self._reuse_or_start_run(
                        measurement, config, owner, f"{lesson.title}: {label}"
                    )
            except Exception:  # stop the runs that were started before the error
                self._stop_runs(measurement)
                raise
            self._measurements[measurement.id] = measurement
            self._advance(measurement)
        return measurement.id

    def start_bug(self, name: object, seed: object, steps: object, owner: str) -> str:
        """Train a buggy and a correct copy, and return the id of the measurement.

        For "mystery", the seed chooses the bug.

        Raises:
            ConfigError: when the bug, the seed or the number of steps is invalid.
            UserError: when the owner has too many active measurements.
        """
        if not isinstance(name, str) or name not in (*BUGS, RANDOM_BUG):
            raise ConfigError(
                "bug", f"bug is {short_repr(name)}; choose one of {', '.join((*BUGS, RANDOM_BUG))}"
            )
        if type(seed) is not int or not 0 <= seed < 2**31:
            raise ConfigError(
                "seed",
                f"seed is {short_repr(seed)}; it must be a whole number from 0 to 2,147,483,647",
            )
        if type(steps) is not int or not STEPS_RANGE[0] <= steps <= STEPS_RANGE[1]:
            raise ConfigError(
                "steps",
                f"steps is {short_repr(steps)}; it must be a whole number from {STEPS_RANGE[0]} to "
                f"{STEPS_RANGE[1]:,}",
            )
        with self._lock:
            measurement = self._new(
                "bug",
                resolve_bug(name, seed),
                {"seed": seed, "steps": steps, "mystery": name == RANDOM_BUG},
                owner,
            )
            measurement.bug_identified, measurement.status = name != RANDOM_BUG, "waiting"
            self._measurements[measurement.id] = measurement
            self._schedule()
        return measurement.id

    def _new(self, kind: str, name: str, request: dict[str, Any], owner: str) -> Measurement:
        now, mark = time.monotonic(), owner_id(owner)
        self._measurements = {
            key: each
            for key, each in self._measurements.items()
            if now - each.polled_at < RESULT_TTL_S or each.status == "measuring"
        }
        owned = [
            each
            for each in self._measurements.values()
            if each.owner == mark and each.status in ACTIVE_STATUSES
        ]
        if (
            sum(
                now - each.polled_at < UNPOLLED_TIMEOUT_S or each.status == "measuring"
                for each in owned
            )
            >= MAX_PER_OWNER
        ):
            raise UserError(
                f"{MAX_PER_OWNER} of your measurements are still running; wait for one to end, "
                "or cancel it"
            )
        if uses_full_share((each.address for each in self._measurements.values()), MAX_TOTAL):
            self._evict_one(now, CLIENT_ADDRESS.get())
            if uses_full_share((each.address for each in self._measurements.values()), MAX_TOTAL):
                raise UserError(
                    f"your address has {max_per_address(MAX_TOTAL)} measurements, the maximum; try "
                    "again in a minute"
                )
        if len(self._measurements) >= MAX_TOTAL:
            self._evict_one(now)
        if self._closed or len(self._measurements) >= MAX_TOTAL:
            raise UserError(
                "this server has reached its limit of measurements; try again in a minute"
            )
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
            del self._measurements[min(left, key=lambda each: each.polled_at).id]

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
            run = self.registry.start(config, owner, name=name)
        elif run.status == "stopping":
            raise UserError("the run is still being saved; try again in a moment")
        elif run.status in ("paused", "stopped"):
            self.registry.control(run, "resume")
        else:
            return run
        measurement.started_runs.append(run)
        return run

    def _stop_runs(self, measurement: Measurement) -> None:
        """Stop the runs that a measurement started."""
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
            measurement.finish("cancelled", "cancelled; there is no measurement")
            self._stop_runs(measurement)
            if measurement.process:
                measurement.process.kill()

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
                return {"right": True, "feedback": ""}
            if bug is not None:
                right = bug == measurement.name
                measurement.bug_identified = measurement.bug_identified or right
                title = BUGS[bug].title if isinstance(bug, str) and bug in BUGS else "that"
                return {
                    "right": right,
                    "feedback": "" if right else f"It is not “{title}”. {hint(measurement.result)}",
                }
            right = measurement.bug_identified and line == measurement.result["changed"]
            measurement.line_identified = measurement.line_identified or right
            return {
                "right": right,
                "feedback": ""
                if right
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
            measurement.polled_at = time.monotonic()
            if measurement.status == "training":
                self._advance(measurement)
            self._schedule()
            response = {
                "id": measurement.id,
                "kind": measurement.kind,
                "status": measurement.status,
                "message": measurement.message,
            }
            return response | (
                self._lesson_response(measurement)
                if measurement.kind == "stop"
                else self._bug_response(measurement)
            )

    def _lesson_response(self, measurement: Measurement) -> dict[str, Any]:
        runs: list[dict[str, Any]] = [
            {
                "label": label,
                "run": f"run:{run.id}",
                "status": run.status,
                "step": run.step,
                "steps": run.steps,
                "queue_position": self.registry.scheduler.position(run),
            }
            for label, run in measurement.runs.items()
        ]
        response: dict[str, Any] = {
            "name": measurement.name,
            **measurement.request,
            "runs": runs,
            "result": None,
        }
        response |= {
            "done": sum(run["step"] for run in runs),
            "total": sum(run["steps"] for run in runs),
        }
        if measurement.status == "training":
            response["curves"] = [
                {
                    "label": label,
                    "evaluations": [each[:2] for each in run.load_points().evaluations],
                }
                for label, run in measurement.runs.items()
            ]
        if measurement.result is not None:
            right = lessons.is_correct(
                lessons.LESSONS[measurement.name],
                measurement.request["prediction"],
                measurement.result["answer"],
            )
            response["result"] = measurement.result | {"right": right}
        return response

    def _bug_response(self, measurement: Measurement) -> dict[str, Any]:
        response: dict[str, Any] = {
            **measurement.request,
            "name": measurement.name if measurement.bug_identified else RANDOM_BUG,
            "result": None,
        }
        response |= {
            "bug_identified": measurement.bug_identified,
            "line_identified": measurement.line_identified,
            **measurement.progress,
        }
        if measurement.bug_identified:
            response["title"] = BUGS[measurement.name].title
        if measurement.line_identified:
            response |= {
                "why": BUGS[measurement.name].why,
                "met_in": BUGS[measurement.name].source,
            }
        if measurement.result is not None:
            hidden = (
                ()
                if measurement.line_identified
                else HIDDEN_UNTIL_SOLVED
                if measurement.bug_identified
                else HIDDEN_UNTIL_IDENTIFIED
            )
            response["result"] = {
                name: value for name, value in measurement.result.items() if name not in hidden
            }
        return response

    def close(self) -> None:
        """End every measurement process. The registry manages the runs."""
        with self._lock:
            self._closed = True
            for measurement in self._measurements.values():
                measurement.finish("cancelled", "the server is shutting down")
                if measurement.process:
                    measurement.process.kill()

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
                measurement.finish("failed", f"{label}: {how}; measure again to continue")
        if measurement.status == "training" and all(
            run.status == "done" and not run.has_worker for run in measurement.runs.values()
        ):
            measurement.status = "waiting"
            self._schedule()

    def _schedule(self) -> None:
        """Start waiting measurements in order, within the process limit.

        An inactive measurement keeps its position in the queue; it starts after its next poll.
        """
        here = time.monotonic() - UNPOLLED_TIMEOUT_S
        waiting = [
            each
            for each in self._measurements.values()
            if each.status == "waiting" and each.polled_at > here
        ]
        busy = sum(each.process is not None for each in self._measurements.values())
        for measurement in waiting[: max(0, self.max_workers - busy)] if not self._closed else ():
            if measurement.kind == "bug":
                what: dict[str, Any] = {
                    "name": measurement.name,
                    "seed": measurement.request["seed"],
                    "steps": measurement.request["steps"],
                }
            else:
                saved = {label: run.checkpoints() for label, run in measurement.runs.items()}
                if lost := next(
                    (label for label, checkpoint in saved.items() if not checkpoint), None
                ):
                    measurement.finish(
                        "failed",
                        f"{lost}: the run has no readable checkpoint; delete it and measure again",
                    )
                    continue
                runs = [
                    [label, str(run.folder), str(saved[label][0][0])]
                    for label, run in measurement.runs.items()
                ]
                what = {
                    "measure": lessons.LESSONS[measurement.name].measure,
                    "options": measurement.request["options"],
                    "runs": runs,
                }
            self._measure(measurement, what)

    def _measure(self, measurement: Measurement, request: dict[str, Any]) -> None:
        def take(word: str, content: Any) -> None:
            with self._lock:
                if measurement.status != "measuring":
                    return
                if word == "share":
                    measurement.progress = content
                elif word == "result":
                    measurement.result, measurement.progress = content, {}
                    measurement.finish("done")
                else:
                    measurement.finish("failed", content)

        def ended(code: int | None) -> None:
            with self._lock:
                timer.cancel()
                measurement.process = None
                measurement.finish("failed", _exit_reason(code, timed_out.is_set()))
                self._schedule()

        def expire() -> None:
            timed_out.set()
            if child := measurement.process:
                child.kill()

        timed_out = threading.Event()
        timer = threading.Timer(MEASUREMENT_TIMEOUT_S, expire)
        timer.daemon = True
        arguments = (
            "playground.lessons.tasks:main",
            f"lesson-{measurement.kind}",
            measurement.kind,
            request,
        )
        try:
            timer.start()
            measurement.process = WorkerProcess(*arguments, on_message=take, on_exit=ended)
        except (OSError, RuntimeError):  # no thread or file descriptor is free
            log.exception("The measurement %s could not be started", measurement.name)
            timer.cancel()
            measurement.finish("failed", _exit_reason(None))
            return
        measurement.status = "measuring"


def _exit_reason(code: int | None, timed_out: bool = False) -> str:
    """Return a message that explains why a process ended without a result."""
    if code is None:
        return "no process could be started on this machine; stop a run and measure again"
    if timed_out:
        return (
            f"the measurement exceeded {MEASUREMENT_TIMEOUT_S:.0f} s and was stopped; lower the "
            "steps, or measure again later"
        )
    if code in KILLED_EXIT_CODES:
        killed = (
            "the measurement process was killed, probably because the machine ran out of memory"
        )
        return f"{killed}; stop a run or lower the steps, and measure again"
    return f"the measurement process ended (exit code {code}); measure again"
