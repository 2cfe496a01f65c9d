"""Transformer Playground: train a small transformer from scratch and inspect how it works.

The layers of the package, lowest first. A module imports only from layers below its own, or from
its own folder.

    0  errors         errors that a user can correct
    0  models/        the transformer from scratch
    1  tasks/         vocabulary, batches, tasks, the held-out set
    1  common/        atomic writes, environment, platform, statistics, text of numbers, logs
    2  jobs/          the queue of background jobs, its executors and processes
    2  generation     generation token by token, with a key-value cache
    3  architectures/ the models that the Trainer trains
    3  datasets/      datasets from users: sources, checks, storage, their task
    4  evaluation     exact match and token accuracy on held-out sequences
    5  training/      settings, presets, the Trainer
    6  checkpoints/   saving, loading and resuming; every file is checked before use
    7  inspection/    attention weights, ablation, activation patching, the logit lens
    8  runs/          a worker process per run, the run registry, model inspection
    9  figures/       figures for papers and model cards
   10  reports/       the HTML report of a model
   11  hub/           publishing and importing models
   12  experiments/   experiments, their shards, length generalization, published claims
   12  pretrained/    the Compare tab: pretrained models, the benchmark, the race
   13  lessons/       lessons with measurements, and models with a bug to find
   15  ui/            the page: its views, the form of a run, the Train tab
   16  server/        the app, its middleware, the JSON routes, the public API
   17  cli/           the commands of the command line
   18  __main__       the entry point of `python -m playground`
   18  examples/      programs that use a served page
   19  entry_point    the command of an installed package
"""

import os
from pathlib import Path

# Read by torch at its import: operations that Apple's GPU lacks run on the CPU.
os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")

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
