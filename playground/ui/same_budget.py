"""The Compare tab's other families at the size of the visitor's model: what is on offer, beginning them as runs, their curves."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from playground.comparison.known import FAMILIES as KNOWN
from playground.comparison.known import TREE
from playground.families import FAMILIES
from playground.models.config import SettingError
from playground.runs.registry import Registry
from playground.runs.run import Refused as Full
from playground.runs.run import Run, task_in_words
from playground.training.budget import same_budget
from playground.training.config import RunConfig

from .subject import RUN, config_on_show, run_on_show

FIRST = ("bert", "gpt2", "bart")  # transformers' own, one of each kind
GOOD = 0.99  # exact match that counts as learned
MOST_CURVES = 8
COLUMNS = 300  # stretches of a curve


def known() -> dict[str, Any]:
    """What is known of the three families, and where they come from."""
    return {"families": KNOWN, "tree": TREE}


def config_of(registry: Registry, what: dict[str, Any]) -> RunConfig:
    """The settings of the model that was chosen, on the lengths that were, for runs that end when they are good.

    Raises:
        ValueError: with a sentence, when there is no such model, or the lengths do not fit.
    """
    config = config_on_show(registry, what)
    lengths = {name: what[name] for name in ("min_length", "max_length") if name in what}
    if not all(type(length) is int for length in lengths.values()):
        raise ValueError("the lengths must be whole numbers")
    room = max(config.model.max_positions, lengths.get("max_length", 0) + 1)
    return config.replace(**lengths, max_positions=room, until=GOOD)


_searching = threading.Lock()  # so that nobody searches for what another one is about to find


def budgeted(config: RunConfig, family: str) -> RunConfig:
    """A run of `family` with as many parameters. Raises SettingError where no size comes near."""
    with _searching:
        return _budgeted(config, family)


@lru_cache(maxsize=64)
def _budgeted(config: RunConfig, family: str) -> RunConfig:
    return same_budget(config, family)


def offered(registry: Registry, what: dict[str, Any]) -> dict[str, Any]:
    """Every family at the size of the chosen model; with an `error` where it has no such size.

    Raises:
        ValueError: as config_of.
    """
    config = config_of(registry, what)
    rows = []
    for name in sorted(FAMILIES, key=lambda name: name not in FIRST):
        family = FAMILIES[name]
        row: dict[str, Any] = {
            "family": name,
            "title": family.title,
            "sentence": family.sentence,
            "own": name == config.family,
        }
        try:
            row["parameters"] = budgeted(config, name).model.parameter_count()
        except SettingError as error:
            row["error"] = str(error)
        rows.append(row)
    lengths = {"min_length": config.task.min_length, "max_length": config.task.max_length}
    return {
        "families": rows,
        "task": task_in_words(config),
        "parameters": config.model.parameter_count(),
        **lengths,
    }


def train(registry: Registry, owner: str, what: dict[str, Any]) -> dict[str, Any]:
    """Begin a run of each of the families that were chosen. Those that could not begin are told in `error`.

    Raises:
        ValueError: as config_of, or for families that there are not.
    """
    families = what.get("families")
    if (
        not isinstance(families, list)
        or not families
        or not all(isinstance(each, str) and each in FAMILIES for each in families)
    ):
        raise ValueError(f"choose families to train, out of {', '.join(FAMILIES)}")
    config = config_of(registry, what)
    begun, wrong = [], []
    for name in dict.fromkeys(families):
        try:
            run = registry.start(
                budgeted(config, name),
                owner,
                name=f"{FAMILIES[name].title}: {task_in_words(config)}",
            )
            begun.append({"family": name, "title": FAMILIES[name].title, "subject": RUN + run.id})
        except (Full, SettingError) as error:
            wrong.append(f"{FAMILIES[name].title}: {error}")
    return {"runs": begun, "error": "; ".join(wrong)}


def curves(registry: Registry, what: dict[str, Any]) -> dict[str, Any]:
    """How these runs of the owner's learn."""
    subjects, told = what.get("subjects"), []
    for subject in subjects[:MOST_CURVES] if isinstance(subjects, list) else []:
        run, _ = run_on_show(registry, {"subject": subject, "owner": what.get("owner")})
        if run and run.deleted_at is None:
            told.append({"subject": subject, "place": registry.place(run), **learned(run)})
    return {"curves": told}


def learned(run: Run) -> dict[str, Any]:
    """A run's curves, and `reached`: the step, and the seconds of training until then, at which it was first seen to be good."""
    points = run.load()
    curve = points.curve(COLUMNS)
    first = next((step for step, exact_match, _, _ in points.scored if exact_match >= GOOD), None)
    seconds = points.columns["seconds"]
    reached = (
        None if first is None or first > points.last else [first, seconds[first - points.first]]
    )
    return {
        "name": run.name, "status": run.status, "message": run.message, "step": run.step, "steps": run.steps,
        "parameters": run.config.model.parameter_count(), "loss": list(zip(curve["steps"], curve["loss"], strict=True)),
        "scored": curve["scored"], "reached": reached,
    }  # fmt: skip
