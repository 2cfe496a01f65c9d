"""Serve replications: published claims, and the owner's experiments of them."""

import asyncio
from contextlib import suppress
from typing import Any, NotRequired, TypedDict

from starlette.requests import Request

from playground.architectures.parameter_groups import parameter_count
from playground.common import messages
from playground.common.format import format_count
from playground.errors import UserError
from playground.experiments.progress import Estimate
from playground.experiments.replications import (
    CLAIMS,
    Claim,
    Result,
    StoredResult,
    needs_loss,
    outcome_of_experiment,
    stored_results,
    without_result,
)
from playground.experiments.service import ExperimentService
from playground.experiments.spec import Experiment, ExperimentSpec
from playground.experiments.variant import VARIANT_KEY, label
from playground.models.config_fields import ConfigError, short_repr
from playground.runs.access import ModelRef
from playground.runs.registry import Registry
from playground.runs.state import Run

from .client import resolve_client
from .experiments_api import describe_varied_settings
from .process_calls import await_result
from .routes import HandlerGroup, handler
from .runs_api import describe_config
from .schemas.base import Name, OwnerRequest
from .schemas.experiments import StartedExperiment

LOSS_TIMEOUT_S = 120  # seconds


class ClaimRequest(OwnerRequest):
    """A published claim, by name."""

    name: Name


class ClaimStatus(TypedDict):
    name: str
    title: str
    source: str
    measure: str
    statement: str
    published: float | None
    criterion: str
    deviations: list[str]
    curve: list[tuple[int, float]]
    description: str
    settings: dict[str, Any]
    command: str
    stored: StoredResult | None
    parameters: NotRequired[int]
    estimate: Estimate
    experiment: str | None
    state: str
    step: int
    steps: int
    queue_position: int | None
    message: str


class ClaimList(TypedDict):
    claims: list[ClaimStatus]


class ReplicationHandlers(HandlerGroup):
    def __init__(self, registry: Registry, experiments: ExperimentService) -> None:
        self.registry, self.experiments = registry, experiments

    @handler("replications/list", OwnerRequest, ClaimList)
    def list_claims(self, request: OwnerRequest) -> dict[str, Any]:
        return {
            "claims": [
                _describe_claim(name, claim)
                | {"estimate": self.experiments.estimate_plan(claim.experiment, request.owner)}
                | self._replication_status(request.owner, name)
                for name, claim in CLAIMS.items()
            ]
        }

    def _replication_status(self, owner: str, name: str) -> dict[str, Any]:
        status: dict[str, Any] = {
            "experiment": None,
            "state": "none",
            "step": 0,
            "steps": 0,
            "queue_position": None,
            "message": "",
        }
        if experiment := self._find_experiment(owner, name):
            with suppress(UserError):  # it was deleted meanwhile
                summary = self.experiments.summary(experiment, owner)
                step, steps = self.experiments.progress(experiment, owner)
                names = ("state", "queue_position", "message")
                status |= {"experiment": experiment.id, "step": step, "steps": steps}
                status |= {name: summary[name] for name in names}
        return status

    def _find_experiment(self, owner: str, name: str) -> Experiment | None:
        return self.experiments.find_equivalent(CLAIMS[name].experiment, owner)

    @handler("replications/start", ClaimRequest, StartedExperiment)
    def start(self, request: ClaimRequest) -> dict[str, Any]:
        spec = CLAIMS[_claim_name(request)].experiment.model_dump()
        return {"experiment": self.experiments.start(spec, request.owner).id}

    @handler("replications/outcome", ClaimRequest, Result)
    async def outcome(self, request: ClaimRequest, http_request: Request | None) -> dict[str, Any]:
        """Compare a finished replication with the published figure."""
        name, owner = _claim_name(request), request.owner
        experiment = await asyncio.to_thread(self._find_experiment, owner, name)
        if experiment is None:
            return dict(without_result(name, "not run yet"))
        runs = await asyncio.to_thread(self.experiments.runs, experiment, owner)
        losses = [
            await self._loss(experiment, run, owner, http_request)
            for run in (runs if needs_loss(name, runs) else [])
        ]
        details = await asyncio.to_thread(self.experiments.details, experiment, owner)
        return dict(await asyncio.to_thread(outcome_of_experiment, name, details, runs, losses))

    async def _loss(
        self, experiment: Experiment, run: Run, owner: str, http_request: Request | None
    ) -> float:
        """Return the loss of the model of a run, measured once."""
        measured, key = self.experiments.store.touch(experiment).cache.losses, (run.id, run.step)
        if key in measured:
            return measured[key]
        client = resolve_client(ModelRef(subject="", owner=owner))
        request = self.registry.snapshots.request
        future = await asyncio.to_thread(
            request, "loss", run, step=run.step, slow=True, client=client
        )
        measured[key] = (await await_result(future, LOSS_TIMEOUT_S, http_request))["loss"]
        return measured[key]


def _describe_claim(name: str, claim: Claim) -> dict[str, Any]:
    """Return a claim with its settings, and the command that replicates it."""
    spec = claim.experiment
    grid = {
        setting: [label(value) if setting == VARIANT_KEY else value for value in values]
        for setting, values in spec.grid.items()
    }
    described = claim.model_dump(exclude={"experiment", "threshold"}) | {
        "name": name,
        "description": _describe_training(spec),
        "settings": {**spec.base, **grid, "seeds": spec.seeds},
        "command": f"python -m benchmarks published --only {name}",
        "stored": stored_results().get(name),
    }
    if len(spec.variants) == 1:
        described["parameters"] = parameter_count(spec.variants[0].config(0).model)
    return described


def _describe_training(spec: ExperimentSpec) -> str:
    if len(spec.variants) == 1:
        config = spec.variants[0].config(0)
        return (
            f"{describe_config(config)}, d_model {config.model.d_model}; "
            f"{config.training.max_steps:,} updates of {config.training.batch_size:,}"
        )
    base = spec.base
    return (
        f"{base['architecture']}, {base['task']} {base['min_length']}–{base['max_length']}; "
        f"{describe_varied_settings(spec.grid)}; "
        f"{base['max_steps']:,} updates, {format_count(len(spec.seeds), 'seed')}"
    )


def _claim_name(request: ClaimRequest) -> str:
    if request.name not in CLAIMS:
        raise ConfigError("name", messages.choose_one_of("claim", short_repr(request.name), CLAIMS))
    return request.name
