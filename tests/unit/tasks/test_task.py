import inspect
import textwrap

import torch

from playground.tasks import EOS, PAD, SOS, load_task
from playground.tasks.task import Task, append_eos, make_batch


def documented_task():
    """The class in the docstring of Task."""
    doc = inspect.cleandoc(Task.__doc__)
    names = {"Task": Task}
    exec(textwrap.dedent(doc[doc.index("    class Tail") :]), names)
    return names["Tail"]()


def test_sources_end_with_eos_and_targets_stand_between_sos_and_eos():
    sequence_BL = torch.tensor([[3, 4, 5], [6, 12, 12]])
    batch = make_batch(load_task("reverse"), sequence_BL, torch.tensor([3, 1]))
    assert batch.source_BS.tolist() == [[3, 4, 5, EOS], [6, EOS, PAD, PAD]]
    assert batch.target_BT.tolist() == [[SOS, 5, 4, 3, EOS], [SOS, 6, EOS, PAD, PAD]]
    assert batch.loss_weight_B.tolist() == [1.0, 1.0]
    assert batch.decoder_input_BT.tolist() == [[SOS, 5, 4, 3], [SOS, 6, EOS, PAD]]
    assert batch.labels_BT.tolist() == [[5, 4, 3, EOS], [6, EOS, PAD, PAD]]


def test_widths_are_fixed_by_the_longest_length_and_not_by_the_rows():
    for lengths in ([1, 1], [1, 7], [7, 7]):
        batch = make_batch(load_task("reverse"), torch.full((2, 7), 3), torch.tensor(lengths))
        assert batch.source_BS.shape == (2, 8)
        assert batch.target_BT.shape == (2, 9)


def test_a_sequence_of_no_symbols_is_eos_alone():
    assert append_eos(torch.tensor([[9, 9]]), torch.tensor([0])).tolist() == [[EOS, PAD, PAD]]


def test_rows_of_a_batch_are_picked_by_number_and_by_mask():
    sequence_BL, weights_B = torch.tensor([[3], [4], [5]]), torch.tensor([1.0, 0.0, 1.0])
    batch = make_batch(load_task("copy"), sequence_BL, torch.tensor([1, 1, 1]), weights_B)
    for index, symbols, weights in (
        (torch.tensor([2, 1]), [5, 4], [1.0, 0.0]),
        (torch.tensor([True, False, True]), [3, 5], [1.0, 1.0]),
    ):
        selected = batch.select(index)
        assert selected.source_BS[:, 0].tolist() == symbols
        assert selected.target_BT[:, 1].tolist() == symbols
        assert selected.loss_weight_B.tolist() == weights


def test_the_documented_task_produces_its_example():
    tail = documented_task()
    source, target = map(tail.vocabulary.encode, tail.example)
    batch = make_batch(tail, torch.tensor([source, [3, 12, 12]]), torch.tensor([len(source), 1]))
    assert batch.labels_BT.tolist() == [[*target, EOS, PAD], [EOS, PAD, PAD, PAD]]
