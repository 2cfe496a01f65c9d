"""What every model is asked: held-out sequences, worked examples that are not held out, and the candidates to choose from.

Shapes: N sequences, L symbols of the longest, B rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from playground.tasks.held_out import EVALUATION_SEED, HELD_OUT_SHARE, held_out_set, training_batch
from playground.tasks.task import Batch, Task
from playground.tasks.vocabulary import EOS, PAD, SOS

MOST_EXAMPLES = 32
SHUFFLES = 3
OTHERS = 8


@dataclass(frozen=True)
class Item:
    """A sequence and its right answer, as symbols."""

    question: tuple[str, ...]
    answer: tuple[str, ...]

    @property
    def asked(self) -> str:
        return " ".join(self.question)

    @property
    def right(self) -> str:
        return " ".join(self.answer)


@dataclass(frozen=True)
class Candidate:
    """An answer to choose from, and how it was made."""

    symbols: tuple[str, ...]
    made: str


@dataclass(frozen=True)
class Questions:
    """The items, the worked examples, a sentence on how the items were chosen, and the symbols that targets hold."""

    items: tuple[Item, ...]
    examples: tuple[Item, ...]
    note: str
    target_symbols: tuple[str, ...] = ()


def _items_of(task: Task, batch: Batch) -> list[Item]:
    """The rows of a batch as symbols."""

    def symbols(row: list[int]) -> tuple[str, ...]:
        return tuple(task.vocabulary.decode(token for token in row if token not in (PAD, SOS)))

    return [
        Item(symbols(source), symbols(target))
        for source, target in zip(batch.source_BS.tolist(), batch.target_BT.tolist(), strict=True)
    ]


def draw_questions(task: Task, n: int, min_length: int, max_length: int) -> Questions:
    """`n` held-out items, shared out over the lengths, and up to 32 worked examples; the same at every call.

    Items whose answer equals the question say nothing about who only copies, so they are left out, unless the rule is to copy.
    Fewer than `n` come back only where fewer exist.
    """
    drawn = _items_of(task, held_out_set(task, 4 * n + 200, min_length, max_length).batch)
    kept = [item for item in drawn if item.answer != item.question]
    if kept:
        left_out = len(drawn) - len(kept)
        note = f"held-out sequences of {min_length} to {max_length} symbols, those left out whose answer is the sequence itself"
        note += f" ({left_out:,} of {len(drawn):,} looked at)"
    else:
        kept = drawn
        note = f"held-out sequences of {min_length} to {max_length} symbols; the answer always is the sequence itself, so none are left out"
    by_length = {
        length: [item for item in kept if len(item.question) == length]
        for length in range(min_length, max_length + 1)
    }
    items: list[Item] = []
    for place, found in enumerate(by_length.values()):
        items += found[: -(-(n - len(items)) // (len(by_length) - place))]
    random.Random(EVALUATION_SEED).shuffle(items)  # whoever stops half-way has seen every length
    if len(items) < n:
        note += f"; only {len(items)} exist" if items else "; none exist"
    training = _training_items(task, min_length, max_length)
    used = {symbol for item in (*training, *items) for symbol in item.answer}
    target_symbols = tuple(symbol for symbol in task.vocabulary.symbols if symbol in used)
    return Questions(
        tuple(items),
        _choose_examples(training, {item.question for item in items}),
        note,
        target_symbols,
    )


def _training_items(task: Task, min_length: int, max_length: int) -> list[Item]:
    """Some 2,000 sequences that are not held out, as a model in training sees them."""
    generator = torch.Generator().manual_seed(EVALUATION_SEED)
    batch = training_batch(
        task, round(64 * MOST_EXAMPLES * (1 + HELD_OUT_SHARE)), min_length, max_length, generator
    )
    return _items_of(task, batch.rows(batch.weight_B > 0))


def _choose_examples(training: Sequence[Item], asked: set[tuple[str, ...]]) -> tuple[Item, ...]:
    """Distinct worked examples; never one whose answer is the question, if avoidable."""
    drawn = list(dict.fromkeys(item for item in training if item.question not in asked))
    telling = [item for item in drawn if item.answer != item.question]
    return tuple((telling or drawn)[:MOST_EXAMPLES])


def candidates_for(
    item: Item, items: Sequence[Item] = (), shuffles: int = SHUFFLES
) -> list[Candidate]:
    """The right answer among others of its own length, for a summed log-probability says nothing about answers of different ones.

    Where the answer is made of the question's symbols, so are the others: the sequence as it is, reversed, rotated by every number of
    places, and shuffled with a fixed seed. Elsewhere the same is done to the answer, and up to `OTHERS` right answers to other `items`
    join. All distinct, in an order that does not tell which one is right; a single one where there is nothing to choose from.
    """
    generator = random.Random(f"{EVALUATION_SEED} {item.asked}")
    rearranged = sorted(item.question) == sorted(item.answer)
    base, of = (item.question, "") if rearranged else (item.answer, "the answer, ")
    made = [
        Candidate(base, "as it is" if rearranged else "the answer"),
        Candidate(base[::-1], f"{of}reversed"),
    ]
    made += [Candidate(base[by:] + base[:by], f"{of}rotated by {by}") for by in range(1, len(base))]
    for _ in range(shuffles):
        made.append(Candidate(tuple(generator.sample(base, len(base))), f"{of}shuffled"))
    if not rearranged:
        others = sorted(
            {other.answer for other in items if len(other.answer) == len(item.answer)}
            - {item.answer}
        )
        made += [
            Candidate(each, "the answer to another")
            for each in generator.sample(others, min(OTHERS, len(others)))
        ]
    made.append(Candidate(item.answer, "the answer"))
    distinct: dict[tuple[str, ...], Candidate] = {}
    for candidate in made:
        distinct.setdefault(candidate.symbols, candidate)
    return (
        list(distinct.values())
        if rearranged
        else sorted(distinct.values(), key=lambda candidate: candidate.symbols)
    )


def commonest_target(items: Sequence[Item]) -> tuple[str, ...]:
    """The target that most of the items have; the first of several."""
    return Counter(item.answer for item in items).most_common(1)[0][0]


def most_frequent(symbols: tuple[str, ...]) -> str:
    """The symbol that a sequence holds most often; the first of several."""
    return Counter(symbols).most_common(1)[0][0]


def batch_of(task: Task, question: tuple[str, ...], answers: list[tuple[str, ...]]) -> Batch:
    """One row for each answer to the same question, whatever the right one is (weights are 1)."""
    source = [*task.vocabulary.encode(" ".join(question)), EOS]
    targets = [[SOS, *task.vocabulary.encode(" ".join(answer)), EOS] for answer in answers]
    widest = max(map(len, targets))
    return Batch(
        torch.tensor([source] * len(answers)),
        torch.tensor([target + [PAD] * (widest - len(target)) for target in targets]),
        torch.ones(len(answers)),
    )
