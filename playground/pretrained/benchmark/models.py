"""The models of the benchmark: baselines, the checkpoint and pretrained language models.

Each predicts an answer for an example and, if it can, scores every candidate with its
log-probability (natural logarithm). Shapes: B batch, C candidates, P tokens of a prompt, T
tokens of an answer, V vocabulary.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from playground.architectures.parallel import ParallelModel
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.models.transformer import Transformer
from playground.tasks import EOS, PAD
from playground.tasks.task import Batch, Task, batch_of_targets

from ..prompts import Example
from ..tokens import max_input_tokens
from .examples import choices_for

# Tokens beyond the longest answer, which show whether the model would have stopped.
EXTRA_NEW_TOKENS = 4
BATCH_SIZE = 16  # sequences in one forward pass


@dataclass(frozen=True)
class Output:
    """A prediction for one example.

    prompt      the text that was sent
    tokens      the input tokens as the model gets them, one text for each of its `ids`
    raw_output  the generated text, unchanged
    parsed      its tokens; None for a position without one, and None as a whole if the line
                is not a list of symbols
    """

    prompt: str
    tokens: list[str]
    ids: list[int]
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
    weights: int | None = None  # bytes
    can_rank = False  # whether it can score candidates

    def generate(self, example: Example) -> Output:
        raise NotImplementedError

    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        """Return the log-probability of each candidate."""
        raise NotImplementedError


class CopyBaseline(BenchmarkModel):
    """A baseline that copies the input."""

    name, kind, decoding, can_rank = "copy the input", "baseline", "copies the input", True

    def generate(self, example: Example) -> Output:
        return Output("", [], [], example.source_text, example.source)

    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        return [0.0 if each == example.source else float("-inf") for each in choices]


class MajorityTokenBaseline(BenchmarkModel):
    """A baseline that repeats the most frequent token of the input, as long as the target is."""

    name = "most frequent token"
    kind = "baseline"
    decoding = "the input's most frequent token, repeated to the length of the target"

    def generate(self, example: Example) -> Output:
        token, _ = Counter(example.source).most_common(1)[0]
        tokens = (token,) * len(example.target)
        return Output("", [], [], " ".join(tokens), tokens)


class MajorityTargetBaseline(BenchmarkModel):
    """A baseline that always predicts the most frequent target of training sequences."""

    name, kind, can_rank = "most frequent target", "baseline", True
    decoding = "always the most frequent target of training sequences"

    def __init__(self, target: tuple[str, ...]) -> None:
        self.target = target

    def generate(self, example: Example) -> Output:
        return Output("", [], [], " ".join(self.target), self.target)

    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        return [0.0 if each == self.target else float("-inf") for each in choices]


class RandomBaseline(BenchmarkModel):
    """The expected scores of random guessing, calculated.

    The length of each target is known. Every symbol that occurs in targets is equally likely, and
    so is every candidate.
    """

    name, kind, decoding = "chance", "baseline", "calculated, for a known length of each target"

    @staticmethod
    def scores(
        items: Sequence[Example], symbols: int, ranked: Sequence[Example], has_eos: bool
    ) -> dict[str, float | None]:
        """Return the scores; `symbols` is the number of different symbols in targets."""
        n_symbols, n_ends = sum(len(item.target) for item in items), has_eos * len(items)
        chances = [1 / len(choices_for(item, items)) for item in ranked]
        return {
            "exact_match": sum(symbols ** -len(item.target) for item in items) / len(items),
            "token_accuracy": (n_symbols / symbols + n_ends) / (n_symbols + n_ends),
            "rank_accuracy": sum(chances) / len(chances) if chances else None,
        }


class CheckpointModel(BenchmarkModel):
    """A checkpoint of this playground."""

    kind = "trained on this task"

    def __init__(self, name: str, task: Task, model: Seq2SeqModel) -> None:
        self.name, self.task, self.model = name, task, model.eval()
        self.parameters = sum(each.numel() for each in model.parameters())
        self.weights = sum(each.numel() * each.element_size() for each in model.parameters())
        self.can_rank = isinstance(model, Transformer)
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
        batch = self._batch(example, [example.target])
        max_tokens = min(
            self.task.max_target_length(len(example.source)) + 1 + EXTRA_NEW_TOKENS,
            self.model.config.max_positions,
        )
        if not self.task.predict_eos:  # the output has the length of the target
            max_tokens = len(example.target)
        predicted = self.model.generate(batch.source_BS, max_tokens)[0].tolist()
        ids = batch.source_BS[0].tolist()
        names = [self.task.vocabulary.token_name(token) for token in ids]
        written = [self.task.vocabulary.token_name(token) for token in predicted if token != PAD]
        end = predicted.index(EOS) if EOS in predicted else len(predicted)
        parsed = tuple(
            self.task.vocabulary.token_name(token) if token > EOS else None
            for token in predicted[:end]
        )
        return Output(example.source_text, names, ids, " ".join(written), parsed)

    @torch.no_grad()
    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        """Score with teacher forcing: each token given the candidate's own prefix, and its EOS."""
        batch = self._batch(example, choices)
        logits_CTV = self.model(batch.source_BS, batch.decoder_input_BT)
        return sequence_log_probs(logits_CTV, batch.labels_BT, batch.labels_BT != PAD)

    def _batch(self, example: Example, targets: Sequence[tuple[str, ...]]) -> Batch:
        source, *target_ids = (
            self.task.vocabulary.encode(" ".join(each)) for each in (example.source, *targets)
        )
        return batch_of_targets(self.task, source, target_ids)


def sequence_log_probs(logits_BTV: Tensor, labels_BT: Tensor, is_scored_BT: Tensor) -> list[float]:
    """Return the sum of the labels' log-probabilities of each sequence, where they are scored."""
    chosen_BT = logits_BTV.float().log_softmax(-1).gather(-1, labels_BT[..., None])[..., 0]
    summed: list[float] = torch.where(is_scored_BT, chosen_BT, 0.0).sum(1).tolist()
    return summed


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
        self.weights = sum(each.numel() * each.element_size() for each in self.model.parameters())

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

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        return [self.tokenizer.decode([token], clean_up_tokenization_spaces=False) for token in ids]

    def add_caveat(self, caveat: str) -> None:
        self.caveat = f"{self.caveat}; {caveat}" if self.caveat else caveat

    def tensor(self, rows: list[list[int]]) -> Tensor:
        return torch.tensor(rows, device=self.model.device)
