import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.tasks import EOS, PAD, SOS, UnknownSymbolError, Vocabulary
from playground.tasks.vocabulary import ALPHABET, format_token, normalize

DIGITS = Vocabulary("0123456789")
vocabularies = st.integers(2, len(ALPHABET)).map(lambda n: Vocabulary(ALPHABET[:n]))


@given(st.data(), vocabularies)
def test_encoding_and_decoding_is_a_round_trip(data, vocabulary):
    symbols = data.draw(st.lists(st.sampled_from(vocabulary.symbols), max_size=20))
    separator = data.draw(st.sampled_from(["", " ", ",", ", ", "\t", "\n"]))
    tokens = vocabulary.encode(separator.join(symbols))
    assert vocabulary.decode(tokens) == symbols
    assert [vocabulary.symbols[token - 3] for token in tokens] == symbols


def test_a_comma_separates_symbols_unless_it_is_one():
    assert DIGITS.encode("3,1") == DIGITS.encode("3 1")
    assert Vocabulary("a,b").encode("a,b") == [3, 4, 5]


@given(st.data(), vocabularies)
def test_decoding_stops_at_the_first_eos(data, vocabulary):
    real = st.integers(3, len(vocabulary) - 1)
    before = data.draw(st.lists(real))
    behind = data.draw(st.lists(st.integers(0, len(vocabulary) - 1)))
    assert vocabulary.encode("".join(vocabulary.decode([*before, EOS, *behind]))) == before


@given(vocabularies)
def test_every_token_has_a_name_of_its_own(vocabulary):
    names = {vocabulary.token_name(token) for token in range(len(vocabulary))}
    assert len(names) == len(vocabulary)


def test_special_tokens_in_a_wrong_prediction_keep_their_names():
    assert DIGITS.decode([3, PAD, SOS, 4, EOS, 5]) == ["0", "PAD", "SOS", "1"]


def test_symbols_are_numbered_behind_the_special_tokens():
    assert (PAD, SOS, EOS) == (0, 1, 2)
    assert DIGITS.encode("3 1 4") == [6, 4, 7]
    assert len(DIGITS) == 13


@given(st.text(max_size=10), vocabularies)
def test_text_is_encoded_or_the_first_unknown_symbol_is_named(text, vocabulary):
    unknown = [
        s for s in normalize(text) if s not in vocabulary.symbols and s != "," and not s.isspace()
    ]
    if not unknown:
        assert len(vocabulary.encode(text)) == sum(s in vocabulary.symbols for s in text)
        return
    with pytest.raises(UnknownSymbolError) as caught:
        vocabulary.encode(text)
    assert str(caught.value).startswith(repr(format_token(unknown[0])))
    assert vocabulary.describe() in str(caught.value)


ASSIGNED_IN_UNICODE_9 = st.characters(max_codepoint=0x2FFF, categories=["L", "Nd", "P", "S"])


@given(st.text(st.one_of(ASSIGNED_IN_UNICODE_9, st.sampled_from("\u0301\u0316\u0327\u0338"))))
def test_normal_form_is_that_of_unicode_for_common_characters(text):
    assert normalize(unicodedata.normalize("NFD", text)) == unicodedata.normalize("NFC", text)


@given(st.text(st.characters(categories=["L", "M", "Cn", "Cs"])))
def test_any_text_has_a_normal_form_which_stays(text):
    assert normalize(normalize(text)) == normalize(text)


@pytest.mark.parametrize("symbols", ["\u00e9\u0915\u1ec7", ("caf\u00e9", "\u1112\u1161", "\uac01")])
def test_each_spelling_of_a_character_is_the_same_token(symbols):
    text = " ".join(symbols := tuple(map(normalize, symbols)))
    assert Vocabulary(symbols).encode(unicodedata.normalize("NFD", text)) == [3, 4, 5]


@pytest.mark.parametrize(
    ("n", "description"),
    [(2, "0 1"), (10, "0–9"), (11, "0–9 a"), (13, "0–9 a–c"), (62, "0–9 a–z A–Z")],
)
def test_a_vocabulary_lists_its_tokens(n, description):
    assert Vocabulary(ALPHABET[:n]).describe() == description


@given(vocabularies)
def test_the_example_of_a_vocabulary_is_accepted_by_it(vocabulary):
    assert len(vocabulary.encode(vocabulary.example())) == 3
