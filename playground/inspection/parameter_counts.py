"""Parameter counts by group, and the memory cost of attention at growing sequence lengths.

All numbers are counted or measured. Published numbers are listed for comparison.
"""

import dataclasses
import math
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from playground.models.attention import MultiHeadAttention, scaled_dot_product_attention
from playground.models.config import ModelConfig, paper_base_config
from playground.models.transformer import Transformer

from .inspected_model import InspectionError

# Groups of parameters, by the parameter's name in our model or in PyTorch's.
PARAMETER_GROUPS = {
    "source token embedding": r"source_embedding\.token_embedding",
    "target token embedding": r"target_embedding\.token_embedding",
    "source position vectors": r"source_embedding\.position_embedding",
    "target position vectors": r"target_embedding\.position_embedding",
    "attention, weights": r"attn\.([qkv]_proj\.|out_proj\.|in_proj_)weight",
    "attention, biases": r"attn\.([qkv]_proj\.|out_proj\.|in_proj_)bias",
    "relative position bias": r"\.position_encoding\.",
    "feed-forward": r"feed_forward\.(gate|up|down)_proj|linear[12]\.",
    "norms in the layers": r"_residual\.norm\.|\.norm[123]\.",
    "final norms": r"^(en|de)coder[._]norm\.",
    "output layer": r"^output_proj\.",
}
PUBLISHED_BASE = 100_970_632  # the total that a tutorial's code counts for its base model
# Sequence lengths, and the size of one head's attention weights if a tutorial states it.
PUBLISHED_SIZES: dict[int, str | None] = {
    512: "1 MB",
    1_000: None,
    2_048: "16 MB",
    8_192: "256 MB",
    10_000: None,
    128_000: "64 GB",
}
# digits, or groups of three digits with commas
LENGTH_PATTERN = re.compile(r"[0-9]+|[0-9]{1,3}(,[0-9]{3})+")
MAX_LENGTH = 10_000_000  # of a length that the user enters
# The attention weights of BERT base in float32, and the memory that they are compared with.
BERT_BASE_HEADS = 12 * 12
LAPTOP_BYTES, GPU_BYTES = 8 * 10**9, 80 * 10**9
MAX_MEASURED_BYTES = 256 * 2**20  # bytes
MEASURED_RUNS = 3


@dataclass(frozen=True)
class GroupCount:
    """Trainable parameters of one group, in our model and in PyTorch's `nn.Transformer`.

    `reason` is the reason for a difference, or "".
    """

    group: str
    ours: int
    torch: int
    reason: str


@dataclass(frozen=True)
class TensorShape:
    """One tensor of multi-head attention: its name, formula, and shape."""

    name: str
    formula: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class AttentionMemory:
    """The number and size of one head's attention weights over a sequence, in float32.

    `published` is the size that a tutorial states.
    """

    length: int
    num_scores: int
    bytes: int
    published: str | None

    @property
    def bytes_of_bert(self) -> int:
        """Return the size of the weights of all heads and layers of BERT base."""
        return BERT_BASE_HEADS * self.bytes

    @property
    def practical(self) -> str:
        """Describe where the weights of BERT base fit."""
        if self.bytes_of_bert <= LAPTOP_BYTES:
            return "on a laptop (8 GB)"
        return "on one GPU (80 GB)" if self.bytes_of_bert <= GPU_BYTES else "no"


def tutorial_base_config() -> ModelConfig:
    """Return the base model as a tutorial counts it.

    It has the paper's sizes, vocabularies of 37,000 tokens, and attention without biases.
    """
    return dataclasses.replace(
        paper_base_config(vocab_size=37_000), dropout=0.0, attention_bias=False
    )


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """Count the trainable parameters by group, on a model built on the meta device.

    A weight that two layers share counts once, in the group where it appears first.
    """
    with torch.device("meta"):
        model = Transformer(config)
    return _count((name, weight.numel()) for name, weight in model.named_parameters())


def compare_with_torch(config: ModelConfig) -> list[GroupCount]:
    """Compare the parameter counts with PyTorch's `nn.Transformer` of the same sizes.

    The embeddings and the output layer are the same for both.
    """
    with torch.device("meta"):
        model = Transformer(config)
        theirs = build_torch_transformer(config)
    around = [
        (n, w.numel())
        for n, w in model.named_parameters()
        if n.startswith(("source_", "target_", "output_proj."))
    ]
    ours = _count((name, weight.numel()) for name, weight in model.named_parameters())
    torchs = _count(
        [*around, *((name, weight.numel()) for name, weight in theirs.named_parameters())]
    )
    sizes = (config.n_heads * config.key_size, config.n_heads * config.value_size)
    layer_norm = config.norm_type == "layer"
    own_sizes = (
        "PyTorch's head size is d_model / n_heads, this model's head sizes differ; "
        if set(sizes) != {config.d_model}
        else ""
    )
    fewer = (
        "PyTorch has keys and values for every head, here heads share them; "
        if config.n_kv_heads_resolved < config.n_heads
        else ""
    )
    no_shift = "" if layer_norm else "PyTorch's layer norms have a bias, RMSNorm has none"
    post = (
        ""
        if config.norm_placement == "pre"
        else "nn.Transformer ends each stack with a layer norm; the post-norm paper and "
        "this model do not"
    )
    no_biases = "PyTorch's attention has biases in all four projections, this model has none"
    why = {
        "attention, weights": f"{own_sizes}{fewer}".removesuffix("; "),
        "attention, biases": f"{own_sizes}{fewer}".removesuffix("; ")
        if config.bias and config.attention_bias
        else no_biases,
        "relative position bias": "nn.Transformer has no position bias in its attention",
        "feed-forward": "SwiGLU has a gate, a third matrix that nn.Transformer lacks",
        "norms in the layers": no_shift,
        "final norms": post or no_shift,
    }
    return [
        GroupCount(
            part, ours[part], torchs[part], why.get(part, "") if ours[part] != torchs[part] else ""
        )
        for part in PARAMETER_GROUPS
    ]


def build_torch_transformer(config: ModelConfig) -> nn.Transformer:
    """Build `nn.Transformer` with the same sizes, including its final norms.

    Its head size is d_model / n_heads. If that is not an integer it has a single head, which has
    the same number of parameters.
    """
    n_heads = config.n_heads if config.d_model % config.n_heads == 0 else 1
    sizes: tuple[int, int, int, float] = (config.d_model, n_heads, config.d_ff, config.dropout)
    activation = "relu" if config.activation == "relu" else "gelu"
    first = config.norm_placement == "pre"
    bias = config.bias
    encoder = nn.TransformerEncoderLayer(
        *sizes, activation, batch_first=True, norm_first=first, bias=bias
    )
    decoder = nn.TransformerDecoderLayer(
        *sizes, activation, batch_first=True, norm_first=first, bias=bias
    )
    final = [nn.LayerNorm(config.d_model, bias=bias) for _ in range(2)]
    return nn.Transformer(
        config.d_model,
        n_heads,
        custom_encoder=nn.TransformerEncoder(
            encoder, config.n_layers, final[0], enable_nested_tensor=False
        ),
        custom_decoder=nn.TransformerDecoder(decoder, config.n_layers, final[1]),
        batch_first=True,
    )


def attention_shapes(config: ModelConfig, length: int) -> list[TensorShape]:
    """List the tensors of self-attention over `length` tokens, in order, with their shapes."""
    with torch.device("meta"):
        attention = MultiHeadAttention(config)
        x_BQD = torch.empty(1, length, config.d_model)
        key_BGMK, value_BGMK = attention.project_kv(x_BQD)
        joined: list[torch.Tensor] = []
        handle = attention.out_proj.register_forward_pre_hook(
            lambda module, inputs: joined.append(inputs[0])
        )
        result_BQD, weights_BHQM = attention(x_BQD, key_BGMK, value_BGMK, need_weights=True)
        handle.remove()
        query_BQD = attention.q_proj(x_BQD)
    n_heads, shared = config.n_heads, config.n_kv_heads_resolved
    cut = (
        "split into heads"
        if shared == n_heads
        else f"split into {shared}, each shared by {n_heads // shared} heads"
    )
    alike = (
        query_BQD.shape[-1]
        == key_BGMK.shape[1] * key_BGMK.shape[3]
        == value_BGMK.shape[1] * value_BGMK.shape[3]
    )
    # PyTorch stores a matrix transposed: X W_Q is X @ weight.T.
    linears = {"W_Q": attention.q_proj, "W_K": attention.k_proj, "W_V": attention.v_proj}
    projections = [
        (name, f"the projection {name[2:]}", linear.weight.T.shape)
        for name, linear in linears.items()
    ]
    keys_and_values = [
        ("K, all heads", f"X W_K, {cut}", key_BGMK.shape[1:]),
        ("V, all heads", f"X W_V, {cut}", value_BGMK.shape[1:]),
    ]
    if alike:
        projections = [("W_Q, W_K, W_V", "the three projections", attention.q_proj.weight.T.shape)]
        keys_and_values = [
            ("K, V, all heads", "X W_K and X W_V, split into heads", key_BGMK.shape[1:])
        ]
    rows = [
        ("X", "the input, one row per token", x_BQD.shape[1:]),
        *projections,
        ("Q", "X W_Q", query_BQD.shape[1:]),
        ("Q, one head", f"a slice of Q, {n_heads} in all", (length, config.key_size)),
        *keys_and_values,
        ("weights, all heads", "softmax(Q Kᵀ / sqrt(head size))", weights_BHQM.shape[1:]),
        ("output of one head", "its weights times its V", (length, config.value_size)),
        ("concatenation", "the outputs of all heads, concatenated", joined[0].shape[1:]),
        ("W_O", "the output projection", attention.out_proj.weight.T.shape),
        ("output", "concatenation W_O", result_BQD.shape[1:]),
    ]
    return [TensorShape(name, formula, tuple(shape)) for name, formula, shape in rows]


def attention_memory(lengths: list[int] | None = None) -> list[AttentionMemory]:
    """Return the memory of one head's attention weights in float32 for each length.

    It is quadratic: twice the length takes four times the memory.
    """
    bytes_each = torch.finfo(torch.float32).bits // 8
    return [
        AttentionMemory(n, n * n, n * n * bytes_each, PUBLISHED_SIZES.get(n))
        for n in lengths or PUBLISHED_SIZES
    ]


def parse_lengths(text: str) -> list[int]:
    """Return the lengths that the user entered, separated by spaces: "512 1,000".

    Raises:
        InspectionError: for a word that is no length.
    """
    words = text.split()
    numbers = [word.replace(",", "") for word in words]
    for word, number in zip(words, numbers, strict=True):
        if not (LENGTH_PATTERN.fullmatch(word) and 0 < int(number) <= MAX_LENGTH):
            raise InspectionError(
                f"{word[:20]!r} is not a length; enter whole numbers from 1 to {MAX_LENGTH:,}, "
                "separated by spaces"
            )
    return list(map(int, numbers))


def benchmark_attention(length: int, width: int = 64) -> tuple[int, float, float]:
    """Measure one head's attention: bytes of its weights, seconds, and seconds when fused.

    The explicit computation stores all weights. Fused attention (Dao et al. 2022,
    FlashAttention) computes the same output block by block, and stores none. The inputs are random
    vectors. The time is the shortest of several runs, because the first one also allocates memory.

    Raises:
        InspectionError: for a length below 1, or one whose weights take more than 256 MB.
    """
    if length < 1 or attention_memory([length])[0].bytes > MAX_MEASURED_BYTES:
        max_length = int((MAX_MEASURED_BYTES // 4) ** 0.5)
        raise InspectionError(f"length is {length:,}; choose lengths from 1 to {max_length:,}")
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 1, length, width, generator=generator) for _ in range(3))
    explicit_s, fused_s = math.inf, math.inf
    with torch.no_grad():
        for _ in range(MEASURED_RUNS):
            started = time.perf_counter()
            _, weights = scaled_dot_product_attention(query, key, value)
            explicit_s = min(explicit_s, time.perf_counter() - started)
            started = time.perf_counter()
            nn.functional.scaled_dot_product_attention(query, key, value)
            fused_s = min(fused_s, time.perf_counter() - started)
    return weights.untyped_storage().nbytes(), explicit_s, fused_s


def _count(parameters: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Count parameters by group.

    Raises:
        LookupError: for a parameter that matches no group, or several of them.
    """
    counts: Counter[str] = Counter(dict.fromkeys(PARAMETER_GROUPS, 0))
    for name, n in parameters:
        groups = [part for part, pattern in PARAMETER_GROUPS.items() if re.search(pattern, name)]
        if len(groups) != 1:
            raise LookupError(f"parameter {name!r} matches the groups {groups}; it needs one")
        counts[groups[0]] += n
    return dict(counts)
