"""Evaluation examples and few-shot examples.

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
