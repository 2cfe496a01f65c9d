"""Load pipelines of transformers, and cache them while there is memory."""

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from playground.common.format import format_bytes
from playground.common.platform import free_memory, usable_cores
from playground.errors import UserError, is_out_of_memory
from playground.jobs.progress import JobCancelled, ProgressReporter, to_user_error

from .model_files import (
    CAUSAL,
    MASKED,
    MAX_LAYERS,
    ResolvedModel,
    kind_of,
    memory_needed,
    read_config,
)

log = logging.getLogger(__name__)
AUTO_CLASS_BY_TASK = {  # pipeline: the class of transformers that loads its model
    "text-generation": "AutoModelForCausalLM",
    "fill-mask": "AutoModelForMaskedLM",
    "feature-extraction": "AutoModel",
    "text2text-generation": "AutoModelForSeq2SeqLM",
}
MEMORY_SHARE = 0.9  # of the free memory that models may take
PIPELINE_BY_KIND = {"causal": "text-generation", "masked": "fill-mask"}
ENCODER_DECODER_TYPES = ("t5", "mt5", "bart", "mbart", "marian", "pegasus", "blenderbot-small")


@dataclass(frozen=True)
class Seq2SeqPipeline:
    """An encoder-decoder of transformers with its tokenizer."""

    model: Any
    tokenizer: Any


_lock = threading.RLock()  # one load at a time
# by pipeline and folder; the least recently used one first
_loaded: OrderedDict[tuple[str, str], Any] = OrderedDict()


def open_pipeline(task: str, resolved: ResolvedModel, progress: ProgressReporter) -> Any:
    """Load the pipeline of a model once, and cache it while there is memory.

    Attention is the eager implementation, which returns its weights. Numbers are float32. The
    model is in evaluation mode.
    """
    import torch

    torch.set_num_threads(max(1, usable_cores() // 2))  # the other half is for training
    key = (task, resolved.folder)
    while not _lock.acquire(timeout=0.1):
        progress.raise_if_cancelled()
    try:
        if key not in _loaded:
            needed = memory_needed(resolved.parameters)
            ensure_memory(needed, f"{resolved.name} needs about {format_bytes(needed)}")
            progress.message(f"Loading {resolved.name}")
            try:
                _loaded[key] = _load(task, resolved)
            except (UserError, JobCancelled):
                raise
            except Exception as error:
                raise _load_error(error, resolved.name, task) from error
        _loaded.move_to_end(key)
        return _loaded[key]
    finally:
        _lock.release()


def check_kind(task: str, name: str, folder: Path) -> None:
    """Check, before its weights, that a model is of the kind that a task needs."""
    config, kind = load_config(task, name, folder), kind_of(read_config(folder, name))
    if task == "text2text-generation":
        if config.model_type not in ENCODER_DECODER_TYPES:
            raise UserError(
                f"{name} is not an encoder-decoder; choose a model such as google-t5/t5-small"
            )
    elif config.is_encoder_decoder:
        raise UserError(
            f"{name} has an encoder and a decoder; name an encoder such as BERT or a decoder such "
            "as GPT-2"
        )
    elif (task, kind) == ("fill-mask", CAUSAL):
        raise UserError(
            f"{name} is a causal language model: it continues a text and has no mask; choose a "
            "masked language model, such as bert-base-uncased, or generate text with it"
        )
    elif (task, kind) == ("text-generation", MASKED):
        raise UserError(
            f"{name} is a masked language model: it predicts masked tokens and continues no text; "
            "choose a causal language model, such as gpt2, or fill masks with it"
        )


def load_and_detect_kind(resolved: ResolvedModel, progress: ProgressReporter) -> tuple[Any, str]:
    """Load a model as a pipeline, and return whether it is causal or masked.

    If its config does not determine the kind, the class that loads decides.
    """
    detected_kind = kind_of(read_config(resolved.folder, resolved.name))
    if detected_kind:
        return open_pipeline(PIPELINE_BY_KIND[detected_kind], resolved, progress), detected_kind
    for kind, task in PIPELINE_BY_KIND.items():
        try:
            return open_pipeline(task, resolved, progress), kind
        except UserError as error:
            if error.retryable:
                raise
    raise UserError(
        f"{resolved.name} is neither a causal nor a masked language model, so it cannot be "
        "evaluated; choose a model such as gpt2"
    )


def loaded_folders() -> set[Path]:
    """Return the folders of the models in memory."""
    with _lock:
        return {Path(folder) for _, folder in _loaded}


def unload(folder: str = "") -> None:
    """Unload the model of a folder, or all models, to free their memory."""
    with _lock:
        for key in [key for key in _loaded if not folder or key[1] == folder]:
            _unload(key)


def _unload(key: tuple[str, str]) -> None:
    import gc

    del _loaded[key]
    gc.collect()


def ensure_memory(needed: int, purpose: str, remedy: str = "choose a smaller model") -> None:
    """Unload models until `needed` bytes are free, or raise UserError with purpose and remedy."""
    while needed > MEMORY_SHARE * free_memory() and _loaded:
        with _lock:
            for key in list(_loaded)[:1]:
                _unload(key)
    if needed > MEMORY_SHARE * free_memory():
        raise UserError(
            f"{purpose} and {format_bytes(free_memory())} are free; {remedy}, or end a run",
            retryable=True,
        )


def device() -> str:
    """Return the device of the pretrained models."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _load(task: str, resolved: ResolvedModel) -> Any:
    """Load a pipeline."""
    import torch
    import transformers
    from transformers import pipeline

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = load_config(task, resolved.name, Path(resolved.folder))
    auto = getattr(transformers, AUTO_CLASS_BY_TASK[task])
    _validate_config(auto, config, resolved)
    model, loading_info = auto.from_pretrained(
        resolved.folder,
        config=config,
        dtype=torch.float32,
        use_safetensors=True,
        trust_remote_code=False,
        attn_implementation="eager",
        output_loading_info=True,
    )
    missing = sorted(loading_info["missing_keys"])
    if missing and task != "feature-extraction":  # every other one needs its head
        raise UserError(
            f"{resolved.name} lacks {missing[0]}{' and others' if len(missing) > 1 else ''}, which "
            f"{task} needs, so its predictions would be random; choose a model that was trained "
            "for it"
        )
    if not all(bool(torch.isfinite(weight).all()) for weight in model.parameters()):
        raise UserError(
            f"{resolved.name} has weights that are not finite; download it again, or choose "
            "another model"
        )
    tokenizer = load_tokenizer(resolved.name, Path(resolved.folder))
    if task == "text2text-generation":  # transformers 5 has no pipeline for it
        return Seq2SeqPipeline(model.eval().to(device()), tokenizer)
    return pipeline(  # type: ignore[call-overload]
        task, model=model.eval(), tokenizer=tokenizer, device=device()
    )


def load_config(task: str, name: str, folder: Path) -> Any:
    """Load the config of a model, which needs no weights. Raises UserError."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        raise _load_error(error, name, task) from error
    if config.model_type == "marian" and find_spec("sentencepiece") is None:
        raise UserError(
            f"{name} needs the Python package sentencepiece for its tokenizer; run pip install "
            "sentencepiece and restart the playground, or choose another model, such as "
            "google-t5/t5-small"
        )
    return config


def load_tokenizer(name: str, folder: Path) -> Any:
    """Load the tokenizer of a model. Raises UserError if it cannot be read."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        raise _load_error(error, name, "tokenization") from error


def _validate_config(auto: Any, config: Any, resolved: ResolvedModel) -> None:
    """Reject sizes that contradict the weights, for which transformers would allocate memory."""
    import torch

    fields = (getattr(config, name, 0) for name in ("num_hidden_layers", "n_layer", "num_layers"))
    layers = [field for field in fields if isinstance(field, int)]
    if any(not 0 <= n <= MAX_LAYERS for n in layers):
        raise UserError(
            f"{resolved.name}: its config.json has {max(layers, key=abs)} layers; choose another "
            "model"
        )
    with torch.device("meta"):
        n_parameters = sum(
            each.numel() for each in auto.from_config(config, trust_remote_code=False).parameters()
        )
    if n_parameters > 1.5 * resolved.parameters + 10_000_000:
        raise UserError(
            f"{resolved.name}: its config.json describes {n_parameters:,} parameters and its "
            f"weights contain {resolved.parameters:,}; choose another model"
        )


def _load_error(error: Exception, name: str, task: str) -> UserError:
    if is_out_of_memory(error):
        return to_user_error(error, name)
    log.warning("The model %r cannot be loaded for %s", name, task, exc_info=error)
    first_line = str(error).strip().split("\n")[0][:160]
    if isinstance(error, ImportError):
        return UserError(
            f"{name} needs a Python package that is not installed ({first_line}); install it and "
            "restart the playground, or choose another model"
        )
    if "Unrecognized configuration class" in first_line:
        return UserError(f"{name} is no model for {task}; choose another model")
    return UserError(
        f"{name} cannot be loaded for {task} ({type(error).__name__}: {first_line}); choose "
        "another model"
    )
