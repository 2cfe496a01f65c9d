"""The models of the benchmark: baselines, the checkpoint, causal and masked language models.

Each predicts an answer for an example.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteria

from playground.architectures.parallel import ParallelModel
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.common import messages
from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.tasks import EOS, PAD
from playground.tasks.task import Task

from ..prompts import Example, few_shot_prompt, masked_prompt
from ..tokens import max_input_tokens
from .metrics import parse_answer

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


class StopAtNewline(StoppingCriteria):
    """Stop at the end of the line, and at once if the job is cancelled."""

    def __init__(self, model: PretrainedModel, prompt_tokens: int) -> None:
        self.model, self.prompt_tokens = model, prompt_tokens

    def __call__(self, input_ids: Tensor, scores: Tensor, **unused: Any) -> Tensor:
        self.model.progress.raise_if_cancelled()
        texts = [self.model.tokenizer.decode(row[self.prompt_tokens :]) for row in input_ids]
        return torch.tensor(["\n" in text for text in texts], device=input_ids.device)


class PretrainedCausalLM(PretrainedModel):
    """A causal language model: greedy generation after the prompt, to the end of the line."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        max_example = max(
            self.items,
            key=lambda item: len(self.token_ids(f"{item.source_text} {item.target_text}")),
        )
        self.max_new_tokens = EXTRA_NEW_TOKENS + max(
            len(self.tokenizer.encode(f" {item.target_text}", add_special_tokens=False))
            for item in self.items
        )
        self.fit_few_shot(
            lambda shots: (
                len(self.token_ids(few_shot_prompt(max_example, shots))) + self.max_new_tokens
            )
        )
        self.decoding = (
            f"greedy generation after {len(self.examples)} few-shot examples, up to the end of "
            "the line"
        )
        if self.tokenizer.chat_template:
            self.add_caveat("it was trained on chats, and these prompts are plain text")
        together = self.tokenizer.encode(" " + " ".join(self.symbols), add_special_tokens=False)
        if len(together) != len(self.symbols):
            self.add_caveat(
                f"its tokenizer splits the {len(self.symbols)} symbols into {len(together)} tokens"
            )

    def generate(self, example: Example) -> Output:
        prompt = few_shot_prompt(example, self.examples)
        generated_text = self.pipe(
            prompt,
            max_new_tokens=self.max_new_tokens,
            do_sample=False,
            return_full_text=False,
            clean_up_tokenization_spaces=False,
            pad_token_id=self.tokenizer.eos_token_id,
            stopping_criteria=[StopAtNewline(self, len(self.token_ids(prompt)))],
        )[0]["generated_text"]
        parsed = parse_answer(generated_text, self.symbols)
        return Output(prompt, generated_text, parsed)


def find_symbol_tokens(tokenizer: Any, symbols: Sequence[str], name: str) -> dict[str, int]:
    """Return the token id of each symbol, with a leading space if the vocabulary has that.

    Raises UserError if the tokenizer of the model `name` has no mask, or no token for a symbol.
    """
    if not tokenizer.mask_token:
        raise UserError(messages.missing_mask_token(name))
    token_ids: dict[str, int] = {}
    for symbol in symbols:
        encoded = (
            tokenizer.encode(text, add_special_tokens=False) for text in (f" {symbol}", symbol)
        )
        ids = [ids[0] for ids in encoded if len(ids) == 1 and ids[0] != tokenizer.unk_token_id]
        if not ids:
            raise UserError(
                f"{name} has no single token for {symbol!r}, so it cannot predict it at one "
                "masked position; compare on a task of digits"
            )
        token_ids[symbol] = int(ids[0])
    return token_ids


class PretrainedMaskedLM(PretrainedModel):
    """A masked language model: predicts the target, whose length is known, at masked positions."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.mask = self.tokenizer.mask_token
        self.token_id_by_symbol = find_symbol_tokens(self.tokenizer, self.symbols, self.name)
        max_example = max(self.items, key=lambda item: len(item.source) + len(item.target))
        self.fit_few_shot(
            lambda shots: len(self.token_ids(masked_prompt(max_example, shots, self.mask)))
        )
        self.decoding = (
            f"fill-mask after {len(self.examples)} few-shot examples, all positions masked at once"
        )
        ambiguous = [
            symbol
            for symbol, token in self.token_id_by_symbol.items()
            if list(self.token_id_by_symbol.values()).index(token) != self.symbols.index(symbol)
        ]
        if ambiguous:
            self.add_caveat(
                f"its tokenizer maps {' '.join(ambiguous)} to the same token as another symbol"
            )

    @torch.no_grad()
    def generate(self, example: Example) -> Output:
        self.progress.raise_if_cancelled()
        text = masked_prompt(example, self.examples, self.mask)
        inputs = self.pipe.preprocess(text)
        filled = self.pipe.postprocess(self.pipe.forward(inputs), top_k=1)
        best = [each[0] for each in filled] if isinstance(filled[0], list) else filled
        predicted = [each["token_str"].strip() for each in best]
        parsed = tuple(each if each in self.symbols else None for each in predicted)
        return Output(text, " ".join(predicted), parsed)
