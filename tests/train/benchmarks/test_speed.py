"""The speed benchmarks run at tiny sizes, and their tables name the measurements."""

import pytest
import torch

from benchmarks import _timing, decoding, scaling, steps
from benchmarks.flops import counted_flops
from benchmarks.reference_models import CANDIDATES, OURS
from playground.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("frozen_heap")


@pytest.fixture(autouse=True)
def briefly(monkeypatch):
    """Measure few rounds, and restore the number of threads."""
    monkeypatch.setattr(_timing, "MIN_ROUNDS", 2)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_steps_are_compared_with_every_peer_in_either_loop():
    rows = steps.measure((steps.Setting(16, 4, 3, seconds=0, calls=1),))
    names = [row["contestant"] for row in rows["rows"]]
    assert len(names) == len(set(names)) == 2 * len(CANDIDATES)
    ours = rows["rows"][0]
    assert ours["ours_over"] == {"median": 1, "low": 1, "high": 1}
    assert 0 < ours["of_peak"]["low"] <= ours["of_peak"]["high"] < 1
    assert (
        "| d_model 16, batch 4, length 3 | BART, dropout 0, in a plain loop | 2 |"
        in steps.table(rows)
    )


def test_the_flops_of_a_step_are_those_of_its_products():
    """A step has three times the FLOPs of a forward pass, computed from the sizes."""
    setting = steps.Setting(64, 32, 10, seconds=0)
    config = setting.config().model
    d, tokens = 64, 32 * 11
    # 4 projections of one attention, 8 of two
    stacks = config.n_layers * ((4 + 8) * d * d + 2 * 2 * d * config.d_ff) * 2 * tokens
    scores = config.n_layers * 3 * 2 * 2 * 32 * 11 * 11 * d
    output = 2 * tokens * d * 13
    forward = stacks + scores + output
    assert counted_flops(Trainer(setting.config())) == pytest.approx(3 * forward, rel=0.02)


def test_packed_rows_need_fewer_products_than_padded_batches():
    config = steps.Setting(64, 32, 10, seconds=0, min_length=1).config()
    packed, padded = (counted_flops(Trainer(config, pack=each)) for each in (True, False))
    assert 0.4 * padded < packed < 0.8 * padded


def test_everybody_draws_the_same_batches(monkeypatch):
    drawn = []
    real = steps.sample_training_batch

    def record(*arguments):
        batch = real(*arguments)
        drawn.append(batch.source_BS)
        return batch

    monkeypatch.setattr(steps, "sample_training_batch", record)
    monkeypatch.setattr("playground.training.trainer.sample_training_batch", record)
    requested = steps.candidates(steps.Setting(16, 4, 3, seconds=0))
    for name in (
        f"{OURS}, {steps.IN_TRAINER}",
        f"x-transformers, {steps.PLAIN}",
        steps.TWO_THREADS,
    ):
        requested[name]()
        requested[name]()
    first, second = drawn[:2]
    assert not torch.equal(first, second)
    assert all(torch.equal(batch, (first, second)[n % 2]) for n, batch in enumerate(drawn))


@pytest.mark.smoke
def test_decoding_times_twenty_tokens_with_every_method():
    rows = decoding.measure(seconds=0, batches={2: 1})
    assert [row["n"] for row in rows["rows"]] == [2] * 7
    assert f"| 2 | {decoding.GENERATE} | 2 |" in decoding.table(rows)
    assert all(row["speedup"]["median"] > 0 for row in rows["rows"])


def test_an_exponent_is_recovered():
    sizes = [8, 16, 32, 64]
    assert scaling.exponent(sizes, [3.0 * n**1.7 for n in sizes]) == pytest.approx(1.7)
    # the upper half alone counts
    assert scaling.exponent(sizes, [1.0, 1.0, 32.0, 64.0]) == pytest.approx(1.0)


def test_training_memory_is_reproducible_and_covers_adam_state():
    one = scaling.trainer(4, 64)
    one.train_step()
    weights = sum(weight.nbytes for weight in one.model.parameters())
    alive = scaling.peak_tensor_bytes(one)
    assert 4 * weights < alive < 4 * weights + 2_000_000
    assert scaling.peak_tensor_bytes(one) == pytest.approx(alive, rel=0.01)


def test_growth_is_reported_beside_the_theory():
    rows = scaling.measure(lengths=(4, 8, 16), widths=(8, 16, 32), seconds=0)
    result = scaling.table(rows)
    assert "| length | 16 | 3 |" in result
    assert f"| width | {rows['exponents']['width']['seconds']:.2f} |" in result
    assert rows["exponents"]["length"]["flops"] > 1
