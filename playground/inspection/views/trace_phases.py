"""The phases of the trace: for each its most informative stage, and a text about the sequence."""

from typing import Any

import torch

from playground.inspection.forward_trace import ForwardTrace
from playground.inspection.hooks import Component

# The phases of the forward pass, and the prefixes of the names of their blocks.
PHASES = {
    "Token and position embedding": ("source embedding",),
    "Encoder self-attention": ("encoder self-attention",),
    "Encoder feed-forward network": ("encoder feed-forward", "encoder final norm"),
    "Masked decoder self-attention": ("target embedding", "decoder self-attention"),
    "Cross-attention": ("cross-attention", "decoder feed-forward"),
    "Output tokens": ("decoder final norm", "output"),
}


def phase_fields(trace: ForwardTrace, head: int) -> list[dict[str, Any]]:
    """Return the six phases, each with its most informative stage and head, and a text."""
    phases = [*_encoder_phases(trace, head), *_decoder_phases(trace, head)]
    names = [stage.key for stage in trace.stages]
    return [
        {"title": title, "stage": names.index(key), "head": chosen_head, "description": text}
        for title, (chosen_head, key, text) in zip(PHASES, phases, strict=True)
    ]


def _encoder_phases(trace: ForwardTrace, head: int) -> list[tuple[int, str, str]]:
    """Return the head, the stage and the text of the phases of the encoder."""
    source, config, number = trace.source, trace.model.config, head + 1
    weights_M = trace.stage("encoder self-attention, layer 1", "softmax").tensor[head, 0]
    mix = sorted(zip(weights_M.tolist(), source, strict=True), key=lambda pair: -pair[0])
    last, parts = (
        ("sum", "each a token embedding plus a position vector")
        if config.n_position_vectors
        else ("token embeddings", "each a token embedding; the model adds no position vectors")
    )
    norm = "RMSNorm" if config.norm_type == "rms" else "LayerNorm"
    sublayer = (
        f"x + Sublayer({norm}(x))" if config.norm_placement == "pre" else f"{norm}(x + Sublayer(x))"
    )
    return [
        (
            0,
            f"source embedding/{last}",
            f"{_join_tokens(source)}: {len(source)} vectors of size {config.d_model}, {parts}.",
        ),
        (
            head,
            "encoder self-attention, layer 1/softmax",
            f"Every token attends to all tokens. In head {number}, {source[0]} attends most to "
            f"{mix[0][1]}.",
        ),
        (
            head,
            "encoder feed-forward, layer 1/residual",
            f"For {source[0]}, head {number} sums the values "
            f"{', '.join(f'{weight:.2f} of {name}' for weight, name in mix[:3])}. The residual "
            "connection adds the input. The feed-forward network maps vectors of size "
            f"{config.d_model} to {config.d_ff} and back to {config.d_model}. Each sublayer "
            f"computes {sublayer}.",
        ),
    ]


def _decoder_phases(trace: ForwardTrace, head: int) -> list[tuple[int, str, str]]:
    """Return the head, the stage and the text of the phases of the decoder and the output."""
    example, subject = trace.example, trace.example.subject
    target = subject.token_names(example.labels_BT[0].tolist())
    target_name = "target" if example.has_target else "generated tokens"
    block, best_head = _best_aligned_head(trace)
    positions = trace.stage(block, "softmax").tensor[best_head].argmax(-1) + 1
    predicted = trace.stage("output", "logits").tensor.argmax(-1).tolist()
    return [
        (
            head,
            "decoder self-attention, layer 1/softmax",
            f"Decoder input {_join_tokens(trace.decoder_input)}, {target_name} "
            f"{_join_tokens(target)}: the input is shifted right, so that each position predicts "
            "the next token. No position attends to later positions.",
        ),
        (
            best_head,
            f"{block}/softmax",
            f"{block[0].upper() + block[1:]}, head {best_head + 1}: the output tokens in "
            "order attend most to the source positions "
            f"{_join_tokens([str(position) for position in positions.tolist()])}.",
        ),
        (
            0,
            "output/probabilities",
            f"The most likely of {trace.model.config.target_vocab_size} tokens at each "
            f"position: {_join_tokens(subject.token_names(predicted))}.",
        ),
    ]


def _best_aligned_head(trace: ForwardTrace) -> tuple[str, int]:
    """Return the cross-attention block and head nearest to the task's alignment, or the first."""
    config = trace.model.config
    blocks = [Component("cross", layer).name for layer in range(config.n_layers)]
    aligned_S = trace.example.subject.task.alignment(len(trace.source) - 1)
    if not aligned_S:
        return blocks[0], 0
    weights_LHQM = torch.stack([trace.stage(block, "softmax").tensor for block in blocks])
    share_LH = weights_LHQM[:, :, range(len(aligned_S)), aligned_S].mean(-1)
    layer, head = divmod(int(share_LH.argmax()), config.n_heads)
    return blocks[layer], head


def _join_tokens(names: list[str]) -> str:
    return " ".join(names[:8]) + (" …" if len(names) > 8 else "")
