import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from playground.tasks import load_task
from playground.tasks.held_out import build_held_out_set, is_held_out, sample_training_batch
from tests.support.splitmix import splitmix64

COPY = load_task("copy")
REVERSE = load_task("reverse")


def padded(sequences, width=None, filler=0):
    lengths = [len(s) for s in sequences]
    rows = [[*s, *[filler] * ((width or max(lengths)) - len(s))] for s in sequences]
    return torch.tensor(rows), torch.tensor(lengths)


def sequences_of(batch):
    """Return the sequences of the sources as tuples, without EOS and PAD."""
    return [tuple(token for token in row if token > 2) for row in batch.source_BS.tolist()]


@given(st.lists(st.lists(st.integers(3, 64), min_size=1, max_size=40), min_size=1, max_size=10))
def test_the_hash_equals_the_same_arithmetic_in_plain_python(sequences):
    def expected(sequence):
        places = range(1, len(sequence) + 1)
        keys = [splitmix64(place * 0x9E3779B97F4A7C15 % 2**64) | 1 for place in places]
        return splitmix64(splitmix64(sum(map(int.__mul__, sequence, keys)) % 2**64)) % 16 == 0

    assert is_held_out(*padded(sequences)).tolist() == list(map(expected, sequences))


@given(
    st.lists(st.lists(st.integers(3, 12), min_size=1, max_size=8), min_size=1, max_size=30),
    st.integers(0, 5),
    st.integers(0, 12),
    st.randoms(use_true_random=False),
)
def test_the_side_of_a_sequence_depends_on_neither_padding_nor_neighbors(
    sequences, extra, filler, random
):
    single = [is_held_out(*padded([sequence])).item() for sequence in sequences]
    order = random.sample(range(len(sequences)), len(sequences))
    padded_batch = is_held_out(
        *padded([sequences[at] for at in order], max(map(len, sequences)) + extra, filler)
    )
    assert padded_batch.tolist() == [single[at] for at in order]


def test_batch_sampling_is_independent_of_torch_global_generator():
    generator = torch.Generator().manual_seed(5)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    batch = sample_training_batch(REVERSE, 8, 1, 6, generator)
    requested = build_held_out_set(REVERSE, 50, 1, 8)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again = sample_training_batch(REVERSE, 8, 1, 6, generator.manual_seed(5))
    assert torch.equal(again.source_BS, batch.source_BS)
    repeated = build_held_out_set(REVERSE, 50, 1, 8)
    assert torch.equal(repeated.batch.source_BS, requested.batch.source_BS)


def test_training_batches_have_even_lengths_symbols_and_one_width():
    generator = torch.Generator().manual_seed(0)
    batch = sample_training_batch(REVERSE, 8000, 2, 6, generator)
    assert batch.source_BS.shape == (8000, 7)
    lengths_B = (batch.source_BS > 2).sum(1)
    assert sorted(set(lengths_B.tolist())) == [2, 3, 4, 5, 6]
    assert torch.bincount(lengths_B)[2:].min() > 1400
    assert torch.bincount(batch.source_BS[batch.source_BS > 2])[3:].min() > 2800
    assert batch.source_BS.max() == 12


def test_exactly_the_held_out_rows_of_a_training_batch_have_weight_zero():
    generator = torch.Generator().manual_seed(0)
    for min_length, max_length in ((1, 3), (4, 4), (1, 10)):
        batch = sample_training_batch(REVERSE, 500, min_length, max_length, generator)
        held = [bool(is_held_out(*padded([s]))) for s in sequences_of(batch)]
        assert batch.loss_weight_B.tolist() == [0.0 if out else 1.0 for out in held]
        assert 0 < sum(held) < 500


@pytest.mark.parametrize(
    ("n", "min_length", "max_length"),
    [(1, 1, 1), (700, 3, 7), (100, 20, 24), (50_000, 6, 6)],  # of some 62,500 in the last
)
def test_held_out_sequences_are_distinct_and_deterministic(n, min_length, max_length):
    requested = build_held_out_set(REVERSE, n, min_length, max_length)
    sequences = sequences_of(requested.batch)
    assert len(set(sequences)) == len(sequences) == n
    assert is_held_out(*padded(sequences)).all()
    assert [len(s) for s in sequences] == requested.lengths_B.tolist()
    assert {min_length, max_length} >= {min(map(len, sequences)), max(map(len, sequences))}
    assert requested.batch.source_BS.shape == (n, max_length + 1)
    assert requested.batch.loss_weight_B.tolist() == [1.0] * n
    repeated = build_held_out_set(REVERSE, n, min_length, max_length)
    assert torch.equal(repeated.batch.source_BS, requested.batch.source_BS)
    assert torch.equal(repeated.batch.target_BT, requested.batch.target_BT)


def test_reverse_and_copy_have_the_same_held_out_sequences():
    one, other = (build_held_out_set(task, 300, 1, 8).batch for task in (REVERSE, COPY))
    assert sequences_of(one) == sequences_of(other)


def test_counting_in_several_pieces_finds_the_same():
    every_NL = (torch.arange(2**17)[:, None] >> torch.arange(17)) % 2 + 3
    expected = int(is_held_out(every_NL, torch.full((2**17,), 17)).sum())
    requested = build_held_out_set(load_task("copy", 2), 10**6, 17, 17)
    assert requested.num_available == {17: expected}
    assert len(set(sequences_of(requested.batch))) == len(requested.lengths_B) == expected


def test_lengths_with_too_many_sequences_to_list_are_not_counted():
    n_by_length = build_held_out_set(REVERSE, 10, 1, 8).num_available
    assert [length for length, n in n_by_length.items() if n is None] == [6, 7, 8]


def test_rare_short_lengths_are_replaced_by_longer_ones():
    requested = build_held_out_set(REVERSE, 2000, 1, 10)
    n = torch.bincount(requested.lengths_B).tolist()[1:]
    assert n[:3] == [requested.num_available[length] for length in (1, 2, 3)] == [1, 6, 67]
    assert sum(n) == 2000
    assert max(n[3:]) - min(n[3:]) <= 1


@pytest.mark.parametrize(
    ("symbols", "min_length", "max_length"), [(2, 1, 8), (5, 2, 4), (10, 1, 3)]
)
def test_fewer_sequences_are_returned_only_where_fewer_exist(symbols, min_length, max_length):
    task = load_task("copy", symbols)
    exist = sum(build_held_out_set(task, 1, min_length, max_length).num_available.values())
    for n in (1, 2, 3, 5, exist // 2, exist - 1, exist, exist + 1, 10 * exist):
        sequences = sequences_of(build_held_out_set(task, n, min_length, max_length).batch)
        assert len(set(sequences)) == len(sequences) == min(n, exist)
