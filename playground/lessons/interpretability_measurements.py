"""Measure the lessons on the inside of a model: gradients, induction heads, probes, grokking.

Shapes: N samples, K and M keys, Q queries, P symbols, D d_model, F frequencies.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from playground.architectures.decoder_only import DecoderOnlyModel
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.inspection.induction import InductionScore, induction_scores
from playground.inspection.probes import FEATURES, ProbeScore, probe_layers
from playground.tasks.task import Batch
from playground.tasks.vocabulary import SPECIAL_TOKENS

from .trained_run import (
    EVAL_EXAMPLES,
    Result,
    TrainedRun,
    bars_figure,
    curve,
    curves_figure,
    exact_match_curves,
    map_figure,
    percent,
    result,
)

BATCHES, BATCH_SIZE = 8, 128
PREDICTED_FALL = 0.01  # of the loss: the step size, from the length of the gradient
HEAD_SIZES = (4, 16, 64, 256)
N_SAMPLES, N_KEYS = 4096, 10
MEMORIZED_LOSS, GENERALIZED = 0.1, 0.9  # training loss and held-out exact match
N_BARS = 8  # frequencies in the figure
MAIN_SHARE = 0.9  # of the power, which the main frequencies hold
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
    figures = [
        curves_figure("Highest prefix-matching score of a head", "prefix_matching", curves),
        curves_figure("Training loss", "loss", [run.curve("loss") for run in runs]),
        exact_match_curves(runs),
        _attention_map(runs[-1], best[runs[-1].label]),
    ]
    return result(value, value, text, figures)


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
    accuracy = token.control_accuracy
    return result(round(100 * accuracy, 1), percent(accuracy), text, figures)


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


def gradient_step(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure how much of the fall of the loss on one batch appears on another batch."""
    run = runs[0]
    held_out = run.subject.held_out(BATCHES * BATCH_SIZE).batch
    order = torch.randperm(len(held_out.source_BS), generator=torch.Generator().manual_seed(0))
    batches = [held_out.select(rows) for rows in order.chunk(BATCHES)]
    shares: dict[int, float] = {}
    agreement = 1.0
    for step, model in run.models_over_training():
        own, other = falls_of_one_step(model, batches)
        agreement = agreement if shares else own
        shares[step] = other / own
    (first, share), last = next(iter(shares.items())), max(shares)
    value = round(100 * share)
    text = (
        f"At step {first}, {percent(share)} of the fall on a batch appears on another one: both "
        f"need the same corrections. At step {last} it is {percent(shares[last])}, consistent with "
        "a gradient that depends more on its batch (McCandlish et al., 2018). The step moves the "
        f"weights against the gradient, as far as would lower the loss by {PREDICTED_FALL:.0%} if "
        f"the loss were linear; the measured fall at step {first} is {percent(agreement)} of that. "
        f"The numbers are means over {BATCHES} pairs of batches. Attention divides scores by the "
        "square root of the head size. The second figure illustrates, with random vectors, the "
        "reason that Vaswani et al. (2017, section 3.2.1) suspect for the division. The dot "
        "products of longer vectors are larger. Without the division, the softmax selects one key, "
        f"and little gradient passes. It has {N_SAMPLES:,} random queries with {N_KEYS} keys each."
    )
    title = "Share of the fall that appears on another batch"
    figures = [
        curves_figure(title, "share", [curve(run.label, shares)]),
        curves_figure(
            "Gradient that passes the softmax, by head size",
            "share",
            [
                curve(label, {d_k: softmax_gradient(d_k, is_divided) for d_k in HEAD_SIZES})
                for label, is_divided in (("divided by √d_k", True), ("not divided", False))
            ],
            x_label="head size",
        ),
    ]
    return result(value, f"{value} %", text, figures)


def falls_of_one_step(model: Seq2SeqModel, batches: list[Batch]) -> tuple[float, float]:
    """Take one step of gradient descent on each batch, and undo it.

    Returns the mean falls of the loss on the batch itself and on the next batch, both divided by
    the fall that the gradient predicts: the step size times its squared length.
    """
    weights: list[torch.Tensor] = list(model.parameters())
    own = other = 0.0
    for batch, following in zip(batches, batches[1:] + batches[:1], strict=True):
        loss = model.loss(batch)
        gradients = torch.autograd.grad(loss, weights)
        predicted = PREDICTED_FALL * float(loss.detach())
        size = predicted / sum(float(each.square().sum()) for each in gradients)
        with torch.no_grad():
            before = float(model.loss(following))
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(gradient, alpha=size)
            own += (float(loss) - float(model.loss(batch))) / predicted
            other += (before - float(model.loss(following))) / predicted
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.add_(gradient, alpha=size)
    return own / len(batches), other / len(batches)


def softmax_gradient(d_k: int, is_divided: bool) -> float:
    """Return how much of a gradient passes a softmax, for queries and keys from N(0, 1).

    It is the mean derivative of a weight by its own score, w (1 - w), divided by that at equal
    scores.
    """
    generator = torch.Generator().manual_seed(0)
    query_NK = torch.randn(N_SAMPLES, d_k, generator=generator)
    key_NMK = torch.randn(N_SAMPLES, N_KEYS, d_k, generator=generator)
    scores_NM = (key_NMK @ query_NK[..., None])[..., 0]
    weights_NM = (scores_NM / math.sqrt(d_k) if is_divided else scores_NM).softmax(-1)

    passed = (weights_NM * (1 - weights_NM)).sum(-1).mean()
    return float(passed) / (1 - 1 / N_KEYS)


def grokking_frequencies(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure how many frequencies hold most of the embedding's Fourier power at the end."""
    run = runs[0]
    counts, power_F = {}, torch.zeros(0)
    for step, model in run.models_over_training():
        power_F = symbol_power(model)
        counts[step] = n_main_frequencies(power_F, MAIN_SHARE)
    n, value = len(power_F), list(counts.values())[-1]
    memorized = next((line["step"] for line in run.lines if line["loss"] < MEMORIZED_LOSS), None)
    generalized = run.first_at(GENERALIZED)
    delay = (
        f"In this run, the training loss did not fall below {MEMORIZED_LOSS}, or held-out exact "
        f"match did not reach {percent(GENERALIZED)}."
    )
    if memorized and generalized:
        delay = (
            f"The training loss fell below {MEMORIZED_LOSS} at step {memorized}; held-out exact "
            f"match reached {percent(GENERALIZED)} at step {generalized['step']}, "
            f"{generalized['step'] / memorized:.0f} times as late."
        )
    text = (
        f"{delay} At the first stored step, {next(iter(counts.values()))} of {n} frequencies hold "
        f"{percent(MAIN_SHARE)} of the power of the embedding; at the last, {value}. Few "
        "frequencies agree with the sums of angles of Nanda et al. (2023), but the embedding alone "
        "does not identify the algorithm (Zhong et al., 2023). Weight decay may favor this "
        "solution, as one that needs smaller weights (Varma et al., 2023); this run does not test "
        "that. This is one seed; the time of the change depends much on the seed."
    )
    strongest = power_F.argsort(descending=True)[:N_BARS].sort().values.tolist()
    top = {f: float(power_F[f]) for f in strongest}
    figures = [
        exact_match_curves(runs),
        curves_figure("Training loss", "loss", [run.curve("loss")]),
        curves_figure(
            f"Share of the frequencies that hold {MAIN_SHARE:.0%} of the power",
            "share",
            [curve(run.label, {step: count / n for step, count in counts.items()})],
        ),
        bars_figure(
            "The strongest frequencies at the end, share of the power",
            ((f"frequency {f + 1}", share, percent(share)) for f, share in top.items()),
        ),
    ]
    return result(value, f"{value} of {n} frequencies", text, figures)


def symbol_power(model: Seq2SeqModel) -> torch.Tensor:
    """Return the Fourier power of the symbols' embeddings of a decoder without encoder (F)."""
    embedding = cast(DecoderOnlyModel, model).embedding.token_embedding
    return fourier_power(embedding.weight.detach()[len(SPECIAL_TOKENS) :])


def fourier_power(embedding_PD: Tensor) -> Tensor:
    """Return the share of each frequency from 1 on in the power of an embedding (F).

    The embedding is a function of the numbers 0 to P - 1 (Nanda et al. 2023, section 4). The power
    of a frequency is the sum over all dimensions of its squared cosine and sine coefficients; the
    constant part is left out.
    """
    coefficients_FD = torch.fft.rfft(embedding_PD.double(), dim=0)[1:]
    power_F = coefficients_FD.abs().square().sum(1)
    if len(embedding_PD) % 2 == 0:
        power_F[-1] /= 2  # the highest frequency has a cosine only
    return power_F / power_F.sum()


def n_main_frequencies(power_F: Tensor, share: float) -> int:
    """Return the smallest number of frequencies that hold this share of the power."""
    total_F = power_F.sort(descending=True).values.cumsum(0)
    return int((total_F < share).sum()) + 1
