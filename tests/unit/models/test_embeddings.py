import pytest
import torch

from playground.models.config import POSITION_TYPES, TransformerConfig
from playground.models.embeddings import InputEmbedding, build_token_embedding, sinusoidal_positions


def embedding(side="target", **changes):
    torch.manual_seed(0)
    config = TransformerConfig(**changes)
    return InputEmbedding(config, build_token_embedding(13, config.d_model), side)


@pytest.mark.parametrize("d_model", [2, 64, 512])
def test_the_sine_waves_are_the_papers_formula(d_model):
    position_P1 = torch.arange(200, dtype=torch.float64)[:, None]
    angle_Pd = position_P1 / 10_000.0 ** (
        torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    )
    waves_PD = sinusoidal_positions(200, d_model)
    assert waves_PD.shape == (200, d_model)
    torch.testing.assert_close(waves_PD[:, 0::2].double(), angle_Pd.sin(), atol=2e-5, rtol=0)
    torch.testing.assert_close(waves_PD[:, 1::2].double(), angle_Pd.cos(), atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", POSITION_TYPES)
def test_a_position_beyond_the_last_one_is_rejected(kind):
    embed = embedding(position_type=kind, max_positions=11)
    for first, length in ((0, 11), (10, 1)):
        assert embed(torch.full((2, length), 5), first_position=first).shape == (2, length, 64)
    for first, length in ((0, 12), (11, 1), (9, 3), (400, 1)):
        with pytest.raises(
            ValueError, match=f"needs {first + length} positions, but the model has 11"
        ):
            embed(torch.full((2, length), 5), first_position=first)


def test_token_and_learned_position_embeddings_start_at_equal_scale():
    config = TransformerConfig(d_model=256, max_positions=60)
    embed = InputEmbedding(config, build_token_embedding(60, 256))
    assert float((embed.token_embedding.weight * embed.scale).std().detach()) == pytest.approx(
        1, abs=0.05
    )
    assert float(embed.position_embedding.std().detach()) == pytest.approx(1, abs=0.05)
