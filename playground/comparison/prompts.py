"""The questions as text. Symbols stand apart, because "123" may be one token; a prompt ends in "Output:" without a blank behind it,
because the blank belongs to the first symbol's token in byte-level vocabularies.

    Input: 3 1 4
    Output: 4 1 3

    Input: 2 7 5
    Output:
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .items import Item


def prompt_for(item: Item, examples: Sequence[Item]) -> str:
    """Worked examples, then the question; the answer is to follow behind a blank."""
    solved = "".join(f"Input: {each.asked}\nOutput: {each.right}\n\n" for each in examples)
    return f"{solved}Input: {item.asked}\nOutput:"


def masked_prompt(
    item: Item, examples: Sequence[Item], mask: str, hidden: set[int] | None = None
) -> str:
    """The prompt with the answer behind it and a mask in each hidden place, all of them unless they are named."""
    shown = [
        mask if hidden is None or place in hidden else symbol
        for place, symbol in enumerate(item.answer)
    ]
    return f"{prompt_for(item, examples)} {' '.join(shown)}"


def first_line(text: str) -> str:
    """What a model wrote up to the end of the line."""
    return text.split("\n", 1)[0]


def fitting(wanted: int, positions: int, tokens_with: Callable[[int], int]) -> int | None:
    """The most worked examples, up to `wanted`, with which the longest prompt and its answer have a position for every token.

    Args:
        tokens_with: how many tokens the longest question and its answer take with so many examples.

    Returns:
        None when they do not fit even without examples.
    """
    if tokens_with(0) > positions:
        return None
    low, high = 0, wanted
    while low < high:  # more examples never take fewer tokens
        middle = (low + high + 1) // 2
        low, high = (middle, high) if tokens_with(middle) <= positions else (low, middle - 1)
    return low
