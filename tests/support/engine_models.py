"""The golden models of the browser's engine: small models, and what PyTorch computes with them.

`python -m tests.support.engine_models` writes them to tests/data/engine, where tests/js reads them.
tests/unit/ui/test_engine_models.py computes them again.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from playground.architectures import load_architecture
from playground.checkpoints.tensors import serialize_tensors
from playground.inspection.contributions import record_contributions
from playground.inspection.hooks import Component, replace_outputs
from playground.tasks import EOS, PAD, SOS, load_task
from playground.tasks.specs import TASKS
from playground.tasks.task import Batch
from playground.training.run_config import RunConfig

FOLDER = Path(__file__).parents[1] / "data" / "engine"
TASK_FILE = FOLDER.with_name("engine_tasks.json")
DIGITS = 6  # of the stored numbers
METHODS = ("zero", "mean", "resample")
SMALL: dict[str, Any] = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 10, "max_length": 5}
MODELS: dict[str, dict[str, Any]] = {
    "default": {"n_layers": 2},
    "sinusoidal": {"position_type": "sinusoidal", "sinusoidal_scale": 0.7},
    "none": {"position_type": "none", "scale_embeddings": False},
    "from-end": {"position_type": "learned-from-end", "n_layers": 2},
    "rope": {"position_type": "rope", "d_model": 10, "d_ff": 7, "d_k": 6, "d_v": 3},
    "alibi": {"position_type": "alibi", "n_heads": 6, "d_k": 3, "d_v": 2},
    "t5": {"position_type": "t5", "max_length": 40, "n_heads": 1},
    "randomized": {"position_type": "randomized", "randomized_range": 17},
    "post-norm": {"norm_placement": "post", "n_layers": 2},
    "rms": {"norm_type": "rms", "activation": "gelu"},
    "swiglu": {"activation": "swiglu", "bias": False},
    "grouped": {"n_heads": 4, "n_kv_heads": 2, "n_layers": 2},
    "multi-query": {"n_heads": 3, "n_kv_heads": 1, "d_k": 2, "d_v": 5, "attention_bias": False},
    "tied": {"tie_output_embeddings": True, "output_bias": False},
    "shared": {"share_embeddings": True, "tie_output_embeddings": True},
    "decoder-only": {"architecture": "decoder-only", "n_layers": 2},
    "decoder-only-rope": {"architecture": "decoder-only", "position_type": "rope"},
    "decoder-only-t5": {"architecture": "decoder-only", "position_type": "t5"},
    "decoder-only-tied": {"architecture": "decoder-only", "position_type": "sinusoidal"}
    | {"tie_output_embeddings": True, "norm_type": "none"},
    "encoder-only": {"architecture": "encoder-only", "n_layers": 2},
    "encoder-only-t5": {"architecture": "encoder-only", "position_type": "t5", "task": "duplicate"},
    "encoder-only-alibi": {"architecture": "encoder-only", "position_type": "alibi"}
    | {"norm_type": "none"},
}


def build(name: str) -> tuple[RunConfig, Any]:
    """Return the settings and the model, whose weights are exact in float16."""
    torch.manual_seed(sorted(MODELS).index(name))
    config = RunConfig.from_flat(SMALL | MODELS[name])
    model = load_architecture(config.architecture)(config.model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_((1.5 * weight + 0.2 * torch.randn_like(weight)).half().float())
    return config, model.eval()


@dataclass(frozen=True)
class Part:
    """A head, a feed-forward block (without a head), or position vectors (without a layer)."""

    kind: str
    layer: int | None = None
    head: int | None = None

    def module(self, model: nn.Module) -> nn.Module:
        """Return the module whose input (heads) or output has the values of this part."""
        side = "encoder" if self.kind.startswith("encoder") else "decoder"
        stack = f"{side}_layers" if hasattr(model, "encoder_layers") else "layers"
        name = "feed_forward"
        if self.head is not None:
            name = "cross_attn.out_proj" if self.kind == "cross" else "self_attn.out_proj"
        return model.get_submodule(f"{stack}.{self.layer}.{name}")


def parts_of(config: RunConfig) -> list[Part]:
    """Return the parts that the engine can replace, with the architecture's kinds."""
    kinds = {"transformer": ("encoder", "decoder", "cross"), "decoder-only": ("decoder",)}
    parts = [
        part
        for kind in kinds.get(config.architecture, ("encoder",))
        for layer in range(config.model.n_layers)
        for part in (
            *(Part(kind, layer, head) for head in range(config.model.attention_heads)),
            *([] if kind == "cross" else [Part(f"{kind} feed-forward", layer)]),
        )
    ]
    has_positions = config.architecture == "transformer" and config.model.n_position_vectors
    return parts + [Part(f"{side} positions") for side in ("source", "target") if has_positions]


@contextmanager
def hooked(model: nn.Module, part: Part, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Apply `change` to the values (QX) of a head or block at every call of its module."""
    if part.head is None:
        handle = part.module(model).register_forward_hook(
            lambda _module, _inputs, output_1QD: change(output_1QD[0])[None]
        )
    else:

        def change_head(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
            x_1QHV = inputs[0].unflatten(-1, (model.config.n_heads, -1)).clone()  # type: ignore
            x_1QHV[0, :, part.head] = change(x_1QHV[0, :, part.head])
            return x_1QHV.flatten(2)

        handle = part.module(model).register_forward_pre_hook(change_head)
    try:
        yield
    finally:
        handle.remove()


def record_output(model: Any, part: Part, batch: Batch) -> Tensor:
    """Return the values (QX) of a part in a teacher-forced pass."""
    if part.layer is None:
        if part.kind.startswith("source"):
            embedding, tokens = model.source_embedding, batch.source_BS
        else:
            embedding, tokens = model.target_embedding, batch.decoder_input_BT
        return embedding.position_vectors(tokens).reshape(-1, model.config.d_model)
    outputs: list[Tensor] = []

    def record(x_QX: Tensor) -> Tensor:
        outputs.append(x_QX)
        return x_QX

    with hooked(model, part, record):
        model.logits(batch)
    return outputs[0]


@contextmanager
def replaced(model: Any, part: Part, value_PX: Tensor) -> Iterator[None]:
    """Replace the values of a part by those of the same positions, in one pass or generation."""
    if part.layer is None:
        with replace_outputs(model, {Component(part.kind): value_PX}):
            yield
        return
    n_done = 0

    def replace(x_QX: Tensor) -> Tensor:
        nonlocal n_done
        n_done += len(x_QX)
        return value_PX[n_done - len(x_QX) : n_done]

    with hooked(model, part, replace):
        yield


def replacement(model: Any, part: Part, method: str, batches: Sequence[Batch]) -> Tensor:
    """Return the values (PX) for zero, mean or resample ablation of the first batch."""
    outputs = [record_output(model, part, batch) for batch in batches]
    table_PX = outputs[0].new_zeros(2 * model.config.max_positions, outputs[0].shape[1])
    if method == "resample":
        table_PX[: len(outputs[1])] = outputs[1]
    elif method == "mean":
        longest = max(outputs, key=len)
        table_PX[:] = longest.mean(0) if part.layer is None else torch.cat(outputs).mean(0)
        for position in range(len(longest) if part.layer is not None else 0):
            rows = [output[position] for output in outputs if position < len(output)]
            table_PX[position] = torch.stack(rows).mean(0)
    return table_PX


@torch.no_grad()
def compute(name: str) -> dict[str, Any]:
    """Return what PyTorch computes with a golden model, for two sequences."""
    config, model = build(name)
    length, n_tokens = config.task.max_length, config.model.source_vocab_size
    generator = torch.Generator().manual_seed(0)
    batches = []
    for n in (length, (length + 1) // 2):
        source = [*torch.randint(3, n_tokens, (n,), generator=generator).tolist(), EOS]
        labels = [*source[-2::-1], EOS]
        batches.append(Batch(torch.tensor([source]), torch.tensor([[SOS, *labels]]), torch.ones(1)))
    cases = []
    for batch, other in (batches, batches[::-1]):
        logits = model.logits(batch)
        with record_contributions(model) as contributions:
            model.logits(batch)
        weights = model.attention_weights(batch)
        ablations = []
        for index, part in enumerate(parts_of(config)):
            method = METHODS[(index + len(cases)) % (2 if part.layer is None else len(METHODS))]
            value_PX = replacement(model, part, method, [batch, other])
            with replaced(model, part, value_PX):
                ablated = model.logits(batch)
            with replaced(model, part, value_PX):
                output = model.generate(batch.source_BS, config.model.max_positions)
            results = {"last_logits": numbers(ablated[0, -1]), "output": tokens(output)}
            ablations.append(dataclasses.asdict(part) | {"method": method} | results)
        cases.append(
            {
                "source": batch.source_BS[0].tolist(),
                "labels": batch.labels_BT[0].tolist(),
                "logits": numbers(logits),
                "contributions": {key: round_to(value) for key, value in contributions.items()},
                "attention": {
                    kind: [numbers(layer) for layer in layers]
                    for kind, layers in dataclasses.asdict(weights).items()
                    if layers
                },
                "output": tokens(model.generate(batch.source_BS, config.model.max_positions)),
                "ablations": ablations,
            }
        )
    return {
        "architecture": config.architecture,
        "model": dataclasses.asdict(config.model),
        "cases": cases,
    }


def task_examples(name: str) -> list[dict[str, Any]]:
    """Return sources and targets of a built-in task, as symbols counted from 0."""
    task = load_task(name, n_symbols=7) if TASKS[name].n_symbols_range else load_task(name)
    generator = torch.Generator().manual_seed(0)
    source_BL, lengths_B = task.sample(12, TASKS[name].min_length, 9, generator)
    sources = symbols(source_BL, lengths_B)
    targets = symbols(*task.target(source_BL, lengths_B))
    return [
        {"n": task.n_symbols, "source": source, "target": target}
        for source, target in zip(sources, targets, strict=True)
    ]


def symbols(tokens_BL: Tensor, lengths_B: Tensor) -> list[list[int]]:
    rows = zip((tokens_BL - 3).tolist(), lengths_B.tolist(), strict=True)
    return [row[:length] for row, length in rows]


def round_to(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def numbers(x: Tensor) -> list[float]:
    return [round_to(value) for value in x.flatten().tolist()]


def tokens(output_1T: Tensor) -> list[int]:
    """Return an output up to EOS, or up to PAD, which only an untrained model writes."""
    row = output_1T[0].tolist()
    end = next((i for i, token in enumerate(row) if token in (PAD, EOS)), len(row))
    return row[: end + 1]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in MODELS:
        _, model = build(name)
        weights = {key: value.half() for key, value in model.state_dict().items()}
        (FOLDER / f"{name}.safetensors").write_bytes(serialize_tensors(weights))
        _write(FOLDER / f"{name}.json", compute(name))
    _write(TASK_FILE, {name: task_examples(name) for name in TASKS if name != "random"})


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
