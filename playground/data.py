"""A run's data as a dataset: the sequences that trained a model, in the order in which they did, and those it is scored on.

Both come from the code that the Trainer and the evaluation use, so the dataset is the training set and not one like it.
The other way round, `stream_columns` reads somebody's dataset on the Hub, for a task made of its rows.
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

from playground.tasks import ROWS, TASKS
from playground.tasks.held_out import HELD_OUT_SHARE, HeldOut, held_out_set, training_batch
from playground.tasks.rows import RowsError, origin_of
from playground.tasks.task import Batch, Task
from playground.training.config import RunConfig
from playground.training.manifest import Manifest
from playground.training.trainer import CONFIRMING_N, resolve_device

log = logging.getLogger(__name__)

MOST_ROWS = 2_000_000
LARGEST_GROUP = 200_000_000  # bytes of a parquet file's row group, unpacked
PIECE = 1_000  # rows of a parquet file unpacked at once
BUFFER = 1 << 20  # bytes of a parquet file's column fetched at once
FEATURES = Features({"step": Value("int32"), "source": Value("string"), "target": Value("string")})
READERS = {
    "parquet": (".parquet",),
    "csv": (".csv",),
    "json": (".jsonl", ".json"),
}  # of tables, without code
SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


def training_set(config: RunConfig, steps: int, cache_dir: Path) -> Dataset:
    """The sequences that the first `steps` updates of a run learn from, row by row: step (from 1), source and target as text.

    Drawn rows that belong to the held-out set have no weight in training and are left out. Rows go straight to a file in `cache_dir`,
    which must outlive the dataset. A GPU draws other sequences than a processor: on `device` auto, this machine's device counts. A
    run that was resumed on the other kind of device drew what nothing but that run can tell.

    Raises:
        ValueError: for more rows than a dataset should have, or a device that is not here.
    """
    check_rows(config, steps)
    with tempfile.NamedTemporaryFile(
        dir=cache_dir, prefix="train-", suffix=".arrow", delete=False
    ) as file:
        path = file.name
    task = config.task.load()
    with ArrowWriter(features=FEATURES, path=path) as writer:
        for step, batch in enumerate(_batches(task, config, steps), start=1):
            writer.write_batch(_columns(task, batch.rows(batch.weight_B > 0), step))
        writer.finalize()
    return Dataset.from_file(path)


def scored_set(manifest: Manifest) -> HeldOut:
    """The held-out sequences that the scores of a checkpoint were measured on; without scores, those that would be."""
    asked = manifest.config.task
    task = asked.load()
    usual = held_out_set(task, CONFIRMING_N, asked.min_length, asked.max_length)
    if manifest.scores is None or manifest.scores["n"] == len(usual.lengths_B):
        return usual
    return held_out_set(task, manifest.scores["n"], asked.min_length, asked.max_length)


def write_dataset(
    folder: Path, manifest: Manifest, *, repo: str, model: str, license: str = ""
) -> None:
    """Write a checkpoint's training set and held-out set as parquet with a card, so that `load_dataset(folder)` finds both.

    `repo` is the dataset's repository, `model` that of the model. Without a `license`, sequences that the playground made are MIT;
    rows that somebody brought have the licence of the dataset on the Hub that they are from, else none.

    Raises:
        ValueError: for an untrained model, and as `training_set`.
        OSError: as the system reports it.
    """
    for name in (repo, model):
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name, re.ASCII):
            raise ValueError(
                f"{name[:120]!r} is no repository; name one as user/name, with letters, digits, dots, dashes and underscores"
            )
    if not manifest.step:
        raise ValueError(
            "this model is at step 0: nothing has trained it yet, so there is no training set to publish"
        )
    config = manifest.config.replace(device=manifest.device)
    check_rows(config, manifest.step)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    held_out = scored_set(manifest)
    test = Dataset.from_dict(_columns(config.task.load(), held_out.batch, None), features=FEATURES)
    test.to_parquet(folder / "data" / "test.parquet")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        train = training_set(config, manifest.step, Path(scratch))
        train.to_parquet(folder / "data" / "train.parquet")
        rows, first = len(train), train[0]
        del train
    (folder / "README.md").write_bytes(
        _card(config, manifest.step, rows, len(test), first, repo, model, license).encode()
    )


def license_of(repo: str, token: str | bool = False) -> str:
    """Return the licence that a dataset on the Hub names in its card; empty where it names none, or more than one."""
    try:
        card = HfApi(token=token).dataset_info(repo).card_data
        named = card.get("license") if card else None
    except Exception:  # a card is anybody's, and may hold anything
        log.exception("the licence of a dataset could not be read")
        return ""
    return named if isinstance(named, str) else ""


def stream_columns(
    repo: str, columns: Sequence[str], choose: Callable[[Sequence[str], Sequence[str]], Sequence[str]], token: str | bool = False
) -> Iterator[tuple[Any, Any]]:  # fmt: skip
    """Two columns of a dataset on the Hub, row by row, fetched as they are read. `choose` picks them from the names that are there.

    Only its files of tables are opened, by readers that run no code: what the repository's own settings say is not followed, and
    formats that may hold code (pickle) are not among them. Files with "train" in their path are read where there are any.

    Raises:
        RowsError: for what is no dataset with such a file, or cannot be fetched.
    """
    refusal = RowsError(f"{repo[:120]!r} is no dataset; name one as user/name")
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", repo, re.ASCII):
        raise refusal
    kind = None
    try:
        info = HfApi(token=token).dataset_info(repo)
        found = sorted(file.rfilename for file in info.siblings or [])
        kind = next(
            (
                kind
                for kind in READERS
                if any(name.lower().endswith(READERS[kind]) for name in found)
            ),
            None,
        )
        if kind is None:
            raise RowsError(
                f"the dataset {repo} has no file of tables; {', '.join(READERS)} files can be read"
            )
        files = [
            name for name in found if name.lower().endswith(READERS[kind]) and "::" not in name
        ]
        if not files:
            raise RowsError(
                f"the names of the files of {repo} hold '::', which leads to other addresses; they are not read"
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
        raise RowsError(
            f"there is no dataset {repo} on the Hub, or it is private; check its name"
        ) from None
    except (httpx.HTTPError, HfHubHTTPError, OSError) as error:
        raise RowsError(
            f"the dataset {repo} cannot be fetched ({type(error).__name__}); try again, or bring its rows as a file"
        ) from None
    except RowsError:
        raise
    except MemoryError:
        raise RowsError(
            f"the dataset {repo} needs more memory than is free to be read; bring some of its rows as a file"
        ) from None
    except (
        Exception
    ) as error:  # readers of tables fail on broken files in ways that cannot be listed
        log.exception("the dataset %s cannot be read", repo)
        how = f" as {kind}" if kind else ""
        raise RowsError(
            f"the dataset {repo} cannot be read{how}: {type(error).__name__}: {str(error)[:200]}"
        ) from None


def _stream_parquet(
    paths: Sequence[str],
    columns: Sequence[str],
    choose: Callable[[Sequence[str], Sequence[str]], Sequence[str]],
    token: str | bool,
) -> Iterator[tuple[Any, Any]]:
    """`stream_columns` of parquet files, whose few bytes may unpack to any number: a footer tells a row group's size beforehand, and
    what is unpacked nevertheless comes in small pieces.

    Raises:
        RowsError: for a row group that is too large.
    """
    files = HfFileSystem(token=token)
    picked: list[str] = []
    for path in paths:
        with files.open(path) as opened:
            table = parquet.ParquetFile(opened, buffer_size=BUFFER)
            picked = picked or list(choose(table.schema_arrow.names, columns))
            for number in range(table.num_row_groups):
                size = _unpacked_size(table.metadata.row_group(number), picked)
                if size > LARGEST_GROUP:
                    raise RowsError(
                        f"{path.rpartition('/')[2][:80]} holds {size / 1e6:,.0f} MB of these columns in one piece (row group "
                        f"{number + 1:,}), above {LARGEST_GROUP / 1e6:,.0f} MB; bring some of its rows as a file"
                    )
                for batch in table.iter_batches(PIECE, row_groups=[number], columns=picked):
                    yield from zip(
                        *(batch.column(name).to_pylist() for name in picked), strict=True
                    )


def _unpacked_size(group: Any, columns: Sequence[str]) -> int:
    """Bytes that these columns of a row group have unpacked, as its footer says."""
    parts = (group.column(at) for at in range(group.num_columns))
    return sum(
        part.total_uncompressed_size
        for part in parts
        if any(f"{part.path_in_schema}.".startswith(f"{name}.") for name in columns)
    )


def check_rows(config: RunConfig, steps: int) -> None:
    """Raises ValueError where a run has more rows than a dataset should have."""
    rows = steps * config.training.batch_size
    if rows > MOST_ROWS:
        size = f"{steps:,} steps of {config.training.batch_size:,} are {rows:,} sequences"
        raise ValueError(
            f"{size}, more than the {MOST_ROWS:,} that a dataset may have; publish the model alone, its seed makes them again"
        )


def _batches(task: Task, config: RunConfig, steps: int) -> Iterator[Batch]:
    """The batches of a run, from the Trainer's own source of them, seeded as it seeds it."""
    generator = torch.Generator(resolve_device(config.training.device)).manual_seed(
        config.training.seed
    )
    for _ in range(steps):
        yield training_batch(
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
    brought = task.task == ROWS
    origin = origin_of(task.rows) if brought else {}
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
        size_categories=[next(name for below, name in SIZES if train + test < below)],
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

Every sequence that trained [{linked}](https://huggingface.co/{model}), in the order in which it did, and the held-out \
ones that it is scored on. The task is *{task.task}*, on {lengths} symbols ({symbols}): `{first["source"]}` → `{first["target"]}`.

```python
from datasets import load_dataset

data = load_dataset("{repo}")
print(data["train"][0], data["test"][0])
```

| split | rows | |
|---|--:|---|
| train | {train:,} | {steps:,} steps of {config.training.batch_size:,} drawn sequences, without the held-out ones among them |
| test | {test:,} | distinct sequences, shared out over the lengths; none of them is in train |

| column | |
|---|---|
| step | the update of the weights that this row took part in, from 1; null in test |
| source | the sequence, its symbols apart by blanks |
| target | the right answer |

## How it was made

From seed {config.training.seed}, by the same code that fed the training: {_drawn(task.task, origin)}. Train may repeat \
a sequence, short ones above all. Which sequences are held out, a fixed hash of the sequence decides, one in \
{round(1 / HELD_OUT_SHARE)}, for every seed alike.

## Licence

{_licence(license, origin, brought)}
"""


def _licence(license: str, origin: dict[str, str], brought: bool) -> str:
    """Return what the card says of the licence."""
    source = (
        f" The rows are from [{origin['dataset']}](https://huggingface.co/datasets/{origin['dataset']})"
        if origin
        else ""
    )
    if license:
        return f"{license}.{source + ', whose terms apply to them.' if source else ''}"
    named = "None is named for these rows, which were not made by the playground: "
    return (
        named + (f"ask their author.{source}." if source else "ask who published them.")
        if brought
        else "None is named."
    )


def _drawn(task: str, origin: dict[str, str]) -> str:
    """How often which sequence trains."""
    if task == ROWS:
        return f"drawn from rows {'of ' + origin['dataset'] if origin else 'that somebody brought'}, every row equally often"
    return "every length" + ("" if TASKS[task].extra else " and every symbol") + " equally often"
