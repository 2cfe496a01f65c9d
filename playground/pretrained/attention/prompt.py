"""Attention weights and attention scores of a pretrained model on a prompt.

Shapes: L layers, H heads, Q queries, M memory, B batch, K head size.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from playground.common import messages
from playground.errors import UserError
from playground.inspection.attention_sinks import SINK_REASON, is_sink
from playground.inspection.views.attention_maps import pack_uint16
from playground.jobs.progress import ProgressReporter

from ..loading.model_files import ResolvedModel, kind_of, read_config
from ..loading.pipelines import (
    PIPELINE_BY_KIND,
    check_kind,
    load_tokenizer,
    open_pipeline,
)
from ..loading.resolver import resolve
from ..requests import MAX_TEXT_LENGTH, JobRequest, ModelName, Text

# tokens of a prompt; 12 x 12 heads of 64 x 64 weights take 1.2 MB of JSON
MAX_TOKENS = 64
DEFAULT_PROMPT = "The cat sat on the mat"
ATTENTION_IMPLEMENTATION = "eager-with-scores"

Scores = list[tuple[Tensor, Tensor | None]]  # per layer: BHQM, and the mask that was added
_scores: ContextVar[Scores] = ContextVar("_scores")


@dataclass(frozen=True)
class InspectedModel:
    """A model loaded for inspection.

    model      the model of transformers without its task head, with eager attention
    tokenizer  its fast tokenizer, which returns the offsets of the tokens
    kind       "causal", "masked", or empty for an encoder without either head
    """

    resolved: ResolvedModel
    model: Any
    tokenizer: Any
    kind: str


@dataclass(frozen=True)
class AttentionOutputs:
    """The attention of one forward pass.

    weights_LHQM  attention weights: each query's sum to one
    scores_LHQM   queries times keys, scaled, before the mask and the softmax
    mask_QM       True where a query may attend to a key
    """

    weights_LHQM: Tensor
    scores_LHQM: Tensor
    mask_QM: Tensor


class AttentionRequest(JobRequest):
    """A request for the attention of a model on a prompt.

    Layer and head select the scores and count from one. The word may be absent from the text.
    """

    model: ModelName = ""
    text: Text = DEFAULT_PROMPT
    layer: int = Field(1, ge=1, le=1000)
    head: int = Field(1, ge=1, le=1000)
    word: str = Field("sat", max_length=MAX_TEXT_LENGTH)


def attention(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Return all attention weights on a prompt, one head's scores, and the tokens of a word.

    `request`: see AttentionRequest. `weights` holds LHQM thousandths, packed as
    in Inspect; `scores` are the QM numbers of the one head.
    """
    parsed = AttentionRequest.parse(request)
    text, layer, head = parsed.text, parsed.layer, parsed.head
    model = load_for_inspection(parsed.model, progress)
    coded = model.tokenizer(
        text, truncation=True, max_length=MAX_TOKENS, return_offsets_mapping=True
    )
    spans, ids = [tuple(span) for span in coded["offset_mapping"]], coded["input_ids"]
    if not ids:
        raise UserError(messages.NO_TOKENS)
    progress.message(f"Running the model on {len(ids)} tokens")
    outputs = forward(model.model, ids)
    layers, heads = outputs.weights_LHQM.shape[:2]
    if layer > layers or head > heads:
        raise UserError(
            f"layer {layer}, head {head} does not exist: {model.resolved.name} has {layers} "
            f"layers of {heads} heads"
        )
    total = len(model.tokenizer(text, verbose=False)["input_ids"])
    notes = [
        f"The text has {total} tokens; the first {MAX_TOKENS} of them are shown."
        if total > len(ids)
        else "",
        sink_note(outputs),
    ]
    return {
        "model": model.resolved.name,
        "text": text,
        "kind": model.kind,
        "tokens": model.tokenizer.convert_ids_to_tokens(ids),
        "spans": [list(span) for span in spans],
        "layers": layers,
        "heads": heads,
        # fewer than heads if some share their keys and values (Ainslie et al. 2023)
        "kv_heads": getattr(model.model.config, "num_key_value_heads", None) or heads,
        "weights": pack_uint16(outputs.weights_LHQM),
        "mask": outputs.mask_QM.int().tolist(),
        "layer": layer,
        "head": head,
        "scores": [
            [round(score, 6) for score in row]
            for row in outputs.scores_LHQM[layer - 1, head - 1].tolist()
        ],
        "word": parsed.word,
        "word_tokens": word_token_indices(parsed.word, text, spans)[:1],
        "notes": [note for note in notes if note],
    }


def first_token_shares(weights_LHQM: Tensor) -> Tensor:
    """Return the mean attention of the later tokens on the first one, by layer and head (LH)."""
    return weights_LHQM[:, :, 1:, 0].mean(-1)


def uniform_share(mask_QM: Tensor) -> float:
    """Return that share for equal weights."""
    return float((1 / mask_QM[1:].sum(1)).mean())


def sink_note(outputs: AttentionOutputs) -> str:
    """Describe the layers whose heads attend mostly to the first token; empty if there are none."""
    if len(outputs.mask_QM) < 2:
        return ""
    share_L = first_token_shares(outputs.weights_LHQM).mean(1)
    uniform = uniform_share(outputs.mask_QM)
    is_sink_L = is_sink(share_L, uniform)
    if not is_sink_L.any():
        return ""
    return (
        f"Attention sink: in {int(is_sink_L.sum())} of {len(share_L)} layers, "
        f"{float(share_L[is_sink_L].mean()):.0%} of the attention is on the first token; equal "
        f"weights would put {uniform:.0%} there. {SINK_REASON}"
    )


def load_for_inspection(name: Any, progress: ProgressReporter) -> InspectedModel:
    """Load a model of transformers with a single stack for inspection; loaded ones are shared."""
    resolved = resolve(name, progress, check_is_one_stack)
    config = read_config(resolved.folder, resolved.name)
    built = config.get("architectures")
    with_head = isinstance(built, list) and any(
        str(each).endswith(("LMHeadModel", "ForCausalLM", "ForMaskedLM")) for each in built
    )
    kind = kind_of(config)
    task = PIPELINE_BY_KIND.get(kind if with_head else "", "feature-extraction")
    pipe = open_pipeline(task, resolved, progress)
    return InspectedModel(resolved, pipe.model.base_model, pipe.tokenizer, kind)


def check_is_one_stack(name: str, folder: Path) -> None:
    """Check that a model has no second stack, and a tokenizer that returns the offsets."""
    check_kind("feature-extraction", name, folder)
    if not getattr(load_tokenizer(name, folder), "is_fast", False):
        raise UserError(
            f"{name} has a tokenizer that returns no token offsets; choose another model"
        )


@torch.no_grad()
def forward(model: Any, ids: list[int]) -> AttentionOutputs:
    """Run the model on one text. Raises UserError if it is too long, or there is no attention."""
    max_tokens = getattr(model.config, "max_position_embeddings", None) or len(ids)
    if len(ids) > max_tokens:
        raise UserError(
            f"the text has {len(ids):,} tokens and this model accepts at most {max_tokens:,}; "
            "shorten the text"
        )
    ids_BQ = torch.tensor([ids], device=model.device)
    with recording_scores(model) as scores:
        output = model(
            input_ids=ids_BQ, attention_mask=torch.ones_like(ids_BQ), output_attentions=True
        )
    weights = getattr(output, "attentions", None)
    if not weights or not scores or len(weights) != len(scores):
        raise UserError(
            f"{type(model).__name__} does not return its attention; choose a model such as BERT "
            "or GPT-2"
        )
    weights_LHQM = torch.cat([each.float() for each in weights]).cpu()
    scores_LHQM = torch.cat([each.float() for each, _ in scores]).cpu()
    possible_QM = torch.zeros(scores_LHQM.shape[2:], dtype=torch.bool)
    # masks may differ between layers; a position is possible if any layer may attend to it
    for each, mask in scores:
        possible_QM |= (
            torch.ones_like(possible_QM)
            if mask is None
            else (mask > torch.finfo(each.dtype).min / 2)[0, 0].cpu()
        )
    return AttentionOutputs(weights_LHQM, scores_LHQM, possible_QM)


@contextmanager
def recording_scores(model: Any) -> Iterator[Scores]:
    """Record the scores and the mask of every attention call of this model in this thread."""
    before, recorded = model.config._attn_implementation, Scores()
    token = _scores.set(recorded)
    try:
        model.set_attn_implementation(ATTENTION_IMPLEMENTATION)
        if model.config._attn_implementation != ATTENTION_IMPLEMENTATION:
            raise UserError(
                f"{type(model).__name__} does not support recording of its attention; choose a "
                "model such as BERT or GPT-2"
            )
        yield recorded
    finally:
        model.set_attn_implementation(before)
        _scores.reset(token)


def eager_attention_with_scores(
    module: Any,
    query_BHQK: Tensor,
    key_BHMK: Tensor,
    value_BHMK: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Compute attention as in Vaswani et al. 2017, section 3.2.1, and record the scores.

    Shared key and value heads are repeated. Raises UserError if the model changes its scores
    (Gemma 2 caps them, GPT-OSS adds sinks), because the recorded ones would not be those.
    """
    changes = [
        name for name, value in (("softcap", softcap), ("s_aux", s_aux)) if value is not None
    ]
    if changes:
        raise UserError(
            f"{type(module).__name__} changes its scores before the softmax ({changes[0]}); "
            "choose a model such as BERT or GPT-2"
        )
    shared = query_BHQK.shape[1] // key_BHMK.shape[1]
    key_BHMK = key_BHMK.repeat_interleave(shared, 1)
    value_BHMK = value_BHMK.repeat_interleave(shared, 1)
    scale = query_BHQK.shape[-1] ** -0.5 if scaling is None else scaling
    scores_BHQM = query_BHQK @ key_BHMK.transpose(-1, -2) * scale
    _scores.get().append((scores_BHQM, attention_mask))
    masked_BHQM = scores_BHQM if attention_mask is None else scores_BHQM + attention_mask
    weights_BHQM = masked_BHQM.softmax(-1, dtype=torch.float32).to(value_BHMK.dtype)
    return (weights_BHQM @ value_BHMK).transpose(1, 2).contiguous(), weights_BHQM


AttentionInterface.register(ATTENTION_IMPLEMENTATION, eager_attention_with_scores)
AttentionMaskInterface.register(ATTENTION_IMPLEMENTATION, eager_mask)


def word_token_indices(word: str, text: str, spans: list[tuple[int, int]]) -> list[list[int]]:
    """Return the tokens of every occurrence of a whole word, in upper or lower case.

    A token that includes the preceding space belongs to the word.
    """
    if not word.strip():
        return []
    matches = re.finditer(rf"(?<!\w){re.escape(word.strip())}(?!\w)", text, re.IGNORECASE)
    occurrences = [
        [i for i, (begin, end) in enumerate(spans) if begin < match.end() and end > match.start()]
        for match in matches
    ]
    return [indices for indices in occurrences if indices]
