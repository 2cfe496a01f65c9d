"""Induction heads: the scores of Olsson et al. (2022) for each head of a decoder-only model.

An induction head reads ... A B ... A and predicts B. The two scores measure both halves, at the
queries whose symbol occurred before in the sequence:

prefix_matching  the attention on the token after the earlier occurrence
copying          the share of the raised logits that is on the token with the most attention: the
                 head's direct effect on the logits, less its mean over the vocabulary, where it is
                 positive

The final normalization divides the effect by a positive number, which changes no share.

Shapes: B batch, W source and target, H heads, V vocabulary, Q queries of all sequences.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from playground.architectures.decoder_only import DecoderOnlyModel, concat_source_and_target
from playground.architectures.seq2seq_model import eval_mode
from playground.tasks.task import Batch
from playground.tasks.vocabulary import SPECIAL_TOKENS

from .hooks import record_activations


@dataclass(frozen=True)
class InductionScore:
    """The scores of one head, from 0 to 1; layers and heads count from 0."""

    layer: int
    head: int
    prefix_matching: float
    copying: float


def repeated_queries(tokens_BW: Tensor) -> tuple[Tensor, Tensor]:
    """Return which positions (BW) have a symbol that occurred before, and the position after it.

    Of several earlier occurrences it is the last.
    """
    width = tokens_BW.shape[1]
    is_earlier_WW = torch.ones(width, width, dtype=torch.bool, device=tokens_BW.device).tril(-1)
    is_equal_BWW = tokens_BW[:, :, None] == tokens_BW[:, None]
    is_symbol_BW1 = (tokens_BW >= len(SPECIAL_TOKENS))[..., None]
    is_match_BWW = is_equal_BWW & is_earlier_WW & is_symbol_BW1
    position_W = torch.arange(1, width + 1, device=tokens_BW.device)
    return is_match_BWW.any(-1), (is_match_BWW * position_W).amax(-1)


@torch.no_grad()
def induction_scores(model: DecoderOnlyModel, batch: Batch) -> list[InductionScore]:
    """Return the scores of each head over the sequences of a batch."""
    tokens_BW = concat_source_and_target(batch.source_BS, batch.decoder_input_BT[:, 1:])
    is_query_BW, next_BW = repeated_queries(tokens_BW)
    row_Q, query_Q = is_query_BW.nonzero(as_tuple=True)
    projections = [f"layers.{layer}.self_attn.out_proj" for layer in range(model.config.n_layers)]
    weights: list[Tensor] = []
    with eval_mode(model), record_activations(model, projections) as calls:
        model(tokens_BW, weights)

    def to_logits(x_QD: Tensor) -> Tensor:
        return model.output_proj(model.norm(x_QD))

    scores = []
    for layer, weights_BHWW in enumerate(weights):
        heads_QHK = (
            calls[projections[layer]][0]
            .inputs[0][row_Q, query_Q]
            .unflatten(-1, (model.config.n_heads, -1))
        )
        out_DX = model.get_parameter(f"{projections[layer]}.weight")
        out_HDK = out_DX.unflatten(1, (model.config.n_heads, -1)).transpose(0, 1)
        for head in range(model.config.n_heads):
            attention_QW = weights_BHWW[row_Q, head, query_Q]
            matched_Q = attention_QW.gather(1, next_BW[row_Q, query_Q, None])[:, 0]
            output_QD = heads_QHK[:, head] @ out_HDK[head].T
            logits_QV = to_logits(output_QD) - to_logits(torch.zeros_like(output_QD))
            raised_QV = (logits_QV - logits_QV.mean(-1, keepdim=True)).relu()
            attended_Q1 = tokens_BW[row_Q, attention_QW.argmax(-1)][:, None]
            copying_Q = raised_QV.gather(1, attended_Q1)[:, 0] / raised_QV.sum(-1)
            scores.append(
                InductionScore(layer, head, float(matched_Q.mean()), float(copying_Q.mean()))
            )
    return scores
