"""Attention weights of a pretrained model on a prompt.

Shapes: L layers, H heads, Q queries, M memory, B batch.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from playground.common import messages
from playground.errors import UserError
from playground.inspection.attention_sinks import SINK_REASON, is_sink
from playground.inspection.views.attention_maps import pack_uint16
from playground.jobs.progress import ProgressReporter

from ..loading.model_files import ResolvedModel, kind_of, read_config
from ..loading.pipelines import PIPELINE_BY_KIND, check_kind, load_tokenizer, open_pipeline
from ..loading.resolver import resolve
from ..requests import JobRequest, ModelName, Text

# tokens of a prompt; 12 x 12 heads of 64 x 64 weights take 1.2 MB of JSON
MAX_TOKENS = 64
DEFAULT_PROMPT = "The cat sat on the mat"
MAX_SUM_ERROR = 1e-3  # of a row of weights


class AttentionRequest(JobRequest):
    """A request for the attention of a model on a prompt."""

    model: ModelName = ""
    text: Text = DEFAULT_PROMPT


def attention(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Return all attention weights on a prompt.

    `request`: see AttentionRequest. `weights` holds LHQM thousandths, packed as in Inspect.
    """
    parsed = AttentionRequest.parse(request)
    text = parsed.text
    resolved, kind, model, tokenizer = load_for_inspection(parsed.model, progress)
    coded = tokenizer(text, truncation=True, max_length=MAX_TOKENS, return_offsets_mapping=True)
    spans, ids = [tuple(span) for span in coded["offset_mapping"]], coded["input_ids"]
    if not ids:
        raise UserError(messages.NO_TOKENS)
    progress.message(f"Running the model on {len(ids)} tokens")
    weights_LHQM, mask_QM = forward(model, ids)
    layers, heads = weights_LHQM.shape[:2]
    total = len(tokenizer(text, verbose=False)["input_ids"])
    notes = [
        f"The text has {total} tokens; the first {MAX_TOKENS} of them are shown."
        if total > len(ids)
        else "",
        sink_note(weights_LHQM, mask_QM),
    ]
    return {
        "model": resolved.name,
        "text": text,
        "kind": kind,
        "tokens": tokenizer.convert_ids_to_tokens(ids),
        "spans": [list(span) for span in spans],
        "layers": layers,
        "heads": heads,
        # fewer than heads if some share their keys and values (Ainslie et al. 2023)
        "kv_heads": getattr(model.config, "num_key_value_heads", None) or heads,
        "weights": pack_uint16(weights_LHQM),
        "mask": mask_QM.int().tolist(),
        "notes": [note for note in notes if note],
    }


def first_token_shares(weights_LHQM: Tensor) -> Tensor:
    """Return the mean attention of the later tokens on the first one, by layer and head (LH)."""
    return weights_LHQM[:, :, 1:, 0].mean(-1)


def uniform_share(mask_QM: Tensor) -> float:
    """Return that share for equal weights."""
    return float((1 / mask_QM[1:].sum(1)).mean())


def sink_note(weights_LHQM: Tensor, mask_QM: Tensor) -> str:
    """Describe the layers whose heads attend mostly to the first token; empty if there are none."""
    if len(mask_QM) < 2:
        return ""
    share_L = first_token_shares(weights_LHQM).mean(1)
    uniform = uniform_share(mask_QM)
    is_sink_L = is_sink(share_L, uniform)
    if not is_sink_L.any():
        return ""
    return (
        f"Attention sink: in {int(is_sink_L.sum())} of {len(share_L)} layers, "
        f"{float(share_L[is_sink_L].mean()):.0%} of the attention is on the first token; equal "
        f"weights would put {uniform:.0%} there. {SINK_REASON}"
    )


def load_for_inspection(
    name: str, progress: ProgressReporter
) -> tuple[ResolvedModel, str, Any, Any]:
    """Load a model with a single stack; loaded ones are shared.

    Returns its files, its kind ("causal", "masked", or empty for an encoder without either head),
    the model without its task head, with eager attention, and its fast tokenizer, which returns
    the offsets of the tokens.
    """
    resolved = resolve(name, progress, check_is_one_stack)
    config = read_config(resolved.folder, resolved.name)
    built = config.get("architectures")
    with_head = isinstance(built, list) and any(
        str(each).endswith(("LMHeadModel", "ForCausalLM", "ForMaskedLM")) for each in built
    )
    kind = kind_of(config)
    task = PIPELINE_BY_KIND.get(kind if with_head else "", "feature-extraction")
    pipe = open_pipeline(task, resolved, progress)
    return resolved, kind, pipe.model.base_model, pipe.tokenizer


def check_is_one_stack(name: str, folder: Path) -> None:
    """Check that a model has no second stack, and a tokenizer that returns the offsets."""
    check_kind("feature-extraction", name, folder)
    if not getattr(load_tokenizer(name, folder), "is_fast", False):
        raise UserError(
            f"{name} has a tokenizer that returns no token offsets; choose another model"
        )


@torch.no_grad()
def forward(model: Any, ids: list[int]) -> tuple[Tensor, Tensor]:
    """Return the attention weights (LHQM) of one text, and which keys a query may attend to (QM).

    Masked weights are zero in every head. Raises UserError if the text is too long, or if the model
    returns no attention weights that sum to one (GPT-OSS adds a sink to each row).
    """
    max_tokens = getattr(model.config, "max_position_embeddings", None) or len(ids)
    if len(ids) > max_tokens:
        raise UserError(
            f"the text has {len(ids):,} tokens and this model accepts at most {max_tokens:,}; "
            "shorten the text"
        )
    ids_BQ = torch.tensor([ids], device=model.device)
    output = model(input_ids=ids_BQ, attention_mask=torch.ones_like(ids_BQ), output_attentions=True)
    weights = getattr(output, "attentions", None)
    if not weights:
        raise UserError(
            f"{type(model).__name__} does not return its attention; choose a model such as BERT "
            "or GPT-2"
        )
    weights_LHQM = torch.cat([each.float() for each in weights]).cpu()
    if (weights_LHQM.sum(-1) - 1).abs().max() > MAX_SUM_ERROR:
        raise UserError(
            f"the attention weights of {type(model).__name__} do not sum to one; choose a model "
            "such as BERT or GPT-2"
        )
    return weights_LHQM, (weights_LHQM > 0).flatten(0, 1).any(0)
