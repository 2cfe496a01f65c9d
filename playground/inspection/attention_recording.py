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
from playground.models.transformer import AttentionWeights
from playground.tasks import EOS, SOS
from playground.tasks.task import Batch

from .hooks import ATTENTION_KINDS, Component, record_activations


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
    attention_weights: dict[str, Tensor]
    attn_mask: dict[str, Tensor]


@torch.no_grad()
def record_teacher_forced(model: TransformerModel, batch: Batch) -> AttentionRecording:
    """Record the attention weights of a teacher-forced pass."""
    source_BS, decoder_input_BT = batch.source_BS, batch.decoder_input_BT
    weights = AttentionWeights()
    logits_BTV = model(source_BS, decoder_input_BT, weights)
    attention = {kind: torch.stack(getattr(weights, kind)) for kind in ATTENTION_KINDS}
    return AttentionRecording(
        source_BS,
        decoder_input_BT,
        logits_BTV,
        attention,
        attention_masks(source_BS, decoder_input_BT),
    )


def record_free_running(
    model: TransformerModel,
    source_BS: Tensor,
    max_tokens: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
) -> tuple[AttentionRecording, Tensor]:
    """Record the attention weights of free-running decoding.

    Returns the recording and the generated tokens (BT, with EOS, then PAD), cut to the longest
    generated sequence. A temperature above 0 samples the tokens; equal seeds give equal samples.

    Raises:
        ValueError: for a negative temperature, or more tokens than the model has positions.
    """
    generator = torch.Generator(source_BS.device).manual_seed(seed)
    modules = {
        kind: [Component(kind, layer).module_name for layer in range(model.config.n_layers)]
        for kind in ATTENTION_KINDS
    }
    with record_activations(
        model, "output_proj", *(module for each in modules.values() for module in each)
    ) as calls:
        generated_BT = generate(
            model, source_BS, max_tokens, temperature=temperature, generator=generator
        )
    finished_BT = (generated_BT == EOS).cumsum(1) > 0
    n = min(int((~finished_BT).sum(1).max()) + 1, max_tokens)
    decoder_input_BT = F.pad(generated_BT[:, : n - 1], (1, 0), value=SOS)

    def concat_steps(module: str, width: int) -> Tensor:
        """Concatenate the weights of all steps: BHQM, zero at keys of later steps."""
        weights = [cast(Tensor, call.weights) for call in calls[module][:n]]
        return torch.cat(
            [F.pad(step_BHQM, (0, width - step_BHQM.shape[-1])) for step_BHQM in weights], dim=2
        )

    width = {"encoder": source_BS.shape[1], "decoder": n, "cross": source_BS.shape[1]}
    attention = {
        kind: torch.stack([concat_steps(module, width[kind]) for module in modules[kind]])
        for kind in ATTENTION_KINDS
    }
    logits_BTV = torch.cat([call.output for call in calls["output_proj"][:n]], dim=1)
    return AttentionRecording(
        source_BS,
        decoder_input_BT,
        logits_BTV,
        attention,
        attention_masks(source_BS, decoder_input_BT),
    ), generated_BT[:, :n]


def attention_masks(source_BS: Tensor, decoder_input_BT: Tensor) -> dict[str, Tensor]:
    """Return the attention mask of each type of attention: BQM, True = may attend."""
    (n, s), t = source_BS.shape, decoder_input_BT.shape[1]
    is_token_B1S = padding_mask(source_BS)[:, 0]
    return {
        "encoder": is_token_B1S.expand(n, s, s),
        "decoder": causal_mask(t, decoder_input_BT.device).expand(n, t, t),
        "cross": is_token_B1S.expand(n, t, s),
    }
