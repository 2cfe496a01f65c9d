"""The checkpoints and states of a run's folder, from which a worker continues training."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from playground.checkpoints.checkpoint import restore_trainer, resume_trainer
from playground.checkpoints.manifest import CheckpointError
from playground.checkpoints.metrics import read_metrics
from playground.common.atomic_write import clean_up_stale, remove_dir
from playground.common.platform import link_or_copy, rename
from playground.training.run_config import RunConfig
from playground.training.setting_changes import SettingChange
from playground.training.trainer import MAX_THREADS, Trainer

from .weight_history import WeightHistory, state_path, state_steps, weights_path
from .worker_protocol import NO_USABLE_CHECKPOINT, PINNED_SUFFIX, WorkerSpec

N_AUTOMATIC_CHECKPOINTS = 2  # automatic checkpoints that stay


def restore_run(spec: WorkerSpec, history: WeightHistory) -> tuple[Trainer, str, bool]:
    """Restore the trainer of a run, and cut the history to its step.

    Returns the trainer, a note for the owner, and whether the run is new. Raises CheckpointError if
    there are checkpoints, but neither one of them nor a state of the history can be used.
    """
    folder, max_threads = Path(spec.folder), spec.threads or MAX_THREADS
    config, changes = RunConfig.from_flat(spec.config), SettingChange.parse(spec.changes)
    trainer, note = _resume_newest(folder / "checkpoints", changes, max_threads)
    if trainer is not None:
        history.open(trainer.step_count)
        return trainer, note, False
    trainer = Trainer(config, changes, max_threads=max_threads)
    lines = list(read_metrics(folder))
    at = restore_state_at_or_before(trainer, folder, lines[-1]["step"] if lines else 0)
    if at is not None:
        seconds = {line["step"]: line.get("seconds", 0.0) for line in lines}
        trainer.seconds = seconds.get(at, 0.0)
        history.open(trainer.step_count)
        return trainer, note, False
    if note:
        raise CheckpointError(
            f"{NO_USABLE_CHECKPOINT} ({note.rpartition('.')[0]}); run it again from the list"
        )
    lines = _branch(trainer, folder, *spec.branched_from) if spec.branched_from else []
    history.open(trainer.step_count, lines)
    return trainer, note, True


def _resume_newest(
    checkpoints: Path, changes: list[SettingChange], max_threads: int
) -> tuple[Trainer | None, str]:
    """Resume from the newest usable checkpoint, with the changes that the server recorded.

    Returns the trainer, None without a usable checkpoint, and a note about damaged ones.
    """
    note, damaged = "", []
    clean_up_stale(checkpoints)
    for path in sorted(checkpoints.glob("[0-9]*"), key=_parse_step, reverse=True):
        try:
            trainer, _ = resume_trainer(path, max_threads=max_threads)
        except CheckpointError as error:
            note = note or f"{error}. An earlier checkpoint was used"
            damaged.append(path)
            continue
        existing = {(change.step, change.setting) for change in changes}
        # Past changes of the checkpoint count, too: the server may have been killed before it
        # received them.
        added_changes = [
            change
            for change in trainer.changes
            if change.step <= trainer.step_count and (change.step, change.setting) not in existing
        ]
        trainer.changes = sorted([*changes, *added_changes], key=lambda change: change.step)
        for damaged_path in damaged:  # renamed, so that later starts ignore them
            with suppress(OSError):
                rename(damaged_path, damaged_path.with_name(f"damaged-{damaged_path.name}"))
        return trainer, note
    return None, note


def _branch(trainer: Trainer, folder: Path, parent_folder: str, step: int) -> list[dict[str, Any]]:
    """Start from the last state of another run up to `step`, and copy its history.

    The steps in between are trained again, with bitwise identical results. Returns the metrics up
    to the restored step.
    """
    parent = Path(parent_folder)
    lines = list(read_metrics(parent, step))
    # A live run writes its weights a moment before its metrics.
    at = restore_state_at_or_before(trainer, parent, lines[-1]["step"] if lines else step)
    if at is None:
        return []
    (folder / "history").mkdir(parents=True, exist_ok=True)
    for path in (parent / "history").glob("*.safetensors"):
        if 0 <= _parse_step(path) <= at:
            with suppress(OSError):  # the history was thinned meanwhile
                link_or_copy(path, folder / "history" / path.name)
    lines = [line for line in lines if line["step"] <= at]
    trainer.seconds = lines[-1].get("seconds", 0.0) if lines else 0.0
    trainer.reopen()
    return lines


def restore_state_at_or_before(trainer: Trainer, run: Path, step: int) -> int | None:
    """Restore the last complete state of a run up to `step`; return its step, or None."""
    states = [(s, weights_path(run, s), state_path(run, s)) for s in state_steps(run)]
    states += [
        (_parse_step(path), path / "model.safetensors", path / "training.safetensors")
        for path in (run / "checkpoints").glob("[0-9]*")
    ]
    for at, weights, state in sorted(states, reverse=True):
        if at > step:
            continue
        # The run may have trained on another device before.
        for device in sorted(("cpu", "cuda", "mps"), key=lambda each: each != trainer.device.type):
            with suppress(CheckpointError):  # then use an earlier state
                restore_trainer(trainer, weights, state, at, device)
                return at
    return None


def remove_old_checkpoints(folder: Path, step: int) -> None:
    """Remove the automatic checkpoints of a run, except for the newest ones up to `step`."""
    checkpoints = (folder / "checkpoints").glob("[0-9]*")
    unpinned = sorted(
        (path for path in checkpoints if not path.name.endswith(PINNED_SUFFIX)), key=_parse_step
    )
    past_paths = [path for path in unpinned if _parse_step(path) <= step]
    later_paths = unpinned[len(past_paths) :]  # damaged ones; their steps are trained again
    for path in [*later_paths, *past_paths[:-N_AUTOMATIC_CHECKPOINTS]]:
        with suppress(OSError):
            remove_dir(path)


def _parse_step(path: Path) -> int:
    digits = path.name.split(".")[0].removesuffix(PINNED_SUFFIX)
    return int(digits) if digits.isdigit() else -1
