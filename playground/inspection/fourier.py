"""The Fourier spectrum of an embedding over the numbers 0 to P - 1 (Nanda et al. 2023, section 4).

Shapes: P numbers, D d_model, F frequencies.
"""

import torch
from torch import Tensor


def fourier_power(embedding_PD: Tensor) -> Tensor:
    """Return the share of each frequency from 1 on in the power of an embedding (F).

    The embedding is a function of the number. The power of a frequency is the sum over all
    dimensions of its squared cosine and sine coefficients; the constant part is left out.
    """
    coefficients_FD = torch.fft.rfft(embedding_PD.double(), dim=0)[1:]
    power_F = coefficients_FD.abs().square().sum(1)
    if len(embedding_PD) % 2 == 0:
        power_F[-1] /= 2  # the highest frequency has a cosine only
    return power_F / power_F.sum()


def n_main_frequencies(power_F: Tensor, share: float) -> int:
    """Return the smallest number of frequencies that hold this share of the power."""
    total_F = power_F.sort(descending=True).values.cumsum(0)
    return int((total_F < share).sum()) + 1
