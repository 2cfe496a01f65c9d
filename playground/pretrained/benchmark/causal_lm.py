"""A causal language model in the benchmark: it generates after the prompt."""

from typing import Any

import torch
from torch import Tensor

from ..prompts import Example, few_shot_prompt, first_line
from .metrics import parse_answer
from .models import EXTRA_NEW_TOKENS, Output, PretrainedModel


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
            stopping_criteria=self._stopping_criteria(len(self.token_ids(prompt))),
        )[0]["generated_text"]
        parsed = parse_answer(first_line(generated_text), self.symbols)
        return Output(prompt, generated_text, parsed)

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
