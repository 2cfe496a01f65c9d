"""Encoder-decoders of other libraries as architectures of this playground.

The Trainer trains them on the same batches, and the same evaluation scores them. All have the same
sizes; other settings are the defaults of each library, unless a class states otherwise. Shapes: B
batch, S source, T target, D d_model, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from playground.architectures.encoder_decoder import TransformerModel
from playground.architectures.huggingface import Bart as EagerAttentionBart
from playground.architectures.seq2seq_model import (
    Seq2SeqModel,
    TeacherForcedModel,
)
from playground.models.attention import causal_mask
from playground.models.config import BartSizes, TransformerConfig
from playground.models.embeddings import sinusoidal_positions
from playground.models.transformer import AttentionWeights
from playground.tasks import PAD
from playground.tasks.task import Batch


class ReferenceModel(TeacherForcedModel):
    """A model that is trained and evaluated, but not inspected.

    It has no key-value cache. Exact match does not need one: it takes one teacher-forced pass.
    """

    @abstractmethod
    def encode(self, source_BS: Tensor) -> Tensor:
        """Return the output of the encoder (BSD), the memory of the decoder."""

    @abstractmethod
    def decode(self, decoder_input_BT: Tensor, memory_BSD: Tensor, source_BS: Tensor) -> Tensor:
        """Return the logits (BTV) of the next token at each position of the decoder input."""

    def logits(self, batch: Batch) -> Tensor:
        return self.decode(batch.decoder_input_BT, self.encode(batch.source_BS), batch.source_BS)

    def next_token(self, source_BS: Tensor, max_tokens: int) -> Callable[[Tensor], Tensor]:
        memory_BSD = self.encode(source_BS)

        def next_token(decoder_input_BT: Tensor) -> Tensor:
            return self.decode(decoder_input_BT, memory_BSD, source_BS)[:, -1].argmax(-1)

        return next_token

    def attention_weights(self, batch: Batch) -> AttentionWeights:
        return AttentionWeights()

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        return {}


class TorchTransformer(ReferenceModel):
    """`nn.Transformer` between embeddings and a linear layer.

    With sinusoidal positions and post-norm it is the model of PyTorch's translation tutorial:
    embeddings times sqrt(d_model), plus the sinusoids, then dropout; Xavier initialization for
    every matrix, including the embeddings. Learned positions start at N(0, 1), about the scale of
    the embeddings.
    """

    source_positions: Tensor
    target_positions: Tensor

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        d, norm_first = config.d_model, config.norm_placement == "pre"
        sizes = (d, config.n_heads, config.d_ff, config.dropout)
        # Nested tensors drop the padding in evaluation mode, so the output could be shorter than
        # the source.
        layer = nn.TransformerEncoderLayer(*sizes, batch_first=True, norm_first=norm_first)
        encoder = nn.TransformerEncoder(
            layer, config.n_layers, nn.LayerNorm(d), enable_nested_tensor=False
        )
        self.transformer = nn.Transformer(
            d,
            config.n_heads,
            config.n_layers,
            config.n_layers,
            config.d_ff,
            config.dropout,
            custom_encoder=encoder,
            batch_first=True,
            norm_first=norm_first,
        )
        self.source_tokens = nn.Embedding(config.source_vocab_size, d)
        self.target_tokens = nn.Embedding(config.target_vocab_size, d)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(d, config.target_vocab_size)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)
        for name in ("source_positions", "target_positions"):
            if config.position_type == "learned":
                self.register_parameter(name, nn.Parameter(torch.randn(config.max_positions, d)))
            else:
                self.register_buffer(
                    name, sinusoidal_positions(config.max_positions, d), persistent=False
                )

    def encode(self, source_BS: Tensor) -> Tensor:
        x_BSD = self._with_positions(self.source_tokens(source_BS), self.source_positions)
        return self.transformer.encoder(x_BSD, src_key_padding_mask=source_BS == PAD)

    def decode(self, decoder_input_BT: Tensor, memory_BSD: Tensor, source_BS: Tensor) -> Tensor:
        x_BTD = self._with_positions(self.target_tokens(decoder_input_BT), self.target_positions)
        # PyTorch's boolean masks are True where a query must not attend to a key.
        attn_mask_TT = ~causal_mask(decoder_input_BT.shape[1], decoder_input_BT.device)
        padding_BS = source_BS == PAD
        decoder = self.transformer.decoder
        return self.output(
            decoder(
                x_BTD,
                memory_BSD,
                tgt_mask=attn_mask_TT,
                memory_key_padding_mask=padding_BS,
                tgt_is_causal=True,
            )
        )

    def _with_positions(self, x_BSD: Tensor, positions_PD: Tensor) -> Tensor:
        return self.dropout(x_BSD * math.sqrt(self.config.d_model) + positions_PD[: x_BSD.shape[1]])


class Bart(EagerAttentionBart):
    """BART with the default attention of transformers.

    The default, SDPA, is faster than eager attention, but returns no attention weights.
    """

    def __init__(self, config: TransformerConfig) -> None:
        names = [field.name for field in dataclasses.fields(BartSizes)]
        super().__init__(BartSizes(**{name: getattr(config, name) for name in names}))
        self.model.set_attn_implementation("sdpa")

    def attention_weights(self, batch: Batch) -> AttentionWeights:
        return AttentionWeights()

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        return {}


class XTransformers(ReferenceModel):
    """`XTransformer` of x-transformers.

    A head has d_model / n_heads dimensions here, instead of 64.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        with warnings.catch_warnings():
            # The import calls torch.jit.script, which is deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            from x_transformers import XTransformer  # type: ignore[import-untyped]
        self.config = config
        stack_options: dict[str, Any] = {
            "depth": config.n_layers,
            "heads": config.n_heads,
            "max_seq_len": config.max_positions,
            "attn_dim_head": config.key_size,
            "ff_mult": config.d_ff / config.d_model,
            "attn_dropout": config.dropout,
            "ff_dropout": config.dropout,
            "emb_dropout": config.dropout,
        }
        vocab_sizes = {
            "enc_num_tokens": config.source_vocab_size,
            "dec_num_tokens": config.target_vocab_size,
        }
        options = {
            f"{stack}_{name}": value
            for stack in ("enc", "dec")
            for name, value in stack_options.items()
        }
        self.model = XTransformer(dim=config.d_model, **vocab_sizes, **options)

    def encode(self, source_BS: Tensor) -> Tensor:
        return self.model.encoder(source_BS, mask=source_BS != PAD, return_embeddings=True)

    def decode(self, decoder_input_BT: Tensor, memory_BSD: Tensor, source_BS: Tensor) -> Tensor:
        return self.model.decoder.net(
            decoder_input_BT, context=memory_BSD, context_mask=source_BS != PAD
        )


@dataclass(frozen=True)
class Candidate:
    """An architecture, with its changes to the common settings."""

    build: Callable[[TransformerConfig], Seq2SeqModel]
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def build_model(self, sizes: TransformerConfig, seed: int = 0) -> Seq2SeqModel:
        """Build the model, with the initial weights of a seed."""
        torch.manual_seed(seed)
        return self.build(dataclasses.replace(sizes, **self.changes))


OURS = "this project"
TUTORIAL = "nn.Transformer as in the tutorial, dropout 0.1"
TUTORIAL_WITHOUT_DROPOUT = "nn.Transformer as in the tutorial, dropout 0"
BEST = "nn.Transformer at its best, dropout 0"
BART = "BART, dropout 0"
X = "x-transformers"
SINUSOIDAL_SETTINGS = {"norm_placement": "post", "position_type": "sinusoidal"}
CANDIDATES = {
    OURS: Candidate(TransformerModel),
    TUTORIAL: Candidate(TorchTransformer, {**SINUSOIDAL_SETTINGS, "dropout": 0.1}),
    TUTORIAL_WITHOUT_DROPOUT: Candidate(TorchTransformer, {**SINUSOIDAL_SETTINGS, "dropout": 0.0}),
    BEST: Candidate(
        TorchTransformer, {"norm_placement": "pre", "position_type": "learned", "dropout": 0.0}
    ),
    BART: Candidate(Bart),
    X: Candidate(XTransformers),
}
REFERENCES = [name for name in CANDIDATES if name != OURS]


def reference_versions() -> str:
    """Return the versions of transformers and x-transformers."""
    return ", ".join(f"{name} {version(name)}" for name in ("transformers", "x-transformers"))
