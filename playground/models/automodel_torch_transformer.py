"""The encoder-decoder from PyTorch's own layers, as a class that Auto classes load.

This file and those that it imports are uploaded to the Hub unchanged.
"""

from .automodel import TransformerForSeq2SeqLM
from .automodel_base import EncoderDecoderConfig
from .config import TorchTransformerConfig
from .torch_transformer import TorchTransformer


class PlaygroundTorchTransformerConfig(EncoderDecoderConfig):
    """The sizes in the form of transformers."""

    model_type = "transformer-playground-torch-transformer"
    model_config_class = TorchTransformerConfig


class PlaygroundTorchTransformerForSeq2SeqLM(TransformerForSeq2SeqLM):
    """The encoder-decoder from PyTorch's own layers for transformers; it has no cache."""

    config_class = PlaygroundTorchTransformerConfig
    network_class = TorchTransformer
