"""Define the published claims whose replication is an experiment of several runs.

This file contains no values measured here, except the expected duration of a replication.
"""

import dataclasses

from .claim import Claim
from .spec import LENGTHS

EXPERIMENT_CLAIMS = {
    "length-order": Claim(
        "Which position encodings generalize to longer sequences",
        "Kazemnejad et al. 2023, The Impact of Positional Encoding on Length Generalization in "
        "Transformers (arXiv 2305.19466)",
        "order",
        "decoder-only models, trained up to length 20 and tested up to 40: no encoding and T5's "
        "are about equal and best, then ALiBi, then RoPE and absolute encodings",
        None,
        "By median exact match over lengths 21 to 40, none and t5 are each at least as good as "
        "alibi, and alibi is at least as good as rope and sinusoidal.",
        (
            "One task, copying of ten tokens; length-order-reverse has reversal. The paper has ten "
            "tasks, among them both, with more tokens.",
            "A model of two layers and about 70,000 parameters, trained for 2,000 updates at our "
            "learning rate. The paper trains 12 layers with about 107 million parameters for "
            "40,000 updates of 64 at a rate of 3e-5.",
            "The order of ALiBi before RoPE and absolute encodings is from a figure of the paper.",
        ),
        estimated_minutes=10,
        experiment={
            "name": "length-order",
            "question": "Which position encodings generalize to longer sequences?",
            "base": {
                "architecture": "decoder-only",
                "task": "copy",
                "min_length": 1,
                "max_length": 20,
                "max_steps": 2000,
                "lr_decay_steps": 2000,
                "eval_every": 100,
            },
            "grid": {"position_type": ["none", "t5", "alibi", "rope", "sinusoidal"]},
            "kind": LENGTHS,
            "times": 2,
            "seeds": [0, 1, 2],
        },
    ),
    "two-layers": Claim(
        "Reversal of varying lengths needs two layers",
        "Weiss, Goldberg and Yahav 2021, Thinking Like Transformers (arXiv 2106.06981; code "
        "tech-srl/RASP-exps, commit 1898c59)",
        "layers",
        "the authors' script trains an encoder with two layers and one head; it also trains one "
        "layer, with one head and with twice the width and two heads, to verify that the second "
        "layer is necessary",
        None,
        "The median exact match is at least 95 % with two layers, and at most 50 % with one layer. "
        "The limits are ours, because the accuracies of the paper could not be checked.",
        (
            "Lengths 1 to 12 over ten symbols and 1,200 updates of new sequences. The paper has "
            "lengths up to 100 over 100 symbols, a width of 256 and 100 epochs over 50,000 "
            "sequences.",
            "A run of 1,200 updates does not show that one layer never learns the task.",
        ),
        estimated_minutes=8,
        experiment={
            "name": "two-layers",
            "question": "Does reversal of varying lengths need two layers?",
            "base": {
                "architecture": "encoder-only",
                "task": "reverse",
                "min_length": 1,
                "max_length": 12,
                "d_ff": 128,
                "position_type": "sinusoidal",
                "max_steps": 1200,
                "lr_decay_steps": 1200,
                "eval_every": 100,
            },
            "grid": {
                "variant": [
                    {"n_layers": 2, "n_heads": 1, "d_model": 64},
                    {"n_layers": 1, "n_heads": 1, "d_model": 64},
                    {"n_layers": 1, "n_heads": 2, "d_model": 128},
                ]
            },
            "seeds": [0, 1, 2],
        },
    ),
}

_COPY_ORDER = EXPERIMENT_CLAIMS["length-order"]
_COPY_EXPERIMENT = _COPY_ORDER.experiment or {}
EXPERIMENT_CLAIMS["length-order-reverse"] = dataclasses.replace(
    _COPY_ORDER,
    title="Which position encodings generalize to longer reversals",
    deviations=(
        "One task, reversal of ten tokens; length-order has copying. The paper has ten tasks, "
        "among them both, with more tokens.",
        *_COPY_ORDER.deviations[1:],
    ),
    experiment={
        **_COPY_EXPERIMENT,
        "name": "length-order-reverse",
        "question": "Which position encodings generalize to longer reversals?",
        "base": {**_COPY_EXPERIMENT["base"], "task": "reverse"},
    },
)
