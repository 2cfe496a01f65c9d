"""Serve the public API: endpoints for gradio_client, plain HTTP and MCP.

MCP needs `gradio[mcp]`. Each endpoint calls a handler of the page (routes.py), so one module
decides what a caller may read and do.

Ownership: `start` returns the run's id and a random owner key; a caller with both may control the
run. A `model` is a run's id (with its owner key), `watch:ID` from a share link, or
`checkpoint:NAME`. On a local instance, a missing key means its single owner.

Gradio gets names, types and descriptions from the classes. No endpoint uses Gradio's queue, because
the buttons of the page use it.
"""

import asyncio
import base64
import time
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.common.stats import exact_match_interval
from playground.errors import UserError
from playground.runs.access import RUN_PREFIX, SHARE_PREFIX, ModelRef, Right, owns_dataset
from playground.runs.owner_keys import new_owner_key
from playground.runs.record import ACTIVE_STATUSES
from playground.tasks import LOOKUP, TASKS
from playground.training.presets import PRESETS, requested_config
from playground.training.run_config import field_named, section_of_field
from playground.ui.form_values import dataset_settings

from .api_calls import ENDPOINTS as ENDPOINTS
from .api_calls import (
    Call,
    Endpoint,
    Index,
    JobCaller,
    JobId,
    JobOwner,
    Model,
    Owner,
    OwnerKey,
    Result,
    Seconds,
    Step,
    Tokens,
    endpoint,
)
from .api_calls import Endpoints as Endpoints
from .client import resolve_client
from .hub_token import is_space
from .process_calls import await_result
from .schemas.base import JsonObject, Name, Token

STATUS_CHANGE_TIMEOUT_S = 10.0  # seconds to wait for pause, resume and stop to take effect
EVALUATION_TIMEOUT_S = 280.0  # seconds
MAX_WEIGHTS = 200_000  # weights in one response
HEAVY_MS = 500.0  # load of a call that starts work: ten at once, then one a second


@endpoint()
class Settings(Endpoint):
    """List tasks, presets, architectures, and all settings of a run.

    Returns:
        tasks, presets and architectures with descriptions; settings with defaults.
    """

    async def respond(self, call: Call) -> Result:
        fields = {name: (part, field_named(name)) for name, part in section_of_field().items()}
        examples = {name: " -> ".join(task.example) for name, task in TASKS.items()}
        return {
            "tasks": {name: f"{task.description} {examples[name]}" for name, task in TASKS.items()},
            "presets": {name: preset.description for name, preset in PRESETS.items()},
            "architectures": {name: each.description for name, each in ARCHITECTURES.items()},
            "settings": {
                name: {
                    "default": field.default,
                    "choices": list(field.metadata["choices"] or []),
                    "meaning": field.metadata["help"],
                    "part": part,
                }
                for name, (part, field) in fields.items()
                if "help" in field.metadata
            },
        }


@endpoint()
class Models(Endpoint):
    """List the available models: public checkpoints and the runs of an owner.

    Returns:
        checkpoints and runs: model name, task, parameters, and best exact match (0 to 1).
    """

    owner: OwnerKey = Field(
        "", description="the key that start returned; without it, checkpoints only."
    )

    async def respond(self, call: Call) -> Result:
        response = await call.send("runs/list")

        def named(row: dict[str, Any]) -> dict[str, Any]:
            hidden = ("subject", "deleted")
            fields = {name: value for name, value in row.items() if name not in hidden}
            return fields | {"model": row["subject"].removeprefix(RUN_PREFIX)}

        return {
            "checkpoints": list(map(named, response["checkpoints"])),
            "runs": [named(row) for row in response["runs"] if not row["deleted"]],
        }


@endpoint(load=HEAVY_MS)
class Start(Endpoint):
    """Start training a small transformer from scratch.

    It trains in the background; status returns its progress. An idle run saves and pauses.

    Returns:
        run: id; owner: secret key; watch: read-only model name; status, steps, parameters.
    """

    settings: JsonObject | None = Field(
        None,
        description='non-default settings by name, such as {"task": "reverse", "max_steps": 300}.',
        examples=[{"task": "reverse", "max_steps": 300}],
    )
    preset: Name = Field("", description="a name from the settings endpoint; the default is fast.")
    name: Name = Field("", description="the name of the run.")
    owner: OwnerKey = Field(
        "", description="the key of an earlier start, for the same owner; without it, a new key."
    )

    async def respond(self, call: Call) -> Result:
        registry, key = call.site.registry, call.owner or new_owner_key()
        settings, name = self.settings or {}, " ".join(self.name.split())

        def start() -> Any:
            own = partial(owns_dataset, registry, key)
            data = dataset_settings(settings, own) if settings.get("task") == LOOKUP else {}
            return registry.start(requested_config(self.preset, settings | data), key, name=name)

        try:
            run = await asyncio.to_thread(start)
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
class Status(Endpoint):
    """Return the status of a run or checkpoint, with loss and exact match.

    Returns:
        status, message (on an error), the latest exact_match (0 to 1), final scores by length.
    """

    model: Model
    owner: Owner = ""
    curve: bool = Field(
        False, description="whether to add loss and scores by step, at most about 3000 points."
    )

    async def respond(self, call: Call) -> Result:
        return await _status(call, self.curve)


async def _status(call: Call, curve: bool = False) -> Result:
    response = await call.send("runs/poll")
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


class Control(Endpoint):
    """An action on a run. It is effective when the run has left the statuses `before`."""

    before: ClassVar[tuple[str, ...]]
    run: Name = Field(description="the run's id.", examples=["RUN"])
    owner: OwnerKey = Field("", description="the key that start returned.", examples=["OWNER"])

    async def respond(self, call: Call) -> Result:
        await call.send("runs/action", action=type(self).__name__.lower())
        deadline, run = time.monotonic() + STATUS_CHANGE_TIMEOUT_S, call.access.run
        while run and run.status in self.before and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return await _status(call)


@endpoint(needs=Right.OWN)
class Pause(Control):
    """Pause a run after its current step, and save a checkpoint.

    Returns:
        the same as status.
    """

    before = (*ACTIVE_STATUSES, "waiting")


@endpoint(needs=Right.OWN)
class Resume(Control):
    """Resume a paused, stopped or failed run from its last state or checkpoint.

    Returns:
        the same as status.
    """

    before = ("paused", "stopped", "failed")


@endpoint(needs=Right.OWN)
class Stop(Control):
    """Stop a run after saving a checkpoint; it can be used and resumed afterwards.

    Returns:
        the same as status.
    """

    before = (*ACTIVE_STATUSES, "waiting", "paused")


@endpoint(needs=Right.USE)
class Predict(Endpoint):
    """Generate a prediction for a sequence, free-running, one token at a time.

    Returns:
        prediction: generated tokens; target, or null; correct: whether they match; note.
    """

    model: Model
    sequence: Tokens
    owner: Owner = ""
    step: Step = -1

    async def respond(self, call: Call) -> Result:
        return await call.send("runs/predict", text=self.sequence)


@endpoint(needs=Right.USE)
class Attention(Endpoint):
    """Return the attention weights of a model while it generates its prediction.

    Returns:
        weights[layer][head][row][column], rounded to 0.001; tokens of rows and columns;
        prediction; target, or null.
    """

    model: Model
    sequence: Tokens
    kind: Literal["cross", "encoder", "decoder"] = Field(
        "cross",
        description="cross (target to source), encoder (source only) or decoder (target only).",
    )
    layer: Index = Field(-1, description="a layer index from 0; -1 for all.")
    head: Index = Field(-1, description="a head index from 0; -1 for all.")
    owner: Owner = ""
    step: Step = -1

    async def respond(self, call: Call) -> Result:
        options = {"kind": self.kind}
        view = await call.send(
            "inspect/view", view="attention", text=self.sequence, options=options
        )
        layers = _selected("layer", self.layer, view["layers"])
        heads = _selected("head", self.head, view["heads"])
        shape = view["heads"], len(view["rows"]), len(view["columns"])
        if len(layers) * len(heads) * shape[1] * shape[2] > MAX_WEIGHTS:
            raise UserError(
                f"the response exceeds {MAX_WEIGHTS:,} weights; request one layer or one head"
            )
        thousandths = np.frombuffer(base64.b64decode(view["weights"]), np.int16)
        weights_LHRC = thousandths.reshape(-1, *shape)[layers][:, heads] / 1000
        names = ("kind", "rows", "columns", "prediction", "target", "step", "note")
        return {name: view[name] for name in names} | {
            "layers": layers,
            "heads": heads,
            "weights": weights_LHRC.tolist(),
        }


def _selected(name: str, index: int, count: int) -> list[int]:
    """Return the selected index as a list, or all indices for -1.

    Raises UserError if the model has no such index.
    """
    if index >= count:
        raise UserError(f"{name} is {index}; give a whole number from -1 to {count - 1}")
    return [index] if index >= 0 else list(range(count))


@endpoint(load=HEAVY_MS, needs=Right.USE)
class Evaluate(Endpoint):
    """Evaluate a model on held-out sequences with free-running decoding.

    Returns:
        n, exact_match and token_accuracy (0 to 1), interval (95 %), by_length, step.
    """

    model: Model
    n: int = Field(
        500,
        ge=1,
        le=2000,
        description="number of sequences, from 1 to 2000, spread over the training lengths.",
        examples=[100],
    )
    owner: Owner = ""
    step: Step = -1

    async def respond(self, call: Call) -> Result:
        ref = ModelRef(subject=call.fields["subject"], owner=call.owner)
        future = await asyncio.to_thread(
            call.site.registry.snapshots.request,
            "evaluate",
            call.access.source,
            str(self.n),
            call.fields.get("step"),
            slow=True,
            client=resolve_client(ref, call.request),
        )
        result = await await_result(future, EVALUATION_TIMEOUT_S)
        interval = exact_match_interval(result)
        return result | {"interval": list(interval) if interval else None}


@endpoint(load=HEAVY_MS, needs=Right.REUSE)
class Compare(Endpoint):
    """Benchmark a model, baselines and Hub models on the same held-out sequences.

    Returns:
        job and owner (for the job endpoint), status, rows (exact_match with interval), result.
    """

    model: Model
    models: list[Name] | None = Field(
        None, description='up to 6 models on the Hub, such as ["gpt2"]; without it, baselines only.'
    )
    n: int = Field(
        20,
        ge=1,
        le=500,
        description="number of sequences, from 1 to 500; at most 40 on a shared instance.",
    )
    shots: int = Field(8, ge=0, le=32, description="few-shot examples in a prompt, from 0 to 32.")
    wait: Seconds = 60
    owner: JobCaller = ""

    async def respond(self, call: Call) -> Result:
        fields = {"models": self.models or [], "n": self.n, "shots": self.shots}
        return await call.run_job("benchmark", fields, self.wait)


@endpoint(load=HEAVY_MS, needs=Right.OWN)
class Push(Endpoint):
    """Publish a run's newest checkpoint, or a checkpoint, on the Hugging Face Hub.

    Returns:
        job and owner (for the job endpoint), status, result (the address of the model).
    """

    model: Model = Field(description="a run's id, or checkpoint:NAME.")
    repo: Name = Field(
        description="the repository on the Hub, user/name; created if it does not exist.",
        examples=["USER/NAME"],
    )
    token: Token = Field(
        "",
        description="a write token, not stored; locally the default is the token of hf auth login.",
        examples=["TOKEN"],
    )
    private: bool = Field(False, description="whether a new repository is private.")
    wait: Seconds = 60
    owner: JobCaller = ""

    async def respond(self, call: Call) -> Result:
        if is_space() and not call.request.scope.get("session", {}).get("oauth_info"):
            raise UserError(
                "publishing from a Space needs a sign-in on the Hub tab of the page; "
                "or download the checkpoint and push it from your machine"
            )
        fields = self.model_dump(include={"repo", "token", "private"})
        return await call.run_job("push", fields, self.wait)


@endpoint()
class Job(Endpoint):
    """Return the status of a comparison or a push. Results are stored for 15 minutes.

    Returns:
        the same as compare or push.
    """

    job: JobId
    owner: JobOwner
    wait: Seconds = Field(0, description="seconds to wait for the end, up to 240.")

    async def respond(self, call: Call) -> Result:
        return await call.wait_for_job(self.job, self.wait)


@endpoint()
class Cancel(Endpoint):
    """Cancel a comparison or a push.

    A comparison keeps its rows; the last message of a push reports a possible partial upload.

    Returns:
        the same as compare or push.
    """

    job: JobId
    owner: JobOwner

    async def respond(self, call: Call) -> Result:
        await call.send("jobs/cancel", job=self.job)
        return await call.wait_for_job(self.job, 0)
