"""Measure the lessons on the inside of a model: induction heads and probes.

The results are those of measurements.py. Shapes: Q queries, M memory.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch

from playground.architectures.decoder_only import DecoderOnlyModel
from playground.inspection.induction import InductionScore, induction_scores
from playground.inspection.probes import FEATURES, ProbeScore, probe_layers

from .measurements import EVAL_EXAMPLES, Result
from .trained_run import (
    TrainedRun,
    bars_figure,
    curve,
    curves_figure,
    exact_match_curves,
    map_figure,
    percent,
)

INDUCTION_SCORE = 0.8  # prefix matching above which a head is an induction head
EXAMPLE_LENGTH = 8  # tokens of the sequence in the figure


def induction_heads(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure which runs have a head with a prefix-matching score above `INDUCTION_SCORE`."""
    best = {run.label: best_induction_head(run.subject.model, run) for run in runs}
    above = [label for label, score in best.items() if score.prefix_matching > INDUCTION_SCORE]
    value = above[0] if len(above) == 1 else "both" if above else "neither"
    curves = [_prefix_matching_curve(run) for run in runs]
    heads = "; ".join(
        f"{run.label}: decoder {best[run.label].layer + 1}.{best[run.label].head + 1} with "
        f"{percent(best[run.label].prefix_matching)}, copying "
        f"{percent(best[run.label].copying)}, exact match "
        f"{percent(run.evaluations[-1]['exact_match'])}"
        for run in runs
    )
    text = (
        f"The head with the highest prefix-matching score of each model: {heads}. "
        "A head raises the logits of some tokens; its copying score is the fraction of this rise "
        "on the token that it attends to most. "
        f"{_describe_formation(runs[-1], curves[-1])} With one layer, a key is computed "
        "from its own token and its position alone, so no query can find the token after an "
        "earlier occurrence. With two layers, a head of the first can write the token before into "
        "each position, which a head of the second matches (Olsson et al., 2022); this lesson did "
        "not test that. This is one seed. Five of five seeds of two layers had a head above "
        f"{INDUCTION_SCORE * 100:g}\u00a0% on prefix matching, and none of one layer; copying did "
        "not separate them (python -m benchmarks induction)."
    )
    return {
        "value": value,
        "outcome": value,
        "explanation": text,
        "figures": [
            curves_figure("Highest prefix-matching score of a head", "prefix_matching", curves),
            curves_figure("Training loss", "loss", [run.curve("loss") for run in runs]),
            exact_match_curves(runs),
            _attention_map(runs[-1], best[runs[-1].label]),
        ],
    }


def probe_selectivity(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure the accuracy of a probe on the control task of the token, on the embeddings."""
    scores = probe_layers(runs[0].subject)
    token, *_ = scores
    positions = [score for score in scores if score.feature == "position"]
    best = max(scores[: len(positions)], key=lambda score: score.selectivity)
    text = (
        f"The probe reads the token from the embeddings with an accuracy of "
        f"{percent(token.accuracy)}, and random labels, one for each pair of token and position, "
        f"with {percent(token.control_accuracy)}: a selectivity of "
        f"{100 * token.selectivity:.0f} percentage points. A probe of so many numbers fits part of "
        "any labels, more of them where a layer represents each pair. So an accuracy counts only "
        "beside its control, a variant of that of Hewitt and Liang (2019). The selectivity of the "
        f"token is largest at {_layer_name(best)}. The lowest accuracy for the position is "
        f"{percent(min(score.accuracy for score in positions))}. A probe measures what can be "
        "read, not what is used; removing that direction and measuring the output tests use "
        "(Elazar et al., 2021)."
    )
    figures = [
        bars_figure(
            f"Accuracy for the {name} · on its control task",
            (
                (_layer_name(score), score.accuracy, percent(score.control_accuracy))
                for score in scores
                if score.feature == name
            ),
        )
        for name in FEATURES
    ]
    value = round(100 * token.control_accuracy, 1)
    outcome = percent(token.control_accuracy)
    return {"value": value, "outcome": outcome, "explanation": text, "figures": figures}


def _layer_name(score: ProbeScore) -> str:
    return f"encoder layer {score.layer}" if score.layer else "the embedding"


def best_induction_head(model: Any, run: TrainedRun) -> InductionScore:
    """Return the head with the highest prefix-matching score on held-out sequences."""
    batch = run.subject.held_out(EVAL_EXAMPLES).batch
    scores = induction_scores(cast(DecoderOnlyModel, model), batch)
    return max(scores, key=lambda score: score.prefix_matching)


def _prefix_matching_curve(run: TrainedRun) -> dict[str, Any]:
    scores = {
        step: best_induction_head(model, run).prefix_matching
        for step, model in run.models_over_training()
    }
    return curve(run.label, scores)


def _describe_formation(run: TrainedRun, curve: Mapping[str, list[Any]]) -> str:
    """Describe when the head formed, and the loss before and after."""
    formed = next((i for i, score in enumerate(curve["ys"]) if score > 0.5), 0)
    if not formed:
        return ""
    losses = {line["step"]: line["loss"] for line in run.lines}
    before, after = curve["xs"][formed - 1], curve["xs"][formed]
    return (
        f"With {run.label}, this score first passes {percent(0.5)} between the steps {before} and "
        f"{after}. The loss was {losses[max(1, before)]:.2f} and {losses[after]:.2f} there."
    )


@torch.no_grad()
def _attention_map(run: TrainedRun, head: InductionScore) -> dict[str, Any]:
    """Return the figure of a head on a held-out sequence: the queries of the repetition."""
    batch = run.subject.held_out(EVAL_EXAMPLES).batch
    n_tokens_B = (batch.labels_BT != 0).sum(1).tolist()
    row = n_tokens_B.index(EXAMPLE_LENGTH + 1)
    text = " ".join(run.subject.token_names(batch.labels_BT[row, :EXAMPLE_LENGTH].tolist()))
    example = run.subject.encode_text(text)
    model = cast(DecoderOnlyModel, run.subject.model)
    weights_WW = model.attention_weights(example).decoder[head.layer][0, head.head]
    tokens_1W, _ = model.attention_tokens(example)["decoder"]
    names = run.subject.token_names(tokens_1W[0].tolist())
    first = EXAMPLE_LENGTH + 1  # after the tokens and EOS
    title = f"Attention of decoder {head.layer + 1}.{head.head + 1}, {run.label}"
    caption = "Rows: the repeated tokens (queries). Columns: all tokens (keys)."
    return map_figure(title, names[first:], names, weights_WW[first:], caption=caption)
