"""How large a model is, part by part, and what attention costs as sequences grow. Counted and measured, not quoted; where a
published number differs, it stands beside ours.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from playground.models.attention import MultiHeadAttention, attend
from playground.models.config import ModelConfig
from playground.models.transformer import Transformer

from .subject import NotInspectable

PARTS = {  # what a parameter belongs to, by its name in our model or in torch's
    "source symbols": r"source_embedding\.tokens",
    "target symbols": r"target_embedding\.tokens",
    "source positions": r"source_embedding\.positions",
    "target positions": r"target_embedding\.positions",
    "attention, weights": r"\.(self|cross)_attention\.\w+\.weight|(attn|multihead_attn)\.(in_proj_|out_proj\.)weight",
    "attention, biases": r"\.(self|cross)_attention\.\w+\.bias|(attn|multihead_attn)\.(in_proj_|out_proj\.)bias",
    "feed-forward": r"feed_forward\.(widen|narrow)|linear[12]\.",
    "norms in the layers": r"around_\w+\.norm\.|\.norm[123]\.",
    "final norms": r"^(en|de)coder[._]norm\.",
    "output layer": r"^output\.",
}
PUBLISHED_BASE = {"ours": 100_970_632, "torch": 101_009_544}
LENGTHS = {512: "1 MB", 2_048: "16 MB", 8_192: "256 MB", 128_000: "64 GB"}  # and the published size of a head's weights
LARGEST_MEASURED = 256 * 2**20  # bytes


@dataclass(frozen=True)
class PartCount:
    """Trainable numbers in one part of the model, of ours and of torch's nn.Transformer, and why they differ if they do."""

    part: str
    ours: int
    torchs: int
    why: str


@dataclass(frozen=True)
class TensorShape:
    """One tensor of multi-head attention: its name, formula, and shape."""

    name: str
    formula: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class AttentionCost:
    """The weights of one head over a sequence, in float32: how many and how many bytes; `published` is what a write-up says."""

    length: int
    entries: int
    bytes: int
    published: str | None


def story_base() -> ModelConfig:
    """The base model as a write-up counts it: the paper's sizes, vocabularies of 37,000, attention without biases."""
    return ModelConfig(
        d_model=512, n_heads=8, n_layers=6, d_ff=2048, norm="post", positions="sinusoidal", attention_bias=False,
        source_vocabulary=37_000, target_vocabulary=37_000, max_positions=5_000,
    )  # fmt: skip


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """Trainable numbers part by part, counted on the model itself (built without memory). A table that serves two layers counts
    once, where it appears first."""
    with torch.device("meta"):
        model = Transformer(config)
    return _count((name, weight.numel()) for name, weight in model.named_parameters())


def compare_with_torch(config: ModelConfig) -> list[PartCount]:
    """Ours beside torch's nn.Transformer of the same sizes with the same embeddings and output layer around it."""
    with torch.device("meta"):
        model = Transformer(config)
        theirs = prebuilt(config)
    around = [(n, w.numel()) for n, w in model.named_parameters() if n.startswith(("source_", "target_", "output."))]
    ours = _count((name, weight.numel()) for name, weight in model.named_parameters())
    torchs = _count([*around, *((name, weight.numel()) for name, weight in theirs.named_parameters())])
    why = {
        "attention, biases": "torch's attention has biases in all four projections, here they are turned off",
        "final norms": "nn.Transformer ends each stack with a layer norm; the post-norm paper and this model do not",
    }
    return [PartCount(part, ours[part], torchs[part], why.get(part, "") if ours[part] != torchs[part] else "") for part in PARTS]


def prebuilt(config: ModelConfig) -> nn.Transformer:
    """torch's own encoder and decoder stacks of the same sizes, with the final norms that nn.Transformer gives them."""
    d, first = config.d_model, config.norm == "pre"
    encoder = nn.TransformerEncoderLayer(d, config.n_heads, config.d_ff, config.dropout, batch_first=True, norm_first=first)
    decoder = nn.TransformerDecoderLayer(d, config.n_heads, config.d_ff, config.dropout, batch_first=True, norm_first=first)
    return nn.Transformer(
        d,
        config.n_heads,
        custom_encoder=nn.TransformerEncoder(encoder, config.n_layers, nn.LayerNorm(d), enable_nested_tensor=False),
        custom_decoder=nn.TransformerDecoder(decoder, config.n_layers, nn.LayerNorm(d)),
        batch_first=True,
    )


def attention_shapes(config: ModelConfig, length: int) -> list[TensorShape]:
    """The tensors of self-attention over `length` tokens, in order, with the shapes that our code gives them."""
    with torch.device("meta"):
        attention = MultiHeadAttention(config)
        x_BQD = torch.empty(1, length, config.d_model)
        key_BHMK, value_BHMK = attention.keys_and_values(x_BQD)
        joined: list[torch.Tensor] = []
        handle = attention.output.register_forward_pre_hook(lambda module, given: joined.append(given[0]))
        result_BQD, weights_BHQM = attention(x_BQD, key_BHMK, value_BHMK, torch.ones(1, 1, dtype=torch.bool))
        handle.remove()
        query_BQD = attention.query(x_BQD)
    n_heads, width = config.n_heads, key_BHMK.shape[-1]
    one_head = (length, width)
    assert width * n_heads == config.d_model
    rows = [
        ("X", "what comes in, a row for each token", x_BQD.shape[1:]),
        ("W_Q, W_K, W_V", "the three projections", attention.query.weight.shape),
        ("Q", "X W_Q", query_BQD.shape[1:]),
        ("Q, one head", f"a slice of Q, {n_heads} in all", one_head),
        ("K, V, all heads", "X W_K and X W_V, cut into heads", key_BHMK.shape[1:]),
        ("weights, all heads", "softmax(Q Kᵀ / sqrt(size of a head))", weights_BHQM.shape[1:]),
        ("one head's result", "its weights times its V", one_head),
        ("concatenation", "the heads' results side by side", joined[0].shape[1:]),
        ("W_O", "the output projection", attention.output.weight.shape),
        ("result", "concatenation W_O", result_BQD.shape[1:]),
    ]
    return [TensorShape(name, formula, tuple(shape)) for name, formula, shape in rows]


def attention_costs(lengths: list[int] | None = None) -> list[AttentionCost]:
    """The quadratic table: weights of one head in float32 for each length; twice the length takes four times the memory."""
    bytes_each = torch.finfo(torch.float32).bits // 8
    return [AttentionCost(n, n * n, n * n * bytes_each, LENGTHS.get(n)) for n in lengths or LENGTHS]


def measure_attention(length: int, width: int = 64) -> tuple[int, float]:
    """Bytes that one head's weights really take on this machine, and the seconds that attention took, for random vectors.

    Raises:
        NotInspectable: for a length below 1, or one whose weights take more than 256 MB.
    """
    if length < 1 or attention_costs([length])[0].bytes > LARGEST_MEASURED:
        most = int((LARGEST_MEASURED // 4) ** 0.5)
        raise NotInspectable(f"length is {length:,}; measured are lengths from 1 to {most:,}")
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 1, length, width, generator=generator) for _ in range(3))
    start = time.perf_counter()
    with torch.no_grad():
        _, weights = attend(query, key, value, torch.ones(1, 1, dtype=torch.bool))
    return weights.untyped_storage().nbytes(), time.perf_counter() - start


def _count(parameters: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Numbers by part; a parameter that fits no part or two is a mistake in PARTS."""
    counts: Counter[str] = Counter(dict.fromkeys(PARTS, 0))
    for name, n in parameters:
        found = [part for part, pattern in PARTS.items() if re.search(pattern, name)]
        if len(found) != 1:
            raise LookupError(f"parameter {name!r} belongs to {len(found)} parts: {found}")
        counts[found[0]] += n
    return dict(counts)
