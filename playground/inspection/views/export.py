"""Attention and ablations of one model and one sequence as plain data, for figures and files.

Every value can be serialized as JSON. Tables are lists of rows with the same keys.
"""

from collections.abc import Callable
from typing import Any

import torch

from playground.inspection.ablation import METHODS, NUM_SEQUENCES, Ablation
from playground.inspection.attention_recording import AttentionRecording, record_free_running
from playground.inspection.hooks import ATTENTION_KINDS, Component
from playground.inspection.inspected_model import InspectedModel
from playground.tasks.task import Batch

from .ablation import ablation_table
from .common import attention_labels, rounded_list

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


def build_report(
    subject: InspectedModel,
    text: str,
    n: int = NUM_SEQUENCES,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return all results by the name of their figure.

    n         held-out sequences for the ablations
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
    return figures
