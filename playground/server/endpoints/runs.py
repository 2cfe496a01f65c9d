"""The endpoints for settings, models and runs."""

# no `from __future__ import annotations`: Gradio reads the types of the endpoints
import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gradio as gr
from starlette.requests import Request

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.errors import UserError
from playground.runs.access import RUN_PREFIX, SHARE_PREFIX, ModelRef, Right, owns_dataset
from playground.runs.owner_keys import new_owner_key
from playground.runs.record import ACTIVE_STATUSES
from playground.runs.state import Run
from playground.tasks import LOOKUP, TASKS
from playground.training.config import field_named, section_of_field
from playground.training.presets import PRESETS, requested_config
from playground.ui.form_values import dataset_settings

from ..schemas.base import Name
from ..schemas.public_api import Owner, Settings
from .base import EndpointBase, Method, endpoint, not_found_message, omit

STATUS_CHANGE_TIMEOUT_S = 10.0  # seconds to wait for pause, resume and stop to take effect
REACHED_STATUS = {
    "pause": lambda status: status not in (*ACTIVE_STATUSES, "waiting"),
    "resume": lambda status: status not in ("paused", "stopped", "failed"),
    "stop": lambda status: status not in (*ACTIVE_STATUSES, "waiting", "paused"),
}


def _control_endpoint(action: str, summary: str) -> Method:
    """Return the endpoint that applies an action to a run."""

    async def control(
        self: Any, run: Name, owner: Owner = "", request: gr.Request = None
    ) -> dict[str, Any]:
        return await self._control(run, owner, action, request)

    control.__name__ = action
    control.__doc__ = f"""{summary}

        Args:
            run: the run's id.
            owner: the key that start returned.

        Returns:
            the same as status.
        """
    return endpoint(needs=Right.OWN)(control)


class RunEndpoints(EndpointBase):
    """List what can be trained, and start and control runs."""

    @endpoint()
    async def settings(self, request: gr.Request = None) -> dict[str, Any]:
        """List tasks, presets, architectures, and all settings of a run.

        Returns:
            tasks, presets and architectures with descriptions; settings with defaults.
        """
        return {
            "tasks": {
                name: f"{task.description} {' -> '.join(task.example)}"
                for name, task in TASKS.items()
            },
            "presets": {name: preset.description for name, preset in PRESETS.items()},
            "architectures": {name: each.description for name, each in ARCHITECTURES.items()},
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

    @endpoint()
    async def models(self, owner: Owner = "", request: gr.Request = None) -> dict[str, Any]:
        """List the available models: public checkpoints and the runs of an owner.

        Args:
            owner: the key that start returned; without it, checkpoints only.

        Returns:
            checkpoints and runs: model name, task, parameters, and best exact match (0 to 1).
        """
        response = await self.call_handler("runs/list", {"owner": self.owner_key(owner)}, request)
        runs = [
            row | {"model": row["subject"].removeprefix(RUN_PREFIX)}
            for row in response["runs"]
            if not row["deleted"]
        ]
        return {
            "checkpoints": [
                omit(row | {"model": row["subject"]}, "subject") for row in response["checkpoints"]
            ],
            "runs": [omit(row, "subject", "hidden", "deleted") for row in runs],
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
            settings: non-default settings by name, such as {"task": "reverse", "max_steps": 300}.
            preset: a name from the settings endpoint; the default is fast.
            name: the name of the run.
            owner: the key of an earlier start, for the same owner; without it, a new key.

        Returns:
            run: id; owner: secret key; watch: read-only model name; status, steps, parameters.
        """
        key = self.owner_key(owner) or new_owner_key()
        try:
            run = await asyncio.to_thread(
                self._start, settings or {}, preset, key, " ".join(name.split())
            )
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
        self, model: Name, owner: Owner = "", curve: bool = False, request: gr.Request = None
    ) -> dict[str, Any]:
        """Return the status of a run or checkpoint, with loss and exact match.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            owner: the key that start returned, for a run's id.
            curve: whether to add loss and scores by step, at most about 3000 points.

        Returns:
            status, message (on an error), the latest exact_match (0 to 1), final scores by length.
        """
        return await self._status(self.model_ref(model, owner), curve, request)

    pause = _control_endpoint("pause", "Pause a run after its current step, and save a checkpoint.")
    resume = _control_endpoint(
        "resume", "Resume a paused, stopped or failed run from its last state or checkpoint."
    )
    stop = _control_endpoint(
        "stop", "Stop a run after saving a checkpoint; it can be used and resumed afterwards."
    )

    # Helpers

    def _start(self, settings: dict[str, Any], preset: str, owner: str, name: str) -> Run:
        if settings.get("task") == LOOKUP:
            owns = partial(owns_dataset, self.registry, owner)
            settings = settings | dataset_settings(settings, owns)
        return self.registry.start(requested_config(preset, settings), owner, name=name)

    async def _status(self, ref: ModelRef, curve: bool, request: Request) -> dict[str, Any]:
        response = await self.call_handler(
            "runs/poll",
            ref.model_dump() | {"n_points": 0, "series_id": -1, "snapshot_version": 0},
            request,
        )
        if response["status"] == "not-found":
            raise UserError(response["message"] or not_found_message(ref.subject))
        points, latest = response["points"], response.get("latest") or {}
        evaluation = points["evaluations"][-1] if points["evaluations"] else None
        status = {
            "status": response["status"],
            "message": response["message"],
            "name": response["name"],
            "step": response["step"],
            "steps": response["max_steps"],
            "queue_position": response.get("queue_position"),
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
        return status | {"curve": {name: points[name] for name in columns}}

    async def _control(self, run: str, owner: str, action: str, request: Request) -> dict[str, Any]:
        ref = self.model_ref(run, owner)
        controlled = (await self.require(run, owner, Right.OWN)).run
        await self.call_handler("runs/action", ref.model_dump() | {"action": action}, request)
        await _wait_until(
            lambda: controlled is None or REACHED_STATUS[action](controlled.status),
            STATUS_CHANGE_TIMEOUT_S,
        )
        return await self._status(ref, False, request)


async def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition, at most `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
