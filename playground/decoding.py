"""Writing the answer symbol by symbol, greedily or sampled, with the keys and values of the past kept.

This module does not know how a model was trained, nor what the right answer is.
Shapes: B batch, S source, T target, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from playground.models.attention import padding_mask
from playground.models.transformer import Transformer
from playground.tasks import EOS, PAD, SOS


@contextmanager
def looking(model: nn.Module) -> Iterator[None]:
    """Without dropout while the block lasts."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@torch.no_grad()
def decode(
    model: Transformer,
    source_BS: Tensor,
    max_tokens: int,
    *,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The model's own answers (BT, without SOS): up to `max_tokens` tokens, EOS included, PAD behind EOS.

    Each token is chosen from what the model itself wrote before, never from the right answer. A temperature of 0 takes the
    most likely token (greedy); above 0 tokens are drawn from softmax(logits / temperature) with `generator`.

    Raises:
        ValueError: for a negative temperature, or sources or answers longer than the model has positions for.
    """
    if source_BS.shape[1] > model.config.max_positions:
        raise ValueError(
            f"a source has {source_BS.shape[1]} tokens, but the model has max_positions {model.config.max_positions}"
        )
    if max_tokens > model.config.max_positions:
        raise ValueError(
            f"max_tokens is {max_tokens}, but the model has max_positions {model.config.max_positions}"
        )
    if not temperature >= 0:
        raise ValueError(f"temperature is {temperature}; it must be 0 (greedy) or above")
    with looking(model):
        memory_keys = model.memory_keys(model.encode(source_BS))
        may_look_across = padding_mask(source_BS)
        past = model.empty_past(len(source_BS), max_tokens)
        token_B1 = torch.full_like(source_BS[:, :1], SOS)
        ended_B1 = torch.zeros_like(token_B1, dtype=torch.bool)
        written_BT = torch.full(
            (len(source_BS), max_tokens), PAD, dtype=source_BS.dtype, device=source_BS.device
        )
        for t in range(max_tokens):
            logits_BV = model.output(
                model.decode_next(token_B1, memory_keys, may_look_across, past)
            )[:, 0]
            if temperature == 0:
                token_B1 = logits_BV.argmax(-1, keepdim=True)
            else:
                from_best_BV = logits_BV - logits_BV.amax(
                    -1, keepdim=True
                )  # a tiny temperature must not overflow
                token_B1 = torch.multinomial(
                    (from_best_BV / temperature).softmax(-1), 1, generator=generator
                )
            token_B1 = token_B1.masked_fill(ended_B1, PAD)
            written_BT[:, t] = token_B1[:, 0]
            ended_B1 |= token_B1 == EOS
            if t % 4 == 3 and bool(
                ended_B1.all()
            ):  # asking at every token would make a GPU wait for each
                break
    return written_BT
