"""Attention and ablations of one model and one sequence as plain data, for figures and files.

Every value can be serialized as JSON. Tables are lists of rows with the same keys.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from playground.inspection.ablation import METHODS, NUM_SEQUENCES, Ablation, AblationEffect
from playground.inspection.hooks import ATTENTION_KINDS, Component
from playground.inspection.inspected_model import Example, InspectedModel

from .fields import attention_labels

DECIMALS = 6  # of numbers in exported files
# Names of a layer's weights in the attention dictionary of a Keras tutorial; encoders have none.
LAYER_NAMES = {
    "decoder": "decoder_layer{}_block1_self_att",
    "cross": "decoder_layer{}_block2_decenc_att",
    "encoder": "encoder_layer{}_self_att",
}


def attention_tables(example: Example) -> dict[str, dict[str, Any]]:
    """Return the attention weights of free-running decoding for each type of attention.

    `weights` is [layer][head][row][column] and `possible` is [row][column]; `rows` and `columns`
    are names. The rows of cross-attention are the tokens that the queries generate. Rows and
    columns of decoder self-attention are the decoder input. `layer_names` has the name of each
    layer's weights in a Keras tutorial.
    """
    subject, (recording, generated_BT) = example.subject, example.free_running
    generated = subject.token_names(generated_BT[0].tolist())
    tables: dict[str, dict[str, Any]] = {}
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
            "weights": _rounded_list(recording.attention_weights[kind][:, 0]),
            "possible": recording.attn_mask[kind][0].tolist(),
        }
    return tables


def _rounded_list(tensor: Tensor) -> Any:
    """Convert a tensor to nested lists of numbers with six decimals."""
    return (tensor.double() * 10**DECIMALS).round().div(10**DECIMALS).tolist()


def head_table(tables: dict[str, dict[str, Any]], head: Component) -> dict[str, Any]:
    """Return one head of `attention_tables`: `weights` is [row][column]."""
    table = tables[head.kind]
    weights = table["weights"][head.layer or 0][head.head or 0]
    return table | {"title": head.name, "weights": weights}


def build_report(
    subject: InspectedModel,
    text: str,
    n: int = NUM_SEQUENCES,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return all results by the name of their figure, with ablations on `n` held-out sequences.

    `progress` is called with a message at each stage.
    """
    example = subject.encode_text(text)
    progress("recording attention")
    tables = attention_tables(example)
    figures: dict[str, Any] = {f"{kind}-attention": data for kind, data in tables.items()}
    ablation = Ablation(subject, n)
    n_examples = len(ablation.batch.source_BS)
    progress(f"ablating single components, each on {n_examples:,} held-out sequences")
    single = {how: ablation.rank("single", how) for how in METHODS}
    ranked = (effect.components[0] for effect in single["mean"])
    figures["head"] = head_table(tables, next(part for part in ranked if part.head is not None))
    progress("ablating groups of components")
    groups = {how: ablation.rank("groups", how) for how in METHODS}
    progress("keeping single heads and groups of heads only")
    keep = {how: ablation.rank("keep", how) for how in METHODS}
    for name, by_method in {
        "ablation": single,
        "ablation-groups": groups,
        "keep-only": keep,
    }.items():
        figures[name] = ablation_table(itertools.chain(*by_method.values()), n_examples)
    return figures


def ablation_table(effects: Iterable[AblationEffect], n: int) -> list[dict[str, Any]]:
    """Return one row per effect: the ablation, and both measures before and after it.

    `drop_low` and `drop_high` are the 95 % interval of the drop of the log-probability.
    """
    rows = []
    for effect in effects:
        low, high = effect.log_prob_drop_interval
        rows.append(
            {
                "name": effect.name,
                "method": effect.method,
                "keep_only": effect.keep_only,
                "n": n,
                "exact_match_before": effect.baseline.exact_match,
                "exact_match": effect.ablated.exact_match,
                "log_probability_before": round(effect.baseline.log_prob, DECIMALS),
                "log_probability": round(effect.ablated.log_prob, DECIMALS),
                "log_probability_drop": round(effect.log_prob_drop, DECIMALS),
                "drop_low": round(low, DECIMALS),
                "drop_high": round(high, DECIMALS),
            }
        )
    return rows
