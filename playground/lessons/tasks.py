"""The measurements of the lessons: functions of a job in its own process."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from playground.jobs.progress import ProgressReporter

from . import (
    history_measurements,
    interpretability_measurements,
    measurements,
    pretrained_measurements,
    training_measurements,
)
from .measurements import Result
from .trained_run import TrainedRun

MEASURES: dict[str, Callable[[list[TrainedRun], Mapping[str, Any]], Result]] = {
    each.__name__: each
    for each in (
        measurements.half_accuracy_step,
        training_measurements.gradient_step,
        measurements.first_token_attention,
        measurements.without_positions,
        measurements.faster_run,
        measurements.compare_ablations,
        measurements.failure_length,
        history_measurements.bottleneck_length,
        history_measurements.attention_gain,
        history_measurements.recurrent_or_transformer,
        interpretability_measurements.induction_heads,
        interpretability_measurements.probe_selectivity,
        training_measurements.grokking_frequencies,
        pretrained_measurements.pretrained_alignment,
        pretrained_measurements.next_token_probability,
    )
}


def measure_lesson(
    measure: str, options: dict[str, Any], runs: list[list[str]], reporter: ProgressReporter
) -> dict[str, Any]:
    """Measure the runs of a lesson, each given by its label, its folder and its checkpoint."""
    torch.set_num_threads(1)
    reporter.message("Measuring")
    trained = [TrainedRun.of(label, Path(run), Path(checkpoint)) for label, run, checkpoint in runs]
    return MEASURES[measure](trained, options)
