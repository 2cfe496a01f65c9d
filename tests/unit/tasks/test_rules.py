import itertools
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.tasks import TASKS, load_task
from playground.tasks.held_out import build_held_out_set, is_held_out, sample_training_batch
from playground.tasks.vocabulary import ALPHABET
from playground.training.run_config import RunConfig
from tests.support.splitmix import splitmix64

PLUS = "+"


def fixed_by_chance(values, n):
    keys = [splitmix64((at + 1) * 0x9E3779B97F4A7C15 % 2**64) | 1 for at in range(len(values))]
    total = sum((value + 3) * k for value, k in zip(values, keys, strict=True))
    key = splitmix64(splitmix64(total % 2**64))
    return [(splitmix64(splitmix64(key ^ k)) >> 16) % 2**24 % n for k in keys]


def total(values, n):
    at = values.index(PLUS) if PLUS in values else len(values)
    numbers = values[:at], values[at + 1 :]
    left = sum(sum(digit * n**i for i, digit in enumerate(reversed(number))) for number in numbers)
    width = max(map(len, numbers)) + (PLUS in values)
    return [left // n**i % n for i in range(width)]


def matched(values):
    text = "".join(values)
    while "()" in text:
        text = text.replace("()", "")
    return [int(not text)]


DICTIONARY = {
    **{"two": "du", "three": "tri", "many": "mul", "and": "e"},
    **{"red": "ruv", "blue": "sin", "green": "vel", "big": "gam", "new": "nov", "small": "pet"},
    **{"dog": "kan", "cat": "mau", "bird": "fip", "car": "gar", "hat": "cap", "boat": "nav"},
    **{"see": "vid", "hear": "aud", "like": "am"},
}


def translated(words):
    """Translate with a dictionary, phrase by phrase."""
    verb, phrases, phrase = None, [], []
    for word in [*words, "and"]:
        stem = word if word in DICTIONARY else word.removesuffix("s")
        if word == "and" or stem in ("see", "hear", "like"):
            phrases.append(phrase)
            phrase = []
            verb = verb if word == "and" else DICTIONARY[stem]
        else:
            phrase.append(stem)
    answer, endings = [], []
    for at, (*modifiers, noun) in enumerate(phrases):
        endings.append("i" if noun in ("dog", "cat", "bird") else "o")
        answer += ["e"] * (at > 1) + [DICTIONARY[noun]]
        for word in reversed(modifiers):
            if word in ("two", "three", "many"):
                answer.append(DICTIONARY[word])
            elif word != "a":
                answer.append(DICTIONARY[word] + endings[-1])
    return answer + ([verb + endings[0]] if verb else [])


@st.composite
def noun_phrases(draw):
    determiner = draw(st.sampled_from(["a", "two", "three", "many"]))
    adjectives = st.sampled_from(["red", "blue", "green", "big", "new", "small"])
    noun = draw(st.sampled_from(["dog", "cat", "bird", "car", "hat", "boat"]))
    chosen = draw(st.lists(adjectives, max_size=2, unique=True))
    return [determiner, *chosen, noun + "s" * (determiner != "a")]


@st.composite
def phrases(draw):
    """Return the words of a noun phrase or a sentence."""
    subject = draw(noun_phrases())
    if draw(st.booleans()):
        return subject
    verb = draw(st.sampled_from(["see", "hear", "like"])) + "s" * (subject[0] == "a")
    first, *more = draw(st.lists(noun_phrases(), min_size=1, max_size=2))
    return [*subject, verb, *first, *(word for each in more for word in ("and", *each))]


# The answer to a list of values (0 to n - 1, or signs), slowly.
ANSWERS = {
    "reverse": lambda v, n: v[::-1],
    "copy": lambda v, n: v,
    "repeat": lambda v, n: v,
    "sort": lambda v, n: sorted(v),
    "duplicate": lambda v, n: v + v,
    "swap-halves": lambda v, n: v[len(v) // 2 :] + v[: len(v) // 2],
    "caesar": lambda v, n: [(x + min(3, n - 1)) % n for x in v],
    "dedupe": lambda v, n: list(dict.fromkeys(v)),
    "histogram": lambda v, n: [min(v.count(x), n - 1) for x in v],
    "parity": lambda v, n: [sum(v) % 2],
    "brackets": lambda v, n: matched(v),
    "addition": lambda v, n: total(v, n)[::-1],
    "addition-reversed": total,
    "modular-addition": lambda v, n: [sum(v) % n],
    "odds-first": lambda v, n: [x for x in v if x % 2] + [x for x in v if not x % 2],
    "translate": lambda v, n: translated(v),
    "random": fixed_by_chance,
}
SUMS = ("addition", "addition-reversed")
fillers = st.lists(st.integers(0, 12), min_size=20, max_size=20)


@st.composite
def requested(draw, name):
    """Return a task with some symbols, and valid or invalid sources for it."""
    n = draw(st.integers(2, 14))
    symbol = st.sampled_from("()") if name == "brackets" else st.integers(0, n - 1)
    sequence = st.lists(symbol, min_size=1, max_size=9)
    if name in SUMS:
        number = st.lists(symbol, min_size=1, max_size=5)
        sequence = st.builds(lambda a, b: [*a, PLUS, *b], number, number)
    if name == "translate":
        sequence = phrases()
    return n, draw(st.lists(sequence, min_size=1, max_size=6))


def tokens_of(task, values):
    symbols = [value if isinstance(value, str) else ALPHABET[value] for value in values]
    return [task.vocabulary.token_ids[symbol] for symbol in symbols]


def padded(sequences, filler):
    """Return padded rows and their lengths; the padding comes from `filler`."""
    lengths = [len(s) for s in sequences]
    rows = [s + filler[: max(lengths) - len(s)] for s in sequences]
    return torch.tensor(rows), torch.tensor(lengths)


def cut(tokens_BL, lengths_B):
    return [row[:n] for row, n in zip(tokens_BL.tolist(), lengths_B.tolist(), strict=True)]


def test_every_task_has_its_answer_in_this_file():
    assert set(ANSWERS) == set(TASKS)


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=25)
@given(data=st.data(), filler=fillers)
def test_targets_equal_plain_python_and_ignore_padding(name, data, filler):
    n, sequences = data.draw(requested(name))
    task = load_task(name, n)
    rows, lengths = padded([tokens_of(task, s) for s in sequences], filler)
    answer_BL, lengths_B = task.target(rows, lengths)
    answers = cut(answer_BL, lengths_B)
    assert answers == [tokens_of(task, ANSWERS[name](sequence, n)) for sequence in sequences]
    sources = cut(rows, lengths)
    assert [task.target_for(source) for source in sources] == answers
    assert {task.validate_source(source) for source in sources} == {""}
    for source, answer in zip(sources, answers, strict=True):
        assert len(answer) <= task.max_target_length(len(source))


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_the_alignment_names_the_source_position_of_every_answer_position(name, length):
    task = load_task(name)
    if task.alignment(length) is None:
        assert name not in ("reverse", "copy", "duplicate", "swap-halves", "caesar")
        return
    # all different, so that each symbol identifies its position
    sequence = torch.arange(3, 3 + length)[None]
    answer = task.target_for(sequence[0].tolist())
    assert len(task.alignment(length)) == len(answer)
    # another symbol there changes the target exactly at the aligned position
    for at in range(length):
        other = sequence.clone()
        other[0, at] = 12
        pairs = zip(answer, task.target_for(other[0].tolist()), strict=True)
        changed = [was != now for was, now in pairs]
        assert changed == [origin == at for origin in task.alignment(length)]


@pytest.mark.parametrize("name", TASKS)
def test_the_example_of_a_task_agrees_with_the_task(name):
    task = load_task(name)
    source, target = map(task.vocabulary.encode, task.example)
    assert task.target_for(source) == target
    assert task.validate_source(source) == ""
    assert task.name == name
    example = type(task).__doc__.split("\n")[0]
    assert ": " in example
    requested, answered = example.split(": ", 1)[1].split("(as in")[0].strip(" .").split(" -> ")
    assert task.target_for(task.vocabulary.encode(requested)) == task.vocabulary.encode(answered)
    for symbols in (2, 3, 10, 62):
        task = load_task(name, symbols)
        assert task.validate_source(task.vocabulary.encode(task.example_source())) == ""


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("symbols", [2, 5])
def test_config_facts_without_torch_match_the_model(name, symbols):
    about, task = TASKS[name], load_task(name, symbols)
    assert about.description.endswith(".")
    distinct = set(task.vocabulary.symbols)
    assert len(distinct) == len(task.vocabulary.symbols) == len(about.alphabet(symbols))
    low, high = about.n_symbols_range or (2, 2)
    assert (low, high) == ((2, 2) if about.n_symbols_range is None else (2, 62))
    for length in range(1, 6):
        if length < about.min_length:
            assert task.num_sources(length) == 0
            continue
        every = task.enumerate_sources(torch.arange(task.num_sources(length)), length).tolist()
        assert len(every) == len({tuple(row) for row in every}) == task.num_sources(length)
        if every:
            generator = torch.Generator().manual_seed(0)
            drawn = task.sample_with_lengths(torch.full((400,), length), length, generator)
            assert {tuple(row) for row in drawn.tolist()} <= {tuple(row) for row in every}
            assert all(task.validate_source(row) == "" for row in every)


def has_no_early_repetition(row, n):
    return all(len(set(row[at : at + n])) == len(row[at : at + n]) for at in range(0, len(row), n))


@given(n=st.integers(2, 9), length=st.integers(1, 20), seed=st.integers(0, 99))
def test_repeat_has_no_symbol_again_before_all_others(n, length, seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = load_task("repeat", n).sample_with_lengths(torch.full((5,), length), length, generator)
    assert all(has_no_early_repetition(row, n) for row in drawn.tolist())


@pytest.mark.parametrize("name", TASKS)
def test_batches_and_held_out_sets_share_no_sequence_and_count_right(name):
    task = load_task(name, 4)
    batch = sample_training_batch(task, 3000, 1, 6, torch.Generator().manual_seed(1))
    repeated = sample_training_batch(task, 3000, 1, 6, torch.Generator().manual_seed(1))
    assert torch.equal(batch.source_BS, repeated.source_BS)
    requested = build_held_out_set(task, 500, 1, 6)

    def sources(tokens_BS):
        return [tuple(token for token in row if token > 2) for row in tokens_BS.tolist()]

    trained = set(sources(batch.source_BS[batch.loss_weight_B > 0]))
    held = sources(requested.batch.source_BS)
    assert len(set(held)) == len(held) > 4
    assert not trained & set(held)
    assert min(map(len, trained)) == TASKS[name].min_length
    for length in range(1, 7):
        accepted = "()" if name == "brackets" else ALPHABET[:4]
        symbols = [task.vocabulary.token_ids.get(symbol, 0) for symbol in accepted]
        if name in SUMS:
            slots = [[task.plus_id] if at == length // 2 else symbols for at in range(length)]
            every = list(itertools.product(*slots)) if length > 2 else []
        elif name == "translate":
            every = task.enumerate_sources(torch.arange(task.num_sources(length)), length).tolist()
        else:
            every = list(itertools.product(symbols, repeat=length))
        if name == "repeat":
            every = [row for row in every if has_no_early_repetition(row, 4)]
        lengths = torch.full((len(every),), length)
        n_out = int(is_held_out(torch.tensor(every), lengths).sum()) if every else 0
        assert requested.num_available[length] == n_out


def test_half_of_training_brackets_are_balanced_and_all_such_occur():
    task, generator = load_task("brackets"), torch.Generator().manual_seed(0)
    sequence_BL = task.sample_with_lengths(torch.full((20_000,), 8), 10, generator)
    lengths_B = torch.full((20_000,), 8)
    balanced_B = task.target(sequence_BL, lengths_B)[0][:, 0] == 4
    assert 0.5 < balanced_B.float().mean().item() < 0.6
    assert len(sequence_BL[balanced_B, :8].unique(dim=0)) == 14  # the Catalan number of four pairs
    assert len(sequence_BL[:, :8].unique(dim=0)) == 2**8
    lengths_B = torch.full((50,), 7)
    odd = task.target(task.sample_with_lengths(lengths_B, 10, generator), lengths_B)[0]
    assert set(odd.flatten().tolist()) == {3}


@pytest.mark.parametrize("name", TASKS)
def test_constant_answer_matches_at_most_60_percent_of_held_out_set(name):
    run = RunConfig.from_flat({"task": name})
    requested = build_held_out_set(run.task.load(), 256, run.task.min_length, run.task.max_length)
    counts = requested.batch.labels_BT.unique(dim=0, return_counts=True)[1]
    assert counts.max().item() <= 0.6 * len(requested.lengths_B)
    if len(counts) == 2:  # enough of each that a few wrong answers are no large part of a score
        assert counts.min().item() >= 50


@pytest.mark.parametrize(("low", "high"), [(1, 10), (12, 12), (17, 18)])
def test_held_out_brackets_of_every_length_are_balanced_as_often_as_not(low, high):
    requested = build_held_out_set(load_task("brackets"), 300, low, high)
    balanced_B = requested.batch.labels_BT[:, 0] == 4
    for length in range(low, high + 1):
        of_length_B = requested.lengths_B == length
        assert 2 * int((balanced_B & of_length_B).sum()) == int(of_length_B.sum())
    assert len(requested.batch.source_BS.unique(dim=0)) == len(requested.lengths_B)


def test_held_out_brackets_of_an_odd_length_are_not_balanced():
    for length, n in ((9, 20), (21, 20)):
        requested = build_held_out_set(load_task("brackets"), n, length, length)
        assert len(requested.lengths_B) == n
        assert set(requested.batch.labels_BT[:, 0].tolist()) == {3}


@pytest.mark.parametrize(
    ("name", "text", "expected_message"),
    [
        ("addition", "314", "two numbers with one \\+ between them, as in 3 1 \\+ 4 1"),
        ("addition", "+1", "two numbers"),
        ("addition", "1+", "two numbers"),
        ("addition-reversed", "1+2+3", "two numbers"),
        ("translate", "two red car", "as in two red cars"),
        ("translate", "two dogs sees a car", "a sentence, as in a dog sees two red cars"),
        ("translate", "gar ruvo du", "an English phrase"),
        ("translate", "a dog sees", "an English phrase"),
        ("brackets", "(0)", "type \\( and \\), as in \\( \\( \\) \\)"),
    ],
)
def test_an_invalid_source_of_a_task_is_rejected(name, text, expected_message):
    task = load_task(name)
    assert re.search(expected_message, task.validate_source(task.vocabulary.encode(text)))


def test_an_unknown_task_is_rejected_with_the_names_of_the_known():
    with pytest.raises(ValueError, match="'sing'; choose one of reverse, copy, sort"):
        load_task("sing")
