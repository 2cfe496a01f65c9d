"""Another architecture with as many parameters as a given run.

This file does not import torch, because forms use it too.
"""

from __future__ import annotations

import bisect
import dataclasses
import math

from playground.families import FAMILIES
from playground.models.config import ModelConfig, SettingError

from .config import RunConfig
from .presets import family_config

TOLERANCE = 0.05
KEPT = (
    "task",
    "symbols",
    "min_length",
    "max_length",
    "rows",
    "vocabulary",
    "longest_answer",
    "max_positions",
    "seed",
    "device",
    "threads",
    "eval_every",
    "eval_n",
    "until",
)
CARRIED = ("d_model", "n_heads", "n_layers", "d_ff", "dropout")


def same_budget(config: RunConfig, family: str) -> RunConfig:
    """Configure a run of `family` with as many parameters as `config`, within 5 %.

    The data, the seed and the evaluation are those of `config`; the other settings are the
    architecture's own. Width and heads stay. The number of layers and d_ff compensate for the
    differences between the architectures. A recurrent architecture has no d_ff: there d_model
    changes.

    Raises:
        SettingError: if no size is close enough.
    """
    if family not in FAMILIES or family == config.family:
        return config.replace(family=family)
    wanted, fields, kind = config.model.parameter_count(), config.to_fields(), FAMILIES[family]
    carried = {
        name: fields[name]
        for name in CARRIED
        if name in kind.settings() and name in FAMILIES[config.family].settings()
    }
    given = carried | dict(kind.recipe) | {name: fields[name] for name in KEPT}
    heads = given.get("n_heads", kind.config.n_heads)
    given["d_model"] = max(1, round(given["d_model"] / heads)) * heads
    start = family_config(family, **given).model
    sizes = _inside(start, wanted) if "d_ff" in kind.settings() else _width(start, wanted)
    found = family_config(family, **given | sizes)
    if abs(found.model.parameter_count() / wanted - 1) > TOLERANCE:
        raise SettingError(
            "family",
            f"family is {family!r}, which has no size near {wanted:,} parameters on this task; use "
            f"a larger model",
        )
    return found


def _inside(start: ModelConfig, wanted: int) -> dict[str, int]:
    """Find the d_model, n_layers and d_ff with the closest parameter count.

    Among the depths that can reach it, the one whose d_ff is closest to the default ratio wins.
    d_model changes only if no depth can reach the count.
    """
    usual, far = (
        start.d_ff / start.d_model,
        {"d_model": start.d_model, "n_layers": start.n_layers, "d_ff": start.d_ff},
    )
    for part in (1, 3 / 4, 1 / 2, 3 / 2, 1 / 4, 2):
        width = min(4096, max(1, round(start.d_model * part / start.n_heads)) * start.n_heads)
        reached: list[tuple[float, dict[str, int]]] = []
        for layers in range(1, min(48, 4 * start.n_layers) + 1):
            sizes = {"d_model": width, "n_layers": layers}
            narrow, wide = (
                dataclasses.replace(
                    start, d_model=width, n_layers=layers, d_ff=d_ff
                ).parameter_count()
                for d_ff in (1, 2)
            )
            # the count is linear in d_ff
            d_ff = 1 + round((wanted - narrow) / (wide - narrow))
            if width * usual / 8 <= d_ff <= min(16384, width * usual * 8):
                reached.append((abs(math.log(d_ff / width / usual)), sizes | {"d_ff": d_ff}))
        if reached:
            return min(reached, key=lambda each: each[0])[1]
    return far


def _width(start: ModelConfig, wanted: int) -> dict[str, int]:
    """Find the d_model with the closest parameter count."""

    def miss(width: int) -> int:
        return dataclasses.replace(start, d_model=width).parameter_count() - wanted

    above = bisect.bisect_left(range(1, 4096), 0, key=miss) + 1
    return {"d_model": min((max(1, above - 1), above), key=lambda width: abs(miss(width)))}
