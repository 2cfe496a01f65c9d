"""A model with the tokenizer of another: the same ids, other words."""

import pytest
import torch

from playground.comparison.process import run
from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.pretrained.pipelines import open_pipeline
from playground.pretrained.resolver import resolve
from playground.probing.tokenizer_mismatch import _mask_position, load_other_tokenizer, mean_nll


@pytest.mark.smoke
def test_other_tokenizer_changes_the_continuation(tiny_gpt2, tiny_bert):
    actual = run(
        "tokenizer-mismatch",
        {"model": tiny_gpt2, "tokenizer": tiny_bert, "text": "The capital of France is"},
        ProgressReporter(),
    )
    assert actual["own"]["output"].startswith(" Paris.")
    assert " Paris" not in actual["other"]["output"]
    assert all(token["own_token"] == token["token"] for token in actual["own"]["tokens"])
    assert not any(token["own_token"] == token["token"] for token in actual["other"]["tokens"])
    assert actual["other"]["mean_nll"] > actual["own"]["mean_nll"] + 3
    assert actual["notes"] == ["0 of 7 ids stand for the same token in both tokenizers"]


def test_mean_nll_is_the_loss_of_the_model(tiny_gpt2):
    pipe = open_pipeline(
        "text-generation", resolve(tiny_gpt2, ProgressReporter()), ProgressReporter()
    )
    inputs = pipe.tokenizer("one two three", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        probabilities = pipe.model(inputs).logits[0].log_softmax(-1)
    expected = -sum(
        probabilities[position, token].item() for position, token in enumerate(inputs[0, 1:])
    ) / (inputs.shape[1] - 1)
    assert mean_nll(pipe.model, inputs[0].tolist()) == pytest.approx(expected, abs=1e-5)
    assert mean_nll(pipe.model, [5]) is None


def test_ids_out_of_range_are_counted_and_skipped(tiny_gpt2, tiny_bert):
    actual = run(
        "tokenizer-mismatch",
        {"model": tiny_bert, "tokenizer": tiny_gpt2, "text": "the capital of [MASK] is Paris."},
        ProgressReporter(),
    )
    assert actual["own"]["output"] == "france"
    assert actual["other"]["output"] != "france"
    embeddings = (
        open_pipeline("fill-mask", resolve(tiny_bert, ProgressReporter()), ProgressReporter())
        .model.get_input_embeddings()
        .num_embeddings
    )
    out_of_range = [token for token in actual["other"]["tokens"] if token["id"] >= embeddings]
    assert out_of_range
    assert all(not token["in_range"] and token["own_token"] is None for token in out_of_range)
    assert f"{len(out_of_range)} ids are {embeddings} or more" in actual["notes"][1]
    assert "has no mask token" in actual["notes"][2]


def test_special_tokens_before_the_text_shift_the_mask(tiny_bert):
    text, tokenizer = "the capital of [MASK]", load_other_tokenizer(tiny_bert, "tiny")
    ids = tokenizer(text)["input_ids"]  # begins with [CLS]
    position = _mask_position(tokenizer, text, ids)
    tokenizer.mask_token = None
    assert _mask_position(tokenizer, text, ids) == position == 4


def test_same_tokenizer_gives_the_same_result(tiny_gpt2):
    actual = run(
        "tokenizer-mismatch",
        {"model": tiny_gpt2, "tokenizer": tiny_gpt2, "text": "The capital of Japan is"},
        ProgressReporter(),
    )
    assert actual["own"] == actual["other"]
    assert actual["own"]["output"].startswith(" Tokyo.")


def test_a_text_without_a_mask_token_is_rejected(tiny_gpt2, tiny_bert):
    with pytest.raises(UserError, match="no mask"):
        run(
            "tokenizer-mismatch",
            {"model": tiny_bert, "tokenizer": tiny_gpt2, "text": "the capital of France"},
            ProgressReporter(),
        )
