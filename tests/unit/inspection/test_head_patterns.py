import dataclasses
import math

import numpy as np
import pytest
import torch

from playground.inspection import head_patterns as heads_module
from playground.inspection.attention_recording import record_teacher_forced
from playground.inspection.head_patterns import PATTERNS, score_heads
from playground.inspection.hooks import Component, all_heads
from playground.inspection.inspected_model import InspectedModel
from playground.tasks.task import Task
from tests.support.handcrafted_models import (
    REVERSING_HEAD,
    random_model,
    reversing_model,
    score_held_out,
)

S = 6  # five symbols and EOS


@pytest.fixture
def scored(monkeypatch):
    """Return the scores of the one head of a small model with the attention of a test."""

    def score(kind, weights_QM):
        subject = random_model(n_layers=1, n_heads=1, min_length=1, max_length=5)
        batch = subject.encode_text("31415")
        recording = record_teacher_forced(subject.transformer, batch)
        message = dict(recording.attention_weights) | {kind: weights_QM[None, None, None]}
        monkeypatch.setattr(
            heads_module,
            "record_teacher_forced",
            lambda family, batch: dataclasses.replace(recording, attention_weights=message),
        )
        return next(s for s in score_heads(subject, batch) if s.head.kind == kind)

    return score


def rows(*places):
    """Return attention whose row i is entirely on position i."""
    return torch.eye(S)[list(places)]


@pytest.mark.parametrize(
    ("kind", "weights", "pattern"),
    [
        ("encoder", rows(0, 1, 2, 3, 4, 5), "diagonal"),
        ("cross", rows(0, 1, 2, 3, 4, 5), "diagonal"),
        ("decoder", rows(0, 1, 2, 3, 4, 5), "diagonal"),
        ("encoder", rows(4, 3, 2, 1, 0, 0), "anti-diagonal"),
        ("cross", rows(4, 3, 2, 1, 0, 0), "anti-diagonal"),
        ("encoder", rows(0, 0, 1, 2, 3, 4), "previous"),
        ("decoder", rows(0, 0, 1, 2, 3, 4), "previous"),
        ("cross", rows(1, 2, 3, 4, 5, 0), "next"),
        ("cross", rows(0, 0, 0, 0, 0, 0), "first"),
        ("decoder", rows(0, 0, 0, 0, 0, 0), "first"),
        ("encoder", rows(5, 5, 5, 5, 5, 5), "last"),
    ],
)
def test_a_pure_attention_pattern_scores_one_with_zero_entropy(scored, kind, weights, pattern):
    score = scored(kind, weights)
    assert score.patterns[pattern] == 1
    assert score.best_pattern == pattern
    assert (score.entropy, sum(v == 1 for v in score.patterns.values())) == (0, 1)


@pytest.mark.parametrize("kind", ["encoder", "cross", "decoder"])
def test_uniform_attention_scores_one_on_uniform_baseline_elsewhere(scored, kind):
    weights = torch.ones(S, S).tril() if kind == "decoder" else torch.ones(S, S)
    score = scored(kind, weights / weights.sum(-1, keepdim=True))
    assert score.patterns["uniform"] == pytest.approx(1)
    assert score.entropy == pytest.approx(score.max_entropy)
    n_possible = range(2, 7) if kind == "decoder" else [6] * 5
    assert score.max_entropy == pytest.approx(sum(map(math.log, n_possible)) / 5)
    for name in PATTERNS:
        if name != "uniform" and score.patterns[name] is not None:
            assert score.patterns[name] == pytest.approx(score.uniform_baseline[name], abs=1e-6)
    assert score.best_pattern == "uniform"
    assert score.uniform_baseline["first"] == pytest.approx(sum(1 / k for k in n_possible) / 5)


def test_a_decoder_has_no_score_for_future_positions(scored):
    score = scored("decoder", rows(0, 1, 2, 3, 4, 5))
    assert [name for name, value in score.patterns.items() if value is None] == ["next", "last"]
    assert (score.alignment_fraction, score.alignment_distance) == (None, None)


def test_a_head_that_is_partly_on_a_pattern_scores_its_share(scored):
    score = scored("cross", 0.25 * rows(0, 1, 2, 3, 4, 5) + 0.75 * rows(4, 3, 2, 1, 0, 0))
    # the middle row lies on both
    assert score.patterns["diagonal"] == pytest.approx((4 * 0.25 + 1 + 0.25) / 6)
    # the row of EOS has no place on it
    assert score.patterns["anti-diagonal"] == pytest.approx((4 * 0.75 + 1) / 5)
    assert score.entropy == pytest.approx(5 / 6 * -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))


@pytest.mark.parametrize(
    ("places", "aligned", "distance"),
    [
        ((4, 3, 2, 1, 0, 5), 1, 0),
        ((5, 4, 3, 2, 1, 5), 0, 1),
        ((0, 0, 0, 0, 0, 0), 0.2, 2),
        ((4, 3, 2, 1, 0, 0), 1, 0),
    ],
)
def test_the_distance_to_the_ideal_alignment_is_counted_in_positions(
    scored, places, aligned, distance
):
    score = scored("cross", rows(*places))
    actual = score.alignment_fraction, score.alignment_distance
    assert actual == pytest.approx((aligned, distance))


def test_the_head_that_reverses_is_the_only_one_detected():
    subject = reversing_model()
    scores = {score.head: score for score in score_held_out(subject)}
    assert list(scores) == all_heads(subject.transformer.config)
    worker = scores.pop(Component("cross", *REVERSING_HEAD))
    assert worker.alignment_fraction > 0.999
    assert worker.alignment_distance < 0.001
    assert worker.best_pattern == "anti-diagonal"
    assert all(score.patterns["anti-diagonal"] < 0.5 for score in scores.values())
    others = [score for score in scores.values() if score.head.kind == "cross"]
    assert all(score.alignment_distance > 0.5 for score in others)


def test_padding_counts_for_nothing():
    subject = random_model()
    batch = subject.held_out(60).batch
    together = score_heads(subject, batch)
    parts = []
    for row in range(60):
        one = batch.select(torch.tensor([row]))
        n = int((one.source_BS != 0).sum())
        source_BS, target_BT = one.source_BS[:, :n], one.target_BT[:, : n + 1]
        alone = dataclasses.replace(one, source_BS=source_BS, target_BT=target_BT)
        parts.append((n, score_heads(subject, alone)))
    for i, score in enumerate(together):
        n_rows = [n - (score.head.kind == "decoder") for n, _ in parts]  # SOS has nothing to choose
        for name in ("uniform", "first"):
            values = [alone[i].patterns[name] for _, alone in parts]
            assert score.patterns[name] == pytest.approx(
                np.average(values, weights=n_rows), abs=1e-5
            )


def test_a_task_without_alignment_has_no_distance(mixed):
    class Silent(Task):
        name, example, target = "silent", ("1", "1"), type(mixed.task).target

    scores = score_held_out(InspectedModel(mixed.config, mixed.transformer, Silent()), 20)
    assert {(each.alignment_distance, each.alignment_fraction) for each in scores} == {(None, None)}
