"""Measure the lessons on training: what one gradient step does, and what grokking builds.

The results are those of measurements.py. Shapes: N samples, K keys, P symbols, D d_model, F
frequencies.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

import torch

from playground.architectures.decoder_only import DecoderOnlyModel
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.inspection.fourier import fourier_power, n_main_frequencies
from playground.tasks.task import Batch
from playground.tasks.vocabulary import SPECIAL_TOKENS

from .measurements import Result
from .trained_run import TrainedRun, bars_figure, curve, curves_figure, exact_match_curves, percent

BATCHES, BATCH_SIZE = 8, 128
PREDICTED_FALL = 0.01  # of the loss: the step size, from the length of the gradient
HEAD_SIZES = (4, 16, 64, 256)
N_SAMPLES, N_KEYS = 4096, 10
MEMORIZED_LOSS, GENERALIZED = 0.1, 0.9  # training loss and held-out exact match
N_BARS = 8  # frequencies in the figure
MAIN_SHARE = 0.9  # of the power, which the main frequencies hold


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
    return {"value": value, "outcome": f"{value} %", "explanation": text, "figures": figures}


def falls_of_one_step(model: Seq2SeqModel, batches: list[Batch]) -> tuple[float, float]:
    """Take one step of gradient descent on each batch; the weights of the model do not change.

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
    if memorized is None or generalized is None:
        delay = (
            f"In this run, the training loss did not fall below {MEMORIZED_LOSS}, or held-out "
            f"exact match did not reach {percent(GENERALIZED)}."
        )
    else:
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
    return {
        "value": value,
        "outcome": f"{value} of {n} frequencies",
        "explanation": text,
        "figures": figures,
    }


def symbol_power(model: Seq2SeqModel) -> torch.Tensor:
    """Return the Fourier power of the symbols' embeddings of a decoder without encoder (F)."""
    embedding = cast(DecoderOnlyModel, model).embedding.token_embedding
    return fourier_power(embedding.weight.detach()[len(SPECIAL_TOKENS) :])
