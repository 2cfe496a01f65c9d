"""Training to the end, and training in two processes, end with the same bits: models of several
kinds, cut at several steps.
(tests/training/test_resume.py has the negative controls.)"""

import random
import subprocess
import sys

import pytest

from playground.checkpoints.checkpoint import save_checkpoint
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT
from tests.support.small_runs import tiny_config
from tests.support.trainer_fingerprint import fingerprint

STEPS = 12
RESUME = """
import sys
from pathlib import Path
from playground.checkpoints.checkpoint import resume_trainer
from tests.support.trainer_fingerprint import fingerprint
for folder in sys.argv[1:]:
    trainer, _ = resume_trainer(Path(folder))
    list(trainer)
    print(fingerprint(trainer))
"""
MODELS = (
    {"norm_placement": "post", "dropout": 0.1},
    {"position_type": "sinusoidal", "n_layers": 2, "label_smoothing": 0.1},
    {"share_embeddings": True, "tie_output_embeddings": True, "dropout": 0.2},
    {
        "attention_bias": False,
        "n_heads": 2,
        "lr_schedule": "noam",
        "learning_rate": 1.0,
        "warmup_steps": 5,
    },
    {"optimizer": "muon", "weight_averaging": True},
    {
        "task": "copy",
        "min_length": 3,
        "max_grad_norm": 0.0,
        "lr_schedule": "cosine",
        "lr_decay_steps": STEPS,
        "eval_every": 4,
    },
)


def random_models(n):
    rng = random.Random(n)
    for _ in range(n):
        yield {
            "norm_placement": rng.choice(["pre", "post"]),
            "position_type": rng.choice(["learned", "sinusoidal"]),
            "share_embeddings": rng.random() < 0.5,
            "tie_output_embeddings": rng.random() < 0.5,
            "attention_bias": rng.random() < 0.5,
            "n_layers": rng.choice([1, 2, 3]),
            "n_heads": rng.choice([1, 2, 4]),
            "dropout": rng.choice([0.0, 0.1, 0.5]),
            "max_grad_norm": rng.choice([0.0, 0.1, 1.0]),
            "lr_schedule": rng.choice(["constant", "cosine", "noam"]),
            "task": rng.choice(["reverse", "copy"]),
            "seed": rng.randrange(1000),
            "eval_every": rng.choice([3, 50]),
        }


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("models", "cuts"),
    [
        (MODELS, (0, 1, 7)),
        pytest.param(
            tuple(random_models(20)), range(10), marks=[pytest.mark.soak, pytest.mark.timeout(3600)]
        ),
    ],
    ids=["6 models x 3 cuts", "20 models x 10 cuts"],
)
def test_resumed_run_is_bit_identical_for_any_model_and_cut(tmp_path, models, cuts):
    folders, expected = [], []
    for number, model in enumerate(models):
        trainer = Trainer(tiny_config(**{"max_steps": STEPS} | model))
        for step in range(STEPS):
            if step in cuts:
                folders.append(tmp_path / f"{number}-{step}")
                save_checkpoint(folders[-1], trainer, None)
            trainer.train_step()
        expected += [fingerprint(trainer)] * len(cuts)
    command = [sys.executable, "-W", "error", "-c", RESUME, *map(str, folders)]
    resumed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=3000
    ).stdout.split()
    assert resumed == expected
    assert len(set(expected)) == len(models)
