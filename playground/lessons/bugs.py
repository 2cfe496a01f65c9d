"""Define known bugs of transformer tutorials, each as one changed line of this source.

A bug names a function of the real source, a line of that function and its replacement. The correct
version that the page displays is the source that runs everywhere else, so the bug is the only
difference. This module does not import torch; bug_injection.py builds the models.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from playground.common import messages
from playground.common.format import format_percent

RANDOM_BUG = "random"
FIRST_SEED = 14  # of the first random bug: a missing causal mask, which raises no error

# Small enough to train the correct and the buggy copy side by side within seconds.
BUG_SETTINGS: Mapping[str, Any] = {
    "task": "reverse",
    "min_length": 1,
    "max_length": 6,
    "d_model": 32,
    "n_heads": 2,
    "n_layers": 2,
    "d_ff": 64,
    "batch_size": 64,
    "max_steps": 240,
    "lr_decay_steps": 240,
    "eval_every": 1_000_000,
    "eval_size": 64,
    "num_threads": 1,
    "device": "cpu",
}
STEPS_RANGE = (20, 1000)  # the range that a link can request


@dataclass(frozen=True)
class Bug:
    """A bug in one line of the source.

    location         the function that contains it: "module:function" or "module:Class.method"
    correct_line     the correct line
    buggy_line       the line of the buggy copy
    origin           where such a bug occurs
    explanation      the effect of the bug, and how to find it
    settings         settings that make the bug visible, in addition to `BUG_SETTINGS`
    silent_settings  settings with which the bug raises no error; `silent_when` describes that case
    """

    title: str
    location: str
    correct_line: str
    buggy_line: str
    origin: str
    explanation: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    silent_settings: Mapping[str, Any] = field(default_factory=dict)
    silent_when: str = ""


BUGS = {
    "transpose": Bug(
        "Queries times keys, without the transpose",
        "playground.models.attention:scaled_dot_product_attention",
        "scores_BHQM = query_BHQK @ key_BHMK.transpose(-2, -1) / math.sqrt(query_BHQK.shape[-1])",
        "scores_BHQM = query_BHQK @ key_BHMK / math.sqrt(query_BHQK.shape[-1])",
        "a tutorial that writes the formula as Q @ K",
        "Every query is compared with every key by a dot product, so the last two "
        "dimensions of the keys must be swapped. Without the transpose, the product runs "
        "over the positions instead, and Python raises an error, unless the head size "
        "happens to equal the sequence length.",
        silent_settings={"d_k": 7},
        silent_when="the head size equals the padded sequence length (7 and 7)",
    ),
    "lost-positions": Bug(
        "Positional encoding computed but never added",
        "playground.models.embeddings:InputEmbedding.position_vectors",
        "return self.position_embedding[self.position_ids(tokens_BS, first_position, is_token_BM)]",
        "self.position_embedding[self.position_ids(tokens_BS, first_position, is_token_BM)]",
        "no tutorial: a return is missing in a function that is allowed to return None",
        "The caller accepts None, for models without positions, so a missing return raises no "
        "error. The model trains, but it receives every source as an unordered bag of "
        "tokens and cannot know their order. Only the scores reveal the bug.",
    ),
    "mask-shape": Bug(
        "A three-dimensional mask for four-dimensional scores",
        "playground.models.attention:padding_mask",
        "return (tokens_BM != 0)[:, None, None, :]",
        "return (tokens_BM != 0)[:, None, :]",
        "a tutorial that uses a mask for one head with several heads",
        "PyTorch combines two shapes from the right (broadcasting), so the batch dimension of the "
        "mask meets the head dimension of the scores. Python raises an error in most cases. With "
        "a batch size of one, the bug does no harm. If the batch size equals the number of heads, "
        "the first head uses the padding of the first sequence for every sequence in the batch. "
        "The second head uses that of the second.",
        silent_settings={"batch_size": 2},
        silent_when="the batch size equals the number of heads (2 and 2)",
    ),
    "last-layer": Bug(
        "Attention weights stored for the last layer only",
        "playground.models.attention:MultiHeadAttention.forward",
        "weights.append(weights_BHQM)",
        "weights[:] = [weights_BHQM]",
        "a tutorial that stores the weights in one variable, which every layer overwrites",
        "Training and outputs do not change. Only a figure is incomplete: it has "
        "the attention weights of the last layers only. A reader may take them for those of "
        "layer 1.",
    ),
    "untrained-head": Bug(
        "An output layer that was never trained",
        "playground.models.transformer:Transformer.forward",
        "return self.output_proj(x_BTD)",
        "return nn.Linear(self.config.d_model, self.config.target_vocab_size)(x_BTD)",
        "a tutorial that adds an untrained classifier to a pretrained model and reports its output",
        "A layer created inside forward is a new one at every call. No optimizer updates it, so it "
        "stays at random weights, and the outputs stay at chance level. The model still has an "
        "output: a softmax always has a largest value. Its probability is no evidence of training.",
    ),
    "loud-embeddings": Bug(
        "Embeddings too large, so that the positional signal is too weak",
        "playground.models.embeddings:build_token_embedding",
        "nn.init.normal_(embedding.weight, std=d_model**-0.5)",
        "nn.init.normal_(embedding.weight)",
        "a tutorial that scales the N(0, 1) initialization of nn.Embedding by the square "
        "root of d_model, as the paper scales its smaller embeddings",
        "The paper multiplies embeddings by the square root of d_model, the size of a vector, and "
        "gives no reason. Its code initializes them with a standard deviation of "
        "1 / sqrt(d_model), so the product has a standard deviation of 1. With embeddings from "
        "N(0, 1), the product has a standard deviation of sqrt(d_model). The sine waves of the "
        "positions have an amplitude of 1. The token embeddings then dominate, and the model "
        "learns the positions much more slowly.",
        settings={"position_type": "sinusoidal"},
    ),
    "causal-mask": Bug(
        "No causal mask",
        "playground.models.attention:causal_mask",
        "return torch.ones(length, length, dtype=torch.bool, device=device).tril()",
        "return torch.ones(length, length, dtype=torch.bool, device=device)",
        "decoders that are built from encoder layers and never get the mask",
        "In training, the decoder receives the target, shifted by one. Without the mask, "
        "each position can attend to the next token, which is the token it must predict. "
        "It learns to copy that token, and the loss falls faster than it should. When "
        "the model generates on its own, there is nothing to copy.",
    ),
}


def resolve_bug(name: str, seed: int) -> str:
    """Return the name of the bug that a link requests.

    For "random", the seed chooses the bug.

    Raises:
        ValueError: when no bug has this name.
    """
    if name == RANDOM_BUG:
        return random.Random(seed).choice(sorted(BUGS))
    if name not in BUGS:
        raise ValueError(messages.choose_one_of("bug", repr(name[:40]), (*BUGS, RANDOM_BUG)))
    return name


def hint(result: Mapping[str, Any]) -> str:
    """Return a hint for a wrong guess, from the most notable of the measurements."""
    correct, buggy = result["correct"], result["buggy"]
    if buggy["failure"]:
        failure = buggy["failure"]
        return (
            f"Python raised an error in line {failure['line']} of {failure['file']}, "
            f"after {failure['step']} steps. Read the last line of the traceback: which "
            "shapes does it report?"
        )
    if buggy["loss"] == correct["loss"]:
        return (
            "Loss and scores are the same to the last digit, so both models "
            "compute the same results: check what they store."
        )
    if buggy["teacher_forced"] - buggy["free_running"] > 0.5:
        return (
            f"With teacher forcing it predicts {format_percent(buggy['teacher_forced'])} "
            "of the sequences correctly, free-running "
            f"{format_percent(buggy['free_running'])}: what does it have in the "
            "first case that it lacks in the second?"
        )
    tokens = result["vocab_size"]
    if buggy["loss"] > 0.9 * math.log(tokens):
        return (
            f"Its loss, {buggy['loss']:.2f}, is that of guessing among {tokens} tokens, "
            f"{math.log(tokens):.2f}: it learns nothing at all."
        )
    return (
        f"It learns, but ends at a loss of {buggy['loss']:.2f} against {correct['loss']:.4f}. Of "
        f"its outputs {format_percent(buggy['free_running'])} are correct, and "
        f"{format_percent(buggy['multiset_match'])} have the correct tokens in any order. "
        "Which of the two did it fail to learn, and how far?"
    )
