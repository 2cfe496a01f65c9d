"""Serve the public API: endpoints for gradio_client, plain HTTP and MCP.

MCP needs `gradio[mcp]`. Each endpoint calls a handler of the page (routes.py), so one place decides
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

from playground.architectures import ARCHITECTURES
from playground.checkpoints.manifest import CheckpointError
from playground.common.devices import ZERO_GPU, is_zero_gpu
from playground.common.env import env_number
from playground.common.stats import wilson_interval
from playground.comparison.export import latest_rows
from playground.compat import add_old_benchmark_keys, add_old_keys, upgrade_settings
from playground.errors import UserError
from playground.jobs.addresses import CLIENT_ADDRESS
from playground.models.config_fields import ConfigError, short_repr
from playground.runs.model_ref import (
    CHECKPOINT_PREFIX,
    RUN_PREFIX,
    SHARE_PREFIX,
    resolve_checkpoint,
    resolve_run,
)
from playground.runs.owner_keys import OWNER_KEY_PATTERN, new_owner_key
from playground.runs.record import ACTIVE_STATUSES
from playground.runs.registry import Registry
from playground.tasks import LOOKUP, TASKS
from playground.training.config import RunConfig, field_named, section_of_field
from playground.training.presets import PRESETS, architecture_preset, preset_config
from playground.ui.training_form import dataset_settings

from .client import resolve_client, resolve_client_address
from .hub_api import is_space
from .live_api import await_result
from .origin import is_own_origin
from .rate_limit import BoundedSemaphoreQueue, RateLimiter
from .routes import Handler

STATUS_CHANGE_TIMEOUT_S = 10.0  # seconds to wait for pause, resume and stop to take effect
MAX_WAIT_S = 240.0  # maximum wait of compare, push and job, in seconds
POLL_INTERVAL_S = 0.25
MAX_EVALUATED = 2000  # held-out sequences
EVALUATION_TIMEOUT_S = 280.0  # seconds
MAX_WEIGHTS = 200_000  # weights in one response
MAX_CONCURRENT_INSPECTIONS = 4
MAX_WAITS_PER_CLIENT, MAX_WAITS_TOTAL = 8, 64  # waiting calls per client and in total
MAX_NAME_LENGTH = 200
COMPARE_PREFIX, PUSH_PREFIX = "compare:", "push:"  # prefixes of job ids
REACHED_STATUS = {
    "pause": lambda status: status not in (*ACTIVE_STATUSES, "waiting"),
    "resume": lambda status: status not in ("paused", "stopped", "failed"),
    "stop": lambda status: status not in (*ACTIVE_STATUSES, "waiting", "paused"),
}


def has_mcp() -> bool:
    """Return whether the endpoints can be served as MCP tools."""
    return find_spec("mcp") is not None


class Endpoints:
    """The endpoints over a registry and the handlers of the page.

    Args:
        handlers: the handlers of the page by name.
        is_public: whether the instance is shared, so calls are limited.
    """

    def __init__(
        self, registry: Registry, handlers: Mapping[str, Handler], is_public: bool
    ) -> None:
        self.registry, self.handlers = registry, handlers
        self.rate_limiter = RateLimiter.from_environment(is_public)
        self.waits_by_client = Counter[str]()  # waiting calls by client
        self.inspection_slots = BoundedSemaphoreQueue(
            MAX_CONCURRENT_INSPECTIONS, 4 * MAX_CONCURRENT_INSPECTIONS
        )
        # for all clients
        self.evaluation_slots = BoundedSemaphoreQueue(int(env_number("API_MAX_CONCURRENT")))

    def register(self) -> None:
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
            gr.api(_with_user_errors(endpoint), api_name=endpoint.__name__, queue=False)

    # Settings and models

    async def settings(self, request: gr.Request = None) -> dict[str, Any]:
        """List tasks, presets, architectures, and all settings of a run.

        Returns:
            tasks, presets and families with descriptions; settings with defaults.
        """
        self._rate_limit(request)
        return {
            "tasks": {
                name: f"{task.description} {' -> '.join(task.example)}"
                for name, task in TASKS.items()
            },
            "presets": {name: preset.description for name, preset in PRESETS.items()},
            "families": {name: family.description for name, family in ARCHITECTURES.items()},
            "settings": {
                name: {
                    "default": field_named(name).default,
                    "choices": list(field_named(name).metadata["choices"] or []),
                    "meaning": field_named(name).metadata["help"],
                    "part": part,
                }
                for name, part in section_of_field().items()
                if "help" in field_named(name).metadata
            },
        }

    async def models(self, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """List the available models: public checkpoints and the runs of an owner.

        Args:
            owner: the key that start returned; without it, checkpoints only.

        Returns:
            checkpoints and runs: model name, task, parameters, and best exact match (0 to 1).
        """
        self._rate_limit(request)
        response = await self._call_handler("runs/list", {"owner": self._owner_key(owner)}, request)
        runs = [
            row | {"model": row["subject"].removeprefix(RUN_PREFIX)}
            for row in response["runs"]
            if not row["deleted"]
        ]
        return {
            "checkpoints": [
                _omit(row | {"model": row["subject"]}, "subject") for row in response["checkpoints"]
            ],
            "runs": [_omit(row, "subject", "hidden", "deleted") for row in runs],
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
            settings: non-default settings by name, such as {"task": "reverse", "max_steps": 300}.
            preset: a name from the settings endpoint; the default is fast.
            name: the name of the run.
            owner: the key of an earlier start, for the same owner; without it, a new key.

        Returns:
            run: id; owner: secret key; watch: read-only model name; status, steps, parameters.
        """
        self._rate_limit(request, "starts")
        key = self._owner_key(owner) or new_owner_key()
        try:
            overrides = upgrade_settings(_validate_dictionary("settings", settings))
            overrides |= dataset_settings(overrides) if overrides.get("task") == LOOKUP else {}
            label = _validate_text("name", name)
            config = _build_config(overrides, _validate_text("preset", preset))
            if config.training.device == ZERO_GPU and is_zero_gpu():
                raise UserError(
                    "device is 'zero', but ZeroGPU needs an open page; use device auto or cpu"
                )
            run = await asyncio.to_thread(
                self.registry.start, config, key, name=" ".join(label.split())
            )
        except (UserError, ValueError, TypeError) as error:
            raise UserError(f"not started: {error}") from None
        return {
            "run": run.id,
            "owner": key,
            "watch": SHARE_PREFIX + run.share_id,
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
        self._rate_limit(request)
        return await self._status(self._model_ref(model, owner), curve is True, request)

    async def pause(self, run: str, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """Pause a run after its current step, and save a checkpoint.

        Args:
            run: the run's id.
            owner: the key that start returned.

        Returns:
            as status.
        """
        return await self._control(run, owner, "pause", request)

    async def resume(self, run: str, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """Resume a paused, stopped or failed run from its last state or checkpoint.

        Args:
            run: the run's id.
            owner: the key that start returned.

        Returns:
            as status.
        """
        return await self._control(run, owner, "resume", request)

    async def stop(self, run: str, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """Stop a run after saving a checkpoint; it can be used and resumed afterwards.

        Args:
            run: the run's id.
            owner: the key that start returned.

        Returns:
            as status.
        """
        return await self._control(run, owner, "stop", request)

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
            prediction: generated tokens; target, or null; correct: whether they match; note.
        """
        self._rate_limit(request)
        payload = (
            self._model_ref(model, owner)
            | {"text": _validate_text("sequence", sequence, 2000)}
            | _step_argument(step)
        )
        async with self.inspection_slots.slot():
            return add_old_keys(await self._call_handler("runs/predict", payload, request))

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
        self._rate_limit(request)
        payload = (
            self._model_ref(model, owner)
            | {"text": _validate_text("sequence", sequence, 2000), "view": "attention"}
            | _step_argument(step)
        )
        async with self.inspection_slots.slot():
            response = await self._call_handler(
                "inspect/view", payload | {"options": {"kind": kind}}, request
            )
        layers = _select_indices("layer", layer, response["layers"])
        heads = _select_indices("head", head, response["heads"])
        rows, columns = len(response["rows"]), len(response["columns"])
        if len(layers) * len(heads) * rows * columns > MAX_WEIGHTS:
            raise UserError(
                f"the response exceeds {MAX_WEIGHTS:,} weights; request one layer or one head"
            )
        thousandths = array("h", base64.b64decode(response["weights"]))

        def weights_row(layer_index: int, head_index: int, row_index: int) -> list[float]:
            start = ((layer_index * response["heads"] + head_index) * rows + row_index) * columns
            return [weight / 1000 for weight in thousandths[start : start + columns]]

        return {
            "kind": response["kind"],
            "layers": layers,
            "heads": heads,
            "rows": response["rows"],
            "columns": response["columns"],
            "weights": [
                [[weights_row(i, j, at) for at in range(rows)] for j in heads] for i in layers
            ],
            "written": response["written"],
            "answer": response["answer"],
            "step": response.get("step"),
            "note": response["note"],
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
        self._rate_limit(request, "heavy")
        model_ref, n_sequences = (
            self._model_ref(model, owner),
            _validate_integer("n", n, 1, MAX_EVALUATED),
        )
        run, is_owner = resolve_run(self.registry, model_ref)
        load_at_step = _step_argument(step).get("step")
        model_source = run or resolve_checkpoint(self.registry, model_ref)
        if model_source is None:
            raise UserError(_not_found_message(model))
        client = resolve_client(model_ref, is_owner, _starlette_request(request))
        async with self.evaluation_slots.slot():
            result = await await_result(
                await asyncio.to_thread(
                    self.registry.snapshots.evaluate,
                    model_source,
                    n_sequences,
                    load_at_step,
                    client,
                ),
                EVALUATION_TIMEOUT_S,
            )
        if "error" in result:
            raise UserError(result["error"])
        interval = (
            list(wilson_interval(round(result["exact_match"] * result["n"]), result["n"]))
            if result["n"]
            else None
        )
        return result | {"interval": interval}

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
        self._rate_limit(request, "heavy")
        names = models if models is not None else []
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise UserError(f"models is {short_repr(models)}; give a list of names on the Hub")
        job_request, seconds = (
            {
                "models": names,
                "n": _validate_integer("n", n, 1, 500),
                "shots": _validate_integer("shots", shots, 0, 32),
            },
            _validate_seconds(wait),
        )
        model_ref = self._model_ref(model, owner)
        key = model_ref["owner"] or new_owner_key()
        response = await self._call_handler(
            "jobs/submit",
            model_ref | {"owner": key, "kind": "benchmark", "what": job_request},
            request,
        )
        return await self._wait_for_job(COMPARE_PREFIX + response["job"], key, seconds, request)

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
        self._rate_limit(request, "heavy")
        model_ref = self._model_ref(model, owner)
        if is_space() and not _starlette_request(request).scope.get("session", {}).get(
            "oauth_info"
        ):
            raise UserError(
                "publishing from a Space needs a sign-in on the Hub tab of the page; "
                "or download the checkpoint and push it from your machine"
            )
        key, seconds = model_ref["owner"] or new_owner_key(), _validate_seconds(wait)
        payload = model_ref | {
            "owner": key,
            "kind": "push",
            "repo": _validate_text("repo", repo),
            "token": token,
            "private": private is True,
            "revision": _validate_text("branch", branch),
            "data": with_data is True,
        }
        response = await self._call_handler("hub/submit", payload, request)
        return await self._wait_for_job(PUSH_PREFIX + response["job"], key, seconds, request)

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
        self._rate_limit(request)
        return await self._wait_for_job(
            job, self._owner_key(owner), _validate_seconds(wait), request
        )

    async def cancel(self, job: str, owner: str, request: gr.Request = None) -> dict[str, Any]:
        """Cancel a comparison or a push.

        A comparison keeps its rows; the last message of a push reports a possible partial upload.

        Args:
            job: the job that compare or push returned.
            owner: the owner that it returned.

        Returns:
            as compare or push.
        """
        self._rate_limit(request)
        key = self._owner_key(owner)
        prefix, name = _parse_job_id(job)
        await self._call_handler(
            "jobs/cancel" if prefix == COMPARE_PREFIX else "hub/cancel",
            {"job": name, "owner": key},
            request,
        )
        return await self._wait_for_job(job, key, 2.0 if prefix == PUSH_PREFIX else 0.0, request)

    # Helpers

    async def _call_handler(
        self, name: str, payload: dict[str, Any], request: Any
    ) -> dict[str, Any]:
        """Return the response of a page handler; raise Refused with its error message."""
        response = await self.handlers[name](payload, _starlette_request(request))
        if "error" in response:
            raise UserError(response["error"])
        return response

    async def _status(self, model_ref: dict[str, str], curve: bool, request: Any) -> dict[str, Any]:
        response = await self._call_handler(
            "runs/poll",
            model_ref | {"n_points": 0, "series_id": -1, "snapshot_version": 0},
            request,
        )
        if response["status"] == "not-found":
            raise UserError(response["message"] or _not_found_message(model_ref["subject"]))
        points, latest = response["points"], response.get("latest") or {}
        evaluation = points["evaluations"][-1] if points["evaluations"] else None
        status = {
            "status": response["status"],
            "message": response["message"],
            "name": response["name"],
            "step": response["step"],
            "steps": response["max_steps"],
            "place": response.get("queue_position"),
            "loss": latest.get("loss"),
            "steps_per_second": latest.get("steps_per_second"),
            "exact_match": evaluation[1] if evaluation else None,
            "scored_at": evaluation[0] if evaluation else None,
            "scores": response["scores"],
            "parameters": response["parameters"],
        }
        if not curve:
            return status
        columns = ("steps", "loss", "learning_rate", "grad_norm", "evaluations")
        return status | {"curve": add_old_keys({name: points[name] for name in columns})}

    async def _control(self, run: str, owner: str, action: str, request: Any) -> dict[str, Any]:
        self._rate_limit(request)
        model_ref = self._model_ref(run, owner)
        await self._call_handler("runs/action", model_ref | {"do": action}, request)
        run_or_none, _ = resolve_run(self.registry, model_ref)
        await _wait_until(
            lambda: run_or_none is None or REACHED_STATUS[action](run_or_none.status),
            STATUS_CHANGE_TIMEOUT_S,
        )
        return await self._status(model_ref, False, request)

    async def _wait_for_job(
        self, job: str, owner: str, seconds: float, request: Any
    ) -> dict[str, Any]:
        """Return the status of a job when it ends, or after `seconds`."""
        prefix, name = _parse_job_id(job)
        client = resolve_client_address(_starlette_request(request))
        deadline = time.monotonic() + seconds * self._may_wait(client)
        self.waits_by_client[client] += 1
        try:
            while True:
                payload = {"job": name, "owner": owner}
                response = await self._call_handler(
                    "jobs/poll" if prefix == COMPARE_PREFIX else "hub/poll", payload, request
                )
                if response["status"] not in ("waiting", "working") or time.monotonic() >= deadline:
                    break
                await asyncio.sleep(POLL_INTERVAL_S)
        finally:
            self.waits_by_client -= Counter([client])
        result = {
            "job": job,
            "owner": owner,
            "status": response["status"],
            "message": response["message"],
            "again": response["again"],
        }
        if prefix == COMPARE_PREFIX:
            result |= {
                "done": response["done"],
                "total": response["total"],
                "rows": add_old_benchmark_keys(latest_rows(response["rows"])),
            }
        return add_old_keys(result | {"result": _rename_path_keys(response["result"])})

    def _may_wait(self, client: str) -> bool:
        """Return whether a call of this client may wait for a job."""
        return (
            self.waits_by_client[client] < MAX_WAITS_PER_CLIENT
            and self.waits_by_client.total() < MAX_WAITS_TOTAL
        )

    def _owner_key(self, owner: object) -> str:
        """Return the given key, or the key of a local instance, or an empty string.

        Raises:
            UserError: for an invalid key.
        """
        if owner == "" or owner is None:
            return self.registry.single_owner
        if not isinstance(owner, str) or not OWNER_KEY_PATTERN.fullmatch(owner):
            raise UserError(
                "owner is no key of this server: pass the owner that start returned, or omit it"
            )
        return owner

    def _model_ref(self, model: object, owner: object) -> dict[str, str]:
        """Return the request fields of a model name (model_ref.py).

        Raises:
            UserError: for an unknown model, or a run of another owner.
        """
        name = _validate_text("model", model).strip()
        model_ref = {
            "subject": name
            if name.startswith((RUN_PREFIX, SHARE_PREFIX, CHECKPOINT_PREFIX))
            else RUN_PREFIX + name,
            "owner": self._owner_key(owner),
        }
        if (
            resolve_run(self.registry, model_ref)[0] is None
            and resolve_checkpoint(self.registry, model_ref) is None
        ):
            raise UserError(_not_found_message(name))
        return model_ref

    def _rate_limit(self, request: Any, kind: str = "calls") -> None:
        """Apply the rate limit to a call of this client.

        Raises:
            UserError: for too many calls, and for requests from pages of other sites, because
                browsers send them with the user's cookies.
        """
        client = resolve_client_address(_starlette_request(request))
        CLIENT_ADDRESS.set(client)  # Gradio runs some calls outside of the request
        if not is_own_origin(_starlette_request(request).headers):
            raise UserError(
                "pages of other sites are rejected; use a program or open the playground"
            )
        self.rate_limiter.acquire("calls", client)
        if kind != "calls":
            self.rate_limiter.acquire(kind, client)


def _with_user_errors(
    endpoint: Callable[..., Awaitable[dict[str, Any]]],
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Wrap an endpoint so that its expected errors reach the client as messages.

    Unexpected errors reach the client without their text.
    """

    @wraps(endpoint)
    async def wrapper(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return await endpoint(*args, **kwargs)
        except (UserError, ConfigError, CheckpointError) as error:
            raise gr.Error(str(error), print_exception=False) from None

    return wrapper


def _starlette_request(request: Any) -> Request:
    """Return the Starlette request; Gradio wraps it, its MCP server does not."""
    return request.request if isinstance(request, gr.Request) else request


def _build_config(overrides: dict[str, Any], preset: str) -> RunConfig:
    """Return the run of these settings over a preset, or over the architecture's defaults.

    Raises:
        ValueError: for settings that contradict the preset or are invalid.
    """
    of_preset = PRESETS[preset].settings.get("architecture") if preset in PRESETS else None
    if of_preset and overrides.get("architecture", of_preset) != of_preset:
        raise ValueError(
            f"preset {preset} is of the architecture {of_preset}, but architecture is "
            f"{short_repr(overrides['architecture'])}; leave one of them out"
        )
    if preset or "architecture" not in overrides:
        return preset_config(preset or "fast", overrides)
    return architecture_preset(**overrides)


async def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition, at most `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


def _not_found_message(model: str) -> str:
    return (
        f"there is no model {short_repr(model)} for you: give a run's id with the key that start "
        "returned as owner, watch:ID, or checkpoint:NAME; the models endpoint lists them"
    )


def _parse_job_id(job: object) -> tuple[str, str]:
    """Return the job prefix and the id without it."""
    for prefix in (COMPARE_PREFIX, PUSH_PREFIX):
        if isinstance(job, str) and job.startswith(prefix):
            return prefix, job.removeprefix(prefix)
    raise UserError(f"job is {short_repr(job)}; give what compare or push returned as job")


def _validate_text(name: str, value: object, max_length: int = MAX_NAME_LENGTH) -> str:
    if not isinstance(value, str) or len(value) > max_length:
        raise UserError(
            f"{name} is {short_repr(value)}; give a text of at most {max_length:,} characters"
        )
    return value


def _validate_integer(name: str, value: object, low: int, high: int) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not low <= value <= high
        or value != int(value)
    ):
        raise UserError(
            f"{name} is {short_repr(value)}; give a whole number from {low:,} to {high:,}"
        )
    return int(value)


def _validate_seconds(value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= MAX_WAIT_S
    ):
        raise UserError(
            f"wait is {short_repr(value)}; give a number of seconds from 0 to {MAX_WAIT_S:g}"
        )
    return float(value)


def _validate_dictionary(name: str, value: object) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise UserError(
            f"{name} is {short_repr(value)}; "
            'give an object of names and values, such as {"task": "copy"}'
        )
    return dict(value or {})


def _step_argument(step: object) -> dict[str, int]:
    """Return the `step` field of a page request; empty for the latest."""
    index = _validate_integer("step", step, -1, 2**31 - 1)
    return {"step": index} if index >= 0 else {}


def _select_indices(name: str, value: object, count: int) -> list[int]:
    """Return the selected index as a list, or all indices for -1."""
    index = _validate_integer(name, value, -1, count - 1)
    return [index] if index >= 0 else list(range(count))


def _rename_path_keys(value: Any) -> Any:
    """Rename the key `path` to `file` in a result.

    gradio_client downloads every dictionary with a `path`.
    """
    if isinstance(value, dict):
        return {
            "file" if key == "path" else key: _rename_path_keys(item) for key, item in value.items()
        }
    return [_rename_path_keys(each) for each in value] if isinstance(value, list | tuple) else value


def _omit(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
