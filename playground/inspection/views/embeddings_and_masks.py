"""Views of embeddings, masks, parameter counts and the memory of attention.

Shapes: B batch, S source, H heads, Q queries, M memory, D d_model, P positions.
"""

from dataclasses import asdict
from functools import cache
from typing import Any, cast

import torch
from torch import nn

from playground.inspection.embeddings import (
    embedding_pca,
    independence_of_positions,
    nearest_tokens,
    position_vectors,
    token_embeddings,
    wavelength,
    word_order_distance,
)
from playground.inspection.equivalents import compare_separate_heads
from playground.inspection.inspected_model import InspectedModel, InspectionError
from playground.inspection.masks import (
    TUTORIAL_EXAMPLE,
    causal_mask_rows,
    compare_attention_types,
    masked_softmax,
    masks_of_tokens,
    padding_mask_row,
)
from playground.inspection.parameter_counts import (
    PUBLISHED_BASE,
    attention_memory,
    attention_shapes,
    benchmark_attention,
    compare_with_torch,
    parse_lengths,
    tutorial_base_config,
)
from playground.inspection.parameter_formulas import GROUP_TEXTS, parameter_formulas
from playground.models.config import ModelConfig, paper_base_config
from playground.models.embeddings import InputEmbedding, sinusoidal_positions
from playground.tasks import PAD
from playground.tasks.task import Batch

from .common import predict_answer
from .request import (
    MAX_COLUMNS,
    MAX_ROWS,
    choice_field,
    int_field,
    json_array,
    json_number,
    source_text,
    text_field,
)

# The numbers of positions and d_model in the figures of tutorials.
SINUSOID_SIZES = {"50 x 64": (50, 64), "200 x 64": (200, 64), "100 x 128": (100, 128)}
EXAMPLE_SENTENCES = ("The dog bit the man", "The man bit the dog")
MAX_TOKENS = 32  # of a heatmap, if several are displayed side by side
MAX_HEADS = 8
MAX_LENGTHS = 8  # that the user enters
EXTRA_PADDING = 3
TUTORIAL_TOKENS = (87, 600, 0, 0, 0)  # token ids in a tutorial, with padding
# wavelengths of dimensions 0 and 14 of 64, as a tutorial reads them off its figure
PUBLISHED_WAVELENGTHS = {0: 5, 14: 40}


@torch.no_grad()
def embeddings(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the token embeddings and position vectors of the model, and sinusoidal positions."""
    side = choice_field(request, "side", ("source", "target"))
    size = choice_field(request, "sinusoids", tuple(SINUSOID_SIZES))
    names, _ = token_embeddings(subject, side)
    requested = text_field(request, "token", 20, "")
    # The page may have selected the token for another model.
    token = requested if requested in names else subject.token_names([3])[0]
    n, width = SINUSOID_SIZES[size]
    sinusoidal_PD = sinusoidal_positions(n, width)
    dimensions = [0, 14, int_field(request, "dimension", 0, width - 1, default=30)]
    pca = embedding_pca(subject, side)
    return {
        "side": side,
        "positions": _position_fields(subject, side),
        "sinusoids": {
            "size": size,
            "sizes": list(SINUSOID_SIZES),
            "weights": json_array(sinusoidal_PD.T, 3),
            "positions": n,
            "width": width,
        },
        "dimensions": [
            {
                "dimension": d,
                "wavelength": json_number(wavelength(d, width)),
                "published": PUBLISHED_WAVELENGTHS.get(d) if width == 64 else None,
                "values": json_array(sinusoidal_PD[:, d], 4),
            }
            for d in dimensions
        ],
        "tokens": names,
        "token": token,
        "nearest": [
            [name, json_number(similarity)]
            for name, similarity in nearest_tokens(subject, side, token)
        ],
        "map": {
            "names": pca.names,
            "coordinates": [[json_number(x), json_number(y)] for x, y in pca.coordinates],
            "explained_variance": list(map(json_number, pca.explained_variance)),
        },
        "independence": [
            [each.positions, each.directions, json_number(each.nearest, 3), each.offset]
            for each in independence_of_positions()
        ],
        "order": _word_order_fields(request),
        **predict_answer(subject, request),
    }


def _position_fields(subject: InspectedModel, side: str) -> dict[str, Any]:
    """Return the position vectors of one side, and their scale beside that of the tokens."""
    config = subject.transformer.config
    embedding = cast(InputEmbedding, subject.transformer.get_submodule(f"{side}_embedding"))
    _, tokens_VD = token_embeddings(subject, side)
    fields: dict[str, Any] = {
        "kind": config.position_type,
        "weights": [],
        "of": [0, config.d_model],
        "rms": None,
        "token_rms": _root_mean_square(tokens_VD * embedding.scale),
        "description": position_description(subject, side),
    }
    positions_PD = position_vectors(subject, side)
    if positions_PD is not None:
        fields |= {
            "weights": json_array(positions_PD[:MAX_ROWS, :MAX_COLUMNS], 3),
            "of": list(positions_PD.shape),
            "rms": _root_mean_square(positions_PD),
        }
    return fields


def _root_mean_square(values: torch.Tensor) -> float | None:
    return json_number(float(values.pow(2).mean().sqrt()))


def position_description(subject: InspectedModel, side: str) -> str:
    """Describe the position encoding of one side."""
    inside = "The model adds no position vectors: "
    return {
        "learned": "learned in training",
        "sinusoidal": "sinusoidal",
        "learned-from-end": "learned in training, and counted from the end (0 is EOS)"
        if side == "source"
        else "learned in training",
        "randomized": "learned in training at randomly sampled positions; these are the evenly "
        "spaced ones used at inference",
        "rope": f"{inside}self-attention rotates queries and keys by their positions (RoPE). "
        "Activations shows this as the stage “rotated queries”.",
        "alibi": f"{inside}self-attention subtracts a multiple of the distance from the scores "
        "(ALiBi). Activations shows this as the stage “position bias”.",
        "t5": f"{inside}self-attention adds a learned bias for the distance to the scores (T5). "
        "Activations shows this as the stage “position bias”.",
        "none": f"{inside}it has no position encoding. The encoder processes a set. The decoder "
        "can still infer positions from its causal mask.",
    }[subject.transformer.config.position_type]


def _word_order_fields(request: dict[str, Any]) -> dict[str, Any]:
    """Compare two sentences; an invalid sentence gives an error for this field only."""
    sentences = [
        text_field(request, "first", 2000, EXAMPLE_SENTENCES[0]),
        text_field(request, "second", 2000, EXAMPLE_SENTENCES[1]),
    ]
    try:
        order = word_order_distance(sentences[0], sentences[1])
    except InspectionError as error:
        return {"sentences": sentences, "error": str(error)}
    return {
        "sentences": sentences,
        "words": [sorted(order.first), sorted(order.second)],
        "without": json_number(order.without_positions),
        "with": json_number(order.with_positions),
    }


def sizes(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return masks and four types of attention on the sequence, and the sizes of the model."""
    layer = min(int_field(request, "layer", 0, 63), subject.transformer.config.n_layers - 1)
    which = choice_field(request, "of", ("model", "tutorial", "paper"))
    measure = choice_field(request, "measure", ("no", "yes")) == "yes"
    batch = subject.encode_text(source_text(request))
    length = batch.source_BS.shape[1]
    config = {
        "model": subject.transformer.config,
        "tutorial": tutorial_base_config(),
        "paper": paper_base_config(),
    }[which]
    decoder_input = subject.token_names(batch.decoder_input_BT[0, :MAX_TOKENS].tolist())
    return {
        "padding": padding_demo(subject, batch),
        "causal": {"names": decoder_input, "mask": causal_mask_rows(len(decoder_input))},
        "softmax": _softmax_demo(request),
        "typed": _typed_masks(request),
        "kinds": attention_types(subject, batch, layer),
        "layer": layer,
        "layers": subject.transformer.config.n_layers,
        "shapes": [
            [row.name, row.formula, list(row.shape)]
            for row in attention_shapes(subject.transformer.config, length)
        ],
        "separate": asdict(compare_separate_heads(subject, batch, layer)),
        "length": length,
        "parameters": {
            "of": which,
            "rows": [
                [each.group, each.ours, each.torch, each.reason, *_part_texts(config, each.group)]
                for each in _cached_parameter_counts(config)
            ],
            "published": PUBLISHED_BASE if which == "tutorial" else None,
        },
        **_memory_fields(request, length, measure),
        "measured": measure,
        **predict_answer(subject, request),
    }


def _memory_fields(request: dict[str, Any], length: int, measure: bool) -> dict[str, Any]:
    """Return the memory of attention weights by length.

    The first lengths are that of the sequence and those that the user entered. Invalid ones give an
    error for this field only.
    """
    text = text_field(request, "lengths", 200, "")
    try:
        lengths, error = parse_lengths(text), ""
    except InspectionError as invalid:
        lengths, error = [], str(invalid)
    rows = [
        [
            cost.length,
            cost.num_scores,
            cost.bytes,
            cost.published,
            _cached_attention_benchmark(cost.length) if measure else None,
            cost.bytes_of_bert,
            cost.practical,
        ]
        for cost in [*attention_memory([length, *lengths[:MAX_LENGTHS]]), *attention_memory()]
    ]
    return {"quadratic": rows, "lengths": {"input": text, "error": error}}


def _part_texts(config: ModelConfig, group: str) -> tuple[str, str, str]:
    """Return the formula of a group of parameters, its location and its purpose."""
    text = GROUP_TEXTS[group]
    return parameter_formulas(config).get(group, ""), text.location, text.purpose


@torch.no_grad()
def padding_demo(subject: InspectedModel, batch: Batch) -> dict[str, Any]:
    """Return the sequence with padding, as in a batch with a longer one.

    The result has its tokens, the padding mask, and the change of the logits by padding.
    """
    free_positions = subject.transformer.config.max_positions - batch.source_BS.shape[1]
    source_BS = nn.functional.pad(
        batch.source_BS, (0, min(EXTRA_PADDING, free_positions)), value=PAD
    )
    tokens = source_BS[0].tolist()
    logits, padded = (
        subject.transformer(source, batch.decoder_input_BT)
        for source in (batch.source_BS, source_BS)
    )
    return {
        "tokens": tokens,
        "names": subject.token_names(tokens),
        "mask": padding_mask_row(tokens),
        "added": source_BS.shape[1] - batch.source_BS.shape[1],
        "changed": json_number(float((logits - padded).abs().max())),
    }


def _typed_masks(request: dict[str, Any]) -> dict[str, Any]:
    """Return the masks of the token ids that the user entered.

    Invalid ones give an error for this field only.
    """
    text = text_field(request, "tokens", 300, " ".join(map(str, TUTORIAL_TOKENS)))
    words = text.replace(",", " ").split()
    try:
        if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
            raise InspectionError("a token id is a whole number such as 87; 0 is padding")
        tokens = list(map(int, words))
        masks = masks_of_tokens(tokens)
    except InspectionError as error:
        return {"input": text, "error": str(error)}
    weights = [[json_number(x, 4) for x in row] for row in masks.weights]
    return {"input": text, "tokens": tokens} | asdict(masks) | {"weights": weights}


def _softmax_demo(request: dict[str, Any]) -> dict[str, Any]:
    """Return the softmax of the rows of scores that the user entered, one row per line.

    Invalid scores give an error for this field only.
    """
    default = "\n".join(
        " ".join(map(str, row)) for row in cast(list[list[int]], TUTORIAL_EXAMPLE["scores"])
    )
    scores = text_field(request, "scores", 3000, default)
    lines = [line.replace(",", " ").split() for line in scores.replace(";", "\n").splitlines()]
    try:
        rows = [[_parse_score(word) for word in words] for words in lines if words]
        softmax = masked_softmax(rows)
    except InspectionError as error:
        return {"input": scores, "error": str(error)}
    return {
        "input": scores,
        "scores": softmax.scores,
        "is_token": softmax.is_token,
        "unmasked": [[json_number(x) for x in row] for row in softmax.unmasked],
        "masked": [[json_number(x) for x in row] for row in softmax.masked],
        "published": {
            "unmasked": TUTORIAL_EXAMPLE["unmasked"],
            "masked": TUTORIAL_EXAMPLE["masked"],
        }
        if softmax.scores == TUTORIAL_EXAMPLE["scores"]
        else None,
    }


def _parse_score(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InspectionError(
            f"{word[:20]!r} is not a number; type rows of scores such as 7 6 0 0 0"
        ) from None


def attention_types(subject: InspectedModel, batch: Batch, layer: int) -> list[dict[str, Any]]:
    """Return four types of attention, cut to the first tokens and heads."""
    source = subject.token_names(batch.source_BS[0, :MAX_TOKENS].tolist())
    decoder_input = subject.token_names(batch.decoder_input_BT[0, :MAX_TOKENS].tolist())
    return [
        {
            "name": name,
            "rows": decoder_input if name == "cross" else source,
            "columns": source,
            "possible": causal_mask_rows(len(source)) if name == "causal" else None,
            "heads": [
                json_array(weights_QM, 4)
                for weights_QM in weights_HQM[:MAX_HEADS, :MAX_TOKENS, :MAX_TOKENS]
            ],
            "of": list(weights_HQM.shape),
        }
        for name, weights_HQM in compare_attention_types(subject, batch, layer).items()
    ]


@cache
def _cached_attention_benchmark(length: int) -> list[float] | None:
    """Measure bytes and seconds, explicit and fused, once per process.

    None for a length that is too long.
    """
    try:
        measured, *seconds = benchmark_attention(length)
    except InspectionError:
        return None
    return [measured, *(float(f"{each:.3g}") for each in seconds)]


_cached_parameter_counts = cache(compare_with_torch)


VIEWS = {"embeddings": embeddings, "sizes": sizes}
