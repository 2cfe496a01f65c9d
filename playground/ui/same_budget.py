"""Serve the matched-parameters view of the Compare tab.

It lists architectures at the size of the user's model, starts them as runs, and returns their
curves.
"""

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

FIRST = ("bert", "gpt2", "bart")  # implementations of transformers, one of each type
GOOD = 0.99  # the exact match at which a run stops
MOST_CURVES = 8
COLUMNS = 300  # points of a curve


def known() -> dict[str, Any]:
    """Return facts on the three architectures and their history."""
    return {"families": KNOWN, "tree": TREE}


def config_of(registry: Registry, what: dict[str, Any]) -> RunConfig:
    """Return the settings of the selected model with the selected lengths and the stop criterion.

    Raises:
        ValueError: when there is no such model, or the lengths do not fit.
    """
    config = config_on_show(registry, what)
    lengths = {name: what[name] for name in ("min_length", "max_length") if name in what}
    if not all(type(length) is int for length in lengths.values()):
        raise ValueError("the lengths must be whole numbers")
    room = max(config.model.max_positions, lengths.get("max_length", 0) + 1)
    return config.replace(**lengths, max_positions=room, until=GOOD)


_searching = threading.Lock()  # so that a search does not run twice at a time


def budgeted(config: RunConfig, family: str) -> RunConfig:
    """Return the settings of `family` with a matched parameter count.

    Raises:
        SettingError: when no size is close enough.
    """
    with _searching:
        return _budgeted(config, family)


@lru_cache(maxsize=64)
def _budgeted(config: RunConfig, family: str) -> RunConfig:
    return same_budget(config, family)


def offered(registry: Registry, what: dict[str, Any]) -> dict[str, Any]:
    """Return all architectures at the size of the selected model, or an `error` for each.

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
    """Start a run of each selected architecture; `error` lists those that did not start.

    Raises:
        ValueError: as config_of, or for families that there are not.
    """
    families = what.get("families")
    if (
        not isinstance(families, list)
        or not families
        or not all(isinstance(each, str) and each in FAMILIES for each in families)
    ):
        raise ValueError(f"select architectures to train, out of {', '.join(FAMILIES)}")
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
    """Return the curves of these runs of the owner."""
    subjects, told = what.get("subjects"), []
    for subject in subjects[:MOST_CURVES] if isinstance(subjects, list) else []:
        run, _ = run_on_show(registry, {"subject": subject, "owner": what.get("owner")})
        if run and run.deleted_at is None:
            told.append({"subject": subject, "place": registry.place(run), **learned(run)})
    return {"curves": told}


def learned(run: Run) -> dict[str, Any]:
    """Return the curves of a run and `reached`.

    `reached` is the step and the training time in seconds of the first evaluation with an exact
    match of at least `GOOD`.
    """
    points = run.load()
    curve = points.curve(COLUMNS)
    first = next((step for step, exact_match, _, _ in points.scored if exact_match >= GOOD), None)
    seconds = points.columns["seconds"]
    reached = (
        None if first is None or first > points.last else [first, seconds[first - points.first]]
    )
    return {
        "name": run.name,
        "status": run.status,
        "message": run.message,
        "step": run.step,
        "steps": run.steps,
        "parameters": run.config.model.parameter_count(),
        "loss": list(zip(curve["steps"], curve["loss"], strict=True)),
        "scored": curve["scored"],
        "reached": reached,
    }
