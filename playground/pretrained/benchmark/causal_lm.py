"""A causal language model in the benchmark: generation, and scores of candidates."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..prompts import Example, few_shot_prompt, first_line
from .metrics import parse_answer
from .models import BATCH_SIZE, EXTRA_NEW_TOKENS, Output, PretrainedModel, sequence_log_probs


class PretrainedCausalLM(PretrainedModel):
    """A causal language model: greedy generation after the prompt, to the end of the line."""

    can_rank = True

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
            scores += sequence_log_probs(logits_CTV, continuation_CT, is_scored_CT)
        return scores
