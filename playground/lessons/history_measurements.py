"""Measure the lessons that lead from recurrent networks to the transformer.

All use the same input sequence, so that their outputs and attention weights can be compared. The
results are those of measurements.py. Shapes: B batch, S source, T target, H heads.
"""

from collections.abc import Mapping
from typing import Any

import torch

from playground.architectures.parameter_groups import parameter_count

from .measurements import Result, faster_run
from .trained_run import (
    EXAMPLES_PER_LENGTH,
    TrainedRun,
    decode,
    exact_match_by_length,
    length_figure,
    map_figure,
    percent,
)


@torch.no_grad()
def bottleneck_length(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure the shortest length of which this model reverses less than half."""
    run = runs[0]
    last = run.config.task.max_length
    shares = exact_match_by_length(run.subject, last)
    value = next((length for length, share in shares.items() if share < 0.5), last + 1)
    shortest = min(shares)
    text = (
        f"Exact match is {percent(shares[shortest])} at length {shortest} and "
        f"{percent(shares[last])} at length {last}, although all lengths up to {last} are in the "
        f"training set. Up to {EXAMPLES_PER_LENGTH} sequences of each length are tested. The "
        f"decoder receives one vector of {run.config.model.d_model} numbers for every length. "
        f"{run.lines[-1]['step']} steps of one seed do not separate capacity from slow learning, "
        "and other seeds may differ. The next lesson gives the decoder more than this vector."
    )
    return {
        "value": value,
        "outcome": f"length {value}" if value <= last else f"at none up to {last}",
        "explanation": text,
        "figures": [length_figure({run.label: shares}), _outputs(runs, options["text"])],
    }


@torch.no_grad()
def attention_gain(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure the exact match with attention on the longest sequences of the training lengths."""
    last = runs[0].config.task.max_length
    shares = {run.label: exact_match_by_length(run.subject, last) for run in runs}
    without, with_attention = (each[last] for each in shares.values())
    attention = runs[1]
    text = (
        f"At length {last}, exact match is {percent(with_attention)} with attention and "
        f"{percent(without)} without. The weights in the figure are learned from the examples "
        "alone; no example contains them. This is one seed; other seeds may differ. "
        + _describe_alignment(attention, options["text"])
    )
    return {
        "value": round(100 * with_attention, 1),
        "outcome": percent(with_attention),
        "explanation": text,
        "figures": [
            length_figure(shares),
            _attention_map(attention, options["text"]),
            _outputs(runs, options["text"]),
        ],
    }


@torch.no_grad()
def recurrent_or_transformer(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure which model reaches the target score first, and what both attend to."""
    result = faster_run(runs, options)
    recurrent, transformer = runs
    sizes = {run.label: parameter_count(run.config.model) for run in runs}
    length = len(recurrent.subject.encode_text(options["text"]).source_BS[0])
    result["explanation"] = (
        f"{result['explanation']} The sizes differ: "
        + " and ".join(f"{size:,} ({label})" for label, size in sizes.items())
        + f" parameters. For the {length} tokens of this source, the recurrent encoder computes "
        f"{length} states, one after the other. The transformer computes all {length} vectors at "
        f"once, in each of its {transformer.config.model.n_layers} layers."
    )
    maps = [_attention_map(run, options["text"]) for run in runs]
    return result | {"figures": [*result["figures"], *maps]}


def _outputs(runs: list[TrainedRun], text: str) -> dict[str, Any]:
    """Return the outputs of all runs for one sequence."""
    rows = []
    for run in runs:
        batch = run.subject.encode_text(text)
        generated_BT = run.subject.model.generate(batch.source_BS, batch.labels_BT.shape[1])
        rows.append(
            {
                "input": run.label,
                "target": decode(run.subject, batch.labels_BT[0]),
                "prediction": decode(run.subject, generated_BT[0]),
            }
        )
    return {"kind": "outputs", "title": f"Outputs for {text}", "label": "model", "rows": rows}


def _cross_attention(run: TrainedRun, text: str) -> tuple[torch.Tensor, list[str], list[str]]:
    """Return the mean cross-attention over all heads (TS), with the source and target tokens."""
    batch = run.subject.encode_text(text)
    layers = run.subject.model.attention_weights(batch).cross
    weights_TS = torch.stack([weights_BHTS[0].mean(0) for weights_BHTS in layers]).mean(0)
    source, target = (
        run.subject.token_names(tokens[0].tolist()) for tokens in (batch.source_BS, batch.labels_BT)
    )
    return weights_TS, source, target


def _attention_map(run: TrainedRun, text: str) -> dict[str, Any]:
    weights_TS, source, target = _cross_attention(run, text)
    title = f"Cross-attention, mean over heads: {run.label}"
    return map_figure(title, target, source, weights_TS, is_generated=True)


def _describe_alignment(run: TrainedRun, text: str) -> str:
    """Return how many output tokens attend most to the source token that they must copy."""
    weights_TS, source, _ = _cross_attention(run, text)
    expected = run.subject.task.alignment(len(source) - 1)
    if expected is None:
        return ""
    offsets = [
        at - position
        for at, position in zip(weights_TS.argmax(-1).tolist(), expected, strict=False)
    ]
    return (
        f"Output tokens with their largest weight on the source token to copy: {offsets.count(0)} "
        f"of {len(expected)}; on the token after it, whose state includes both tokens: "
        f"{offsets.count(1)}."
    )
