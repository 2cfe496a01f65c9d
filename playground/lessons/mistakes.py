"""Mistakes that write-ups of the transformer have made, each as one line of this project's own source, written wrong. No torch in here:
broken.py makes a model with it.

A mistake names a function of the real source, a line of it, and what stands there instead. What a visitor is shown as the right version
is the source that runs everywhere else; the difference is the mistake, and nothing but the mistake.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MYSTERY = "mystery"

# Small enough that the right copy and the broken one learn side by side within seconds.
SETTINGS: Mapping[str, Any] = {
    "task": "reverse", "min_length": 1, "max_length": 6, "d_model": 32, "n_heads": 2, "n_layers": 2, "d_ff": 64,
    "batch_size": 64, "steps": 240, "decay_steps": 240, "eval_every": 1_000_000, "eval_n": 64, "threads": 1, "device": "cpu",
}  # fmt: skip
STEPS = (20, 1000)  # that a link may ask for


@dataclass(frozen=True)
class Mistake:
    """One line, written wrong.

    place      the function that holds it: "module:function" or "module:Class.method"
    right      the line as it stands there
    wrong      what the broken copy has in its place
    met_in     in what kind of source it is met
    why        what it does, and how one finds it
    settings   of the training that shows it, beside SETTINGS
    unnoticed  settings with which python does not complain, where it otherwise does; and when that is
    """

    title: str
    place: str
    right: str
    wrong: str
    met_in: str
    why: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    unnoticed: Mapping[str, Any] = field(default_factory=dict)
    unnoticed_when: str = ""


MISTAKES = {
    "transpose": Mistake(
        "Queries times keys, without the transpose",
        "playground.models.attention:attend",
        "scores_BHQM = query_BHQK @ key_BHMK.transpose(-2, -1) / math.sqrt(query_BHQK.shape[-1])",
        "scores_BHQM = query_BHQK @ key_BHMK / math.sqrt(query_BHQK.shape[-1])",
        "a write-up that turns the formula into Q @ K",
        "A query is to be compared with every key, number by number, so the keys' last two dimensions change places. Without it the "
        "product runs over the positions instead, and python refuses it, unless a head happens to be as wide as the sequence is long.",
        unnoticed={"d_k": 7},
        unnoticed_when="a head is as wide as the padded sequence is long (7 and 7)",
    ),
    "no-return": Mistake(
        "A positional encoding that forgets to return",
        "playground.models.positions:Embedding.forward",
        "return self.dropout(x_BSD)",
        "self.dropout(x_BSD)",
        "a write-up whose PositionalEncoding ends without its return",
        "A python function without a return gives None. The embedding says nothing is wrong; the first module that "
        "is handed the None does, one call later: the line that python names is not the line that is wrong.",
    ),
    "lost-positions": Mistake(
        "Positions that are looked up and never handed on",
        "playground.models.positions:Embedding.placed",
        "return None if self.positions is None else self.positions[self.rows(tokens_BS, first)]",
        "None if self.positions is None else self.positions[self.rows(tokens_BS, first)]",
        "no write-up: it is the forgotten return once more, in a place where None is allowed",
        "Where None means that there are no positions to add, a forgotten return is no error: the model trains, sees every source as a bag "
        "of symbols, and cannot know their order. Only the scores tell.",
    ),
    "mask-shape": Mistake(
        "A mask of three dimensions for scores of four",
        "playground.models.attention:padding_mask",
        "return (tokens_BM != 0)[:, None, None, :]",
        "return (tokens_BM != 0)[:, None, :]",
        "a write-up that hands a mask for one head to several",
        "Broadcasting lines shapes up from the right, so the batch of the mask meets the heads of the scores. Python refuses it, unless "
        "the batch is one, where it does no harm, or as large as there are heads: then the first head goes by the padding of the first "
        "sequence and the second by that of the second, whichever sequence they read.",
        unnoticed={"batch_size": 2},
        unnoticed_when="the batch is as large as there are heads (2 and 2)",
    ),
    "last-layer": Mistake(
        "Attention kept of the last layer only",
        "playground.models.transformer:Transformer._decode",
        "record.cross_attention.append(cross_weights_BHTS)",
        "record.cross_attention = [cross_weights_BHTS]",
        "a walk-through that keeps the weights in one variable, written anew by every layer",
        "Nothing that is trained or answered changes. What is missing is a picture: of the decoder's layers only the last one's "
        "cross-attention is there, and whoever reads it as layer 1 is told about another layer.",
    ),
    "untrained-head": Mistake(
        "An output layer that was never trained",
        "playground.models.transformer:Transformer.forward",
        "return self.output(self.decode(target_BT, self.encode(source_BS), source_BS))",
        "return nn.Linear(self.config.d_model, self.config.target_vocabulary)(self.decode(target_BT, self.encode(source_BS), source_BS))",
        "a write-up that puts a fresh head on a pretrained model, and prints POSITIVE",
        "A layer made inside forward is a new one at every call; no optimizer knows it, so it stays at chance, and so does the layer that "
        "answers. It answers all the same: a softmax always names a winner, and its probability says nothing about training.",
    ),
    "loud-embeddings": Mistake(
        "Embeddings that drown the sine waves",
        "playground.models.positions:token_table",
        "nn.init.normal_(table.weight, std=d_model**-0.5)",
        "nn.init.normal_(table.weight)",
        "a write-up that scales nn.Embedding's own N(0, 1) by the square root of d_model, as the paper scales its smaller ones",
        "The paper multiplies embeddings by the square root of d_model because its tables begin small. Begun at N(0, 1) they become that "
        "many times louder than the sine waves, whose height is 1: the symbols are heard, their places are not.",
        settings={"positions": "sinusoidal"},
    ),
    "causal-mask": Mistake(
        "No causal mask",
        "playground.models.attention:causal_mask",
        "return torch.ones(length, length, dtype=torch.bool, device=device).tril()",
        "return torch.ones(length, length, dtype=torch.bool, device=device)",
        "decoders built without it, of which a known library had one for years",
        "In training the decoder is given the right answer, shifted by one. Without the mask each position may look at the next one, which "
        "is what it is asked for: it learns to copy it, the loss falls faster than it should, and when it has to write by itself there is "
        "nothing to copy.",
    ),
}  # fmt: skip


def chosen(name: str, seed: int) -> str:
    """The mistake that a link means: itself, or for "mystery" the one that belongs to the seed.

    Raises:
        ValueError: for a mistake that there is not.
    """
    if name == MYSTERY:
        return random.Random(seed).choice(sorted(MISTAKES))
    if name not in MISTAKES:
        raise ValueError(f"bug is {name[:40]!r}; choose one of {', '.join((*MISTAKES, MYSTERY))}")
    return name


def clue(result: Mapping[str, Any]) -> str:
    """Where to look, for somebody who has named another mistake: what stands out of what was measured."""
    right, broken = result["right"], result["broken"]
    if broken["trouble"]:
        trouble = broken["trouble"]
        return (
            f"Python gave up in line {trouble['line']} of {trouble['file']}, after {trouble['step']} steps. Read its last line: which "
            "shapes, or which None, does it complain of?"
        )
    if broken["loss"] == right["loss"]:
        return "Loss and scores are the same to the last digit, so nothing that is computed differs: look at what was recorded."
    if broken["given"] - broken["alone"] > 0.5:
        return (
            f"Given the right answer so far it is right in {broken['given']:.0%} of the sequences, by itself in {broken['alone']:.0%}: "
            "what does it have in the first case that it lacks in the second?"
        )
    tokens = result["vocabulary"]
    if broken["loss"] > 0.9 * math.log(tokens):
        return f"Its loss, {broken['loss']:.2f}, is that of guessing among {tokens} tokens, {math.log(tokens):.2f}: it learns nothing at all."
    return (
        f"It learns, but ends at a loss of {broken['loss']:.2f} against {right['loss']:.4f}. Of its answers {broken['alone']:.0%} are "
        f"right, and {broken['symbols']:.0%} have the right symbols in whatever order: which of the two did it fail to learn, and how far?"
    )
