"""The weight history that a run stores on disk.

The bytes of weights and states are arbitrary here.
"""

import resource
import signal
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.checkpoints.metrics import read_metrics
from playground.runs.weight_history import (
    STATE_EVERY_N_WEIGHTS,
    TRANSIENT_WEIGHTS,
    WEIGHTS_PER_DOUBLING,
    WeightHistory,
    is_retained,
    nearest_step,
    state_path,
    state_steps,
    weight_steps,
    weights_path,
)

STEPS = st.integers(0, 10_000_000)
UNLIMITED = 10**9
# off the grid, and with a state
ODD = next(
    step
    for step in range(0, 10**6, STATE_EVERY_N_WEIGHTS)
    if not is_retained(step, WEIGHTS_PER_DOUBLING[0])
)
AFTER = [
    step for step in range(ODD + 1, ODD + 40) if not is_retained(step, WEIGHTS_PER_DOUBLING[0])
]


def line(step):
    return {"step": step, "loss": 1 / step, "seconds": 0.5}


def lines_of(run):
    return [each["step"] for each in read_metrics(run)]


def opened(run, step=0, budget=UNLIMITED, lines=()):
    history = WeightHistory(run, budget)
    history.open(step, lines)
    return history


def trained(history, steps, weight=100, state=200, rendered=lambda step: False):
    """Store the steps as a worker does; return the last step with weights."""
    newest = None
    for step in steps:
        keep = history.should_save_state(step)
        if keep or rendered(step) or history.should_save_weights(step):
            history.save_weights(step, b"w" * weight, keep)
            newest = step
        if keep:
            history.save_state(step, b"s" * state)
    return newest


def bytes_in(run):
    return sum(path.stat().st_size for path in (run / "history").iterdir())


# The grid


@given(st.integers(0, 18), st.sampled_from(WEIGHTS_PER_DOUBLING))
def test_each_doubling_of_the_step_has_as_many_on_the_grid(doublings, fineness):
    low = fineness << doublings
    stride = max(1, (1 << doublings))
    steps_on_disk = [
        step for step in range(low, 2 * low, max(1, stride // 4)) if is_retained(step, fineness)
    ]
    assert len(steps_on_disk) == fineness
    assert {b - a for a, b in pairwise(steps_on_disk)} <= {stride}


@given(STEPS, st.integers(0, 6), st.integers(1, 3))
def test_a_finer_grid_holds_every_step_of_a_coarser_one(step, halvings, further):
    coarse, fine = 3 << halvings, 3 << (halvings + further)
    assert not is_retained(step, coarse) or is_retained(step, fine)


# What stays


def test_within_the_budget_all_weights_on_the_grid_and_all_states_stay(tmp_path):
    history = opened(tmp_path)
    trained(history, range(1001))
    states = [step for step in range(1, 1001) if step % STATE_EVERY_N_WEIGHTS == 0]
    assert state_steps(tmp_path) == states
    assert (
        weight_steps(tmp_path)
        == history.steps()
        == sorted({s for s in range(1001) if is_retained(s, WEIGHTS_PER_DOUBLING[0])} | set(states))
    )
    assert weights_path(tmp_path, states[-1]).read_bytes() == b"w" * 100
    assert state_path(tmp_path, states[-1]).read_bytes() == b"s" * 200


@settings(max_examples=20)
@given(
    budget=st.integers(3_000, 60_000),
    weight=st.integers(20, 2_500),
    more=st.integers(0, 200),
    last=st.integers(1, 1500),
    showing=st.integers(2, 40),
)
def test_the_budget_holds_at_every_step_and_the_first_and_the_newest_stay(
    tmp_path_factory, budget, weight, more, last, showing
):
    state = 2 * weight + more  # Adam keeps two numbers for each weight
    run = tmp_path_factory.mktemp("run")
    history, newest = opened(run, budget=budget), 0
    for step in range(last + 1):
        put = trained(history, [step], weight, state, rendered=lambda step: step % showing == 0)
        newest = newest if put is None else put
        if step % 50 == 0 or step == last:
            assert weight_steps(run) == history.steps()
            # those that stay regardless of their size
            assert bytes_in(run) <= budget + (TRANSIENT_WEIGHTS + 2) * weight
    steps_on_disk, states = weight_steps(run), state_steps(run)
    assert steps_on_disk[0] == 0
    assert steps_on_disk[-1] == newest
    assert set(states) <= set(steps_on_disk)
    assert {path.name for path in (run / "history").glob("*.state.safetensors")} == {
        f"{step}.state.safetensors" for step in states
    }


def test_full_history_budget_coarsens_steps_and_keeps_the_range(tmp_path):
    history = opened(tmp_path, budget=30_000)
    trained(history, range(5001))
    steps_on_disk, states = weight_steps(tmp_path), state_steps(tmp_path)
    assert 30 < len(steps_on_disk) < 200
    assert all(
        any(0.5 * step <= other <= step for other in steps_on_disk) for step in range(1, 5001)
    )
    strides = {b - a for a, b in pairwise(states)}
    assert len(strides) == 1
    assert states[0] == strides.pop() > STATE_EVERY_N_WEIGHTS
    assert states[-1] > 5000 - 2 * states[0]


def test_transient_weights_are_retained_if_a_saved_state_needs_them(tmp_path):
    history = opened(tmp_path)
    history.save_weights(ODD, b"w", keep=True)
    history.save_state(ODD, b"s")
    history.save_weights(ODD, b"w")  # as a pause at this step does
    for passing in AFTER:
        history.save_weights(passing, b"w")
    assert state_steps(tmp_path) == [ODD]
    reopened = opened(tmp_path, AFTER[-1])
    reopened.save_weights(ODD, b"w")  # as a worker does that goes on from here
    for passing in AFTER:
        reopened.save_weights(passing, b"w")
    assert state_steps(tmp_path) == [ODD]


def test_only_the_latest_transient_weights_remain(tmp_path):
    history = opened(tmp_path)
    odd = [step for step in range(1001, 1100) if not is_retained(step, WEIGHTS_PER_DOUBLING[0])]
    for step in odd:
        history.save_weights(step, b"w")
    assert weight_steps(tmp_path) == odd[-TRANSIENT_WEIGHTS:]
    assert history.steps() == odd[-TRANSIENT_WEIGHTS:]
    history.save_weights(1024, b"w")
    history.save_weights(odd[-1], b"w")
    assert weight_steps(tmp_path) == sorted([1024, *odd[-TRANSIENT_WEIGHTS:]])


# Looking up


def test_without_stored_weights_there_are_no_steps(tmp_path):
    assert weight_steps(tmp_path / "nowhere") == state_steps(tmp_path) == []


def test_files_of_others_in_the_history_are_no_steps(tmp_path):
    history = opened(tmp_path)
    history.save_weights(3, b"w")
    for name in (
        *("x.safetensors", "-4.safetensors", "5.safetensors.tmp", ".6.safetensors.ab.tmp", "7"),
        *("8.pt", "3.4.safetensors"),
    ):
        (tmp_path / "history" / name).write_bytes(b"x")
    assert weight_steps(tmp_path) == [3]
    assert state_steps(tmp_path) == []


@given(st.lists(STEPS, unique=True, max_size=20).map(sorted), STEPS)
def test_the_nearest_step_is_the_nearest_and_the_earlier_of_two(steps, step):
    assert nearest_step(steps, step) == min(
        steps, key=lambda other: (abs(other - step), other), default=None
    )


# Going on, going back


def test_resuming_removes_later_files_only(tmp_path):
    history = opened(tmp_path)
    trained(history, range(101))
    history.add(line(step) for step in range(1, 101))
    (tmp_path / "history" / ".99.safetensors.abcd1234.tmp").write_bytes(b"half")
    before = [step for step in weight_steps(tmp_path) if step <= 60]
    reopened = opened(tmp_path, 60)
    assert weight_steps(tmp_path) == reopened.steps() == before
    assert state_steps(tmp_path) == list(range(STATE_EVERY_N_WEIGHTS, 61, STATE_EVERY_N_WEIGHTS))
    assert lines_of(tmp_path) == list(range(1, 61))
    assert not list((tmp_path / "history").glob(".*"))
    reopened.add([line(61)])
    assert lines_of(tmp_path) == list(range(1, 62))


def test_a_line_that_was_cut_off_is_left_out_and_written_over(tmp_path):
    history = opened(tmp_path)
    history.add(line(step) for step in range(1, 11))
    complete = (tmp_path / "metrics.jsonl").read_bytes()
    for cut in range(1, len(complete) - complete.rstrip(b"\n").rfind(b"\n") - 1):
        (tmp_path / "metrics.jsonl").write_bytes(complete[:-cut])
        assert lines_of(tmp_path) == list(range(1, 10))
        reopened = opened(tmp_path, 9)
        reopened.add([line(10)])
        assert (tmp_path / "metrics.jsonl").read_bytes() == complete


def test_a_continued_history_stays_within_the_budget(tmp_path):
    trained(opened(tmp_path, budget=60_000), range(2001))
    for start in (2000, 2500, 2800):
        history = opened(tmp_path, start, budget=20_000)
        assert bytes_in(tmp_path) <= 20_000
        trained(history, range(start, start + 500))
        assert bytes_in(tmp_path) <= 20_000
        assert weight_steps(tmp_path)[0] == 0


@given(st.lists(st.integers(1, 7), min_size=1, max_size=12))
def test_lines_survive_a_round_trip_in_any_portions(tmp_path_factory, portions):
    run = tmp_path_factory.mktemp("run")
    history, step = opened(run), 0
    for portion in portions:
        history.add(line(each) for each in range(step + 1, step + portion + 1))
        step += portion
    assert list(read_metrics(run)) == [line(each) for each in range(1, step + 1)]
    history.flush()


# When the disk does not take it


@pytest.fixture
def limit_file_size():
    """Limit the size of a file that this process writes; 0 removes the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size or soft, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


def test_file_size_limit_loses_no_line_and_leaves_files_intact(tmp_path, limit_file_size):
    history = opened(tmp_path)
    history.add(line(step) for step in range(1, 101))
    history.save_weights(1, b"old")
    written = (tmp_path / "metrics.jsonl").read_bytes()
    limit_file_size(2 * len(written))
    for lines in ([line(step) for step in range(101, 400)], [line(400)], []):
        with pytest.raises(OSError, match="File too large"):
            history.add(lines)
        assert (tmp_path / "metrics.jsonl").read_bytes() == written
    with pytest.raises(OSError, match="File too large"):
        history.save_weights(2, b"w" * 1_000_000)
    limit_file_size(0)
    assert not list((tmp_path / "history").glob(".*"))
    assert weight_steps(tmp_path) == history.steps() == [1]
    history.add([line(401)])
    assert lines_of(tmp_path) == list(range(1, 402))
