"""Inject a bug into a copy of the model: the real source with one line changed.

The real modules stay unchanged: functions are recompiled from their source, and the modules of the
copy get their own subclasses. Shapes: B batch.
"""

import inspect
import linecache
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from difflib import unified_diff
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from playground.architectures.encoder_decoder import TransformerModel
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.inspection.hooks import compute_weights
from playground.inspection.source_lines import find_source_line
from playground.models.attention import MultiHeadAttention
from playground.models.config import TransformerConfig
from playground.models.embeddings import InputEmbedding
from playground.models.feed_forward import FeedForward
from playground.models.layers import Layer, ResidualNorm
from playground.models.transformer import Transformer
from playground.tasks.task import Batch

from .bugs import Bug
from .trained_run import same

ROOT = Path(__file__).resolve().parents[2]
PATCHABLE_MODULES: tuple[type[nn.Module], ...] = (
    Transformer,
    InputEmbedding,
    Layer,
    ResidualNorm,
    FeedForward,
    MultiHeadAttention,
)
BUGGY_SUFFIX = " (buggy model)"  # the suffix of a file name


class ReferenceModel(TransformerModel):
    """The transformer of a lesson, whose exact match is free-running.

    The faster teacher-forced check is valid only for decoders that cannot see later positions.
    """

    @torch.no_grad()
    def is_exact_match(self, batch: Batch) -> Tensor:
        return same(self.generate(batch.source_BS, batch.labels_BT.shape[1]), batch.labels_BT)

    exact_match_and_loss = Seq2SeqModel.exact_match_and_loss


class BuggyModel(ReferenceModel):
    """A copy with a bug, which cannot be saved as a model."""

    saveable = False


@cache
def original_function(location: str) -> Callable[..., Any]:
    """Return the correct function that a bug changes."""
    module, path = location.split(":")
    target: Any = import_module(module)
    for name in path.split("."):
        target = getattr(target, name)
    return target


@dataclass(frozen=True)
class BugSource:
    """The source of a function; `changed_line` is the index of the buggy line, from 0."""

    file: str
    first_line: int
    lines: tuple[str, ...]
    changed_line: int
    buggy_lines: tuple[str, ...]

    @property
    def diff(self) -> list[str]:
        """Return what repairs the buggy file, in the format of `diff -u`."""
        correct = (ROOT / self.file).read_text(encoding="utf-8").splitlines()
        buggy = [
            *correct[: self.first_line - 1],
            *self.buggy_lines,
            *correct[self.first_line - 1 + len(self.buggy_lines) :],
        ]
        return list(unified_diff(buggy, correct, self.file + BUGGY_SUFFIX, self.file, lineterm=""))


def load_source(bug: Bug) -> BugSource:
    """Return the correct and the buggy source. Raises LookupError for a line that is not unique."""
    function = original_function(bug.location)
    correct = find_source_line(function, bug.correct_line)
    lines, first = inspect.getsourcelines(function)
    source_lines = tuple(line.rstrip("\n") for line in lines)
    changed, buggy_lines = correct.line - first, list(source_lines)
    buggy_lines[changed] = source_lines[changed].replace(bug.correct_line, bug.buggy_line)
    return BugSource(correct.file, first, source_lines, changed, tuple(buggy_lines))


def buggy_function(bug: Bug) -> FunctionType:
    """Compile the function with the bug, with the line numbers of the correct one."""
    source, original = load_source(bug), original_function(bug.location)
    file = source.file + BUGGY_SUFFIX
    source_text = (
        "\n" * (source.first_line - 1) + textwrap.dedent("\n".join(source.buggy_lines)) + "\n"
    )
    linecache.cache[file] = (len(source_text), None, source_text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {}
    exec(compile(source_text, file, "exec"), original.__globals__, namespace)
    function = namespace[original.__name__]
    function.__qualname__ = original.__qualname__
    return function


def patched_methods(bug: Bug) -> dict[type[nn.Module], dict[str, FunctionType]]:
    """Return the methods with the bug, or those that call the function with it, by class."""
    original, buggy = original_function(bug.location), buggy_function(bug)
    name = original.__name__
    if "." in bug.location.split(":")[1]:
        class_name = bug.location.split(":")[1].split(".")[0]
        return {
            next(each for each in PATCHABLE_MODULES if each.__name__ == class_name): {name: buggy}
        }
    methods: dict[type[nn.Module], dict[str, FunctionType]] = {}
    for module_class in PATCHABLE_MODULES:
        for each, method in vars(module_class).items():
            if (
                isinstance(method, FunctionType)
                and name in method.__code__.co_names
                and method.__globals__.get(name) is original
            ):
                methods.setdefault(module_class, {})[each] = _rebind(method, name, buggy)
    return methods


def _rebind(method: FunctionType, name: str, function: FunctionType) -> FunctionType:
    """Return a copy of the method in which `name` refers to another function."""
    rebound = FunctionType(
        method.__code__,
        method.__globals__ | {name: function},
        method.__name__,
        method.__defaults__,
        method.__closure__,
    )
    rebound.__kwdefaults__, rebound.__qualname__ = method.__kwdefaults__, method.__qualname__
    return rebound


def reference_model(config: TransformerConfig) -> ReferenceModel:
    """Build the correct model for the comparison."""
    model = ReferenceModel(config)
    disable_fused_attention(model)
    return model


def buggy_model(config: TransformerConfig, bug: Bug) -> BuggyModel:
    """Build a model with the bug."""
    changed = patched_methods(bug)
    model: BuggyModel = type("Buggy", (BuggyModel,), changed.get(Transformer, {}))(config)
    for module in model.modules():
        methods = changed.get(type(module))
        if methods and module is not model:
            module.__class__ = type(f"Buggy{type(module).__name__}", (type(module),), methods)
    disable_fused_attention(model)
    return model


def disable_fused_attention(model: ReferenceModel) -> None:
    """Make attention compute its weights, which PyTorch's fused kernels do not."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            compute_weights(module)
