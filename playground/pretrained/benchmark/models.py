"""The models of the benchmark: baselines, the checkpoint and pretrained language models.

Each predicts an answer for an example.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from playground.architectures.parallel import ParallelModel
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.tasks import EOS, PAD
from playground.tasks.task import Task

from ..prompts import Example
from ..tokens import max_input_tokens

# Tokens beyond the longest answer, which show whether the model would have stopped.
EXTRA_NEW_TOKENS = 4


@dataclass(frozen=True)
class Output:
    """A prediction for one example.

    prompt      the text that was sent
    raw_output  the generated text, unchanged
    parsed      its tokens; None for a position without one, and None as a whole if the line
                is not a list of symbols
    """

    prompt: str
    raw_output: str
    parsed: tuple[str | None, ...] | None


class BenchmarkModel:
    """A model of the benchmark, with its decoding and a caveat about its scores."""

    name: str
    kind: str
    decoding: str = ""
    caveat: str = ""
    examples: tuple[Example, ...] = ()
    parameters: int | None = None

    def generate(self, example: Example) -> Output:
        raise NotImplementedError


class CopyBaseline(BenchmarkModel):
    """A baseline that copies the input."""

    name, kind, decoding = "copy the input", "baseline", "copies the input"

    def generate(self, example: Example) -> Output:
        return Output("", example.source_text, example.source)


class MajorityTokenBaseline(BenchmarkModel):
    """A baseline that repeats the most frequent token of the input, as long as the target is."""

    name = "most frequent token"
    kind = "baseline"
    decoding = "the input's most frequent token, repeated to the length of the target"

    def generate(self, example: Example) -> Output:
        token, _ = Counter(example.source).most_common(1)[0]
        tokens = (token,) * len(example.target)
        return Output("", " ".join(tokens), tokens)


class MajorityTargetBaseline(BenchmarkModel):
    """A baseline that always predicts the most frequent target of training sequences."""

    name, kind = "most frequent target", "baseline"
    decoding = "always the most frequent target of training sequences"

    def __init__(self, target: tuple[str, ...]) -> None:
        self.target = target

    def generate(self, example: Example) -> Output:
        return Output("", " ".join(self.target), self.target)


class RandomBaseline(BenchmarkModel):
    """The expected scores of random guessing, calculated.

    The length of each target is known. Every symbol that occurs in targets is equally likely.
    """

    name, kind, decoding = "chance", "baseline", "calculated, for a known length of each target"

    @staticmethod
    def scores(items: Sequence[Example], symbols: int, has_eos: bool) -> dict[str, float]:
        """Return the scores; `symbols` is the number of different symbols in targets."""
        n_symbols, n_ends = sum(len(item.target) for item in items), has_eos * len(items)
        return {
            "exact_match": sum(symbols ** -len(item.target) for item in items) / len(items),
            "token_accuracy": (n_symbols / symbols + n_ends) / (n_symbols + n_ends),
        }


class CheckpointModel(BenchmarkModel):
    """A checkpoint of this playground."""

    kind = "trained on this task"

    def __init__(self, name: str, task: Task, model: Seq2SeqModel) -> None:
        self.name, self.task, self.model = name, task, model.eval()
        self.parameters = sum(each.numel() for each in model.parameters())
        if not task.predict_eos:
            self.caveat = (
                "its task has no EOS, so it gets the length of each target, unlike models that "
                "generate text"
            )
        self.decoding = (
            "all positions predicted in parallel"
            if isinstance(model, ParallelModel)
            else "greedy decoding, token by token"
        )

    def generate(self, example: Example) -> Output:
        ids = [*self.task.vocabulary.encode(example.source_text), EOS]
        max_tokens = min(
            self.task.max_target_length(len(example.source)) + 1 + EXTRA_NEW_TOKENS,
            self.model.config.max_positions,
        )
        if not self.task.predict_eos:  # the output has the length of the target
            max_tokens = len(example.target)
        predicted = self.model.generate(torch.tensor([ids]), max_tokens)[0].tolist()
        written = [self.task.vocabulary.token_name(token) for token in predicted if token != PAD]
        end = predicted.index(EOS) if EOS in predicted else len(predicted)
        parsed = tuple(
            self.task.vocabulary.token_name(token) if token > EOS else None
            for token in predicted[:end]
        )
        return Output(example.source_text, " ".join(written), parsed)


class PretrainedModel(BenchmarkModel):
    """The common part: a pipeline, the few-shot examples that fit, and the tokenizer."""

    def __init__(
        self,
        name: str,
        kind: str,
        pipe: Any,
        symbols: Sequence[str],
        progress: ProgressReporter,
        items: Sequence[Example],
        few_shot_examples: Sequence[Example],
        n_requested: int,
    ) -> None:
        self.name, self.kind, self.pipe = name, kind, pipe
        self.symbols, self.progress, self.items = tuple(symbols), progress, items
        self._few_shot_examples, self._n_requested = few_shot_examples, n_requested
        self.model, self.tokenizer = pipe.model, pipe.tokenizer
        self.parameters = sum(each.numel() for each in self.model.parameters())

    def fit_few_shot(self, count_tokens: Callable[[Sequence[Example]], int]) -> None:
        """Take as many examples as there are positions for, and note if they are fewer.

        `count_tokens` returns the length of the longest input with these examples.
        """
        candidates = self._few_shot_examples
        n_requested = min(self._n_requested, len(candidates))
        positions = max_input_tokens(self.model.config, self.tokenizer)
        numbers = range(n_requested + 1)  # more examples never take fewer tokens
        n_fitting = bisect_right(numbers, positions, key=lambda n: count_tokens(candidates[:n]))
        if not n_fitting:
            raise UserError(
                f"{self.name} has {positions:,} positions and the longest input takes "
                f"{count_tokens([]):,} tokens; choose a checkpoint of shorter sequences, or a "
                "model with more positions"
            )
        self.examples = tuple(candidates[: n_fitting - 1])
        if len(self.examples) < n_requested:
            self.caveat = (
                f"{len(self.examples)} few-shot examples instead of {n_requested}: more do not fit "
                f"into its {positions:,} positions"
            )

    def token_ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    def add_caveat(self, caveat: str) -> None:
        self.caveat = f"{self.caveat}; {caveat}" if self.caveat else caveat
