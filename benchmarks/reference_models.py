"""Encoder-decoders of other libraries as architectures of this playground.

Our Trainer trains them on our batches, and our evaluation scores them. All have the same sizes;
other settings are their own defaults, unless a class states otherwise. Shapes: B batch, S source, T
target, D d_model, V vocabulary.
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

from playground.architectures.base import (
    Seq2SeqModel,
    TeacherForcedModel,
    check_lengths,
    eval_mode,
    greedy_decode,
)
from playground.architectures.encoder_decoder import EncoderDecoder
from playground.architectures.huggingface import Bart as EagerBart
from playground.models.attention import causal_mask
from playground.models.config import ModelConfig
from playground.models.embeddings import sinusoidal_positions
from playground.models.transformer import AttentionWeights
from playground.models.variant_configs import BartSizes
from playground.tasks import PAD
from playground.tasks.task import Batch


class ReferenceModel(TeacherForcedModel):
    """A model that is trained and evaluated, but not inspected.

    It has no key-value cache: exact match needs one forward pass for correct examples.
    """

    @abstractmethod
    def read(self, source_BS: Tensor) -> Tensor:
        """Return the memory (BSD)."""

    @abstractmethod
    def write(self, decoder_input_BT: Tensor, memory_BSD: Tensor, source_BS: Tensor) -> Tensor:
        """Return logits (BTV) of the token after each token of the decoder input."""

    def logits(self, batch: Batch) -> Tensor:
        return self.write(batch.decoder_input_BT, self.read(batch.source_BS), batch.source_BS)

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_lengths(self.config, source_BS, max_tokens)
        with eval_mode(self):
            memory_BSD = self.read(source_BS)
            return greedy_decode(
                lambda decoder_input_BT: self.write(decoder_input_BT, memory_BSD, source_BS)[:, -1],
                source_BS,
                max_tokens,
            )

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

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        d, pre = config.d_model, config.norm_placement == "pre"
        sizes = (d, config.n_heads, config.d_ff, config.dropout)
        # The default encoder packs a batch without its padding in evaluation mode, and then forgets
        # how wide it was.
        layer = nn.TransformerEncoderLayer(*sizes, batch_first=True, norm_first=pre)
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
            norm_first=pre,
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

    def read(self, source_BS: Tensor) -> Tensor:
        x_BSD = self._with_positions(self.source_tokens(source_BS), self.source_positions)
        return self.transformer.encoder(x_BSD, src_key_padding_mask=source_BS == PAD)

    def write(self, decoder_input_BT: Tensor, memory_BSD: Tensor, source_BS: Tensor) -> Tensor:
        x_BTD = self._with_positions(self.target_tokens(decoder_input_BT), self.target_positions)
        # torch's masks are true where one may not look
        hidden_TT = ~causal_mask(decoder_input_BT.shape[1], decoder_input_BT.device)
        padding_BS = source_BS == PAD
        decoder = self.transformer.decoder
        return self.output(
            decoder(
                x_BTD,
                memory_BSD,
                tgt_mask=hidden_TT,
                memory_key_padding_mask=padding_BS,
                tgt_is_causal=True,
            )
        )

    def _with_positions(self, x_BSD: Tensor, positions_PD: Tensor) -> Tensor:
        return self.dropout(x_BSD * math.sqrt(self.config.d_model) + positions_PD[: x_BSD.shape[1]])


class Bart(EagerBart):
    """BART with the default attention of transformers.

    It is faster than ours, and returns no attention weights.
    """

    def __init__(self, config: ModelConfig) -> None:
        used = {each.name: getattr(config, each.name) for each in dataclasses.fields(BartSizes)}
        super().__init__(BartSizes(**used))
        self.model.set_attn_implementation("sdpa")

    def attention_weights(self, batch: Batch) -> AttentionWeights:
        return AttentionWeights()

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        return {}


class XTransformers(ReferenceModel):
    """`XTransformer` of x-transformers.

    A head has d_model / n_heads dimensions here, instead of 64.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        with warnings.catch_warnings():
            # it scripts functions as it is imported
            warnings.simplefilter("ignore", DeprecationWarning)
            from x_transformers import XTransformer  # type: ignore[import-untyped]
        self.config = config
        each: dict[str, Any] = {
            "depth": config.n_layers,
            "heads": config.n_heads,
            "max_seq_len": config.max_positions,
            "attn_dim_head": config.key_size,
            "ff_mult": config.d_ff / config.d_model,
            "attn_dropout": config.dropout,
            "ff_dropout": config.dropout,
            "emb_dropout": config.dropout,
        }
        vocabulary = {
            "enc_num_tokens": config.source_vocab_size,
            "dec_num_tokens": config.target_vocab_size,
        }
        both = {f"{side}_{name}": value for side in ("enc", "dec") for name, value in each.items()}
        self.model = XTransformer(dim=config.d_model, **vocabulary, **both)

    def read(self, source_BS: Tensor) -> Tensor:
        return self.model.encoder(source_BS, mask=source_BS != PAD, return_embeddings=True)

    def write(self, decoder_input_BT: Tensor, memory_BSD: Tensor, source_BS: Tensor) -> Tensor:
        return self.model.decoder.net(
            decoder_input_BT, context=memory_BSD, context_mask=source_BS != PAD
        )


@dataclass(frozen=True)
class Candidate:
    """A named architecture, with the changes to its sizes."""

    build: Callable[[ModelConfig], Seq2SeqModel]
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def built(self, sizes: ModelConfig, seed: int = 0) -> Seq2SeqModel:
        """Return the model with the initial weights of this seed."""
        torch.manual_seed(seed)
        return self.build(dataclasses.replace(sizes, **self.changes))


OURS = "this project"
TUTORIAL = "nn.Transformer as in the tutorial, dropout 0.1"
POST = "nn.Transformer as in the tutorial, dropout 0"
BEST = "nn.Transformer at its best, dropout 0"
BART = "BART, dropout 0"
X = "x-transformers"
SINUSOIDAL_SETTINGS = {"norm_placement": "post", "position_type": "sinusoidal"}
CANDIDATES = {
    OURS: Candidate(EncoderDecoder),
    TUTORIAL: Candidate(TorchTransformer, {**SINUSOIDAL_SETTINGS, "dropout": 0.1}),
    POST: Candidate(TorchTransformer, {**SINUSOIDAL_SETTINGS, "dropout": 0.0}),
    BEST: Candidate(
        TorchTransformer, {"norm_placement": "pre", "position_type": "learned", "dropout": 0.0}
    ),
    BART: Candidate(Bart),
    X: Candidate(XTransformers),
}
REFERENCES = [name for name in CANDIDATES if name != OURS]


def reference_versions() -> str:
    """Return the versions of the reference libraries and of torch."""
    return ", ".join(f"{name} {version(name)}" for name in ("transformers", "x-transformers"))
