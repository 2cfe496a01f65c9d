"""A run's data as a dataset: its training sequences and its held-out ones.

Both come from the code of the Trainer and the evaluation, so the dataset is exactly what trained
the model. In the other direction, `stream_hub_columns` reads a dataset on the Hub for a task.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Features, Value, load_dataset  # type: ignore[import-untyped]
from datasets.arrow_writer import ArrowWriter  # type: ignore[import-untyped]
from huggingface_hub import DatasetCardData, HfApi, HfFileSystem
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]
from pyarrow import parquet  # type: ignore[import-untyped]

from playground.tasks import LOOKUP, TASKS
from playground.tasks.held_out import (
    HELD_OUT_FRACTION,
    HeldOutSet,
    build_held_out_set,
    sample_training_batch,
)
from playground.tasks.rows import DatasetError, dataset_origin
from playground.tasks.task import Batch, Task
from playground.training.config import RunConfig
from playground.training.manifest import Manifest
from playground.training.trainer import FINAL_EVAL_SIZE, resolve_device

log = logging.getLogger(__name__)

MAX_EXPORT_ROWS = 2_000_000
MAX_ROW_GROUP_BYTES = 200_000_000  # uncompressed bytes of a parquet file's row group
ROWS_PER_BATCH = 1_000  # rows of a parquet file that are decoded together
READ_BUFFER_BYTES = 1 << 20  # bytes of a parquet file's column that are fetched together
FEATURES = Features({"step": Value("int32"), "source": Value("string"), "target": Value("string")})
TABLE_FORMATS = {  # formats of tables, none of which can contain code
    "parquet": (".parquet",),
    "csv": (".csv",),
    "json": (".jsonl", ".json"),
}
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
    held-out set do not train, so they are left out. The examples are written directly to a file in
    `cache_dir`, which must outlive the dataset. A GPU samples other sequences than a CPU: on
    `device` auto, this machine's device counts. For a run that was resumed on the other kind of
    device, the sequences cannot be reproduced.

    Raises:
        ValueError: for more examples than the limit, or a device that this machine lacks.
    """
    check_export_size(config, steps)
    with tempfile.NamedTemporaryFile(
        dir=cache_dir, prefix="train-", suffix=".arrow", delete=False
    ) as file:
        path = file.name
    task = config.task.load()
    with ArrowWriter(features=FEATURES, path=path) as writer:
        for step, batch in enumerate(_training_batches(task, config, steps), start=1):
            writer.write_batch(_columns(task, batch.select(batch.loss_weight_B > 0), step))
        writer.finalize()
    return Dataset.from_file(path)


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
    sequences have the MIT licence; data from the Hub has the licence of its dataset, and other user
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


def license_of(repo: str, token: str | bool = False) -> str:
    """Return the licence of a dataset on the Hub; empty if it has none or several."""
    try:
        card = HfApi(token=token).dataset_info(repo).card_data
        named = card.get("license") if card else None
    except Exception:  # the card is untrusted and may contain anything
        log.exception("the licence of a dataset could not be read")
        return ""
    return named if isinstance(named, str) else ""


def stream_hub_columns(
    repo: str,
    columns: Sequence[str],
    choose: Callable[[Sequence[str], Sequence[str]], Sequence[str]],
    token: str | bool = False,
) -> Iterator[tuple[Any, Any]]:
    """Stream two columns of a dataset on the Hub, selected by `choose`.

    Only files of tables are opened, by readers that run no code. The repository's own settings are
    ignored, and formats that may contain code (pickle) are not read. If there are files with
    "train" in their path, only these are read.

    Raises:
        DatasetError: for a repository without such a file, or one that cannot be fetched.
    """
    refusal = DatasetError(f"{repo[:120]!r} is not a dataset; write user/name")
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", repo, re.ASCII):
        raise refusal
    kind = None
    try:
        info = HfApi(token=token).dataset_info(repo)
        file_names = sorted(file.rfilename for file in info.siblings or [])
        kind = next(
            (
                kind
                for kind in TABLE_FORMATS
                if any(name.lower().endswith(TABLE_FORMATS[kind]) for name in file_names)
            ),
            None,
        )
        if kind is None:
            raise DatasetError(
                f"the dataset {repo} has no file of tables; {', '.join(TABLE_FORMATS)} files are "
                "accepted"
            )
        files = [
            name
            for name in file_names
            if name.lower().endswith(TABLE_FORMATS[kind]) and "::" not in name
        ]
        if not files:
            raise DatasetError(
                f"the file names of {repo} contain '::', which refers to other addresses; rename "
                f"the files"
            )
        files = [name for name in files if "train" in name.lower()] or files
        if kind == "parquet":
            yield from _stream_parquet(
                [f"datasets/{repo}@{info.sha}/{name}" for name in files], columns, choose, token
            )
            return
        paths = [f"hf://datasets/{repo}@{info.sha}/{name}" for name in files]
        data = load_dataset(kind, data_files=paths, split="train", streaming=True, token=token)
        names = data.column_names or list(next(iter(data), {}))
        source, target = choose(names, columns)
        for row in data.select_columns([source, target]):
            yield row[source], row[target]
    except HFValidationError:
        raise refusal from None
    except RepositoryNotFoundError:
        raise DatasetError(
            f"there is no dataset {repo} on the Hub, or it is private; check its name"
        ) from None
    except (httpx.HTTPError, HfHubHTTPError, OSError) as error:
        raise DatasetError(
            f"the dataset {repo} cannot be fetched ({type(error).__name__}); try again, or upload "
            f"it as a file"
        ) from None
    except DatasetError:
        raise
    except MemoryError:
        raise DatasetError(
            f"the dataset {repo} needs more memory than is free; upload a part of it as a file"
        ) from None
    except Exception as error:  # readers fail on damaged files with many types of errors
        log.exception("the dataset %s cannot be read", repo)
        how = f" as {kind}" if kind else ""
        raise DatasetError(
            f"the dataset {repo} cannot be read{how}: {type(error).__name__}: {str(error)[:200]}"
        ) from None


def _stream_parquet(
    paths: Sequence[str],
    columns: Sequence[str],
    choose: Callable[[Sequence[str], Sequence[str]], Sequence[str]],
    token: str | bool,
) -> Iterator[tuple[Any, Any]]:
    """Stream the columns of parquet files, with limited memory.

    A small file may decompress to any size. So the footer is checked for the size of each row group
    first, and each group is decoded in small pieces.

    Raises:
        DatasetError: for a row group that is too large.
    """
    files = HfFileSystem(token=token)
    selected: list[str] = []
    for path in paths:
        with files.open(path) as opened:
            table = parquet.ParquetFile(opened, buffer_size=READ_BUFFER_BYTES)
            selected = selected or list(choose(table.schema_arrow.names, columns))
            for number in range(table.num_row_groups):
                size = _uncompressed_size(table.metadata.row_group(number), selected)
                if size > MAX_ROW_GROUP_BYTES:
                    raise DatasetError(
                        f"{path.rpartition('/')[2][:80]} has {size / 1e6:,.0f} MB of these columns "
                        f"in row group {number + 1:,}, above {MAX_ROW_GROUP_BYTES / 1e6:,.0f} MB; "
                        "upload a part of it as a file"
                    )
                for batch in table.iter_batches(
                    ROWS_PER_BATCH, row_groups=[number], columns=selected
                ):
                    yield from zip(
                        *(batch.column(name).to_pylist() for name in selected), strict=True
                    )


def _uncompressed_size(group: Any, columns: Sequence[str]) -> int:
    """Return the uncompressed bytes of these columns of a row group, from its footer."""
    parts = (group.column(at) for at in range(group.num_columns))
    return sum(
        part.total_uncompressed_size
        for part in parts
        if any(f"{part.path_in_schema}.".startswith(f"{name}.") for name in columns)
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
    """Yield the batches of a run, from the same generator and seed as the Trainer."""
    generator = torch.Generator(resolve_device(config.training.device)).manual_seed(
        config.training.seed
    )
    for _ in range(steps):
        yield sample_training_batch(
            task,
            config.training.batch_size,
            config.task.min_length,
            config.task.max_length,
            generator,
        )


def _columns(task: Task, batch: Batch, step: int | None) -> dict[str, list[Any]]:
    sources, targets = (
        [" ".join(task.vocabulary.decode(row)) for row in tokens.tolist()]
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
    task = config.task
    brought = task.task == LOOKUP
    origin = dataset_origin(task.dataset_sha256) if brought else {}
    license = license or (origin.get("license", "") if brought else "mit")
    made = None if brought else ["machine-generated"]
    lengths = (
        f"{task.min_length} to {task.max_length}"
        if task.min_length < task.max_length
        else f"{task.max_length}"
    )
    symbols = task.load().vocabulary.describe()
    data = DatasetCardData(
        license=license or None,
        tags=["transformer-playground", task.task],
        size_categories=[next(name for below, name in SIZE_CATEGORIES if train + test < below)],
        annotations_creators=made,
        language_creators=made,
        source_datasets=[origin["dataset"]] if origin else None,
        configs=[
            {
                "config_name": "default",
                "data_files": [
                    {"split": s, "path": f"data/{s}.parquet"} for s in ("train", "test")
                ],
            }
        ],
    )
    title, linked = (name.replace("_", "\\_") for name in (repo.split("/")[1], model))
    return f"""---
{data.to_yaml()}
---

# {title}

Every sequence that trained [{linked}](https://huggingface.co/{model}), in the order of training, \
and the held-out sequences of its evaluation. The task is *{task.task}*, on {lengths} symbols \
({symbols}): `{first["source"]}` → `{first["target"]}`.

```python
from datasets import load_dataset

data = load_dataset("{repo}")
print(data["train"][0], data["test"][0])
```

| split | examples | |
|---|--:|---|
| train | {train:,} | {steps:,} steps of {config.training.batch_size:,} sampled sequences, without \
held-out ones |
| test | {test:,} | distinct sequences, distributed over the lengths; none of them is in train |

| column | |
|---|---|
| step | the training step of this example, from 1; null in test |
| source | the source sequence, its symbols separated by spaces |
| target | the target sequence |

## How it was made

From seed {config.training.seed}, by the same code as in training: \
{_sampling_text(task.task, origin)}. Train may repeat a sequence, above all short ones. \
A fixed hash of the sequence decides which ones are held out, one in \
{round(1 / HELD_OUT_FRACTION)}, equally for every seed.

## Licence

{_license_text(license, origin, brought)}
"""


def _license_text(license: str, origin: dict[str, str], brought: bool) -> str:
    """Return the card's section on the licence."""
    url = f"https://huggingface.co/datasets/{origin['dataset']}" if origin else ""
    source = f" The data is from [{origin['dataset']}]({url})" if origin else ""
    if license:
        return f"{license}.{source + ', whose terms apply to it.' if source else ''}"
    named = "The licence of this data, which the playground did not generate, is unknown: "
    return (
        named + (f"contact its author.{source}." if source else "contact its publisher.")
        if brought
        else "None."
    )


def _sampling_text(task: str, origin: dict[str, str]) -> str:
    """Describe how sequences are sampled for training."""
    if task == LOOKUP:
        data = f"the pairs of {origin['dataset']}" if origin else "the pairs of a user's dataset"
        return f"sampled from {data}, each with equal probability"
    symbols = "" if TASKS[task].extra_symbols else " and every symbol"
    return f"sampled, every length{symbols} with equal probability"
