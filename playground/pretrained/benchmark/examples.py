"""Evaluation examples, few-shot examples and candidates to choose from.

Evaluation examples are held out; few-shot examples are not.
Shapes: N sequences, L tokens of the longest, B examples.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from playground.tasks.held_out import (
    EVALUATION_SEED,
    HELD_OUT_FRACTION,
    build_held_out_set,
    sample_training_batch,
)
from playground.tasks.task import Batch, Task
from playground.tasks.vocabulary import PAD, SOS

from ..prompts import Example

MAX_FEW_SHOT_EXAMPLES = 32
SHUFFLED_CHOICES = 3
OTHER_CHOICES = 8


@dataclass(frozen=True)
class Choice:
    """A candidate to choose from, and how it was made."""

    tokens: tuple[str, ...]
    origin: str


@dataclass(frozen=True)
class ExampleSet:
    """The evaluation examples, the few-shot examples, a description, and the target symbols.

    `majority_target` is the most frequent target of training sequences.
    """

    examples: tuple[Example, ...]
    few_shot_examples: tuple[Example, ...]
    note: str
    target_symbols: tuple[str, ...] = ()
    majority_target: tuple[str, ...] = ()


def _examples_of(task: Task, batch: Batch) -> list[Example]:
    def decode(row: list[int]) -> tuple[str, ...]:
        return tuple(task.vocabulary.decode(token for token in row if token not in (PAD, SOS)))

    return [
        Example(decode(source), decode(target))
        for source, target in zip(batch.source_BS.tolist(), batch.target_BT.tolist(), strict=True)
    ]


def sample_examples(task: Task, n: int, min_length: int, max_length: int) -> ExampleSet:
    """Sample `n` held-out examples over all lengths, and up to 32 few-shot examples.

    The result is the same at every call. Examples whose target equals the input do not
    distinguish the task from copying, so they are left out, unless the task is to copy. Fewer
    than `n` are returned only if fewer exist.
    """
    candidates = _examples_of(
        task, build_held_out_set(task, 4 * n + 200, min_length, max_length).batch
    )
    selected = [example for example in candidates if example.target != example.source]
    if selected:
        left_out = len(candidates) - len(selected)
        note = (
            f"held-out sequences of {min_length} to {max_length} tokens, without those whose "
            "target equals the input"
        )
        note += f" ({left_out:,} of {len(candidates):,} left out)"
    else:
        selected = candidates
        note = (
            f"held-out sequences of {min_length} to {max_length} tokens; the target always "
            "equals the input, so none are left out"
        )
    by_length = {
        length: [example for example in selected if len(example.source) == length]
        for length in range(min_length, max_length + 1)
    }
    examples: list[Example] = []
    for position, examples_of_length in enumerate(by_length.values()):
        examples += examples_of_length[: -(-(n - len(examples)) // (len(by_length) - position))]
    # a cancelled job then has results of every length
    random.Random(EVALUATION_SEED).shuffle(examples)
    if len(examples) < n:
        note += f"; only {len(examples)} exist" if examples else "; none exist"
    training = _training_items(task, min_length, max_length)
    used = {symbol for example in (*training, *examples) for symbol in example.target}
    target_symbols = tuple(symbol for symbol in task.vocabulary.symbols if symbol in used)
    return ExampleSet(
        tuple(examples),
        _choose_examples(training, {example.source for example in examples}),
        note,
        target_symbols,
        Counter(example.target for example in training).most_common(1)[0][0] if training else (),
    )


def _training_items(task: Task, min_length: int, max_length: int) -> list[Example]:
    """Sample about 2,000 examples that are not held out, as in training."""
    generator = torch.Generator().manual_seed(EVALUATION_SEED)
    batch = sample_training_batch(
        task,
        round(64 * MAX_FEW_SHOT_EXAMPLES * (1 + HELD_OUT_FRACTION)),
        min_length,
        max_length,
        generator,
    )
    return _examples_of(task, batch.select(batch.loss_weight_B > 0))


def _choose_examples(
    training: Sequence[Example], evaluated: set[tuple[str, ...]]
) -> tuple[Example, ...]:
    """Choose distinct few-shot examples; one whose target equals its input only if unavoidable."""
    distinct = list(
        dict.fromkeys(example for example in training if example.source not in evaluated)
    )
    informative = [example for example in distinct if example.target != example.source]
    return tuple((informative or distinct)[:MAX_FEW_SHOT_EXAMPLES])


def choices_for(example: Example, examples: Sequence[Example] = ()) -> list[Choice]:
    """Return the target among other candidates of the same length.

    The lengths are equal because summed log-probabilities of different lengths are not
    comparable. If the target is a permutation of the input, so are the others: the input,
    reversed, rotated by every offset, and shuffled with a fixed seed. Otherwise the same is
    done to the target, and up to `OTHER_CHOICES` targets of other `examples` are added. All are
    distinct, and their order does not reveal the target. The result is a single candidate if there
    are no others.
    """
    generator = random.Random(f"{EVALUATION_SEED} {example.source_text}")
    rearranged = sorted(example.source) == sorted(example.target)
    base, prefix = (example.source, "") if rearranged else (example.target, "the target, ")
    choices = [
        Choice(base, "as it is" if rearranged else "the target"),
        Choice(base[::-1], f"{prefix}reversed"),
    ]
    choices += [
        Choice(base[by:] + base[:by], f"{prefix}rotated by {by}") for by in range(1, len(base))
    ]
    for _ in range(SHUFFLED_CHOICES):
        choices.append(Choice(tuple(generator.sample(base, len(base))), f"{prefix}shuffled"))
    if not rearranged:
        others = sorted(
            {other.target for other in examples if len(other.target) == len(example.target)}
            - {example.target}
        )
        choices += [
            Choice(each, "the target of another input")
            for each in generator.sample(others, min(OTHER_CHOICES, len(others)))
        ]
    choices.append(Choice(example.target, "the target"))
    by_tokens: dict[tuple[str, ...], Choice] = {}
    for candidate in choices:
        by_tokens.setdefault(candidate.tokens, candidate)
    return (
        list(by_tokens.values())
        if rearranged
        else sorted(by_tokens.values(), key=lambda candidate: candidate.tokens)
    )
