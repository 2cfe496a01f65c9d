import pytest
import torch

from playground.models.config import ModelConfig
from playground.models.embeddings import InputEmbedding, build_token_embedding, sinusoidal_positions
from playground.models.stack_config import POSITION_TYPES

THE, DOG, BIT, MAN = range(3, 7)


def embedding(**changes):
    torch.manual_seed(0)
    config = ModelConfig(**changes)
    return InputEmbedding(config, build_token_embedding(config.source_vocab_size, config.d_model))


def vectors(embedding, sentence):
    """Return the embeddings of a sequence, sorted, so that the order does not matter."""
    return torch.tensor(sorted(embedding(torch.tensor([sentence]))[0].tolist()))


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


@pytest.mark.parametrize(("dimension", "period"), [(0, 6.3), (14, 47)])
def test_a_dimension_of_the_sine_waves_repeats_after_its_wavelength(dimension, period):
    wave_P = sinusoidal_positions(2000, 64)[:, dimension]
    before_P, after_P = wave_P[:-1], wave_P[1:]
    rising_P = torch.arange(1999)[(before_P < 0) & (after_P >= 0)]
    crossing_P = rising_P + before_P[rising_P] / (before_P[rising_P] - after_P[rising_P])
    assert float((crossing_P[-1] - crossing_P[0]) / (len(crossing_P) - 1)) == pytest.approx(
        period, rel=0.005
    )


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_embedding_is_scaled_token_vector_plus_position_vector(positions):
    embed = embedding(position_type=positions, d_model=64)
    tokens_BS = torch.tensor([[3, 7, 7, 0], [12, 1, 2, 0]])
    expected_BSD = embed.token_embedding.weight[tokens_BS] * 8 + embed.position_embedding[:4]
    torch.testing.assert_close(embed(tokens_BS), expected_BSD)
    torch.testing.assert_close(
        embed(tokens_BS, first_position=5),
        embed.token_embedding.weight[tokens_BS] * 8 + embed.position_embedding[5:9],
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("kind", POSITION_TYPES)
def test_a_position_beyond_the_last_one_is_rejected(kind, side, training):
    config = ModelConfig(position_type=kind, max_positions=11)
    embed = InputEmbedding(config, build_token_embedding(13, config.d_model), side=side).train(
        training
    )
    for first, length in ((0, 11), (10, 1)):
        assert embed(torch.full((2, length), 5), first_position=first).shape == (2, length, 64)
    for first, length in ((0, 12), (11, 1), (9, 3), (400, 1)):
        with pytest.raises(
            ValueError,
            match=f"needs {first + length} positions, but the model has max_positions 11",
        ):
            embed(torch.full((2, length), 5), first_position=first)


def test_the_sinusoidal_scale_multiplies_the_table():
    scaled, plain = (
        embedding(position_type="sinusoidal", sinusoidal_scale=scale).position_embedding
        for scale in (2.5, 1.0)
    )
    torch.testing.assert_close(scaled, 2.5 * plain)
    torch.testing.assert_close(plain, sinusoidal_positions(11, 64))


def test_token_and_learned_position_embeddings_start_at_equal_scale():
    embed = embedding(d_model=256, source_vocab_size=60, target_vocab_size=60, max_positions=60)
    assert float((embed.token_embedding.weight * embed.scale).std().detach()) == pytest.approx(
        1, abs=0.05
    )
    assert float(embed.position_embedding.std().detach()) == pytest.approx(1, abs=0.05)


def test_sine_waves_are_no_parameters_and_not_saved():
    embed = embedding(position_type="sinusoidal")
    assert (
        [name for name, _ in embed.named_parameters()]
        == list(embed.state_dict())
        == ["token_embedding.weight"]
    )


def test_reversed_sentence_without_positions_has_equal_vector_set():
    silent = embedding(position_type="sinusoidal", sinusoidal_scale=0)
    first, second = [THE, DOG, BIT, THE, MAN], [THE, MAN, BIT, THE, DOG]
    assert torch.equal(vectors(silent, first), vectors(silent, second))
    assert not torch.equal(silent(torch.tensor([first])), silent(torch.tensor([second])))


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_with_positions_a_sentence_and_its_mirror_differ(positions):
    embed = embedding(position_type=positions)
    first, second = (
        vectors(embed, [THE, DOG, BIT, THE, MAN]),
        vectors(embed, [THE, MAN, BIT, THE, DOG]),
    )
    assert (first - second).abs().max() > 0.1
