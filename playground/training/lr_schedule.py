"""The learning rate at each step."""

import math

from .train_config import TrainConfig


def learning_rate_at(
    config: TrainConfig, d_model: int, step: int, cosine_from_zero: bool = False
) -> float:
    """Return the learning rate of update `step` (1 is the first).

    constant   increases linearly during the warm-up, then stays constant
    cosine     the same warm-up; from its end, as in nanoGPT and torchtitan, decays along half a
               cosine to `min_lr_ratio` of itself at `lr_decay_steps` (Loshchilov and Hutter 2017,
               without restarts). With `cosine_from_zero` the cosine starts at step 0 instead and
               is multiplied by the warm-up
    noam       learning_rate * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), equation 3
               of Vaswani et al. 2017
    """
    if config.lr_schedule == "noam":
        warmup_steps = max(config.warmup_steps, 1)
        return config.learning_rate * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
    warmup_factor = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
    if config.lr_schedule == "constant":
        return config.learning_rate * warmup_factor
    start = 0 if cosine_from_zero else config.warmup_steps
    progress = min(max(0, step - start) / max(1, config.lr_decay_steps - start), 1.0)
    decay_factor = (
        config.min_lr_ratio + (1 - config.min_lr_ratio) * (1 + math.cos(math.pi * progress)) / 2
    )
    return config.learning_rate * warmup_factor * decay_factor
