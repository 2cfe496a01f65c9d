"""Measurements for the model card: examples, other lengths, and a figure of the attention."""

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.common.format import format_count
from playground.evaluation import evaluate
from playground.figures.figures import cross_attention
from playground.figures.style import render
from playground.tasks import EOS
from playground.tasks.held_out import HeldOutSet, build_held_out_set
from playground.tasks.task import Task, output_rows
from playground.training.run_config import RunConfig

from .markdown import format_tokens

OTHER_LENGTHS_N = 200  # held-out sequences per length that does not occur in training
MAX_LAYERS, MAX_HEADS = 6, 8  # in the attention figure


@dataclass(frozen=True)
class Example:
    """A held-out source, its target, and the generated tokens.

    `ended`: the model generated EOS, or the task has none.
    """

    source: str
    target: str
    prediction: str
    ended: bool

    @property
    def is_correct(self) -> bool:
        return self.prediction == self.target and self.ended


def worked_examples(
    model: Seq2SeqModel, task: Task, held_out: HeldOutSet, low: int, high: int
) -> list[Example]:
    """Run the model on the first held-out sequence of three lengths, spread over the range."""
    rows: list[int] = []
    for third in (1, 2, 3):
        rows += _first_example(held_out, low + (high - low) * third // 3, rows)
    batch = held_out.batch.select(torch.tensor(rows))
    generated_BT = model.generate(
        batch.source_BS, min(batch.labels_BT.shape[1], model.config.max_positions)
    )
    rows_of = partial(output_rows, task, labels_BT=batch.labels_BT)
    texts = [
        [format_tokens(task, row) for row in rows]
        for rows in (batch.source_BS.tolist(), rows_of(batch.labels_BT), rows_of(generated_BT))
    ]
    ended = ((generated_BT == EOS).any(1) | (not task.predict_eos)).tolist()
    return [Example(*texts_by_row) for texts_by_row in zip(*texts, ended, strict=True)]


def other_lengths(model: Seq2SeqModel, task: Task, config: RunConfig) -> list[dict[str, Any]]:
    """Evaluate lengths that do not occur in training: one shorter, one longer, twice as long."""
    low, high = config.task.min_length, config.task.max_length
    longer = [
        length
        for length in range(high + 1, 2 * high + 1)
        if max(length, task.max_target_length(length)) < config.model.max_positions
    ]
    lengths = [*range(max(low - 1, 1), low), *longer[:1], *longer[1:][-1:]]
    held_out = (build_held_out_set(task, OTHER_LENGTHS_N, length, length) for length in lengths)
    results = [evaluate(model, each) for each in held_out if len(each.lengths_B)]
    return [dataclasses.asdict(scores.by_length[0]) for scores in results]


def attention_picture(
    model: Seq2SeqModel, task: Task, held_out: HeldOutSet, length: int, path: Path
) -> str:
    """Draw the cross-attention weights of one held-out sequence, teacher-forced.

    Returns the alternative text of the figure; empty, and no figure, without cross-attention.
    """
    (row,) = _first_example(held_out, length, [])  # every task has held-out sequences
    size = int(held_out.lengths_B[row])
    probe = held_out.batch.select(torch.tensor([row]))
    weights: list[Tensor] = model.attention_weights(probe).cross
    if not weights:
        return ""
    names = task.vocabulary.token_name
    columns = [names(token) for token in probe.source_BS[0].tolist()][: size + 1]
    rows = [names(token) for token in probe.labels_BT[0].tolist()][
        : task.max_target_length(size) + 1
    ]
    layers, heads = len(weights), weights[0].shape[1]
    visible_LHTS = torch.stack(
        [layer[0, :MAX_HEADS, : len(rows), : len(columns)] for layer in weights[:MAX_LAYERS]]
    )
    path.write_bytes(render(cross_attention(visible_LHTS.numpy(), rows, columns), "png"))
    part = f"{format_count(layers, 'layer')} with {format_count(heads, 'head')}"
    if layers > MAX_LAYERS or heads > MAX_HEADS:
        part = (
            f"the first {min(layers, MAX_LAYERS)} of {layers} layers "
            f"and {min(heads, MAX_HEADS)} of {heads} heads"
        )
    source = " ".join(columns[:-1])
    return f"Heatmaps of the cross-attention weights for the source {source}: {part}"


def _first_example(held_out: HeldOutSet, length: int, used: list[int]) -> list[int]:
    """Return the first held-out row of this length, else of the next longer one, else any."""
    sizes = [int(size) for size in held_out.lengths_B]
    rows = [row for row in range(len(sizes)) if row not in used]
    return sorted(rows, key=lambda row: (sizes[row] < length, sizes[row]))[:1]
