"""All inspection results of one model and one sequence as plain data, for figures and files.

Every value can be serialized as JSON. Tables are lists of rows with the same keys.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from playground.inspection.ablation import METHODS, NUM_SEQUENCES, Ablation
from playground.inspection.attention_recording import AttentionRecording, record_free_running
from playground.inspection.embeddings import position_vectors, wavelength
from playground.inspection.generation_steps import recorded_steps
from playground.inspection.head_patterns import score_heads, scores_over_training
from playground.inspection.hooks import ATTENTION_KINDS, Component, all_heads
from playground.inspection.inspected_model import Example, InspectedModel
from playground.models.embeddings import sinusoidal_positions
from playground.tasks.task import Batch

from .ablation import ablation_table
from .attribution import contribution_table, lens_table
from .common import DECIMALS, attention_labels, rounded_list
from .head_scores import head_table

# Names of a layer's weights in the attention dictionary of a Keras tutorial; encoders have none.
LAYER_NAMES = {
    "decoder": "decoder_layer{}_block1_self_att",
    "cross": "decoder_layer{}_block2_decenc_att",
    "encoder": "encoder_layer{}_self_att",
}
RecordedGeneration = tuple[AttentionRecording, torch.Tensor]  # with the generated tokens


def record_generation(subject: InspectedModel, batch: Batch) -> RecordedGeneration:
    """Generate the model's output for one sequence, and record its attention weights."""
    return record_free_running(subject.transformer, batch.source_BS, subject.max_new_tokens(batch))


def attention(
    subject: InspectedModel, batch: Batch, recorded: RecordedGeneration | None = None
) -> dict[str, dict[str, Any]]:
    """Return the attention weights of free-running decoding for each type of attention.

    `weights` is [layer][head][row][column] and `possible` is [row][column]; `rows` and `columns`
    are names. The rows of cross-attention are the tokens that the queries generate. Rows and
    columns of decoder self-attention are the decoder input. `layer_names` has the name of each
    layer's weights in a Keras tutorial. `recorded` may be the result of `record_generation`.
    """
    recording, generated_BT = recorded or record_generation(subject, batch)
    generated = subject.token_names(generated_BT[0].tolist())
    tables = {}
    for kind in ATTENTION_KINDS:
        rows, columns = attention_labels(subject, recording, kind, generated)
        tables[kind] = {
            "kind": kind,
            "title": Component(kind).name,
            "rows": rows,
            "columns": columns,
            "layer_names": [
                LAYER_NAMES[kind].format(layer + 1)
                for layer in range(len(recording.attention_weights[kind]))
            ],
            "weights": rounded_list(recording.attention_weights[kind][:, 0]),
            "possible": recording.attn_mask[kind][0].tolist(),
        }
    return tables


def single_head(
    subject: InspectedModel,
    batch: Batch,
    part: Component,
    recorded: RecordedGeneration | None = None,
) -> dict[str, Any]:
    """Return one head of `attention`: `weights` is [row][column]."""
    whole = attention(subject, batch, recorded)[part.kind]
    return whole | {
        "title": part.name,
        "weights": whole["weights"][part.layer or 0][part.head or 0],
    }


def cross_attention_by_step(
    subject: InspectedModel, batch: Example, recorded: RecordedGeneration | None = None
) -> dict[str, Any]:
    """Return each decoding step with its cross-attention weights.

    A step has the prefix (`prefix`), the next `token` and its probability, the five most likely
    tokens, and `weights` [head][column] with the heads of all layers in order.
    """
    names = subject.token_names
    steps = [
        {
            "prefix": names(step.prefix),
            "token": names([step.token])[0],
            "target": names([step.target])[0]
            if batch.has_target and step.target is not None
            else None,
            "probability": round(step.probability, DECIMALS),
            "candidates": [[names([token])[0], round(p, DECIMALS)] for token, p in step.top_tokens],
            "weights": rounded_list(step.cross_LHS.flatten(0, 1)),
        }
        for step in recorded_steps(*(recorded or record_generation(subject, batch)), batch)
    ]
    heads = all_heads(subject.transformer.config, "cross")
    return {
        "columns": names(batch.source_BS[0].tolist()),
        "heads": [part.name.removeprefix("cross-attention, ") for part in heads],
        "steps": steps,
    }


def positions(subject: InspectedModel) -> dict[str, Any] | None:
    """Return the position vectors of both sides, [position][dimension].

    They cover the lengths of the task's sequences; None for a model that adds no position vectors.
    Source vectors that are counted from the end are in that order, EOS first.
    """
    n_positions = subject.config.task.max_length + 1
    source_PD, target_PD = position_vectors(subject, "source"), position_vectors(subject, "target")
    if source_PD is None or target_PD is None:
        return None
    return {
        "kind": subject.transformer.config.position_type,
        "source": rounded_list(source_PD[:n_positions]),
        "target": rounded_list(target_PD[: subject.max_target_tokens]),
    }


def sinusoidal_table(
    n_positions: int = 100, d_model: int = 64, dimensions: Sequence[int] = (0, 14, 28, 42)
) -> dict[str, Any]:
    """Return the paper's sinusoidal position vectors, and the wavelengths of some dimensions.

    `matrix` is [position][dimension].
    """
    waves = [
        {"dimension": each, "wavelength": round(wavelength(each, d_model), DECIMALS)}
        for each in dimensions
    ]
    return {
        "d_model": d_model,
        "matrix": rounded_list(sinusoidal_positions(n_positions, d_model)),
        "waves": waves,
    }


def build_report(
    subject: InspectedModel,
    text: str,
    n: int = NUM_SEQUENCES,
    history: Mapping[int, Path] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return all results by the name of their figure.

    n         held-out sequences for the ablations
    history   the weights of earlier training steps, {step: file}
    progress  called with a message at each stage

    Raises:
        UnknownSymbolError, InspectionError: for an invalid sequence.
    """
    batch = subject.encode_text(text)
    progress("recording attention")
    recorded = record_generation(subject, batch)
    figures: dict[str, Any] = {
        f"{kind}-attention": data for kind, data in attention(subject, batch, recorded).items()
    }
    figures["cross-attention-by-step"] = cross_attention_by_step(subject, batch, recorded)
    figures["logit-lens"] = lens_table(subject, batch)
    if subject.transformer.config.norm_placement == "pre":
        figures["contributions"] = contribution_table(subject, batch)
    vectors = positions(subject)
    if vectors is not None:
        figures["positions"] = vectors
    figures["sine-waves"] = sinusoidal_table()
    progress("scoring heads")
    figures["head-scores"] = head_table(score_heads(subject))
    ablation = Ablation(subject, n)
    n_examples = len(ablation.batch.source_BS)
    progress(f"ablating single components, each on {n_examples:,} held-out sequences")
    single = {how: ablation.rank_components(how) for how in METHODS}
    figures["ablation"] = ablation_table(
        [effect for how in METHODS for effect in single[how]], n_examples
    )
    top_component = next(
        effect for effect in single["zero"] if effect.components[0].head is not None
    )
    figures["head"] = single_head(subject, batch, top_component.components[0], recorded)
    progress("ablating groups of components")
    figures["ablation-groups"] = ablation_table(
        (effect for how in METHODS for effect in ablation.rank_groups(how)), n_examples
    )
    progress("keeping single heads and groups of heads only")
    figures["keep-only"] = ablation_table(
        (effect for how in METHODS for effect in ablation.rank_keep_only(how)), n_examples
    )
    if history:
        progress(f"scoring heads at {len(history)} steps of the run")
        figures["heads-over-training"] = [
            {"step": step, **row}
            for step, scores in scores_over_training(subject.config, history).items()
            for row in head_table(scores)
        ]
    return figures
