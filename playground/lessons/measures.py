"""The measurements of the lessons, by name."""

from collections.abc import Callable, Mapping
from typing import Any

from . import history_measurements, measurements, pretrained_measurements
from .measurements import Result
from .trained_run import TrainedRun

MEASURES: dict[str, Callable[[list[TrainedRun], Mapping[str, Any]], Result]] = {
    each.__name__: each
    for each in (
        measurements.half_accuracy_step,
        measurements.first_token_attention,
        measurements.without_positions,
        measurements.faster_run,
        measurements.rank_heads,
        measurements.failure_length,
        history_measurements.bottleneck_length,
        history_measurements.attention_gain,
        history_measurements.recurrent_or_transformer,
        pretrained_measurements.pretrained_alignment,
    )
}
