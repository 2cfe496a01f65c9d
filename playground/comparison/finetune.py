"""Fine-tuning: a pretrained model is trained further on a checkpoint's task, with the Trainer.

The result is a folder in the format of transformers, which every part of the comparison accepts
as a model. If it lies under checkpoints/compared, its name is `tuned:` and the folder name.

Rows as they are reported, each with its "kind":

    memory   estimated bytes by purpose, and the free ones; `model` is the name of the result
    step     the metrics at a step; step 0 is the pretrained model
"""

from __future__ import annotations

import json
import math
import re
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from playground.models.config import ModelConfig, SettingError
from playground.runs.memory import free_memory
from playground.tasks.vocabulary import SPECIAL
from playground.training.checkpoint import as_line
from playground.training.config import RunConfig, TaskConfig, TrainConfig
from playground.training.files import new_folder, remove_folder
from playground.training.manifest import read_manifest
from playground.training.trainer import Trainer, TrainingDiverged

from .pretrained import (
    CAUSAL,
    TUNED,
    Found,
    about,
    find,
    folders_allowed,
    kind_of,
    let_go,
    read_config,
    tuned_home,
)
from .table import FINE_TUNED, open_of_a_kind
from .tuned import MOST_POSITIONS, Tuned, TunedCausal, TunedConfig, TunedMasked
from .work import Cancelled, Refused, Tell

STEPS = 100
LEARNING_RATE = 2e-4
BATCH_SIZE = 16
WARMUP_SHARE = 0.1
LOOKS = 10  # evaluations on held-out sequences during training
WORDING = 16  # estimate of a prompt's tokens besides its symbols, without a tokenizer
MOST = {"steps": 5000, "batch_size": 256, "n": 1000}
HOSTED_MOST = {"steps": 200, "batch_size": 16, "n": 40}  # on a shared instance
HOSTED_KEPT = 6  # fine-tuned models stored on a shared instance
KEPT_FOR = 3600.0  # seconds for which another user's model cannot be evicted


@dataclass(frozen=True)
class Asked:
    """A fine-tuning request.

    checkpoint     the folder whose task is used; set by the server or the command line, never
                   by a browser
    into           the output folder, set likewise; empty for one under checkpoints/compared
    model          a name on the Hub, a folder if those are allowed, or a model that was
                   fine-tuned before
    steps          training steps
    learning_rate  the peak, after a warm-up over a tenth of the steps; then cosine decay
    batch_size     sequences per step
    n              held-out sequences per evaluation
    owner          the fingerprint of the user, set by the server; empty on the command line
    seed           the same seed gives the same losses on the same machine
    """

    checkpoint: str
    into: str
    owner: str
    model: str
    steps: int
    learning_rate: float
    batch_size: int
    n: int
    seed: int

    @classmethod
    def of(cls, what: dict[str, Any]) -> Asked:
        """Validate a request; raises Refused if it is invalid."""
        most = MOST if folders_allowed() else HOSTED_MOST

        def number(name: str, default: float, low: float, high: float) -> Any:
            value = what.get(name, default)
            whole = isinstance(default, int)
            if (
                isinstance(value, bool)
                or not isinstance(value, int if whole else int | float)
                or not low <= value <= high
            ):
                raise Refused(
                    f"{name} is {str(value)[:40]}; give a {'whole ' if whole else ''}number "
                    f"from {low:g} to {high:,g}"
                )
            return value

        checkpoint, model = what.get("checkpoint"), what.get("model")
        if not isinstance(checkpoint, str) or not checkpoint:
            raise Refused("choose a checkpoint; the model is trained on its task")
        if not isinstance(model, str) or not model.strip():
            raise Refused("name a model to fine-tune, such as gpt2")
        return cls(
            checkpoint,
            str(what.get("into") or ""),
            str(what.get("owner") or ""),
            model,
            number("steps", STEPS, 1, most["steps"]),
            float(number("learning_rate", LEARNING_RATE, 1e-8, 0.1)),
            number("batch_size", BATCH_SIZE, 1, most["batch_size"]),
            number("n", min(64, most["n"]), 1, most["n"]),
            number("seed", 0, 0, 2**31 - 1),
        )

    def run_config(self, task: TaskConfig) -> RunConfig:
        """Return the settings of the Trainer; the model part holds only what the task needs."""
        vocabulary = task.vocabulary_size + len(SPECIAL)
        positions = task.longest + 1
        training = TrainConfig(
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            schedule="cosine",
            warmup=round(WARMUP_SHARE * self.steps),
            decay_steps=self.steps,
            beta2=0.999,
            epsilon=1e-8,
            eval_every=math.ceil(self.steps / LOOKS),
            eval_n=self.n,
            seed=self.seed,
            threads=torch.get_num_threads(),
        )
        return RunConfig(
            task,
            ModelConfig(
                source_vocabulary=vocabulary, target_vocabulary=vocabulary, max_positions=positions
            ),
            training,
        )


def finetune(what: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Train a pretrained model further. `what`: see Asked. A cancellation saves the weights so far.

    Raises:
        Refused: if the model cannot be trained, does not fit into memory, or cannot be saved.
        Cancelled: before the first step.
    """
    asked = Asked.of(what)
    task = read_manifest(Path(asked.checkpoint)).config.task
    found = find(asked.model, tell)
    config = read_config(found.folder, found.name)
    parts = cost(found, config, task, asked.batch_size)
    folder, name = place_of(asked, found, task)
    check_memory(found.name, parts)
    check_disk(folder, found)
    if not folders_allowed():
        to_make_way(folder.parent, asked.owner)
    tell.row(
        {
            "kind": "memory",
            "bytes": sum(parts.values()),
            "parts": parts,
            "free": free_memory(),
            "model": name,
        }
    )
    pipe, kind = open_of_a_kind(found, tell)
    let_go(found.folder)  # training changes its weights, so no other job may share it
    rules = task.load()
    family = (TunedCausal if kind == CAUSAL else TunedMasked)(
        pipe.model, pipe.tokenizer, rules, found.name
    )
    family.check_width(task.max_length)
    trainer = Trainer(asked.run_config(task), family=family)
    before, after = _train(trainer, family, asked, found.name, tell)
    steps = trainer.step_count
    facts = {
        "from": found.name,
        "task": task.task,
        "steps": steps,
        "lengths": [task.min_length, task.max_length],
        "learning_rate": asked.learning_rate,
        "batch_size": asked.batch_size,
        "seed": asked.seed,
    }
    save(family.model, pipe.tokenizer, folder, facts | {"owner": asked.owner}, found.name)
    return {
        "model": name,
        "kind": kind,
        "asked_steps": asked.steps,
        "cancelled": steps < asked.steps,
        "before": before,
        "after": after,
        "seconds": trainer.seconds,
        "parameters": family.config.parameters,
        "bytes": found.bytes,
        "note": "a masked model is given the length of the answer" if kind != CAUSAL else "",
        **facts,
    }


def _train(
    trainer: Trainer, family: Tuned, asked: Asked, name: str, tell: Tell
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Train to the end or to a cancellation.

    Returns the metrics before the first step, and the last ones with their step.
    """

    def look(*_: Any) -> None:
        tell.check()

    # a forward pass of a large model takes seconds, so a cancellation is checked in each module
    hooks = [module.register_forward_pre_hook(look) for module in family.model.modules()]
    last: dict[str, Any] | None = None
    try:
        tell.say(f"Evaluating {name} before training on {asked.n} held-out sequences, zero-shot")
        scores = trainer.evaluate(asked.n)
        before = {
            "step": 0,
            "exact_match": scores.exact_match,
            "token_accuracy": scores.token_accuracy,
            "scored": scores.n,
        }
        tell.row({"kind": "step", **before})
        tell.say(f"Training {name}: {asked.steps} steps of {asked.batch_size} sequences")
        try:
            for metrics in trainer:
                row = as_line(metrics)
                last = {key: row[key] for key in before} if "scored" in row else last
                tell.row({"kind": "step", **row})
                tell.share(metrics.step, asked.steps, "steps")
        except Cancelled:
            if not trainer.step_count:
                raise
        except TrainingDiverged as error:
            raise Refused(
                f"{name}: the loss is not finite after {trainer.step_count} steps; nothing was "
                f"saved; try again with a learning rate below {asked.learning_rate:g}"
            ) from error
        return before, last
    finally:
        for hook in hooks:
            hook.remove()


def plan(what: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Estimate the cost of fine-tuning without a download. `what`: see Asked.

    "bytes" by "parts" and "free" ones; "fits". For a model that is only on the Hub, activations
    are unknown and left out.
    """
    asked = Asked.of(what)
    task = read_manifest(Path(asked.checkpoint)).config.task
    try:
        found = find(asked.model, tell, local_only=True)
        parts = cost(found, read_config(found.folder, found.name), task, asked.batch_size)
    except Refused:
        row = about({"models": [asked.model]}, Tell(cancelled=tell.cancelled))["models"][0]
        if row["where"] != "hub":
            raise
        numbers = row["parameters"] or row["bytes"] // 4
        parts = {"weights": 4 * numbers, "gradients": 4 * numbers, "averages": 8 * numbers}
    needed, free = sum(parts.values()), free_memory()
    return {"bytes": needed, "parts": parts, "free": free, "fits": needed <= 0.9 * free}


def cost(found: Found, config: dict[str, Any], task: TaskConfig, batch_size: int) -> dict[str, int]:
    """Estimate the bytes that training takes, by purpose.

    Raises:
        Refused: for a model whose config does not contain its sizes.
    """
    from transformers import AutoConfig

    answer = task.load().answer_length(task.max_length)
    try:
        told = AutoConfig.from_pretrained(found.folder, trust_remote_code=False)
        sizes = TunedConfig.of(
            told, MOST_POSITIONS, WORDING, found.parameters, kind_of(config) != CAUSAL
        )
    except (AttributeError, SettingError, ValueError, TypeError) as error:
        raise Refused(
            f"{found.name} cannot be fine-tuned here ({str(error)[:160]}); choose another model"
        ) from None
    return sizes.training_bytes(batch_size, task.max_length + 1, answer + 1)


def check_memory(name: str, parts: dict[str, int]) -> None:
    """Check that training fits into memory, and unload other models if necessary.

    Raises:
        Refused: with the estimate and the free memory.
    """
    needed = sum(parts.values())
    if needed > 0.9 * free_memory():
        let_go()
    if needed > 0.9 * free_memory():
        raise Refused(
            f"fine-tuning {name} takes about {needed / 1e9:.1f} GB "
            f"({parts['activations'] / 1e9:.1f} GB of it for activations) and "
            f"{free_memory() / 1e9:.1f} GB are free; choose a smaller model or batch size, or "
            "end a run",
            again=True,
        )


def check_disk(folder: Path, found: Found) -> None:
    """Check the free disk space before hours of training."""
    home = folder.parent
    while not home.exists() and home != home.parent:
        home = home.parent
    free, needed = shutil.disk_usage(home).free, 4 * found.parameters + 20_000_000
    if needed > free:
        raise Refused(
            f"saving the fine-tuned {found.name} takes {needed / 1e6:,.0f} MB and "
            f"{free / 1e6:,.0f} MB are free on this disk; free some space, or choose a smaller "
            "model",
            again=True,
        )


def place_of(asked: Asked, found: Found, task: TaskConfig) -> tuple[Path, str]:
    """Return the output folder, and its name as a model."""
    if asked.into:
        return Path(asked.into), asked.into
    base = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", Path(found.name.removeprefix(TUNED)).name).strip("-._")[
            :60
        ]
        or "model"
    )
    lengths = (
        f"{task.min_length}-{task.max_length}"
        if task.min_length < task.max_length
        else str(task.max_length)
    )
    name = base if base.endswith(f"-{task.task}-{lengths}") else f"{base}-{task.task}-{lengths}"
    if not folders_allowed():  # anyone who knows the name may use the model, so it is random
        name += f"-{secrets.token_hex(8)}"
    return tuned_home() / name, TUNED + name


def to_make_way(home: Path, owner: str, but: Path | None = None) -> list[Path]:
    """Return the models to evict for a new one of this owner.

    The owner's own models come first, then those of others older than an hour; the oldest
    first. `but` is the new model, if it exists already.

    Raises:
        Refused: if not enough models may be evicted.
    """
    written = {
        path: path.stat().st_mtime for path in home.glob("[!.]*") if path.is_dir() and path != but
    }
    of_owner = {path: owner_of(path) == owner for path in written}
    may_go = [
        path
        for path in sorted(written, key=lambda path: (not of_owner[path], written[path]))
        if of_owner[path] or time.time() - written[path] > KEPT_FOR
    ]
    too_many = max(0, len(written) + 1 - HOSTED_KEPT)
    if too_many > len(may_go):
        minutes = math.ceil((KEPT_FOR - time.time() + min(written.values())) / 60)
        raise Refused(
            f"{len(written)} fine-tuned models of other users are stored here, the maximum, "
            f"each for at least an hour; try again in about {minutes} minutes",
            again=True,
        )
    return may_go[:too_many]


def owner_of(folder: Path) -> str:
    """Return the owner's fingerprint of a fine-tuned model; empty if it has none."""
    try:
        return str(json.loads((folder / FINE_TUNED).read_text(encoding="utf-8")).get("owner", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def save(model: Any, tokenizer: Any, folder: Path, facts: dict[str, Any], name: str) -> None:
    """Write a fine-tuned model atomically in the format of transformers.

    Raises:
        Refused: if it cannot be written; an earlier model in the folder stays.
    """
    try:
        with new_folder(folder) as fresh:
            model.save_pretrained(fresh)
            tokenizer.save_pretrained(fresh)
            (fresh / FINE_TUNED).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        if not folders_allowed():
            for each in to_make_way(folder.parent, facts["owner"], but=folder):
                remove_folder(each)
    except (OSError, SafetensorError) as error:
        # SafetensorError reports a full disk during the write of tensors
        why = getattr(error, "strerror", None) or str(error)[:160]
        raise Refused(
            f"{name} was trained but could not be saved ({why}); no partial files remain. Free "
            "some space and train it again",
            again=True,
        ) from error
    finally:
        let_go(str(folder))  # an earlier model of that name may be loaded
