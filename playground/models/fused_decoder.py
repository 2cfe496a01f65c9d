"""The decoder of a transformer for one new token per step, without calls of modules.

With one token per sequence, most of the time of `Transformer.decode_step` is not arithmetic: it
goes to calls of modules, and to an attention kernel that is made for many queries. `FusedDecoder`
computes the same logits. Queries, keys and values have one projection, and the last dimension of
all tensors of the attention is the batch (B), so that its products are elementwise.

G is the number of key/value heads, R the number of query heads that share one of them.
"""

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import MultiHeadAttention
from .embeddings import InputEmbedding
from .feed_forward import FeedForward, SwiGLU
from .layers import DecoderLayer, ResidualNorm
from .position_encoding import (
    ALiBi,
    RelativePositionEncoding,
    RotaryEmbedding,
    T5RelativePositionBias,
)
from .transformer import Transformer

# A module of another class, for example a broken copy in a lesson or an added position encoding,
# may compute something else.
FUSED_CLASSES = {
    ALiBi,
    DecoderLayer,
    FeedForward,
    InputEmbedding,
    MultiHeadAttention,
    RelativePositionEncoding,
    ResidualNorm,
    RotaryEmbedding,
    SwiGLU,
    T5RelativePositionBias,
    nn.Dropout,
    nn.Embedding,
    nn.Identity,
    nn.LayerNorm,
    nn.Linear,
    nn.ModuleList,
    nn.RMSNorm,
}


def can_fuse(model: Transformer) -> bool:
    """Return whether `FusedDecoder` computes what the modules of the decoder compute.

    It does not call hooks, so a model with hooks is decoded module by module.
    """
    if model.training or model.output_proj.weight.device.type != "cpu":
        return False
    return all(
        type(module) in FUSED_CLASSES
        and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
        for part in (model.target_embedding, model.decoder_layers, model.decoder_norm)
        for module in part.modules()
    )


class FusedDecoder:
    """Decodes one token of every sequence at each step.

    `step` returns what `model.output_proj(model.decode_step(...))` returns, up to rounding.
    """

    def __init__(
        self, model: Transformer, memory_BSD: Tensor, source_mask_BS: Tensor, n_positions: int
    ) -> None:
        embedding = model.target_embedding
        self.token_table_VD = embedding.token_embedding.weight * embedding.scale
        no_tokens_1T = torch.zeros(1, n_positions, dtype=torch.long)
        self.position_TD = embedding.position_vectors(no_tokens_1T)
        source_bias_S11B = None
        if not source_mask_BS.all():
            source_bias_S11B = torch.zeros_like(source_mask_BS.T, dtype=memory_BSD.dtype)
            source_bias_S11B.masked_fill_(~source_mask_BS.T, -torch.inf)
            source_bias_S11B = source_bias_S11B[:, None, None]
        self.layers = [
            _FusedLayer(cast(DecoderLayer, layer), memory_BSD, source_bias_S11B, n_positions)
            for layer in model.decoder_layers
        ]
        self.norm, self.output_proj = _fuse_norm(model.decoder_norm), model.output_proj
        self.position = 0

    def step(self, token_B1: Tensor) -> Tensor:
        """Return the logits (BV) of the tokens that follow `token_B1`."""
        x_BD = F.embedding(token_B1[:, 0], self.token_table_VD)
        if self.position_TD is not None:
            x_BD = x_BD + self.position_TD[self.position]
        for layer in self.layers:
            x_BD = layer.step(x_BD, self.position)
        self.position += 1
        return self.output_proj(self.norm(x_BD))


class _FusedLayer:
    def __init__(
        self,
        layer: DecoderLayer,
        memory_BSD: Tensor,
        source_bias_S11B: Tensor | None,
        n_positions: int,
    ) -> None:
        self.self_attn = _FusedAttention(layer.self_attn, n_positions)
        self.cross_attn = _FusedAttention(layer.cross_attn, n_positions)
        self.cache = self.self_attn.new_cache(len(memory_BSD), n_positions)
        self.source_bias_S11B = source_bias_S11B
        key_BGSK, value_BGSK = layer.cross_attn.project_kv(memory_BSD)
        self.source_key_SGKB = key_BGSK.permute(2, 1, 3, 0).contiguous()
        self.source_value_SGKB = value_BGSK.permute(2, 1, 3, 0).contiguous()
        self.feed_forward = _fuse_feed_forward(layer.feed_forward)
        self.self_residual = _FusedResidual(layer.self_attn_residual)
        self.cross_residual = _FusedResidual(layer.cross_attn_residual)
        self.feed_forward_residual = _FusedResidual(layer.feed_forward_residual)

    def step(self, x_BD: Tensor, position: int) -> Tensor:
        x_BD = self.self_residual(x_BD, lambda y_BD: self.attend_to_target(y_BD, position))
        x_BD = self.cross_residual(x_BD, self.attend_to_source)
        return self.feed_forward_residual(x_BD, self.feed_forward)

    def attend_to_target(self, y_BD: Tensor, position: int) -> Tensor:
        attn, (cached_key_TGKB, cached_value_TGKB) = self.self_attn, self.cache
        query_GRKB, key_GKB, value_GKB = attn.project(y_BD, position)
        cached_key_TGKB[position], cached_value_TGKB[position] = key_GKB, value_GKB
        n_keys = position + 1
        return attn.attend(
            query_GRKB, cached_key_TGKB[:n_keys], cached_value_TGKB[:n_keys], attn.bias(n_keys)
        )

    def attend_to_source(self, y_BD: Tensor) -> Tensor:
        query_GRKB = self.cross_attn.project_query(y_BD)
        return self.cross_attn.attend(
            query_GRKB, self.source_key_SGKB, self.source_value_SGKB, self.source_bias_S11B
        )


class _FusedResidual:
    """The residual connection and the norm around a sublayer."""

    def __init__(self, residual: ResidualNorm) -> None:
        self.norm, self.norm_first = _fuse_norm(residual.norm), residual.norm_first

    def __call__(self, x_BD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return x_BD + sublayer(self.norm(x_BD))
        return self.norm(x_BD + sublayer(x_BD))


class _FusedAttention:
    def __init__(self, attn: MultiHeadAttention, n_positions: int) -> None:
        projections = attn.q_proj, attn.k_proj, attn.v_proj
        self.n_kv_heads, self.n_heads = attn.n_kv_heads, attn.n_heads
        self.group_size = attn.n_heads // attn.n_kv_heads
        self.key_size = attn.q_proj.out_features // attn.n_heads
        self.value_size = attn.v_proj.out_features // attn.n_kv_heads
        self.sizes = [each.out_features for each in projections]
        scale = self.key_size**-0.5
        parameters = attn.q_proj.weight * scale, attn.k_proj.weight, attn.v_proj.weight
        self.weight = joined = torch.cat(parameters)
        self.bias_D1 = None
        if attn.q_proj.bias is not None:
            bias_D = torch.cat([attn.q_proj.bias * scale, attn.k_proj.bias, attn.v_proj.bias])
            joined = torch.cat([joined, bias_D[:, None]], 1)  # the bias is the last column
            self.weight, self.bias_D1 = joined[:, :-1], joined[:, -1:]
        self.out_weight, self.out_bias = attn.out_proj.weight, attn.out_proj.bias
        self.position_encoding = attn.position_encoding
        self.rotations_T2K1 = None
        if isinstance(attn.position_encoding, RotaryEmbedding):
            self.rotations_T2K1 = _rotations(attn.position_encoding, n_positions, joined)
            self.rotated_HKD = joined[: sum(self.sizes[:2])].unflatten(0, (-1, self.key_size))
            self.original_HKD = self.rotated_HKD.clone()
            self.swapped_HKD = self.rotated_HKD.roll(self.key_size // 2, 1)

    def new_cache(self, batch_size: int, n_positions: int) -> tuple[Tensor, Tensor]:
        """Allocate the keys (TGKB) and values of the target."""
        shape = n_positions, self.n_kv_heads
        return (
            self.weight.new_empty(*shape, self.key_size, batch_size),
            self.weight.new_empty(*shape, self.value_size, batch_size),
        )

    def project_query(self, y_BD: Tensor) -> Tensor:
        """Return the query (GRKB), divided by the root of the key size."""
        n_query = self.sizes[0]
        bias_D1 = None if self.bias_D1 is None else self.bias_D1[:n_query]
        query_DB = _project(self.weight[:n_query], bias_D1, y_BD)
        return query_DB.view(self.n_kv_heads, self.group_size, self.key_size, len(y_BD))

    def project(self, y_BD: Tensor, position: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the query (GRKB), the key (GKB) and the value (GKB) of the new position."""
        if self.rotations_T2K1 is not None:
            # a rotation of the weights rotates their products, for all sequences at once
            cos_K1, sin_K1 = self.rotations_T2K1[position]
            torch.mul(self.original_HKD, cos_K1, out=self.rotated_HKD)
            self.rotated_HKD.addcmul_(self.swapped_HKD, sin_K1)
        joined_DB = _project(self.weight, self.bias_D1, y_BD)
        query_DB, key_DB, value_DB = joined_DB.split(self.sizes)
        n_groups, batch_size = self.n_kv_heads, len(y_BD)
        return (
            query_DB.view(n_groups, self.group_size, self.key_size, batch_size),
            key_DB.view(n_groups, self.key_size, batch_size),
            value_DB.view(n_groups, self.value_size, batch_size),
        )

    def bias(self, n_keys: int) -> Tensor | None:
        """Return the bias (MGR1) of the newest position's scores, or None."""
        bias_H1M = self.position_encoding.bias(1, n_keys, self.weight.device)
        if bias_H1M is None:
            return None
        return (
            bias_H1M.to(self.weight.dtype)
            .permute(2, 0, 1)
            .unflatten(1, (self.n_kv_heads, self.group_size))
        )

    def attend(
        self, query_GRKB: Tensor, key_MGKB: Tensor, value_MGKB: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Return the output (BD). `bias` is added to the scores (MGRB)."""
        scores_MGRB = (key_MGKB[:, :, None] * query_GRKB).sum(3)
        if bias is not None:
            scores_MGRB = scores_MGRB + bias
        weights_MGRB = scores_MGRB.softmax(0)
        output_GRKB = (value_MGKB[:, :, None] * weights_MGRB[:, :, :, None]).sum(0)
        return F.linear(output_GRKB.flatten(0, 2).T, self.out_weight, self.out_bias)


def _rotations(encoding: RotaryEmbedding, n_positions: int, like: Tensor) -> Tensor:
    """Return the cosine and the signed sine (T2K1) of each position, for swapped pairs."""
    angle_Tk = encoding.rotation_angles(n_positions, like.device)
    cos_Tk, sin_Tk = angle_Tk.cos(), angle_Tk.sin()
    cos_TK, sin_TK = torch.cat([cos_Tk, cos_Tk], 1), torch.cat([-sin_Tk, sin_Tk], 1)
    return torch.stack([cos_TK, sin_TK], 1)[..., None].to(like.dtype)


def _fuse_norm(norm: nn.Module) -> Callable[[Tensor], Tensor]:
    if isinstance(norm, nn.LayerNorm):
        shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return lambda x_BD: F.layer_norm(x_BD, shape, weight, bias, eps)
    return norm.forward


def _fuse_feed_forward(network: FeedForward | SwiGLU) -> Callable[[Tensor], Tensor]:
    if isinstance(network, SwiGLU):
        return network.forward
    up_proj, down_proj, activation = network.up_proj, network.down_proj, network.activation
    up, down = (up_proj.weight, up_proj.bias), (down_proj.weight, down_proj.bias)
    return lambda y_BD: F.linear(activation(F.linear(y_BD, *up)), *down)


def _project(weight: Tensor, bias_D1: Tensor | None, y_BD: Tensor) -> Tensor:
    """Return a linear projection as DB."""
    return weight @ y_BD.T if bias_D1 is None else torch.addmm(bias_D1, weight, y_BD.T)
