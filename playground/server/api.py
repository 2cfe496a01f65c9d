"""Serve the public API: endpoints for gradio_client, plain HTTP and MCP.

MCP needs `gradio[mcp]`. Each endpoint calls a handler of the page (routes.py), so one module
decides what a caller may read and do.

Ownership: `start` returns the run's id and a random owner key; a caller with both may control the
run. A `model` is a run's id (with its owner key), `watch:ID` from a share link, or
`checkpoint:NAME`. On a local instance, a missing key means its single owner.

Gradio reads names, types and descriptions from the signatures and docstrings. No endpoint uses
Gradio's queue, because the buttons of the page use it.
"""

# no `from __future__ import annotations`: Gradio reads the types of the endpoints
import asyncio
import time
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

import gradio as gr
from starlette.requests import Request

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.common.stats import exact_match_interval
from playground.errors import UserError
from playground.jobs.admission import Client, limit
from playground.pretrained.benchmark.export import latest_rows
from playground.runs.access import RUN_PREFIX, SHARE_PREFIX, Right, owns_dataset
from playground.runs.owner_keys import new_owner_key
from playground.runs.record import ACTIVE_STATUSES
from playground.runs.state import Run
from playground.tasks import LOOKUP, TASKS
from playground.training.presets import PRESETS, requested_config
from playground.training.run_config import field_named, section_of_field
from playground.ui.form_values import dataset_settings

from .api_calls import (
    BenchmarkSize,
    EndpointBase,
    EvalSize,
    Head,
    JobCaller,
    JobId,
    JobOwner,
    Layer,
    Method,
    Model,
    Owner,
    Repository,
    RunId,
    RunOwner,
    Seconds,
    Settings,
    Shots,
    Step,
    Tokens,
    WriteToken,
    decode_weights,
    endpoint,
    not_found_message,
    rename_path_keys,
    select_indices,
    with_user_errors,
)
from .client import resolve_client, resolve_client_address
from .hub_token import is_space
from .process_calls import await_result
from .schemas.base import Name

STATUS_CHANGE_TIMEOUT_S = 10.0  # seconds to wait for pause, resume and stop to take effect
REACHED_STATUS = {
    "pause": lambda status: status not in (*ACTIVE_STATUSES, "waiting"),
    "resume": lambda status: status not in ("paused", "stopped", "failed"),
    "stop": lambda status: status not in (*ACTIVE_STATUSES, "waiting", "paused"),
}
EVALUATION_TIMEOUT_S = 280.0  # seconds
POLL_INTERVAL_S = 0.25  # of a job


def has_mcp() -> bool:
    """Return whether the endpoints can be served as MCP tools."""
    return find_spec("mcp") is not None


def _control_endpoint(action: str, summary: str) -> Method:
    """Return the endpoint that applies an action to a run."""

    async def control(
        self: Any, run: RunId, owner: RunOwner = "", request: gr.Request = None
    ) -> dict[str, Any]:
        return await self._control(run, owner, action, request)

    control.__name__ = action
    control.__doc__ = f"{summary}\n\nReturns:\n    the same as status."
    return endpoint(needs=Right.OWN)(control)


class Endpoints(EndpointBase):
    """All endpoints: to list what can be trained, to control runs, to use models, and jobs."""

    def register(self) -> None:
        """Add the endpoints to the page under construction."""
        if has_mcp():
            from . import mcp_server

            mcp_server.install()
        for name, method in vars(type(self)).items():
            if hasattr(method, "call_type"):
                endpoint_of_page = with_user_errors(getattr(self, name))
                gr.api(endpoint_of_page, api_name=name, queue=False)

    @endpoint()
    async def settings(self, request: gr.Request = None) -> dict[str, Any]:
        """List tasks, presets, architectures, and all settings of a run.

        Returns:
            tasks, presets and architectures with descriptions; settings with defaults.
        """
        examples = {name: " -> ".join(task.example) for name, task in TASKS.items()}
        settings = {
            name: {
                "default": field_named(name).default,
                "choices": list(field_named(name).metadata["choices"] or []),
                "meaning": field_named(name).metadata["help"],
                "part": part,
            }
            for name, part in section_of_field().items()
            if "help" in field_named(name).metadata
        }
        return {
            "tasks": {name: f"{each.description} {examples[name]}" for name, each in TASKS.items()},
            "presets": {name: preset.description for name, preset in PRESETS.items()},
            "architectures": {name: each.description for name, each in ARCHITECTURES.items()},
            "settings": settings,
        }

    @endpoint()
    async def models(self, owner: Owner = "", request: gr.Request = None) -> dict[str, Any]:
        """List the available models: public checkpoints and the runs of an owner.

        Args:
            owner: the key that start returned; without it, checkpoints only.

        Returns:
            checkpoints and runs: model name, task, parameters, and best exact match (0 to 1).
        """
        response = await self.call_handler("runs/list", {"owner": self.owner_key(owner)}, request)

        def named(row: dict[str, Any]) -> dict[str, Any]:
            hidden = ("subject", "hidden", "deleted")
            fields = {name: value for name, value in row.items() if name not in hidden}
            return fields | {"model": row["subject"].removeprefix(RUN_PREFIX)}

        return {
            "checkpoints": list(map(named, response["checkpoints"])),
            "runs": [named(row) for row in response["runs"] if not row["deleted"]],
        }

    @endpoint("starts")
    async def start(
        self,
        settings: Settings = None,
        preset: Name = "",
        name: Name = "",
        owner: Owner = "",
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Start training a small transformer from scratch.

        It trains in the background; status returns its progress. An idle run saves and pauses.

        Args:
            preset: a name from the settings endpoint; the default is fast.
            name: the name of the run.
            owner: the key of an earlier start, for the same owner; without it, a new key.

        Returns:
            run: id; owner: secret key; watch: read-only model name; status, steps, parameters.
        """
        key = self.owner_key(owner) or new_owner_key()
        name = " ".join(name.split())
        try:
            run = await asyncio.to_thread(self._start, settings or {}, preset, key, name)
        except (ValueError, TypeError) as error:
            raise UserError(f"not started: {error}") from None
        return {
            "run": run.id,
            "owner": key,
            "watch": SHARE_PREFIX + run.share_id,
            "name": run.name,
            "status": run.status,
            "steps": run.steps,
            "parameters": parameter_count(run.config.model),
        }

    @endpoint(needs=Right.WATCH)
    async def status(
        self, model: Model, owner: Owner = "", curve: bool = False, request: gr.Request = None
    ) -> dict[str, Any]:
        """Return the status of a run or checkpoint, with loss and exact match.

        Args:
            curve: whether to add loss and scores by step, at most about 3000 points.

        Returns:
            status, message (on an error), the latest exact_match (0 to 1), final scores by length.
        """
        return await self._status(model, owner, curve, request)

    pause = _control_endpoint("pause", "Pause a run after its current step, and save a checkpoint.")
    resume = _control_endpoint(
        "resume", "Resume a paused, stopped or failed run from its last state or checkpoint."
    )
    stop = _control_endpoint(
        "stop", "Stop a run after saving a checkpoint; it can be used and resumed afterwards."
    )

    @endpoint(needs=Right.USE)
    async def predict(
        self,
        model: Model,
        sequence: Tokens,
        owner: Owner = "",
        step: Step = -1,
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Generate a prediction for a sequence, free-running, one token at a time.

        Returns:
            prediction: generated tokens; target, or null; correct: whether they match; note.
        """
        payload = self.model_fields(model, owner, step) | {"text": sequence}
        return await self.call_handler("runs/predict", payload, request)

    @endpoint(needs=Right.USE)
    async def attention(
        self,
        model: Model,
        sequence: Tokens,
        kind: Literal["cross", "encoder", "decoder"] = "cross",
        layer: Layer = -1,
        head: Head = -1,
        owner: Owner = "",
        step: Step = -1,
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Return the attention weights of a model while it generates its prediction.

        Args:
            kind: cross (target to source), encoder (source only) or decoder (target only).

        Returns:
            weights[layer][head][row][column], rounded to 0.001; tokens of rows and columns;
            prediction; target, or null.
        """
        view = {"view": "attention", "text": sequence, "options": {"kind": kind}}
        payload = self.model_fields(model, owner, step) | view
        response = await self.call_handler("inspect/view", payload, request)
        layers = select_indices("layer", layer, response["layers"])
        heads = select_indices("head", head, response["heads"])
        names = ("kind", "rows", "columns", "prediction", "target", "step", "note")
        return {name: response[name] for name in names} | {
            "layers": layers,
            "heads": heads,
            "weights": decode_weights(response, layers, heads),
        }

    @endpoint("heavy", needs=Right.USE)
    async def evaluate(
        self,
        model: Model,
        n: EvalSize = 500,
        owner: Owner = "",
        step: Step = -1,
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Evaluate a model on held-out sequences with free-running decoding.

        Returns:
            n, exact_match and token_accuracy (0 to 1), interval (95 %), by_length, step.
        """
        source = (await self.require(model, owner, Right.USE)).source
        client = resolve_client(self.model_ref(model, owner), request)
        load_at = step if step >= 0 else None
        evaluate = partial(self.registry.snapshots.request, slow=True, client=client)
        future = await asyncio.to_thread(evaluate, "evaluate", source, str(n), load_at)
        result = await await_result(future, EVALUATION_TIMEOUT_S)
        interval = exact_match_interval(result)
        return result | {"interval": list(interval) if interval else None}

    @endpoint("heavy", needs=Right.REUSE)
    async def compare(
        self,
        model: Model,
        models: list[Name] | None = None,
        n: BenchmarkSize = 20,
        shots: Shots = 8,
        wait: Seconds = 60,
        owner: JobCaller = "",
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Benchmark a model, baselines and Hub models on the same held-out sequences.

        Args:
            models: up to 6 models on the Hub, such as ["gpt2"]; without it, baselines only.

        Returns:
            job and owner (for the job endpoint), status, rows (exact_match with interval), result.
        """
        fields = {"models": models or [], "n": n, "shots": shots}
        return await self._submit("benchmark", model, owner, fields, wait, request)

    @endpoint("heavy", needs=Right.OWN)
    async def push(
        self,
        model: Model,
        repo: Repository,
        token: WriteToken = "",
        private: bool = False,
        branch: Name = "main",
        wait: Seconds = 60,
        owner: JobCaller = "",
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Publish a run's newest checkpoint, or a checkpoint, on the Hugging Face Hub.

        Args:
            model: a run's id, or checkpoint:NAME.
            private: whether a new repository is private.
            branch: the branch that gets the commit.

        Returns:
            job and owner (for the job endpoint), status, result (the address of the model).
        """
        if is_space() and not request.scope.get("session", {}).get("oauth_info"):
            raise UserError(
                "publishing from a Space needs a sign-in on the Hub tab of the page; "
                "or download the checkpoint and push it from your machine"
            )
        fields = {"repo": repo, "token": token, "private": private, "revision": branch}
        return await self._submit("push", model, owner, fields, wait, request)

    @endpoint()
    async def job(
        self, job: JobId, owner: JobOwner, wait: Seconds = 0, request: gr.Request = None
    ) -> dict[str, Any]:
        """Return the status of a comparison or a push. Results are stored for 15 minutes.

        Args:
            wait: seconds to wait for the end, up to 240.

        Returns:
            the same as compare or push.
        """
        return await self._wait_for_job(job, self.owner_key(owner), wait, request)

    @endpoint()
    async def cancel(
        self, job: JobId, owner: JobOwner, request: gr.Request = None
    ) -> dict[str, Any]:
        """Cancel a comparison or a push.

        A comparison keeps its rows; the last message of a push reports a possible partial upload.

        Returns:
            the same as compare or push.
        """
        key = self.owner_key(owner)
        await self.call_handler("jobs/cancel", {"job": job, "owner": key}, request)
        return await self._wait_for_job(job, key, 0.0, request)

    def _start(self, settings: dict[str, Any], preset: str, owner: str, name: str) -> Run:
        if settings.get("task") == LOOKUP:
            owns = partial(owns_dataset, self.registry, owner)
            settings = settings | dataset_settings(settings, owns)
        return self.registry.start(requested_config(preset, settings), owner, name=name)

    async def _status(
        self, model: str, owner: str, curve: bool, request: Request
    ) -> dict[str, Any]:
        fields = self.model_fields(model, owner)
        response = await self.call_handler("runs/poll", fields, request)
        if response["status"] == "not-found":
            raise UserError(response["message"] or not_found_message(model))
        points, latest = response["points"], response.get("latest") or {}
        evaluation = points["evaluations"][-1] if points["evaluations"] else None
        names = ("status", "message", "name", "step", "scores", "parameters")
        status = {name: response[name] for name in names} | {
            "steps": response["max_steps"],
            "queue_position": response.get("queue_position"),
            "loss": latest.get("loss"),
            "steps_per_second": latest.get("steps_per_second"),
            "exact_match": evaluation[1] if evaluation else None,
            "scored_at": evaluation[0] if evaluation else None,
        }
        columns = ("steps", "loss", "learning_rate", "grad_norm", "evaluations")
        return status | ({"curve": {name: points[name] for name in columns}} if curve else {})

    async def _control(self, run: str, owner: str, action: str, request: Request) -> dict[str, Any]:
        """Apply an action to a run, wait for its effect, and return the status."""
        controlled = (await self.require(run, owner, Right.OWN)).run
        payload = self.model_fields(run, owner) | {"action": action}
        await self.call_handler("runs/action", payload, request)
        deadline = time.monotonic() + STATUS_CHANGE_TIMEOUT_S
        while controlled and not REACHED_STATUS[action](controlled.status):
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.05)
        return await self._status(run, owner, False, request)

    async def _submit(
        self,
        kind: str,
        model: str,
        owner: str,
        fields: dict[str, Any],
        wait: float,
        request: Request,
    ) -> dict[str, Any]:
        key = self.owner_key(owner) or new_owner_key()
        payload = self.model_fields(model, key) | {"kind": kind, "request": fields}
        response = await self.call_handler("jobs/submit", payload, request)
        return await self._wait_for_job(response["job"], key, wait, request)

    async def _wait_for_job(
        self, job: str, owner: str, seconds: float, request: Request
    ) -> dict[str, Any]:
        """Return the status of a job when it ends, or after `seconds`."""
        client = Client(resolve_client_address(request))
        may_wait = not limit("waiting-calls").exceeded(client, self.waiting_calls)
        deadline = time.monotonic() + seconds * may_wait
        self.waiting_calls.append(client)
        try:
            while True:
                payload = {"job": job, "owner": owner}
                response = await self.call_handler("jobs/poll", payload, request)
                if response["status"] not in ("waiting", "working") or time.monotonic() >= deadline:
                    break
                await asyncio.sleep(POLL_INTERVAL_S)
        finally:
            self.waiting_calls.remove(client)
        names = ["status", "message", "retryable"]
        result = {"job": job, "owner": owner, "result": rename_path_keys(response["result"])}
        if response["kind"] == "benchmark":
            names += ["done", "total"]
            result["rows"] = latest_rows(response["rows"])
        return result | {name: response[name] for name in names}
