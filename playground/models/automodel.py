"""The transformer as a class for transformers' Auto classes:

    AutoModelForSeq2SeqLM.from_pretrained("ada/reverse-digits", trust_remote_code=True)

It is a thin wrapper: transformer.py does all computation. This file and those that it imports are
uploaded to the Hub unchanged. Only publishing imports the `automodel*.py` files, because importing
transformers is slow.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    Cache,
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from .attention import padding_mask
from .config import ModelConfig
from .embeddings import InputEmbedding, sinusoidal_positions
from .layers import KVCache
from .transformer import AttentionWeights, Transformer

PAD, SOS, EOS = 0, 1, 2  # the first three tokens of every vocabulary
# labels that the loss ignores, by transformers' convention; it ignores PAD, too
IGNORE_INDEX = -100
SPECIAL_TOKEN_IDS = {
    "pad_token_id": PAD,
    "bos_token_id": SOS,
    "eos_token_id": EOS,
    "decoder_start_token_id": SOS,
}
CONFIG_FIELDS = tuple(field.name for field in dataclasses.fields(ModelConfig))


class PlaygroundConfig(PreTrainedConfig):
    """The fields of `ModelConfig`, and the settings that transformers requires.

    Those are the special tokens, the tied weights, and whether there is an encoder.

    Raises:
        ConfigError: a ValueError, for invalid sizes.
    """

    model_type = "transformer-playground"
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "vocab_size": "target_vocab_size",
    }

    def __init__(self, **values: Any) -> None:
        sizes = ModelConfig(**{name: values.pop(name) for name in CONFIG_FIELDS if name in values})
        for name in CONFIG_FIELDS:
            setattr(self, name, getattr(sizes, name))
        defaults = {
            "is_encoder_decoder": True,
            "tie_word_embeddings": sizes.tie_output_embeddings or sizes.share_embeddings,
        }
        super().__init__(**(defaults | SPECIAL_TOKEN_IDS | values))

    def to_model_config(self) -> ModelConfig:
        return ModelConfig(**{name: getattr(self, name) for name in CONFIG_FIELDS})

    def default_generation_config(self) -> GenerationConfig:
        """Return the default generation: greedy, up to the last position. SOS counts, too."""
        return GenerationConfig(
            **SPECIAL_TOKEN_IDS, max_length=self.max_positions + 1, use_cache=True
        )


class EncoderForGenerate(nn.Module):
    """The encoder as `generate` calls it: once, for all steps."""

    main_input_name = "input_ids"

    def __init__(self, transformer: Transformer) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        **unused: Any,
    ) -> BaseModelOutput:
        """Return the memory (BSD) and, if requested, each layer's attention weights (BHSS)."""
        _check_length("input_ids", input_ids, self.transformer.config)
        record = AttentionWeights() if output_attentions else None
        memory_BSD = self.transformer.encode(
            _apply_attention_mask(input_ids, attention_mask), record
        )
        attentions = None if record is None else tuple(record.encoder)
        return BaseModelOutput(last_hidden_state=memory_BSD, attentions=attentions)


class LayerCache(KVCache):
    """One decoder layer's part of a transformers cache, which beam search can reorder."""

    def __init__(self, cache: Cache, layer: int) -> None:
        self.cache, self.layer = cache, layer
        self.length = int(cache.get_seq_length(layer))

    def append(self, key_BGTK: Tensor, value_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        self.length += key_BGTK.shape[2]
        key_BGMK, value_BGMK = self.cache.update(key_BGTK, value_BGTK, self.layer)
        return key_BGMK[:, :, : self.length], value_BGMK[:, :, : self.length]


class MaxPositionsCriteria(StoppingCriteria):
    """Ends generation at the last position that the model has."""

    def __init__(self, max_positions: int) -> None:
        self.max_positions = max_positions

    def __call__(self, input_ids: Tensor, scores: Tensor, **unused: Any) -> Tensor:
        # the newest token needs no position, because nothing follows it
        full = input_ids.shape[1] > self.max_positions
        return torch.full((len(input_ids),), full, dtype=torch.bool, device=input_ids.device)


class PlaygroundForSeq2SeqLM(PreTrainedModel, GenerationMixin):
    """An encoder-decoder for `generate`: greedy, sampling or beam search, in padded batches.

    Attention weights are returned on request. A checkpoint of the playground names its weights as
    `Transformer` does; transformers loads them as those of the base model.
    """

    config_class = PlaygroundConfig
    base_model_prefix = "transformer"
    main_input_name = "input_ids"
    # The loss is a mean over the batch. Without this line transformers' Trainer would treat it as a
    # part of a sum.
    accepts_loss_kwargs = False

    def __init__(self, config: PlaygroundConfig) -> None:
        super().__init__(config)
        self.generation_config = config.default_generation_config()
        self.transformer = Transformer(config.to_model_config())
        tied = {}
        side = "source" if config.share_embeddings else "target"
        table = f"transformer.{side}_embedding.token_embedding.weight"
        if config.share_embeddings:
            tied["transformer.target_embedding.token_embedding.weight"] = table
        if config.tie_output_embeddings:
            tied["transformer.output_proj.weight"] = table
        self._tied_weights_keys = tied
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Fill in the sinusoidal positions, which no file contains.

        `from_pretrained` allocates them and calls this method for their content. The trainable
        weights are initialized in transformer.py.
        """
        if (
            isinstance(module, InputEmbedding)
            and module.position_type == "sinusoidal"
            and module.position_embedding is not None
        ):
            sizes = self.transformer.config
            module.position_embedding.copy_(
                sizes.sinusoidal_scale * sinusoidal_positions(sizes.max_positions, sizes.d_model)
            )

    def get_encoder(self, modality: str | None = None) -> EncoderForGenerate:
        return EncoderForGenerate(self.transformer)

    def get_input_embeddings(self) -> nn.Module:
        return self.transformer.source_embedding.token_embedding

    def get_output_embeddings(self) -> nn.Module:
        return self.transformer.output_proj

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        use_cache: bool | None = None,
        **unused: Any,
    ) -> Seq2SeqLMOutput:
        """Return the logits (BTV) of the token that follows each target position.

        With `labels` (BT), the mean cross-entropy is returned as well. Source positions that are
        PAD or masked get no attention, and the loss ignores labels that are PAD or -100. Without
        `decoder_input_ids` the decoder input is the labels shifted right. Attention weights are
        BHSS, BHTT and BHTS for each layer.

        With `use_cache` or `past_key_values`, `decoder_input_ids` follow the target positions of
        the cache. The cache is extended by them and returned as `past_key_values`. In training mode
        there is no cache, because dropout would stay in it.

        Raises:
            ValueError: for sequences longer than the model has positions for, or if the source or
                the target is missing.
        """
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if encoder_outputs is None:
            if input_ids is None:
                raise ValueError("no source: pass input_ids or encoder_outputs")
            encoder_outputs = self.get_encoder()(input_ids, attention_mask, output_attentions)
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("no target: pass decoder_input_ids or labels")
            decoder_input_ids = F.pad(
                labels.masked_fill(labels == IGNORE_INDEX, PAD), (1, 0), value=SOS
            )[:, :-1]
        cache = None
        if not self.training and (use_cache or past_key_values is not None):
            cache = past_key_values or EncoderDecoderCache(DynamicCache(), DynamicCache())
        past_length = 0 if cache is None else int(cache.get_seq_length())
        _check_length("decoder_input_ids", decoder_input_ids, self.transformer.config, past_length)

        memory_BSD = encoder_outputs[0]
        if input_ids is not None:
            source_BS = _apply_attention_mask(input_ids, attention_mask)
        else:  # a step of `generate`: decoding only needs to know which positions are not padding
            source_BS = (
                memory_BSD.new_ones(memory_BSD.shape[:2])
                if attention_mask is None
                else attention_mask
            )
        record = AttentionWeights() if output_attentions else None
        if cache is None:
            x_BTD = self.transformer.decode(decoder_input_ids, memory_BSD, source_BS, record)
        else:
            x_BTD = self._decode_with_cache(decoder_input_ids, memory_BSD, source_BS, cache, record)
        logits_BTV = self.transformer.output_proj(x_BTD)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(
                logits_BTV.transpose(1, 2),
                labels.masked_fill(labels == PAD, IGNORE_INDEX),
                ignore_index=IGNORE_INDEX,
            )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits_BTV,
            past_key_values=cache,
            encoder_last_hidden_state=memory_BSD,
            encoder_attentions=encoder_outputs.attentions if output_attentions else None,
            decoder_attentions=None if record is None else tuple(record.decoder),
            cross_attentions=None if record is None else tuple(record.cross),
        )

    def _decode_with_cache(
        self,
        decoder_input_ids: Tensor,
        memory_BSD: Tensor,
        source_BS: Tensor,
        cache: EncoderDecoderCache,
        weights: AttentionWeights | None,
    ) -> Tensor:
        """Return the vectors (BTD) of the target positions that follow those in the cache."""
        layers = range(self.transformer.config.n_layers)
        # Any, because the type has no keys and values for every kind of layer
        across: Any = cache.cross_attention_cache
        if not cache.is_updated.get(0):
            for layer, (key_BGSK, value_BGSK) in enumerate(
                self.transformer.project_memory(memory_BSD)
            ):
                across.update(key_BGSK, value_BGSK, layer)
                cache.is_updated[layer] = True
        memory_keys = [(across.layers[layer].keys, across.layers[layer].values) for layer in layers]
        past = [LayerCache(cache.self_attention_cache, layer) for layer in layers]
        return self.transformer.decode_step(
            decoder_input_ids, memory_keys, padding_mask(source_BS), past, weights
        )

    def generate(
        self, *inputs: Any, stopping_criteria: StoppingCriteriaList | None = None, **kwargs: Any
    ) -> Any:
        """Generate as transformers does, but stop at the model's last position."""
        criteria = StoppingCriteriaList(
            [
                *(stopping_criteria or ()),
                MaxPositionsCriteria(self.transformer.config.max_positions),
            ]
        )
        if kwargs.get("max_new_tokens") is not None:
            # without this, transformers warns at each call that both limits are set
            kwargs.setdefault("max_length", None)
        return super().generate(*inputs, stopping_criteria=criteria, **kwargs)  # type: ignore[misc]

    def prepare_inputs_for_generation(  # type: ignore[override]
        self,
        decoder_input_ids: Tensor,
        encoder_outputs: BaseModelOutput | None = None,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the inputs of a step: only the target positions that are not in the cache yet."""
        past_length = 0 if past_key_values is None else int(past_key_values.get_seq_length())
        return {
            "decoder_input_ids": decoder_input_ids[:, past_length:],
            "past_key_values": past_key_values,
            "encoder_outputs": encoder_outputs,
            "attention_mask": attention_mask,
            "output_attentions": output_attentions,
        }


def register() -> None:
    """Register the classes of this file with the Auto classes of this process.

    `from_pretrained(..., trust_remote_code=False)` then loads a package with these classes and
    never runs the code in the package.
    """
    AutoConfig.register(PlaygroundConfig.model_type, PlaygroundConfig, exist_ok=True)
    AutoModelForSeq2SeqLM.register(PlaygroundConfig, PlaygroundForSeq2SeqLM, exist_ok=True)


def _apply_attention_mask(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return the source (BS) with PAD wherever the mask is 0."""
    return input_ids if attention_mask is None else input_ids.masked_fill(attention_mask == 0, PAD)


def _check_length(name: str, tokens_BS: Tensor, config: ModelConfig, past_length: int = 0) -> None:
    length = past_length + tokens_BS.shape[1]
    if length > config.max_positions:
        raise ValueError(
            f"{name} has {length} tokens, but the model has max_positions {config.max_positions}; "
            f"shorten the sequence"
        )
