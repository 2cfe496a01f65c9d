"""The measurements of the lessons: functions of a job in its own process."""

from pathlib import Path
from typing import Any

import torch

from playground.jobs.progress import ProgressReporter

from .bug_comparison import compare
from .measures import MEASURES
from .trained_run import TrainedRun


def measure_bug(name: str, seed: int, steps: int, reporter: ProgressReporter) -> dict[str, Any]:
    """Train the correct and the buggy copy of a model, and compare them."""
    torch.set_num_threads(1)
    return compare(name, seed, steps, reporter.partial)


def measure_lesson(
    measure: str, options: dict[str, Any], runs: list[list[str]], reporter: ProgressReporter
) -> dict[str, Any]:
    """Measure the runs of a lesson, each given by its label, its folder and its checkpoint."""
    torch.set_num_threads(1)
    trained = [TrainedRun.of(label, Path(run), Path(checkpoint)) for label, run, checkpoint in runs]
    return MEASURES[measure](trained, options)
