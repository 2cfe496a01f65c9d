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

from playground.models.config import SettingError, shown
from playground.runs.addresses import CLIENT_ADDRESS, half_of, holds_share
from playground.runs.processes import Child
from playground.runs.registry import Registry
from playground.runs.run import EMPTIED, Refused, Run, fingerprint
from playground.training.config import RunConfig

from . import tour
from .mistakes import MISTAKES, MYSTERY, STEPS, chosen, clue

log = logging.getLogger(__name__)

AN_OWNER = 2  # active measurements of one owner
IN_ALL = 200
LONGEST = 180.0  # seconds, the timeout of one process
KEPT_FOR = 1800.0  # seconds without a poll until a measurement is deleted
LEFT_AFTER = 30.0  # seconds without a poll until a measurement is inactive
KILLED = (-9, 137)  # exit codes after SIGKILL
UNDER_WAY = ("training", "waiting", "measuring")
HIDDEN = ("changed", "diff")  # hidden until the user identifies the line
MYSTERIOUS = ("source", "unnoticed", *HIDDEN)  # hidden until the user identifies the bug


@dataclass
class Question:
    """A measurement, with its state and its result."""

    id: str
    owner: str  # the owner's fingerprint
    kind: str  # stop or bug
    name: str
    asked: dict[str, Any]
    status: str = "training"  # waiting (for a process), measuring, done, failed, cancelled
    sentence: str = ""
    share: dict[str, Any] = field(
        default_factory=dict
    )  # the latest progress message of its process
    runs: dict[str, Run] = field(default_factory=dict)  # of a lesson, by label
    begun: list[Run] = field(
        default_factory=list
    )  # the runs that this measurement started or resumed
    result: dict[str, Any] | None = None
    child: Child | None = None
    named: bool = False  # for a bug: whether the user identified it
    found: bool = False  # for a bug: whether the user identified its line
    address: str = field(default_factory=CLIENT_ADDRESS.get)  # of the client that made the request
    polled_at: float = field(default_factory=time.monotonic)

    def end(self, status: str, sentence: str = "") -> None:
        if self.status in UNDER_WAY:
            self.status, self.sentence = status, sentence


class Classroom:
    """The service that starts measurements and returns their results as values for JSON.

    `base` contains default settings, which the settings of each lesson override.
    """

    def __init__(self, registry: Registry, base: Mapping[str, Any] | None = None) -> None:
        self.registry, self.base = registry, dict(base or {})
        self.places = max(1, registry.slots // 2)
        self._questions: dict[str, Question] = {}
        self._lock = threading.RLock()
        self._closed = False

    # Starting measurements

    def begin_stop(self, name: object, prediction: object, options: object, owner: str) -> str:
        """Start the measurement of a lesson and return its id.

        Raises:
            SettingError: when the lesson, the prediction or an option is invalid; `field` names it.
            Refused: when the owner has too many active measurements or runs.
        """
        stop = tour.find(name)
        chosen_options = tour.checked_options(stop, options)
        asked = {"prediction": tour.checked_prediction(stop, prediction), "options": chosen_options}
        with self._lock:
            question = self._new("stop", str(name), asked, owner)
            try:
                for label, config in tour.configs(stop, chosen_options, self.base).items():
                    question.runs[label] = self._take_up(
                        question, config, owner, f"{stop.title}: {label}"
                    )
            except Exception:  # stop the runs that were started before the error
                self._stop(question)
                raise
            self._questions[question.id] = question
            self._go_on(question)
        return question.id

    def begin_bug(self, name: object, seed: object, steps: object, owner: str) -> str:
        """Train a buggy and a correct copy, and return the id of the measurement.

        For "mystery", the seed chooses the bug.

        Raises:
            SettingError: when the bug, the seed or the number of steps is invalid.
            Refused: when the owner has too many active measurements.
        """
        if not isinstance(name, str) or name not in (*MISTAKES, MYSTERY):
            raise SettingError(
                "bug", f"bug is {shown(name)}; choose one of {', '.join((*MISTAKES, MYSTERY))}"
            )
        if type(seed) is not int or not 0 <= seed < 2**31:
            raise SettingError(
                "seed", f"seed is {shown(seed)}; it must be a whole number from 0 to 2,147,483,647"
            )
        if type(steps) is not int or not STEPS[0] <= steps <= STEPS[1]:
            raise SettingError(
                "steps",
                f"steps is {shown(steps)}; it must be a whole number from {STEPS[0]} to {STEPS[1]:,}",
            )
        with self._lock:
            question = self._new(
                "bug",
                chosen(name, seed),
                {"seed": seed, "steps": steps, "mystery": name == MYSTERY},
                owner,
            )
            question.named, question.status = name != MYSTERY, "waiting"
            self._questions[question.id] = question
            self._dispatch()
        return question.id

    def _new(self, kind: str, name: str, asked: dict[str, Any], owner: str) -> Question:
        now, mark = time.monotonic(), fingerprint(owner)
        self._questions = {
            key: each
            for key, each in self._questions.items()
            if now - each.polled_at < KEPT_FOR or each.status == "measuring"
        }
        mine = [
            each
            for each in self._questions.values()
            if each.owner == mark and each.status in UNDER_WAY
        ]
        if (
            sum(now - each.polled_at < LEFT_AFTER or each.status == "measuring" for each in mine)
            >= AN_OWNER
        ):
            raise Refused(
                f"{AN_OWNER} of your measurements are still running; wait for one to end, "
                "or cancel it"
            )
        if holds_share((each.address for each in self._questions.values()), IN_ALL):
            self._forget_one(now, CLIENT_ADDRESS.get())
            if holds_share((each.address for each in self._questions.values()), IN_ALL):
                raise Refused(
                    f"your address has {half_of(IN_ALL)} measurements, the maximum; try "
                    "again in a minute"
                )
        if len(self._questions) >= IN_ALL:
            self._forget_one(now)
        if self._closed or len(self._questions) >= IN_ALL:
            raise Refused(
                "this server has reached its limit of measurements; try again in a minute"
            )
        return Question(secrets.token_urlsafe(12), mark, kind, name, asked)

    def _forget_one(self, now: float, address: str = "") -> None:
        """Delete the measurement that has been inactive longest, of one address or of all."""
        left = [
            each
            for each in self._questions.values()
            if each.status != "measuring"
            and now - each.polled_at > LEFT_AFTER
            and address in ("", each.address)
        ]
        if left:
            del self._questions[min(left, key=lambda each: each.polled_at).id]

    def _run_of(self, owner: str, config: RunConfig) -> Run | None:
        """Return a run of the owner with the same settings, preferably a finished one.

        Excluded are failed runs, runs whose settings changed during training, and imported
        checkpoints, whose training is unknown.
        """
        mine = [
            run
            for run in self.registry.of_owner(owner)
            if run.config == config
            and run.deleted_at is None
            and run.status != "failed"
            and not run.changed
            and not run.origin
            and not run.sent
            and (run.status != "done" or run.checkpoints())
            and run.removed != EMPTIED
        ]
        return max(mine, key=lambda run: (run.status == "done", run.created), default=None)

    def _take_up(self, question: Question, config: RunConfig, owner: str, name: str) -> Run:
        """Reuse, resume or start a run with these settings."""
        run = self._run_of(owner, config)
        if run is None:
            run = self.registry.start(config, owner, name=name)
        elif run.status == "stopping":
            raise Refused("the run is still being saved; try again in a moment")
        elif run.status in ("paused", "stopped"):
            self.registry.control(run, "resume")
        else:
            return run
        question.begun.append(run)
        return run

    def _stop(self, question: Question) -> None:
        """Stop the runs that a measurement started."""
        for run in question.begun:
            if run.live or run.status == "waiting":
                with suppress(Refused):  # the registry ends a process that does not respond
                    self.registry.control(run, "stop")

    # Actions of an owner

    def cancel(self, question_id: object, owner: str) -> None:
        """Cancel a measurement. The runs that it started stop and are saved.

        Raises:
            Refused: when this owner has no measurement with this id.
        """
        with self._lock:
            question = self._find(question_id, owner)
            if question.status not in UNDER_WAY:
                return
            question.end("cancelled", "cancelled; there is no measurement")
            self._stop(question)
            if question.child:
                question.child.kill()

    def guess(
        self,
        question_id: object,
        owner: str,
        mistake: object = None,
        line: object = None,
        give_up: bool = False,
    ) -> dict[str, Any]:
        """Check a guess of the bug or of its line (counted from 0), or reveal both.

        The result reports whether the guess is correct, with a hint when it is not.

        Raises:
            Refused: when there is no result yet.
        """
        with self._lock:
            question = self._find(question_id, owner)
            if question.kind != "bug" or question.result is None:
                raise Refused("there is no result yet; wait for it, or start again")
            if give_up:
                question.named = question.found = True
                return {"right": True, "says": ""}
            if mistake is not None:
                right = mistake == question.name
                question.named = question.named or right
                title = (
                    MISTAKES[mistake].title
                    if isinstance(mistake, str) and mistake in MISTAKES
                    else "that"
                )
                return {
                    "right": right,
                    "says": "" if right else f"It is not “{title}”. {clue(question.result)}",
                }
            right = question.named and line == question.result["changed"]
            question.found = question.found or right
            return {
                "right": right,
                "says": ""
                if right
                else "That line is the same in both copies; another line differs.",
            }

    # Responses for a page

    def poll(self, question_id: object, owner: str) -> dict[str, Any]:
        """Return the state of a measurement, and its result when there is one.

        Polling counts as activity and keeps its runs from idling out.

        Raises:
            Refused: when this owner has no measurement with this id.
        """
        with self._lock:
            question = self._find(question_id, owner)
            question.polled_at = time.monotonic()
            if question.status == "training":
                self._go_on(question)
            self._dispatch()
            told = {
                "id": question.id,
                "kind": question.kind,
                "status": question.status,
                "sentence": question.sentence,
            }
            return told | (
                self._of_stop(question) if question.kind == "stop" else self._of_bug(question)
            )

    def _of_stop(self, question: Question) -> dict[str, Any]:
        runs: list[dict[str, Any]] = [
            {
                "label": label,
                "run": f"run:{run.id}",
                "status": run.status,
                "step": run.step,
                "steps": run.steps,
                "place": self.registry.place(run),
            }
            for label, run in question.runs.items()
        ]
        told: dict[str, Any] = {
            "name": question.name,
            **question.asked,
            "runs": runs,
            "result": None,
        }
        told |= {
            "done": sum(run["step"] for run in runs),
            "total": sum(run["steps"] for run in runs),
        }
        if question.status == "training":
            told["curves"] = [
                {"label": label, "scored": [each[:2] for each in run.load().scored]}
                for label, run in question.runs.items()
            ]
        if question.result is not None:
            right = tour.is_right(
                tour.STOPS[question.name], question.asked["prediction"], question.result["answer"]
            )
            told["result"] = question.result | {"right": right}
        return told

    def _of_bug(self, question: Question) -> dict[str, Any]:
        told: dict[str, Any] = {
            **question.asked,
            "name": question.name if question.named else MYSTERY,
            "result": None,
        }
        told |= {"named": question.named, "found": question.found, **question.share}
        if question.named:
            told["title"] = MISTAKES[question.name].title
        if question.found:
            told |= {"why": MISTAKES[question.name].why, "met_in": MISTAKES[question.name].met_in}
        if question.result is not None:
            hidden = () if question.found else HIDDEN if question.named else MYSTERIOUS
            told["result"] = {
                name: value for name, value in question.result.items() if name not in hidden
            }
        return told

    def close(self) -> None:
        """End every measurement process. The registry manages the runs."""
        with self._lock:
            self._closed = True
            for question in self._questions.values():
                question.end("cancelled", "the server is shutting down")
                if question.child:
                    question.child.kill()

    # The following methods require the lock

    def _find(self, question_id: object, owner: str) -> Question:
        found = self._questions.get(question_id) if isinstance(question_id, str) else None
        if (
            found is None
            or not owner
            or not secrets.compare_digest(found.owner, fingerprint(owner))
        ):
            raise Refused("this measurement no longer exists; measure again")
        return found

    def _go_on(self, question: Question) -> None:
        """Check the runs of a lesson; when all have ended, queue its measurement."""
        now = time.monotonic()
        for label, run in question.runs.items():
            run.watched_at = now
            # A command to continue is pending.
            asked_to = run.unanswered is not None or run.wanted
            if (
                run.status == "failed"
                or (run.status in ("stopped", "paused") and not asked_to)
                or run.deleted_at is not None
            ):
                how = run.message or (
                    "the run was deleted"
                    if run.deleted_at is not None
                    else f"the run is {run.status}"
                )
                question.end("failed", f"{label}: {how}; measure again to continue")
        if question.status == "training" and all(
            run.status == "done" and not run.live for run in question.runs.values()
        ):
            question.status = "waiting"
            self._dispatch()

    def _dispatch(self) -> None:
        """Start waiting measurements in order, within the process limit.

        An inactive measurement keeps its position in the queue; it starts after its next poll.
        """
        here = time.monotonic() - LEFT_AFTER
        waiting = [
            each
            for each in self._questions.values()
            if each.status == "waiting" and each.polled_at > here
        ]
        busy = sum(each.child is not None for each in self._questions.values())
        for question in waiting[: max(0, self.places - busy)] if not self._closed else ():
            if question.kind == "bug":
                what: dict[str, Any] = {
                    "name": question.name,
                    "seed": question.asked["seed"],
                    "steps": question.asked["steps"],
                }
            else:
                saved = {label: run.checkpoints() for label, run in question.runs.items()}
                if lost := next((label for label, found in saved.items() if not found), None):
                    question.end(
                        "failed",
                        f"{lost}: the run has no readable checkpoint; delete it and measure again",
                    )
                    continue
                runs = [
                    [label, str(run.folder), str(saved[label][0][0])]
                    for label, run in question.runs.items()
                ]
                what = {
                    "measure": tour.STOPS[question.name].measure,
                    "options": question.asked["options"],
                    "runs": runs,
                }
            self._measure(question, what)

    def _measure(self, question: Question, what: dict[str, Any]) -> None:
        def take(word: str, content: Any) -> None:
            with self._lock:
                if question.status != "measuring":
                    return
                if word == "share":
                    question.share = content
                elif word == "result":
                    question.result, question.share = content, {}
                    question.end("done")
                else:
                    question.end("failed", content)

        def ended(code: int | None) -> None:
            with self._lock:
                timer.cancel()
                question.child = None
                question.end("failed", _why_ended(code, timed_out.is_set()))
                self._dispatch()

        def expire() -> None:
            timed_out.set()
            if child := question.child:
                child.kill()

        timed_out = threading.Event()
        timer = threading.Timer(LONGEST, expire)
        timer.daemon = True
        arguments = ("playground.lessons.work:work", f"lesson-{question.kind}", question.kind, what)
        try:
            timer.start()
            question.child = Child(*arguments, on_message=take, on_end=ended)
        except (OSError, RuntimeError):  # no thread or file descriptor is free
            log.exception("The measurement %s could not be started", question.name)
            timer.cancel()
            question.end("failed", _why_ended(None))
            return
        question.status = "measuring"


def _why_ended(code: int | None, timed_out: bool = False) -> str:
    """Return a message that explains why a process ended without a result."""
    if code is None:
        return "no process could be started on this machine; stop a run and measure again"
    if timed_out:
        return (
            f"the measurement exceeded {LONGEST:.0f} s and was stopped; lower the steps, or "
            "measure again later"
        )
    if code in KILLED:
        killed = (
            "the measurement process was killed, probably because the machine ran out of memory"
        )
        return f"{killed}; stop a run or lower the steps, and measure again"
    return f"the measurement process ended (exit code {code}); measure again"
