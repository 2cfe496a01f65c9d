"""Transformer Playground: train a small encoder-decoder transformer, watch it learn, look inside.

The floors, lowest first; a module imports only from floors below its own, or from its own folder.

    0  tasks/        vocabulary, batches, tasks, the held-out set
    0  models/       the transformer from scratch
    0  statistics    intervals and medians
    0  logs          one handler, a level, no secrets
    1  decoding      answers symbol by symbol, with the past kept
    2  families/     what the Trainer trains
    3  evaluation    exact match and token accuracy on held-out sequences
    4  training/     settings, presets, the Trainer, checkpoints
    5  inspection/   where heads look, what they are for, what each part says
    6  runs/         a worker process per run, the registry, looking into checkpoints
    7  plots/        figures for papers and cards
    7  data          a task's data as a dataset
    7  lab/          experiments, lengths, published claims
    7  lessons/      a tour whose answers are measured, mistakes to be found
    8  origins       where rows of a task come from, and where they are kept
    8  hub/          publishing, fetching, what others published
    9  comparison/   pretrained models, asked the same questions
   10  ui/           the page
   11  commands/     what the command line can do
   12  __main__      the command line
   12  examples/     programs that use a page that is served
   13  entry_point   the command of an installed package
"""

from pathlib import Path

__version__ = "0.2.0"

_PACKAGE_DIR = Path(__file__).resolve().parent
_BUNDLED_DIR = (
    _PACKAGE_DIR / "bundled"
)  # only a wheel has it: pyproject.toml copies files of the repository there
IS_INSTALLED = _BUNDLED_DIR.is_dir()
ASSETS_DIR = (
    _BUNDLED_DIR if IS_INSTALLED else _PACKAGE_DIR.parent
)  # LICENSE, checkpoints/ and benchmarks/results/
# site-packages is no place for a user's runs, so an installed package keeps them in the working directory.
CHECKPOINTS_DIR = Path("checkpoints") if IS_INSTALLED else ASSETS_DIR / "checkpoints"
