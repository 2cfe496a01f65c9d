"""View of the training technique: the smoothed target of a token, and the learning rate.

Shapes: T target, V vocabulary.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from playground.inspection.attention_recording import record_teacher_forced
from playground.inspection.inspected_model import InspectedModel
from playground.training.lr_schedule import learning_rate_at
from playground.training.train_config import TrainConfig

from .common import answer_fields
from .request import choice_field, int_field, json_array, json_number, source_text

SMOOTHING = 0.1  # Vaswani et al. 2017, section 5.4
SCHEDULE_STEPS = 20_000
SCHEDULE_POINTS = 200
# d_model and warm-up of the paper's schedule, and of two others that tutorials draw beside it
PAPER_SCHEDULES = ((512, 4000), (512, 8000), (256, 4000))
SCHEDULES = ("paper", "model")


@torch.no_grad()
def training(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the target of one position without and with label smoothing, and learning rates.

    The losses are those of the model after teacher forcing. `lowest` is the loss of a model that
    predicts the smoothed target exactly: its entropy.
    """
    which = choice_field(request, "schedule", SCHEDULES)
    batch = subject.encode_text(source_text(request))
    labels_T = batch.labels_BT[0]
    position = min(int_field(request, "position", 0, 10_000), len(labels_T) - 1)
    logits_TV = record_teacher_forced(subject.transformer, batch).logits_BTV[0]
    n_tokens = logits_TV.shape[1]
    one_hot_V = F.one_hot(labels_T[position], n_tokens).to(logits_TV.dtype)
    smoothed_V = (1 - SMOOTHING) * one_hot_V + SMOOTHING / n_tokens
    return {
        "position": position,
        "labels": subject.token_names(labels_T.tolist()),
        "smoothing": SMOOTHING,
        "names": subject.token_names(list(range(n_tokens))),
        "one_hot": json_array(one_hot_V),
        "smoothed": json_array(smoothed_V),
        "predicted": json_array(logits_TV[position].softmax(-1)),
        "losses": {
            "plain": _loss(logits_TV, labels_T, position, 0.0),
            "smoothed": _loss(logits_TV, labels_T, position, SMOOTHING),
            "lowest": json_number(float(-(smoothed_V * smoothed_V.log()).sum())),
        },
        "schedule": which,
        "rates": _paper_rates() if which == "paper" else _model_rates(subject),
        **answer_fields(subject, batch, subject.generated_tokens(batch)),
    }


def _loss(
    logits_TV: torch.Tensor, labels_T: torch.Tensor, position: int, smoothing: float
) -> float | None:
    loss_T = F.cross_entropy(logits_TV, labels_T, reduction="none", label_smoothing=smoothing)
    return json_number(float(loss_T[position]))


def _paper_rates() -> list[dict[str, Any]]:
    """Return the paper's schedule for several sizes, over enough steps to see its peak."""
    return [
        _rates(
            f"d_model {d_model}, warm-up {warmup_steps:,}",
            TrainConfig(lr_schedule="noam", learning_rate=1.0, warmup_steps=warmup_steps),
            d_model,
            SCHEDULE_STEPS,
        )
        for d_model, warmup_steps in PAPER_SCHEDULES
    ]


def _model_rates(subject: InspectedModel) -> list[dict[str, Any]]:
    """Return the schedule of the model, and the paper's with the sizes of the model."""
    config = subject.config.training
    d_model, n_steps = subject.transformer.config.d_model, config.max_steps
    paper = replace(config, lr_schedule="noam", learning_rate=1.0, warmup_steps=4000)
    return [
        _rates(f"this model ({config.lr_schedule})", config, d_model, n_steps),
        _rates(f"paper, d_model {d_model}, warm-up 4,000", paper, d_model, n_steps),
    ]


def _rates(label: str, config: TrainConfig, d_model: int, n_steps: int) -> dict[str, Any]:
    """Return the rates of a schedule, with its peak."""
    stride = max(1, n_steps // SCHEDULE_POINTS)
    steps = sorted({1, *range(stride, n_steps + 1, stride), n_steps})
    rates = [learning_rate_at(config, d_model, step) for step in steps]
    peak = max(range(len(rates)), key=rates.__getitem__)
    return {
        "label": label,
        "steps": steps,
        "rates": [json_number(rate, 4) for rate in rates],
        "peak": [steps[peak], json_number(rates[peak], 3)],
    }


VIEWS = {"training": training}
