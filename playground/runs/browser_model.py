"""Models that the engine of the page (ui/static/engine) runs, and what else it needs."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

from playground.architectures.parameter_groups import parameter_count
from playground.tasks import PAD
from playground.training.run_config import RunConfig

if TYPE_CHECKING:
    from playground.inspection.inspected_model import InspectedModel

ARCHITECTURES = ("transformer", "decoder-only", "encoder-only")
MAX_PARAMETERS = 5_000_000
MAX_PASS = 500_000_000  # multiply-adds of one: half a second in the browser
NUM_EXAMPLES = 256  # held-out sequences that the page scores


def runs_in_browser(config: RunConfig) -> bool:
    """Return whether the page computes the outputs of such a model by itself."""
    n_parameters = parameter_count(config.model)
    n_tokens = config.task.max_length + config.task.max_sequence_length
    return (
        config.architecture in ARCHITECTURES
        and config.task.predict_eos  # the engine finds the end of an output by it
        and n_parameters <= MAX_PARAMETERS
        and n_parameters * n_tokens <= MAX_PASS
    )


def describe_model(subject: InspectedModel, with_examples: bool = True) -> dict[str, Any]:
    """Return settings, tokens and task of a model, and held-out examples in random order.

    Without examples, the list is empty: they are rows of the data.
    """
    config, task = subject.config, subject.task
    return {
        "architecture": config.architecture,
        "model": dataclasses.asdict(config.model),
        "task": config.task.task,
        "symbols": list(task.vocabulary.symbols),
        "n_symbols": task.n_symbols,
        "max_tokens": subject.max_target_tokens,
        "lengths": [config.task.min_length, config.task.max_length],
        "examples": _examples(subject) if with_examples else [],
    }


def _examples(subject: InspectedModel) -> list[dict[str, list[int]]]:
    batch = subject.held_out(NUM_EXAMPLES).batch
    sources, labels = (
        [[token for token in row if token != PAD] for row in rows.tolist()]
        for rows in (batch.source_BS, batch.labels_BT)
    )
    examples = [
        {"source": source, "labels": target} for source, target in zip(sources, labels, strict=True)
    ]
    random.Random(0).shuffle(examples)  # the first ones stand for all, in averages and bars
    return examples
