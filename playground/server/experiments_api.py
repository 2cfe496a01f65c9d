"""Serve the experiments of the Compare tab: prepared ones, and those of the owner.

The front end is in ui/static/compare/experiments. experiments/service.py runs the experiments, and
the page polls them. This module does not load torch.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from playground.architectures import ARCHITECTURES
from playground.common.validation import parse
from playground.errors import UserError
from playground.experiments.analysis import TARGET_SCORE, best_variants
from playground.experiments.presets import EXPERIMENT_PRESETS, find_stored, load_stored, spec
from playground.experiments.results import to_csv
from playground.experiments.service import ExperimentService
from playground.experiments.spec import GRID, LENGTHS, Experiment, ExperimentSpec
from playground.experiments.store import EXPERIMENT_MISSING
from playground.experiments.variant import VARIANT_KEY, Variant, format_value, parse_grid
from playground.models.config_fields import ConfigError, format_number, short_repr
from playground.runs.access import Access, Right
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.tasks import LOOKUP
from playground.training.run_config import field_named, section_of_field
from playground.ui.setting_groups import ADVANCED_SETTINGS, DERIVED_SETTINGS, label_of

from .hub_token import jobs_access, resolve_token
from .routes import HandlerGroup, handler
from .runs_api import displayed_settings
from .schemas.base import OwnerRequest
from .schemas.experiments import (
    MAX_FORM_TEXT,
    MAX_ROWS,
    ActOnExperiment,
    CsvFile,
    ExperimentForm,
    ExperimentList,
    ExperimentRequest,
    ExportedExperiment,
    Places,
    Plan,
    PlanExperiment,
    PollExperiments,
    PresetList,
    StartedExperiment,
    VariableSetting,
)
from .schemas.responses import Done

MAX_DRAWN = 12  # with more variants, the charts begin with the lines of the best ones
N_BEST_DRAWN = 5
MAX_LISTED_RUNS = 200
SUGGESTED_VALUES = 5  # values of a setting that the form suggests
MEASURES = ("exact_match", "steps_to", "at_budget", "seconds")
SPREAD = ("n", "median", "low", "high", "reached")
LENGTH_FIELDS = ("times", "n")
# The steps of the runs of a form, without a model whose settings they have.
SHORT_RUNS: dict[str, dict[str, Any]] = {
    GRID: {"max_steps": 600, "lr_decay_steps": 600, "stop_at_exact_match": TARGET_SCORE},
    LENGTHS: {"max_steps": 1000, "lr_decay_steps": 1000},
}
NO_JOBS = "jobs of Hugging Face need your sign-in with access to jobs; sign in, and try again"
NO_SLURM = "this server has several users, so it starts no jobs of SLURM; start your own playground"


def _setting_info(name: str, group: str) -> VariableSetting:
    if name == "architecture":
        choices, default, help = list(ARCHITECTURES), "transformer", "Which model is trained."
    else:
        setting: Any = field_named(name)
        default, help = setting.default, setting.metadata["help"]
        choices = [
            choice for choice in setting.metadata["choices"] if (name, choice) != ("task", LOOKUP)
        ]
    if choices:
        accepts, suggestion = "any of " + ", ".join(choices), ", ".join(choices[:SUGGESTED_VALUES])
    elif isinstance(default, bool):
        accepts, suggestion = "on or off", "on, off"
    else:
        kind = "whole numbers" if isinstance(default, int) else "numbers"
        low, high = (format_number(setting.metadata[key]) for key in ("low", "high"))
        accepts, suggestion = f"{kind} from {low} to {high}", ""
    return {
        "name": name,
        "label": label_of(name),
        "group": group,
        "help": help,
        "accepts": accepts,
        "suggested": suggestion,
        "default": format_value(default),
    }


def _all_setting_info() -> list[VariableSetting]:
    grouped = {
        "Model and task": ("architecture", "task", "min_length", "max_length"),
        **ADVANCED_SETTINGS,
    }
    listed = [(name, group) for group, names in grouped.items() for name in names]
    others = [
        (name, "Other architectures")
        for name in section_of_field()
        if name not in {listed_name for listed_name, _ in listed}
    ]
    excluded = (*DERIVED_SETTINGS, "dataset_sha256", "seed", "device", "num_threads")
    return [
        _setting_info(name, group) for name, group in (*listed, *others) if name not in excluded
    ]


VARIABLE_SETTINGS = _all_setting_info()


class ExperimentHandlers(HandlerGroup):
    def __init__(self, registry: Registry, experiments: ExperimentService) -> None:
        self.registry, self.experiments = registry, experiments

    # Prepared and new experiments

    @handler("experiments/presets", OwnerRequest, PresetList)
    def presets(self, request: OwnerRequest) -> dict[str, Any]:
        """Return the prepared experiments and the settings that a new experiment may vary."""
        presets = [self._describe_preset(name, request.owner) for name in EXPERIMENT_PRESETS]
        return {"presets": presets, "settings": VARIABLE_SETTINGS}

    def _describe_preset(self, name: str, owner: str) -> dict[str, Any]:
        preset, experiment = EXPERIMENT_PRESETS[name], ExperimentSpec(**spec(name))
        known = self.experiments.find_equivalent(experiment, owner)
        return {
            "name": name,
            "title": preset.title,
            "why": preset.why,
            "kind": preset.kind,
            "runs": experiment.n_runs,
            "varied": describe_varied_settings(preset.grid),
            "estimate": self.experiments.estimate_plan(experiment, owner),
            "experiment": known.id if known else None,
            "verdict": _stored_verdict(name),
            "stored": _describe_stored(name),
        }

    @handler("experiments/plan", PlanExperiment, Plan, Right.REUSE)
    def plan(self, request: PlanExperiment, base: Access | None) -> dict[str, Any]:
        """Return the variants, runs and estimate of an experiment without starting it."""
        return self.experiments.plan(_parse_spec(request, base), request.owner, bool(request.on))

    @handler("experiments/places", PlanExperiment, Places, Right.REUSE)
    def places(
        self, request: PlanExperiment, base: Access | None, http_request: Request
    ) -> dict[str, Any]:
        """Return where the requester can train, and prices; remote experiments get the token."""
        session, is_local = http_request.scope.get("session", {}), bool(self.registry.single_owner)
        places: dict[str, Any] = {
            "slurm": is_local and shutil.which("sbatch") is not None,
            "hf_jobs": jobs_access(session, is_local),
            "jobs": 0,
            "machines": [],
        }
        token = resolve_token(request.token, session, is_local)
        if places["hf_jobs"] == "ready" and not token:
            places["hf_jobs"] = "no-token"
        if places["hf_jobs"] == "ready":
            self.experiments.remote.use_token(owner_id(request.owner), token)
            if request.on == "hf-jobs":
                spec = _parse_spec(request, base)
                jobs, machines = self.experiments.list_machines(spec, request.owner, token)
                places |= {"jobs": jobs, "machines": machines}
        return places

    @handler("experiments/submit", PlanExperiment, StartedExperiment, Right.REUSE)
    def start(
        self, request: PlanExperiment, base: Access | None, http_request: Request
    ) -> dict[str, Any]:
        """Start a prepared or a new experiment; return its id as `experiment`."""
        spec, is_local = _parse_spec(request, base), bool(self.registry.single_owner)
        if not request.on:
            return {"experiment": self.experiments.start(spec, request.owner).id}
        token = ""
        if request.on == "hf-jobs":
            session = http_request.scope.get("session", {})
            if jobs_access(session, is_local) == "ready":
                token = resolve_token(request.token, session, is_local)
            if not token:
                raise UserError(NO_JOBS, "on")
        elif not is_local:
            raise UserError(NO_SLURM, "on")
        experiment = self.experiments.start_elsewhere(
            spec, request.owner, request.on, request.options, token
        )
        return {"experiment": experiment.id}

    # Experiments

    @handler("experiments/poll", PollExperiments, ExperimentList)
    def poll(self, request: PollExperiments) -> dict[str, Any]:
        """Return the owner's experiments and the open one, with results that the page lacks."""
        owner = request.owner
        response: dict[str, Any] = {"experiments": [], "open": None}
        for each in self.experiments.store.list_for_owner(owner):
            with suppress(UserError):  # it was deleted meanwhile
                response["experiments"].append(self._summary(each, owner))
        experiment = self.experiments.store.find(request.open, owner)
        if experiment:
            with suppress(UserError):
                n_variants = len(experiment.variants)
                drawn: Any = request.drawn
                if drawn is None:
                    drawn = n_variants if n_variants <= MAX_DRAWN else N_BEST_DRAWN
                response["open"] = _split_results(
                    self.experiments.details(experiment, owner, drawn), request.version
                )
        elif stored := find_stored(request.open or ""):
            response["open"] = _split_results(stored, request.version)
        return response

    def _summary(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        summary = self.experiments.summary(experiment, owner)
        finished, total = (
            self.experiments.progress(experiment, owner) if summary["state"] != "done" else (1, 1)
        )
        return summary | {"share": finished / total if total else 0.0}

    @handler("experiments/action", ActOnExperiment, Done)
    def run_action(self, request: ActOnExperiment) -> dict[str, Any]:
        act = getattr(self.experiments, request.action)
        act(self._require_experiment(request), request.owner)
        return {}

    @handler("experiments/csv", ExperimentRequest, CsvFile)
    def export_csv(self, request: ExperimentRequest) -> dict[str, Any]:
        if stored := find_stored(request.experiment):
            return {"csv": to_csv(stored["results"], stored.get("lengths"))}
        experiment = self._require_experiment(request)
        return {"csv": self.experiments.to_csv(experiment, request.owner)}

    @handler("experiments/json", ExperimentRequest, ExportedExperiment)
    def export_json(self, request: ExperimentRequest) -> Any:
        """Return every number of an experiment, which is sent while it is computed."""
        if stored := find_stored(request.experiment):
            return {name: stored[name] for name in ("results", "lengths") if name in stored}
        parts = self.experiments.to_json(self._require_experiment(request), request.owner)
        return StreamingResponse(parts, media_type="application/json")

    def _require_experiment(self, request: ExperimentRequest) -> Experiment:
        experiment = self.experiments.store.find(request.experiment, request.owner)
        if experiment is None:
            raise UserError(EXPERIMENT_MISSING)
        return experiment


def _stored_verdict(name: str) -> str:
    """Return whether a stored result shows a difference: the first clause of its test."""
    stored = load_stored().get(name)
    test = stored.get("lengths", stored["results"])["test"] if stored else ""
    verdict = re.split(r": |\. ", test)[0].rstrip(".")
    return re.sub(" between .*, ", " between ", verdict) + "." if test else ""


def _describe_stored(name: str) -> list[dict[str, Any]]:
    """Return the answer of a prepared experiment: what its card draws of each variant."""
    stored = load_stored().get(name)
    if stored is None:
        return []
    by_label = {row["label"]: row for row in stored.get("lengths", {"rows": []})["rows"]}
    answers = []
    for variant in stored["results"]["variants"]:
        row = by_label.get(variant["short"])
        answers.append(
            {
                "label": variant["label"],
                "steps_to": variant["steps_to"],
                "budget": variant["budget"],
                "reach": row and row["reach"],
                "positions": row["lengths"] if row else variant["curve"]["steps"],
                "exact_match": row["median"] if row else variant["curve"]["median"],
            }
        )
    return answers


def _parse_spec(request: PlanExperiment, model: Access | None) -> dict[str, Any]:
    """Return the experiment of a request; raise ConfigError naming the field of the form."""
    if request.question is not None:
        return spec(request.question)
    if request.form is None or len(json.dumps(request.form)) > MAX_FORM_TEXT:
        raise UserError("the request names no experiment; reload the page and try again")
    form = parse(ExperimentForm, request.form)
    values_by_setting = parse_grid(form.grid)
    # a single value does not vary
    fixed = {name: values[0] for name, values in values_by_setting.items() if len(values) == 1}
    varied = {name: values for name, values in values_by_setting.items() if len(values) > 1}
    grid = varied or values_by_setting
    of_model = displayed_settings(model) if model else dict(SHORT_RUNS.get(str(form.kind), {}))
    of_model.pop("seed", None)
    base = of_model | fixed
    result: dict[str, Any] = {
        "name": form.name.strip() or _default_name(grid) or "experiment",
        "base": {name: value for name, value in base.items() if name not in grid},
        "grid": grid,
        "seeds": _parse_integers(form.seeds, "seeds"),
        "kind": form.kind,
    }
    if form.kind == LENGTHS:
        fields = form.model_dump(include=set(LENGTH_FIELDS), exclude_unset=True)
        if empty_field := next((name for name in fields if fields[name] == ""), None):
            raise ConfigError(empty_field, f"{empty_field} is empty; write a whole number")
        result |= fields
    return result


def _split_results(details: dict[str, Any], known_version: Any) -> dict[str, Any]:
    """Return the details of an experiment; the results are None if the page has this version."""
    names = ("results", "lengths", "spec")
    state = {name: value for name, value in details.items() if name not in names}
    if len(runs := details["planned_runs"]) > MAX_LISTED_RUNS:  # first those that need a look
        runs = sorted(runs, key=lambda run: run["status"] in ("done", "planned"))[:MAX_LISTED_RUNS]
    state["planned_runs"] = runs
    if known_version == details["version"]:
        return state | {"results": None}
    results = {name: details[name] for name in names if name in details}
    return state | {"results": results | _list_rows(results["results"], results.get("lengths"))}


def _list_rows(results: dict[str, Any], lengths: dict[str, Any] | None) -> dict[str, Any]:
    """Return up to `MAX_ROWS` variants, the best first, without the parts that no page draws."""
    variants, drawn = results["variants"], set(results["drawn"])
    places: Sequence[int] = range(len(variants))
    if len(variants) > MAX_DRAWN:
        place = {each["label"]: at for at, each in enumerate(variants)}
        best = dict.fromkeys([*best_variants(variants, MAX_ROWS), *results["drawn"]])
        places = [place[label] for label in best]
    has_budgets = len({each["budget"] for each in variants}) > 1
    rows = [
        {
            name: {part: value[part] for part in SPREAD if part in value}
            if name in MEASURES and value
            else value
            for name, value in variants[at].items()
        }
        | {"by_seed": {}, "values": {}}
        | ({} if has_budgets else {"at_budget": None})
        for at in places
    ]
    page = {"results": results | {"variants": rows, "n_variants": len(variants)}}
    if lengths:
        no_curve = dict.fromkeys(("lengths", "median", "low", "high", "runs"), ())
        is_drawn = [variants[at]["label"] in drawn for at in places]
        page["lengths"] = lengths | {
            "rows": [
                lengths["rows"][at] | ({} if is_line else no_curve)
                for at, is_line in zip(places, is_drawn, strict=True)
            ]
        }
    return page


def _default_name(grid: Mapping[str, Any]) -> str:
    """Return the labels of the varied settings, for example `Norm placement and layers`."""
    labels = [label_of(name) for name in grid]
    return " and ".join(labels[:1] + [each[0].lower() + each[1:] for each in labels[1:]])


def _parse_integers(text: str, field: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
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


def describe_varied_settings(grid: Mapping[str, list[Any]]) -> str:
    """Describe the varied settings, for example `positions: learned, rope`."""
    parts = []
    for name, values in grid.items():
        if name == VARIANT_KEY:
            parts += [Variant({name: each}, {}).short_label for each in values]
        else:
            parts.append(f"{name}: {', '.join(format_value(value) for value in values)}")
    return "; ".join(parts)
