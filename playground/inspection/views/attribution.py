"""Activation patching, the logit lens and direct logit attribution of one sequence.

Shapes: L layers, T target, V vocabulary.
"""

from typing import Any

import torch

from playground.inspection.activation_patching import patch_heads
from playground.inspection.inspected_model import InspectedModel, InspectionError
from playground.inspection.logit_lens import direct_logit_attribution, logit_lens

from .common import answer_fields, head_id
from .request import int_field, json_number, source_text

TOP_K = 3


def activation_patching(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the activation patching of one source token.

    The default replacement is the next token of the vocabulary.
    """
    text, vocabulary = source_text(request), subject.task.vocabulary
    replacement = request.get("replacement")
    tokens = subject.encode_text(text).source_BS[0, :-1].tolist()
    position = int_field(request, "source_position", 0, len(tokens) - 1)
    if replacement is None:
        replacement = vocabulary.symbols[
            (vocabulary.symbols.index(vocabulary.token_name(tokens[position])) + 1)
            % len(vocabulary.symbols)
        ]
    if not isinstance(replacement, str):
        raise InspectionError(
            f"replacement is {str(replacement)[:20]}; give one of {vocabulary.describe()}"
        )
    patching_result = patch_heads(subject, text, position, replacement)
    return {
        "source": subject.token_names(patching_result.clean_source),
        "corrupted_source": subject.token_names(patching_result.corrupted_source),
        "source_position": position,
        "replacement": vocabulary.token_name(patching_result.corrupted_source[position]),
        "position": patching_result.position,
        "clean_token": vocabulary.token_name(patching_result.clean_token),
        "corrupted_token": vocabulary.token_name(patching_result.corrupted_token),
        "clean_logit_diff": json_number(patching_result.clean_logit_diff),
        "corrupted_logit_diff": json_number(patching_result.corrupted_logit_diff),
        "heads": [
            {**head_id(head), "recovered_fraction": json_number(fraction)}
            for head, fraction in patching_result.recovered_fraction.items()
        ],
    }


def lens(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the logit lens of a teacher-forced pass; layer 0 is the embedding."""
    batch = subject.encode_text(source_text(request))
    probabilities_LTV = logit_lens(subject.transformer, batch)[:, 0].softmax(-1)
    best = probabilities_LTV.topk(min(TOP_K, probabilities_LTV.shape[-1]))
    target_LT = probabilities_LTV.gather(
        -1, batch.labels_BT[0].expand(len(probabilities_LTV), -1)[..., None]
    )[..., 0]
    layers = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return {
        "layers": ["embedding", *(f"layer {i}" for i in range(1, len(probabilities_LTV)))],
        "decoder_input": subject.token_names(batch.decoder_input_BT[0].tolist()),
        "labels": subject.token_names(batch.labels_BT[0].tolist()),
        "vocabulary": subject.token_names(list(range(probabilities_LTV.shape[-1]))),
        "candidates": [
            [
                list(zip(subject.token_names(tokens), map(json_number, values), strict=True))
                for tokens, values in zip(*layer, strict=True)
            ]
            for layer in layers
        ],
        "target_probability": [[json_number(p) for p in row] for row in target_LT.tolist()],
        **answer_fields(subject, batch, subject.generated_tokens(batch)),
    }


def logit_attribution(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the direct logit attribution of `token` at an output position.

    The default `token` is the target. With `baseline_token`, it is that of the logit difference;
    its default is the most likely other token, and "" is none.
    """
    batch = subject.encode_text(source_text(request))
    names = subject.token_names(list(range(subject.transformer.config.target_vocab_size)))
    labels = batch.labels_BT[0].tolist()
    position = int_field(request, "position", 0, len(labels) - 1)
    with torch.no_grad():
        logits_V = subject.transformer(batch.source_BS, batch.decoder_input_BT)[0, position]
    token = token_id_field(request, "token", names, labels[position])
    runner_up = next(
        other for other in logits_V.topk(min(2, len(names))).indices.tolist() if other != token
    )
    baseline = (
        None
        if request.get("baseline_token") == ""
        else token_id_field(request, "baseline_token", names, runner_up)
    )
    if baseline == token:
        raise InspectionError(
            f"token and baseline_token are both {names[token]}; compare with another token"
        )
    contributions = direct_logit_attribution(subject.transformer, batch, position, token, baseline)
    return {
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
    }


def token_id_field(request: dict[str, Any], name: str, names: list[str], default: int) -> int:
    """Return the id of a token that the request names; `default` is the default."""
    value = request.get(name)
    if value is None:
        return default
    if value not in names:
        raise InspectionError(f"{name} is {str(value)[:20]!r}; choose one of {' '.join(names)}")
    return names.index(value)


VIEWS = {"patch": activation_patching, "lens": lens, "contributions": logit_attribution}
