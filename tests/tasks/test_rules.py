import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from playground.tasks import TASKS, load_task
from playground.tasks.task import make_batch

ANSWERS = {"reverse": lambda symbols: symbols[::-1], "copy": lambda symbols: symbols}
rows = st.lists(st.lists(st.integers(3, 12), min_size=1, max_size=8), min_size=1, max_size=6)


def padded(sequences, filler):
    """Rows of one width, and their lengths; what stands behind the length is drawn from `filler`."""
    width = max(map(len, sequences))
    return torch.tensor([s + filler[: width - len(s)] for s in sequences]), torch.tensor([len(s) for s in sequences])


def test_every_task_has_its_answer_in_this_file():
    assert set(ANSWERS) == set(TASKS)


@pytest.mark.parametrize("name", TASKS)
@given(sequences=rows, filler=st.lists(st.integers(0, 12), min_size=8, max_size=8))
def test_answers_equal_plain_python_whatever_stands_in_the_padding(name, sequences, filler):
    task = load_task(name)
    answer_BL, lengths_B = task.answer(*padded(sequences, filler))
    answers = [row[:length] for row, length in zip(answer_BL.tolist(), lengths_B.tolist(), strict=True)]
    assert answers == [ANSWERS[name](sequence) for sequence in sequences]


@pytest.mark.parametrize("name", TASKS)
@given(sequences=rows, filler=st.lists(st.integers(0, 12), min_size=8, max_size=8))
def test_batches_hold_no_trace_of_what_stood_in_the_padding(name, sequences, filler):
    task = load_task(name)
    batch, clean = make_batch(task, *padded(sequences, filler)), make_batch(task, *padded(sequences, [0] * 8))
    assert torch.equal(batch.source_BS, clean.source_BS)
    assert torch.equal(batch.target_BT, clean.target_BT)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_the_alignment_names_the_source_position_of_every_answer_position(name, length):
    task = load_task(name)
    sequence = list(range(3, 3 + length))  # all different, so that a position can be told by its symbol
    answer_BL, _ = task.answer(torch.tensor([sequence]), torch.tensor([length]))
    assert [sequence[at] for at in task.alignment(length)] == answer_BL[0].tolist()


@pytest.mark.parametrize("name", TASKS)
def test_the_example_of_a_task_is_what_the_task_does(name):
    task = load_task(name)
    question, answer = map(task.vocabulary.encode, task.example)
    answer_BL, lengths_B = task.answer(torch.tensor([question]), torch.tensor([len(question)]))
    assert answer_BL[0, : lengths_B[0]].tolist() == answer
    assert task.name == name


@pytest.mark.parametrize("name", TASKS)
def test_no_answer_is_longer_than_the_task_says(name):
    task = load_task(name)
    for length in range(1, 7):
        assert int(task.answer(torch.full((1, length), 3), torch.tensor([length]))[1]) <= task.answer_length(length)


def test_an_unknown_task_is_refused_with_the_names_of_the_known():
    with pytest.raises(ValueError, match="'sort'; choose one of reverse, copy"):
        load_task("sort")
