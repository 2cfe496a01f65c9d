"""Untrained models: with random weights, and with handcrafted weights of known functions."""

import torch

from playground.architectures.encoder_decoder import RecurrentModel, TransformerModel
from playground.inspection.head_patterns import NUM_SEQUENCES, score_heads
from playground.inspection.inspected_model import InspectedModel
from playground.tasks.vocabulary import SPECIAL_TOKENS
from playground.training.run_config import RunConfig

SEQUENCE_LENGTH = 5
VOCAB_SIZE = 13  # PAD, SOS, EOS and ten digits
POSITION_COLUMNS = slice(13, 19)
REVERSING_HEAD = (0, 0)  # layer and head of the cross-attention that reverses

NON_STANDARD_SETTINGS = [  # settings that differ from the paper
    {"position_type": "none", "activation": "gelu", "bias": False},
    {"position_type": "learned-from-end", "norm_type": "rms", "norm_placement": "post"},
    {"position_type": "rope", "n_kv_heads": 2, "d_k": 6, "d_v": 5},
    {"position_type": "alibi", "n_kv_heads": 1, "activation": "swiglu", "n_layers": 1},
    {"position_type": "t5", "norm_type": "rms", "activation": "swiglu", "n_layers": 1}
    | {"bias": False},
    {"position_type": "randomized", "n_heads": 3, "d_k": 4, "d_v": 4, "n_layers": 1},
]
VARIANTS = [
    {"norm_placement": "pre"},
    {"norm_placement": "post", "position_type": "sinusoidal", "sinusoidal_scale": 0.7}
    | {"attention_bias": False},
    {"n_layers": 1, "n_heads": 1, "tie_output_embeddings": True, "share_embeddings": True},
    *NON_STANDARD_SETTINGS,
]


def random_model(**changes):
    """Build a small model whose biases and norms differ from their defaults."""
    torch.manual_seed(0)
    settings = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 24, "max_length": 6}
    config = RunConfig.from_flat(settings | {"max_positions": 9} | changes)
    model = TransformerModel(config.model)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return InspectedModel.from_model(config, model.eval())


def recurrent_model(**settings):
    """Build a small recurrent model with random weights."""
    torch.manual_seed(0)
    defaults = {"architecture": "recurrent", "d_model": 8, "attention": "none", "n_layers": 2}
    config = RunConfig.from_flat(defaults | settings)
    return InspectedModel.from_model(config, RecurrentModel(config.model))


@torch.no_grad()
def reversing_model():
    """Reverse five digits with one cross-attention head.

    A vector has the layout [token: 13 | position: 6 | next token: 13].

    At target position t, the reversing head attends to the source position of the next token,
    4 - t (EOS for t = 5), and copies its token to the third part, which the output layer reads. All
    other heads have random queries, keys and values, and write random numbers where no component
    reads them: to the first part in the decoder, and to the third part in the encoder. The
    feed-forward networks output zero.
    """
    torch.manual_seed(0)
    sizes = {"d_model": 32, "n_heads": 2, "n_layers": 2, "d_ff": 8}
    lengths = dict.fromkeys(("min_length", "max_length"), SEQUENCE_LENGTH)
    config = RunConfig.from_flat(sizes | lengths | {"max_positions": SEQUENCE_LENGTH + 1})
    model = TransformerModel(config.model)
    for embedding in (model.source_embedding, model.target_embedding):
        embedding.token_embedding.weight.copy_(torch.eye(VOCAB_SIZE, 32) / embedding.scale)
        positions = torch.roll(torch.eye(SEQUENCE_LENGTH + 1, 32), POSITION_COLUMNS.start, dims=1)
        embedding.position_embedding.copy_(positions)
    for layer in [*model.encoder_layers, *model.decoder_layers]:
        layer.feed_forward.down_proj.weight.zero_()
        layer.feed_forward.down_proj.bias.zero_()
    ignored_outputs = [(layer.self_attn, slice(19, 32)) for layer in model.encoder_layers]
    for layer in model.decoder_layers:
        ignored_outputs += [(layer.self_attn, slice(0, 13)), (layer.cross_attn, slice(0, 13))]
    for attention, columns in ignored_outputs:
        attention.out_proj.weight.zero_()
        attention.out_proj.bias.zero_()
        attention.out_proj.weight[columns] = 0.02 * torch.randn(13, 32)

    attention_layer = model.decoder_layers[REVERSING_HEAD[0]].cross_attn
    head = slice(REVERSING_HEAD[1] * 16, REVERSING_HEAD[1] * 16 + 16)
    query, key = attention_layer.q_proj.weight, attention_layer.k_proj.weight
    value = attention_layer.v_proj.weight
    for matrix in (query, key, value):
        matrix[head] = 0
    for t in range(SEQUENCE_LENGTH + 1):
        reversed_t = (SEQUENCE_LENGTH - 1 - t) % (SEQUENCE_LENGTH + 1)
        query[head][t, POSITION_COLUMNS.start + t] = 10
        key[head][t, POSITION_COLUMNS.start + reversed_t] = 10
    identity, output = torch.eye(VOCAB_SIZE), attention_layer.out_proj.weight
    value[head][:VOCAB_SIZE, :VOCAB_SIZE] = identity
    output[:, head] = 0
    output[19:32, head.start : head.start + VOCAB_SIZE] = identity

    model.output_proj.weight.zero_()
    model.output_proj.bias.zero_()
    model.output_proj.weight[:, 19:32] = 10 * torch.eye(VOCAB_SIZE)
    return InspectedModel.from_model(config, model)


@torch.no_grad()
def reversing_model_without_eos():
    """Reverse five digits like a model that was trained without EOS, which never writes it."""
    subject = reversing_model()
    subject.model.output_proj.bias[: len(SPECIAL_TOKENS)] = -1000
    return InspectedModel.from_model(subject.config.replace(predict_eos=False), subject.model)


@torch.no_grad()
def redundant_heads_model():
    """Build the reversing model with two equal cross-attention heads, either of which suffices."""
    model = reversing_model()
    attention = model.transformer.decoder_layers[0].cross_attn
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight[16:] = projection.weight[:16]
    attention.out_proj.weight[:, 16:] = attention.out_proj.weight[:, :16]
    return model


def score_held_out(subject, n=NUM_SEQUENCES):
    """Score every head over `n` held-out sequences."""
    return score_heads(subject, subject.held_out(n).batch)
