"""Another family at the size of a given run, so that the two differ in kind and not in size. No torch in here: pages ask too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from playground.families import FAMILIES
from playground.models.config import SettingError

from .config import RunConfig
from .presets import family_config

TOLERANCE = 0.05
KEPT = (
    "task", "symbols", "min_length", "max_length", "max_positions", "seed", "device", "threads", "eval_every", "eval_n", "until",
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
    wanted, fields, own = config.model.parameter_count(), config.to_fields(), FAMILIES[family].settings()
    given = {name: fields[name] for name in CARRIED if name in own} | dict(FAMILIES[family].recipe)
    given |= {name: fields[name] for name in KEPT}
    if family == config.family:
        return family_config(family, **given)
    ratio = config.model.d_ff / config.model.d_model
    best: tuple[tuple[bool, float], RunConfig] | None = None
    for sizes in _candidates(given, "d_ff" in own, ratio, wanted, family):
        try:
            found = family_config(family, **given | sizes)
        except SettingError:
            continue
        miss = abs(found.model.parameter_count() / wanted - 1)
        changed = 4 * abs(math.log(found.model.d_model / config.model.d_model)) + abs(
            math.log(found.model.d_ff / found.model.d_model / ratio)
        )
        score = (True, miss) if miss > TOLERANCE or "d_ff" not in own else (False, changed)
        if best is None or score < best[0]:
            best = score, found
    if best is None or abs(best[1].model.parameter_count() / wanted - 1) > TOLERANCE:
        raise SettingError("family", f"family {family!r} has no size near {wanted:,} parameters for this task; begin with a larger model")
    return best[1]


def _candidates(given: dict[str, Any], has_d_ff: bool, ratio: float, wanted: int, family: str) -> Iterator[dict[str, Any]]:
    """Sizes worth a try: for each depth, and each width near the given one, the d_ff that comes nearest to the count."""
    heads = given.get("n_heads", 1)
    if not has_d_ff:
        yield from ({"d_model": width} for width in range(1, 1 + int(math.sqrt(wanted))))
        return
    for part in (1, 3 / 4, 1 / 2, 3 / 2, 1 / 4, 2):
        width = max(1, round(given["d_model"] * part / heads)) * heads
        for layers in range(1, 4 * given["n_layers"] + 1):
            sizes = {"d_model": width, "n_layers": layers}
            narrow, wide = (family_config(family, **given | sizes | {"d_ff": d_ff}).model.parameter_count() for d_ff in (1, 2))
            d_ff = 1 + round((wanted - narrow) / (wide - narrow))
            if width * ratio / 8 <= d_ff <= width * ratio * 8:
                yield sizes | {"d_ff": d_ff}
