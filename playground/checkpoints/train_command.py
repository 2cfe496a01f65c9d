"""The command line that trains a model again."""

from playground.models.config_fields import ConfigError
from playground.tasks import LOOKUP
from playground.training.presets import PRESETS, preset_config
from playground.training.run_config import RunConfig
from playground.training.task_config import TaskConfig

from .manifest import Manifest


def training_command(manifest: Manifest) -> str | None:
    """Return the command that trains this model again on the same type of device, or None.

    The result is None for an untrained model, and for a dataset task, because the checkpoint does
    not contain the dataset. It is None, too, if the command line rejects the architecture or the
    number of steps. Changes of the learning rate during the run are not included.
    """
    try:
        config = manifest.config.replace(max_steps=manifest.step, device=manifest.device)
    except ConfigError:
        return None
    if config.architecture != RunConfig().architecture or config.task.task == LOOKUP:
        return None
    task = config.task
    fixed = {
        "task": task.task,
        "n_symbols": task.n_symbols,
        "min_length": task.min_length,
        "max_length": task.max_length,
    }
    candidates = []
    for name in PRESETS:
        base = preset_config(name, fixed).to_flat()
        if base["architecture"] != config.architecture:
            continue
        changed = {key: value for key, value in config.to_flat().items() if value != base[key]}
        candidates.append((name, changed))
    preset, options = min(candidates, key=lambda candidate: len(candidate[1]))
    words = ["python -m playground train", f"--task {task.task}"]
    words += [f"--n-symbols {task.n_symbols}"] if task.n_symbols != TaskConfig().n_symbols else []
    words += [f"--min-length {task.min_length}"] if task.min_length != task.max_length else []
    words += [f"--length {task.max_length}"]
    words += [f"--preset {preset}"] if preset != "fast" else []
    for key, value in options.items():
        flag = key.replace("_", "-")
        words.append(
            f"--{flag} {value}"
            if not isinstance(value, bool)
            else f"--{'' if value else 'no-'}{flag}"
        )
    return " ".join(words)
