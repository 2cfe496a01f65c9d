"""Another family at the size of a given run, so that the two differ in kind and not in size. No torch in here: pages ask too."""

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
    "task", "symbols", "min_length", "max_length", "rows", "vocabulary", "longest_answer", "max_positions",
    "seed", "device", "threads", "eval_every", "eval_n", "until",
)  # fmt: skip
CARRIED = ("d_model", "n_heads", "n_layers", "d_ff", "dropout")


def same_budget(config: RunConfig, family: str) -> RunConfig:
    """A run of `family` on the task of `config` with as many parameters, within 5 %: the same data, seed and scoring, the family's
    own recipe.

    Width and heads stay; how many layers there are, and how wide they are inside, makes up for what the families have more or fewer
    of. A recurrent family has no inside: there the width changes.

    Raises:
        SettingError: where no size comes near enough.
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
        message = f"family is {family!r}, which has no size near {wanted:,} parameters on this task; begin with a larger model"
        raise SettingError("family", message)
    return found


def _inside(start: ModelConfig, wanted: int) -> dict[str, int]:
    """d_model, n_layers and d_ff that come nearest to the count: of the depths that can reach it the one whose d_ff is nearest to the
    usual, and a narrower or wider model only where no depth can."""
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
            d_ff = 1 + round(
                (wanted - narrow) / (wide - narrow)
            )  # the count grows evenly with d_ff
            if width * usual / 8 <= d_ff <= min(16384, width * usual * 8):
                reached.append((abs(math.log(d_ff / width / usual)), sizes | {"d_ff": d_ff}))
        if reached:
            return min(reached, key=lambda each: each[0])[1]
    return far


def _width(start: ModelConfig, wanted: int) -> dict[str, int]:
    """The d_model that comes nearest to the count."""

    def miss(width: int) -> int:
        return dataclasses.replace(start, d_model=width).parameter_count() - wanted

    above = bisect.bisect_left(range(1, 4096), 0, key=miss) + 1
    return {"d_model": min((max(1, above - 1), above), key=lambda width: abs(miss(width)))}
