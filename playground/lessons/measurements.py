"""Measure the results of the lessons on trained runs (`trained_run.result`).

Shapes: B batch, S source, T target, H heads.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from playground.architectures.parameter_groups import parameter_count
from playground.inspection.ablation import (
    METHODS,
    MIN_EXACT_MATCH,
    Ablation,
    AblationEffect,
    describe_spared_heads,
)
from playground.inspection.hooks import all_heads
from playground.jobs.progress import ProgressReporter

from . import interpretability_measurements, pretrained_measurements
from .trained_run import (
    EVAL_EXAMPLES,
    EXAMPLES_PER_LENGTH,
    Result,
    TrainedRun,
    bars_figure,
    cross_attention,
    decode,
    exact_match_by_length,
    exact_match_curves,
    length_figure,
    map_figure,
    percent,
    result,
    same,
    same_multiset,
)

TARGET_SCORE = 0.99
EVAL_INTERVAL = 10  # steps between two evaluations on held-out sequences
SMALL_SHARE = 0.1  # of the effect of zero ablation
MAX_BARS = 8  # heads in a figure
N_EXAMPLES = 5  # generated outputs to display


def half_accuracy_step(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure the first evaluation with an exact match of at least one half."""
    run = runs[0]
    evaluation, last = run.first_at(0.5), run.evaluations[-1]
    figures = [exact_match_curves(runs)]
    if evaluation is None:
        best = max(line["exact_match"] for line in run.evaluations)
        text = (
            f"It never reached one half: the best of {len(run.evaluations)} evaluations was "
            f"{percent(best)}. The seed, which fixes the random numbers, changes the result; with "
            "this one, the training was too short."
        )
        return result(None, "at none", text, figures)
    first = run.lines[0]["loss"]
    text = (
        f"At step {evaluation['step']}, exact match was {percent(evaluation['exact_match'])} of "
        f"{evaluation['eval_size']} held-out sequences. Token accuracy, the fraction of correct "
        f"tokens, was already {percent(evaluation['token_accuracy'])}. An output is an exact match "
        "only when all of its tokens are right, so exact match rises late and then quickly. The "
        f"loss had fallen from {first:.2f} to {evaluation['loss']:.2f}. At the end exact match was "
        f"{percent(last['exact_match'])}."
    )
    return result(evaluation["step"], f"step {evaluation['step']}", text, figures)


@torch.no_grad()
def first_token_attention(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure what the cross-attention heads attend to for the first output token."""
    subject = runs[0].subject
    cross_LHTS, source, target = cross_attention(subject, options["text"])
    row_LHS = cross_LHTS[:, :, 0]
    mean_S = row_LHS.mean((0, 1))
    at = int(mean_S.argmax())
    expected = subject.task.alignment(len(source) - 1)
    n_heads, agreeing = row_LHS.shape[0] * row_LHS.shape[1], int((row_LHS.argmax(-1) == at).sum())
    right = (
        "" if expected is None else f" The correct source token is at position {expected[0] + 1}."
    )
    heads_agree = (
        f"All {n_heads} heads have their largest weight there."
        if agreeing == n_heads
        else (
            f"{agreeing} of {n_heads} heads have their largest weight there; the others "
            "attend mostly elsewhere, and the average hides this."
        )
    )
    text = (
        f"On average, {percent(float(mean_S[at]))} of the weight is on position "
        f"{at + 1} ({source[at]}); uniform attention would put {percent(1 / len(source))} "
        f"there.{right} {heads_agree}"
    )
    title, mean_TS = f"Cross-attention, mean of {n_heads} heads", cross_LHTS.mean((0, 1))
    figure = map_figure(title, target, source, mean_TS, selected=[0, at], is_generated=True)
    return result(at + 1, f"position {at + 1} ({source[at]})", text, [figure])


@torch.no_grad()
def without_positions(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure what the model loses without positions: nothing, the order or both."""
    with_them, without = runs
    batch = without.subject.held_out(EVAL_EXAMPLES).batch
    generated_BT = without.subject.model.generate(batch.source_BS, batch.labels_BT.shape[1])
    exact_B = same(generated_BT, batch.labels_BT)
    multiset_B = same_multiset(generated_BT, batch.labels_BT)
    exact, multiset = (float(each_B.float().mean()) for each_B in (exact_B, multiset_B))
    before = with_them.evaluations[-1]["exact_match"]
    value = "nothing" if exact >= 0.5 else "order" if multiset >= 0.5 else "both"
    outcomes = {
        "nothing": "as good as before",
        "order": "right tokens, wrong order",
        "both": "not even the right tokens",
    }[value]
    text = (
        f"Of {len(exact_B)} held-out sequences, the model generates {percent(exact)} exactly right "
        f"({percent(before)} with positions). {percent(multiset)} have exactly the right tokens, "
        "in any order. Without positions, the encoder gives the decoder an "
        "unordered set of vectors: equal tokens get equal vectors at every position. The "
        "decoder can generate the tokens of that set, but it cannot know their order"
        + {
            "nothing": "; sequences this short hardly need the order.",
            "order": ".",
            "both": (
                ". In so few steps, this model has not even learned to generate the right tokens."
            ),
        }[value]
    )
    rows = [
        {
            "input": decode(without.subject, source),
            "target": decode(without.subject, label),
            "prediction": decode(without.subject, generated),
        }
        for source, label, generated in list(
            zip(batch.source_BS, batch.labels_BT, generated_BT, strict=True)
        )[-N_EXAMPLES:]
    ]
    figures = [
        exact_match_curves(runs),
        {"kind": "outputs", "title": "Without positions", "rows": rows},
    ]
    return result(value, outcomes, text, figures)


def faster_run(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure which of two runs reaches an exact match of `TARGET_SCORE` first."""
    steps = {
        run.label: evaluation["step"] if (evaluation := run.first_at(TARGET_SCORE)) else None
        for run in runs
    }
    reached = {label: step for label, step in steps.items() if step is not None}
    best = min(reached, key=lambda label: reached[label]) if reached else "same"
    close = (
        len(reached) == 2 and abs(reached[runs[0].label] - reached[runs[1].label]) <= EVAL_INTERVAL
    )
    value = "same" if close or not reached else best
    sizes = {run.label: parameter_count(run.config.model) for run in runs}
    line = "; ".join(
        f"{run.label}: "
        + (
            f"step {steps[run.label]}"
            if steps[run.label]
            else f"not in {run.lines[-1]['step']} steps, "
            f"{percent(run.evaluations[-1]['exact_match'])} at the end"
        )
        for run in runs
    )
    text = (
        f"{line}. Both have {sizes[runs[0].label]:,} parameters. "
        if len(set(sizes.values())) == 1
        else f"{line}. "
    ) + (
        "Each has one seed, which fixes its random numbers, and other seeds give other results. "
        "Compare trains both with several seeds and reports whether the difference holds."
    )
    outcome = "neither" if value == "same" else value
    return result(value, outcome, text, [exact_match_curves(runs)])


def compare_ablations(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure what the head with the largest zero-ablation effect loses by its mean.

    To test whether the others stand in for one another, all heads that can be spared are ablated
    together.
    """
    subject = runs[0].subject
    ablation = Ablation(subject, EVAL_EXAMPLES)
    effects = {
        method: {head: ablation.ablate([head], method) for head in all_heads(ablation.model.config)}
        for method in METHODS
    }
    head, zero = max(effects["zero"].items(), key=lambda item: item[1].log_prob_drop)
    mean, resample = effects["mean"][head], effects["resample"][head]
    left, whole = mean.log_prob_drop, zero.log_prob_drop
    value = "most" if left > whole / 2 else "part" if left > SMALL_SHARE * whole else "little"
    by_mean = max(effects["mean"].values(), key=lambda each: each.log_prob_drop)
    others = describe_spared_heads(ablation, list(effects["mean"].values())).replace(
        " %", "\u00a0%"
    )
    if ablation.baseline.exact_match < MIN_EXACT_MATCH:
        others = (
            f"The whole model gets only {percent(ablation.baseline.exact_match)} right, so exact "
            "match can fall only a little, and the result does not cover the other heads."
        )
    elif not others:
        others = "At most one of the heads has a negligible effect by itself."
    text = (
        f"{zero.name} has the largest effect under zero ablation: the log-probability of a target "
        f"falls by {_nats(zero)}. Under mean ablation it falls by {_nats(mean)}, under resample "
        f"ablation by {_nats(resample)}. The mean at each position over the held-out sequences "
        "removes what depends on the tokens, but the model may never produce this value. Zero also "
        "removes the constant part; later layers have never been trained without it (Chan et al., "
        "2022; Zhang and Nanda, 2024). Resampling also adds wrong information, that of another "
        "sequence. "
        f"Under mean ablation, the largest effect is that of {by_mean.name}, {_nats(by_mean)}. "
        f"{others} The 95 % intervals are over {len(ablation.batch.source_BS)} sequences of one "
        f"model, and do not correct for choosing the largest of {len(effects['mean'])} heads."
    )
    figures = [
        bars_figure(
            f"{method.capitalize()} ablation of each head: decrease of the log-probability in nats "
            "· exact match",
            [
                (each.name, each.log_prob_drop, percent(each.ablated.exact_match))
                for each in sorted(effects[method].values(), key=lambda each: -each.log_prob_drop)
            ][:MAX_BARS],
        )
        for method in METHODS
    ]
    return result(value, value, text, figures)


def _nats(effect: AblationEffect) -> str:
    """Format the drop of the log-probability with its interval."""
    low, high = effect.log_prob_drop_interval
    return f"{effect.log_prob_drop:.3f} nats [{low:.3f}, {high:.3f}]"


def failure_length(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure the shortest length with an exact match below one half."""
    subject = runs[0].subject
    trained, last = subject.config.task.max_length, subject.model.config.max_positions - 1
    shares = exact_match_by_length(subject, last)
    value = next((length for length, share in shares.items() if share < 0.5), last + 1)
    at_end = shares[max(length for length in shares if length <= trained)]
    beyond = shares.get(trained + 1, 0.0)
    outcome = f"length {value}" if value <= last else f"at none up to {last}"
    text = (
        f"With the position encoding {options['positions']}, exact match is {percent(at_end)} at "
        f"length {trained}, the longest in training, and {percent(beyond)} at length "
        f"{trained + 1}. Up to {EXAMPLES_PER_LENGTH} sequences of each length are tested. "
        + (
            "The learned vector of a position beyond the training lengths has never "
            "received an update. "
            if options["positions"] == "learned"
            else (
                "Training contained no sequence of this length, so the model never practiced such "
                "positions and distances, whatever the position encoding. "
            )
        )
        + "This is one seed; other seeds may differ. Choose another position encoding and measure "
        "again."
    )
    figure = length_figure({"exact match": shares})
    figure["max_trained_length"] = trained
    figure["note"] += " Shaded: the lengths in training."
    return result(value, outcome, text, [figure])


# From recurrent networks to the transformer


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
    outcome = f"length {value}" if value <= last else f"at none up to {last}"
    figures = [length_figure({run.label: shares}), _outputs(runs, options["text"])]
    return result(value, outcome, text, figures)


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
    figures = [
        length_figure(shares),
        _attention_map(attention, options["text"]),
        _outputs(runs, options["text"]),
    ]
    return result(round(100 * with_attention, 1), percent(with_attention), text, figures)


@torch.no_grad()
def recurrent_or_transformer(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure which model reaches the target score first, and what both attend to."""
    faster = faster_run(runs, options)
    recurrent, transformer = runs
    sizes = {run.label: parameter_count(run.config.model) for run in runs}
    length = len(recurrent.subject.encode_text(options["text"]).source_BS[0])
    faster["explanation"] = (
        f"{faster['explanation']} The sizes differ: "
        + " and ".join(f"{size:,} ({label})" for label, size in sizes.items())
        + f" parameters. For the {length} tokens of this source, the recurrent encoder computes "
        f"{length} states, one after the other. The transformer computes all {length} vectors at "
        f"once, in each of its {transformer.config.model.n_layers} layers."
    )
    maps = [_attention_map(run, options["text"]) for run in runs]
    return faster | {"figures": [*faster["figures"], *maps]}


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


def _attention_map(run: TrainedRun, text: str) -> dict[str, Any]:
    weights_LHTS, source, target = cross_attention(run.subject, text)
    weights_TS = weights_LHTS.mean(1).mean(0)
    title = f"Cross-attention, mean over heads: {run.label}"
    return map_figure(title, target, source, weights_TS, is_generated=True)


def _describe_alignment(run: TrainedRun, text: str) -> str:
    """Return how many output tokens attend most to the source token that they must copy."""
    weights_LHTS, source, _ = cross_attention(run.subject, text)
    expected = run.subject.task.alignment(len(source) - 1)
    if expected is None:
        return ""
    best = weights_LHTS.mean(1).mean(0).argmax(-1).tolist()
    offsets = [at - position for at, position in zip(best, expected, strict=False)]
    return (
        f"Output tokens with their largest weight on the source token to copy: {offsets.count(0)} "
        f"of {len(expected)}; on the token after it, whose state includes both tokens: "
        f"{offsets.count(1)}."
    )


MEASURES: dict[str, Callable[[list[TrainedRun], Mapping[str, Any]], Result]] = {
    each.__name__: each
    for each in (
        half_accuracy_step,
        first_token_attention,
        without_positions,
        faster_run,
        compare_ablations,
        failure_length,
        bottleneck_length,
        attention_gain,
        recurrent_or_transformer,
        interpretability_measurements.gradient_step,
        interpretability_measurements.induction_heads,
        interpretability_measurements.probe_selectivity,
        interpretability_measurements.grokking_frequencies,
        pretrained_measurements.pretrained_alignment,
        pretrained_measurements.next_token_probability,
    )
}


def measure_lesson(
    measure: str, options: dict[str, Any], runs: list[list[str]], reporter: ProgressReporter
) -> Result:
    """Measure the runs of a lesson, each given by its label, its folder and its checkpoint."""
    torch.set_num_threads(1)
    reporter.message("Measuring")
    trained = [TrainedRun.of(label, Path(run), Path(checkpoint)) for label, run, checkpoint in runs]
    return MEASURES[measure](trained, options)
