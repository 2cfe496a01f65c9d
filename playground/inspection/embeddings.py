"""Embeddings before any attention: sinusoidal positions, word order, token embeddings.

Shapes: P positions, D d_model, N tokens.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.models.config import ModelConfig
from playground.models.embeddings import (
    InputEmbedding,
    build_token_embedding,
    sinusoidal_positions,
)

from .inspected_model import InspectedModel, InspectionError

INDEPENDENCE_LENGTHS = (50, 200, 1_000)
DIRECTION_THRESHOLD = 1e-3  # of the largest singular value
LONGEST_WAVELENGTH = int(2 * math.pi * 10_000)  # positions


def wavelength(dimension: int, d_model: int) -> float:
    """Return the wavelength, in positions, of a dimension of the sinusoidal encoding.

    It is 2 pi 10000^(2i / d_model), the same for the sine 2i and the cosine 2i + 1 (Vaswani et al.
    2017, section 3.5): 6.3 for dimension 0, 47 for dimension 14 of 64. Dimensions count from 0.

    Raises:
        ValueError: for a dimension outside of the vector.
    """
    if not 0 <= dimension < d_model:
        raise ValueError(
            f"dimension is {dimension}; a vector with d_model = {d_model} has the dimensions "
            f"0 to {d_model - 1}"
        )
    return 2 * math.pi * 10_000 ** (dimension // 2 * 2 / d_model)


@dataclass(frozen=True)
class PositionIndependence:
    """How different the first sinusoidal positions are.

    directions  the number of singular values of the vectors above a thousandth of the largest
    nearest     the smallest distance of two vectors, which are `offset` positions apart
    """

    positions: int
    directions: int
    nearest: float
    offset: int


@cache
def independence_of_positions(d_model: int = 64) -> tuple[PositionIndependence, ...]:
    """Measure how many directions the first sinusoidal positions have, and how close they are.

    Vectors of d_model numbers have at most d_model independent directions. Counting the singular
    values above a threshold gives the directions that stay visible beside other numbers. The
    distance of two positions depends on their offset only, because the sine and the cosine of a
    wave are a point on a circle. The last row has 10000 * 2 pi positions, as many as the longest
    wavelength.
    """
    positions_PD = sinusoidal_positions(LONGEST_WAVELENGTH, d_model).double()
    distance_P = (positions_PD[1:] - positions_PD[0]).norm(dim=1)
    return tuple(
        PositionIndependence(
            n,
            _count_directions(positions_PD[:n]),
            float(distance_P[: n - 1].min()),
            int(distance_P[: n - 1].argmin()) + 1,
        )
        for n in (*INDEPENDENCE_LENGTHS, LONGEST_WAVELENGTH)
    )


def _count_directions(vectors_PD: Tensor) -> int:
    variance_D = torch.linalg.eigvalsh(vectors_PD.T @ vectors_PD)  # squared singular values
    return int((variance_D > (DIRECTION_THRESHOLD**2) * variance_D[-1]).sum())


@dataclass(frozen=True)
class WordOrderDistance:
    """The Hausdorff distance of two sentences as sets of vectors, without and with positions.

    It is the largest distance from a vector of either set to the nearest vector of the other set.
    A distance of 0 means that the sets are equal.
    """

    first: list[str]
    second: list[str]
    without_positions: float
    with_positions: float


@torch.no_grad()
def word_order_distance(
    first: str, second: str, d_model: int = 64, seed: int = 0
) -> WordOrderDistance:
    """Compare two sentences as sets of vectors, without and with positions.

    It shows why a transformer needs positions, for example on "The dog bit the man" and "The man
    bit the dog". Every word gets a random vector, regardless of case. The positions are the
    paper's sinusoidal encoding.

    Raises:
        InspectionError: for a sentence without words, or of more than 200 words.
    """
    sentences = [first.lower().split(), second.lower().split()]
    if not all(0 < len(words) <= 200 for words in sentences):
        raise InspectionError(
            "type two sentences of 1 to 200 words each, such as: the dog bit the man"
        )
    vocabulary = sorted({word for words in sentences for word in words})
    max_words = max(map(len, sentences))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        table = build_token_embedding(max(4, len(vocabulary)), d_model)
    distances = []
    for scale in (0.0, 1.0):
        config = ModelConfig(
            d_model=d_model,
            n_heads=1,
            position_type="sinusoidal",
            sinusoidal_scale=scale,
            max_positions=max(2, max_words),
        )
        embed = InputEmbedding(config, table)
        sets = [
            embed(torch.tensor([[vocabulary.index(word) for word in words]]))[0]
            for words in sentences
        ]
        distance = (sets[0][:, None] - sets[1]).norm(dim=-1)
        distances.append(max(float(distance.amin(0).max()), float(distance.amin(1).max())))
    return WordOrderDistance(sentences[0], sentences[1], distances[0], distances[1])


@dataclass(frozen=True)
class EmbeddingPCA:
    """Token embeddings projected onto their first two principal components.

    coordinates         two coordinates for each of `names`
    explained_variance  the fraction of the variance that each of the two components explains
    """

    names: list[str]
    coordinates: list[tuple[float, float]]
    explained_variance: tuple[float, float]


@torch.no_grad()
def position_vectors(subject: InspectedModel, side: str) -> Tensor | None:
    """Return the position vectors (PD) of one side, in the order in which the model counts.

    There is one for each of `max_positions`; None if the model adds no vectors (none, rope, alibi,
    t5). For randomized positions, these are the vectors used at inference.

    Raises:
        InspectionError: for a side other than source and target.
    """
    embedding = _embedding(subject, side)
    if embedding.position_embedding is None or embedding.position_type != "randomized":
        return embedding.position_embedding
    return embedding.position_vectors(
        torch.ones(
            1, embedding.max_positions, dtype=torch.long, device=embedding.position_embedding.device
        )
    )


def token_embeddings(subject: InspectedModel, side: str) -> tuple[list[str], Tensor]:
    """Return the names and the learned embeddings (ND) of one side's tokens.

    EOS and SOS are included. PAD is not, because no position attends to it.

    Raises:
        InspectionError: for a side other than source and target.
    """
    table_ND = _embedding(subject, side).token_embedding.weight.detach()
    return subject.token_names(list(range(1, len(table_ND)))), table_ND[1:]


def nearest_tokens(subject: InspectedModel, side: str, name: str) -> list[tuple[str, float]]:
    """Return the other tokens by their cosine similarity to the named one, the nearest first.

    Raises:
        InspectionError: for a name that is not a token of the model.
    """
    names, table_ND = token_embeddings(subject, side)
    if name not in names:
        raise InspectionError(
            f"{name[:20]!r} is not a token of this model; choose one of {', '.join(names)}"
        )
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


def _embedding(subject: InspectedModel, side: str) -> InputEmbedding:
    if side not in ("source", "target"):
        raise InspectionError(f"side is {side!r}; choose source or target")
    return (
        subject.transformer.source_embedding
        if side == "source"
        else subject.transformer.target_embedding
    )
