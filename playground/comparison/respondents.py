"""The models of the benchmark: the checkpoint, pretrained language models and baselines.

Each predicts an answer for an example and, if it can, scores every candidate with its
log-probability (natural logarithm). Shapes: B batch, C candidates, P tokens of a prompt, T
tokens of an answer, V vocabulary.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from playground.architectures.base import Seq2SeqModel
from playground.models.transformer import Transformer
from playground.tasks import PAD
from playground.tasks.task import Task

from .examples import Example, choices_for, commonest_target, majority_symbol, make_batch
from .metrics import parse_answer
from .process import JobError, ProgressReporter
from .prompts import few_shot_prompt, first_line, masked_prompt, max_fitting_examples

EXTRA_NEW_TOKENS = (
    4  # extra tokens beyond the longest answer, to see if the model would have stopped
)
BATCH_SIZE = 16  # sequences in one forward pass


@dataclass(frozen=True)
class Output:
    """A prediction for one example.

    prompt      the text that was sent
    tokens      the input tokens as the model gets them, one text for each of its `ids`
    raw_output  the generated text, unchanged
    parsed      its symbols; None for a position without a symbol, and None as a whole if the line
                is not a list of symbols
    log_prob    that of the target given the input; None if it was not measured
    """

    prompt: str
    tokens: list[str]
    ids: list[int]
    raw_output: str
    parsed: tuple[str | None, ...] | None
    log_prob: float | None = None


class BenchmarkModel:
    """A model of the benchmark.

    `decoding` names the decoding, `caveat` a caveat about its scores.
    """

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

    def estimate_seconds(
        self, examples: Sequence[Example], ranked: Sequence[Example]
    ) -> tuple[float, str] | None:
        """Measure one forward pass, and return the total seconds and the measurement as text."""
        return None


# Baselines


class CopyBaseline(BenchmarkModel):
    """A baseline that copies the input."""

    name, kind, decoding, can_rank = "copy the input", "baseline", "copies the input", True

    def generate(self, example: Example) -> Output:
        return Output("", [], [], example.prompt, example.source)

    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        return [0.0 if each == example.source else float("-inf") for each in choices]


class MajoritySymbolBaseline(BenchmarkModel):
    """A baseline that repeats the most frequent symbol of the input, as long as the target is."""

    name, kind, decoding = (
        "most frequent symbol",
        "baseline",
        "the input's most frequent symbol, repeated",
    )

    def generate(self, example: Example) -> Output:
        read = (majority_symbol(example.source),) * len(example.answer)
        return Output("", [], [], " ".join(read), read)


class MajorityTargetBaseline(BenchmarkModel):
    """A baseline that always predicts the most frequent target of the examples."""

    name, kind, can_rank = "commonest target", "baseline", True

    def __init__(self, items: Sequence[Example]) -> None:
        self.target = commonest_target(items)
        self.decoding = "always the most frequent target of these sequences"

    def generate(self, example: Example) -> Output:
        return Output("", [], [], " ".join(self.target), self.target)

    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        return [0.0 if each == self.target else float("-inf") for each in choices]


class RandomBaseline:
    """The expected scores of random guessing, calculated.

    Every symbol that occurs in targets is equally likely, and so is every candidate.
    """

    name, kind, decoding = "chance", "baseline", "calculated"

    @staticmethod
    def scores(
        items: Sequence[Example], symbols: int, ranked: Sequence[Example]
    ) -> dict[str, float | None]:
        """Return the scores; `symbols` is the number of different symbols in targets."""
        chances = [1 / len(choices_for(item, items)) for item in ranked]
        return {
            "exact_match": sum(symbols ** -len(item.answer) for item in items) / len(items),
            "token_accuracy": 1 / symbols,
            "rank_accuracy": sum(chances) / len(chances) if chances else None,
        }


# From scratch


class CheckpointModel(BenchmarkModel):
    """A checkpoint of this playground."""

    kind, decoding = "trained on this task", "greedy decoding, token by token"

    def __init__(self, name: str, task: Task, model: Seq2SeqModel) -> None:
        self.name, self.task, self.model = name, task, model.eval()
        self.parameters = sum(each.numel() for each in model.parameters())
        self.weights = sum(each.numel() * each.element_size() for each in model.parameters())
        self.can_rank = isinstance(model, Transformer)

    def generate(self, example: Example) -> Output:
        batch = make_batch(self.task, example.source, [example.answer])
        max_tokens = min(
            self.task.max_target_length(len(example.source)) + 1 + EXTRA_NEW_TOKENS,
            self.model.config.max_positions,
        )
        predicted = self.model.generate(batch.source_BS, max_tokens)[0].tolist()
        ids = batch.source_BS[0].tolist()
        names = [self.task.vocabulary.token_name(token) for token in ids]
        ended = [self.task.vocabulary.token_name(token) for token in predicted if token != PAD]
        symbols = tuple(self.task.vocabulary.decode(predicted))
        parsed = (
            symbols
            if "EOS" in ended and set(symbols) <= set(self.task.vocabulary.symbols)
            else None
        )
        return Output(example.prompt, names, ids, " ".join(ended), parsed)

    @torch.no_grad()
    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        """Score with teacher forcing: each symbol, and EOS, given the candidate's own prefix."""
        batch = make_batch(self.task, example.source, list(choices))
        logits_CTV = self.model(batch.source_BS, batch.decoder_input_BT)
        return _sequence_log_probs(logits_CTV, batch.labels_BT, batch.labels_BT != PAD)


def _sequence_log_probs(logits_BTV: Tensor, labels_BT: Tensor, counts_BT: Tensor) -> list[float]:
    """Return for each sequence the sum of the labels' log-probabilities where they count."""
    chosen_BT = logits_BTV.float().log_softmax(-1).gather(-1, labels_BT[..., None])[..., 0]
    summed: list[float] = torch.where(counts_BT, chosen_BT, 0.0).sum(1).tolist()
    return summed


# Pretrained


class PretrainedModel(BenchmarkModel):
    """The common part: a pipeline, the few-shot examples that fit, and the tokenizer."""

    def __init__(
        self, name: str, kind: str, pipe: Any, symbols: Sequence[str], progress: ProgressReporter
    ) -> None:
        self.name, self.kind, self.pipe, self.symbols, self.progress = (
            name,
            kind,
            pipe,
            tuple(symbols),
            progress,
        )
        self.model, self.tokenizer = pipe.model, pipe.tokenizer
        self.parameters = sum(each.numel() for each in self.model.parameters())
        self.weights = sum(each.numel() * each.element_size() for each in self.model.parameters())

    @property
    def positions(self) -> int:
        """Return how many tokens the model can attend to at once."""
        limits = [
            getattr(self.model.config, "max_position_embeddings", None),
            getattr(self.tokenizer, "model_max_length", None),
        ]
        return min([each for each in limits if isinstance(each, int) and each > 0], default=512)

    def fit_few_shot(self, examples: Sequence[Example], n_requested: int, tokens_with: Any) -> None:
        """Take as many examples as there are positions for, and note if they are fewer."""
        n_requested = min(n_requested, len(examples))
        max_examples = max_fitting_examples(n_requested, self.positions, tokens_with)
        if max_examples is None:
            raise JobError(
                f"{self.name} has {self.positions:,} positions and the longest input takes "
                f"{tokens_with(0):,} tokens; choose a checkpoint of shorter sequences, or a "
                "model with more positions"
            )
        self.examples = tuple(examples[:max_examples])
        if max_examples < n_requested:
            self.caveat = (
                f"{max_examples} few-shot examples instead of {n_requested}: more do not fit into "
                "its "
                f"{self.positions:,} positions"
            )

    def token_ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token."""
        return [self.tokenizer.decode([token], clean_up_tokenization_spaces=False) for token in ids]

    def add_caveat(self, caveat: str) -> None:
        self.caveat = f"{self.caveat}; {caveat}" if self.caveat else caveat

    def tensor(self, rows: list[list[int]]) -> Tensor:
        return torch.tensor(rows, device=self.model.device)


class CausalLM(PretrainedModel):
    """A causal language model: greedy generation after the prompt, to the end of the line."""

    can_rank = True

    def __init__(
        self,
        name: str,
        kind: str,
        pipe: Any,
        symbols: Sequence[str],
        progress: ProgressReporter,
        items: Sequence[Example],
        examples: Sequence[Example],
        n_requested: int,
    ) -> None:
        super().__init__(name, kind, pipe, symbols, progress)
        max_example = max(
            items, key=lambda item: len(self.token_ids(f"{item.prompt} {item.target}"))
        )
        self.max_new_tokens = (
            max(
                len(self.tokenizer.encode(f" {item.target}", add_special_tokens=False))
                for item in items
            )
            + EXTRA_NEW_TOKENS
        )
        self.fit_few_shot(
            examples,
            n_requested,
            lambda k: (
                len(self.token_ids(few_shot_prompt(max_example, examples[:k])))
                + self.max_new_tokens
            ),
        )
        self.decoding = (
            f"greedy generation after {len(self.examples)} few-shot examples, up to the end of "
            "the line"
        )
        together = self.tokenizer.encode(" " + " ".join(symbols), add_special_tokens=False)
        if len(together) != len(symbols):
            self.add_caveat(
                f"its tokenizer splits the {len(symbols)} symbols into {len(together)} tokens"
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
            stopping_criteria=self._stopping_criteria(len(self.token_ids(prompt))),
        )[0]["generated_text"]
        ids = self.token_ids(prompt)
        return Output(
            prompt,
            self.token_strings(ids),
            ids,
            generated_text,
            parse_answer(first_line(generated_text), self.symbols),
        )

    def _stopping_criteria(self, prompt_tokens: int) -> Any:
        """Stop at the end of the line, and at once if the job is cancelled."""
        from transformers import StoppingCriteria, StoppingCriteriaList

        tokenizer, progress = self.tokenizer, self.progress

        class StopAtNewline(StoppingCriteria):
            def __call__(self, input_ids: Tensor, scores: Tensor, **unused: Any) -> Tensor:
                progress.raise_if_cancelled()
                ended = ["\n" in tokenizer.decode(row[prompt_tokens:]) for row in input_ids]
                return torch.tensor(ended, device=input_ids.device)

        return StoppingCriteriaList([StopAtNewline()])

    def _continuations(self, prompt: str, candidates: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Return the tokens of each candidate after the prompt."""
        ids = self.token_ids(prompt)
        tails = []
        for each in candidates:
            whole = self.token_ids(f"{prompt} {' '.join(each)}")
            plain = whole[: len(ids)] == ids and len(whole) > len(ids)
            tails.append(
                whole[len(ids) :]
                if plain
                else self.tokenizer.encode(f" {' '.join(each)}", add_special_tokens=False)
            )
        return tails

    @torch.no_grad()
    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        """Score each candidate by the sum of its tokens' log-probabilities.

        The prompt is encoded once; each candidate continues from its cached keys and values.
        """
        prompt = few_shot_prompt(example, self.examples)
        prompt_1P = self.tensor([self.token_ids(prompt)])
        tails = self._continuations(prompt, choices)
        read = self.model(prompt_1P, use_cache=True)
        scores: list[float] = []
        for start in range(0, len(tails), BATCH_SIZE):
            self.progress.raise_if_cancelled()
            part = tails[start : start + BATCH_SIZE]
            widest = max(map(len, part))
            tails_CT = self.tensor([tail + [0] * (widest - len(tail)) for tail in part])
            counts_CT = self.tensor(
                [[1] * len(tail) + [0] * (widest - len(tail)) for tail in part]
            ).bool()
            first_CV = read.logits[:, -1].expand(len(part), -1)
            past = copy.deepcopy(read.past_key_values)  # the forward pass extends it in place
            past.batch_repeat_interleave(len(part))
            rest_CTV = (
                self.model(tails_CT[:, :-1], past_key_values=past, use_cache=True).logits
                if widest > 1
                else None
            )
            logits_CTV = (
                first_CV[:, None]
                if rest_CTV is None
                else torch.cat((first_CV[:, None], rest_CTV), 1)
            )
            scores += _sequence_log_probs(logits_CTV, tails_CT, counts_CT)
        return scores

    @torch.no_grad()
    def estimate_seconds(
        self, examples: Sequence[Example], ranked: Sequence[Example]
    ) -> tuple[float, str] | None:
        ids_1P = self.tensor([self.token_ids(few_shot_prompt(examples[0], self.examples))])
        self.progress.raise_if_cancelled()
        started = time.perf_counter()
        read = self.model(ids_1P, use_cache=True)
        forward = time.perf_counter() - started
        started = time.perf_counter()
        self.model(ids_1P[:, -1:], past_key_values=read.past_key_values, use_cache=True)
        step = time.perf_counter() - started
        a_token = forward / ids_1P.shape[1]
        chosen = sum(
            forward
            + a_token * sum(map(len, (each.symbols for each in choices_for(item, examples))))
            for item in ranked
        )
        return len(examples) * (
            forward + self.max_new_tokens * step
        ) + chosen, f"one forward pass of {ids_1P.shape[1]} tokens took {forward:.2f} s"


class MaskedLM(PretrainedModel):
    """A masked language model: predicts masked positions of the answer, whose length is given.

    `fills_jointly` masks all of them. Otherwise one position at a time is masked and the others
    show the target, which leaks: from the other symbols alone one can infer the missing one if the
    target is a permutation of the input.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        pipe: Any,
        symbols: Sequence[str],
        progress: ProgressReporter,
        items: Sequence[Example],
        examples: Sequence[Example],
        n_requested: int,
        fills_jointly: bool,
    ) -> None:
        super().__init__(name, kind, pipe, symbols, progress)
        self.fills_jointly = self.can_rank = fills_jointly
        self.mask = self.tokenizer.mask_token
        if not self.mask:
            raise JobError(
                f"{name} has no mask token, so it cannot predict masked positions; choose a "
                "masked language model"
            )
        self.token_by_symbol = {symbol: self._token_id(symbol) for symbol in symbols}
        max_example = max(items, key=lambda item: len(item.source) + len(item.answer))
        self.fit_few_shot(
            examples,
            n_requested,
            lambda k: len(self.token_ids(masked_prompt(max_example, examples[:k], self.mask))),
        )
        masking = (
            "all positions masked at once"
            if fills_jointly
            else "one position masked at a time, the others show the target (this leaks)"
        )
        self.decoding = f"fill-mask after {len(self.examples)} few-shot examples, {masking}"
        same = [
            symbol
            for symbol, token in self.token_by_symbol.items()
            if list(self.token_by_symbol.values()).index(token) != symbols.index(symbol)
        ]
        if same:
            self.add_caveat(
                f"its tokenizer maps {' '.join(same)} to the same token as another symbol"
            )

    def _token_id(self, symbol: str) -> int:
        """Return the token id of a symbol, with a leading space if the vocabulary has that."""
        for text in (f" {symbol}", symbol):
            ids = self.tokenizer.encode(text, add_special_tokens=False)
            if len(ids) == 1 and ids[0] != self.tokenizer.unk_token_id:
                return int(ids[0])
        raise JobError(
            f"{self.name} has no single token for {symbol!r}, so it cannot predict it at one "
            "masked position; compare on a task of digits"
        )

    def _predict_masks(self, text: str) -> tuple[list[str], Tensor, list[int]]:
        """Predict the masks of a text.

        Returns the likeliest token of each mask, the log-probabilities there (masks, V), and
        the tokens of the text.
        """
        self.progress.raise_if_cancelled()
        inputs = self.pipe.preprocess(text)
        ids = inputs["input_ids"][0].tolist()
        outputs = self.pipe.forward(inputs)
        gaps = [place for place, token in enumerate(ids) if token == self.tokenizer.mask_token_id]
        filled = self.pipe.postprocess(outputs, top_k=1)
        best = [each[0] for each in filled] if isinstance(filled[0], list) else filled
        return (
            [each["token_str"].strip() for each in best],
            outputs["logits"][0, gaps].float().log_softmax(-1),
            ids,
        )

    @torch.no_grad()
    def generate(self, example: Example) -> Output:
        places = range(len(example.answer))
        hidden = [set(places)] if self.fills_jointly else [{place} for place in places]
        right = torch.tensor([self.token_by_symbol[symbol] for symbol in example.answer])
        written: list[str] = []
        summed, first = 0.0, None
        for each in hidden:
            text = masked_prompt(example, self.examples, self.mask, each)
            best, log_GV, ids = self._predict_masks(text)
            first = first or (text, ids)
            written += best
            summed += float(log_GV.cpu().gather(1, right[sorted(each)][:, None]).sum())
        assert first is not None  # an answer has at least one symbol
        parsed = tuple(each if each in self.symbols else None for each in written)
        return Output(
            first[0], self.token_strings(first[1]), first[1], " ".join(written), parsed, summed
        )

    @torch.no_grad()
    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        """Score by pseudo-log-likelihood (Salazar et al. 2020).

        Each symbol of a candidate is predicted from all its other symbols; the results are summed.
        """
        ids = self.token_ids(masked_prompt(example, self.examples, self.mask))
        slots = [place for place, token in enumerate(ids) if token == self.tokenizer.mask_token_id]
        rows, labels, owners = [], [], []
        for number, candidate in enumerate(choices):
            visible_ids = list(ids)
            for slot, symbol in zip(slots, candidate, strict=True):
                visible_ids[slot] = self.token_by_symbol[symbol]
            for slot in slots:
                rows.append([*visible_ids[:slot], ids[slot], *visible_ids[slot + 1 :]])
                labels.append((slot, visible_ids[slot]))
                owners.append(number)
        scores = [0.0] * len(choices)
        for start in range(0, len(rows), BATCH_SIZE):
            self.progress.raise_if_cancelled()
            part = slice(start, start + BATCH_SIZE)
            logits_BPV = self.model(self.tensor(rows[part])).logits
            for row, (slot, token) in enumerate(labels[part]):
                scores[owners[start + row]] += float(
                    logits_BPV[row, slot].float().log_softmax(-1)[token]
                )
        return scores

    @torch.no_grad()
    def estimate_seconds(
        self, examples: Sequence[Example], ranked: Sequence[Example]
    ) -> tuple[float, str] | None:
        ids_1P = self.tensor([self.token_ids(masked_prompt(examples[0], self.examples, self.mask))])
        self.progress.raise_if_cancelled()
        started = time.perf_counter()
        self.model(ids_1P)
        forward = time.perf_counter() - started
        passes = sum(1 if self.fills_jointly else len(item.answer) for item in examples)
        passes += (
            sum(len(item.answer) * len(choices_for(item, examples)) for item in ranked)
            if self.can_rank
            else 0
        )
        return (
            passes * forward,
            (
                f"one forward pass of {ids_1P.shape[1]} tokens took {forward:.2f} s, and "
                f"{passes:,} are needed"
            ),
        )


def elimination_baseline(example: Example) -> tuple[str | None, ...]:
    """Predict each symbol from the others alone, given that the target permutes the input.

    The result at a position is the one symbol of the input that is left over, or None if there
    are several.
    """
    filled: list[str | None] = []
    for place in range(len(example.answer)):
        left = list(example.source)
        for other, symbol in enumerate(example.answer):
            if other != place and symbol in left:
                left.remove(symbol)
        filled.append(left[0] if len(left) == 1 else None)
    return tuple(filled)
