"""Every component against an independent implementation with the same weights."""

import pytest
import torch
from transformers import LlamaConfig, T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from playground.models.config import TransformerConfig
from playground.models.embeddings import (
    InputEmbedding,
    build_token_embedding,
    evenly_spaced_positions,
    sample_random_positions,
)
from playground.models.position_encoding import (
    ALiBi,
    RotaryEmbedding,
    T5RelativePositionBias,
    relative_position_bucket,
)
from playground.models.transformer import Transformer

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
B, H, P, K = 2, 4, 40, 16
CONFIG = TransformerConfig(d_model=H * K, n_heads=H, position_type="rope")


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_rope_turns_queries_and_keys_as_llama_does():
    query_BHQK, key_BGMK = random(B, H, P, K), random(B, 2, P, K, seed=1)
    reference = LlamaRotaryEmbedding(
        LlamaConfig(hidden_size=H * K, num_attention_heads=H, max_position_embeddings=P)
    )
    cos, sin = reference(query_BHQK, torch.arange(P)[None])
    expected = apply_rotary_pos_emb(query_BHQK, key_BGMK, cos, sin)
    rotary = RotaryEmbedding(CONFIG, causal=True)
    ours = rotary.rotate(query_BHQK), rotary.rotate(key_BGMK)
    torch.testing.assert_close(ours, expected, **CLOSE)
    # the decoder's newest position alone
    newest_BH1K = rotary.rotate(query_BHQK[:, :, -1:], first_position=P - 1)
    assert torch.equal(newest_BH1K, ours[0][:, :, -1:])


def test_rotations_do_not_depend_on_earlier_calls():
    used, x_BHPK = RotaryEmbedding(CONFIG, causal=True), random(B, H, P, K)
    expected = RotaryEmbedding(CONFIG, causal=True).rotate(x_BHPK)
    for first, end, dtype in ((0, 3, torch.float32), (2, 9, torch.float16), (5, P, torch.float32)):
        rotated = used.rotate(x_BHPK[:, :, first:end].to(dtype), first_position=first)
        assert rotated.dtype == dtype
        close = CLOSE if dtype == torch.float32 else {"atol": 1e-2, "rtol": 1e-2}
        torch.testing.assert_close(rotated.float(), expected[:, :, first:end], **close)


def test_a_table_of_rotations_from_inference_mode_serves_training():
    config = TransformerConfig(d_model=H * K, n_heads=H, position_type="rope", max_positions=2)
    rope, x_BHPK = RotaryEmbedding(config, causal=True), random(B, H, P, K).requires_grad_()
    with torch.inference_mode():
        rope.rotate(x_BHPK)  # more positions than the table has
    rope.rotate(x_BHPK).sum().backward()
    assert x_BHPK.grad is not None


@pytest.mark.parametrize("n_heads", [1, 3, 8, 12])
def test_alibi_has_blooms_slopes(n_heads):
    alibi = ALiBi(TransformerConfig(d_model=8 * n_heads, n_heads=n_heads), causal=True)
    # slope * place of the key
    theirs_H1P = build_alibi_tensor(torch.ones(1, P), n_heads, torch.float32)
    torch.testing.assert_close(alibi.slope_H, theirs_H1P[:, 0, 1], **CLOSE)
    bias_HPP = alibi.bias(P, P, torch.device("cpu"))
    # the softmax does not see what is constant in a row
    for q, m in ((0, 0), (9, 2), (39, 39), (39, 0)):
        difference_H = bias_HPP[:, q, m] - bias_HPP[:, q, q]
        expected_H = theirs_H1P[:, 0, m] - theirs_H1P[:, 0, q]
        torch.testing.assert_close(difference_H, expected_H, **CLOSE)
    assert torch.equal(bias_HPP, bias_HPP.mT)


@pytest.mark.parametrize("causal", [True, False])
def test_t5_buckets_and_biases_are_those_of_t5(causal):
    offset_QM = torch.arange(-300, 301)[None]
    reference = T5Attention._relative_position_bucket(
        offset_QM, bidirectional=not causal, num_buckets=32, max_distance=128
    )
    assert torch.equal(relative_position_bucket(offset_QM, causal), reference)
    ours = T5RelativePositionBias(CONFIG, causal)
    config = T5Config(d_model=H * K, d_kv=K, num_heads=H, is_decoder=causal)
    attention = T5Attention(config, has_relative_attention_bias=True)
    attention.relative_attention_bias.weight.data.copy_(ours.relative_attention_bias)
    expected_HPP = attention.compute_bias(P, P)[0]
    cpu = torch.device("cpu")
    torch.testing.assert_close(ours.bias(P, P, cpu), expected_HPP, **CLOSE)
    torch.testing.assert_close(ours.bias(1, P, cpu), expected_HPP[:, -1:], **CLOSE)


def test_the_cache_is_as_small_as_the_number_of_shared_heads():
    model = Transformer(TransformerConfig(n_heads=8, n_kv_heads=2, d_k=5, d_v=3))
    cache = model.new_cache(4, 9)
    source_BS = torch.ones(4, 7, dtype=torch.long)
    model.decode(source_BS[:, :1], model.encode(source_BS), source_BS, cache)
    assert [(tuple(each.key_BGMK.shape), tuple(each.value_BGMK.shape)) for each in cache[0]] == [
        ((4, 2, 9, 5), (4, 2, 9, 3)),
        ((4, 2, 7, 5), (4, 2, 7, 3)),
    ]


def test_randomized_positions_are_sorted_samples_of_full_range():
    torch.manual_seed(0)
    ones_BS = torch.ones(400, 7, dtype=torch.long)
    place_BS = sample_random_positions(ones_BS, 20, 50)
    assert place_BS.shape == (400, 7)
    assert (place_BS.diff(dim=1) > 0).all()
    assert len(place_BS.unique(dim=0)) == 400
    reached = torch.cat([sample_random_positions(ones_BS, 20, 50) for _ in range(20)]).unique()
    assert reached.tolist() == list(range(50))
    config = TransformerConfig(position_type="randomized", max_positions=20, randomized_range=50)
    embed = InputEmbedding(config, build_token_embedding(13, config.d_model), "source")
    tokens_BS = torch.full((1, 7), 5)
    assert not torch.equal(embed(tokens_BS), embed(tokens_BS))
    embed.eval()
    assert torch.equal(embed(tokens_BS), embed(tokens_BS))
    assert embed.position_ids(tokens_BS).tolist() == [0, 2, 5, 7, 10, 12, 15]
    assert embed.position_ids(tokens_BS[:, :2], first_position=3).tolist() == [7, 10]
    assert evenly_spaced_positions(torch.ones(1, 20), 0, 20, 50)[-1] == 47
