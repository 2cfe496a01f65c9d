"""Measure the lessons on a pretrained model: its cross-attention, and its next token.

Shapes: L layers, H heads, Q queries, M memory.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from playground.inspection.attention_sinks import SINK_REASON, is_sink
from playground.inspection.cross_attention_alignment import score_alignment
from playground.inspection.views.attention_maps import unpack_uint16

from .trained_run import (
    Result,
    TrainedRun,
    bars_figure,
    cross_attention,
    curve,
    curves_figure,
    map_figure,
    percent,
    result,
)

EXAMPLE_TEXT = "3 1 4 1 5"  # of the own model
MAX_CURVES = 5  # tokens
OUTPUT_MEAN = "Each cell is a mean over the output tokens."
CLEAR_SCORE = 0.5  # a head with at least this share of attention near the aligned token follows it


def pretrained_alignment(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure where the cross-attention heads of a pretrained model attend in a translation."""
    translation = options["pretrained_result"]
    name = translation["model"].rsplit("/", 1)[-1]
    pretrained = torch.tensor(translation["alignment"]["scores"])
    aligned = float(pretrained.mean())
    last = float(torch.tensor(translation["alignment"]["last"]).mean())
    shares = {"aligned": aligned, "last": last, "elsewhere": 1 - aligned - last}
    baseline = translation["alignment"]["baseline"]
    own_LHQM, source, target, alignment = _align_own_model(runs[0])
    own = torch.tensor(alignment["scores"])
    text = (
        f"{name} translates to “{translation['output']}”. It has {pretrained.numel()} "
        f"cross-attention heads. Of their attention, {percent(aligned)} is within one position of "
        f"the translated token; uniform attention would have {percent(baseline['score'])} there. "
        f"{percent(last)} is on the last source token (uniform: {percent(baseline['last'])}), and "
        f"{percent(shares['elsewhere'])} elsewhere. {_count_clear_heads(pretrained)} of the "
        f"{pretrained.numel()} heads have at least {percent(CLEAR_SCORE)} near the translated "
        f"token; the best has {percent(float(pretrained.max()))}. In your model, "
        f"{_count_clear_heads(own)} of {own.numel()} heads have as much near the digit to copy. "
        f"Its heads have {percent(float(own.mean()))} on average; the best has "
        f"{percent(float(own.max()))}. No example contains alignments; where a head is "
        "aligned, training alone produced that, for T5 also training on text without pairs. The "
        "translated token is estimated from its position, so a translation that changes the order "
        "of the words scores lower."
    )
    value = max(shares, key=lambda share: shares[share])
    figures = [
        _head_map(f"Attention near the translated token, by head: {name}", pretrained),
        _head_map("Attention near the digit to copy, by head: your model", own),
        _pretrained_map(translation, name),
        _attention_map(own_LHQM, alignment["best"], source, target, "your model"),
    ]
    return result(value, value, text, figures)


def next_token_probability(runs: list[TrainedRun], options: Mapping[str, Any]) -> Result:
    """Measure the probability of the most probable next token of a prompt, in percent."""
    predicted = options["pretrained_result"]
    plain, name = predicted["plain"], predicted["model"].rsplit("/", 1)[-1]
    best = plain["candidates"][0]
    own, own_sink, own_uniform = _own_first_token(runs[0])
    figures = [
        _candidate_bars(f"Next token of {name}: probability", plain),
        curves_figure(
            "Probability of these tokens by temperature",
            "probability",
            [
                curve(
                    _quote(candidate),
                    {at["temperature"]: at["probabilities"][i] for at in plain["temperatures"]},
                )
                for i, candidate in enumerate(plain["candidates"][:MAX_CURVES])
            ],
            x_label="temperature",
            note=_nucleus_note(plain),
        ),
    ]
    text = (
        f"{name} splits the prompt into {len(plain['tokens'])} tokens. It gives each of the "
        f"{plain['vocabulary']:,} tokens of its vocabulary a logit, and a softmax turns the logits "
        f"into probabilities. The most probable next token is {_quote(best)} with "
        f"{percent(best['probability'])} and the logit {best['logit']:.1f}. A temperature divides "
        "the logits before the softmax. Top-p samples from the most probable tokens, as few as "
        f"have a total probability of {plain['top_p']} (Holtzman et al., 2020). "
        f"{_describe_chat(predicted, name)} "
    )
    if plain["sinks"]:
        shares = torch.tensor(plain["sinks"])
        text += (
            f"On average, {percent(float(shares.mean()))} of the attention of the later tokens is "
            f"on the first token; equal weights would put {percent(plain['uniform'])} there. "
        )
        if is_sink(shares.mean(), plain["uniform"]):
            text += f"It is an attention sink. {SINK_REASON} "
        title = f"Attention of the later tokens on the first one, by head: {name}"
        figures.append(_head_map(title, shares, "Each cell is a mean over these queries."))
    if chat := predicted["chat"]:
        figures.insert(1, _candidate_bars("Next token as a chat: probability", chat))
    text += (
        f"Your model gives the first token of its output for {EXAMPLE_TEXT} a probability of "
        f"{percent(own)}, because its task determines it. Its decoder puts "
        f"{percent(own_sink)} of the attention on SOS (equal weights: {percent(own_uniform)})."
    )
    probability = best["probability"]
    return result(round(100 * probability, 1), percent(probability), text, figures)


def _quote(token: Mapping[str, Any]) -> str:
    """Return the text of a token in quotation marks, with visible white space."""
    return f"“{token['word'].replace(chr(10), '⏎')}”"


def _candidate_bars(title: str, prediction: Mapping[str, Any]) -> dict[str, Any]:
    bars = (
        (_quote(each), each["probability"], f"{each['logit']:.1f}")
        for each in prediction["candidates"]
    )
    return bars_figure(f"{title} · logit", bars)


def _nucleus_note(prediction: Mapping[str, Any]) -> str:
    sizes = {each["temperature"]: each["nucleus"] for each in prediction["temperatures"]}
    return (
        f"Top-p {prediction['top_p']} samples from {sizes[0.5]:,} of the "
        f"{prediction['vocabulary']:,} tokens at temperature 0.5, from {sizes[1.0]:,} at 1 and "
        f"from {sizes[2.0]:,} at 2."
    )


def _describe_chat(predicted: Mapping[str, Any], name: str) -> str:
    """Describe what the chat template of the model changes."""
    plain, chat = predicted["plain"], predicted["chat"]
    if not chat:
        return f"{name} has no chat template: it was trained to continue texts."
    best = chat["candidates"][0]
    return (
        f"{name} was trained on chats. Its chat template writes the prompt as the message of a "
        f"user, in {len(chat['tokens'])} tokens instead of {len(plain['tokens'])}. Then the most "
        f"probable next token is {_quote(best)} with {percent(best['probability'])}."
    )


@torch.no_grad()
def _own_first_token(run: TrainedRun) -> tuple[float, float, float]:
    """Return the probability of the first output token on the example, and two shares.

    Those are the attention of the later decoder tokens on SOS, measured and for equal weights.
    """
    subject = run.subject
    batch = subject.encode_text(EXAMPLE_TEXT)
    layers = subject.model.attention_weights(batch).decoder
    weights_LHQM = torch.stack([weights_BHQM[0] for weights_BHQM in layers])
    first_V = subject.model(batch.source_BS, batch.decoder_input_BT)[0, 0].softmax(-1)
    counts_Q = torch.arange(2, weights_LHQM.shape[-2] + 1)
    return (
        float(first_V.max()),
        float(weights_LHQM[:, :, 1:, 0].mean()),
        float((1 / counts_Q).mean()),
    )


@torch.no_grad()
def _align_own_model(run: TrainedRun) -> tuple[Tensor, list[str], list[str], dict[str, Any]]:
    """Return cross-attention (LHQM), source, target and alignment on the example."""
    weights_LHQM, source, target = cross_attention(run.subject, EXAMPLE_TEXT)
    end = len(source) - 1
    aligned_Q = torch.tensor([*(run.subject.task.alignment(end) or range(end)), end])
    return weights_LHQM, source, target, score_alignment(weights_LHQM, aligned_Q)


def _count_clear_heads(scores_LH: Tensor) -> int:
    return int((scores_LH >= CLEAR_SCORE).sum())


def _head_map(title: str, scores_LH: Tensor, meaning: str = OUTPUT_MEAN) -> dict[str, Any]:
    """Return a figure with a cell for each head."""
    rows, columns = (
        [f"{name} {i + 1}" for i in range(n)]
        for name, n in zip(("layer", "head"), scores_LH.shape, strict=True)
    )
    caption = f"Rows: layers. Columns: heads. {meaning}"
    return map_figure(title, rows, columns, scores_LH, has_heads=True, caption=caption)


def _pretrained_map(translation: dict[str, Any], name: str) -> dict[str, Any]:
    cross = translation["attention"]["cross"]
    source, target = (
        [each["word"].strip() or each["token"] for each in translation[tokens]]
        for tokens in ("source", "generated")
    )
    shape = cross["layers"], cross["heads"], len(target), len(source)
    weights_LHQM = unpack_uint16(cross["weights"], *shape)
    best = translation["alignment"]["best"]
    return _attention_map(weights_LHQM, best, source, target, name)


def _attention_map(
    weights_LHQM: Tensor, best: dict[str, int], source: list[str], target: list[str], name: str
) -> dict[str, Any]:
    """Return the figure of the head with the best alignment."""
    layer, head = best["layer"], best["head"]
    title = f"Best aligned head of {name}: layer {layer + 1}, head {head + 1}"
    return map_figure(title, target, source, weights_LHQM[layer, head], is_generated=True)
