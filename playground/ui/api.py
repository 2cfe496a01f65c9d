"""Serve the public API: endpoints for gradio_client, plain HTTP and MCP.

MCP needs `gradio[mcp]`. Each endpoint calls a handler of the page (asked.py), so one place decides
what a caller may read and do.

Ownership: `start` returns the run's id and a random owner key; a caller with both may control the
run. A `model` is a run's id (with its owner key), `watch:ID` from a share link, or
`checkpoint:NAME`. On a local instance, a missing key means its single owner.

Gradio reads names, types and descriptions from the signatures and docstrings below. It cannot read
them with `from __future__ import annotations`, and it reads one line per argument. Arguments arrive
unvalidated. No endpoint uses Gradio's queue, because the buttons of the page use it.
"""

import asyncio
import base64
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from importlib.util import find_spec
from typing import Any, Literal

import gradio as gr
from starlette.requests import Request

from playground.comparison.sheet import standing
from playground.families import FAMILIES
from playground.models.config import SettingError, shown
from playground.runs.registry import CLIENT_ADDRESS, Registry
from playground.runs.run import WORKING, Refused
from playground.statistics import wilson
from playground.tasks import ROWS, TASKS
from playground.training.config import RunConfig, field_owner, setting_of
from playground.training.devices import ZERO, on_zero
from playground.training.environment import env_number
from playground.training.manifest import CheckpointError
from playground.training.presets import PRESETS, family_config, preset_config

from .asked import Answerer
from .form import of_rows
from .hub import on_a_space
from .limits import Limits, Places, client_of
from .live import answer_of
from .origin import is_own_origin
from .subject import CHECKPOINT, RUN, WATCH, checkpoint_folder, client_on_show, run_on_show
from .visit import OWNER, new_owner

SETTLED_WITHIN = 10.0  # seconds to wait for pause, resume and stop to take effect
LONGEST_WAIT = 240.0  # maximum wait of compare, push and job, in seconds
POLLED_EVERY = 0.25
MOST_EVALUATED = 2000  # held-out sequences
EVALUATED_WITHIN = 280.0  # seconds
MOST_WEIGHTS = 200_000  # weights in one response
LOOKS_AT_ONCE = 4
WAITS_OF_A_CLIENT, WAITS_IN_ALL = 8, 64  # waiting calls per client and in total
LONGEST_NAME = 200
COMPARE, PUSH = "compare:", "push:"  # prefixes of job ids
SETTLED = {
    "pause": lambda status: status not in (*WORKING, "waiting"),
    "resume": lambda status: status not in ("paused", "stopped", "failed"),
    "stop": lambda status: status not in (*WORKING, "waiting", "paused"),
}


def has_mcp() -> bool:
    """Return whether the endpoints can be served as MCP tools."""
    return find_spec("mcp") is not None


class Endpoints:
    """The endpoints over a registry and the handlers of the page.

    Args:
        answers: the handlers of the page by name.
        opened: whether the instance is shared, so calls are limited.
    """

    def __init__(self, registry: Registry, answers: Mapping[str, Answerer], opened: bool) -> None:
        self.registry, self.answers = registry, answers
        self.limits = Limits.from_environment(opened)
        self.waiting = Counter[str]()  # waiting calls by client
        self.looking = Places(LOOKS_AT_ONCE, 4 * LOOKS_AT_ONCE)
        self.evaluating = Places(int(env_number("API_MAX_CONCURRENT")))  # for all clients

    def place(self) -> None:
        """Add the endpoints to the page under construction."""
        if has_mcp():
            from . import mcp_server

            mcp_server.install()
        for endpoint in (
            self.settings,
            self.models,
            self.start,
            self.status,
            self.pause,
            self.resume,
            self.stop,
            self.predict,
            self.attention,
            self.evaluate,
            self.compare,
            self.push,
            self.job,
            self.cancel,
        ):
            gr.api(_in_words(endpoint), api_name=endpoint.__name__, queue=False)

    # Settings and models

    async def settings(self, request: gr.Request = None) -> dict[str, Any]:
        """List tasks, presets, architectures, and all settings of a run.

        Returns:
            tasks, presets and families with descriptions; settings with defaults.
        """
        self._counted(request)
        return {
            "tasks": {
                name: f"{task.sentence} {' -> '.join(task.example)}" for name, task in TASKS.items()
            },
            "presets": {name: preset.sentence for name, preset in PRESETS.items()},
            "families": {name: family.sentence for name, family in FAMILIES.items()},
            "settings": {
                name: {
                    "default": setting_of(name).default,
                    "choices": list(setting_of(name).metadata["choices"] or []),
                    "meaning": setting_of(name).metadata["help"],
                    "part": part,
                }
                for name, part in field_owner().items()
                if "help" in setting_of(name).metadata
            },
        }

    async def models(self, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """List the available models: public checkpoints and the runs of an owner.

        Args:
            owner: the key that start returned; without it, checkpoints only.

        Returns:
            checkpoints and runs: model name, task, parameters, and best exact match (0 to 1).
        """
        self._counted(request)
        told = await self._asked("runs", {"owner": self._owner(owner)}, request)
        runs = [
            row | {"model": row["subject"].removeprefix(RUN)}
            for row in told["runs"]
            if not row["deleted"]
        ]
        return {
            "checkpoints": [
                _without(row | {"model": row["subject"]}, "subject") for row in told["checkpoints"]
            ],
            "runs": [_without(row, "subject", "hidden", "deleted") for row in runs],
        }

    # Runs

    async def start(
        self,
        settings: dict[str, Any] | None = None,
        preset: str = "",
        name: str = "",
        owner: str = "",
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Start training a small transformer from scratch.

        It trains in the background; status returns its progress. An idle run saves and pauses.

        Args:
            settings: non-default settings by name, such as {"task": "reverse", "steps": 300}.
            preset: a name from the settings endpoint; the default is fast.
            name: the name of the run.
            owner: the key of an earlier start, for the same owner; without it, a new key.

        Returns:
            run: id; owner: secret key; watch: read-only model name; status, steps, parameters.
        """
        self._counted(request, "starts")
        key = self._owner(owner) or new_owner()
        try:
            given = _dictionary("settings", settings)
            given |= of_rows(given) if given.get("task") == ROWS else {}
            label = _text("name", name)
            config = _config(given, _text("preset", preset))
            if config.training.device == ZERO and on_zero():
                raise Refused(
                    "device is 'zero', but ZeroGPU needs an open page; use device auto or cpu"
                )
            run = await asyncio.to_thread(
                self.registry.start, config, key, name=" ".join(label.split())
            )
        except (Refused, ValueError, TypeError) as error:
            raise Refused(f"not started: {error}") from None
        return {
            "run": run.id,
            "owner": key,
            "watch": WATCH + run.watch_id,
            "name": run.name,
            "status": run.status,
            "steps": run.steps,
            "parameters": config.model.parameter_count(),
        }

    async def status(
        self, model: str, owner: str = "", curve: bool = False, request: gr.Request = None
    ) -> dict[str, Any]:
        """Return the status of a run or checkpoint, with loss and exact match.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            owner: the key that start returned, for a run's id.
            curve: whether to add loss and scores by step, at most about 3000 points.

        Returns:
            status, message (on an error), the latest exact_match (0 to 1), final scores by length.
        """
        self._counted(request)
        return await self._status(self._subject(model, owner), curve is True, request)

    async def pause(self, run: str, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """Pause a run after its current step, and save a checkpoint.

        Args:
            run: the run's id.
            owner: the key that start returned.

        Returns:
            as status.
        """
        return await self._steered(run, owner, "pause", request)

    async def resume(self, run: str, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """Resume a paused, stopped or failed run from its last state or checkpoint.

        Args:
            run: the run's id.
            owner: the key that start returned.

        Returns:
            as status.
        """
        return await self._steered(run, owner, "resume", request)

    async def stop(self, run: str, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """Stop a run after saving a checkpoint; it can be used and resumed afterwards.

        Args:
            run: the run's id.
            owner: the key that start returned.

        Returns:
            as status.
        """
        return await self._steered(run, owner, "stop", request)

    # Inference

    async def predict(
        self, model: str, sequence: str, owner: str = "", step: int = -1, request: gr.Request = None
    ) -> dict[str, Any]:
        """Generate a model's answer to a sequence, free-running, one token at a time.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            sequence: tokens of the model's task, such as "3 1 4".
            owner: the key that start returned, for a run's id.
            step: use the recorded weights nearest to this step of a run; -1 for the latest.

        Returns:
            given: generated tokens; answer: target or null; right: whether they match; note.
        """
        self._counted(request)
        what = self._subject(model, owner) | {"text": _text("sequence", sequence, 2000)} | _at(step)
        async with self.looking.one():
            return await self._asked("try", what, request)

    async def attention(
        self,
        model: str,
        sequence: str,
        kind: Literal["cross", "encoder", "decoder"] = "cross",
        layer: int = -1,
        head: int = -1,
        owner: str = "",
        step: int = -1,
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Return the attention weights of a model while it generates its answer.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            sequence: tokens of the model's task, such as "3 1 4".
            kind: cross (target to source), encoder (source only) or decoder (target only).
            layer: a layer index from 0; -1 for all.
            head: a head index from 0; -1 for all.
            owner: the key that start returned, for a run's id.
            step: use the recorded weights nearest to this step of a run; -1 for the latest.

        Returns:
            weights[layer][head][row][column], rounded to 0.001; tokens of rows and columns.
        """
        self._counted(request)
        what = (
            self._subject(model, owner)
            | {"text": _text("sequence", sequence, 2000), "view": "attention"}
            | _at(step)
        )
        async with self.looking.one():
            told = await self._asked("inspect", what | {"options": {"kind": kind}}, request)
        layers = _chosen("layer", layer, told["layers"])
        heads = _chosen("head", head, told["heads"])
        rows, columns = len(told["rows"]), len(told["columns"])
        if len(layers) * len(heads) * rows * columns > MOST_WEIGHTS:
            raise Refused(
                f"the response exceeds {MOST_WEIGHTS:,} weights; request one layer or one head"
            )
        thousandths = array("h", base64.b64decode(told["weights"]))

        def row(of_layer: int, of_head: int, at: int) -> list[float]:
            first = ((of_layer * told["heads"] + of_head) * rows + at) * columns
            return [weight / 1000 for weight in thousandths[first : first + columns]]

        return {
            "kind": told["kind"],
            "layers": layers,
            "heads": heads,
            "rows": told["rows"],
            "columns": told["columns"],
            "weights": [[[row(i, j, at) for at in range(rows)] for j in heads] for i in layers],
            "written": told["written"],
            "answer": told["answer"],
            "step": told.get("step"),
            "note": told["note"],
        }

    async def evaluate(
        self, model: str, n: int = 500, owner: str = "", step: int = -1, request: gr.Request = None
    ) -> dict[str, Any]:
        """Evaluate a model on held-out sequences with free-running decoding.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            n: number of sequences, from 1 to 2000, spread over the training lengths.
            owner: the key that start returned, for a run's id.
            step: use the recorded weights nearest to this step of a run; -1 for the latest.

        Returns:
            n, exact_match and token_accuracy (0 to 1), interval (95 %), by_length, step.
        """
        self._counted(request, "heavy")
        subject, wanted = self._subject(model, owner), _number("n", n, 1, MOST_EVALUATED)
        run, own = run_on_show(self.registry, subject)
        at = _at(step).get("step")
        what = run or checkpoint_folder(self.registry, subject)
        if what is None:
            raise Refused(_gone(model))
        client = client_on_show(subject, own, _request(request))
        async with self.evaluating.one():
            told = await answer_of(
                await asyncio.to_thread(self.registry.evaluate, what, wanted, at, client),
                EVALUATED_WITHIN,
            )
        if "error" in told:
            raise Refused(told["error"])
        interval = (
            list(wilson(round(told["exact_match"] * told["n"]), told["n"])) if told["n"] else None
        )
        return told | {"interval": interval}

    # Jobs

    async def compare(
        self,
        model: str,
        models: list[str] | None = None,
        n: int = 20,
        shots: int = 8,
        wait: float = 60,
        owner: str = "",
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Benchmark a model, baselines and Hub models on the same held-out sequences.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            models: up to 6 models on the Hub, such as ["gpt2"]; without it, baselines only.
            n: number of sequences, from 1 to 500; at most 40 on a shared instance.
            shots: few-shot examples in a prompt, from 0 to 32.
            wait: seconds to wait for the end, up to 240; then use the job endpoint.
            owner: the key that start returned; without it, a new key for the job.

        Returns:
            job and owner (for the job endpoint), status, rows (exact_match with interval), result.
        """
        self._counted(request, "heavy")
        names = models if models is not None else []
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise Refused(f"models is {shown(models)}; give a list of names on the Hub")
        what, seconds = (
            {
                "models": names,
                "n": _number("n", n, 1, 500),
                "shots": _number("shots", shots, 0, 32),
            },
            _seconds(wait),
        )
        subject = self._subject(model, owner)
        key = subject["owner"] or new_owner()
        begun = await self._asked(
            "compare-begin", subject | {"owner": key, "kind": "table", "what": what}, request
        )
        return await self._awaited(COMPARE + begun["job"], key, seconds, request)

    async def push(
        self,
        model: str,
        repo: str,
        token: str = "",
        private: bool = False,
        branch: str = "main",
        with_data: bool = False,
        wait: float = 60,
        owner: str = "",
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Publish a run's newest checkpoint, or a checkpoint, on the Hugging Face Hub.

        Args:
            model: a run's id, or checkpoint:NAME.
            repo: user/name on the Hub; created if it does not exist.
            token: a write token, not stored; locally the default is the token of hf auth login.
            private: whether a new repository is private.
            branch: the branch that gets the commit.
            with_data: whether to publish the training set, too.
            wait: seconds to wait for the end, up to 240; then use the job endpoint.
            owner: the key that start returned; without it, a new key for the job.

        Returns:
            job and owner (for the job endpoint), status, result (the address of the model).
        """
        self._counted(request, "heavy")
        subject = self._subject(model, owner)
        if on_a_space() and not _request(request).scope.get("session", {}).get("oauth_info"):
            raise Refused(
                "publishing from a Space needs a sign-in on the Hub tab of the page; "
                "or download the checkpoint and push it from your machine"
            )
        key, seconds = subject["owner"] or new_owner(), _seconds(wait)
        what = subject | {
            "owner": key,
            "kind": "push",
            "repo": _text("repo", repo),
            "token": token,
            "private": private is True,
            "revision": _text("branch", branch),
            "data": with_data is True,
        }
        begun = await self._asked("hub-start", what, request)
        return await self._awaited(PUSH + begun["job"], key, seconds, request)

    async def job(
        self, job: str, owner: str, wait: float = 0, request: gr.Request = None
    ) -> dict[str, Any]:
        """Return the status of a comparison or a push. Results are stored for 15 minutes.

        Args:
            job: the job that compare or push returned.
            owner: the owner that it returned.
            wait: seconds to wait for the end, up to 240.

        Returns:
            as compare or push.
        """
        self._counted(request)
        return await self._awaited(job, self._owner(owner), _seconds(wait), request)

    async def cancel(self, job: str, owner: str, request: gr.Request = None) -> dict[str, Any]:
        """Cancel a comparison or a push.

        A comparison keeps its rows; the last message of a push reports a possible partial upload.

        Args:
            job: the job that compare or push returned.
            owner: the owner that it returned.

        Returns:
            as compare or push.
        """
        self._counted(request)
        key = self._owner(owner)
        of, name = _job(job)
        await self._asked(
            "compare-cancel" if of == COMPARE else "hub-cancel",
            {"job": name, "owner": key},
            request,
        )
        return await self._awaited(job, key, 2.0 if of == PUSH else 0.0, request)

    # Helpers

    async def _asked(self, name: str, what: dict[str, Any], request: Any) -> dict[str, Any]:
        """Return the response of a page handler; raise Refused with its error message."""
        told = await self.answers[name](what, _request(request))
        if "error" in told:
            raise Refused(told["error"])
        return told

    async def _status(self, subject: dict[str, str], curve: bool, request: Any) -> dict[str, Any]:
        told = await self._asked("poll", subject | {"known": 0, "epoch": -1, "looks": 0}, request)
        if told["status"] == "gone":
            raise Refused(told["message"] or _gone(subject["subject"]))
        points, latest = told["points"], told.get("latest") or {}
        scored = points["scored"][-1] if points["scored"] else None
        answer = {
            "status": told["status"],
            "message": told["message"],
            "name": told["name"],
            "step": told["step"],
            "steps": told["steps"],
            "place": told.get("place"),
            "loss": latest.get("loss"),
            "steps_per_second": latest.get("steps_per_second"),
            "exact_match": scored[1] if scored else None,
            "scored_at": scored[0] if scored else None,
            "scores": told["scores"],
            "parameters": told["parameters"],
        }
        columns = ("steps", "loss", "learning_rate", "gradient_norm", "scored")
        return answer | ({"curve": {name: points[name] for name in columns}} if curve else {})

    async def _steered(self, run: str, owner: str, action: str, request: Any) -> dict[str, Any]:
        self._counted(request)
        subject = self._subject(run, owner)
        await self._asked("do", subject | {"do": action}, request)
        found, _ = run_on_show(self.registry, subject)
        await _until(lambda: found is None or SETTLED[action](found.status), SETTLED_WITHIN)
        return await self._status(subject, False, request)

    async def _awaited(self, job: str, owner: str, seconds: float, request: Any) -> dict[str, Any]:
        """Return the status of a job when it ends, or after `seconds`."""
        of, name = _job(job)
        client = client_of(_request(request))
        deadline = time.monotonic() + seconds * self._may_wait(client)
        self.waiting[client] += 1
        try:
            while True:
                what = {"job": name, "owner": owner}
                told = await self._asked(
                    "compare-poll" if of == COMPARE else "hub-job", what, request
                )
                if told["status"] not in ("waiting", "working") or time.monotonic() >= deadline:
                    break
                await asyncio.sleep(POLLED_EVERY)
        finally:
            self.waiting -= Counter([client])
        answer = {
            "job": job,
            "owner": owner,
            "status": told["status"],
            "sentence": told["sentence"],
            "again": told["again"],
        }
        if of == COMPARE:
            answer |= {"done": told["done"], "total": told["total"], "rows": standing(told["rows"])}
        return answer | {"result": _unlike_files(told["result"])}

    def _may_wait(self, client: str) -> bool:
        """Return whether a call of this client may wait for a job."""
        return self.waiting[client] < WAITS_OF_A_CLIENT and self.waiting.total() < WAITS_IN_ALL

    def _owner(self, owner: object) -> str:
        """Return the given key, or the key of a local instance, or an empty string.

        Raises:
            Refused: for an invalid key.
        """
        if owner == "" or owner is None:
            return self.registry.local_owner
        if not isinstance(owner, str) or not OWNER.fullmatch(owner):
            raise Refused(
                "owner is no key of this server: pass the owner that start returned, or omit it"
            )
        return owner

    def _subject(self, model: object, owner: object) -> dict[str, str]:
        """Return the request fields of a model name (subject.py).

        Raises:
            Refused: for an unknown model, or a run of another owner.
        """
        name = _text("model", model).strip()
        subject = {
            "subject": name if name.startswith((RUN, WATCH, CHECKPOINT)) else RUN + name,
            "owner": self._owner(owner),
        }
        if (
            run_on_show(self.registry, subject)[0] is None
            and checkpoint_folder(self.registry, subject) is None
        ):
            raise Refused(_gone(name))
        return subject

    def _counted(self, request: Any, kind: str = "calls") -> None:
        """Apply the rate limit to a call of this client.

        Raises:
            Refused: for too many calls, and for requests from pages of other sites, because
                browsers send them with the user's cookies.
        """
        client = client_of(_request(request))
        CLIENT_ADDRESS.set(client)  # Gradio runs some calls outside of the request
        if not is_own_origin(_request(request).headers):
            raise Refused("pages of other sites are rejected; use a program or open the playground")
        self.limits.take("calls", client)
        if kind != "calls":
            self.limits.take(kind, client)


def _in_words(
    endpoint: Callable[..., Awaitable[dict[str, Any]]],
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Wrap an endpoint so that its expected errors reach the client as messages.

    Unexpected errors reach the client without their text.
    """

    @wraps(endpoint)
    async def called(*values: Any, **named: Any) -> dict[str, Any]:
        try:
            return await endpoint(*values, **named)
        except (Refused, SettingError, CheckpointError) as error:
            raise gr.Error(str(error), print_exception=False) from None

    return called


def _request(request: Any) -> Request:
    """Return the Starlette request; Gradio wraps it, its MCP server does not."""
    return request.request if isinstance(request, gr.Request) else request


def _config(given: dict[str, Any], preset: str) -> RunConfig:
    """Return the run of these settings over a preset, or over the architecture's defaults.

    Raises:
        ValueError: for settings that contradict the preset or are invalid.
    """
    of_preset = PRESETS[preset].settings.get("family") if preset in PRESETS else None
    if of_preset and given.get("family", of_preset) != of_preset:
        raise ValueError(
            f"preset {preset} is of the family {of_preset}, "
            f"but family is {shown(given['family'])}; leave one of them out"
        )
    if preset or "family" not in given:
        return preset_config(preset or "fast", given)
    return family_config(**given)


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition, at most `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


def _gone(model: str) -> str:
    return (
        f"there is no model {shown(model)} for you: give a run's id with the key that start "
        "returned as owner, watch:ID, or checkpoint:NAME; the models endpoint lists them"
    )


def _job(job: object) -> tuple[str, str]:
    """Return the job prefix and the id without it."""
    for of in (COMPARE, PUSH):
        if isinstance(job, str) and job.startswith(of):
            return of, job.removeprefix(of)
    raise Refused(f"job is {shown(job)}; give what compare or push returned as job")


def _text(name: str, value: object, longest: int = LONGEST_NAME) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise Refused(f"{name} is {shown(value)}; give a text of at most {longest:,} characters")
    return value


def _number(name: str, value: object, low: int, high: int) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not low <= value <= high
        or value != int(value)
    ):
        raise Refused(f"{name} is {shown(value)}; give a whole number from {low:,} to {high:,}")
    return int(value)


def _seconds(value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= LONGEST_WAIT
    ):
        raise Refused(
            f"wait is {shown(value)}; give a number of seconds from 0 to {LONGEST_WAIT:g}"
        )
    return float(value)


def _dictionary(name: str, value: object) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise Refused(
            f"{name} is {shown(value)}; "
            'give an object of names and values, such as {"task": "copy"}'
        )
    return dict(value or {})


def _at(step: object) -> dict[str, int]:
    """Return the `step` field of a page request; empty for the latest."""
    at = _number("step", step, -1, 2**31 - 1)
    return {"step": at} if at >= 0 else {}


def _chosen(name: str, value: object, there: int) -> list[int]:
    """Return the selected index as a list, or all indices for -1."""
    at = _number(name, value, -1, there - 1)
    return [at] if at >= 0 else list(range(there))


def _unlike_files(value: Any) -> Any:
    """Rename the key `path` to `file` in a result.

    gradio_client downloads every dictionary with a `path`.
    """
    if isinstance(value, dict):
        return {
            "file" if key == "path" else key: _unlike_files(each) for key, each in value.items()
        }
    return [_unlike_files(each) for each in value] if isinstance(value, list | tuple) else value


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
