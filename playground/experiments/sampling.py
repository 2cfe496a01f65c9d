"""Sample combinations of settings, for experiments that are too large for a full grid."""

import json
import random
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

DIGITS = 4  # significant digits of a number from a range


class Range(BaseModel):
    """The numbers from `low` to `high`; on a log scale each factor of ten is equally likely."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _check_order(self) -> "Range":
        if self.low >= self.high or (self.scale == "log" and self.low <= 0):
            raise ValueError("a range has low < high, and on a log scale low > 0")
        return self

    def at(self, share: float) -> float:
        """Return the number at this share of the range, from 0 to 1."""
        if self.scale == "log":
            return self.low * (self.high / self.low) ** share
        return self.low + share * (self.high - self.low)


def sample(
    grid: Mapping[str, Any], n: int, sampling: Literal["random", "latin-hypercube"], whole: set[str]
) -> list[dict[str, Any]]:
    """Return up to `n` different combinations of values; the same ones at every call.

    random           each value independently (Bergstra and Bengio 2012, section 2)
    latin-hypercube  n strata of each setting, each of which has one value (McKay, Beckman and
                     Conover 1979, section 2.3)

    `grid`: a list of values or a `Range`, by setting.
    `whole`: the settings whose numbers are whole.
    """
    generator = random.Random(0)
    columns = {}
    for name, values in grid.items():
        shares = [generator.random() for _ in range(n)]
        if sampling == "latin-hypercube":
            strata = generator.sample(range(n), n)
            shares = [(at + share) / n for at, share in zip(strata, shares, strict=True)]
        columns[name] = [_value_at(values, share, name in whole) for share in shares]
    combinations = [
        dict(zip(grid, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    return list({json.dumps(each): each for each in combinations}.values())


def _value_at(values: Any, share: float, is_whole: bool) -> Any:
    if isinstance(values, Range):
        number = values.at(share)
        return round(number) if is_whole else float(f"{number:.{DIGITS}g}")
    return values[int(share * len(values))]
