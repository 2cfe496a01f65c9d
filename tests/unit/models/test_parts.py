"""Every component against an independent implementation with the same weights."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.t5.modeling_t5 import T5Attention

from playground.models.attention import MultiHeadAttention
from playground.models.config import ModelConfig
from playground.models.embeddings import (
    InputEmbedding,
    build_token_embedding,
    evenly_spaced_positions,
    positions_from_end,
    sample_random_positions,
)
from playground.models.feed_forward import FeedForward, SwiGLU, build_feed_forward
from playground.models.layers import build_norm
from playground.models.position_encoding import (
    ALiBi,
    RotaryEmbedding,
    T5RelativePositionBias,
    relative_position_bucket,
)
from playground.models.transformer import Transformer

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
B, H, P, K = 2, 4, 40, 16


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def randomize_weights(module):
    """Randomize all weights, so that each of them matters."""
    with torch.no_grad():
        for i, weight in enumerate(module.parameters()):
            weight += 0.3 * random(*weight.shape, seed=i)
    return module


def test_rope_turns_queries_and_keys_as_llama_does():
    query_BHQK, key_BGMK = random(B, H, P, K), random(B, 2, P, K, seed=1)
    reference = LlamaRotaryEmbedding(
        LlamaConfig(hidden_size=H * K, num_attention_heads=H, max_position_embeddings=P)
    )
    cos, sin = reference(query_BHQK, torch.arange(P)[None])
    expected = apply_rotary_pos_emb(query_BHQK, key_BGMK, cos, sin)
    rotary = RotaryEmbedding(
        ModelConfig(d_model=H * K, n_heads=H, position_type="rope"), causal=True
    )
    ours = rotary.rotate(query_BHQK), rotary.rotate(key_BGMK)
    torch.testing.assert_close(ours, expected, **CLOSE)
    # the decoder's newest position alone
    newest_BH1K = rotary.rotate(query_BHQK[:, :, -1:], first_position=P - 1)
    assert torch.equal(newest_BH1K, ours[0][:, :, -1:])


def test_rotary_score_depends_on_relative_position_only():
    rotary = RotaryEmbedding(
        ModelConfig(d_model=H * K, n_heads=H, position_type="rope"), causal=False
    )
    query, key = (
        rotary.rotate(random(1, 1, 1, K, seed=seed).expand(1, 1, P, K)) for seed in (0, 1)
    )
    scores_PP = (query @ key.mT)[0, 0]
    for separate in (-7, 0, 3):
        diagonal = scores_PP.diagonal(separate)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4, rtol=1e-4)
    assert (scores_PP.diagonal(3)[0] - scores_PP.diagonal(-3)[0]).abs() > 1e-2  # left is not right


def test_rotations_do_not_depend_on_earlier_calls():
    config = ModelConfig(d_model=H * K, n_heads=H, position_type="rope")
    used, x_BHPK = RotaryEmbedding(config, causal=True), random(B, H, P, K)
    expected = RotaryEmbedding(config, causal=True).rotate(x_BHPK)
    for first, end, dtype in ((0, 3, torch.float32), (2, 9, torch.float16), (5, P, torch.float32)):
        rotated = used.rotate(x_BHPK[:, :, first:end].to(dtype), first_position=first)
        assert rotated.dtype == dtype
        close = CLOSE if dtype == torch.float32 else {"atol": 1e-2, "rtol": 1e-2}
        torch.testing.assert_close(rotated.float(), expected[:, :, first:end], **close)


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 6, 8, 12, 16])
def test_alibi_has_blooms_slopes(n_heads):
    alibi = ALiBi(
        ModelConfig(d_model=8 * n_heads, n_heads=n_heads, position_type="alibi"), causal=True
    )
    # slope * place of the key
    theirs_H1P = build_alibi_tensor(torch.ones(1, P), n_heads, torch.float32)
    torch.testing.assert_close(alibi.slopes(torch.device("cpu")), theirs_H1P[:, 0, 1], **CLOSE)
    bias_HPP = alibi.bias(P, P, torch.device("cpu"))
    # the softmax does not see what is constant in a row
    for q, m in ((0, 0), (9, 2), (39, 39), (39, 0)):
        torch.testing.assert_close(
            bias_HPP[:, q, m] - bias_HPP[:, q, q],
            theirs_H1P[:, 0, m] - theirs_H1P[:, 0, q],
            **CLOSE,
        )
    assert torch.equal(bias_HPP, bias_HPP.mT)


@pytest.mark.parametrize("causal", [True, False])
def test_t5_buckets_and_biases_are_those_of_t5(causal):
    offset_QM = torch.arange(-300, 301)[None]
    reference = T5Attention._relative_position_bucket(
        offset_QM, bidirectional=not causal, num_buckets=32, max_distance=128
    )
    assert torch.equal(relative_position_bucket(offset_QM, causal), reference)
    ours = T5RelativePositionBias(ModelConfig(d_model=H * K, n_heads=H, position_type="t5"), causal)
    attention = T5Attention(
        T5Config(d_model=H * K, d_kv=K, num_heads=H, is_decoder=causal),
        has_relative_attention_bias=True,
    )
    attention.relative_attention_bias.weight.data.copy_(ours.relative_attention_bias)
    expected_HPP = attention.compute_bias(P, P)[0]
    cpu = torch.device("cpu")
    torch.testing.assert_close(ours.bias(P, P, cpu), expected_HPP, **CLOSE)
    torch.testing.assert_close(ours.bias(1, P, cpu), expected_HPP[:, -1:], **CLOSE)


def test_norms_are_those_of_the_config():
    norm = build_norm(ModelConfig(norm_type="rms", d_model=24))
    assert isinstance(norm, nn.RMSNorm)
    assert not norm(torch.zeros(1, 24)).any()
    x_BSD = 3 * random(B, 5, 24) + 2
    torch.testing.assert_close(norm(x_BSD).pow(2).mean(-1), torch.ones(B, 5), **CLOSE)
    assert isinstance(build_norm(ModelConfig()), nn.LayerNorm)
    assert build_norm(ModelConfig(bias=False)).bias is None


def test_swiglu_is_llamas_network():
    ours = randomize_weights(SwiGLU(ModelConfig(d_model=12, d_ff=20, activation="swiglu")))
    reference = LlamaMLP(
        LlamaConfig(
            hidden_size=12,
            num_attention_heads=2,
            intermediate_size=20,
            mlp_bias=True,
            hidden_act="silu",
        )
    )
    for a, b in (
        (ours.gate_proj, reference.gate_proj),
        (ours.up_proj, reference.up_proj),
        (ours.down_proj, reference.down_proj),
    ):
        b.load_state_dict(a.state_dict())
    torch.testing.assert_close(ours(random(B, 5, 12)), reference(random(B, 5, 12)), **CLOSE)


def test_swiglu_with_two_thirds_of_d_ff_has_as_many_parameters_as_relu():
    plain, gated = (
        ModelConfig(d_ff=d_ff, activation=activation, bias=False)
        for d_ff, activation in ((96, "relu"), (64, "swiglu"))
    )
    assert plain.parameter_count() == gated.parameter_count()


def test_gelu_is_torchs():
    ours = randomize_weights(
        build_feed_forward(ModelConfig(d_model=12, d_ff=20, activation="gelu"))
    )
    reference = nn.Sequential(ours.up_proj, nn.GELU(), ours.down_proj)
    torch.testing.assert_close(ours(random(B, 5, 12)), reference(random(B, 5, 12)), **CLOSE)
    relu = FeedForward(ModelConfig(d_model=12, d_ff=20))
    relu.load_state_dict(ours.state_dict())
    assert not torch.allclose(relu(random(B, 5, 12)), reference(random(B, 5, 12)), atol=1e-3)


@pytest.mark.parametrize(
    ("n_heads", "n_kv_heads", "d_k", "d_v"),
    [(4, 2, 0, 0), (4, 1, 0, 0), (6, 3, 5, 7), (3, 0, 10, 2)],
)
def test_shared_keys_and_values_and_heads_of_any_size_are_torchs_attention(
    n_heads, n_kv_heads, d_k, d_v
):
    config = ModelConfig(d_model=16, n_heads=n_heads, n_kv_heads=n_kv_heads, d_k=d_k, d_v=d_v)
    attention = randomize_weights(MultiHeadAttention(config))
    x_BQD, memory_BMD = random(B, 5, 16), random(B, 7, 16, seed=1)
    attn_mask = random(B, 1, 5, 7, seed=2) > -0.5
    attn_mask[..., 0] = True
    key_BGMK, value_BGMK = attention.project_kv(memory_BMD)
    assert key_BGMK.shape == (B, n_kv_heads or n_heads, 7, d_k or 4)
    assert value_BGMK.shape == (B, n_kv_heads or n_heads, 7, d_v or 4)
    query_BHQK = attention.q_proj(x_BQD).view(B, 5, n_heads, -1).transpose(1, 2)
    mix_BHQK = F.scaled_dot_product_attention(
        query_BHQK, key_BGMK, value_BGMK, attn_mask=attn_mask, enable_gqa=True
    )
    expected_BQD = attention.out_proj(mix_BHQK.transpose(1, 2).reshape(B, 5, -1))
    result_BQD, weights_BHQM = attention(x_BQD, key_BGMK, value_BGMK, attn_mask, need_weights=True)
    torch.testing.assert_close(result_BQD, expected_BQD, **CLOSE)
    assert weights_BHQM.shape == (B, n_heads, 5, 7)


def test_the_cache_is_as_small_as_the_number_of_shared_heads():
    past = Transformer(ModelConfig(n_heads=8, n_kv_heads=2, d_k=5, d_v=3)).new_cache(4, 9)
    assert [tuple(x.shape) for x in (past[0].key_BGMK, past[0].value_BGMK)] == [
        (4, 2, 9, 5),
        (4, 2, 9, 3),
    ]


def test_without_biases_nothing_is_added_anywhere():
    model = Transformer(ModelConfig(bias=False, activation="swiglu"))
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]
    assert model.config.attention_bias  # it counts only where there are biases at all


# Positions


def embedding(side="source", **changes):
    torch.manual_seed(0)
    config = ModelConfig(**changes)
    return InputEmbedding(config, build_token_embedding(13, config.d_model), side)


def test_positions_from_end_start_at_eos_and_ignore_padding():
    tokens_BS = torch.tensor([[5, 6, 7, 2, 0], [9, 2, 0, 0, 0]])
    assert positions_from_end(tokens_BS).tolist() == [[3, 2, 1, 0, 0], [1, 0, 0, 0, 0]]
    source, target = (
        embedding(side, position_type="learned-from-end") for side in ("source", "target")
    )
    assert torch.equal(source.position_vectors(tokens_BS)[1, 0], source.position_embedding[1])
    # an answer's end is not known while it is written
    assert torch.equal(
        target.position_vectors(tokens_BS, first_position=2), target.position_embedding[2:7]
    )


@pytest.mark.parametrize("kind", ["none", "rope", "alibi", "t5"])
def test_relative_or_no_positions_add_no_position_vectors(kind):
    embed = embedding(position_type=kind)
    tokens_BS = torch.tensor([[5, 6, 7, 2]])
    assert embed.position_embedding is None
    assert embed.position_vectors(tokens_BS) is None
    torch.testing.assert_close(
        embed(tokens_BS), embed.token_embedding.weight[tokens_BS] * embed.scale
    )


def test_randomized_positions_are_sorted_samples_of_full_range():
    torch.manual_seed(0)
    place_BS = sample_random_positions(torch.ones(400, 7, dtype=torch.long), 20, 50)
    assert place_BS.shape == (400, 7)
    assert (place_BS.diff(dim=1) > 0).all()
    assert len(place_BS.unique(dim=0)) == 400
    reached = torch.cat(
        [
            sample_random_positions(torch.ones(400, 7, dtype=torch.long), 20, 50).flatten()
            for _ in range(20)
        ]
    ).unique()
    assert reached.tolist() == list(range(50))
    embed = embedding(position_type="randomized", max_positions=20, randomized_range=50)
    tokens_BS = torch.full((1, 7), 5)
    assert not torch.equal(embed(tokens_BS), embed(tokens_BS))
    embed.eval()
    assert torch.equal(embed(tokens_BS), embed(tokens_BS))
    assert embed.position_ids(tokens_BS).tolist() == [0, 2, 5, 7, 10, 12, 15]
    assert embed.position_ids(tokens_BS[:, :2], first_position=3).tolist() == [7, 10]
    assert evenly_spaced_positions(torch.ones(1, 20), 0, 20, 50)[-1] == 47


def test_only_positions_of_training_sequences_are_trained():
    for kind in ("learned", "learned-from-end"):
        torch.manual_seed(0)
        model = Transformer(
            ModelConfig(position_type=kind, max_positions=20, d_model=16, d_ff=16, n_layers=1)
        )
        source_BS, target_BT = (
            torch.tensor([[5, 6, 2], [7, 2, 0]]),
            torch.tensor([[1, 6, 5, 5], [1, 7, 0, 0]]),
        )
        model(source_BS, target_BT).square().sum().backward()
        for embedding, n_trained in ((model.source_embedding, 3), (model.target_embedding, 4)):
            is_trained_P = embedding.position_embedding.grad.abs().sum(1) > 0
            assert is_trained_P.tolist() == [p < n_trained for p in range(20)]


def test_an_encoder_without_positions_reads_a_set():
    """Permuting the source permutes the memory (Lee et al. 2019, section 3), so no query that
    attends to it can recover the order.
    """
    torch.manual_seed(0)
    source_BS = torch.tensor([[5, 6, 7, 8, 9, 2]])
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    model = randomize_weights(Transformer(ModelConfig(position_type="none"))).eval()
    torch.testing.assert_close(
        model.encode(source_BS[:, order]), model.encode(source_BS)[:, order], **CLOSE
    )
    for kind in ("learned", "learned-from-end", "randomized", "rope", "alibi", "t5"):
        other = randomize_weights(Transformer(ModelConfig(position_type=kind))).eval()
        assert (
            other.encode(source_BS[:, order]) - other.encode(source_BS)[:, order]
        ).abs().max() > 1e-2


def test_a_decoder_without_positions_cannot_distinguish_them():
    """The causal mask lets it count (Haviv et al. 2022, section 5), so equal tokens differ."""
    model = randomize_weights(Transformer(ModelConfig(position_type="none"))).eval()
    source_BS = torch.tensor([[5, 6, 2]])
    x_TD = model.decode(torch.tensor([[1, 5, 5, 5]]), model.encode(source_BS), source_BS)[0]
    assert (x_TD[1:, None] - x_TD[1:]).abs().amax(-1).add(torch.eye(3)).min() > 1e-3


def test_alibi_encoder_is_mirror_symmetric_without_eos():
    model = randomize_weights(Transformer(ModelConfig(position_type="alibi"))).eval()
    palindromic, mirrored = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[8, 7, 6, 5]])
    torch.testing.assert_close(model.encode(mirrored), model.encode(palindromic).flip(1), **CLOSE)
    ended, other = (torch.cat([x, torch.tensor([[2]])], dim=1) for x in (palindromic, mirrored))
    assert (model.encode(other)[:, :4] - model.encode(ended)[:, :4].flip(1)).abs().max() > 1e-2


def test_a_score_is_raised_by_its_bias_before_the_softmax():
    torch.manual_seed(0)
    config = ModelConfig(d_model=8, n_heads=2, position_type="alibi")
    attention, x_BSD = MultiHeadAttention(config, ALiBi(config, causal=True)), random(1, 3, 8)
    _, weights_BHQM = attention(x_BSD, *attention.project_kv(x_BSD), need_weights=True)
    query, key = (
        attention.q_proj(x_BSD).detach()[0, 2, :4],
        attention.k_proj(x_BSD).detach()[0, :, :4],
    )
    scores = [float(query @ key[m]) / 2 - 2**-4 * (2 - m) for m in range(3)]
    shares = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
    torch.testing.assert_close(weights_BHQM[0, 0, 2], torch.tensor(shares), **CLOSE)
