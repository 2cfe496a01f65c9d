"""Serve the public API: endpoints for gradio_client, plain HTTP and MCP.

MCP needs `gradio[mcp]`. Each endpoint calls a handler of the page (routes.py), so one module
decides what a caller may read and do.

Ownership: `start` returns the run's id and a random owner key; a caller with both may control the
run. A `model` is a run's id (with its owner key), `watch:ID` from a share link, or
`checkpoint:NAME`. On a local instance, a missing key means its single owner.

Gradio gets names, types and descriptions from the functions. No endpoint uses Gradio's queue,
because the buttons of the page use it.
"""

import asyncio
import base64
import time
from collections.abc import Collection
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.common.stats import exact_match_interval
from playground.errors import UserError
from playground.runs.access import RUN_PREFIX, SHARE_PREFIX, ModelRef, Right, owns_dataset
from playground.runs.owner_keys import new_owner_key
from playground.runs.record import ACTIVE_STATUSES
from playground.runs.state import Run
from playground.tasks import LOOKUP, TASKS
from playground.training.presets import PRESETS, requested_config
from playground.training.run_config import field_named, section_of_field
from playground.ui.form_values import dataset_settings

from .api_calls import ENDPOINTS as ENDPOINTS
from .api_calls import Call, OwnerKey, Result, endpoint, text
from .api_calls import Endpoints as Endpoints
from .client import resolve_client
from .hub_token import is_space
from .process_calls import await_result
from .schemas.base import MAX_INT, JsonObject, Name, Sequence, Token

STATUS_CHANGE_TIMEOUT_S = 10.0  # seconds to wait for pause, resume and stop to take effect
EVALUATION_TIMEOUT_S = 280.0  # seconds
MAX_WEIGHTS = 200_000  # weights in one response
HEAVY_MS = 500.0  # load of a call that starts work: ten at once, then one a second

# The arguments. Words in capitals stand for values of the user.
Model = Annotated[Name, text("a run's id, watch:ID, or checkpoint:NAME.", "checkpoint:reverse")]
PushedModel = Annotated[Name, text("a run's id, or checkpoint:NAME.", "checkpoint:reverse")]
RunId = Annotated[Name, text("the run's id.", "RUN")]
Owner = Annotated[OwnerKey, text("the key that start returned, for a run's id.")]
RunOwner = Annotated[OwnerKey, text("the key that start returned.", "OWNER")]
ListOwner = Annotated[OwnerKey, text("the key that start returned; without it, checkpoints only.")]
StartOwner = Annotated[
    OwnerKey, text("the key of an earlier start, for the same owner; without it, a new key.")
]
JobCaller = Annotated[
    OwnerKey, text("the key that start returned; without it, a new key for the job.")
]
JobOwner = Annotated[OwnerKey, text("the owner that it returned.", "OWNER")]
JobId = Annotated[Name, text("the job that compare or push returned.", "JOB", min_length=1)]
MoreSeconds = Annotated[float, text("seconds to wait for the end, up to 240.", ge=0, le=240)]
Seconds = Annotated[
    float, text("seconds to wait for the end, up to 240; then use the job endpoint.", ge=0, le=240)
]
Settings = Annotated[
    JsonObject | None,
    text(
        'non-default settings by name, such as {"task": "reverse", "max_steps": 300}.',
        {"task": "reverse", "max_steps": 300},
    ),
]
PresetName = Annotated[Name, text("a name from the settings endpoint; the default is fast.")]
RunName = Annotated[Name, text("the name of the run.")]
Curve = Annotated[bool, text("whether to add loss and scores by step, at most about 3000 points.")]
Tokens = Annotated[Sequence, text('tokens of the model\'s task, such as "3 1 4".', "3 1 4")]
Step = Annotated[
    int,
    text(
        "use the recorded weights nearest to this step of a run; -1 for the latest.",
        ge=-1,
        le=MAX_INT,
    ),
]
Kind = Annotated[
    Literal["cross", "encoder", "decoder"],
    text("cross (target to source), encoder (source only) or decoder (target only)."),
]
Layer = Annotated[int, text("a layer index from 0; -1 for all.", 0, ge=-1, le=MAX_INT)]
Head = Annotated[int, text("a head index from 0; -1 for all.", 0, ge=-1, le=MAX_INT)]
Evaluated = Annotated[
    int,
    text(
        "number of sequences, from 1 to 2000, spread over the training lengths.", 100, ge=1, le=2000
    ),
]
HubModels = Annotated[
    list[Name] | None,
    text('up to 6 models on the Hub, such as ["gpt2"]; without it, baselines only.'),
]
Compared = Annotated[
    int, text("number of sequences, from 1 to 500; at most 40 on a shared instance.", ge=1, le=500)
]
Shots = Annotated[int, text("few-shot examples in a prompt, from 0 to 32.", ge=0, le=32)]
Repo = Annotated[
    Name, text("the repository on the Hub, user/name; created if it does not exist.", "USER/NAME")
]
WriteToken = Annotated[
    Token,
    text("a write token, not stored; locally the default is the token of hf auth login.", "TOKEN"),
]
Private = Annotated[bool, text("whether a new repository is private.")]


@endpoint()
async def settings(call: Call) -> Result:
    """List tasks, presets, architectures, and all settings of a run.

    Returns:
        tasks, presets and architectures with descriptions; settings with defaults.
    """
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
async def models(call: Call, owner: ListOwner = "") -> Result:
    """List the available models: public checkpoints and the runs of an owner.

    Returns:
        checkpoints and runs: model name, task, parameters, and best exact match (0 to 1).
    """
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
async def start(
    call: Call,
    settings: Settings = None,
    preset: PresetName = "",
    name: RunName = "",
    owner: StartOwner = "",
) -> Result:
    """Start training a small transformer from scratch.

    It trains in the background; status returns its progress. An idle run saves and pauses.

    Returns:
        run: id; owner: secret key; watch: read-only model name; status, steps, parameters.
    """
    registry, key = call.site.registry, call.owner or new_owner_key()

    def start_run() -> Run:
        own, changed = partial(owns_dataset, registry, key), settings or {}
        data = dataset_settings(changed, own) if changed.get("task") == LOOKUP else {}
        config = requested_config(preset, changed | data)
        return registry.start(config, key, name=" ".join(name.split()))

    try:
        run = await asyncio.to_thread(start_run)
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
async def status(call: Call, model: Model, owner: Owner = "", curve: Curve = False) -> Result:
    """Return the status of a run or checkpoint, with loss and exact match.

    Returns:
        status, message (on an error), the latest exact_match (0 to 1), final scores by length.
    """
    response = await call.send("runs/poll")
    points, latest = response["points"], response.get("latest") or {}
    evaluation = points["evaluations"][-1] if points["evaluations"] else None
    names = ("status", "message", "name", "step", "scores", "parameters")
    result = {name: response[name] for name in names} | {
        "steps": response["max_steps"],
        "queue_position": response.get("queue_position"),
        "loss": latest.get("loss"),
        "steps_per_second": latest.get("steps_per_second"),
        "exact_match": evaluation[1] if evaluation else None,
        "scored_at": evaluation[0] if evaluation else None,
    }
    columns = ("steps", "loss", "learning_rate", "grad_norm", "evaluations")
    return result | ({"curve": {name: points[name] for name in columns}} if curve else {})


async def _control(call: Call, action: str, before: Collection[str]) -> Result:
    """Send an action to a run, and return its status when it has left the statuses `before`."""
    await call.send("runs/action", action=action)
    deadline, run = time.monotonic() + STATUS_CHANGE_TIMEOUT_S, call.access.run
    while run and run.status in before and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return await status(call, "")  # the call has the model


@endpoint(needs=Right.OWN)
async def pause(call: Call, run: RunId, owner: RunOwner = "") -> Result:
    """Pause a run after its current step, and save a checkpoint.

    Returns:
        the same as status.
    """
    return await _control(call, "pause", (*ACTIVE_STATUSES, "waiting"))


@endpoint(needs=Right.OWN)
async def resume(call: Call, run: RunId, owner: RunOwner = "") -> Result:
    """Resume a paused, stopped or failed run from its last state or checkpoint.

    Returns:
        the same as status.
    """
    return await _control(call, "resume", ("paused", "stopped", "failed"))


@endpoint(needs=Right.OWN)
async def stop(call: Call, run: RunId, owner: RunOwner = "") -> Result:
    """Stop a run after saving a checkpoint; it can be used and resumed afterwards.

    Returns:
        the same as status.
    """
    return await _control(call, "stop", (*ACTIVE_STATUSES, "waiting", "paused"))


@endpoint(needs=Right.USE)
async def predict(
    call: Call, model: Model, sequence: Tokens, owner: Owner = "", step: Step = -1
) -> Result:
    """Generate a prediction for a sequence, free-running, one token at a time.

    Returns:
        prediction: generated tokens; target, or null; correct: whether they match; note.
    """
    return await call.send("runs/predict", text=sequence)


@endpoint(needs=Right.USE)
async def attention(
    call: Call,
    model: Model,
    sequence: Tokens,
    kind: Kind = "cross",
    layer: Layer = -1,
    head: Head = -1,
    owner: Owner = "",
    step: Step = -1,
) -> Result:
    """Return the attention weights of a model while it generates its prediction.

    Returns:
        weights[layer][head][row][column], rounded to 0.001; tokens of rows and columns;
        prediction; target, or null.
    """
    view = await call.send("inspect/view", view="attention", text=sequence, options={"kind": kind})
    layers = _selected("layer", layer, view["layers"])
    heads = _selected("head", head, view["heads"])
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
    """Return the selected index as a list, or all indices for -1; raise UserError above `count`."""
    if index >= count:
        raise UserError(f"{name} is {index}; give a whole number from -1 to {count - 1}")
    return [index] if index >= 0 else list(range(count))


@endpoint(load=HEAVY_MS, needs=Right.USE)
async def evaluate(
    call: Call, model: Model, n: Evaluated = 500, owner: Owner = "", step: Step = -1
) -> Result:
    """Evaluate a model on held-out sequences with free-running decoding.

    Returns:
        n, exact_match and token_accuracy (0 to 1), interval (95 %), by_length, step.
    """
    ref = ModelRef(subject=call.fields["subject"], owner=call.owner)
    future = await asyncio.to_thread(
        call.site.registry.snapshots.request,
        "evaluate",
        call.access.source,
        str(n),
        call.fields.get("step"),
        slow=True,
        client=resolve_client(ref),
    )
    result = await await_result(future, EVALUATION_TIMEOUT_S)
    interval = exact_match_interval(result)
    return result | {"interval": list(interval) if interval else None}


@endpoint(load=HEAVY_MS, needs=Right.REUSE)
async def compare(
    call: Call,
    model: Model,
    models: HubModels = None,
    n: Compared = 20,
    shots: Shots = 8,
    wait: Seconds = 60,
    owner: JobCaller = "",
) -> Result:
    """Benchmark a model, baselines and Hub models on the same held-out sequences.

    Returns:
        job and owner (for the job endpoint), status, rows (exact_match with interval), result.
    """
    fields = {"models": models or [], "n": n, "shots": shots}
    return await call.run_job("benchmark", fields, wait)


@endpoint(load=HEAVY_MS, needs=Right.OWN)
async def push(
    call: Call,
    model: PushedModel,
    repo: Repo,
    token: WriteToken = "",
    private: Private = False,
    wait: Seconds = 60,
    owner: JobCaller = "",
) -> Result:
    """Publish a run's newest checkpoint, or a checkpoint, on the Hugging Face Hub.

    Returns:
        job and owner (for the job endpoint), status, result (the address of the model).
    """
    if is_space() and not call.request.scope.get("session", {}).get("oauth_info"):
        raise UserError(
            "publishing from a Space needs a sign-in on the Hub tab of the page; "
            "or download the checkpoint and push it from your machine"
        )
    return await call.run_job("push", {"repo": repo, "token": token, "private": private}, wait)


@endpoint()
async def job(call: Call, job: JobId, owner: JobOwner, wait: MoreSeconds = 0) -> Result:
    """Return the status of a comparison or a push. Results are stored for 15 minutes.

    Returns:
        the same as compare or push.
    """
    return await call.wait_for_job(job, wait)


@endpoint()
async def cancel(call: Call, job: JobId, owner: JobOwner) -> Result:
    """Cancel a comparison or a push.

    A comparison keeps its rows; the last message of a push reports a possible partial upload.

    Returns:
        the same as compare or push.
    """
    await call.send("jobs/cancel", job=job)
    return await call.wait_for_job(job, 0)
