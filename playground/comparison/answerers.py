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

from playground.families.family import Family
from playground.models.transformer import Transformer
from playground.tasks import PAD
from playground.tasks.task import Task

from .items import Item, batch_of, candidates_for, commonest_target, most_frequent
from .prompts import first_line, fitting, masked_prompt, prompt_for
from .scoring import read_answer
from .work import Refused, Tell

SPARE_TOKENS = 4  # extra tokens beyond the longest answer, to see if the model would have stopped
ROWS_AT_A_TIME = 16  # sequences in one forward pass


@dataclass(frozen=True)
class Answer:
    """A prediction for one example.

    prompt   the text that was sent
    tokens   the input tokens as the model gets them, one text for each of its `ids`
    raw      the generated text, unchanged
    read     its symbols; None for a position without a symbol, and None as a whole if the line
             is not a list of symbols
    log_probability   that of the target given the input; None if it was not measured
    """

    prompt: str
    tokens: list[str]
    ids: list[int]
    raw: str
    read: tuple[str | None, ...] | None
    log_probability: float | None = None


class Answerer:
    """A model of the benchmark. `way` names the decoding, `note` a caveat about its scores."""

    name: str
    what: str
    way: str = ""
    note: str = ""
    examples: tuple[Item, ...] = ()
    parameters: int | None = None
    weights: int | None = None  # bytes
    ranks = False  # whether it can score candidates

    def answer(self, item: Item) -> Answer:
        raise NotImplementedError

    def scores(self, item: Item, candidates: Sequence[tuple[str, ...]]) -> list[float]:
        """Return the log-probability of each candidate."""
        raise NotImplementedError

    def estimate(self, items: Sequence[Item], ranked: Sequence[Item]) -> tuple[float, str] | None:
        """Measure one forward pass, and return the total seconds and the measurement as text."""
        return None


# Baselines


class Copy(Answerer):
    """A baseline that copies the input."""

    name, what, way, ranks = "copy the input", "baseline", "copies the input", True

    def answer(self, item: Item) -> Answer:
        return Answer("", [], [], item.asked, item.question)

    def scores(self, item: Item, candidates: Sequence[tuple[str, ...]]) -> list[float]:
        return [0.0 if each == item.question else float("-inf") for each in candidates]


class MostFrequent(Answerer):
    """A baseline that repeats the most frequent symbol of the input, as long as the target is."""

    name, what, way = (
        "most frequent symbol",
        "baseline",
        "the input's most frequent symbol, repeated",
    )

    def answer(self, item: Item) -> Answer:
        read = (most_frequent(item.question),) * len(item.answer)
        return Answer("", [], [], " ".join(read), read)


class CommonestTarget(Answerer):
    """A baseline that always predicts the most frequent target of the examples."""

    name, what, ranks = "commonest target", "baseline", True

    def __init__(self, items: Sequence[Item]) -> None:
        self.target = commonest_target(items)
        self.way = "always the most frequent target of these sequences"

    def answer(self, item: Item) -> Answer:
        return Answer("", [], [], " ".join(self.target), self.target)

    def scores(self, item: Item, candidates: Sequence[tuple[str, ...]]) -> list[float]:
        return [0.0 if each == self.target else float("-inf") for each in candidates]


class Chance:
    """The expected scores of random guessing, calculated.

    Every symbol that occurs in targets is equally likely, and so is every candidate.
    """

    name, what, way = "chance", "baseline", "calculated"

    @staticmethod
    def scores(
        items: Sequence[Item], symbols: int, ranked: Sequence[Item]
    ) -> dict[str, float | None]:
        """Return the scores; `symbols` is the number of different symbols in targets."""
        chances = [1 / len(candidates_for(item, items)) for item in ranked]
        return {
            "exact_match": sum(symbols ** -len(item.answer) for item in items) / len(items),
            "token_accuracy": 1 / symbols,
            "rank_accuracy": sum(chances) / len(chances) if chances else None,
        }


# From scratch


class Scratch(Answerer):
    """A checkpoint of this playground."""

    what, way = "trained on this task", "greedy decoding, token by token"

    def __init__(self, name: str, task: Task, family: Family) -> None:
        self.name, self.task, self.family = name, task, family.eval()
        self.parameters = sum(each.numel() for each in family.parameters())
        self.weights = sum(each.numel() * each.element_size() for each in family.parameters())
        self.ranks = isinstance(family, Transformer)

    def answer(self, item: Item) -> Answer:
        batch = batch_of(self.task, item.question, [item.answer])
        most = min(
            self.task.answer_length(len(item.question)) + 1 + SPARE_TOKENS,
            self.family.config.max_positions,
        )
        written = self.family.solve(batch.source_BS, most)[0].tolist()
        ids = batch.source_BS[0].tolist()
        names = [self.task.vocabulary.name(token) for token in ids]
        ended = [self.task.vocabulary.name(token) for token in written if token != PAD]
        symbols = tuple(self.task.vocabulary.decode(written))
        read = (
            symbols
            if "EOS" in ended and set(symbols) <= set(self.task.vocabulary.symbols)
            else None
        )
        return Answer(item.asked, names, ids, " ".join(ended), read)

    @torch.no_grad()
    def scores(self, item: Item, candidates: Sequence[tuple[str, ...]]) -> list[float]:
        """Score with teacher forcing: each symbol, and EOS, given the candidate's own prefix."""
        batch = batch_of(self.task, item.question, list(candidates))
        logits_CTV = self.family(batch.source_BS, batch.decoder_input_BT)
        return _summed(logits_CTV, batch.labels_BT, batch.labels_BT != PAD)


def _summed(logits_BTV: Tensor, labels_BT: Tensor, counts_BT: Tensor) -> list[float]:
    """Return for each sequence the sum of the labels' log-probabilities where they count."""
    chosen_BT = logits_BTV.float().log_softmax(-1).gather(-1, labels_BT[..., None])[..., 0]
    summed: list[float] = torch.where(counts_BT, chosen_BT, 0.0).sum(1).tolist()
    return summed


# Pretrained


class Pretrained(Answerer):
    """The common part: a pipeline, the few-shot examples that fit, and the tokenizer."""

    def __init__(self, name: str, what: str, pipe: Any, symbols: Sequence[str], tell: Tell) -> None:
        self.name, self.what, self.pipe, self.symbols, self.tell = (
            name,
            what,
            pipe,
            tuple(symbols),
            tell,
        )
        self.model, self.tokenizer = pipe.model, pipe.tokenizer
        self.parameters = sum(each.numel() for each in self.model.parameters())
        self.weights = sum(each.numel() * each.element_size() for each in self.model.parameters())

    @property
    def positions(self) -> int:
        """Return how many tokens the model can attend to at once."""
        told = [
            getattr(self.model.config, "max_position_embeddings", None),
            getattr(self.tokenizer, "model_max_length", None),
        ]
        return min([each for each in told if isinstance(each, int) and each > 0], default=512)

    def fit(self, examples: Sequence[Item], wanted: int, tokens_with: Any) -> None:
        """Take as many of the wanted examples as there are positions for; note if they are
        fewer."""
        wanted = min(wanted, len(examples))
        most = fitting(wanted, self.positions, tokens_with)
        if most is None:
            raise Refused(
                f"{self.name} has {self.positions:,} positions and the longest input takes "
                f"{tokens_with(0):,} tokens; choose a checkpoint of shorter sequences, or a "
                "model with more positions"
            )
        self.examples = tuple(examples[:most])
        if most < wanted:
            self.note = (
                f"{most} few-shot examples instead of {wanted}: more do not fit into its "
                f"{self.positions:,} positions"
            )

    def ids_of(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token."""
        return [self.tokenizer.decode([token], clean_up_tokenization_spaces=False) for token in ids]

    def add_note(self, sentence: str) -> None:
        self.note = f"{self.note}; {sentence}" if self.note else sentence

    def tensor(self, rows: list[list[int]]) -> Tensor:
        return torch.tensor(rows, device=self.model.device)


class Causal(Pretrained):
    """A causal language model: greedy text generation after the prompt, up to the end of the
    line."""

    ranks = True

    def __init__(
        self,
        name: str,
        what: str,
        pipe: Any,
        symbols: Sequence[str],
        tell: Tell,
        items: Sequence[Item],
        examples: Sequence[Item],
        wanted: int,
    ) -> None:
        super().__init__(name, what, pipe, symbols, tell)
        longest = max(items, key=lambda item: len(self.ids_of(f"{item.asked} {item.right}")))
        self.most_new = (
            max(
                len(self.tokenizer.encode(f" {item.right}", add_special_tokens=False))
                for item in items
            )
            + SPARE_TOKENS
        )
        self.fit(
            examples,
            wanted,
            lambda k: len(self.ids_of(prompt_for(longest, examples[:k]))) + self.most_new,
        )
        self.way = (
            f"greedy generation after {len(self.examples)} few-shot examples, up to the end of "
            "the line"
        )
        together = self.tokenizer.encode(" " + " ".join(symbols), add_special_tokens=False)
        if len(together) != len(symbols):
            self.add_note(
                f"its tokenizer splits the {len(symbols)} symbols into {len(together)} tokens"
            )

    def answer(self, item: Item) -> Answer:
        prompt = prompt_for(item, self.examples)
        written = self.pipe(
            prompt,
            max_new_tokens=self.most_new,
            do_sample=False,
            return_full_text=False,
            clean_up_tokenization_spaces=False,
            pad_token_id=self.tokenizer.eos_token_id,
            stopping_criteria=self._stopping(len(self.ids_of(prompt))),
        )[0]["generated_text"]
        ids = self.ids_of(prompt)
        return Answer(
            prompt, self.pieces(ids), ids, written, read_answer(first_line(written), self.symbols)
        )

    def _stopping(self, prompt_tokens: int) -> Any:
        """Stop at the end of the line, and at once if the job is cancelled."""
        from transformers import StoppingCriteria, StoppingCriteriaList

        tokenizer, tell = self.tokenizer, self.tell

        class LineEnd(StoppingCriteria):
            def __call__(self, input_ids: Tensor, scores: Tensor, **unused: Any) -> Tensor:
                tell.check()
                ended = ["\n" in tokenizer.decode(row[prompt_tokens:]) for row in input_ids]
                return torch.tensor(ended, device=input_ids.device)

        return StoppingCriteriaList([LineEnd()])

    def _tails(self, prompt: str, candidates: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Return the tokens of each candidate after the prompt."""
        ids = self.ids_of(prompt)
        tails = []
        for each in candidates:
            whole = self.ids_of(f"{prompt} {' '.join(each)}")
            plain = whole[: len(ids)] == ids and len(whole) > len(ids)
            tails.append(
                whole[len(ids) :]
                if plain
                else self.tokenizer.encode(f" {' '.join(each)}", add_special_tokens=False)
            )
        return tails

    @torch.no_grad()
    def scores(self, item: Item, candidates: Sequence[tuple[str, ...]]) -> list[float]:
        """Score each candidate by the sum of its tokens' log-probabilities.

        The prompt is encoded once; each candidate continues from its cached keys and values.
        """
        prompt = prompt_for(item, self.examples)
        prompt_1P = self.tensor([self.ids_of(prompt)])
        tails = self._tails(prompt, candidates)
        read = self.model(prompt_1P, use_cache=True)
        scores: list[float] = []
        for start in range(0, len(tails), ROWS_AT_A_TIME):
            self.tell.check()
            part = tails[start : start + ROWS_AT_A_TIME]
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
            scores += _summed(logits_CTV, tails_CT, counts_CT)
        return scores

    @torch.no_grad()
    def estimate(self, items: Sequence[Item], ranked: Sequence[Item]) -> tuple[float, str] | None:
        ids_1P = self.tensor([self.ids_of(prompt_for(items[0], self.examples))])
        self.tell.check()
        started = time.perf_counter()
        read = self.model(ids_1P, use_cache=True)
        forward = time.perf_counter() - started
        started = time.perf_counter()
        self.model(ids_1P[:, -1:], past_key_values=read.past_key_values, use_cache=True)
        step = time.perf_counter() - started
        a_token = forward / ids_1P.shape[1]
        chosen = sum(
            forward
            + a_token * sum(map(len, (each.symbols for each in candidates_for(item, items))))
            for item in ranked
        )
        return len(items) * (
            forward + self.most_new * step
        ) + chosen, f"one forward pass of {ids_1P.shape[1]} tokens took {forward:.2f} s"


class Masked(Pretrained):
    """A masked language model: predicts masked positions of the answer, whose length is given.

    `at_once` masks all of them. Otherwise one position at a time is masked and the others show
    the target, which leaks: from the other symbols alone one can infer the missing one if the
    target is a permutation of the input.
    """

    def __init__(
        self,
        name: str,
        what: str,
        pipe: Any,
        symbols: Sequence[str],
        tell: Tell,
        items: Sequence[Item],
        examples: Sequence[Item],
        wanted: int,
        at_once: bool,
    ) -> None:
        super().__init__(name, what, pipe, symbols, tell)
        self.at_once = self.ranks = at_once
        self.mask = self.tokenizer.mask_token
        if not self.mask:
            raise Refused(
                f"{name} has no mask token, so it cannot predict masked positions; choose a "
                "masked language model"
            )
        self.symbol_ids = {symbol: self._id_of(symbol) for symbol in symbols}
        longest = max(items, key=lambda item: len(item.question) + len(item.answer))
        self.fit(
            examples,
            wanted,
            lambda k: len(self.ids_of(masked_prompt(longest, examples[:k], self.mask))),
        )
        shown = (
            "all positions masked at once"
            if at_once
            else "one position masked at a time, the others show the target (this leaks)"
        )
        self.way = f"fill-mask after {len(self.examples)} few-shot examples, {shown}"
        same = [
            symbol
            for symbol, token in self.symbol_ids.items()
            if list(self.symbol_ids.values()).index(token) != symbols.index(symbol)
        ]
        if same:
            self.add_note(
                f"its tokenizer maps {' '.join(same)} to the same token as another symbol"
            )

    def _id_of(self, symbol: str) -> int:
        """Return the token of a symbol after a space."""
        for text in (f" {symbol}", symbol):
            ids = self.tokenizer.encode(text, add_special_tokens=False)
            if len(ids) == 1 and ids[0] != self.tokenizer.unk_token_id:
                return int(ids[0])
        raise Refused(
            f"{self.name} has no single token for {symbol!r}, so it cannot predict it at one "
            "masked position; compare on a task of digits"
        )

    def _fill(self, text: str) -> tuple[list[str], Tensor, list[int]]:
        """Predict the masks of a text.

        Returns the likeliest token of each mask, the log-probabilities there (masks, V), and
        the tokens of the text.
        """
        self.tell.check()
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
    def answer(self, item: Item) -> Answer:
        places = range(len(item.answer))
        hidden = [set(places)] if self.at_once else [{place} for place in places]
        right = torch.tensor([self.symbol_ids[symbol] for symbol in item.answer])
        written: list[str] = []
        summed, first = 0.0, None
        for each in hidden:
            text = masked_prompt(item, self.examples, self.mask, each)
            best, log_GV, ids = self._fill(text)
            first = first or (text, ids)
            written += best
            summed += float(log_GV.cpu().gather(1, right[sorted(each)][:, None]).sum())
        assert first is not None  # an answer has at least one symbol
        read = tuple(each if each in self.symbols else None for each in written)
        return Answer(first[0], self.pieces(first[1]), first[1], " ".join(written), read, summed)

    @torch.no_grad()
    def scores(self, item: Item, candidates: Sequence[tuple[str, ...]]) -> list[float]:
        """Score by pseudo-log-likelihood (Salazar et al. 2020).

        Each symbol of a candidate is predicted from all its other symbols; the results are summed.
        """
        ids = self.ids_of(masked_prompt(item, self.examples, self.mask))
        slots = [place for place, token in enumerate(ids) if token == self.tokenizer.mask_token_id]
        rows, labels, owners = [], [], []
        for number, candidate in enumerate(candidates):
            shown = list(ids)
            for slot, symbol in zip(slots, candidate, strict=True):
                shown[slot] = self.symbol_ids[symbol]
            for slot in slots:
                rows.append([*shown[:slot], ids[slot], *shown[slot + 1 :]])
                labels.append((slot, shown[slot]))
                owners.append(number)
        scores = [0.0] * len(candidates)
        for start in range(0, len(rows), ROWS_AT_A_TIME):
            self.tell.check()
            part = slice(start, start + ROWS_AT_A_TIME)
            logits_BPV = self.model(self.tensor(rows[part])).logits
            for row, (slot, token) in enumerate(labels[part]):
                scores[owners[start + row]] += float(
                    logits_BPV[row, slot].float().log_softmax(-1)[token]
                )
        return scores

    @torch.no_grad()
    def estimate(self, items: Sequence[Item], ranked: Sequence[Item]) -> tuple[float, str] | None:
        ids_1P = self.tensor([self.ids_of(masked_prompt(items[0], self.examples, self.mask))])
        self.tell.check()
        started = time.perf_counter()
        self.model(ids_1P)
        forward = time.perf_counter() - started
        passes = sum(1 if self.at_once else len(item.answer) for item in items)
        passes += (
            sum(len(item.answer) * len(candidates_for(item, items)) for item in ranked)
            if self.ranks
            else 0
        )
        return (
            passes * forward,
            (
                f"one forward pass of {ids_1P.shape[1]} tokens took {forward:.2f} s, and "
                f"{passes:,} are needed"
            ),
        )


def by_elimination(item: Item) -> tuple[str | None, ...]:
    """Predict each symbol from the others alone, given that the target permutes the input.

    The result at a position is the one symbol of the input that is left over, or None if there
    are several.
    """
    filled: list[str | None] = []
    for place in range(len(item.answer)):
        left = list(item.question)
        for other, symbol in enumerate(item.answer):
            if other != place and symbol in left:
                left.remove(symbol)
        filled.append(left[0] if len(left) == 1 else None)
    return tuple(filled)
