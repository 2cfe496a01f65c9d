"""Embeddings before any attention: token embeddings and position vectors.

Shapes: P positions, D d_model, N tokens.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.models.embeddings import InputEmbedding

from .inspected_model import InspectedModel


def wavelength(dimension: int, d_model: int) -> float:
    """Return the wavelength, in positions, of a dimension of the sinusoidal encoding.

    It is 2 pi 10000^(2i / d_model), the same for the sine 2i and the cosine 2i + 1 (Vaswani et al.
    2017, section 3.5): 6.3 for dimension 0, 47 for dimension 14 of 64. Dimensions count from 0.
    """
    return 2 * math.pi * 10_000 ** (dimension // 2 * 2 / d_model)


@dataclass(frozen=True)
class EmbeddingPCA:
    """Token embeddings projected onto their first two principal components.

    coordinates         two coordinates for each of `names`
    explained_variance  the fraction of the variance that each of the two components explains
    """

    names: list[str]
    coordinates: list[tuple[float, float]]
    explained_variance: tuple[float, float]


def input_embedding(subject: InspectedModel, side: str) -> InputEmbedding:
    """Return the embedding of one side, "source" or "target"."""
    return cast(InputEmbedding, subject.transformer.get_submodule(f"{side}_embedding"))


@torch.no_grad()
def position_vectors(subject: InspectedModel, side: str) -> Tensor | None:
    """Return the position vectors (PD) of one side, in the order in which the model counts.

    There is one for each of `max_positions`; None if the model adds no vectors (none, rope, alibi,
    t5). For randomized positions, these are the vectors used at inference.
    """
    embedding = input_embedding(subject, side)
    if embedding.position_embedding is None or embedding.position_type != "randomized":
        return embedding.position_embedding
    return embedding.position_vectors(
        torch.ones(1, embedding.n_positions, dtype=torch.long, device=subject.device)
    )


def token_embeddings(subject: InspectedModel, side: str) -> tuple[list[str], Tensor]:
    """Return the names and the learned embeddings (ND) of one side's tokens.

    EOS and SOS are included. PAD is not, because no position attends to it.
    """
    table_ND = input_embedding(subject, side).token_embedding.weight.detach()
    return subject.token_names(list(range(1, len(table_ND)))), table_ND[1:]


def nearest_tokens(subject: InspectedModel, side: str, name: str) -> list[tuple[str, float]]:
    """Return the other tokens by their cosine similarity to the named one, the nearest first."""
    names, table_ND = token_embeddings(subject, side)
    unit_ND = F.normalize(table_ND, dim=-1)
    similarity_N = (unit_ND @ unit_ND[names.index(name)]).tolist()
    return sorted(
        ((other, s) for other, s in zip(names, similarity_N, strict=True) if other != name),
        key=lambda pair: -pair[1],
    )


def embedding_pca(subject: InspectedModel, side: str) -> EmbeddingPCA:
    """Project the token embeddings of one side onto their first two principal components.

    The sign of each component is chosen so that its largest coordinate is positive.
    """
    names, table_ND = token_embeddings(subject, side)
    centred_ND = (table_ND - table_ND.mean(0)).double()
    _, size_N, direction_ND = torch.linalg.svd(centred_ND, full_matrices=False)
    coordinates_N2 = centred_ND @ direction_ND[:2].T
    coordinates_N2 *= coordinates_N2.gather(0, coordinates_N2.abs().argmax(0, keepdim=True)).sign()
    variance_fraction_N = size_N**2 / (size_N**2).sum()
    if len(size_N) == 1:  # with d_model = 1 there is one component
        coordinates_N2 = F.pad(coordinates_N2, (0, 1))
        variance_fraction_N = F.pad(variance_fraction_N, (0, 1))
    return EmbeddingPCA(
        names,
        [(x, y) for x, y in coordinates_N2.tolist()],
        (float(variance_fraction_N[0]), float(variance_fraction_N[1])),
    )
