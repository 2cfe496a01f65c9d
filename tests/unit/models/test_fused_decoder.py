"""The fused decoder against the modules of the transformer."""

import pytest
import torch

from playground.generation import generate
from playground.models import fused_decoder
from playground.models.attention import MultiHeadAttention, padding_mask
from playground.models.config import ModelConfig
from playground.models.fused_decoder import FusedDecoder, can_fuse
from playground.models.position_encoding import RelativePositionEncoding
from playground.models.transformer import Transformer
from playground.tasks import EOS, PAD, SOS

N_TOKENS = 6


def build_model(**changes):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 32, "max_positions": 9}
    model = Transformer(ModelConfig(**sizes | changes)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return model


def padded_sources():
    source_BS = torch.randint(EOS + 1, 10, (5, 7), generator=torch.Generator().manual_seed(1))
    for row in range(5):
        source_BS[row, row + 2 :] = PAD
        source_BS[row, row + 1] = EOS
    return source_BS


def decode_both_ways(model, source_BS):
    """Return the logits (TBV) of the fused decoder and of the modules, for the same tokens."""
    memory_BSD = model.encode(source_BS)
    fused = FusedDecoder(model, memory_BSD, source_BS != PAD, N_TOKENS)
    cache = model.new_cache(len(source_BS), N_TOKENS)
    memory_kv, mask = model.project_memory(memory_BSD), padding_mask(source_BS)
    token_B1 = torch.full((len(source_BS), 1), SOS)
    results = []
    for _ in range(N_TOKENS):
        x_B1D = model.decode_step(token_B1, memory_kv, mask, cache)
        logits_BV = model.output_proj(x_B1D)[:, 0]
        results.append((fused.step(token_B1), logits_BV))
        token_B1 = logits_BV.argmax(-1, keepdim=True)
    return map(torch.stack, zip(*results, strict=True))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_placement": "post", "norm_type": "rms"},
        {"n_kv_heads": 2, "position_type": "rope"},
        {"n_kv_heads": 1, "position_type": "t5"},
        {"position_type": "alibi", "activation": "swiglu"},
        {"position_type": "sinusoidal", "activation": "gelu", "bias": False},
        {"position_type": "randomized", "attention_bias": False},
        {"position_type": "none", "d_k": 6, "d_v": 10},
        {"tie_output_embeddings": True, "scale_embeddings": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("padded", [True, False])
@torch.no_grad()
def test_the_logits_equal_those_of_the_modules(changes, padded):
    model = build_model(**changes)
    source_BS = padded_sources() if padded else padded_sources()[-1:, :5].repeat(3, 1)
    assert can_fuse(model)
    fused_TBV, expected_TBV = decode_both_ways(model, source_BS)
    torch.testing.assert_close(fused_TBV, expected_TBV, atol=2e-5, rtol=2e-5)
    assert expected_TBV.std() > 0.1


def test_a_model_with_a_hook_in_its_decoder_is_decoded_by_its_modules():
    model, calls = build_model(), []
    handle = model.decoder_layers[1].cross_attn.out_proj.register_forward_pre_hook(
        lambda *arguments: calls.append(1)
    )
    assert not can_fuse(model)
    generate(model, padded_sources(), N_TOKENS)
    assert calls
    handle.remove()
    assert can_fuse(model)


def test_changed_modules_are_not_fused():
    class Broken(MultiHeadAttention):
        def forward(self, *arguments, **options):
            output, weights = super().forward(*arguments, **options)
            return 0 * output, weights

    model = build_model()
    model.decoder_layers[0].self_attn = Broken(model.config)
    assert not can_fuse(model)
    model = build_model()
    model.decoder_layers[0].feed_forward.forward = lambda x_BSD: 0 * x_BSD
    assert not can_fuse(model)
    assert not can_fuse(build_model().train())


def test_an_added_position_encoding_is_not_fused():
    class Flipped(RelativePositionEncoding):
        def rotate(self, x_BHPK, first_position=0):
            return -x_BHPK

    model = build_model()
    for layer in model.decoder_layers:
        layer.self_attn.position_encoding = Flipped()
    assert not can_fuse(model)


def test_generation_uses_the_fused_decoder(monkeypatch):
    steps, step = [], fused_decoder.FusedDecoder.step
    monkeypatch.setattr(
        fused_decoder.FusedDecoder, "step", lambda *inputs: steps.append(1) or step(*inputs)
    )
    generate(build_model(), padded_sources(), N_TOKENS)
    assert steps
