"""Decoding step by step: the prefix, the next-token distribution and the attention weights.

Shapes: L layers, H heads, S source, T target, V vocabulary; M positions of the prefix.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from playground.architectures.encoder_decoder import TransformerModel
from playground.generation import sampling_probabilities
from playground.tasks import PAD
from playground.tasks.task import Batch

from .attention_recording import AttentionRecording, record_free_running, record_teacher_forced

TOP_K = 5


@dataclass(frozen=True)
class GenerationStep:
    """One output position of one sequence.

    prefix       the decoder input up to here: SOS and the prefix
    top_tokens   the most likely next tokens with their probabilities, the most likely first
    token        the token at this position: the generated one, or the target if teacher-forced
    probability  the model's probability of `token`
    target       the target token here; None after the end of the target
    decoder_LHM  decoder self-attention weights over the decoder input up to here
    cross_LHS    cross-attention weights over the source
    """

    position: int
    prefix: list[int]
    top_tokens: list[tuple[int, float]]
    token: int
    probability: float
    target: int | None
    decoder_LHM: Tensor
    cross_LHS: Tensor


def teacher_forced_steps(model: TransformerModel, batch: Batch) -> list[GenerationStep]:
    """Return the steps of a teacher-forced pass.

    As in training, the decoder input is the target, shifted right.

    Raises:
        ValueError: unless the batch has one sequence.
    """
    _require_single_sequence(batch)
    recording = record_teacher_forced(model, batch)
    return _steps(recording, _target_tokens(batch), batch, temperature=0.0)


def free_running_steps(
    model: TransformerModel,
    batch: Batch,
    max_tokens: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[GenerationStep]:
    """Return the steps of free-running decoding, until EOS or `max_tokens`.

    Temperature 0 is greedy decoding. A temperature above 0 samples the tokens; equal seeds give
    equal samples. The probabilities are then softmax(logits / temperature), the distribution that
    the tokens are sampled from.

    Raises:
        ValueError: unless the batch has one sequence; for a negative temperature, or more tokens
            than the model has positions.
    """
    _require_single_sequence(batch)
    recording, generated_BT = record_free_running(
        model, batch.source_BS, max_tokens, temperature=temperature, seed=seed
    )
    return _steps(recording, generated_BT[0].tolist(), batch, temperature)


def _require_single_sequence(batch: Batch) -> None:
    n = len(batch.source_BS)
    if n != 1:
        raise ValueError(f"the batch has {n} sequences; only one sequence at a time is supported")


def _target_tokens(batch: Batch) -> list[int]:
    """Return the target of a batch of one sequence, with EOS."""
    return [token for token in batch.labels_BT[0].tolist() if token != PAD]


def _steps(
    recording: AttentionRecording, tokens: list[int], batch: Batch, temperature: float
) -> list[GenerationStep]:
    labels, prefix = _target_tokens(batch), recording.decoder_input_BT[0].tolist()
    probabilities_TV = sampling_probabilities(recording.logits_BTV[0], temperature or 1.0)
    steps = []
    for t, token in enumerate(tokens):
        best = torch.topk(probabilities_TV[t], min(TOP_K, probabilities_TV.shape[1]))
        candidates = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        steps.append(
            GenerationStep(
                position=t,
                prefix=prefix[: t + 1],
                top_tokens=candidates,
                token=token,
                probability=float(probabilities_TV[t, token]),
                target=labels[t] if t < len(labels) else None,
                decoder_LHM=recording.attention_weights["decoder"][:, 0, :, t, : t + 1],
                cross_LHS=recording.attention_weights["cross"][:, 0, :, t],
            )
        )
    return steps
