"""What pages get about a run: its entry in the list, and its state in the live view."""

from functools import lru_cache
from typing import Any

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.training.presets import PRESETS, architecture_preset, preset_config
from playground.training.run_config import RunConfig, section_of_field

from .limits import TIME_WARNING_S, Limits
from .metric_series import MetricSeries
from .record import MAX_NAME_LENGTH
from .state import Run

MAX_NAMED_SETTINGS = 2
SHORT_LABELS = {
    "learning_rate": "lr",
    "n_layers": "layers",
    "n_heads": "heads",
    "d_model": "width",
    "max_steps": "steps",
    "batch_size": "batch",
}
# They follow from other settings, or change no result.
UNNAMED_SETTINGS = {
    *("architecture", "source_vocab_size", "target_vocab_size", "max_positions"),
    *("lr_decay_steps", "eval_every", "eval_size", "device", "num_threads"),
}


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


@lru_cache(maxsize=len(ARCHITECTURES))
def named_configs(architecture: str) -> dict[str, dict[str, Any]]:
    """Return the settings of the presets of an architecture by their names, the default first."""
    if architecture != RunConfig().architecture:
        return {"": architecture_preset(architecture).to_flat()}
    presets = [name for name, each in PRESETS.items() if "architecture" not in each.settings]
    return {
        "" if name == "fast" else name.replace("-", " "): preset_config(name).to_flat()
        for name in presets
    }


def describe_setting(name: str, value: Any) -> str:
    """Return a setting in a few letters, as in `lr 0.01`; a choice is its own description."""
    label = SHORT_LABELS.get(name, name.replace("_", " "))
    if isinstance(value, bool):
        return label if value else f"no {label}"
    return value if isinstance(value, str) else f"{label} {value:g}"


def describe_difference(config: RunConfig) -> list[str]:
    """Return the preset nearest to the settings of a run, and the first settings that differ."""
    settings, sections = config.to_flat(), section_of_field()
    names = [
        name for name in settings if sections.get(name) != "task" and name not in UNNAMED_SETTINGS
    ]
    changed = {
        preset: [name for name in names if settings[name] != values.get(name)]
        for preset, values in named_configs(config.architecture).items()
    }
    preset = min(changed, key=lambda each: len(changed[each]))
    named = changed[preset][:MAX_NAMED_SETTINGS]
    return [preset] * bool(preset) + [describe_setting(each, settings[each]) for each in named]


def default_name(config: RunConfig, dataset: str = "") -> str:
    """Return the default name of a run: what differs from a preset, and its task or dataset."""
    task = f"{dataset or task_label(config)}{architecture_suffix(config)}"
    return ", ".join([*describe_difference(config), task])


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
        "curve": list(record.curve),
        "eval_size": record.scores["n"] if record.scores else record.config.training.eval_size,
        "created": record.created,
        "origin": record.started_by,
        "deleted": record.deleted_at is not None,
        "evicted": record.evicted,
    }


def live_response(
    run: Run, n_points: int, series_id: int, snapshot_version: int, changes_version: int
) -> dict[str, Any]:
    """Return the state of a run that the page does not have yet. Takes no lock."""
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
