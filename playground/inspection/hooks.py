"""Components of the transformer, and forward hooks that record or replace their outputs.

`record_activations` records the inputs and outputs of every module. `replace_outputs` substitutes
the outputs of components. Both act in one thread, only inside their `with` block, and remove their
hooks when it ends. Outside of the blocks the model's results are bit-identical to those without
hooks.

The output of a head is its weighted sum of the values (BQK): its slice of the input of `out_proj`.
The bias of the projection belongs to no head and stays when heads are replaced.

Shapes: B batch, Q queries, S source, T target, P positions, H heads, K head size, D d_model.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from playground.architectures.seq2seq_model import split_into_chunks
from playground.models.attention import MultiHeadAttention
from playground.models.config import TransformerConfig
from playground.models.embeddings import InputEmbedding
from playground.models.transformer import Transformer
from playground.tasks import EOS, PAD
from playground.tasks.task import Batch

# Encoder self-attention, decoder self-attention, cross-attention.
AttentionKind = Literal["encoder", "decoder", "cross"]
ATTENTION_KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)
FEED_FORWARD_KINDS = ("encoder feed-forward", "decoder feed-forward")
POSITION_KINDS = ("source positions", "target positions")


@dataclass(frozen=True)
class Component:
    """A head, a feed-forward network, or the position vectors of one side.

    Layers and heads count from 0.
    """

    kind: str
    layer: int | None = None
    head: int | None = None

    @property
    def name(self) -> str:
        """Return the displayed name, which counts layers and heads from 1.

        Examples: "cross-attention, layer 1, head 3", "decoder feed-forward, layer 2".
        """
        kind = {
            "encoder": "encoder self-attention",
            "decoder": "decoder self-attention",
            "cross": "cross-attention",
        }.get(self.kind, self.kind)
        indices = (("layer", self.layer), ("head", self.head))
        return ", ".join(
            [kind, *(f"{noun} {number + 1}" for noun, number in indices if number is not None)]
        )

    @property
    def side(self) -> str:
        """Return the side whose positions it computes: "source" or "target"."""
        return "source" if self.kind.startswith(("encoder", "source")) else "target"

    @property
    def module_name(self) -> str:
        """Return the name of the transformer's module that computes it."""
        if self.kind in POSITION_KINDS:
            return f"{self.side}_embedding"
        stack = "encoder_layers" if self.side == "source" else "decoder_layers"
        part = {"cross": "cross_attn", "encoder": "self_attn", "decoder": "self_attn"}.get(
            self.kind, "feed_forward"
        )
        return f"{stack}.{self.layer}.{part}"

    @property
    def hook_point(self) -> str:
        """Return the name of the module with its activation: the output, or for a head the input.

        The input of the projection after the heads holds their outputs side by side.
        """
        return f"{self.module_name}.out_proj" if self.kind in ATTENTION_KINDS else self.module_name


def all_heads(config: TransformerConfig, *kinds: str) -> list[Component]:
    """List every head of these types of attention (default: all three), layer by layer."""
    return [
        Component(kind, layer, head)
        for kind in kinds or ATTENTION_KINDS
        for layer in range(config.n_layers)
        for head in range(config.n_heads)
    ]


def all_components(config: TransformerConfig) -> list[Component]:
    """List the heads, the feed-forward networks, and the position vectors if there are any."""
    networks = [
        Component(kind, layer) for kind in FEED_FORWARD_KINDS for layer in range(config.n_layers)
    ]
    return [
        *all_heads(config),
        *networks,
        *(Component(kind) for kind in POSITION_KINDS if config.n_position_vectors),
    ]


def component_groups(config: TransformerConfig) -> dict[str, list[Component]]:
    """Return groups of components by name: all heads of one type of attention, in one layer or in
    all, or all feed-forward networks of one side.
    """
    result: dict[str, list[Component]] = {}
    for kind in ATTENTION_KINDS:
        kind_name = Component(kind).name
        for layer in range(config.n_layers) if config.n_layers > 1 else ():
            result[f"{kind_name}, layer {layer + 1}"] = [
                head for head in all_heads(config, kind) if head.layer == layer
            ]
        result[f"{kind_name}, every layer" if config.n_layers > 1 else kind_name] = all_heads(
            config, kind
        )
    for network in FEED_FORWARD_KINDS if config.n_layers > 1 else ():
        result[f"{network}, every layer"] = [
            Component(network, layer) for layer in range(config.n_layers)
        ]
    return result


@dataclass(frozen=True)
class ModuleCall:
    """The inputs of a module, its output, and the mask and the weights of an attention (BHQM)."""

    inputs: tuple[Any, ...]
    output: Any
    attn_mask: Tensor | None = None
    weights: Tensor | None = None


# The calls of modules, by name.
Activations = Mapping[str, list[ModuleCall]]


@contextmanager
def record_activations(
    model: nn.Module, names: Collection[str] | None = None
) -> Iterator[Activations]:
    """Record the calls of the named modules inside the block (default: every module)."""
    calls: dict[str, list[ModuleCall]] = {}

    def store(name: str) -> Any:
        def hook(
            module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any], output: Any
        ) -> None:
            call = ModuleCall(inputs, output)
            if isinstance(module, MultiHeadAttention):
                call = ModuleCall(inputs, output, kwargs["attn_mask"], kwargs["weights"][-1])
            calls[name].append(call)

        return hook

    with ExitStack() as undo:
        for name, module in model.named_modules():
            if name and (names is None or name in names):
                calls[name] = []
                undo.callback(module.register_forward_hook(store(name), with_kwargs=True).remove)
                if isinstance(module, MultiHeadAttention):
                    undo.callback(compute_weights(module).remove)
        yield calls


@torch.no_grad()
def run_with_cache(
    model: Transformer, batch: Batch, names: Collection[str] | None = None
) -> tuple[Tensor, Activations]:
    """Run a teacher-forced pass; return the logits (BTV) and what `record_activations` records."""
    with record_activations(model, names) as calls:
        return model(batch.source_BS, batch.decoder_input_BT), calls


def compute_weights(attention: MultiHeadAttention) -> RemovableHandle:
    """Make an attention compute its weights at every call, until the handle is removed."""

    def collect_weights(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        is_collected = kwargs.get("weights") is not None
        return args, kwargs if is_collected else kwargs | {"weights": []}

    return attention.register_forward_pre_hook(collect_weights, with_kwargs=True)


def component_outputs(model: Transformer, calls: Activations) -> dict[Component, Tensor]:
    """Return the last outputs of all heads (BQK) and feed-forward networks (BQD)."""
    result = {}
    for part in all_components(model.config):
        if part.kind in ATTENTION_KINDS:
            heads_BQHK = (
                calls[part.hook_point][-1].inputs[0].unflatten(-1, (model.config.n_heads, -1))
            )
            result[part] = heads_BQHK[..., part.head, :]
        elif part.kind in FEED_FORWARD_KINDS:
            result[part] = calls[part.hook_point][-1].output
    return result


def _check_components(model: Transformer, parts: Iterable[Component]) -> None:
    components = all_components(model.config)
    for part in parts:
        if part not in components:
            if part.kind in POSITION_KINDS:
                raise ValueError(
                    f"this model has no {part.name} to replace: with positions "
                    f"{model.config.position_type!r} it adds no position vectors"
                )
            raise ValueError(
                f"this model has no {part.name}; it has layers 1 to {model.config.n_layers} "
                f"and heads 1 to {model.config.n_heads}"
            )


@contextmanager
def replace_outputs(model: Transformer, values: Mapping[Component, Tensor]) -> Iterator[None]:
    """Replace the outputs of components by `values` inside the block.

    A value is a scalar, or PX or BPX with one row per position (X: the value size of a head for
    heads, D otherwise). Incremental decoding uses the row of the current position. For the
    position components, the value replaces the position vectors. Raises ValueError for a component
    that the model does not have.
    """
    _check_components(model, values)
    handles = _Replacement(model, values).register_hooks()
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def replace_vectors(
    model: Transformer, module_name: str, position: int, vectors_BD: Tensor
) -> Iterator[None]:
    """Replace the vectors that a module outputs at one position, inside the block."""

    def hook(module: nn.Module, inputs: tuple[Any, ...], output_BPD: Tensor) -> Tensor:
        output_BPD = output_BPD.clone()
        output_BPD[:, position] = vectors_BD
        return output_BPD

    handle = model.get_submodule(module_name).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


class _Replacement:
    """The hooks of `replace_outputs`."""

    def __init__(self, model: Transformer, values: Mapping[Component, Tensor]) -> None:
        self.model, self.values = model, values
        # the first position of the current call, which grows in incremental decoding
        self.first_position = {"source": 0, "target": 0}

    def register_hooks(self) -> list[RemovableHandle]:
        embedding = self.model.target_embedding
        handles = [embedding.register_forward_pre_hook(self.track_position, with_kwargs=True)]
        by_module: dict[str, list[Component]] = {}
        for part in self.values:
            by_module.setdefault(part.module_name, []).append(part)
        for name, parts in by_module.items():
            module = self.model.get_submodule(name)
            if isinstance(module, MultiHeadAttention):
                head_hook = partial(self.replace_heads, parts)
                handles.append(module.out_proj.register_forward_pre_hook(head_hook))
            elif isinstance(module, InputEmbedding):
                hook = partial(self.replace_position_vectors, parts[0])
                handles.append(module.register_forward_hook(hook))
            else:
                handles.append(module.register_forward_hook(partial(self.replace_output, parts[0])))
        return handles

    def value(self, part: Component, n_positions: int) -> Tensor:
        """Return the value of a component at the positions of the current call."""
        value, start = self.values[part], self.first_position[part.side]
        return value[..., start : start + n_positions, :] if value.dim() else value

    def track_position(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        position = kwargs.get("first_position", args[1] if len(args) > 1 else 0)
        self.first_position["target"] = position

    def replace_heads(
        self, parts: list[Component], module: nn.Module, inputs: tuple[Tensor]
    ) -> Tensor:
        outputs_BQHK = inputs[0].unflatten(-1, (self.model.config.n_heads, -1)).clone()
        for part in parts:
            outputs_BQHK[..., part.head, :] = self.value(part, outputs_BQHK.shape[1])
        return outputs_BQHK.flatten(2)

    def replace_output(
        self, part: Component, module: nn.Module, inputs: tuple[Tensor], output_BQD: Tensor
    ) -> Tensor:
        return self.value(part, output_BQD.shape[1]).expand_as(output_BQD)

    def replace_position_vectors(
        self, part: Component, module: InputEmbedding, inputs: tuple[Tensor], output_BSD: Tensor
    ) -> Tensor:
        positions_SD = module.position_vectors(inputs[0], self.first_position[part.side])
        assert positions_SD is not None
        return output_BSD - positions_SD + self.value(part, output_BSD.shape[1])


@torch.no_grad()
def mean_outputs(model: Transformer, batch: Batch) -> dict[Component, Tensor]:
    """Return the mean output of each component at each position.

    Shapes are PK for heads and PD otherwise, with P = `max_positions`. The mean is over the
    sequences of `batch` that have a token at the position. At a position without tokens it is the
    mean over all positions. The mean of the position vectors is over the positions, because
    each position has a single vector.
    """
    is_token = {"source": batch.source_BS != PAD, "target": batch.labels_BT != PAD}
    parts = all_components(model.config)
    names = {part.hook_point for part in parts if part.kind not in POSITION_KINDS}
    sums: dict[Component, Tensor] = {}
    for rows in split_into_chunks(model.config, batch):
        some = batch.select(rows.to(batch.source_BS.device))
        _, calls = run_with_cache(model, some, names)
        for part, output_BQX in component_outputs(model, calls).items():
            sum_QX = (output_BQX * is_token[part.side][rows][..., None]).sum(0)
            sums[part] = sums[part] + sum_QX if part in sums else sum_QX
    result = {}
    for part, sum_QX in sums.items():
        n_Q1 = is_token[part.side].sum(0)[:, None]
        everywhere_X = sum_QX.sum(0) / n_Q1.sum()
        mean_PX = everywhere_X.repeat(model.config.max_positions, 1)
        mean_PX[: len(sum_QX)] = torch.where(n_Q1 > 0, sum_QX / n_Q1.clamp(min=1), everywhere_X)
        result[part] = mean_PX
    for part in (part for part in parts if part.kind in POSITION_KINDS):
        n_used = int(is_token[part.side].any(0).sum())  # a batch may have more padding
        tokens_1P = batch.source_BS.new_full((1, n_used), EOS)
        used_PD = cast(InputEmbedding, model.get_submodule(part.module_name)).position_vectors(
            tokens_1P
        )
        assert used_PD is not None
        result[part] = (
            used_PD.reshape(-1, used_PD.shape[-1]).mean(0).expand(model.config.max_positions, -1)
        )
    return result
