"""A run's data as a dataset: its training sequences and its held-out ones.

Both come from the code of the Trainer and the evaluation, so the dataset is exactly what trained
the model.
"""

import re
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value  # type: ignore[import-untyped]
from datasets.exceptions import DatasetGenerationError  # type: ignore[import-untyped]
from huggingface_hub import DatasetCardData

from playground.checkpoints.manifest import Manifest
from playground.datasets.storage import dataset_origin
from playground.tasks import LOOKUP, TASKS
from playground.tasks.held_out import HeldOutSet, build_held_out_set
from playground.tasks.task import Batch, Task
from playground.training.batches import BatchSampler
from playground.training.config import RunConfig
from playground.training.task_config import TaskConfig
from playground.training.trainer import FINAL_EVAL_SIZE, resolve_device

from .markdown import format_lengths, format_tokens, render_card

MAX_EXPORT_ROWS = 2_000_000
FEATURES = Features({"step": Value("int32"), "source": Value("string"), "target": Value("string")})
SIZE_CATEGORIES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


def training_dataset(config: RunConfig, steps: int, cache_dir: Path) -> Dataset:
    """Build the training set of the first `steps` updates.

    Each example has its step (from 1), and source and target as text. Sampled sequences of the
    held-out set do not train, so they are left out. The examples are in a file in `cache_dir`,
    which must outlive the dataset. A GPU samples other sequences than a CPU: on `device` auto, this
    machine's device counts. For a run that was resumed on the other kind of device, the sequences
    cannot be reproduced.

    Raises:
        ValueError: for more examples than the limit, or a device that this machine lacks.
    """
    check_export_size(config, steps)
    task = config.task.load()

    def examples() -> Iterator[dict[str, Any]]:
        for step, batch in enumerate(_training_batches(task, config, steps), start=1):
            columns = _columns(task, batch.select(batch.loss_weight_B > 0), step)
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(columns, values, strict=True))

    # The fingerprint names the cache file; the library would compute it from the pickled task.
    fingerprint = secrets.token_hex(8)
    try:
        return Dataset.from_generator(
            examples, features=FEATURES, cache_dir=str(cache_dir), fingerprint=fingerprint
        )
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None


def evaluation_examples(manifest: Manifest) -> HeldOutSet:
    """Return the held-out sequences of the scores, else of a final evaluation."""
    task_config = manifest.config.task
    task = task_config.load()
    default_set = build_held_out_set(
        task, FINAL_EVAL_SIZE, task_config.min_length, task_config.max_length
    )
    if manifest.scores is None or manifest.scores["n"] == len(default_set.lengths_B):
        return default_set
    return build_held_out_set(
        task, manifest.scores["n"], task_config.min_length, task_config.max_length
    )


def export_dataset(
    folder: Path, manifest: Manifest, *, repo: str, model: str, license: str = ""
) -> None:
    """Write training and held-out set as parquet with a card, for `load_dataset`.

    `repo` is the dataset's repository, `model` that of the model. Without a `license`, generated
    sequences have the MIT license; data from the Hub has the license of its dataset, and other user
    data has none.

    Raises:
        ValueError: for an untrained model, and as `training_dataset`.
        OSError: as the system reports it.
    """
    for name in (repo, model):
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name, re.ASCII):
            raise ValueError(
                f"{name[:120]!r} is not a repository; write user/name, with letters, digits, dots, "
                f"dashes and underscores"
            )
    if not manifest.step:
        raise ValueError(
            "this model is at step 0, so there is no training set to publish; train it first"
        )
    config = manifest.config.replace(device=manifest.device)
    check_export_size(config, manifest.step)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    held_out = evaluation_examples(manifest)
    test = Dataset.from_dict(_columns(config.task.load(), held_out.batch, None), features=FEATURES)
    test.to_parquet(folder / "data" / "test.parquet")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        train = training_dataset(config, manifest.step, Path(scratch))
        train.to_parquet(folder / "data" / "train.parquet")
        rows, first = len(train), train[0]
        del train
    (folder / "README.md").write_bytes(
        _card(config, manifest.step, rows, len(test), first, repo, model, license).encode()
    )


def check_export_size(config: RunConfig, steps: int) -> None:
    """Raise ValueError if a run has more examples than a dataset may have."""
    rows = steps * config.training.batch_size
    if rows > MAX_EXPORT_ROWS:
        size = f"{steps:,} steps of {config.training.batch_size:,} are {rows:,} sequences"
        raise ValueError(
            f"{size}, more than the {MAX_EXPORT_ROWS:,} that a dataset may have; publish only the "
            "model, whose seed reproduces them"
        )


def _training_batches(task: Task, config: RunConfig, steps: int) -> Iterator[Batch]:
    """Yield the batches of a run, as in the Trainer."""
    batches = BatchSampler(task, config, resolve_device(config.training.device))
    return map(batches.batch, range(steps))


def _columns(task: Task, batch: Batch, step: int | None) -> dict[str, list[Any]]:
    sources, targets = (
        [format_tokens(task, row) for row in tokens.tolist()]
        for tokens in (batch.source_BS, batch.labels_BT)
    )
    return {"step": [step] * len(sources), "source": sources, "target": targets}


def _card(
    config: RunConfig,
    steps: int,
    train: int,
    test: int,
    first: dict[str, Any],
    repo: str,
    model: str,
    license: str,
) -> str:
    """Return the card of a dataset with this first example and these numbers of examples."""
    task = config.task
    is_dataset = task.task == LOOKUP
    origin = dataset_origin(task.dataset_sha256) if is_dataset else {}
    license = license or (origin.get("license", "") if is_dataset else "mit")
    facts: dict[str, Any] = {
        "name": repo.split("/")[1],
        "repo": repo,
        "model": model,
        "task": task,
        "lengths": format_lengths(task),
        "symbols": task.load().vocabulary.describe(),
        "first": first,
        "n_train": train,
        "n_test": test,
        "steps": steps,
        "batch_size": config.training.batch_size,
        "seed": config.training.seed,
        "is_dataset": is_dataset,
        "has_extra_symbols": not is_dataset and bool(TASKS[task.task].extra_symbols),
        "origin": origin.get("dataset", ""),
        "license": license,
        "held_out_every": task.held_out_one_in,
    }
    front = _metadata(task, train + test, license, facts["origin"]).to_yaml()
    return f"---\n{front}\n---\n\n{render_card('dataset_card.md.j2', facts)}"


def _metadata(task: TaskConfig, n: int, license: str, origin: str) -> DatasetCardData:
    """Return the metadata of a dataset of `n` examples."""
    creators = None if task.task == LOOKUP else ["machine-generated"]
    files = [{"split": split, "path": f"data/{split}.parquet"} for split in ("train", "test")]
    return DatasetCardData(
        license=license or None,
        tags=["transformer-playground", task.task],
        size_categories=[next(name for limit, name in SIZE_CATEGORIES if n < limit)],
        annotations_creators=creators,
        language_creators=creators,
        source_datasets=[origin] if origin else None,
        configs=[{"config_name": "default", "data_files": files}],
    )
