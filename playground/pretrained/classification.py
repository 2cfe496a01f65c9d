"""Text classification with the head of a model, or with randomly initialized heads."""

from typing import Any

import torch

from playground.jobs.progress import ProgressReporter

from .pipelines import newly_initialized_weights, open_pipeline
from .requests import JobRequest, ModelName, Text
from .resolver import resolve
from .tokens import tokenize, tokens

UNTRAINED_NOTE = "untrained: randomly initialized"
RANDOM_HEADS = 10  # randomly initialized heads of the demonstration
DEFAULT_LABELS = ("NEGATIVE", "POSITIVE")


class ClassificationRequest(JobRequest):
    """A request to classify a text."""

    model: ModelName = ""
    text: Text


def classify_text(pipe: Any, text: str, newly_initialized: list[str]) -> dict[str, Any]:
    """Return a text's labels with their probabilities, the most probable first.

    `trained` is false if the head is newly initialized.
    """
    ids = tokenize(pipe, text)
    labels = [
        {"label": each["label"], "probability": each["score"]} for each in pipe(text, top_k=None)
    ]
    notes = [
        (
            f"{UNTRAINED_NOTE}. This model has no classification head, so these weights were "
            f"randomly initialized when it was loaded: {', '.join(newly_initialized[:4])}. The "
            "label means nothing until a head is trained"
        )
    ]
    return {
        "tokens": tokens(pipe, ids),
        "labels": labels,
        "trained": not newly_initialized,
        "notes": notes if newly_initialized else [],
    }


def classify(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Classify a text; a model without a classification head gets `RANDOM_HEADS` random ones.

    `request`: see ClassificationRequest. With a classification head, the result is that of
    `classify_text`. Without one: `heads`, for each seed the label (POSITIVE or NEGATIVE) and its
    probability; `votes`, the number of heads per label; `trained` is false.
    """
    parsed = ClassificationRequest.parse(request)
    text, resolved = parsed.text, resolve(parsed.model, progress)
    pipe = open_pipeline("text-classification", resolved, progress)
    newly_initialized = newly_initialized_weights("text-classification", resolved)
    if not newly_initialized:
        return {
            "model": resolved.name,
            "text": text,
            **classify_text(pipe, text, newly_initialized),
        }
    ids = tokenize(pipe, text)
    progress.message(f"Running {RANDOM_HEADS} randomly initialized heads")
    heads = []
    for seed in range(RANDOM_HEADS):
        probabilities = _predict_with_random_head(pipe.model, newly_initialized, ids, seed)
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        label = (
            DEFAULT_LABELS[best] if len(probabilities) == len(DEFAULT_LABELS) else f"LABEL_{best}"
        )
        heads.append({"seed": seed, "label": label, "probability": probabilities[best]})
        progress.row(heads[-1])
    votes = {label: sum(head["label"] == label for head in heads) for label in DEFAULT_LABELS}
    sentence = " and ".join(f"{votes[label]} predict {label}" for label in reversed(DEFAULT_LABELS))
    return {
        "model": resolved.name,
        "text": text,
        "trained": False,
        "heads": heads,
        "votes": votes,
        "notes": [
            (
                f"{UNTRAINED_NOTE}. Of {RANDOM_HEADS} randomly initialized heads {sentence}: the "
                "label depends on the seed, not on the text"
            )
        ],
    }


@torch.no_grad()
def _predict_with_random_head(
    model: Any, newly_initialized: list[str], ids: list[int], seed: int
) -> list[float]:
    """Return the label probabilities with a newly initialized head.

    The initialization is that of the model's configuration. The model's own weights are restored.
    """
    weights = {name: each for name, each in model.named_parameters() if name in newly_initialized}
    before = {name: each.clone() for name, each in weights.items()}
    chance = torch.Generator().manual_seed(seed)
    spread = float(getattr(model.config, "initializer_range", 0.02))
    try:
        for name, each in weights.items():
            each.zero_() if name.endswith("bias") else each.copy_(
                spread * torch.randn(each.shape, generator=chance)
            )
        logits_C = model(input_ids=torch.tensor([ids], device=model.device)).logits[0]
        probabilities: list[float] = logits_C.float().softmax(-1).tolist()
        return probabilities
    finally:
        for name, each in weights.items():
            each.copy_(before[name])
