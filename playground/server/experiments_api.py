"""Serve the Lab tab: prepared experiments, the owner's experiments, and replications.

The front end is in ui/static/lab. experiments/service.py runs the
experiments, and the page polls them. This module does not load torch.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request

from playground.architectures import ARCHITECTURES
from playground.common.format import format_count
from playground.errors import UserError
from playground.experiments.claims import CLAIMS
from playground.experiments.presets import list_presets, spec
from playground.experiments.replications import (
    claims,
    differing_settings,
    evaluate_replication,
    outcome_of_experiment,
    replication_config,
    unmeasured_model,
)
from playground.experiments.service import ExperimentService
from playground.experiments.spec import GRID, LENGTHS, Experiment, parse_experiment
from playground.experiments.variant import VARIANT_KEY, Variant, format_value, parse_value
from playground.jobs.executors import ProcessPerJob
from playground.jobs.policy import Policy
from playground.jobs.queue import JobQueue
from playground.models.config_fields import ConfigError, format_number, short_repr
from playground.runs.model_ref import RUN_PREFIX, resolve_config
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.tasks import LOOKUP
from playground.training.config import field_named, section_of_field
from playground.ui.training_form import ADVANCED_SETTINGS, DERIVED_SETTINGS, label_of

from .client import resolve_client, resolve_client_address
from .live_api import await_result
from .process_calls import run_job
from .routes import Handler, call_owner_handler
from .runs_api import describe_config, settings_for_viewer

log = logging.getLogger(__name__)

MAX_REQUEST_LENGTH = 20_000  # characters
SUGGESTED_VALUES = 5  # values of a setting that the form suggests
FIGURES_TIMEOUT_S = 120  # seconds
MAX_ACTIVE_FIGURES, MAX_ACTIVE_FIGURES_PER_ADDRESS = 5, 3  # queued or running requests
OUTCOME_TIMEOUT_S = 150
MAX_OUTCOMES_PER_CLIENT, MAX_OUTCOMES_TOTAL = 2, 16  # pending outcomes
MAX_CACHED_OUTCOMES = 256  # in memory
LENGTH_FIELDS = ("times", "n")


class LabPage:
    """Handlers of the tab\'s requests."""

    def __init__(self, registry: Registry, experiments: ExperimentService) -> None:
        self.registry, self.experiments = registry, experiments
        # by claim, run and step
        self._outcomes: OrderedDict[tuple[str, str, int], dict[str, Any]] = OrderedDict()
        self._pending_outcomes: Counter[str] = Counter()  # pending outcomes by client
        # each takes some seconds of one core
        self._figure_queue = JobQueue(
            ProcessPerJob({"figures": "playground.figures.export:export_experiment"}),
            Policy(
                process="the process that draws the figures",
                nouns="figures",
                max_active=MAX_ACTIVE_FIGURES,
                max_active_per_address=MAX_ACTIVE_FIGURES_PER_ADDRESS,
                run_timeout_s=FIGURES_TIMEOUT_S,
                timeout_advice="try again when the machine is less busy",
            ),
        )

    def handlers(self) -> dict[str, Handler]:
        routes = {
            "experiments/presets": self.presets,
            "experiments/poll": self.poll,
            "experiments/plan": self.plan,
            "experiments/submit": self.submit,
            "experiments/action": self.run_action,
            "experiments/csv": self.export_csv,
            "replications/list": self.replications,
            "replications/start": self.start_replication,
        }
        answerers = {name: self._owner_handler(answer) for name, answer in routes.items()}
        return answerers | {
            "experiments/figures": self.export_figures,
            "replications/outcome": self.outcome,
        }

    def _owner_handler(self, handler: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Handler:
        async def endpoint(payload: object, _: Request) -> dict[str, Any]:
            return await asyncio.to_thread(call_owner_handler, handler, payload)

        return endpoint

    # Prepared and new experiments

    def presets(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the prepared experiments and the settings that a new experiment may vary.

        Each prepared experiment has its runs, an estimated duration, and the owner's experiment
        with the same settings, if there is one.
        """
        own_experiments, response = self.experiments.list_for_owner(owner), []
        for preset in list_presets():
            summary = {key: preset[key] for key in ("name", "title", "why", "runs", "missing")} | {
                "kind": preset["spec"]["kind"]
            }
            summary |= {
                "varied": _describe_varied_settings(preset["spec"]["grid"]),
                "estimate": None,
                "experiment": None,
            }
            if not preset["missing"]:
                experiment = parse_experiment(preset["spec"], owner_id(owner))
                summary["experiment"] = next(
                    (each.id for each in own_experiments if each.is_equivalent(experiment)), None
                )
                summary["estimate"] = self.experiments.estimate(experiment, owner)
            response.append(summary)
        return {"questions": response, "settings": VARIABLE_SETTINGS}

    def plan(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the cells, runs and estimate of an experiment without starting it."""
        return self.experiments.plan(self._parse_spec(owner, payload), owner)

    def submit(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Start a prepared or a new experiment; return its id as `experiment`."""
        return {"experiment": self.experiments.submit(self._parse_spec(owner, payload), owner).id}

    def _parse_spec(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the experiment of a request.

        Raises:
            ConfigError: naming the field of the form.
        """
        if "question" in payload:
            return spec(_validate_text(payload["question"], "question"))
        form = payload.get("form")
        if not isinstance(form, dict) or len(json.dumps(form)) > MAX_REQUEST_LENGTH:
            raise UserError("the request names no experiment; reload the page and try again")
        values_by_setting = _parse_grid(form.get("grid"))
        grid = {
            name: values for name, values in values_by_setting.items() if len(values) > 1
        } or values_by_setting
        base = self._base_settings(owner, form.get("base")) | {
            name: values[0] for name, values in values_by_setting.items() if len(values) == 1
        }
        # a single value does not vary
        request: dict[str, Any] = {
            "name": _validate_text(form.get("name", ""), "name").strip()
            or " and ".join(grid)
            or "experiment",
            "base": {name: value for name, value in base.items() if name not in grid},
            "grid": grid,
            "seeds": _parse_integers(form.get("seeds"), "seeds"),
            "kind": form.get("kind", GRID),
        }
        if request["kind"] == LENGTHS:
            request |= {name: form[name] for name in LENGTH_FIELDS if name in form}
            if empty_field := next((name for name in LENGTH_FIELDS if form.get(name) == ""), None):
                raise ConfigError(empty_field, f"{empty_field} is empty; write a whole number")
        return request

    def _base_settings(self, owner: str, model_ref: object) -> dict[str, Any]:
        """Return the fixed settings of a run or a checkpoint, without the seed.

        The result is {} for the defaults.
        """
        if not model_ref:
            return {}
        try:
            config = resolve_config(self.registry, {"subject": model_ref, "owner": owner})
        except ValueError as error:
            raise ConfigError("base", str(error)) from None
        return {
            name: value for name, value in settings_for_viewer(config).items() if name != "seed"
        }

    # Experiments

    def poll(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the owner's experiments and the data of the one that is `open`.

        Results are included only if their `version` differs from `known`.
        """
        response: dict[str, Any] = {
            "experiments": [
                self._summary(each, owner) for each in self.experiments.list_for_owner(owner)
            ],
            "open": None,
        }
        experiment = self.experiments.find(payload.get("open"), owner)
        if experiment:
            details = self.experiments.details(experiment, owner)
            results = {
                name: details.pop(name)
                for name in ("results", "lengths", "spec")
                if name in details
            }
            response["open"] = details | {
                "results": None if payload.get("version") == details["version"] else results
            }
        return response

    def _summary(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        summary = self.experiments.summary(experiment, owner)
        finished, total = (
            self.experiments.progress(experiment, owner) if summary["state"] != "done" else (1, 1)
        )
        return summary | {"share": finished / total if total else 0.0}

    def run_action(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Cancel, resume or delete an experiment."""
        actions = {
            "cancel": self.experiments.cancel,
            "resume": self.experiments.resume,
            "delete": self.experiments.delete,
        }
        action = payload.get("do")
        if not isinstance(action, str) or action not in actions:
            raise UserError(f"{short_repr(action)} is nothing that can be done with an experiment")
        actions[action](self._require_experiment(owner, payload), owner)
        return {}

    def export_csv(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"csv": self.experiments.to_csv(self._require_experiment(owner, payload), owner)}

    async def export_figures(self, payload: object, request: Request | None) -> dict[str, Any]:
        """Return all figures of an experiment, for print: {"zip": base64}."""
        figure_data = await asyncio.to_thread(call_owner_handler, self._figure_data, payload)
        if "error" in figure_data:
            return figure_data
        return await run_job(self._figure_queue, "figures", figure_data, request=request)

    def _figure_data(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        experiment = self._require_experiment(owner, payload)
        results = self.experiments.results(experiment, owner)
        if not any(cell["n"] for cell in results["cells"]):
            raise UserError("no run has finished yet, so there is nothing to draw")
        figures = {"experiment": results}
        if experiment.kind == LENGTHS:
            length_results = self.experiments.lengths(experiment, owner)
            figures |= (
                {"answers-by-length": length_results, "lengths-heatmap": length_results}
                if any(row["n"] for row in length_results["rows"])
                else {}
            )
        return figures

    def _require_experiment(self, owner: str, payload: dict[str, Any]) -> Experiment:
        experiment = self.experiments.find(payload.get("experiment"), owner)
        if experiment is None:
            raise UserError("this experiment is no longer here, or not yours")
        return experiment

    # Replications

    def replications(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return all claims with the status of the owner's replication."""
        return {
            "claims": [
                line
                | self._describe_claim(line["name"])
                | self._replication_status(owner, line["name"])
                for line in claims()
            ]
        }

    def _describe_claim(self, name: str) -> dict[str, Any]:
        """Return a short description of a claim's training and its expected duration."""
        spec = CLAIMS[name].experiment
        minutes = f"about {CLAIMS[name].minutes:g} min on two cores"
        if spec is not None:
            base = spec["base"]
            lengths = f"{base['min_length']}–{base['max_length']}"
            description = (
                f"{base['architecture']}, {base['task']} {lengths}; "
                f"{_describe_varied_settings(spec['grid'])}; "
                f"{base['max_steps']:,} updates, {format_count(len(spec['seeds']), 'seed')}"
            )
        else:
            config = replication_config(name)
            description = (
                f"{describe_config(config)}, d_model {config.model.d_model}; "
                f"{config.training.max_steps:,} updates of {config.training.batch_size}"
            )
        return {"setting": f"{description}; {minutes}", "is_experiment": spec is not None}

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
        return next(
            (each for each in self.experiments.list_for_owner(owner) if each.is_equivalent(spec)),
            None,
        )

    def start_replication(self, owner: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Start the replication of a claim: a run or an experiment."""
        name = _claim_name(payload)
        spec = CLAIMS[name].experiment
        if spec is not None:
            return {"experiment": self.experiments.submit(spec, owner).id}
        return {
            "run": RUN_PREFIX
            + self.registry.start(replication_config(name), owner, name=f"as published: {name}").id
        }

    async def outcome(self, payload: object, request: Request | None) -> dict[str, Any]:
        """Compare a finished replication with the published figure.

        The number of pending comparisons is limited; a closed connection ends its wait.
        """
        outcome = await asyncio.to_thread(call_owner_handler, self._compute_outcome, payload)
        if "model" not in outcome:
            return outcome
        client = resolve_client_address(request) if request else ""
        if (
            self._pending_outcomes[client] >= MAX_OUTCOMES_PER_CLIENT
            or self._pending_outcomes.total() >= MAX_OUTCOMES_TOTAL
        ):
            return {
                "error": "the server is measuring other models; try again in a moment",
                "again": True,
            }
        self._pending_outcomes[client] += 1
        try:
            future = self.registry.snapshots.slow_inspector.request(
                "loss", outcome["model"], client=resolve_client(payload, True, request)
            )
            loss = await await_result(future, OUTCOME_TIMEOUT_S - 30, request)
        finally:
            self._pending_outcomes[client] -= 1
            if not self._pending_outcomes[client]:
                del self._pending_outcomes[client]
        if "error" in loss:
            return loss
        return await asyncio.to_thread(
            call_owner_handler,
            lambda owner, what: self._compute_outcome(owner, what, loss),
            payload,
        )

    def _compute_outcome(
        self, owner: str, payload: dict[str, Any], loss: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the outcome, or the `model` whose loss must be `loss` first."""
        name = _claim_name(payload)
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
    return {"name": name, "passed": None, "ours": None, "summary": "not run yet"}


def _claim_name(payload: Mapping[str, Any]) -> str:
    name = _validate_text(payload.get("name"), "name")
    if name not in CLAIMS:
        raise ConfigError("name", f"claim is {short_repr(name)}; choose one of {', '.join(CLAIMS)}")
    return name


def _parse_grid(pairs: object) -> dict[str, list[Any]]:
    """Parse the varied settings of the form, [[name, "value, value"], ...].

    Raises:
        ConfigError: naming the setting.
    """
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in pairs
    ):
        raise ConfigError("grid", "choose a setting to vary, and its values")
    grid: dict[str, list[Any]] = {}
    for pair in pairs:
        name, text = (_validate_text(each, "grid") for each in pair)
        if name in grid:
            raise ConfigError(
                name,
                f"{name} occurs twice; select another setting, or type all values into one field",
            )
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise ConfigError(name, f"{name} has no values; write some, separated by commas")
        grid[name] = [parse_value(name, part) for part in parts]
    return grid


def _parse_integers(text: object, field: str) -> list[int]:
    parts = [part.strip() for part in _validate_text(text, field).split(",") if part.strip()]
    if not parts:
        raise ConfigError(
            field, f"{field} are empty; write one whole number or more, separated by commas"
        )
    try:
        return [int(part) for part in parts]
    except ValueError:
        raise ConfigError(
            field, f"{field} are {short_repr(text)}; write whole numbers, separated by commas"
        ) from None


def _validate_text(value: object, field: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_REQUEST_LENGTH:
        raise ConfigError(field, f"{field} is {short_repr(value)}; text is expected")
    return value


def _describe_varied_settings(grid: Mapping[str, list[Any]]) -> str:
    """Describe the varied settings, for example `positions: learned, rope`."""
    parts = []
    for name, values in grid.items():
        if name == VARIANT_KEY:
            parts.append(", ".join(Variant({name: each}, {}).short_label for each in values))
        else:
            parts.append(f"{name}: {', '.join(format_value(value) for value in values)}")
    return "; ".join(parts)


def _setting_info(name: str, group: str) -> dict[str, Any]:
    """Return the help, the accepted values and the suggested values of a setting."""
    if name == "architecture":
        choices, default, help, low, high = (
            list(ARCHITECTURES),
            "transformer",
            "Which model is trained.",
            0,
            0,
        )
    else:
        setting: Any = field_named(name)
        default, (help, low, high) = (
            setting.default,
            (setting.metadata[key] for key in ("help", "low", "high")),
        )
        choices = [
            choice for choice in setting.metadata["choices"] if (name, choice) != ("task", LOOKUP)
        ]
    if choices:
        accepts, suggestion = "any of " + ", ".join(choices), ", ".join(choices[:SUGGESTED_VALUES])
    elif isinstance(default, bool):
        accepts, suggestion = "on or off", "on, off"
    else:
        kind = "whole numbers" if isinstance(default, int) else "numbers"
        accepts, suggestion = f"{kind} from {format_number(low)} to {format_number(high)}", ""
    return {
        "name": name,
        "label": label_of(name),
        "group": group,
        "help": help,
        "accepts": accepts,
        "begin": suggestion,
        "default": format_value(default),
    }


def _all_setting_info() -> list[dict[str, Any]]:
    grouped = {
        "First of all": ("architecture", "task", "min_length", "max_length"),
        **ADVANCED_SETTINGS,
    }
    listed = [(name, group) for group, names in grouped.items() for name in names]
    rest = [
        (name, "Of other families")
        for name in section_of_field()
        if name not in {each for each, _ in listed}
    ]
    left_out = (*DERIVED_SETTINGS, "dataset_sha256", "seed", "device", "num_threads")
    return [_setting_info(name, group) for name, group in (*listed, *rest) if name not in left_out]


VARIABLE_SETTINGS = _all_setting_info()
