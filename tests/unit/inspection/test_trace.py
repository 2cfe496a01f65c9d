import itertools

import pytest
import torch

from playground.inspection.attention_recording import record_teacher_forced
from playground.inspection.forward_trace import ForwardTrace
from playground.inspection.hooks import Component
from playground.inspection.source_lines import STAGE_LINES, find_source_line
from playground.lessons.bug_injection import original_function
from playground.lessons.bugs import BUGS
from playground.models.attention import scaled_dot_product_attention
from playground.models.position_encoding import RelativePositionEncoding
from tests.support.app_server import ROOT
from tests.support.handcrafted_models import VARIANTS, random_model

ATTENTION = ["queries", "keys", "values", "scores", "mask", "masked scores", "softmax"]
ATTENTION += ["weighted sum", "output projection"]
NETWORK = {
    "relu": ["up projection", "ReLU", "down projection"],
    "gelu": ["up projection", "GELU", "down projection"],
    "swiglu": ["gate projection", "up projection", "SwiGLU", "down projection"],
}


def own_attention(config):
    """Return the stages of self-attention, which has relative positions."""
    before, after = ATTENTION[:3], ATTENTION[4:]
    turned = ["rotated queries", "rotated keys"] if config.position_type == "rope" else []
    distance = ["position bias", "biased scores"] if config.position_type in ("alibi", "t5") else []
    return [*before, *turned, "scores", *distance, *after]


def trace_of(text="5 3 9", **changes):
    subject = random_model(**changes)
    batch = subject.encode_text(text)
    return subject, batch, ForwardTrace(batch)


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
    pre, network = config.norm_placement == "pre", NETWORK[config.activation]
    own, embedding = own_attention(config), ["token embeddings"]
    embedding += ["position vectors", "sum"] if config.n_position_vectors else []
    expected = {"source embedding": embedding}
    layers = range(1, subject.transformer.config.n_layers + 1)

    def sublayer(names):
        return ["norm", *names, "residual"] if pre else [*names, "residual", "norm"]

    for i in layers:
        expected[f"encoder self-attention, layer {i}"] = sublayer(own)
        expected[f"encoder feed-forward, layer {i}"] = sublayer(network)
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
def test_trace_ends_at_model_logits_and_matches_recorded_attention(overrides):
    subject, batch, trace = trace_of(**overrides)
    recording = record_teacher_forced(subject.transformer, batch)
    assert torch.equal(trace.stage("output", "logits").tensor, recording.logits_BTV[0])
    layers = range(subject.transformer.config.n_layers)
    for kind, layer in itertools.product(("encoder", "decoder", "cross"), layers):
        block = Component(kind, layer).name
        rendered, mask = trace.stage(block, "softmax").tensor, trace.stage(block, "mask").tensor
        assert torch.equal(rendered, recording.attention_weights[kind][layer, 0])
        assert torch.equal(mask, recording.attn_mask[kind][0])


@pytest.mark.parametrize("overrides", VARIANTS)
def test_each_stage_follows_from_those_before_it(overrides):
    subject, _, trace = trace_of(**overrides)
    config, x = subject.transformer.config, None
    for block, stages in blocks(trace).items():
        at = {stage.name: stage.tensor.detach() for stage in stages}
        if "sum" in at:
            torch.testing.assert_close(at["sum"], at["token embeddings"] + at["position vectors"])
        if "softmax" in at:
            queries, keys = (at.get(f"rotated {name}", at[name]) for name in ("queries", "keys"))
            scores = queries @ keys.mT / queries.shape[-1] ** 0.5
            torch.testing.assert_close(at["scores"], scores)
            if "position bias" in at:
                scores = scores + at["position bias"]
                torch.testing.assert_close(at["biased scores"], scores)
            scores = scores.masked_fill(~at["mask"], -torch.inf)
            torch.testing.assert_close(at["masked scores"], scores)
            torch.testing.assert_close(at["softmax"], scores.softmax(-1))
            torch.testing.assert_close(at["weighted sum"], at["softmax"] @ at["values"])
        if "residual" in at:
            output = at.get("output projection", at.get("down projection"))
            torch.testing.assert_close(at["residual"], x + output)
        if block == "output":
            torch.testing.assert_close(at["probabilities"], at["logits"].softmax(-1))
        is_pre = "residual" in at and config.norm_placement == "pre"
        x = at["residual"] if is_pre else stages[-1].tensor.detach()


def test_the_decoder_input_is_the_shifted_target(mixed):
    trace = ForwardTrace(mixed.encode_text("5 3 9"))
    assert trace.decoder_input == ["SOS", "9", "3", "5"]
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


BUG_LINES = {
    name: (original_function(bug.location), bug.correct_line) for name, bug in BUGS.items()
}


@pytest.mark.parametrize("name", [*STAGE_LINES, *BUG_LINES])
def test_each_line_that_a_view_or_lesson_shows_is_in_the_source(name):
    assert find_source_line(*(STAGE_LINES | BUG_LINES)[name]).file.startswith("playground/models/")


def test_a_missing_or_repeated_line_raises():
    with pytest.raises(LookupError, match="scaled_dot_product_attention has 0 lines with 'cosine'"):
        find_source_line(scaled_dot_product_attention, "cosine")
    with pytest.raises(LookupError, match="scaled_dot_product_attention has 2 lines"):
        find_source_line(scaled_dot_product_attention, "weights_BHQM")


def test_missing_stages_are_rejected():
    _, _, trace = trace_of()
    with pytest.raises(KeyError, match="no stage 'color'"):
        trace.stage("output", "color")
    with pytest.raises(KeyError, match="cross-attention, layer 3"):
        trace.stage(Component("cross", 2).name, "scores")


@pytest.mark.parametrize("is_scaled", [True, False])
def test_the_formula_of_token_embeddings_has_their_scale_if_there_is_one(is_scaled):
    _, _, trace = trace_of(scale_embeddings=is_scaled)
    for stage in (each for each in trace.stages if each.name == "token embeddings"):
        assert ("sqrt" in stage.formula) == is_scaled


def test_a_new_encoding_that_rotates_has_stages_with_its_line():
    class Mirrored(RelativePositionEncoding):
        def rotate(self, x_BHPK, first_position=0):
            return x_BHPK.flip(-1)

    subject = random_model(position_type="none")
    for layer in (*subject.transformer.encoder_layers, *subject.transformer.decoder_layers):
        layer.self_attn.position_encoding = Mirrored()
    trace = ForwardTrace(subject.encode_text("5 3 9"))
    before, after = (
        trace.stage("encoder self-attention, layer 1", name) for name in ("keys", "rotated keys")
    )
    assert torch.equal(after.tensor, before.tensor.flip(-1))
    assert find_source_line(*after.line).text == "def rotate(self, x_BHPK, first_position=0):"
    cross = blocks(trace)["cross-attention, layer 1"]
    assert not any(stage.name.startswith("rotated") for stage in cross)
