"""The models of the benchmark: the checkpoint and pretrained language models.

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

from .examples import Example, choices_for, make_batch
from .metrics import parse_answer
from .process import JobError, ProgressReporter
from .prompts import few_shot_prompt, first_line, masked_prompt, max_fitting_examples

# Tokens beyond the longest answer, which show whether the model would have stopped.
EXTRA_NEW_TOKENS = 4
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


def _sequence_log_probs(logits_BTV: Tensor, labels_BT: Tensor, is_scored_BT: Tensor) -> list[float]:
    """Return the sum of the labels' log-probabilities of each sequence, where they are scored."""
    chosen_BT = logits_BTV.float().log_softmax(-1).gather(-1, labels_BT[..., None])[..., 0]
    summed: list[float] = torch.where(is_scored_BT, chosen_BT, 0.0).sum(1).tolist()
    return summed


# Pretrained


class PretrainedModel(BenchmarkModel):
    """The common part: a pipeline, the few-shot examples that fit, and the tokenizer."""

    def __init__(
        self, name: str, kind: str, pipe: Any, symbols: Sequence[str], progress: ProgressReporter
    ) -> None:
        self.name = name
        self.kind = kind
        self.pipe = pipe
        self.symbols = tuple(symbols)
        self.progress = progress
        self.model, self.tokenizer = pipe.model, pipe.tokenizer
        self.parameters = sum(each.numel() for each in self.model.parameters())
        self.weights = sum(each.numel() * each.element_size() for each in self.model.parameters())

    @property
    def context_length(self) -> int:
        """Return how many tokens the model can attend to at once."""
        limits = [
            getattr(self.model.config, "max_position_embeddings", None),
            getattr(self.tokenizer, "model_max_length", None),
        ]
        return min([each for each in limits if isinstance(each, int) and each > 0], default=512)

    def fit_few_shot(
        self, examples: Sequence[Example], n_requested: int, count_tokens: Any
    ) -> None:
        """Take as many examples as there are positions for, and note if they are fewer."""
        n_requested = min(n_requested, len(examples))
        max_examples = max_fitting_examples(n_requested, self.context_length, count_tokens)
        if max_examples is None:
            raise JobError(
                f"{self.name} has {self.context_length:,} positions and the longest input takes "
                f"{count_tokens(0):,} tokens; choose a checkpoint of shorter sequences, or a "
                "model with more positions"
            )
        self.examples = tuple(examples[:max_examples])
        if max_examples < n_requested:
            self.caveat = (
                f"{max_examples} few-shot examples instead of {n_requested}: more do not fit into "
                f"its {self.context_length:,} positions"
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


class PretrainedCausalLM(PretrainedModel):
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

    def _continuation_ids(
        self, prompt: str, candidates: Sequence[tuple[str, ...]]
    ) -> list[list[int]]:
        """Return the tokens of each candidate after the prompt."""
        ids = self.token_ids(prompt)
        continuations = []
        for each in candidates:
            whole = self.token_ids(f"{prompt} {' '.join(each)}")
            plain = whole[: len(ids)] == ids and len(whole) > len(ids)
            continuations.append(
                whole[len(ids) :]
                if plain
                else self.tokenizer.encode(f" {' '.join(each)}", add_special_tokens=False)
            )
        return continuations

    @torch.no_grad()
    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        """Score each candidate by the sum of its tokens' log-probabilities.

        The prompt is encoded once; each candidate continues from its cached keys and values.
        """
        prompt = few_shot_prompt(example, self.examples)
        prompt_1P = self.tensor([self.token_ids(prompt)])
        continuations = self._continuation_ids(prompt, choices)
        output = self.model(prompt_1P, use_cache=True)
        scores: list[float] = []
        for start in range(0, len(continuations), BATCH_SIZE):
            self.progress.raise_if_cancelled()
            part = continuations[start : start + BATCH_SIZE]
            max_length = max(map(len, part))
            continuation_CT = self.tensor(
                [continuation + [0] * (max_length - len(continuation)) for continuation in part]
            )
            is_scored_CT = self.tensor(
                [
                    [1] * len(continuation) + [0] * (max_length - len(continuation))
                    for continuation in part
                ]
            ).bool()
            first_CV = output.logits[:, -1].expand(len(part), -1)
            past = copy.deepcopy(output.past_key_values)  # the forward pass extends it in place
            past.batch_repeat_interleave(len(part))
            rest_CTV = (
                self.model(continuation_CT[:, :-1], past_key_values=past, use_cache=True).logits
                if max_length > 1
                else None
            )
            logits_CTV = (
                first_CV[:, None]
                if rest_CTV is None
                else torch.cat((first_CV[:, None], rest_CTV), 1)
            )
            scores += _sequence_log_probs(logits_CTV, continuation_CT, is_scored_CT)
        return scores

    @torch.no_grad()
    def estimate_seconds(
        self, examples: Sequence[Example], ranked: Sequence[Example]
    ) -> tuple[float, str] | None:
        ids_1P = self.tensor([self.token_ids(few_shot_prompt(examples[0], self.examples))])
        self.progress.raise_if_cancelled()
        started = time.perf_counter()
        output = self.model(ids_1P, use_cache=True)
        forward = time.perf_counter() - started
        started = time.perf_counter()
        self.model(ids_1P[:, -1:], past_key_values=output.past_key_values, use_cache=True)
        step = time.perf_counter() - started
        seconds_per_token = forward / ids_1P.shape[1]
        chosen = sum(
            forward
            + seconds_per_token
            * sum(map(len, (each.symbols for each in choices_for(item, examples))))
            for item in ranked
        )
        return len(examples) * (
            forward + self.max_new_tokens * step
        ) + chosen, f"one forward pass of {ids_1P.shape[1]} tokens took {forward:.2f} s"


class PretrainedMaskedLM(PretrainedModel):
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
        ambiguous = [
            symbol
            for symbol, token in self.token_by_symbol.items()
            if list(self.token_by_symbol.values()).index(token) != symbols.index(symbol)
        ]
        if ambiguous:
            self.add_caveat(
                f"its tokenizer maps {' '.join(ambiguous)} to the same token as another symbol"
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
        mask_positions = [
            place for place, token in enumerate(ids) if token == self.tokenizer.mask_token_id
        ]
        filled = self.pipe.postprocess(outputs, top_k=1)
        best = [each[0] for each in filled] if isinstance(filled[0], list) else filled
        return (
            [each["token_str"].strip() for each in best],
            outputs["logits"][0, mask_positions].float().log_softmax(-1),
            ids,
        )

    @torch.no_grad()
    def generate(self, example: Example) -> Output:
        places = range(len(example.answer))
        hidden = [set(places)] if self.fills_jointly else [{place} for place in places]
        right = torch.tensor([self.token_by_symbol[symbol] for symbol in example.answer])
        predicted: list[str] = []
        summed, first = 0.0, None
        for each in hidden:
            text = masked_prompt(example, self.examples, self.mask, each)
            best, log_probs_GV, ids = self._predict_masks(text)
            first = first or (text, ids)
            predicted += best
            summed += float(log_probs_GV.cpu().gather(1, right[sorted(each)][:, None]).sum())
        assert first is not None  # an answer has at least one symbol
        parsed = tuple(each if each in self.symbols else None for each in predicted)
        return Output(
            first[0], self.token_strings(first[1]), first[1], " ".join(predicted), parsed, summed
        )

    @torch.no_grad()
    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        """Score by pseudo-log-likelihood (Salazar et al. 2020).

        Each symbol of a candidate is predicted from all its other symbols; the results are summed.
        """
        ids = self.token_ids(masked_prompt(example, self.examples, self.mask))
        mask_positions = [
            place for place, token in enumerate(ids) if token == self.tokenizer.mask_token_id
        ]
        rows, labels, owners = [], [], []
        for number, candidate in enumerate(choices):
            visible_ids = list(ids)
            for position, symbol in zip(mask_positions, candidate, strict=True):
                visible_ids[position] = self.token_by_symbol[symbol]
            for position in mask_positions:
                rows.append([*visible_ids[:position], ids[position], *visible_ids[position + 1 :]])
                labels.append((position, visible_ids[position]))
                owners.append(number)
        scores = [0.0] * len(choices)
        for start in range(0, len(rows), BATCH_SIZE):
            self.progress.raise_if_cancelled()
            part = slice(start, start + BATCH_SIZE)
            logits_BPV = self.model(self.tensor(rows[part])).logits
            for row, (position, token) in enumerate(labels[part]):
                scores[owners[start + row]] += float(
                    logits_BPV[row, position].float().log_softmax(-1)[token]
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
