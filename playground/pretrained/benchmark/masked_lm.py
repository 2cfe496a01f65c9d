"""A masked language model in the benchmark: masked positions, and scores of candidates."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from playground.common import messages
from playground.errors import UserError

from ..prompts import Example, masked_prompt
from ..tokens import find_masks
from .examples import choices_for
from .models import BATCH_SIZE, Output, PretrainedModel


class PretrainedMaskedLM(PretrainedModel):
    """A masked language model: predicts masked positions of the target, whose length is known.

    `fills_jointly` masks all of them. Otherwise one position at a time is masked and the others
    show the target, which leaks: from the other tokens alone one can infer the missing one if the
    target is a permutation of the input.
    """

    def __init__(self, *arguments: Any, fills_jointly: bool) -> None:
        super().__init__(*arguments)
        self.fills_jointly = self.can_rank = fills_jointly
        self.mask = self.tokenizer.mask_token
        if not self.mask:
            raise UserError(messages.missing_mask_token(self.name))
        self.token_id_by_symbol = {symbol: self._token_id(symbol) for symbol in self.symbols}
        max_example = max(self.items, key=lambda item: len(item.source) + len(item.target))
        self.fit_few_shot(
            lambda shots: len(self.token_ids(masked_prompt(max_example, shots, self.mask)))
        )
        masking = (
            "all positions masked at once"
            if fills_jointly
            else "one mask at a time (sees the other answers)"
        )
        self.decoding = f"fill-mask after {len(self.examples)} few-shot examples, {masking}"
        ambiguous = [
            symbol
            for symbol, token in self.token_id_by_symbol.items()
            if list(self.token_id_by_symbol.values()).index(token) != self.symbols.index(symbol)
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
        raise UserError(
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
        mask_positions = find_masks(self.tokenizer, ids)
        filled = self.pipe.postprocess(outputs, top_k=1)
        best = [each[0] for each in filled] if isinstance(filled[0], list) else filled
        return (
            [each["token_str"].strip() for each in best],
            outputs["logits"][0, mask_positions].float().log_softmax(-1),
            ids,
        )

    @torch.no_grad()
    def generate(self, example: Example) -> Output:
        positions = range(len(example.target))
        hidden = [set(positions)] if self.fills_jointly else [{each} for each in positions]
        target_ids = torch.tensor([self.token_id_by_symbol[symbol] for symbol in example.target])
        predicted: list[str] = []
        summed, first = 0.0, None
        for each in hidden:
            text = masked_prompt(example, self.examples, self.mask, each)
            best, log_probs_GV, ids = self._predict_masks(text)
            first = first or (text, ids)
            predicted += best
            summed += float(log_probs_GV.cpu().gather(1, target_ids[sorted(each)][:, None]).sum())
        assert first is not None  # a target has at least one token
        parsed = tuple(each if each in self.symbols else None for each in predicted)
        return Output(
            first[0], self.token_strings(first[1]), first[1], " ".join(predicted), parsed, summed
        )

    @torch.no_grad()
    def loglikelihoods(self, example: Example, choices: Sequence[tuple[str, ...]]) -> list[float]:
        """Score by pseudo-log-likelihood (Salazar et al. 2020).

        Each token of a candidate is predicted from all its other tokens; the results are summed.
        """
        ids = self.token_ids(masked_prompt(example, self.examples, self.mask))
        mask_positions = find_masks(self.tokenizer, ids)
        rows, labels, owners = [], [], []
        for number, candidate in enumerate(choices):
            visible_ids = list(ids)
            for position, symbol in zip(mask_positions, candidate, strict=True):
                visible_ids[position] = self.token_id_by_symbol[symbol]
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
        passes = sum(1 if self.fills_jointly else len(item.target) for item in examples)
        passes += (
            sum(len(item.target) * len(choices_for(item, examples)) for item in ranked)
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
