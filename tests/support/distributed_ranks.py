"""What each of two processes does in test_distributed.py; torchrun starts this file, and every process writes down what it saw."""

import faulthandler
import hashlib
import json
import os
import signal
import sys
import warnings
from pathlib import Path
from unittest.mock import patch

import torch

from playground.__main__ import run
from playground.commands.training import learn
from playground.training.checkpoint import load_trainer, save_checkpoint
from playground.training.config import RunConfig
from playground.training.distributed import Ranks, join
from playground.training.trainer import Trainer

SCRATCH = ("prebuilt", "encoder-only", "decoder-only", "recurrent")


def digest(trainer):
    """Of the weights and of what the optimizer remembers, to the bit."""
    state = {name: tensor for name, tensor in trainer.state().items() if not name.startswith("generator")}
    parts = sorted([*trainer.family.state_dict().items(), *state.items()])
    return hashlib.sha256(b"".join(name.encode() + tensor.numpy().tobytes() for name, tensor in parts)).hexdigest()


def told(trainer, metrics):
    measured = [[each.loss, each.gradient_norm, each.exact_match, each.token_accuracy] for each in metrics]
    return {"digest": digest(trainer), "step": trainer.step_count, "metrics": measured}


def uncut(ranks, config, folder):
    trainer = Trainer(config, ranks=ranks)
    metrics = list(trainer)
    if ranks.first:
        save_checkpoint(folder / "uncut", trainer, metrics)
    return told(trainer, metrics)


def resumed(ranks, config, folder):
    """Saved by the first after five steps, taken up by both."""
    trainer = Trainer(config, ranks=ranks)
    metrics = [trainer.step() for _ in range(5)]
    if ranks.first:
        save_checkpoint(folder / "cut", trainer, metrics)
    ranks.most(0)  # nobody reads before it is there
    again, _ = load_trainer(folder / "cut", ranks)
    return told(again, metrics + list(again))


def resumed_from_one(ranks, config, folder):
    trainer, _ = load_trainer(folder / "one", ranks)
    return told(trainer, list(trainer))


def with_dropout(ranks, config, folder):
    trainer = Trainer(config.replace(dropout=0.5, steps=3), ranks=ranks)
    if ranks.first:
        save_checkpoint(folder / "dropping", trainer, [])
    ranks.most(0)
    again, _ = load_trainer(folder / "dropping", ranks)
    return told(trainer, list(trainer)) | {"drawn": torch.rand(4).tolist(), "again": told(again, list(again))["digest"]}


def ends_early(ranks, config, folder):
    trainer = Trainer(config.replace(until=0.001, steps=200, eval_every=5), ranks=ranks)
    return told(trainer, list(trainer))


def loss_is_no_number_on_one(ranks, config, folder):
    trainer = Trainer(config, ranks=ranks)
    trainer.step()
    before, of_family = digest(trainer), trainer.family.loss
    if ranks.rank == 1:
        trainer.family.loss = lambda batch, smoothing: of_family(batch, smoothing) * torch.nan
    return {"ended": learn(trainer, []), "kept": digest(trainer) == before, "step": trainer.step_count}


def gradient_is_infinite_on_one(ranks, config, folder):
    trainer = Trainer(config, ranks=ranks)
    trainer.step()
    before = digest(trainer)
    if ranks.rank == 1:
        next(trainer.family.parameters()).register_hook(lambda gradient: gradient + torch.inf)
    return {"ended": learn(trainer, []), "kept": digest(trainer) == before, "step": trainer.step_count}


def one_is_told_to_end(ranks, config, folder):
    trainer, metrics = Trainer(config, ranks=ranks), []
    one_step = trainer.step

    def step():
        if ranks.rank == 1 and trainer.step_count == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return one_step()

    trainer.step = step
    return {"ended": learn(trainer, metrics), "digest": digest(trainer), "steps": len(metrics)}


def refused(ranks, config, folder):
    """What is said to runs that cannot be trained together."""
    runs = {
        "uneven": lambda: Trainer(config.replace(batch_size=33), ranks=ranks),
        "apart": lambda: Trainer(config.replace(seed=ranks.rank), ranks=ranks),
        "elsewhere": lambda: load_trainer(folder / ("one" if ranks.first else "cut"), ranks),
    }
    said = {}
    for name, build in runs.items():
        try:
            build()
        except ValueError as error:
            said[name] = str(error)
    return said


def families(ranks, config, folder):
    """Two steps of every family that is written here."""
    sizes = {"steps": 2, "batch_size": 16, "max_length": 4, "device": "cpu", "epsilon": 1e-6}
    trainers = {name: Trainer(RunConfig.from_fields(sizes | {"family": name}), ranks=ranks) for name in SCRATCH}
    return {name: told(trainer, list(trainer)) for name, trainer in trainers.items()}


def by_the_command(ranks, config, folder):
    """As `python -m playground train` would, but for meeting and leaving, which torchrun's processes do once."""
    with patch("playground.training.distributed.join", return_value=ranks), patch.object(Ranks, "leave"):
        run(["train", *json.loads((folder / "order.json").read_text())["arguments"], "--out", str(folder / "told"), "--json"])


def one_is_gone(ranks, config, folder):
    """The last one: the second process leaves in the middle of a step, after writing down what it saw before."""
    trainer, metrics = Trainer(config, ranks=ranks), []
    one_step = trainer.step

    def step():
        if ranks.rank == 1 and trainer.step_count == 3:
            os._exit(0)
        return one_step()

    trainer.step = step
    ended = learn(trainer, metrics)
    save_checkpoint(folder / "alone", trainer, metrics)
    return {"ended": ended, "step": load_trainer(folder / "alone")[0].step_count}


def main(folder):
    warnings.simplefilter("error")
    faulthandler.dump_traceback_later(120, exit=True)  # should one wait for the other for ever
    config = RunConfig.from_fields(json.loads((folder / "order.json").read_text())["fields"])
    ranks = join(torch.device("cpu"))
    saw = {"rank": ranks.rank, "size": ranks.size}
    for case in (
        uncut, resumed, resumed_from_one, with_dropout, ends_early, loss_is_no_number_on_one, gradient_is_infinite_on_one,
        one_is_told_to_end, refused, families, by_the_command, one_is_gone,
    ):  # fmt: skip
        (folder / f"{ranks.rank}.json").write_text(json.dumps(saw))
        saw[case.__name__] = case(ranks, config, folder)
    (folder / f"{ranks.rank}.json").write_text(json.dumps(saw))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
