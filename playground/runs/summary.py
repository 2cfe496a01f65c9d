"""What pages get about a run: its entry in the list, and its state in the live view."""

from typing import Any

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.training.run_config import RunConfig

from .limits import TIME_WARNING_S, Limits
from .metric_series import MetricSeries
from .record import MAX_NAME_LENGTH
from .state import Run


def task_label(config: RunConfig) -> str:
    """Return the task and its lengths, as in `reverse 1–10`."""
    task = config.task
    lengths = f"{task.min_length}–" if task.min_length < task.max_length else ""
    return f"{task.task} {lengths}{task.max_length}"


def architecture_suffix(config: RunConfig) -> str:
    """Return a suffix with the architecture; empty for the default one."""
    if config.architecture == RunConfig().architecture:
        return ""
    title = ARCHITECTURES[config.architecture].title.replace(",", "")
    return f", {title[0].lower()}{title[1:]}" if title[1].islower() else f", {title}"


def default_name(config: RunConfig, dataset: str = "") -> str:
    """Return the default name of a run; `dataset` is the name of its dataset, if it has one."""
    layers, heads = config.model.n_layers, config.model.attention_heads
    size = "" if (layers, heads) == (2, 4) else f", {layers} × {heads}"
    return f"{dataset or task_label(config)}{architecture_suffix(config)}{size}"


def unique_name(name: str, runs: list[Run]) -> str:
    """Return a name that differs from those of the runs, with a number if needed."""
    used_names = {run.name for run in runs if not run.is_deleted}
    # run.json accepts printable names only.
    name = "".join(letter for letter in name if letter.isprintable())[:MAX_NAME_LENGTH]
    number, base = 2, name[: MAX_NAME_LENGTH - 6]
    while name in used_names:
        name, number = f"{base} ({number})", number + 1
    return name


def to_summary(run: Run) -> dict[str, Any]:
    """Return the entry of a run in the list of runs."""
    record, model = run.record, run.record.config.model
    return {
        "subject": f"run:{record.id}",
        "name": record.name,
        "status": record.status,
        "task": task_label(record.config),
        "shape": [model.n_layers, model.attention_heads, model.d_model],
        "parameters": parameter_count(model),
        "step": record.step,
        "max_steps": record.steps,
        "best": record.scores["exact_match"] if record.scores else record.best,
        "eval_size": record.scores["n"] if record.scores else record.config.training.eval_size,
        "created": record.created,
        "origin": record.started_by,
        "hidden": record.hidden,
        "tags": list(record.tags),
        "deleted": record.deleted_at is not None,
        "evicted": record.evicted,
    }


def live_response(
    run: Run, n_points: int, series_id: int, snapshot_version: int, changes_version: int
) -> dict[str, Any]:
    """Return the state of a run that the page does not have yet. Takes no lock.

    Args:
        n_points: number of points that the page has.
        series_id: the id of the series of these points.
        snapshot_version: number of the snapshot that the page has.
        changes_version: version of the changes of settings that the page has.
    """
    record, live = run.record, run.live
    points = live.points or MetricSeries()
    if live.series_id != series_id:
        n_points, snapshot_version = 0, 0
    has_news = live.snapshot_version > snapshot_version
    return {
        "status": record.status,
        "message": record.message,
        "name": record.name,
        "step": record.step,
        "max_steps": record.steps,
        "speed": record.max_steps_per_second,
        "learning_rate": record.learning_rate,
        "parameters": parameter_count(record.config.model),
        "device": record.device,
        "series_id": live.series_id,
        "points": points.delta_since(n_points),
        "latest": points.latest(),
        "weight_steps": live.weight_steps or (),
        "snapshot_version": live.snapshot_version,
        "snapshot": live.snapshot if has_news else None,
        "probe_info": live.probe_info if has_news else None,
        "scores": record.scores,
        "changes": None
        if changes_version == record.changes_version
        else [change.to_list() for change in record.changes],
        "changes_version": record.changes_version,
        "checkpoint_version": live.checkpoint_version,
        "has_worker": run.has_worker,
        "branched_from_step": record.branched_from[1] if record.branched_from else None,
    }


def time_left(run: Run, limits: Limits) -> list[Any] | None:
    """Return the seconds of training left and the reason; None if there are many."""
    left = limits.max_train_seconds - run.trained_seconds
    if not limits.max_train_seconds or left > TIME_WARNING_S:
        return None
    return [max(0.0, left), limits.time_limit_message()]
