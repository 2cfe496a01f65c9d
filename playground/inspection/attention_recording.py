"""Record the attention weights of every head while a model processes a batch.

There are two modes. Teacher-forced: the decoder input is the target, shifted right. Free-running:
the decoder input is the generated tokens, and each row of the attention weights is that of the
step that generated its token.

Shapes: L layers, B batch, S source, T target, H heads, Q queries, M memory, V vocabulary.
"""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.architectures.encoder_decoder import TransformerModel
from playground.generation import generate
from playground.models.attention import causal_mask, padding_mask
from playground.tasks import EOS
from playground.tasks.task import Batch

from .hooks import (
    ATTENTION_KINDS,
    Activations,
    AttentionKind,
    Component,
    record_activations,
    run_with_cache,
)


@dataclass(frozen=True)
class AttentionRecording:
    """The attention weights and the logits of one pass over a batch.

    source_BS          the source tokens with EOS
    decoder_input_BT   the decoder input: SOS, then the target or the generated tokens
    logits_BTV         the logits of the decoder
    attention_weights  for each of "encoder", "decoder" and "cross" the weights LBHQM; rows sum to
                       one
    attn_mask          for each of them BQM, true if the query may attend to the key; elsewhere, at
                       future positions and padding, the weight is zero by construction
    """

    source_BS: Tensor
    decoder_input_BT: Tensor
    logits_BTV: Tensor
    attention_weights: dict[AttentionKind, Tensor]
    attn_mask: dict[AttentionKind, Tensor]


def record_teacher_forced(model: TransformerModel, batch: Batch) -> AttentionRecording:
    """Record the attention weights of a teacher-forced pass."""
    _, calls = run_with_cache(model, batch, _recorded_modules(model))
    return recording_of(model, calls)


def record_free_running(
    model: TransformerModel, source_BS: Tensor, max_tokens: int
) -> tuple[AttentionRecording, Tensor]:
    """Record the attention weights of greedy free-running decoding.

    Returns the recording and the generated tokens (BT, with EOS, then PAD), cut to the longest
    generated sequence. Raises ValueError for more tokens than the model has positions.
    """
    with record_activations(model, _recorded_modules(model)) as calls:
        generated_BT = generate(model, source_BS, max_tokens)
    finished_BT = (generated_BT == EOS).cumsum(1) > 0
    n = min(int((~finished_BT).sum(1).max()) + 1, max_tokens)
    return recording_of(model, calls, n), generated_BT[:, :n]


def recording_of(
    model: TransformerModel, calls: Activations, n_steps: int | None = None
) -> AttentionRecording:
    """Join the recorded calls of the first `n_steps` decoding steps (default: all)."""
    source_BS = calls["source_embedding"][0].inputs[0]
    steps = calls["target_embedding"][:n_steps]
    decoder_input_BT = torch.cat([step.inputs[0] for step in steps], dim=1)
    attn_mask = attention_masks(source_BS, decoder_input_BT)

    def join_steps(kind: AttentionKind, layer: int) -> Tensor:
        """Join the weights of the steps: BHQM, zero at the keys of later steps."""
        width = attn_mask[kind].shape[-1]
        weights = [cast(Tensor, call.weights) for call in calls[_module(kind, layer)][:n_steps]]
        return torch.cat(
            [F.pad(step_BHQM, (0, width - step_BHQM.shape[-1])) for step_BHQM in weights], dim=2
        )

    layers = range(model.config.n_layers)
    return AttentionRecording(
        source_BS,
        decoder_input_BT,
        torch.cat([call.output for call in calls["output_proj"][:n_steps]], dim=1),
        {
            kind: torch.stack([join_steps(kind, layer) for layer in layers])
            for kind in ATTENTION_KINDS
        },
        attn_mask,
    )


def _module(kind: AttentionKind, layer: int) -> str:
    return Component(kind, layer).module_name


def _recorded_modules(model: TransformerModel) -> list[str]:
    layers = range(model.config.n_layers)
    attention = [_module(kind, layer) for kind in ATTENTION_KINDS for layer in layers]
    return ["source_embedding", "target_embedding", *attention, "output_proj"]


def attention_masks(source_BS: Tensor, decoder_input_BT: Tensor) -> dict[AttentionKind, Tensor]:
    """Return the attention mask of each type of attention: BQM, True = may attend."""
    (n, s), t = source_BS.shape, decoder_input_BT.shape[1]
    is_token_B1S = padding_mask(source_BS)[:, 0]
    return {
        "encoder": is_token_B1S.expand(n, s, s),
        "decoder": causal_mask(t, decoder_input_BT.device).expand(n, t, t),
        "cross": is_token_B1S.expand(n, t, s),
    }
