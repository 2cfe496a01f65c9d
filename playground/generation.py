"""Generation token by token, greedy or sampled, with a key-value cache.

This module does not depend on how a model is trained, and does not know the target.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from playground.models.config import BaseConfig
from playground.models.transformer import Transformer
from playground.tasks import EOS, PAD, SOS


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Turn dropout off during a `with` block."""
    was_training = model.training
    if was_training:  # each switch visits every module
        model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()


@torch.no_grad()
def generate(
    model: Transformer,
    source_BS: Tensor,
    max_tokens: int,
    *,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Generate targets (BT, without SOS): up to `max_tokens` tokens, with EOS, then PAD.

    Each token is chosen from the model's own tokens before it, never from the target. With a
    temperature of 0 it is the most likely token (greedy). Above 0 it is sampled from
    softmax(logits / temperature) with `generator`. Raises ValueError for a negative or infinite
    temperature, and as `check_lengths`.
    """
    check_lengths(model.config, source_BS, max_tokens)
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is {temperature}; it must be 0 (greedy) or a number above")
    with eval_mode(model):
        memory_BSD = model.encode(source_BS)
        cache = model.new_cache(len(source_BS), max_tokens)

        def next_token(prefix_BT: Tensor) -> Tensor:
            x_B1D = model.decode(prefix_BT[:, -1:], memory_BSD, source_BS, cache)
            return choose_token(model.output_proj(x_B1D)[:, 0], temperature, generator)

        return generate_tokens(next_token, source_BS, max_tokens)


def generate_tokens(
    next_token: Callable[[Tensor], Tensor], source_BS: Tensor, max_tokens: int
) -> Tensor:
    """Generate targets (BT) token by token, with PAD after EOS.

    `next_token` maps SOS and the tokens so far (BT) to the next token (B) of each sequence.
    """
    prefix_BT = torch.full_like(source_BS[:, :1], SOS)
    finished_B = torch.zeros_like(source_BS[:, 0], dtype=torch.bool)
    # Checking at every token would make the CPU wait for a GPU each time.
    check_every = 1 if source_BS.device.type == "cpu" else 4
    for t in range(max_tokens):
        token_B = next_token(prefix_BT).masked_fill(finished_B, PAD)
        prefix_BT = torch.cat([prefix_BT, token_B[:, None]], dim=1)
        finished_B |= token_B == EOS
        if (t + 1) % check_every == 0 and bool(finished_B.all()):
            break
    return F.pad(prefix_BT[:, 1:], (0, max_tokens + 1 - prefix_BT.shape[1]), value=PAD)


def check_lengths(config: BaseConfig, source_BS: Tensor, max_tokens: int) -> None:
    """Raise ValueError if the sources or targets exceed the positions of the model."""
    limit = f"but the model has max_positions {config.max_positions}"
    if source_BS.shape[1] > config.max_positions:
        raise ValueError(f"a source has {source_BS.shape[1]} tokens, {limit}; shorten it")
    if max_tokens > config.max_positions:
        raise ValueError(f"max_tokens is {max_tokens}, {limit}; lower it")


def choose_token(
    logits_BV: Tensor, temperature: float, generator: torch.Generator | None = None
) -> Tensor:
    """Return the most likely tokens (B), or with a temperature above 0 sampled ones."""
    if temperature == 0:
        return logits_BV.argmax(-1)
    probabilities_BV = sampling_probabilities(logits_BV, temperature)
    return torch.multinomial(probabilities_BV, 1, generator=generator)[:, 0]


def sampling_probabilities(logits: Tensor, temperature: float) -> Tensor:
    """Return softmax(logits / temperature) over the last dimension, for a temperature above 0.

    Subtracting the maximum prevents overflow. Below the smallest normal number of its type, a
    temperature would be rounded to 0 in the division.
    """
    shifted = logits - logits.amax(-1, keepdim=True)
    return (shifted / max(temperature, torch.finfo(logits.dtype).tiny)).softmax(-1)
