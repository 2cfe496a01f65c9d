"""Common parts of the published architectures: configuration, generation, limits and loss.

This file is uploaded to the Hub beside the model. It reads no file and opens no connection.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    Cache,
    GenerationConfig,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)

from .config import BaseConfig
from .kv_cache import KVCache

PAD, SOS, EOS = 0, 1, 2  # the first three tokens of every vocabulary
# labels that the loss ignores, by transformers' convention; it ignores PAD, too
IGNORE_INDEX = -100
SPECIAL_TOKEN_IDS = {"pad_token_id": PAD, "bos_token_id": SOS, "eos_token_id": EOS}


class ArchitectureConfig(PreTrainedConfig):
    """The sizes of an architecture, and the settings that transformers requires.

    Raises ConfigError for invalid sizes.
    """

    model_config_class: ClassVar[type[BaseConfig]]
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "vocab_size": "target_vocab_size",
    }
    defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        # transformers generates an __init__ for a class that defines none
        cls.__init__ = ArchitectureConfig.__init__  # type: ignore[method-assign]
        super().__init_subclass__(**options)

    def __init__(self, **values: Any) -> None:
        names = self.model_config_class.__dataclass_fields__
        sizes = self.model_config_class(
            **{name: values.pop(name) for name in names.keys() & values.keys()}
        )
        vars(self).update(vars(sizes))
        is_tied = sizes.tie_output_embeddings or sizes.share_embeddings
        tied: dict[str, Any] = {"tie_word_embeddings": is_tied}
        super().__init__(**(tied | SPECIAL_TOKEN_IDS | self.defaults | values))

    def to_model_config(self) -> Any:
        """Return the sizes as the config of the model."""
        names = self.model_config_class.__dataclass_fields__
        return self.model_config_class(**{name: getattr(self, name) for name in names})


class EncoderDecoderConfig(ArchitectureConfig):
    """Sizes of an architecture with an encoder and a decoder."""

    defaults: ClassVar[dict[str, Any]] = {"is_encoder_decoder": True, "decoder_start_token_id": SOS}
    has_cache = False

    def default_generation_config(self) -> GenerationConfig:
        """Return the default generation: greedy, up to the last position. SOS counts, too."""
        return GenerationConfig(
            **SPECIAL_TOKEN_IDS,
            decoder_start_token_id=SOS,
            max_length=self.max_positions + 1,
            use_cache=self.has_cache,
        )


class PlaygroundModel(PreTrainedModel):
    """A network of this package as a model of transformers."""

    network_class: ClassVar[type[nn.Module]]
    network: Any
    base_model_prefix = "network"
    main_input_name = "input_ids"
    # The loss is a mean over the batch. Without this line transformers' Trainer would treat it as a
    # part of a sum.
    accepts_loss_kwargs = False

    def __init__(self, config: ArchitectureConfig) -> None:
        super().__init__(config)
        if self.can_generate():
            self.generation_config = config.default_generation_config()
        setattr(self, self.base_model_prefix, self.network_class(config.to_model_config()))
        first_names: dict[nn.Parameter, str] = {}
        self._tied_weights_keys = {
            name: first_names[weight]
            for name, weight in self.named_parameters(remove_duplicate=False)
            if first_names.setdefault(weight, name) != name
        }
        self.post_init()

    def init_weights(self) -> None:
        """Tie the weights. The network has initialized them."""
        self.tie_weights(recompute_mapping=False)

    @torch.no_grad()
    def initialize_weights(self) -> None:
        """Fill what no file contains, missing weights and derived tables, as in a new network."""
        own = dict(named_tensors(self.base_model))
        missing = [name for name in own if not getattr(own[name], "_is_hf_initialized", False)]
        if missing:
            new = dict(named_tensors(self.network_class(self.config.to_model_config())))
            for name in missing:
                own[name].copy_(new[name])

    def resize_token_embeddings(self, *sizes: Any, **options: Any) -> Any:
        """Refuse another vocabulary: a token is a symbol of the task."""
        raise NotImplementedError(
            "this model has a token for each symbol of its task; train a model with more symbols"
        )

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embeddings of the source."""
        return next(each for each in self.base_model.modules() if isinstance(each, nn.Embedding))

    def get_output_embeddings(self) -> Any:
        return self.base_model.output_proj


class PlaygroundGenerationMixin(GenerationMixin):
    """Generation that stops at the model's last position."""

    config: Any

    @property
    def max_sequence_length(self) -> int:
        """Return the number of tokens that a generated sequence may have."""
        return self.config.max_positions

    def generate(
        self, *inputs: Any, stopping_criteria: StoppingCriteriaList | None = None, **kwargs: Any
    ) -> Any:
        """Generate as transformers does, but stop at the model's last position."""
        limit = MaxPositionsCriteria(self.max_sequence_length)
        criteria = StoppingCriteriaList([*(stopping_criteria or ()), limit])
        if kwargs.get("max_new_tokens") is not None:
            # without this, transformers warns at each call that both limits are set
            kwargs.setdefault("max_length", None)
        return super().generate(*inputs, stopping_criteria=criteria, **kwargs)  # type: ignore[misc]


class EncoderForGenerate(nn.Module):
    """The encoder of a network as `generate` calls it: once, for all steps."""

    main_input_name = "input_ids"

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def source_tokens(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the source (BS) with PAD wherever the mask is 0, after a check of its length."""
        check_length("input_ids", input_ids, self.network.config.max_positions)
        return apply_attention_mask(input_ids, attention_mask)


class PlaygroundEncoderDecoder(PlaygroundModel, PlaygroundGenerationMixin):
    """An encoder-decoder for `generate`: greedy, sampling or beam search, in padded batches."""

    encoder_class: ClassVar[type[EncoderForGenerate]]

    @property
    def max_target_length(self) -> int:
        """Return the number of positions of the target; it may begin with SOS and end with EOS."""
        return self.config.max_positions + 1

    def get_encoder(self, modality: str | None = None) -> EncoderForGenerate:
        return self.encoder_class(self.base_model)

    def encode_inputs(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        encoder_outputs: Any,
        decoder_input_ids: Tensor | None,
        labels: Tensor | None,
        **options: Any,
    ) -> tuple[Any, Tensor, Tensor]:
        """Return the encoder's output, the source (BS) and the decoder's input (BT).

        The encoder runs unless its output is given. The decoder's input is by default the labels
        shifted right. Raises ValueError if the source or the target is missing.
        """
        if encoder_outputs is None:
            if input_ids is None:
                raise ValueError("no source: pass input_ids or encoder_outputs")
            encoder_outputs = self.get_encoder()(input_ids, attention_mask, **options)
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("no target: pass decoder_input_ids or labels")
            decoder_input_ids = shift_right(labels)
        if input_ids is not None:
            source_BS = apply_attention_mask(input_ids, attention_mask)
        elif attention_mask is not None:
            # a step of `generate`: decoding only needs to know which positions are not padding
            source_BS = attention_mask
        else:
            source_BS = encoder_outputs[0].new_ones(encoder_outputs[0].shape[:2])
        return encoder_outputs, source_BS, decoder_input_ids

    def prepare_inputs_for_generation(  # type: ignore[override]
        self,
        decoder_input_ids: Tensor,
        encoder_outputs: Any = None,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the inputs of a step: only the target positions that are not in the cache yet."""
        n_cached = 0 if past_key_values is None else int(past_key_values.get_seq_length())
        return {
            "decoder_input_ids": decoder_input_ids[:, n_cached:],
            "past_key_values": past_key_values,
            "encoder_outputs": encoder_outputs,
            "attention_mask": attention_mask,
            "output_attentions": output_attentions,
        }


class CacheView(KVCache):
    """One layer's part of a transformers cache, which beam search can reorder."""

    def __init__(self, cache: Cache, layer: int) -> None:
        self.cache, self.layer = cache, layer
        self.length = int(cache.get_seq_length(layer))
        if self.length:
            # Any, because the type has no keys and values for every kind of layer
            stored: Any = cache.layers[layer]
            self.key_BGMK = stored.keys[:, :, : self.length]
            self.value_BGMK = stored.values[:, :, : self.length]

    def update(self, key_BGQK: Tensor, value_BGQK: Tensor) -> tuple[Tensor, Tensor]:
        self.length += key_BGQK.shape[2]
        key_BGMK, value_BGMK = self.cache.update(key_BGQK, value_BGQK, self.layer)
        return key_BGMK[:, :, : self.length], value_BGMK[:, :, : self.length]


class MaxPositionsCriteria(StoppingCriteria):
    """Ends generation at the last position that the model has."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens

    def __call__(self, input_ids: Tensor, scores: Tensor, **unused: Any) -> Tensor:
        # the newest token needs no position, because nothing follows it
        full = input_ids.shape[1] > self.max_tokens
        return torch.full((len(input_ids),), full, dtype=torch.bool, device=input_ids.device)


def named_tensors(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights and the derived tables of a network by name."""
    return chain(network.named_parameters(), network.named_buffers())


def apply_attention_mask(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return the tokens (BS) with PAD wherever the mask is 0."""
    return input_ids if attention_mask is None else input_ids.masked_fill(attention_mask == 0, PAD)


def check_padding_side(tokens_BS: Tensor) -> None:
    """Raise ValueError for padding before a token: positions count from the first column."""
    is_token_BS = tokens_BS != PAD
    if bool((is_token_BS[:, 1:] & ~is_token_BS[:, :-1]).any()):
        raise ValueError(
            "input_ids has padding before tokens, which shifts their positions; pad on the right, "
            "as the tokenizer of this model does"
        )


def shift_right(labels_BT: Tensor) -> Tensor:
    """Return the decoder's input (BT) for these labels: SOS, then all labels but the last."""
    return F.pad(labels_BT.masked_fill(labels_BT == IGNORE_INDEX, PAD), (1, 0), value=SOS)[:, :-1]


def cross_entropy(logits_BTV: Tensor, labels_BT: Tensor) -> Tensor:
    """Return the mean cross-entropy of the labels that are neither PAD nor -100."""
    return F.cross_entropy(
        logits_BTV.transpose(1, 2),
        labels_BT.masked_fill(labels_BT == PAD, IGNORE_INDEX),
        ignore_index=IGNORE_INDEX,
    )


def check_length(name: str, tokens_BS: Tensor, max_length: int, past_length: int = 0) -> None:
    """Raise ValueError for sequences with more tokens than the model has positions for."""
    length = past_length + tokens_BS.shape[1]
    if length > max_length:
        raise ValueError(
            f"{name} has {length} tokens, but the model has positions for {max_length}; shorten it"
        )
