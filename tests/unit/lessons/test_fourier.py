"""The Fourier power of an embedding, against its definition."""

import math

import pytest
import torch

from playground.lessons.interpretability_measurements import fourier_power, n_main_frequencies


@pytest.mark.parametrize("n", [12, 13])
def test_the_power_is_that_of_cosine_and_sine_coefficients(n):
    torch.manual_seed(0)
    embedding = torch.randn(n, 5, dtype=torch.float64) + 3  # a constant has no frequency
    number = torch.arange(n, dtype=torch.float64)
    power = []
    for frequency in range(1, n // 2 + 1):
        angle = 2 * math.pi * frequency * number / n
        waves = [wave / wave.norm() for wave in (angle.cos(), angle.sin()) if wave.norm() > 1e-6]
        power.append(sum(float((wave @ embedding).square().sum()) for wave in waves))
    expected = torch.tensor(power, dtype=torch.float64) / sum(power)
    torch.testing.assert_close(fourier_power(embedding), expected)


def test_waves_of_two_frequencies_have_two_main_ones():
    angle = 2 * math.pi * torch.arange(53) / 53
    embedding = torch.stack([(3 * angle).cos(), 2 * (7 * angle).sin()], 1)
    power = fourier_power(embedding)
    assert power[2] == pytest.approx(0.2, abs=1e-6)
    assert power[6] == pytest.approx(0.8, abs=1e-6)
    assert [n_main_frequencies(power, share) for share in (0.5, 0.9)] == [1, 2]
