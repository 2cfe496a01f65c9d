"""Prompt templates of the benchmark.

Symbols are separated by spaces, because "123" may be one token. A prompt ends in "Output:" without
a space, which the model generates: in many vocabularies it belongs to the first symbol's token,
and in others it is a token by itself.

    Input: 3 1 4
    Output: 4 1 3

    Input: 2 7 5
    Output:
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """An example: an input sequence and its target, as symbols."""

    source: tuple[str, ...]
    target: tuple[str, ...]

    @property
    def source_text(self) -> str:
        return " ".join(self.source)

    @property
    def target_text(self) -> str:
        return " ".join(self.target)


def few_shot_prompt(example: Example, examples: Sequence[Example]) -> str:
    """Return the few-shot examples and the input; the answer follows after a space."""
    solved = "".join(
        f"Input: {each.source_text}\nOutput: {each.target_text}\n\n" for each in examples
    )
    return f"{solved}Input: {example.source_text}\nOutput:"


def masked_prompt(example: Example, examples: Sequence[Example], mask: str) -> str:
    """Return the prompt with a mask in place of each symbol of the target."""
    return f"{few_shot_prompt(example, examples)} {' '.join([mask] * len(example.target))}"
