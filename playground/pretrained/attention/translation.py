"""Translation or summary by a pretrained encoder-decoder, with its attention weights.

T5 (Raffel et al. 2020), BART (Lewis et al. 2020) and Marian models have the architecture of
Vaswani et al. 2017, as the model from scratch has. Their cross-attention is measured in the same
way.

Shapes: L layers, H heads, Q queries, M memory, T target, V vocabulary.
"""

from functools import partial
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from transformers import StoppingCriteria

from playground.common import messages
from playground.errors import UserError
from playground.inspection.cross_attention_alignment import diagonal, score_alignment
from playground.inspection.views.attention_maps import pack_uint16
from playground.jobs.progress import ProgressReporter

from ..loading.model_files import read_config
from ..loading.pipelines import Seq2SeqPipeline, check_kind, open_pipeline
from ..loading.resolver import resolve
from ..requests import JobRequest, ModelName, Text
from ..tokens import generated_token_info, limit_tokens, token_info, tokenize

MAX_SOURCE_TOKENS = 64
MAX_NEW_TOKENS = 64
N_CANDIDATES = 5
DEFAULT_MODEL = "google-t5/t5-small"
# T5 was trained on several tasks, and the text names the task (Raffel et al. 2020, section 2.4)
DEFAULT_TEXT = "translate English to German: The cat sat on the mat."


class TranslationRequest(JobRequest):
    """A request for the output of an encoder-decoder on a text."""

    model: ModelName = DEFAULT_MODEL
    text: Text = DEFAULT_TEXT
    new_tokens: int = Field(MAX_NEW_TOKENS, ge=1, le=MAX_NEW_TOKENS)


class CancelOnRequest(StoppingCriteria):
    """Report each generated token, and stop the generation when the job is cancelled."""

    def __init__(self, progress: ProgressReporter, maximum: int) -> None:
        self.progress, self.maximum = progress, maximum

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        self.progress.raise_if_cancelled()
        self.progress.progress(input_ids.shape[1] - 1, self.maximum, "tokens")
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def translate(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Generate the output of an encoder-decoder by greedy decoding.

    `request`: see TranslationRequest. The result has the tokens of the source, the generated
    tokens with probability and candidates, and `attention`: for "cross", "encoder" and "decoder"
    the number of layers and heads, and LHQM thousandths, packed as in Inspect. The queries of
    "cross" and "decoder" predict the generated tokens. `alignment` is the result of
    `score_alignment` with the diagonal, which begins after the `prefix_tokens` of a task prefix.
    """
    parsed = TranslationRequest.parse(request)
    task = "text2text-generation"
    resolved = resolve(parsed.model, progress, partial(check_kind, task))
    config = read_config(resolved.folder, resolved.name)
    loaded = open_pipeline(task, resolved, progress)
    source = tokenize(loaded, parsed.text)
    limit_tokens(source, MAX_SOURCE_TOKENS)
    progress.message(messages.generation_progress(parsed.new_tokens))
    target, generated = generate(loaded, source, parsed.new_tokens, progress)
    attention = record_attention(loaded.model, source, target)
    cross_LHQM, start = attention["cross"], count_prefix_tokens(loaded, config, parsed.text)
    aligned_Q = diagonal(cross_LHQM.shape[-2], cross_LHQM.shape[-1], start)
    has_ended = generated[-1]["id"] in loaded.tokenizer.all_special_ids
    return {
        "model": resolved.name,
        "parameters": resolved.parameters,
        "text": parsed.text,
        "source": [token_info(loaded, token) for token in source],
        "start": token_info(loaded, target[0]),
        "generated": generated,
        "output": loaded.tokenizer.decode(target, skip_special_tokens=True),
        "attention": {
            kind: {
                "layers": weights_LHQM.shape[0],
                "heads": weights_LHQM.shape[1],
                "weights": pack_uint16(weights_LHQM),
            }
            for kind, weights_LHQM in attention.items()
        },
        "prefix_tokens": start,
        "alignment": score_alignment(cross_LHQM, aligned_Q, start),
        "notes": []
        if has_ended
        else [f"The output stops at the limit of {parsed.new_tokens} tokens."],
    }


def count_prefix_tokens(loaded: Seq2SeqPipeline, config: dict[str, Any], text: str) -> int:
    """Return the number of tokens of the task prefix of a text, one that config.json lists."""
    tasks = config.get("task_specific_params")
    for task in tasks.values() if isinstance(tasks, dict) else ():
        prefix = task.get("prefix") if isinstance(task, dict) else None
        if isinstance(prefix, str) and prefix.strip() and text.startswith(prefix):
            tokens = loaded.tokenizer(prefix.strip(), add_special_tokens=False)["input_ids"]
            return len(tokens)
    return 0


@torch.no_grad()
def generate(
    loaded: Seq2SeqPipeline, source: list[int], new_tokens: int, progress: ProgressReporter
) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the start token with the generated tokens, and a row for each generated token.

    Probabilities are those of the model. Rules of its generation config, such as a forced first
    token, may choose another token than the most probable one.
    """
    ids_BM = torch.tensor([source], device=loaded.model.device)
    output = loaded.model.generate(
        input_ids=ids_BM,
        attention_mask=torch.ones_like(ids_BM),
        num_beams=1,
        do_sample=False,
        max_length=None,
        max_new_tokens=new_tokens,
        stopping_criteria=[CancelOnRequest(progress, new_tokens)],
        return_dict_in_generate=True,
        output_logits=True,
    )
    target = output.sequences[0].tolist()
    rows = []
    for token, logits_BV in zip(target[1:], output.logits, strict=True):
        probabilities_V = logits_BV[0].float().softmax(-1)
        rows.append(generated_token_info(loaded, token, probabilities_V, N_CANDIDATES))
    return target, rows


@torch.no_grad()
def record_attention(model: Any, source: list[int], target: list[int]) -> dict[str, Tensor]:
    """Return the LHQM attention weights of a teacher-forced forward pass, by kind.

    The queries of "cross" and "decoder" are the target tokens without the last one.
    """
    ids_BM = torch.tensor([source], device=model.device)
    output = model(
        input_ids=ids_BM,
        attention_mask=torch.ones_like(ids_BM),
        decoder_input_ids=torch.tensor([target[:-1]], device=model.device),
        output_attentions=True,
        use_cache=False,
    )
    kinds = {
        "cross": output.cross_attentions,
        "encoder": output.encoder_attentions,
        "decoder": output.decoder_attentions,
    }
    if not all(kinds.values()):
        raise UserError(
            f"{type(model).__name__} does not return its attention weights; choose a model such "
            f"as {DEFAULT_MODEL}"
        )
    return {kind: torch.cat(list(layers)).float().cpu() for kind, layers in kinds.items()}
