"""Serve the replications of the Lab tab: published claims, and the owner's runs of them."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from starlette.requests import Request

from playground.common import messages
from playground.common.format import format_count
from playground.errors import UserError
from playground.experiments.claims import CLAIMS
from playground.experiments.replications import (
    Result,
    claims,
    differing_settings,
    evaluate_replication,
    outcome_of_experiment,
    replication_config,
    stored_results,
    unmeasured_model,
)
from playground.experiments.service import ExperimentService
from playground.experiments.spec import Experiment, parse_experiment
from playground.jobs.admission import Client, limit
from playground.models.config_fields import ConfigError, short_repr
from playground.runs.access import RUN_PREFIX, ModelRef
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.runs.state import Run

from .client import resolve_client
from .experiments_api import describe_varied_settings
from .process_calls import await_result
from .routes import HandlerGroup, handler
from .runs_api import describe_config
from .schemas.base import OwnerRequest
from .schemas.experiments import ClaimRequest

LOSS_TIMEOUT_S = 120  # seconds
MAX_CACHED_OUTCOMES = 256  # in memory


class ReplicationHandlers(HandlerGroup):
    def __init__(self, registry: Registry, experiments: ExperimentService) -> None:
        self.registry, self.experiments = registry, experiments
        # by claim, run and step
        self._outcomes: OrderedDict[tuple[str, str, int], Result] = OrderedDict()
        self._measuring: list[Client] = []  # the client of each pending outcome

    @handler("replications/list", OwnerRequest)
    def list_claims(self, request: OwnerRequest) -> dict[str, Any]:
        """Return all claims with the status of the owner's replication."""
        return {
            "claims": [
                line
                | self._describe_claim(line["name"], request.owner)
                | self._replication_status(request.owner, line["name"])
                for line in claims()
            ]
        }

    def _describe_claim(self, name: str, owner: str) -> dict[str, Any]:
        """Return a short description of a claim's training and its expected duration."""
        spec = CLAIMS[name].experiment
        if spec is not None:
            base = spec["base"]
            lengths = f"{base['min_length']}–{base['max_length']}"
            description = (
                f"{base['architecture']}, {base['task']} {lengths}; "
                f"{describe_varied_settings(spec['grid'])}; "
                f"{base['max_steps']:,} updates, {format_count(len(spec['seeds']), 'seed')}"
            )
        else:
            config = replication_config(name)
            description = (
                f"{describe_config(config)}, d_model {config.model.d_model}; "
                f"{config.training.max_steps:,} updates of {config.training.batch_size:,}"
            )
        return {
            "description": description,
            "is_experiment": spec is not None,
            "stored": stored_results().get(name),
            "estimate": self.experiments.estimate_claim(CLAIMS[name], owner),
        }

    def _replication_status(self, owner: str, name: str) -> dict[str, Any]:
        """Return the progress of the owner's replication of a claim."""
        status: dict[str, Any] = {
            "experiment": None,
            "run": None,
            "state": "none",
            "step": 0,
            "steps": 0,
            "queue_position": None,
            "message": "",
        }
        if CLAIMS[name].experiment is not None:
            experiment = self._find_experiment(owner, name)
            if experiment:
                with suppress(UserError):  # it was deleted meanwhile
                    step, steps = self.experiments.progress(experiment, owner)
                    status |= {
                        "experiment": experiment.id,
                        "state": self.experiments.state(experiment, owner),
                        "step": step,
                        "steps": steps,
                    }
        elif run := self._find_run(owner, name):
            status |= {
                "run": RUN_PREFIX + run.id,
                "state": run.status,
                "step": run.step,
                "steps": run.steps,
                "message": run.message,
            }
            status["queue_position"] = self.registry.scheduler.position(run)
        return status

    def _find_run(self, owner: str, name: str) -> Run | None:
        """Return the owner's newest run with the settings of a claim.

        Finished runs and runs without changed settings are preferred.
        """
        config = replication_config(name)
        matching = [
            run
            for run in self.registry.list_for_owner(owner)
            if run.deleted_at is None and not differing_settings(config, run.config)
        ]
        return max(
            matching,
            key=lambda run: (not run.modified_settings, run.status == "done", run.created),
            default=None,
        )

    def _find_experiment(self, owner: str, name: str) -> Experiment | None:
        spec = parse_experiment(CLAIMS[name].experiment or {}, owner_id(owner))
        return self.experiments.find_equivalent(spec, owner)

    @handler("replications/start", ClaimRequest)
    def start(self, request: ClaimRequest) -> dict[str, Any]:
        """Start the replication of a claim: a run or an experiment."""
        name, owner = _claim_name(request), request.owner
        spec = CLAIMS[name].experiment
        if spec is not None:
            return {"experiment": self.experiments.submit(spec, owner).id}
        run = self.registry.start(replication_config(name), owner, name=f"as published: {name}")
        return {"run": RUN_PREFIX + run.id}

    @handler("replications/outcome", ClaimRequest)
    async def outcome(self, request: ClaimRequest, http_request: Request | None) -> dict[str, Any]:
        """Compare a finished replication with the published figure.

        The number of pending comparisons is limited; a closed connection ends its wait.
        """
        outcome = await asyncio.to_thread(self._compute_outcome, request)
        if "model" not in outcome:
            return dict(outcome)
        client = resolve_client(ModelRef(subject="", owner=request.owner), http_request)
        limit("losses").admit(client, self._measuring)
        self._measuring.append(client)
        try:
            future = self.registry.snapshots.slow_inspector.request(
                "loss", outcome["model"], client=client
            )
            loss = await await_result(future, LOSS_TIMEOUT_S, http_request)
        finally:
            self._measuring.remove(client)
        return dict(await asyncio.to_thread(self._compute_outcome, request, loss))

    def _compute_outcome(
        self, request: ClaimRequest, loss: dict[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """Return the outcome, or the `model` whose loss must be `loss` first."""
        name, owner = _claim_name(request), request.owner
        if CLAIMS[name].experiment is not None:
            experiment = self._find_experiment(owner, name)
            return (
                outcome_of_experiment(name, self.experiments.details(experiment, owner))
                if experiment
                else _no_result(name)
            )
        run = self._find_run(owner, name)
        if run is None:
            return _no_result(name)
        key = (name, run.id, run.step)
        if cached := self._outcomes.get(key):
            return cached
        if loss is None and (model := unmeasured_model(self.registry, name, run)) is not None:
            return {"model": dict(model)}
        outcome = evaluate_replication(self.registry, name, run, 0, loss or {})
        if outcome["passed"] is not None:  # an undecided outcome may change
            self._outcomes[key] = outcome
            while len(self._outcomes) > MAX_CACHED_OUTCOMES:
                self._outcomes.popitem(last=False)
        return outcome


def _no_result(name: str) -> dict[str, Any]:
    return {"name": name, "passed": None, "measured": None, "summary": "not run yet"}


def _claim_name(request: ClaimRequest) -> str:
    if request.name not in CLAIMS:
        raise ConfigError("name", messages.choose_one_of("claim", short_repr(request.name), CLAIMS))
    return request.name
