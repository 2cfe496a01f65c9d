"""Inject a bug into a copy of the model, train it beside a correct copy and compare both.

The buggy copy is built from the real source with one line changed. The real modules stay unchanged:
functions are recompiled from their source, and the modules of the copy get their own subclasses.
A copy exists only in the process that creates it and cannot be saved.

Shapes: B batch, S source, T target, V vocabulary.
"""

from __future__ import annotations

import inspect
import linecache
import textwrap
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from difflib import unified_diff
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import mean
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from playground.families.encoder_decoder import EncoderDecoder
from playground.families.family import all_right, looking
from playground.inspection.recording import record_free
from playground.models.attention import MultiHeadAttention
from playground.models.config import ModelConfig
from playground.models.layers import AddAndNorm, DecoderLayer, EncoderLayer, FeedForward
from playground.models.positions import Embedding
from playground.models.transformer import Transformer
from playground.tasks import PAD
from playground.tasks.held_out import HeldOut, held_out_set
from playground.tasks.task import Batch, make_batch
from playground.training.config import RunConfig
from playground.training.trainer import Trainer

from .measuring import same_symbols
from .mistakes import MISTAKES, SETTINGS, Mistake

ROOT = Path(__file__).resolve().parents[2]
PARTS: tuple[type[nn.Module], ...] = (
    Transformer,
    Embedding,
    EncoderLayer,
    DecoderLayer,
    AddAndNorm,
    FeedForward,
    MultiHeadAttention,
)
COPY_MARK = " (the broken copy)"  # the suffix of a file name
SCORED = 128  # held-out sequences
# The displayed example, truncated to the training length.
SHOWN = "3 1 4 1 5"
LOOK_EVERY = 20  # steps
LAST = 10  # steps over which the reported loss is averaged
UNNOTICED_STEPS = 60


class Copy(EncoderDecoder):
    """The transformer of a lesson.

    `solves` generates free-running. The faster teacher-forced check of the other architectures is
    valid only for decoders that cannot attend to later positions.
    """

    @torch.no_grad()
    def solves(self, batch: Batch) -> Tensor:
        return (
            (self.solve(batch.source_BS, batch.labels_BT.shape[1]) == batch.labels_BT)
            | (batch.labels_BT == PAD)
        ).all(1)


class Broken(Copy):
    """A copy with a bug, which cannot be saved as a model."""

    kept = False


@cache
def right_function(place: str) -> Callable[..., Any]:
    """Return the correct function that a bug changes."""
    module, path = place.split(":")
    found: Any = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


@dataclass(frozen=True)
class Source:
    """The source of a function: its file, the number of its first line and its lines.

    `changed` is the index of the buggy line, counted from 0.
    """

    file: str
    first: int
    lines: tuple[str, ...]
    changed: int
    wrong: tuple[str, ...]

    @property
    def diff(self) -> list[str]:
        """Return the difference of the two versions of the file in the format of `diff -u`."""
        right = (ROOT / self.file).read_text(encoding="utf-8").splitlines()
        wrong = [*right[: self.first - 1], *self.wrong, *right[self.first - 1 + len(self.wrong) :]]
        return list(unified_diff(right, wrong, self.file, self.file + COPY_MARK, lineterm=""))


def source_of(mistake: Mistake) -> Source:
    """Return the correct and the buggy source.

    Raises:
        ValueError: when the source does not contain the line exactly once.
    """
    function = right_function(mistake.place)
    lines, first = inspect.getsourcelines(function)
    kept = tuple(line.rstrip("\n") for line in lines)
    places = [at for at, line in enumerate(kept) if line.strip() == mistake.right]
    if len(places) != 1:
        raise ValueError(
            f"the line {mistake.right!r} occurs {len(places)} times in {mistake.place}; "
            "it must occur exactly once"
        )
    changed = places[0]
    wrong = list(kept)
    wrong[changed] = kept[changed].replace(mistake.right, mistake.wrong)
    file = Path(inspect.getsourcefile(function) or "").resolve().relative_to(ROOT).as_posix()
    return Source(file, first, kept, changed, tuple(wrong))


def broken_function(mistake: Mistake) -> FunctionType:
    """Compile the function with the bug.

    It keeps the line numbers of the correct function, so that tracebacks name the correct lines.
    """
    source, right = source_of(mistake), right_function(mistake.place)
    file = source.file + COPY_MARK
    whole = "\n" * (source.first - 1) + textwrap.dedent("\n".join(source.wrong)) + "\n"
    linecache.cache[file] = (len(whole), None, whole.splitlines(keepends=True), file)
    space: dict[str, Any] = {}
    exec(compile(whole, file, "exec"), right.__globals__, space)
    made = space[right.__name__]
    made.__qualname__ = right.__qualname__
    return made


def changed_methods(mistake: Mistake) -> dict[type[nn.Module], dict[str, FunctionType]]:
    """Return the methods to replace in the copy, by class of the model.

    They are the method with the bug, or all methods that call the function with the bug.
    """
    right, broken = right_function(mistake.place), broken_function(mistake)
    name = right.__name__
    if "." in mistake.place.split(":")[1]:
        owner = mistake.place.split(":")[1].split(".")[0]
        return {next(part for part in PARTS if part.__name__ == owner): {name: broken}}
    found: dict[type[nn.Module], dict[str, FunctionType]] = {}
    for part in PARTS:
        for each, method in vars(part).items():
            if (
                isinstance(method, FunctionType)
                and name in method.__code__.co_names
                and method.__globals__.get(name) is right
            ):
                found.setdefault(part, {})[each] = _calling(method, name, broken)
    return found


def _calling(method: FunctionType, name: str, function: FunctionType) -> FunctionType:
    """Return a copy of the method in which `name` refers to another function."""
    made = FunctionType(
        method.__code__,
        method.__globals__ | {name: function},
        method.__name__,
        method.__defaults__,
        method.__closure__,
    )
    made.__kwdefaults__, made.__qualname__ = method.__kwdefaults__, method.__qualname__
    return made


def right_copy(config: ModelConfig) -> Copy:
    """Build the correct model for the comparison."""
    family = Copy(config)
    write_out(family)
    return family


def broken_copy(config: ModelConfig, mistake: Mistake) -> Broken:
    """Build a model with the bug."""
    changed = changed_methods(mistake)
    family: Broken = type("Broken", (Broken,), changed.get(Transformer, {}))(config)
    for module in family.modules():
        methods = changed.get(type(module))
        if methods and module is not family:
            module.__class__ = type(f"Broken{type(module).__name__}", (type(module),), methods)
    write_out(family)
    return family


def write_out(family: Copy) -> None:
    """Make both copies compute attention with `attend` instead of the fused kernels of torch."""
    for module in family.modules():
        if isinstance(module, MultiHeadAttention):
            module.watched = True


@dataclass(frozen=True)
class Trouble:
    """The traceback of a copy that fails: its step, its lines and the location of the error."""

    step: int
    lines: list[str]
    line: int  # the innermost frame in this project
    file: str


def in_python_s_words(error: Exception, step: int) -> Trouble:
    """Format a traceback as Python does, from the model inwards, without local folders."""
    frames = []
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        inside = path.is_absolute() and path.is_relative_to(ROOT / "playground")
        if inside or frame.filename.endswith(COPY_MARK):
            frames.append((path.relative_to(ROOT).as_posix() if inside else frame.filename, frame))
    in_model = [at for at, (file, _) in enumerate(frames) if file.startswith("playground/models/")]
    ours = frames[in_model[0] :] if in_model else frames
    lines = ["Traceback (most recent call last):"]
    for file, frame in ours:
        lines += [f'  File "{file}", line {frame.lineno}, in {frame.name}', f"    {frame.line}"]
    file, last = ours[-1]
    return Trouble(
        step,
        [*lines, *"".join(traceback.format_exception_only(error)).rstrip().split("\n")],
        last.lineno or 0,
        file,
    )


class Learner:
    """One of the two copies during training."""

    def __init__(self, config: RunConfig, mistake: Mistake | None) -> None:
        self.config = config
        self.trouble: Trouble | None = None
        self.losses: list[float] = []
        # step, exact match with teacher forcing, exact match free-running
        self.scored: list[tuple[int, float, float]] = []
        torch.manual_seed(config.training.seed)
        self.family = broken_copy(config.model, mistake) if mistake else right_copy(config.model)
        self.trainer = Trainer(config, family=self.family)

    @property
    def going(self) -> bool:
        return self.trouble is None and self.trainer.should_continue()

    def learn(self, held_out: HeldOut | None = None) -> None:
        """Take one update and evaluate regularly; store an error in `trouble`."""
        try:
            metrics = self.trainer.step()
            self.losses.append(metrics.loss)
            if held_out is not None and (
                metrics.step % LOOK_EVERY == 0 or metrics.step == self.config.training.steps
            ):
                self.scored.append((metrics.step, *exact_match(self.family, held_out)))
        except (RuntimeError, TypeError, AttributeError, ValueError, IndexError) as error:
            self.trouble = in_python_s_words(error, self.trainer.step_count)

    @property
    def curve(self) -> dict[str, Any]:
        return {"loss": [round(loss, 4) for loss in self.losses], "scored": self.scored}

    @property
    def loss(self) -> float | None:
        """Return the mean loss of the last `LAST` steps."""
        return mean(self.losses[-LAST:]) if self.losses else None


@torch.no_grad()
def exact_match(family: Copy, held_out: HeldOut) -> tuple[float, float]:
    """Return the exact match on held-out sequences: teacher-forced and free-running."""
    with looking(family):
        given = all_right(family.logits(held_out.batch), held_out.batch)
        alone = family.solves(held_out.batch)
    return float(given.float().mean()), float(alone.float().mean())


def settings_of(mistake: Mistake, seed: int, steps: int) -> dict[str, Any]:
    """Return the training settings of both copies."""
    return {**SETTINGS, **mistake.settings, "seed": seed, "steps": steps, "decay_steps": steps}


def compare(
    name: str, seed: int, steps: int, tell: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Train the correct and the buggy copy on the same batches and compare them.

    `tell` receives the progress of both. The result contains only values for JSON.
    """
    mistake = MISTAKES[name]
    config = RunConfig.from_fields(settings_of(mistake, seed, steps))
    task = config.task.load()
    held_out = held_out_set(task, SCORED, config.task.min_length, config.task.max_length)
    right, broken = Learner(config, None), Learner(config, mistake)
    while right.going or broken.going:
        for learner in (right, broken):
            if learner.going:
                learner.learn(held_out)
        at = right.trainer.step_count
        if at % (LOOK_EVERY // 2) == 0:
            tell(
                {
                    "done": at,
                    "total": steps,
                    "curves": {"right": right.curve, "broken": broken.curve},
                }
            )
    source = source_of(mistake)
    return {
        "seed": seed,
        "steps": steps,
        "n": len(held_out.lengths_B),
        "vocabulary": config.model.target_vocabulary,
        "curves": {"right": right.curve, "broken": broken.curve},
        "right": seen(right, held_out),
        "broken": seen(broken, held_out),
        "unnoticed": unnoticed(mistake, config) if mistake.unnoticed else None,
        "source": {"file": source.file, "first": source.first, "lines": source.lines},
        "changed": source.changed,
        "diff": source.diff,
    }


@torch.no_grad()
def seen(learner: Learner, held_out: HeldOut) -> dict[str, Any]:
    """Return the metrics, the output and the attention weights of a copy, or its traceback."""
    if learner.trouble is not None:
        trouble = learner.trouble
        return {
            "trouble": {
                "step": trouble.step,
                "lines": trouble.lines,
                "line": trouble.line,
                "file": trouble.file,
            }
        }
    family, task = learner.family.eval(), learner.trainer.task
    given, alone = exact_match(family, held_out)
    tokens = task.vocabulary.encode(SHOWN)[: learner.config.task.max_length]
    batch = make_batch(task, torch.tensor([tokens]), torch.tensor([len(tokens)]))
    record = family.record(batch)
    written, sure = answered(family, batch.source_BS, learner.config.task.max_length + 1)
    said = [
        (token, p) for token, p in zip(written[0].tolist(), sure[0].tolist(), strict=True) if p > 0
    ]
    answers_NT, sure_NT = answered(
        family, held_out.batch.source_BS, learner.config.task.max_length + 1
    )
    names = [
        [task.vocabulary.name(token) for token in each[0].tolist()]
        for each in (batch.source_BS, batch.decoder_input_BT)
    ]
    return {
        "trouble": None,
        "loss": learner.loss,
        "given": given,
        "alone": alone,
        "symbols": float(same_symbols(answers_NT, held_out.batch.labels_BT).float().mean()),
        "sure": float(sure_NT[sure_NT > 0].mean()),
        "answer": [[task.vocabulary.name(token), round(p, 3)] for token, p in said],
        "source": names[0],
        "target": names[1],
        "attention": {
            kind: [
                [[round(w, 3) for w in row] for row in weights_BHQM[0].mean(0).tolist()]
                for weights_BHQM in layers
            ]
            for kind, layers in (
                ("encoder", record.encoder_attention),
                ("decoder", record.decoder_attention),
                ("cross", record.cross_attention),
            )
        },
    }


def answered(family: Copy, source_BS: Tensor, max_tokens: int) -> tuple[Tensor, Tensor]:
    """Generate free-running; return the tokens and their probabilities (BT), 0 after EOS."""
    recording, written_BT = record_free(family, source_BS, max_tokens)
    sure_BT = recording.logits_BTV.softmax(-1).gather(-1, written_BT[..., None])[..., 0]
    write_out(family)  # `record_free` resets the attention modules
    return written_BT, sure_BT * (written_BT != PAD)


def unnoticed(mistake: Mistake, config: RunConfig) -> dict[str, Any]:
    """Train both copies with shapes for which the bug raises no error.

    The result has the loss of both, and whether an output position depends on later tokens.
    """
    # One more step than is taken, to avoid the evaluation at the end.
    fitting = config.replace(**mistake.unnoticed, steps=UNNOTICED_STEPS + 1)
    told: dict[str, Any] = {}
    for which, each in (("right", None), ("broken", mistake)):
        learner = Learner(fitting, each)
        for _ in range(UNNOTICED_STEPS):
            if learner.trouble is None:
                learner.learn()
        told[which] = None if learner.trouble else {"loss": learner.loss, "leaks": leaks(learner)}
    return {"when": mistake.unnoticed_when, "steps": UNNOTICED_STEPS, **told}


@torch.no_grad()
def leaks(learner: Learner) -> bool:
    """Return whether the last decoder input changes the logits of earlier positions."""
    longest, rows = learner.config.task.max_length, learner.config.training.batch_size
    batch = held_out_set(learner.trainer.task, rows, longest, longest).batch
    given_BT = batch.decoder_input_BT.clone()
    given_BT[:, -1] = (given_BT[:, -1] + 1).clamp(max=learner.config.model.target_vocabulary - 1)
    with looking(learner.family):
        before_BTV, after_BTV = (
            learner.family(batch.source_BS, each) for each in (batch.decoder_input_BT, given_BT)
        )
    return not torch.equal(before_BTV[:, :-1], after_BTV[:, :-1])
