"""Compare the cross-attention of a pretrained encoder-decoder with that of a lesson's model.

The result is that of measurements.py. Shapes: L layers, H heads, Q queries, M memory.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from playground.inspection.attention_recording import record_teacher_forced
from playground.inspection.cross_attention_alignment import score_alignment
from playground.inspection.views.attention_maps import unpack_uint16

from .measurements import Result
from .trained_run import TrainedRun, percent, rounded

EXAMPLE_TEXT = "3 1 4 1 5"  # of the own model
CLEAR_SCORE = 0.5  # a head with at least this share of attention near the aligned token follows it


def pretrained_alignment(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure where the cross-attention heads of a pretrained model attend.

    `options["translation"]` is the result of a job of pretrained/attention/translation.py.
    """
    translation = options["translation"]
    name = translation["model"].rsplit("/", 1)[-1]
    pretrained = torch.tensor(translation["alignment"]["scores"])
    aligned = float(pretrained.mean())
    last = float(torch.tensor(translation["alignment"]["last"]).mean())
    shares = {"aligned": aligned, "last": last, "elsewhere": 1 - aligned - last}
    baseline = translation["alignment"]["baseline"]
    own_LHQM, source, target, alignment = _align_own_model(runs[0])
    own = torch.tensor(alignment["scores"])
    text = (
        f"{name} translates to “{translation['output']}”. It has {pretrained.numel()} "
        f"cross-attention heads. Of their attention, {percent(aligned)} is within one position of "
        f"the translated token; uniform attention would have {percent(baseline['score'])} there. "
        f"{percent(last)} is on the last source token (uniform: {percent(baseline['last'])}), and "
        f"{percent(shares['elsewhere'])} elsewhere. {_count_clear_heads(pretrained)} of the "
        f"{pretrained.numel()} heads have at least {percent(CLEAR_SCORE)} near the translated "
        f"token; the best has {percent(float(pretrained.max()))}. In your model, "
        f"{_count_clear_heads(own)} of {own.numel()} heads have as much near the digit to copy. "
        f"Its heads have {percent(float(own.mean()))} on average; the best has "
        f"{percent(float(own.max()))}. No example contains these alignments: both models learned "
        "them from pairs of source and target. The translated token is estimated from its "
        "position, so a translation that changes the order of the words scores lower."
    )
    value = max(shares, key=lambda share: shares[share])
    return {
        "value": value,
        "outcome": value,
        "explanation": text,
        "figures": [
            _head_map(f"Attention near the translated token, by head: {name}", pretrained),
            _head_map("Attention near the digit to copy, by head: your model", own),
            _pretrained_map(translation, name),
            _attention_map(own_LHQM, alignment["best"], source, target, "your model"),
        ],
    }


@torch.no_grad()
def _align_own_model(run: TrainedRun) -> tuple[Tensor, list[str], list[str], dict[str, Any]]:
    """Return cross-attention (LHQM), source, target and alignment on the example."""
    subject = run.subject
    batch = subject.encode_text(EXAMPLE_TEXT)
    recording = record_teacher_forced(subject.transformer, batch)
    weights_LHQM = recording.attention_weights["cross"][:, 0]
    source, target = (
        subject.token_names(tokens[0].tolist()) for tokens in (batch.source_BS, batch.labels_BT)
    )
    end = len(source) - 1
    aligned_Q = torch.tensor([*(subject.task.alignment(end) or range(end)), end])
    return weights_LHQM, source, target, score_alignment(weights_LHQM, aligned_Q)


def _count_clear_heads(scores_LH: Tensor) -> int:
    return int((scores_LH >= CLEAR_SCORE).sum())


def _head_map(title: str, scores_LH: Tensor) -> dict[str, Any]:
    """Return a figure with a cell for each head."""
    n_layers, n_heads = scores_LH.shape
    return {
        "kind": "map",
        "title": title,
        "rows": [f"layer {layer + 1}" for layer in range(n_layers)],
        "columns": [f"head {head + 1}" for head in range(n_heads)],
        "weights": rounded(scores_LH),
        "has_heads": True,
        "caption": "Rows: layers. Columns: heads. Each cell is a mean over the output tokens.",
    }


def _pretrained_map(translation: dict[str, Any], name: str) -> dict[str, Any]:
    cross = translation["attention"]["cross"]
    source, target = (
        [each["word"].strip() or each["token"] for each in translation[tokens]]
        for tokens in ("source", "generated")
    )
    shape = cross["layers"], cross["heads"], len(target), len(source)
    weights_LHQM = unpack_uint16(cross["weights"], *shape)
    best = translation["alignment"]["best"]
    return _attention_map(weights_LHQM, best, source, target, name)


def _attention_map(
    weights_LHQM: Tensor, best: dict[str, int], source: list[str], target: list[str], name: str
) -> dict[str, Any]:
    """Return the figure of the head with the best alignment."""
    layer, head = best["layer"], best["head"]
    return {
        "kind": "map",
        "title": f"Best aligned head of {name}: layer {layer + 1}, head {head + 1}",
        "rows": target,
        "columns": source,
        "weights": rounded(weights_LHQM[layer, head]),
        "is_generated": True,
    }
