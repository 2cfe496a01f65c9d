"""The process of test_distributed.py, started by torchrun; it stores its results."""

import faulthandler
import hashlib
import json
import os
import signal
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch

from playground.__main__ import run
from playground.checkpoints.checkpoint import resume_trainer, save_checkpoint
from playground.cli.train import train_with_progress
from playground.datasets.sources import read_text
from playground.datasets.storage import store
from playground.tasks import TASKS
from playground.training.distributed import DistributedContext, init_distributed
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer

FROM_SCRATCH_FAMILIES = ("torch-transformer", "encoder-only", "decoder-only", "recurrent")


def digest(trainer):
    """Return a hash of the weights and of the optimizer's state."""
    state = {
        name: tensor
        for name, tensor in trainer.state_dict().items()
        if not name.startswith("generator")
    }
    parts = sorted([*trainer.eval_model.state_dict().items(), *state.items()])
    return hashlib.sha256(
        b"".join(name.encode() + tensor.numpy().tobytes() for name, tensor in parts)
    ).hexdigest()


def summarize(trainer, metrics):
    rows = [
        [entry.loss, entry.grad_norm, entry.exact_match, entry.token_accuracy] for entry in metrics
    ]
    return {"digest": digest(trainer), "step": trainer.step_count, "metrics": rows}


def uninterrupted(ranks, config, folder):
    """Train to the end; save a checkpoint after five steps, and one at the end."""
    trainer = Trainer(config, dist=ranks)
    metrics = [trainer.train_step() for _ in range(5)]
    if ranks.is_main:
        save_checkpoint(folder / "cut", trainer, metrics)
    metrics += list(trainer)
    if ranks.is_main:
        save_checkpoint(folder / "uncut", trainer, metrics)
    return summarize(trainer, metrics)


def resumed_from_single_process(ranks, config, folder):
    trainer, _ = resume_trainer(folder / "one", ranks)
    return summarize(trainer, list(trainer))


def with_dropout(ranks, config, folder):
    trainer = Trainer(config.replace(dropout=0.5, max_steps=3), dist=ranks)
    if ranks.is_main:
        save_checkpoint(folder / "dropping", trainer, [])
    ranks.all_reduce_max(0)
    resumed_trainer, _ = resume_trainer(folder / "dropping", ranks)
    return summarize(trainer, list(trainer)) | {
        "drawn": torch.rand(4).tolist(),
        "again": summarize(resumed_trainer, list(resumed_trainer))["digest"],
    }


def averaged_muon(ranks, config, folder):
    """Train without interruption, and from a checkpoint after five steps."""
    config = config.replace(optimizer="muon", weight_averaging=True)
    trainer = Trainer(config, dist=ranks)
    metrics = [trainer.train_step() for _ in range(5)]
    if ranks.is_main:
        save_checkpoint(folder / "averaged", trainer, metrics)
    ranks.all_reduce_max(0)
    resumed_trainer, _ = resume_trainer(folder / "averaged", ranks)
    return {
        "uncut": summarize(trainer, list(trainer)),
        "resumed": summarize(resumed_trainer, list(resumed_trainer)),
    }


def ends_early(ranks, config, folder):
    trainer = Trainer(
        config.replace(stop_at_exact_match=0.001, max_steps=200, eval_every=5), dist=ranks
    )
    return summarize(trainer, list(trainer))


def loss_is_nan_on_one_rank(ranks, config, folder):
    trainer = Trainer(config, dist=ranks)
    trainer.train_step()
    before, original_loss = digest(trainer), trainer.model.loss
    if ranks.rank == 1:
        trainer.model.loss = lambda batch, smoothing: original_loss(batch, smoothing) * torch.nan
    return {
        "ended": train_with_progress(trainer, []),
        "is_unchanged": digest(trainer) == before,
        "step": trainer.step_count,
    }


def gradient_is_infinite_on_one_rank(ranks, config, folder):
    trainer = Trainer(config, dist=ranks)
    trainer.train_step()
    before = digest(trainer)
    if ranks.rank == 1:
        next(trainer.model.parameters()).register_hook(lambda gradient: gradient + torch.inf)
    return {
        "ended": train_with_progress(trainer, []),
        "is_unchanged": digest(trainer) == before,
        "step": trainer.step_count,
    }


def one_rank_gets_sigterm(ranks, config, folder):
    trainer, metrics = Trainer(config, dist=ranks), []
    one_step = trainer.train_step

    def step():
        if ranks.rank == 1 and trainer.step_count == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return one_step()

    trainer.train_step = step
    return {
        "ended": train_with_progress(trainer, metrics),
        "digest": digest(trainer),
        "steps": len(metrics),
    }


def rejected_setups(ranks, config, folder):
    """Messages for runs that cannot be trained together."""
    builders = {
        "uneven": lambda: Trainer(config.replace(batch_size=33), dist=ranks),
        "apart": lambda: Trainer(config.replace(seed=ranks.rank), dist=ranks),
        "elsewhere": lambda: resume_trainer(folder / ("one" if ranks.is_main else "cut"), ranks),
    }
    message_by_case = {}
    for name, build in builders.items():
        try:
            build()
        except ValueError as error:
            message_by_case[name] = str(error)
    return message_by_case


def families(ranks, config, folder):
    """Train two steps of every architecture of this project."""
    sizes = {"max_steps": 2, "batch_size": 16, "max_length": 4, "device": "cpu", "adam_eps": 1e-6}
    trainers = {
        name: Trainer(RunConfig.from_flat(sizes | {"architecture": name}), dist=ranks)
        for name in FROM_SCRATCH_FAMILIES
    }
    return {name: summarize(trainer, list(trainer)) for name, trainer in trainers.items()}


def data_sources(ranks, config, folder):
    """Train two steps on each task, on fixed training sets and on a dataset."""
    sizes = {"d_model": 8, "d_ff": 8, "batch_size": 16, "eval_size": 16, "max_steps": 2}
    sizes |= {"adam_eps": 1e-6, "device": "cpu"}
    sources = {name: {"task": name, "max_length": 9} for name in TASKS}
    sources["fixed set"] = {"max_length": 4, "n_training_sources": 50}
    sources["fixed set of one batch"] = {"max_length": 4, "n_training_sources": 10}
    sources["without EOS"] = {"min_length": 4, "max_length": 4, "predict_eos": False}
    dataset = read_text("".join(f"{n}\t{n % 7}\n" for n in range(300)))
    sources["dataset"] = dataset.task_settings()
    with TemporaryDirectory() as root, patch.dict(os.environ, PLAYGROUND_CHECKPOINTS=root):
        store(dataset)
        trainers = {
            name: Trainer(RunConfig.from_flat(sizes | settings), dist=ranks)
            for name, settings in sources.items()
        }
        return {name: summarize(trainer, list(trainer)) for name, trainer in trainers.items()}


def run_command(ranks, *arguments):
    """Run `python -m playground train` inside the existing process group; return its exit code."""
    with (
        patch("playground.training.distributed.init_distributed", return_value=ranks),
        patch.object(DistributedContext, "shutdown"),
    ):
        try:
            run(["train", *arguments])
        except SystemExit as ended:
            return ended.code
        return 0


def by_command(ranks, config, folder):
    arguments = json.loads((folder / "order.json").read_text())["arguments"]
    return run_command(ranks, *arguments, "--out", str(folder / "results"), "--json")


def command_gets_sigterm(ranks, config, folder):
    """Continue a run by command; the second process gets a signal after the sixth step."""
    one_step = Trainer.train_step

    def step(trainer):
        if ranks.rank == 1 and trainer.step_count == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return one_step(trainer)

    ranks.all_reduce_max(0)  # the first process has saved the run
    with patch.object(Trainer, "train_step", step):
        arguments = ("--resume", str(folder / "results"), "--max-steps", "1000")
        return run_command(ranks, *arguments, "--out", str(folder / "stopped"))


def one_rank_exits(ranks, config, folder):
    """End the second process during a step, after it has stored its results."""
    trainer, metrics = Trainer(config, dist=ranks), []
    one_step = trainer.train_step

    def step():
        if ranks.rank == 1 and trainer.step_count == 3:
            os._exit(0)
        return one_step()

    trainer.train_step = step
    ended = train_with_progress(trainer, metrics)
    save_checkpoint(folder / "alone", trainer, metrics)
    return {"ended": ended, "step": resume_trainer(folder / "alone")[0].step_count}


def main(folder):
    warnings.simplefilter("error")
    faulthandler.dump_traceback_later(120, exit=True)  # if the processes deadlock
    config = RunConfig.from_flat(json.loads((folder / "order.json").read_text())["fields"])
    ranks = init_distributed(torch.device("cpu"))
    results = {"rank": ranks.rank, "size": ranks.world_size}
    for case in (
        uninterrupted,
        resumed_from_single_process,
        with_dropout,
        averaged_muon,
        ends_early,
        loss_is_nan_on_one_rank,
        gradient_is_infinite_on_one_rank,
        one_rank_gets_sigterm,
        rejected_setups,
        families,
        data_sources,
        by_command,
        command_gets_sigterm,
        one_rank_exits,
    ):
        (folder / f"{ranks.rank}.json").write_text(json.dumps(results))
        results[case.__name__] = case(ranks, config, folder)
    (folder / f"{ranks.rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
