"""What a model has learned: its points, and the sentence that a user shares."""

from functools import lru_cache
from pathlib import Path

from playground.checkpoints.manifest import Manifest, cached_manifest
from playground.checkpoints.train_command import training_command
from playground.common.format import format_count, format_duration, format_percent
from playground.experiments.results import first_step_reaching
from playground.runs.access import Access
from playground.runs.metric_series import MetricSeries
from playground.runs.summary import task_label
from playground.runs.weight_history import read_lines


@lru_cache(maxsize=32)
def load_metric_series(folder: Path, modified_ns: int) -> MetricSeries:
    """Return the points of a checkpoint; `modified_ns` keys the cache."""
    try:
        return MetricSeries(read_lines(folder))
    except ValueError:  # other lines: the checkpoint opens without curves
        return MetricSeries()


def load_points(model: Access) -> MetricSeries:
    """Return the points of a run or a checkpoint. It reads the disk."""
    if model.run:
        return model.run.load_points()
    return load_metric_series(model.folder, (model.folder / "config.json").stat().st_mtime_ns)


def describe_result(model: Access) -> str:
    """Describe in one sentence what a model learned; empty before its first score."""
    points = load_points(model)
    scores = model.run.record.scores if model.run else cached_manifest(model.folder).scores
    if scores:
        score, count = scores["exact_match"], scores["n"]
    elif points.evaluations:
        _, score, _, count, _ = points.evaluations[-1]
    else:
        return ""
    task = task_label(model.config)
    start = f"{task} after {format_count(points.last, 'step')}"
    step = first_step_reaching([(step, exact) for step, exact, *_ in points.evaluations])
    if step is not None:
        seconds = points.columns["seconds"][step - points.first]
        start = f"Learned {task} in {format_count(step, 'step')}, {format_duration(seconds)}"
    unseen = format_count(count, "unseen sequence")
    return f"{start}: {format_percent(score)} of {unseen} right"


def find_command(model: Access) -> str | None:
    """Return the command that trains a model again, if there is one."""
    if run := model.run:
        config = run.config
        return training_command(Manifest(config, run.steps, 0.0, config.training.device))
    return training_command(cached_manifest(model.folder))
