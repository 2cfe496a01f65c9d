"""Activation patching, the logit lens and direct logit attribution of one sequence.

Shapes: L layers, T target, V vocabulary.
"""

from typing import Any

from playground.inspection.activation_patching import (
    LayerPatching,
    corrupt,
    patch_heads,
    patch_layers,
    similar_pairs,
)
from playground.inspection.inspected_model import InspectedModel, InspectionError
from playground.inspection.logit_lens import direct_logit_attribution, logit_lens

from .fields import Index, Name, SequenceRequest, answer_fields, head_id, json_array, json_number

TOP_K = 3


class PatchingRequest(SequenceRequest):
    """The replaced source token; by default by the next token of the vocabulary."""

    source_position: Index = 0
    replacement: str | None = None


class AttributionRequest(SequenceRequest):
    """The token whose logit is attributed, at an output position; the default is the target.

    Beyond the target, the position is its last one.
    With `baseline_token`, it is the logit difference to that token. Its default is the most likely
    other token, and "" is none.
    """

    position: Index = 0
    token: Name | None = None
    baseline_token: Name | None = None


def activation_patching(subject: InspectedModel, request: PatchingRequest) -> dict[str, Any]:
    """Return the activation patching of one source token.

    The fractions by layer and position are of similar pairs, or of this one if there are none.
    """
    name, position = subject.task.vocabulary.token_name, request.source_position
    pair = corrupt(request.example(subject), position, request.replacement)
    clean_logit_diff, corrupted_logit_diff, recovered = patch_heads(pair)
    pairs = similar_pairs(pair) or [pair]
    source, corrupted = (
        subject.token_names(each.source_BS[0, :-1].tolist())
        for each in (pair.clean, pair.corrupted)
    )
    return {
        "source": source,
        "corrupted_source": corrupted,
        "source_position": position,
        "replacement": corrupted[position],
        "position": pair.position,
        "clean_token": name(pair.clean_token),
        "corrupted_token": name(pair.corrupted_token),
        "clean_logit_diff": json_number(clean_logit_diff),
        "corrupted_logit_diff": json_number(corrupted_logit_diff),
        "heads": [
            {**head_id(head), "recovered_fraction": json_number(fraction)}
            for head, fraction in recovered.items()
        ],
        "pairs": len(pairs),
        "layers": [_layer_fields(side, table) for side, table in patch_layers(pairs).items()],
    }


def _layer_fields(side: str, table: LayerPatching) -> dict[str, Any]:
    return {
        "side": side,
        "rows": [_layer_name(module) for module in table.layers],
        "restored": json_array(table.restored_LP),
        "lost": json_array(table.lost_LP),
    }


def _layer_name(module: str) -> str:
    """Return the displayed name of a module, such as "encoder layer 1" for encoder_layers.0."""
    stack, _, index = module.partition("_layers.")
    return f"{stack} layer {int(index) + 1}" if index else module.replace("_", " ")


def lens(subject: InspectedModel, request: SequenceRequest) -> dict[str, Any]:
    """Return the logit lens of a teacher-forced pass; layer 0 is the embedding."""
    example = request.example(subject)
    probabilities_LTV = logit_lens(subject.transformer, example.activations)[:, 0].softmax(-1)
    best = probabilities_LTV.topk(min(TOP_K, probabilities_LTV.shape[-1]))
    target_LT = probabilities_LTV.gather(
        -1, example.labels_BT[0].expand(len(probabilities_LTV), -1)[..., None]
    )[..., 0]
    layers = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return {
        "layers": ["embedding", *(f"layer {i}" for i in range(1, len(probabilities_LTV)))],
        "decoder_input": subject.token_names(example.decoder_input_BT[0].tolist()),
        "labels": subject.token_names(example.labels_BT[0].tolist()),
        "vocabulary": subject.token_names(list(range(probabilities_LTV.shape[-1]))),
        "candidates": [
            [
                list(zip(subject.token_names(tokens), map(json_number, values), strict=True))
                for tokens, values in zip(*layer, strict=True)
            ]
            for layer in layers
        ],
        "target_probability": json_array(target_LT),
        **answer_fields(example),
    }


def logit_attribution(subject: InspectedModel, request: AttributionRequest) -> dict[str, Any]:
    """Return the direct logit attribution of a token at an output position."""
    example = request.example(subject)
    names = subject.token_names(list(range(subject.transformer.config.target_vocab_size)))
    labels = example.labels_BT[0].tolist()
    position = min(request.position, len(labels) - 1)
    logits_V = example.activations["output_proj"][-1].output[0, position]
    token = _token_id("token", request.token, names, labels[position])
    runner_up = next(
        other for other in logits_V.topk(min(2, len(names))).indices.tolist() if other != token
    )
    baseline = (
        None
        if request.baseline_token == ""
        else _token_id("baseline_token", request.baseline_token, names, runner_up)
    )
    if baseline == token:
        raise InspectionError(
            f"token and baseline_token are both {names[token]}; compare with another token"
        )
    contributions = direct_logit_attribution(
        subject.transformer, example.activations, position, token, baseline
    )
    return {
        "labels": subject.token_names(labels),
        "vocabulary": names,
        "position": position,
        "token": names[token],
        "baseline_token": None if baseline is None else names[baseline],
        "runner_up": names[runner_up],
        "contributions": [
            {"name": part.name, "logit": json_number(part.logit)} for part in contributions
        ],
        "sum": json_number(sum(part.logit for part in contributions)),
        "logit": json_number(
            float(logits_V[token] - (0 if baseline is None else logits_V[baseline]))
        ),
        **answer_fields(example),
    }


def _token_id(field: str, value: str | None, names: list[str], default: int) -> int:
    """Return the id of the token that a field names."""
    if value is None:
        return default
    if value not in names:
        raise InspectionError(f"{field} is {value[:20]!r}; choose one of {' '.join(names)}")
    return names.index(value)
