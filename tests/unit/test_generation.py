import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.generation import generate
from playground.models import position_encoding
from playground.models.config import TransformerConfig
from playground.models.transformer import Transformer
from playground.tasks import EOS, PAD, SOS, load_task
from playground.tasks.held_out import build_held_out_set
from tests.support.small_models import model_settings


def untrained(**changes):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 2, "d_ff": 32, "max_positions": 12}
    model = Transformer(TransformerConfig(**sizes | changes))
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn_like(weight)
    return model.eval()


def never_writes(model, token):
    with torch.no_grad():
        model.output_proj.bias[token] = -1e9
    return model


def sample(model, source_BS, max_tokens, seed, temperature=1.0):
    generator = torch.Generator().manual_seed(seed)
    return generate(model, source_BS, max_tokens, temperature=temperature, generator=generator)


def sources(n=40, length=6):
    return build_held_out_set(load_task("reverse"), n, 1, length).batch.source_BS


@torch.no_grad()
def decode_slowly(model, source_BS, max_tokens):
    """Greedy decoding without a cache: the model recomputes the whole prefix for each token."""
    target_BT = torch.full((len(source_BS), 1), SOS)
    for _ in range(max_tokens):
        target_BT = torch.cat([target_BT, model(source_BS, target_BT)[:, -1:].argmax(-1)], dim=1)
    is_eos_BT = (target_BT[:, 1:] == EOS).long()
    return target_BT[:, 1:].masked_fill(is_eos_BT.cumsum(1) - is_eos_BT > 0, PAD)


@settings(max_examples=15)
@given(model_settings(), st.integers(1, 12))
def test_greedy_decoding_equals_running_the_whole_decoder_for_each_token(overrides, max_tokens):
    model = untrained(**overrides)
    written_BT = generate(model, sources(12), max_tokens)
    assert torch.equal(written_BT, decode_slowly(model, sources(12), max_tokens))


def test_decoding_rotates_each_position_once(monkeypatch):
    model = never_writes(untrained(position_type="rope"), EOS)
    rotated, rotate = [], position_encoding.apply_rotary_emb

    def count_and_rotate(x_BHPK, cos_PK, sin_PK):
        rotated.append(x_BHPK.shape[2])
        return rotate(x_BHPK, cos_PK, sin_PK)

    monkeypatch.setattr(position_encoding, "apply_rotary_emb", count_and_rotate)
    generate(model, sources(), 12)
    # queries and keys, in two layers
    assert sum(rotated) == 2 * 2 * (sources().shape[1] + 12)


@pytest.mark.parametrize("training", [True, False])
def test_failed_decoding_restores_the_training_mode(monkeypatch, training):
    model = untrained().train(training)
    monkeypatch.setattr(model, "encode", lambda *inputs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generate(model, sources(), 3)
    assert model.training == training
    assert model.encoder_layers.training == training


def test_generation_pads_after_eos_and_leaves_other_sequences_alone(ages):
    source_BS = sources(200, 5)
    for model in (ages[15], ages[30], ages[60]):
        together_BT = generate(model, source_BS, 6)
        ends_B = (together_BT == EOS).int().argmax(1)
        for row, end in zip(together_BT.tolist(), ends_B.tolist(), strict=True):
            assert EOS not in row or set(row[end + 1 :]) <= {PAD}
        assert len(set(ends_B.tolist())) > 1
        alone_BT = torch.cat([generate(model, row_1S, 6) for row_1S in source_BS[::20].split(1)])
        assert torch.equal(alone_BT, together_BT[::20])


def test_outputs_have_the_requested_width_even_after_early_ends(ages):
    source_BS = sources(20, 1)
    for n in (1, 4, 5, 6):
        assert generate(ages[240], source_BS, n).shape == (len(source_BS), n)
    assert generate(ages[240], sources(20, 5)[:0], 6).shape == (0, 6)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_sampling_follows_the_softmax_at_its_temperature(temperature):
    model, n = untrained(), 20_000
    source_BS = sources()[-1:].expand(n, -1)
    logits_V = model(source_BS[:1], torch.tensor([[SOS]]))[0, 0].detach()
    drawn_V = torch.bincount(sample(model, source_BS, 1, 3, temperature)[:, 0], minlength=13)

    def chi_square(at):
        expected_V = n * (logits_V / at).softmax(-1)
        return float(((drawn_V - expected_V) ** 2 / expected_V).sum())

    assert chi_square(temperature) < 40  # 12 degrees of freedom: above 40 once in ten thousand
    assert chi_square(temperature * 1.25) > 100
    assert chi_square(temperature * 0.8) > 100


def test_each_sampled_token_depends_on_the_ones_sampled_before():
    model, n = never_writes(untrained(), PAD), 20_000
    source_BS = sources()[-1:].expand(n, -1)
    first_B, second_B = sample(model, source_BS, 2, 3).unbind(1)
    for first in [token for token in first_B.unique().tolist() if token != EOS]:
        of_first_B = second_B[first_B == first]
        share_V = model(source_BS[:1], torch.tensor([[SOS, first]]))[0, 1].softmax(-1).detach()
        seen_V = torch.bincount(of_first_B, minlength=13) / len(of_first_B)
        assert float((seen_V - share_V).abs().sum()) < 5 / len(of_first_B) ** 0.5


def test_sampling_is_reproducible_by_generator_seed():
    model = untrained()
    before = torch.get_rng_state()
    draws = [sample(model, sources(), 8, seed) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    generate(model, sources(), 3)
    assert torch.equal(torch.get_rng_state(), before)  # the global generator is not used


@pytest.mark.parametrize("temperature", [0.01, 1e-6, 1e-45, 1e-300, 5e-324])
def test_a_temperature_near_zero_is_greedy(temperature, ages):
    model, source_BS = ages[240], sources(50, 5)
    assert torch.equal(sample(model, source_BS, 6, 1, temperature), generate(model, source_BS, 6))


def test_max_tokens_above_max_positions_is_rejected():
    with pytest.raises(ValueError, match="max_tokens is 13, but the model has max_positions 12"):
        generate(untrained(), sources(), 13)


@pytest.mark.parametrize("temperature", [-1.0, -1e-9, *map(float, ("nan", "-inf", "inf"))])
def test_a_temperature_below_zero_or_infinite_is_rejected(temperature):
    with pytest.raises(ValueError, match=f"temperature is {temperature}; it must be 0"):
        generate(untrained(), sources(), 3, temperature=temperature)


@pytest.mark.parametrize("training", [True, False])
def test_decoding_is_without_dropout_and_leaves_the_model_in_its_mode(training):
    model = untrained(dropout=0.5).train(training)
    assert torch.equal(generate(model, sources(), 5), generate(model, sources(), 5))
    assert model.training == training
    assert all(module.training == training for module in model.modules())


def test_decoding_keeps_no_gradient():
    model = untrained()
    assert not generate(model, sources(), 3).requires_grad
    assert all(weight.grad is None for weight in model.parameters())
