"""Another architecture with as many parameters as a given run."""

import bisect
import dataclasses
import math

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.models.config import AttentionConfig, BaseConfig
from playground.models.config_fields import ConfigError

from .presets import architecture_preset
from .run_config import RunConfig

TOLERANCE = 0.05
COPIED_SETTINGS = (
    *("task", "n_symbols", "min_length", "max_length", "dataset_sha256", "dataset_symbols"),
    *("max_target_length", "max_positions", "seed", "device", "num_threads", "eval_every"),
    *("eval_size", "stop_at_exact_match"),
)
SHARED_SIZES = ("d_model", "n_heads", "n_layers", "d_ff", "dropout")


def match_parameter_count(config: RunConfig, architecture: str) -> RunConfig:
    """Configure a run of `architecture` with as many parameters as `config`, within 5 %.

    The data, the seed and the evaluation are those of `config`; the other settings are the
    architecture's own. Width and heads stay; the number of layers and d_ff change, or d_model in a
    recurrent architecture. Raises ConfigError if no size is close enough.
    """
    if architecture not in ARCHITECTURES or architecture == config.architecture:
        return config.replace(architecture=architecture)
    target_count = parameter_count(config.model)
    fields = config.to_flat()
    spec = ARCHITECTURES[architecture]
    shared = [name for name in SHARED_SIZES if name in spec.setting_names() and name in fields]
    base_settings = {name: fields[name] for name in shared} | dict(spec.overrides)
    base_settings |= {name: fields[name] for name in COPIED_SETTINGS}
    heads = base_settings.get("n_heads", getattr(spec.config_class, "n_heads", 1))
    base_settings["d_model"] = max(1, round(base_settings["d_model"] / heads)) * heads
    start = architecture_preset(architecture, **base_settings).model
    if isinstance(start, AttentionConfig):
        sizes = _fit_depth_and_d_ff(start, target_count)
    else:
        sizes = _fit_d_model(start, target_count)
    result = architecture_preset(architecture, **base_settings | sizes)
    if abs(parameter_count(result.model) / target_count - 1) > TOLERANCE:
        raise ConfigError(
            "architecture",
            f"architecture is {architecture!r}, which has no size near {target_count:,} parameters "
            "on this task; use a larger model",
        )
    return result


def _fit_depth_and_d_ff(start: AttentionConfig, target_count: int) -> dict[str, int]:
    """Find the d_model, n_layers and d_ff with the closest parameter count.

    Among the depths that can reach it, the one whose d_ff is closest to the default ratio wins.
    d_model changes only if no depth can reach the count.
    """
    default_ratio = start.d_ff / start.d_model
    fallback = {"d_model": start.d_model, "n_layers": start.n_layers, "d_ff": start.d_ff}
    for scale in (1, 3 / 4, 1 / 2, 3 / 2, 1 / 4, 2):
        width = min(4096, max(1, round(start.d_model * scale / start.n_heads)) * start.n_heads)
        candidates: list[tuple[float, dict[str, int]]] = []
        for layers in range(1, min(48, 4 * start.n_layers) + 1):
            sizes = {"d_model": width, "n_layers": layers}
            narrow, wide = (
                parameter_count(dataclasses.replace(start, **sizes, d_ff=d_ff)) for d_ff in (1, 2)
            )
            # the count is linear in d_ff
            d_ff = 1 + round((target_count - narrow) / (wide - narrow))
            if width * default_ratio / 8 <= d_ff <= min(16384, width * default_ratio * 8):
                distance = abs(math.log(d_ff / width / default_ratio))
                candidates.append((distance, sizes | {"d_ff": d_ff}))
        if candidates:
            return min(candidates, key=lambda each: each[0])[1]
    return fallback


def _fit_d_model(start: BaseConfig, target_count: int) -> dict[str, int]:
    """Find the d_model with the closest parameter count."""

    def error(width: int) -> int:
        return parameter_count(dataclasses.replace(start, d_model=width)) - target_count

    above = bisect.bisect_left(range(1, 4096), 0, key=error) + 1
    return {"d_model": min((max(1, above - 1), above), key=lambda width: abs(error(width)))}
