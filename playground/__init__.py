"""Transformer Playground: train a small transformer from scratch and inspect how it works.

The layers of the package, lowest first. A module imports only from layers below its own, or from
its own folder.

    0  tasks/         vocabulary, batches, tasks, the held-out set
    0  models/        the transformer from scratch
    0  compat         names of version 0.1.0, accepted for one release
    1  common/        atomic writes, environment, devices, statistics, logs, storage
    1  generation     generation token by token, with a key-value cache
    2  architectures/ the models that the Trainer trains
    2  datasets/      datasets from users: sources, checks, storage, their task
    3  evaluation     exact match and token accuracy on held-out sequences
    4  training/      settings, presets, the Trainer
    5  checkpoints/   saving, loading and resuming; every file is checked before use
    6  inspection/    attention weights, ablation, activation patching, the logit lens
    7  runs/          a worker process per run, the run registry, model inspection
    8  figures/       figures for papers and model cards
    8  experiments/   experiments, length generalization, published claims
    8  lessons/       lessons with measurements, and models with a bug to find
    9  hub/           publishing and downloading models, a task's data as a dataset
   10  comparison/    benchmarks of pretrained models, fine-tuning, probing
   11  ui/            the page and its server
   12  cli/           the commands of the command line
   13  __main__       the entry point of `python -m playground`
   13  examples/      programs that use a served page
   14  entry_point    the command of an installed package
"""

from pathlib import Path

__version__ = "0.2.0"

_PACKAGE_DIR = Path(__file__).resolve().parent
# Only a wheel has this folder: pyproject.toml copies files of the repository there.
_BUNDLED_DIR = _PACKAGE_DIR / "bundled"
IS_INSTALLED = _BUNDLED_DIR.is_dir()
# the folder of LICENSE, checkpoints/ and benchmarks/results/
ASSETS_DIR = _BUNDLED_DIR if IS_INSTALLED else _PACKAGE_DIR.parent
# A user's runs do not belong in site-packages, so an installed package stores them in the working
# directory.
CHECKPOINTS_DIR = Path("checkpoints") if IS_INSTALLED else ASSETS_DIR / "checkpoints"
