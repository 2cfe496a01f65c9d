"""A small model of every architecture, for the reversal of 1 to 4 of four symbols.

After a hundred steps, about half of the predictions are correct.
"""

from playground.architectures import ARCHITECTURES
from playground.training.run_config import RunConfig

RECURRENT_VARIANTS = [
    *(("rnn", "none"), ("lstm", "none"), ("gru", "none"), ("rnn", "dot")),
    *(("lstm", "additive"), ("gru", "additive"), ("gru", "dot")),
]
VARIANTS = {
    **{name: {"architecture": name} for name in ARCHITECTURES if name != "recurrent"},
    **{
        f"{cell}-{alignment}": {"architecture": "recurrent", "cell": cell, "attention": alignment}
        for cell, alignment in RECURRENT_VARIANTS
    },
}
MAX_STEPS = 120  # steps until nearly all predictions are correct


def small_config(name, **changes):
    sizes = {"d_model": 32, "n_layers": 1} | (
        {} if VARIANTS[name]["architecture"] == "recurrent" else {"n_heads": 2, "d_ff": 32}
    )
    task = {"n_symbols": 4, "min_length": 1, "max_length": 4, "max_positions": 8}
    if name == "bert":  # a smaller model does not learn in so few steps
        sizes |= {"d_model": 64, "n_layers": 2, "d_ff": 64, "min_length": 3}
        sizes |= {"learning_rate": 3e-3, "batch_size": 64}
    training = dict.fromkeys(("max_steps", "lr_decay_steps"), MAX_STEPS)
    training |= {"batch_size": 32, "eval_every": 1000, "eval_size": 32, "device": "cpu"}
    return RunConfig.from_flat(VARIANTS[name] | task | training | sizes | changes)
