"""What symbols and positions are before any attention: sine waves, the order of words, and the learned table of symbols.

Shapes: P positions, D d_model, N symbols.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.models.config import ModelConfig
from playground.models.positions import Embedding, token_table

from .subject import NotInspectable, Subject


def wavelength(dimension: int, d_model: int) -> float:
    """Positions after which a dimension (from 0) of the sine waves repeats: 2 pi 10000^(2i / d_model), the same for the sine
    2i and the cosine 2i + 1 (Vaswani et al. 2017, section 3.5). 6.3 for dimension 0, 47 for dimension 14 of 64.

    Raises:
        ValueError: for a dimension that there is not.
    """
    if not 0 <= dimension < d_model:
        raise ValueError(
            f"dimension is {dimension}; a vector of {d_model} numbers has the dimensions 0 to {d_model - 1}"
        )
    return 2 * math.pi * 10_000 ** (dimension // 2 * 2 / d_model)


@dataclass(frozen=True)
class WordOrder:
    """How far apart two sentences are as sets of vectors, without and with positions; 0: they are the same set.

    The distance is the Hausdorff distance: from the vector of either set that is farthest off to the nearest of the other set.
    """

    first: list[str]
    second: list[str]
    without_positions: float
    with_positions: float


@torch.no_grad()
def word_order(first: str, second: str, d_model: int = 64, seed: int = 0) -> WordOrder:
    """What positions are for, on two sentences such as "The dog bit the man" and "The man bit the dog". Every word, whatever
    its case, gets a random vector; positions are the paper's sine waves.

    Raises:
        NotInspectable: for a sentence without words, or of more than 200.
    """
    sentences = [first.lower().split(), second.lower().split()]
    if not all(0 < len(words) <= 200 for words in sentences):
        raise NotInspectable(
            "type two sentences of 1 to 200 words each, such as: the dog bit the man"
        )
    vocabulary = sorted({word for words in sentences for word in words})
    longest = max(map(len, sentences))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        table = token_table(max(4, len(vocabulary)), d_model)
    distances = []
    for scale in (0.0, 1.0):
        config = ModelConfig(
            d_model=d_model,
            n_heads=1,
            positions="sinusoidal",
            position_scale=scale,
            max_positions=max(2, longest),
        )
        embed = Embedding(config, table)
        sets = [
            embed(torch.tensor([[vocabulary.index(word) for word in words]]))[0]
            for words in sentences
        ]
        apart = (sets[0][:, None] - sets[1]).norm(dim=-1)
        distances.append(max(float(apart.amin(0).max()), float(apart.amin(1).max())))
    return WordOrder(sentences[0], sentences[1], distances[0], distances[1])


@dataclass(frozen=True)
class SymbolMap:
    """A learned table of symbols laid flat by principal components: `places` has two numbers for each of `names`, and
    `explained` the share of the table's variance that each of the two directions holds."""

    names: list[str]
    places: list[tuple[float, float]]
    explained: tuple[float, float]


@torch.no_grad()
def position_table(subject: Subject, side: str) -> Tensor | None:
    """The vectors (PD) that tell one side's positions, one for each that there is room for, in the order in which the model counts
    them; None where it adds no vectors (none, rope, alibi, t5). Randomised positions: those that are taken when the model is asked.

    Raises:
        NotInspectable: for a side other than source and target.
    """
    embedding = _embedding(subject, side)
    if embedding.positions is None or embedding.kind != "randomised":
        return embedding.positions
    return embedding.placed(
        torch.ones(1, embedding.max_positions, dtype=torch.long, device=embedding.positions.device)
    )


def symbol_vectors(subject: Subject, side: str) -> tuple[list[str], Tensor]:
    """The learned vectors (ND) of one side's symbols, EOS and SOS included, PAD left out because nobody ever reads it.

    Raises:
        NotInspectable: for a side other than source and target.
    """
    table_ND = _embedding(subject, side).tokens.weight.detach()
    return subject.names(list(range(1, len(table_ND)))), table_ND[1:]


def neighbours(subject: Subject, side: str, name: str) -> list[tuple[str, float]]:
    """The other symbols in order of their cosine similarity to the named one, the nearest first.

    Raises:
        NotInspectable: for a name that no symbol has.
    """
    names, table_ND = symbol_vectors(subject, side)
    if name not in names:
        raise NotInspectable(
            f"{name[:20]!r} is no symbol of this model; choose one of {', '.join(names)}"
        )
    unit_ND = F.normalize(table_ND, dim=-1)
    similarity_N = (unit_ND @ unit_ND[names.index(name)]).tolist()
    return sorted(
        ((other, s) for other, s in zip(names, similarity_N, strict=True) if other != name),
        key=lambda pair: -pair[1],
    )


def symbol_map(subject: Subject, side: str) -> SymbolMap:
    """The learned symbols of one side in two dimensions. Each direction's sign is chosen so that its largest entry is positive."""
    names, table_ND = symbol_vectors(subject, side)
    centred_ND = (table_ND - table_ND.mean(0)).double()
    _, size_N, direction_ND = torch.linalg.svd(centred_ND, full_matrices=False)
    places_N2 = centred_ND @ direction_ND[:2].T
    places_N2 *= places_N2.gather(0, places_N2.abs().argmax(0, keepdim=True)).sign()
    share_N = size_N**2 / (size_N**2).sum()
    if len(size_N) == 1:  # vectors of one number lie on a line
        places_N2, share_N = F.pad(places_N2, (0, 1)), F.pad(share_N, (0, 1))
    return SymbolMap(
        names, [(x, y) for x, y in places_N2.tolist()], (float(share_N[0]), float(share_N[1]))
    )


def _embedding(subject: Subject, side: str) -> Embedding:
    if side not in ("source", "target"):
        raise NotInspectable(f"side is {side!r}; choose source or target")
    return subject.family.source_embedding if side == "source" else subject.family.target_embedding
