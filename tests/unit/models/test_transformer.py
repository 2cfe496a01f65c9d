import functools
import itertools

import pytest
import torch
from torch import nn

from playground.models.attention import padding_mask
from playground.models.config import paper_base_config
from playground.models.transformer import Transformer
from tests.support.small_models import build_small

S, T = 7, 6
PARTS = [
    *(
        {"position_type": kind}
        for kind in ("none", "learned-from-end", "rope", "alibi", "t5", "randomized")
    ),
    {"norm_type": "rms", "activation": "swiglu", "n_kv_heads": 2, "bias": False},
    {
        "n_kv_heads": 1,
        "d_k": 6,
        "d_v": 10,
        "activation": "gelu",
        "position_type": "rope",
        "norm_placement": "post",
    },
]
VARIANTS = [
    dict(zip(("norm_placement", "position_type"), pair, strict=True))
    for pair in itertools.product(("pre", "post"), ("learned", "sinusoidal"))
] + PARTS


build = functools.partial(build_small, Transformer)


def tokens():
    """Sources (BS) and decoder inputs (BT) of three lengths, padded after EOS."""
    generator = torch.Generator().manual_seed(1)
    source_BS, target_BT = (torch.randint(3, 13, (3, n), generator=generator) for n in (S, T))
    for row, length in enumerate((6, 4, 1)):
        source_BS[row, length], source_BS[row, length + 1 :] = 2, 0
        target_BT[row, 0], target_BT[row, length + 1 :] = 1, 0
    return source_BS, target_BT


def prebuilt(model):
    """Return PyTorch's encoder and decoder with the weights of a model."""
    config = model.config
    sizes = {"d_model": config.d_model, "nhead": config.n_heads, "dim_feedforward": config.d_ff}
    sizes |= {"dropout": 0.0, "batch_first": True, "norm_first": config.norm_placement == "pre"}
    sizes |= {"activation": config.activation, "bias": config.bias}
    final = [
        nn.LayerNorm(config.d_model, bias=config.bias) if config.norm_placement == "pre" else None
        for _ in range(2)
    ]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**sizes), config.n_layers, final[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), config.n_layers, final[1])
    torch_module = nn.Transformer(
        config.d_model,
        config.n_heads,
        custom_encoder=encoder,
        custom_decoder=decoder,
        batch_first=True,
    )
    pairs = []
    for ours, layer in [
        *zip(model.encoder_layers, encoder.layers, strict=True),
        *zip(model.decoder_layers, decoder.layers, strict=True),
    ]:
        pairs += [
            (ours.feed_forward.up_proj, layer.linear1),
            (ours.feed_forward.down_proj, layer.linear2),
        ]
        pairs += [(ours.self_attn_residual.norm, layer.norm1)]
        copy_attention(ours.self_attn, layer.self_attn)
        if hasattr(layer, "multihead_attn"):
            pairs += [
                (ours.cross_attn_residual.norm, layer.norm2),
                (ours.feed_forward_residual.norm, layer.norm3),
            ]
            copy_attention(ours.cross_attn, layer.multihead_attn)
        else:
            pairs += [(ours.feed_forward_residual.norm, layer.norm2)]
    if config.norm_placement == "pre":
        pairs += [(model.encoder_norm, encoder.norm), (model.decoder_norm, decoder.norm)]
    for ours, layer in pairs:
        layer.load_state_dict(ours.state_dict())
    return torch_module


@torch.no_grad()
def copy_attention(ours, torch_module):
    """torch packs queries, keys and values into one projection; where ours has no biases, its
    biases are zero.
    """
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    torch_module.in_proj_weight.copy_(torch.cat([linear.weight for linear in projections]))
    torch_module.out_proj.weight.copy_(ours.out_proj.weight)
    if torch_module.in_proj_bias is not None:
        torch_module.in_proj_bias.zero_()
        torch_module.out_proj.bias.zero_()
    if ours.q_proj.bias is not None:
        torch_module.in_proj_bias.copy_(torch.cat([linear.bias for linear in projections]))
        torch_module.out_proj.bias.copy_(ours.out_proj.bias)


@pytest.mark.parametrize("attention_bias", [True, False])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("others", [{}, {"activation": "gelu"}, {"bias": False}], ids=str)
def test_equal_weights_give_the_output_of_torchs_transformer(norm, attention_bias, others):
    model = build(norm_placement=norm, attention_bias=attention_bias, **others)
    torch_module = prebuilt(model)
    source_BS, target_BT = tokens()
    no_source_BS, no_target_BT = source_BS == 0, target_BT == 0
    source_BSD, target_BTD = model.source_embedding(source_BS), model.target_embedding(target_BT)
    memory_BSD = torch_module.encoder(source_BSD, src_key_padding_mask=no_source_BS)
    result_BTD = torch_module(
        source_BSD,
        target_BTD,
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        src_key_padding_mask=no_source_BS,
        tgt_key_padding_mask=no_target_BT,
        memory_key_padding_mask=no_source_BS,
    )
    close = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(model.encode(source_BS), memory_BSD, **close)
    ours_BTD, ours_BTV = (
        model.decode(target_BT, model.encode(source_BS), source_BS),
        model(source_BS, target_BT),
    )
    real_BT = ~no_target_BT  # outputs at padding do not matter
    assert real_BT.sum() < real_BT.numel()
    torch.testing.assert_close(ours_BTD[real_BT], result_BTD[real_BT], **close)
    torch.testing.assert_close(ours_BTV[real_BT], model.output_proj(result_BTD)[real_BT], **close)


@pytest.mark.parametrize("overrides", VARIANTS)
def test_every_source_token_reaches_every_target_position(overrides):
    model = build(**overrides)
    source_BS, target_BT = tokens()
    before_TV = model(source_BS, target_BT)[0]
    for s in range(S):
        changed_BS = source_BS.clone()
        changed_BS[0, s] = 3 + (changed_BS[0, s] - 2) % 10
        assert ((model(changed_BS, target_BT)[0] - before_TV).abs().amax(-1) > 1e-5).all()


@pytest.mark.parametrize("overrides", VARIANTS)
def test_recording_gives_the_logits_of_a_plain_pass(overrides):
    model = build(**overrides)
    logits_BTV, _ = model.forward_with_attention(*tokens())
    assert logits_BTV.shape == (3, T, 13)
    # a plain pass mixes without writing the weights down
    assert torch.allclose(logits_BTV, model(*tokens()), atol=1e-5)


@pytest.mark.parametrize("overrides", VARIANTS)
@pytest.mark.parametrize(
    "cuts", [range(1, T), [], [3]], ids=["one at a time", "at once", "in two parts"]
)
def test_decoding_in_parts_equals_decoding_together(overrides, cuts):
    model = build(**overrides)
    source_BS, target_BT = tokens()
    target_BT = target_BT.clamp(min=3)  # without padding, of which the next test speaks
    target_BT[:, 0] = 1
    memory_BSD = model.encode(source_BS)
    past = model.new_cache(3, T)
    keys = model.project_memory(memory_BSD)
    parts = target_BT.tensor_split(list(cuts), dim=1)
    steps = [model.decode_step(part_BT, keys, padding_mask(source_BS), past) for part_BT in parts]
    torch.testing.assert_close(
        torch.cat(steps, dim=1),
        model.decode(target_BT, memory_BSD, source_BS),
        atol=1e-5,
        rtol=1e-5,
    )


def test_stepwise_decoding_with_pad_in_target_equals_full_decoding():
    model = build()
    source_BS, target_BT = tokens()
    target_BT = target_BT.clamp(min=3)
    target_BT[:, 0], target_BT[:, 2] = 1, 0  # an untrained model may well write PAD and go on
    memory_BSD = model.encode(source_BS)
    past = model.new_cache(3, T)
    keys = model.project_memory(memory_BSD)
    steps = [
        model.decode_step(target_BT[:, t : t + 1], keys, padding_mask(source_BS), past)
        for t in range(T)
    ]
    torch.testing.assert_close(
        torch.cat(steps, dim=1),
        model.decode(target_BT, memory_BSD, source_BS),
        atol=1e-5,
        rtol=1e-5,
    )


def test_projecting_gives_the_log_probabilities_of_the_logits():
    model = build()
    source_BS, target_BT = tokens()
    logits_BTV = model(source_BS, target_BT)
    log_BTV = model.log_probs(model.decode(target_BT, model.encode(source_BS), source_BS))
    torch.testing.assert_close(
        log_BTV, logits_BTV - logits_BTV.exp().sum(-1, keepdim=True).log(), atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(log_BTV.exp().sum(-1), torch.ones(3, T))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_is_active_at_every_site_in_training_mode_only(norm):
    model = build(norm_placement=norm, dropout=0.5, activation_dropout=0.5)
    source_BS, target_BT = tokens()
    quiet_BTV = model(source_BS, target_BT)
    assert torch.equal(model(source_BS, target_BT), quiet_BTV)
    sites = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    assert len(sites) == 2 + 2 * 3 + 2 * 4
    model.train()
    for site in sites:
        for other in sites:
            other.p = 0.5 if other is site else 0.0
        assert not torch.allclose(model(source_BS, target_BT), quiet_BTV, atol=1e-3)
    model.eval()
    assert torch.equal(model(source_BS, target_BT), quiet_BTV)


@pytest.mark.parametrize(("share", "tie"), [*itertools.product([True, False], repeat=2)])
def test_tables_and_output_share_storage_where_configured(share, tie):
    model = build(share_embeddings=share, tie_output_embeddings=tie)
    source, target, output = (
        model.source_embedding.token_embedding.weight,
        model.target_embedding.token_embedding.weight,
        model.output_proj.weight,
    )
    assert (source.data_ptr() == target.data_ptr()) == share
    assert (output.data_ptr() == target.data_ptr()) == tie
    assert len(list(model.parameters())) == len(
        {weight.data_ptr() for weight in model.parameters()}
    )


def test_source_and_target_learn_separate_position_embeddings():
    model = build(share_embeddings=True, position_type="learned")
    assert (
        model.source_embedding.position_embedding.data_ptr()
        != model.target_embedding.position_embedding.data_ptr()
    )


def test_the_papers_base_model_builds_with_vectors_of_its_sizes():
    with torch.device("meta"):
        model = Transformer(paper_base_config())
        logits_BTV = model(torch.ones(2, 9, dtype=torch.long), torch.ones(2, 8, dtype=torch.long))
    assert logits_BTV.shape == (2, 8, 30_000)
    assert model.source_embedding.position_embedding.shape == (5_000, 512)
    assert (len(model.encoder_layers), len(model.decoder_layers)) == (6, 6)


def test_inspection_leaves_no_hooks():
    model = build()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    model.forward_with_attention(*tokens())
    after = {name: dict(vars(module)) for name, module in model.named_modules()}
    assert {name: list(values) for name, values in after.items()} == {
        name: list(values) for name, values in before.items()
    }
