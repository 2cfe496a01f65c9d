import itertools

import pytest
import torch

from playground.inspection import trace_attention
from playground.inspection.attention_recording import record_teacher_forced
from playground.inspection.hooks import Component, all_heads
from playground.inspection.inspected_model import InspectionError
from playground.inspection.trace import ForwardTrace
from playground.inspection.trace_stage import Equation, find_source_line
from playground.models.attention import scaled_dot_product_attention
from playground.models.feed_forward import FeedForward
from tests.support.app_server import ROOT
from tests.support.handcrafted_models import NON_STANDARD_SETTINGS, random_model

VARIANTS = [
    {"norm_placement": "pre"},
    {"norm_placement": "post", "position_type": "sinusoidal", "attention_bias": False},
    {
        "norm_placement": "pre",
        "n_layers": 1,
        "n_heads": 1,
        "tie_output_embeddings": True,
        "share_embeddings": True,
    },
    *NON_STANDARD_SETTINGS,
]
ATTENTION = [
    "queries",
    "keys",
    "values",
    "scores",
    "mask",
    "masked scores",
    "softmax",
    "weighted sum",
    "output projection",
]
NETWORK = {
    "relu": ["up projection", "ReLU", "down projection"],
    "gelu": ["up projection", "GELU", "down projection"],
    "swiglu": ["gate projection", "up projection", "SwiGLU", "down projection"],
}


def own_attention(config):
    """Return the stages of self-attention, which has relative positions."""
    before, after = (
        ATTENTION[: ATTENTION.index("scores")],
        ATTENTION[ATTENTION.index("scores") + 1 :],
    )
    turned = ["rotated queries", "rotated keys"] if config.position_type == "rope" else []
    distance = ["position bias", "biased scores"] if config.position_type in ("alibi", "t5") else []
    return [*before, *turned, "scores", *distance, *after]


def trace_of(text="5 3 9", **changes):
    subject = random_model(**changes)
    batch = subject.encode_text(text)
    return subject, batch, ForwardTrace(subject.transformer, batch)


def blocks(trace):
    return {
        block: list(stages)
        for block, stages in itertools.groupby(trace.stages, key=lambda stage: stage.block)
    }


@pytest.mark.parametrize("overrides", VARIANTS)
def test_stages_are_in_order_of_computation(overrides):
    subject, _, trace = trace_of(**overrides)
    actual = {block: [stage.name for stage in stages] for block, stages in blocks(trace).items()}
    config = subject.transformer.config
    pre, network, own = (
        config.norm_placement == "pre",
        NETWORK[config.activation],
        own_attention(config),
    )
    embedding = (
        ["token embeddings", "position vectors", "sum"]
        if config.n_position_vectors
        else ["token embeddings"]
    )
    expected = {"source embedding": embedding}
    layers = range(1, subject.transformer.config.n_layers + 1)

    def sublayer(names):
        return ["norm", *names, "residual"] if pre else [*names, "residual", "norm"]

    for i in layers:
        expected |= {
            f"encoder self-attention, layer {i}": sublayer(own),
            f"encoder feed-forward, layer {i}": sublayer(network),
        }
    expected |= {"encoder final norm": ["norm"]} if pre else {}
    expected |= {"target embedding": embedding}
    for i in layers:
        expected[f"decoder self-attention, layer {i}"] = sublayer(own)
        expected[f"cross-attention, layer {i}"] = sublayer(ATTENTION)
        expected[f"decoder feed-forward, layer {i}"] = sublayer(network)
    expected |= {"decoder final norm": ["norm"]} if pre else {}
    expected |= {"output": ["logits", "probabilities"]}
    assert actual == expected
    assert list(actual) == list(expected)


@pytest.mark.parametrize("overrides", VARIANTS)
def test_every_stage_follows_from_the_stages_before_it(overrides):
    """Each formula, applied to the displayed tensors, gives the next tensor."""
    subject, _, trace = trace_of(**overrides)
    family, pre = subject.transformer, subject.transformer.config.norm_placement == "pre"
    close = {"atol": 1e-5, "rtol": 1e-5}
    x = memory = None
    for block, stages in blocks(trace).items():
        tensor = {stage.name: stage.tensor for stage in stages}
        if block.endswith("embedding"):
            memory = x
            tokens = trace.source if block.startswith("source") else trace.decoder_input
            table = (
                family.source_embedding if block.startswith("source") else family.target_embedding
            )
            torch.testing.assert_close(
                tensor["token embeddings"],
                table.token_embedding.weight.detach()[tokens] * table.scale,
            )
            x = table(torch.tensor([tokens]))[0].detach()
            if subject.transformer.config.n_position_vectors:
                torch.testing.assert_close(
                    tensor["sum"], tensor["token embeddings"] + tensor["position vectors"]
                )
            torch.testing.assert_close(
                tensor[
                    "sum" if subject.transformer.config.n_position_vectors else "token embeddings"
                ],
                x,
            )
            if subject.transformer.config.position_type in ("learned", "sinusoidal"):
                assert torch.equal(
                    tensor["position vectors"], table.position_embedding.detach()[: len(tokens)]
                )
        elif block.endswith("final norm"):
            norm = family.encoder_norm if block.startswith("encoder") else family.decoder_norm
            torch.testing.assert_close(tensor["norm"], norm(x).detach(), **close)
            x = tensor["norm"]
        elif block == "output":
            torch.testing.assert_close(tensor["logits"], family.output_proj(x).detach(), **close)
            torch.testing.assert_close(tensor["probabilities"], tensor["logits"].softmax(-1))
        else:
            part = next(
                c
                for c in [*all_heads(family.config), *map_networks(family.config)]
                if c.name.startswith(block)
            )
            around = family.get_submodule(f"{part.module_name}_residual")
            module = family.get_submodule(part.module_name)
            inputs = tensor["norm"] if pre else x
            if pre:
                torch.testing.assert_close(tensor["norm"], around.norm(x).detach(), **close)
            if "down projection" in tensor:
                torch.testing.assert_close(
                    tensor["up projection"], module.up_proj(inputs).detach(), **close
                )
                if "gate projection" in tensor:
                    inside = (
                        torch.nn.functional.silu(module.gate_proj(inputs)) * tensor["up projection"]
                    )
                else:
                    inside = getattr(torch.nn.functional, family.config.activation)(
                        tensor["up projection"]
                    )
                rendered = tensor[NETWORK[family.config.activation][-2]]
                torch.testing.assert_close(rendered, inside.detach(), **close)
                result = tensor["down projection"]
                torch.testing.assert_close(result, module.down_proj(rendered).detach(), **close)
            else:
                key, value = module.project_kv((memory if part.kind == "cross" else inputs)[None])
                sharing = family.config.n_heads // family.config.n_kv_heads_resolved
                actual_keys = tensor.get("rotated keys", tensor["keys"])
                torch.testing.assert_close(
                    actual_keys, key[0].detach().repeat_interleave(sharing, 0), **close
                )
                torch.testing.assert_close(
                    tensor["values"], value[0].detach().repeat_interleave(sharing, 0), **close
                )
                queries = (
                    module.q_proj(inputs).unflatten(-1, (family.config.n_heads, -1)).transpose(0, 1)
                )
                torch.testing.assert_close(tensor["queries"], queries.detach(), **close)
                if "rotated queries" in tensor:
                    for name in ("queries", "keys"):
                        rotated = module.position_encoding.rotate(tensor[name][None])[0]
                        torch.testing.assert_close(tensor[f"rotated {name}"], rotated, **close)
                query, key = (
                    tensor.get(f"rotated {name}", tensor[name]) for name in ("queries", "keys")
                )
                scores = torch.einsum("hqk,hmk->hqm", query, key) / query.shape[-1] ** 0.5
                torch.testing.assert_close(tensor["scores"], scores, **close)
                if "position bias" in tensor:
                    torch.testing.assert_close(
                        tensor["biased scores"],
                        tensor["scores"] + tensor["position bias"],
                        **close,
                    )
                assert torch.equal(
                    tensor["masked scores"].isinf(), ~tensor["mask"].expand_as(scores)
                )
                assert torch.equal(tensor["masked scores"].softmax(-1), tensor["softmax"])
                torch.testing.assert_close(
                    tensor["weighted sum"], tensor["softmax"] @ tensor["values"]
                )
                result = tensor["output projection"]
                torch.testing.assert_close(
                    result,
                    module.out_proj(tensor["weighted sum"].transpose(0, 1).flatten(1)).detach(),
                    **close,
                )
            torch.testing.assert_close(tensor["residual"], x + result)
            x = tensor["residual"]
            if not pre:
                torch.testing.assert_close(tensor["norm"], around.norm(x).detach(), **close)
                x = tensor["norm"]


def map_networks(config):
    return [
        Component(f"{side} feed-forward", layer)
        for side in ("encoder", "decoder")
        for layer in range(config.n_layers)
    ]


@pytest.mark.parametrize("overrides", VARIANTS)
def test_trace_ends_at_model_logits_and_matches_recorded_attention(overrides):
    subject, batch, trace = trace_of(**overrides)
    recording = record_teacher_forced(subject.transformer, batch)
    assert torch.equal(trace.stage("output", "logits").tensor, recording.logits_BTV[0])
    for kind, layer in itertools.product(
        ("encoder", "decoder", "cross"), range(subject.transformer.config.n_layers)
    ):
        rendered = trace.stage(Component(kind, layer).name, "softmax").tensor
        assert torch.equal(rendered, recording.attention_weights[kind][layer, 0])
        assert torch.equal(
            trace.stage(Component(kind, layer).name, "mask").tensor, recording.attn_mask[kind][0]
        )


def test_the_decoder_input_is_the_shifted_target(mixed):
    trace = ForwardTrace(mixed.transformer, mixed.encode_text("5 3 9"))
    assert mixed.token_names(trace.decoder_input) == ["SOS", "9", "3", "5"]
    logits_TV = trace.stage("output", "logits").tensor
    assert mixed.token_names(logits_TV.argmax(-1).tolist()) == ["9", "3", "5", "EOS"]


def test_shapes_are_written_in_letters_and_numbers():
    _, _, trace = trace_of("5 3 9 1")
    assert trace.stage("cross-attention, layer 2", "scores").size == "H Q M = 4 × 5 × 5"
    assert trace.stage("encoder feed-forward, layer 1", "up projection").size == "S F = 5 × 24"
    assert trace.stage("output", "logits").size == "T V = 5 × 13"
    for stage in trace.stages:
        assert len(stage.shape) == stage.tensor.dim()
        assert set(stage.shape) <= set("STQMHKDFV")


@pytest.mark.parametrize("overrides", VARIANTS)
def test_every_stage_names_a_line_of_the_source(overrides):
    _, _, trace = trace_of(**overrides)
    for stage in trace.stages:
        lines = (ROOT / stage.code.file).read_text(encoding="utf-8").splitlines()
        assert stage.code.file.startswith("playground/models/")
        assert lines[stage.code.line - 1].strip() == stage.code.text
        assert stage.code.text
    scores = trace.stage("cross-attention, layer 1", "scores")
    assert scores.code.text.startswith("scores_BHQM = query_BHQK @ key_BHMK.transpose(-2, -1)")


def test_a_missing_or_repeated_anchor_raises():
    with pytest.raises(LookupError, match="scaled_dot_product_attention has 0 lines with 'cosine'"):
        find_source_line(scaled_dot_product_attention, "cosine")
    with pytest.raises(LookupError, match="scaled_dot_product_attention has 2 lines"):
        find_source_line(scaled_dot_product_attention, "weights_BHQM")
    assert (
        find_source_line(FeedForward.forward, "up_proj").text
        == "return self.down_proj(self.dropout(self.activation(self.up_proj(x_BSD))))"
    )


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_any_score_is_the_dot_product_of_its_query_and_key(kind):
    _, _, trace = trace_of("5 3 9 1")
    for layer, head, query, key in itertools.product(range(2), range(4), range(5), range(5)):
        stage = trace.stage(Component(kind, layer).name, "scores")
        product = stage.explain(head, query, key)
        assert product.value == pytest.approx(float(stage.tensor[head, query, key]), abs=1e-5)
        total = float((product.left_K * product.right_K).sum())
        assert product.value == pytest.approx(total / product.root, abs=1e-5)
        assert (product.root, product.query, product.key) == (2, query, key)
        assert product.attended == (kind != "decoder" or key <= query)


@pytest.mark.parametrize("position_type", ["rope", "alibi", "t5"])
def test_a_score_includes_the_position_encoding_of_self_attention(position_type):
    _, _, trace = trace_of("5 3 9 1", position_type=position_type, n_kv_heads=2)
    for kind, query, key in itertools.product(("encoder", "decoder", "cross"), range(5), range(5)):
        name = "biased scores" if position_type != "rope" and kind != "cross" else "scores"
        stage = trace.stage(Component(kind, 1).name, name)
        product = stage.explain(3, query, key)
        assert product.value == pytest.approx(float(stage.tensor[3, query, key]), abs=1e-5)
        assert (product.bias is not None) == (name != "scores")
        total = float((product.left_K * product.right_K).sum())
        expected = total / product.root + (product.bias or 0)
        assert product.value == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_any_head_output_is_its_weighted_sum(kind):
    _, _, trace = trace_of("5 3 9 1")
    for layer, head, query in itertools.product(range(2), range(4), range(5)):
        stage = trace.stage(Component(kind, layer).name, "weighted sum")
        total = stage.explain(head, query, 0)
        expected = stage.tensor[head, query]
        torch.testing.assert_close(total.result_N, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(total.terms_RN.sum(0), expected, atol=1e-5, rtol=1e-5)
        weights = trace.stage(stage.block, "softmax").tensor[head, query]
        assert torch.equal(total.weights_R, weights)
        assert total.terms_RN.shape == (5, 4)


def test_every_equation_gives_the_value_of_its_stage():
    """The variables of every kind of equation, put into the formula, give the number."""
    formulas = {
        "E · scale": lambda e, scale: e * scale,
        "token embedding + position vector": lambda token, position: token + position,
        "x + output": lambda x, output: x + output,
        "max(0, a)": lambda a: max(0.0, a),
        "a · probability": lambda a, probability: a * probability,
        "g · sigmoid(g) · a": lambda g, sigmoid, a: g * sigmoid * a,
        "x / RMS · weight": lambda x, rms, weight: x / rms * weight,
        "(x − mean) / deviation · weight": lambda x, mean, std, weight: (x - mean) / std * weight,
        "(x − mean) / deviation · weight + bias": lambda x, mean, std, weight, bias: (
            (x - mean) / std * weight + bias
        ),
        "exp(score − maximum) / sum": lambda exp, total: exp / total,
        "exp(logit − maximum) / sum": lambda exp, total: exp / total,
        "first · cosine − second · sine": lambda a, b, cos, sin: a * cos - b * sin,
        "second · cosine + first · sine": lambda a, b, cos, sin: b * cos + a * sin,
        "−slope · distance": lambda slope, distance: -slope * distance,
    }
    formulas_in_use = set()
    for settings in (
        {},
        {"norm_placement": "post", "activation": "gelu", "position_type": "alibi"},
        {"norm_type": "rms", "activation": "swiglu", "position_type": "rope"},
        {"bias": False},
    ):
        for stage in trace_of("5 3 9 1", **settings)[2].stages:
            for row, column in itertools.product(range(3), range(3)):
                origin = stage.explain(1, row, column)
                if isinstance(origin, Equation) and origin.formula in formulas:
                    formulas_in_use.add(origin.formula)
                    value = formulas[origin.formula](*origin.variables.values())
                    assert value == pytest.approx(origin.value, abs=1e-5)
    assert formulas_in_use == set(formulas)


def test_missing_files_are_rejected(mixed):
    _, _, trace = trace_of()
    with pytest.raises(KeyError, match="no stage 'color'"):
        trace.stage("output", "color")
    with pytest.raises(KeyError, match="cross-attention, layer 3"):
        trace.stage(Component("cross", 2).name, "scores")
    with pytest.raises(IndexError):
        trace.stage(Component("cross", 0).name, "scores").explain(0, 9, 0)
    with pytest.raises(InspectionError, match="the batch has 2 sequences"):
        ForwardTrace(mixed.transformer, mixed.held_out(2).batch)


def test_a_trace_names_only_existing_source_lines(monkeypatch):
    monkeypatch.setattr(trace_attention, "scaled_dot_product_attention", FeedForward.forward)
    with pytest.raises(LookupError, match="forward has 0 lines with 'scores_BHQM = query'"):
        trace_of()
