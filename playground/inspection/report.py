"""All inspection results of one model and one sequence as plain data, for figures and files.

Every value can be serialized as JSON. Tables are lists of rows with the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from playground.models.positions import sinusoid
from playground.tasks.task import Batch

from .ablation import SEQUENCES, WAYS, Ablation, Effect
from .components import ATTENTION, Component, heads
from .embeddings import position_table, wavelength
from .heads import PATTERNS, HeadScore, score_heads, scores_over_training
from .lens import contributions, logit_lens
from .recording import Recording, record_free
from .steps import recorded_steps
from .subject import Question, Subject

DIGITS = 6


Answer = tuple[Recording, torch.Tensor]  # a recorded free-running decoding, and its tokens


def own_answer(subject: Subject, batch: Batch) -> Answer:
    """Generate the model's output for one sequence, and record its attention weights."""
    return record_free(subject.family, batch.source_BS, subject.max_tokens(batch))


def attention(
    subject: Subject, batch: Batch, answer: Answer | None = None
) -> dict[str, dict[str, Any]]:
    """Return the attention weights of free-running decoding for each type of attention.

    `weights` is [layer][head][row][column] and `possible` is [row][column]; `rows` and `columns`
    are names. The rows of decoder self-attention and cross-attention are the generated tokens. The
    columns of decoder self-attention are the decoder input. An `answer` from `own_answer` is
    reused.
    """
    recording, written_BT = answer or own_answer(subject, batch)
    source, given = (
        subject.names(batch.source_BS[0].tolist()),
        subject.names(recording.given_BT[0].tolist()),
    )
    written = subject.names(written_BT[0].tolist())
    labels = {"encoder": (source, source), "decoder": (written, given), "cross": (written, source)}
    return {
        kind: {
            "kind": kind,
            "title": Component(kind).name,
            **_matrix(recording, kind, *labels[kind]),
        }
        for kind in ATTENTION
    }


def head(
    subject: Subject, batch: Batch, part: Component, answer: Answer | None = None
) -> dict[str, Any]:
    """Return one head of `attention`: `weights` is [row][column]."""
    whole = attention(subject, batch, answer)[part.kind]
    return whole | {
        "title": part.name,
        "weights": whole["weights"][part.layer or 0][part.head or 0],
    }


def cross_attention_by_step(
    subject: Subject, batch: Question, answer: Answer | None = None
) -> dict[str, Any]:
    """Return each decoding step with its cross-attention weights.

    A step has the prefix (`written`), the next token and its probability, the five most likely
    tokens, and `weights` [head][column] with the heads of all layers in order.
    """
    names = subject.names
    steps = [
        {
            "written": names(step.given),
            "next": names([step.chosen])[0],
            "right": names([step.right])[0] if batch.known and step.right is not None else None,
            "probability": round(step.probability, DIGITS),
            "candidates": [[names([token])[0], round(p, DIGITS)] for token, p in step.candidates],
            "weights": _numbers(step.cross_LHS.flatten(0, 1)),
        }
        for step in recorded_steps(*(answer or own_answer(subject, batch)), batch)
    ]
    found = heads(subject.family.config, "cross")
    return {
        "columns": names(batch.source_BS[0].tolist()),
        "heads": [part.name.removeprefix("cross-attention, ") for part in found],
        "steps": steps,
    }


def ablation_table(effects: Iterable[Effect], n: int) -> list[dict[str, Any]]:
    """Return one row per effect: the ablation, and both measures before and after it.

    The measures are over `n` sequences.
    """
    return [
        {
            "name": effect.name,
            "how": effect.how,
            "kept": effect.kept,
            "n": n,
            "exact_match_before": effect.before.exact_match,
            "exact_match": effect.after.exact_match,
            "log_probability_before": round(effect.before.log_probability, DIGITS),
            "log_probability": round(effect.after.log_probability, DIGITS),
            "log_probability_lost": round(effect.log_probability_lost, DIGITS),
        }
        for effect in effects
    ]


def head_table(scores: Iterable[HeadScore]) -> list[dict[str, Any]]:
    """Return one row per head.

    A row has the head's pattern and its description, the fraction of attention on each pattern,
    the entropy, and the distance to the task's alignment.
    """
    return [
        {
            "name": score.head.name,
            "kind": score.head.kind,
            "best": score.best,
            "says": score.description,
            **{name: _round(score.patterns[name]) for name in PATTERNS},
            "entropy": _round(score.entropy),
            "most_entropy": _round(score.most_entropy),
            "aligned": _round(score.aligned),
            "distance": _round(score.distance),
        }
        for score in scores
    ]


def heads_over_training(scores: Mapping[int, list[HeadScore]]) -> list[dict[str, Any]]:
    """Return the rows of `head_table` for each training step, with the step."""
    return [{"step": step, **row} for step, found in scores.items() for row in head_table(found)]


def lens(subject: Subject, batch: Question) -> dict[str, Any]:
    """Return the logit lens of a teacher-forced pass.

    For each layer ([0] is the embedding) and position: the most likely token, its probability, and
    the probability of the target. If `known` is false, the model's output replaces the target.
    """
    probabilities_LTV = logit_lens(subject.family, batch)[:, 0].softmax(-1)
    labels = batch.labels_BT[0]
    best_LT = probabilities_LTV.max(-1)
    right_LT = probabilities_LTV[:, torch.arange(len(labels), device=labels.device), labels]
    return {
        "layers": [
            "embedding",
            *(f"layer {layer + 1}" for layer in range(subject.family.config.n_layers)),
        ],
        "columns": subject.names(labels.tolist()),
        "known": batch.known,
        "symbols": [subject.names(row) for row in best_LT.indices.tolist()],
        "probability": _numbers(best_LT.values),
        "right": _numbers(right_LT),
    }


def contribution_table(
    subject: Subject, batch: Batch, position: int | None = None
) -> list[dict[str, Any]]:
    """Return one row per contribution to the logit difference of the two most likely tokens.

    The default position is the one with the smallest difference.
    """
    with torch.no_grad():
        best_T2 = subject.family(batch.source_BS, batch.decoder_input_BT)[0].topk(2)
    if position is None:
        position = int((best_T2.values[:, 0] - best_T2.values[:, 1]).argmin())
    best = best_T2.indices[position].tolist()
    token, against = subject.names(best)
    return [
        {
            "name": each.name,
            "position": position,
            "token": token,
            "against": against,
            "logit": round(each.logit, DIGITS),
        }
        for each in contributions(subject.family, batch, position, best[0], against=best[1])
    ]


def positions(subject: Subject) -> dict[str, Any] | None:
    """Return the position vectors of both sides, [position][dimension].

    They cover the lengths of the task's sequences; None for a model that adds no position vectors.
    Source vectors that are counted from the end are in that order, EOS first.
    """
    longest = subject.config.task.max_length + 1
    source_PD, target_PD = position_table(subject, "source"), position_table(subject, "target")
    if source_PD is None or target_PD is None:
        return None
    return {
        "kind": subject.family.config.positions,
        "source": _numbers(source_PD[:longest]),
        "target": _numbers(target_PD[: subject.longest_answer]),
    }


def sine_waves(
    n_positions: int = 100, d_model: int = 64, dimensions: Sequence[int] = (0, 14, 28, 42)
) -> dict[str, Any]:
    """Return the paper's sinusoidal position vectors, and the wavelengths of some dimensions.

    `matrix` is [position][dimension].
    """
    waves = [
        {"dimension": each, "wavelength": round(wavelength(each, d_model), DIGITS)}
        for each in dimensions
    ]
    return {"d_model": d_model, "matrix": _numbers(sinusoid(n_positions, d_model)), "waves": waves}


def report(
    subject: Subject,
    text: str,
    n: int = SEQUENCES,
    history: Mapping[int, Path] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return all results by the name of their figure.

    n         held-out sequences for the ablations
    history   the weights of earlier training steps, {step: file}
    tell      called with a message at each stage

    Raises:
        UnknownSymbol, NotInspectable: for an invalid sequence.
    """
    batch = subject.read(text)
    tell("recording attention")
    answer = own_answer(subject, batch)
    found: dict[str, Any] = {
        f"{kind}-attention": data for kind, data in attention(subject, batch, answer).items()
    }
    found["cross-attention-by-step"] = cross_attention_by_step(subject, batch, answer)
    found["logit-lens"] = lens(subject, batch)
    if subject.family.config.norm == "pre":
        found["contributions"] = contribution_table(subject, batch)
    vectors = positions(subject)
    if vectors is not None:
        found["positions"] = vectors
    found["sine-waves"] = sine_waves()
    tell("scoring heads")
    found["head-scores"] = head_table(score_heads(subject))
    ablation = Ablation(subject, n)
    asked = len(ablation.batch.source_BS)
    tell(f"ablating single components, each on {asked:,} held-out sequences")
    single = {how: ablation.ranking(how) for how in WAYS}
    found["ablation"] = ablation_table([effect for how in WAYS for effect in single[how]], asked)
    most_missed = next(effect for effect in single["zero"] if effect.parts[0].head is not None)
    found["head"] = head(subject, batch, most_missed.parts[0], answer)
    tell("ablating groups of components")
    found["ablation-groups"] = ablation_table(
        (effect for how in WAYS for effect in ablation.group_ranking(how)), asked
    )
    tell("keeping single heads and groups of heads only")
    found["keep-only"] = ablation_table(
        (effect for how in WAYS for effect in ablation.keep_only_ranking(how)), asked
    )
    if history:
        tell(f"scoring heads at {len(history)} steps of the run")
        found["heads-over-training"] = heads_over_training(
            scores_over_training(subject.config, history)
        )
    return found


def _matrix(recording: Recording, kind: str, rows: list[str], columns: list[str]) -> dict[str, Any]:
    return {
        "rows": rows,
        "columns": columns,
        "weights": _numbers(recording.attention[kind][:, 0]),
        "possible": recording.possible[kind][0].tolist(),
    }


def _numbers(tensor: torch.Tensor) -> Any:
    """Convert a tensor to nested lists of numbers with six decimals."""
    return (tensor.double() * 10**DIGITS).round().div(10**DIGITS).tolist()


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
