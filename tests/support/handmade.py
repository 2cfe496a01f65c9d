"""Models that are not trained: one of random weights, and one whose every weight is set by hand so that what each part is for
is known beforehand."""

import torch

from playground.families.encoder_decoder import EncoderDecoder
from playground.inspection.subject import Subject
from playground.training.config import RunConfig

LENGTH = 5
TOKENS = 13  # PAD, SOS, EOS and ten digits
PLACES = slice(13, 19)
WORKER = (0, 0)  # layer and head of the cross-attention that reverses

PARTS = [  # models in which something is not as in the paper
    {"positions": "none", "activation": "gelu", "bias": False},
    {"positions": "from-the-end", "norm_kind": "rms", "norm": "post"},
    {"positions": "rope", "kv_heads": 2, "d_k": 6, "d_v": 5},
    {"positions": "alibi", "kv_heads": 1, "activation": "swiglu", "n_layers": 1},
    {"positions": "t5", "norm_kind": "rms", "bias": False, "activation": "swiglu", "n_layers": 1},
    {"positions": "randomised", "n_heads": 3, "d_k": 4, "d_v": 4, "n_layers": 1},
]


def random_subject(**changes):
    """A small model in which no bias and no norm is at its default, so that each of them matters."""
    torch.manual_seed(0)
    settings = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 24, "max_length": 6, "max_positions": 9}
    config = RunConfig.from_fields(settings | changes)
    family = EncoderDecoder(config.model)
    with torch.no_grad():
        for weight in family.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return Subject.of(config, family.eval())


@torch.no_grad()
def reversing_subject():
    """Reverses five digits by one cross-attention head alone. A vector is laid out as [what the token is: 13 | where it
    stands: 6 | what comes next: 13].

    The working head asks, at target position t, for the source position that holds what comes next, 4 - t (EOS for t = 5),
    and carries what the token there is over to the third part, which the output layer reads. All other heads have random
    queries, keys and values, and write random numbers where nobody reads them: into the first part in the decoder, into the
    third in the encoder. Feed-forward networks write zero.
    """
    torch.manual_seed(0)
    config = RunConfig.from_fields(
        {"min_length": LENGTH, "max_length": LENGTH, "d_model": 32, "n_heads": 2, "n_layers": 2, "d_ff": 8, "max_positions": LENGTH + 1}
    )
    family = EncoderDecoder(config.model)
    for embedding in (family.source_embedding, family.target_embedding):
        embedding.tokens.weight.copy_(torch.eye(TOKENS, 32) / embedding.scale)
        embedding.positions.copy_(torch.roll(torch.eye(LENGTH + 1, 32), PLACES.start, dims=1))
    for layer in [*family.encoder_layers, *family.decoder_layers]:
        layer.feed_forward.narrow.weight.zero_()
        layer.feed_forward.narrow.bias.zero_()
    unread = [*[(layer.self_attention, slice(19, 32)) for layer in family.encoder_layers]]
    for layer in family.decoder_layers:
        unread += [(layer.self_attention, slice(0, 13)), (layer.cross_attention, slice(0, 13))]
    for attention, place in unread:
        attention.output.weight.zero_()
        attention.output.bias.zero_()
        attention.output.weight[place] = 0.02 * torch.randn(13, 32)

    worker = family.decoder_layers[WORKER[0]].cross_attention
    head = slice(WORKER[1] * 16, WORKER[1] * 16 + 16)
    query, (key, value) = worker.query.weight, worker.key_value.weight.chunk(2)
    for matrix in (query, key, value):
        matrix[head] = 0
    for t in range(LENGTH + 1):
        query[head][t, PLACES.start + t] = 10
        key[head][t, PLACES.start + (LENGTH - 1 - t) % (LENGTH + 1)] = 10
    value[head][:TOKENS, :TOKENS] = torch.eye(TOKENS)
    worker.output.weight[:, head] = 0
    worker.output.weight[19:32, head.start : head.start + TOKENS] = torch.eye(TOKENS)

    family.output.weight.zero_()
    family.output.bias.zero_()
    family.output.weight[:, 19:32] = 10 * torch.eye(TOKENS)
    return Subject.of(config, family)


@torch.no_grad()
def doubled_subject():
    """The same, but two cross-attention heads of the first layer do the same work, so that either can be missed."""
    subject = reversing_subject()
    attention = subject.family.decoder_layers[0].cross_attention
    for matrix in (attention.query.weight, *attention.key_value.weight.chunk(2)):
        matrix[16:] = matrix[:16]
    attention.output.weight[:, 16:] = attention.output.weight[:, :16]
    return subject
