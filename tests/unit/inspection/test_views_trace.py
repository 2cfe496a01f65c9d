import json
import math

import pytest
import torch

from playground.architectures.parameter_groups import parameter_count
from playground.inspection.forward_trace import ForwardTrace
from playground.inspection.hooks import Component
from playground.inspection.views.fields import MAX_COLUMNS
from tests.support.handcrafted_models import VARIANTS, random_model
from tests.support.inspectors import render_view


def render(subject, view, text="5 3 9", **options):
    actual = render_view(subject, view, {"text": text, **options})
    assert "error" not in actual, actual
    json.dumps(actual, allow_nan=False)  # no infinity, no tensor
    return actual


def refused(subject, view, **options):
    return render_view(subject, view, {"text": "5 3 9", **options})["error"]


def close(value):
    return pytest.approx(value, abs=2e-4, rel=2e-4)


# The view trace.


def test_all_views_of_a_sequence_share_one_teacher_forced_pass():
    subject, passes = random_model(), []
    subject.transformer.register_forward_hook(lambda *_: passes.append(1))
    render(subject, "trace")
    render(subject, "attention-scores", kind="cross")
    render(subject, "attention", mode="teacher-forced")
    render(subject, "lens")
    render(subject, "contributions")
    assert len(passes) == 1
    render(subject, "trace", text="9 3 5")
    assert len(passes) == 2


@pytest.mark.parametrize("overrides", VARIANTS[-3:])
def test_trace_lists_every_stage_in_order_and_renders_each_head(overrides):
    subject = random_model(**overrides)
    path = ForwardTrace(subject.encode_text("5 3 9"))
    stages = render(subject, "trace")["stages"]
    assert [(stage["block"], stage["name"]) for stage in stages] == [
        (stage.block, stage.name) for stage in path.stages
    ]
    for i, stage in enumerate(path.stages):
        assert (stages[i]["formula"], stages[i]["shape"]) == (stage.formula, stage.size)
        finite = stage.tensor[stage.tensor.isfinite()].float()
        assert stages[i]["low"] == close(float(finite.min().detach()))
        assert stages[i]["high"] == close(float(finite.max().detach()))
        code = tuple(stages[i][name] for name in ("file", "line", "text"))
        assert code == (stage.code.file, stage.code.line, stage.code.text)
        head = subject.transformer.config.n_heads - 1
        chosen = render(subject, "trace", stage=f"{stage.block}/{stage.name}", head=head)["chosen"]
        expected = (stage.tensor[head] if stage.shape.startswith("H") else stage.tensor).float()
        assert chosen["stage"] == i
        assert chosen["heads"] == (head + 1 if stage.shape.startswith("H") else 0)
        assert (len(chosen["rows"]), len(chosen["columns"])) == tuple(expected.shape)
        assert [len(row) for row in chosen["weights"]] == [expected.shape[1]] * len(expected)
        for row, target_value in zip(chosen["weights"], expected.tolist(), strict=True):
            assert row == [
                pytest.approx(x, rel=1e-3, abs=1e-9) if math.isfinite(x) else None
                for x in target_value
            ]
        assert chosen["signed"] == bool((expected[expected.isfinite()] < 0).any())
        assert not chosen["truncation"]


def test_axes_carry_the_tokens_of_their_positions():
    subject = random_model()
    source, inputs, symbols = [*"539", "EOS"], ["SOS", *"935"], ["PAD", "SOS", "EOS", *"0123456789"]
    for stage, rows, columns in [
        ("encoder self-attention, layer 2/scores", source, source),
        ("decoder self-attention, layer 1/softmax", inputs, inputs),
        ("cross-attention, layer 1/softmax", inputs, source),
        ("cross-attention, layer 1/keys", source, list("0123")),
        ("decoder feed-forward, layer 1/ReLU", inputs, [str(i) for i in range(24)]),
        ("output/logits", inputs, symbols),
    ]:
        chosen = render(subject, "trace", stage=stage)["chosen"]
        assert (chosen["rows"], chosen["columns"]) == (rows, columns)


def test_masked_cells_are_marked_and_have_no_number():
    stage = "decoder self-attention, layer 1/masked scores"
    chosen = render(random_model(), "trace", stage=stage)["chosen"]
    assert chosen["possible"] == [[int(k <= q) for k in range(4)] for q in range(4)]
    assert [[value is not None for value in row] for row in chosen["weights"]] == [
        [k <= q for k in range(4)] for q in range(4)
    ]


def test_unknown_stage_or_head_falls_back_to_an_existing_one(one_head):
    chosen = render(one_head, "trace", stage="cross-attention, layer 2/softmax", head=3)["chosen"]
    assert (chosen["stage"], chosen["head"]) == (0, 0)


def test_wide_tensors_are_truncated_with_a_note():
    actual = render(random_model(d_model=160), "trace", stage="source embedding/sum")["chosen"]
    assert [len(row) for row in actual["weights"]] == [MAX_COLUMNS] * 4
    assert actual["truncation"] == "the first 4 of 4 rows, 128 of 160 columns"


@pytest.mark.parametrize("overrides", VARIANTS[-4:])
def test_attention_scores_are_those_of_the_stages(overrides):
    subject = random_model(**overrides)
    config, trace = subject.transformer.config, ForwardTrace(subject.encode_text("5 3 9"))
    layer, head = config.n_layers - 1, config.n_heads - 1
    for kind, query in (("cross", 1), ("encoder", 0), ("decoder", 2)):
        at = {"kind": kind, "layer": layer, "head": head, "query": query}
        scores = render(subject, "attention-scores", **at)
        block = Component(kind, layer).name
        for field, name in (("weights", "softmax"), ("scores", "masked scores")):
            row = trace.stage(block, name).tensor[head, query].tolist()
            assert scores[field] == [close(x) if math.isfinite(x) else None for x in row]
        for key, vector in enumerate(scores["keys"]):
            product = sum(a * b for a, b in zip(scores["query"], vector, strict=True))
            assert scores["products"][key] == close(product)
            bias = scores["bias"][key] if scores["bias"] else 0
            assert scores["scores"][key] in (None, close(product / scores["root"] + bias))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 2}, "there is no layer 3"),
        ({"head": 4}, "with a head 5"),
        ({"query": 4}, "there is no query 5; the sequence has 4"),
        ({"kind": "self"}, "choose one of encoder, decoder, cross"),
    ],
)
def test_attention_scores_of_what_a_model_does_not_have_are_refused(options, message):
    assert message in refused(random_model(), "attention-scores", **options)


@pytest.mark.parametrize(
    ("options", "expected_message"),
    [
        ({"stage": 3}, "give a text of at most 100 characters"),
        ({"stage": "x" * 101}, "stage has 101 characters"),
        ({"head": -1}, "from 0 to 63"),
        ({"head": True}, "whole number"),
        ({"head": 1.0}, "whole number"),
        ({"text": None}, "give a sequence of at most 2,000 characters"),
        ({"text": ""}, "no token"),
        ({"text": "5 x"}, "'x' is not a token"),
        ({"text": "5 " * 9}, "positions for"),
    ],
)
def test_invalid_requests_for_the_trace_are_rejected(options, expected_message):
    assert expected_message in refused(random_model(), "trace", **options)


# Embeddings and parameters.


def test_positions_neighbors_and_map_use_the_requested_side():
    subject = random_model()
    with torch.no_grad():
        table = subject.transformer.target_embedding.token_embedding.weight
        table[6] = 2 * table[5]  # 2 and 3
    actual = render(subject, "embeddings", side="target", token="2")
    assert actual["nearest"][0] == ["3", close(1.0)]
    assert len(actual["nearest"]) == 11
    expected = subject.transformer.target_embedding.position_embedding.detach()
    rendered = torch.tensor(actual["positions"]["weights"])
    torch.testing.assert_close(rendered, expected, rtol=1e-2, atol=1e-3)
    assert actual["map"]["names"] == actual["tokens"]
    assert render(subject, "embeddings", token="no longer there")["token"] == "0"
    assert render(subject, "embeddings", token="w" * 40)["token"] == "0"  # the longest token


@pytest.mark.parametrize(
    ("kind", "expected_message"),
    [
        ("none", "processes a set"),
        ("rope", "rotates queries and keys"),
        ("alibi", "distance from the scores"),
        ("t5", "learned bias for the distance"),
    ],
)
def test_model_without_position_vectors_describes_its_alternative(kind, expected_message):
    actual = render(random_model(position_type=kind), "embeddings")["positions"]
    assert (actual["weights"], actual["of"], actual["rms"]) == ([], [0, 16], None)
    assert actual["description"].startswith("The model adds no position vectors: ")
    assert expected_message in actual["description"]


def test_displayed_positions_are_those_of_the_model():
    ended = random_model(position_type="learned-from-end")
    actual = render(ended, "embeddings")["positions"]
    assert "counted from the end" in actual["description"]
    target = render(ended, "embeddings", side="target")["positions"]
    assert "counted from the end" not in target["description"]
    subject = random_model(position_type="randomized", randomized_range=27)
    actual = render(subject, "embeddings")["positions"]
    assert actual["of"] == [9, 16]
    expected = subject.transformer.source_embedding.position_embedding.detach()[::3]
    torch.testing.assert_close(torch.tensor(actual["weights"]), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "expected_message"),
    [
        ({"side": "left"}, "choose one of source, target"),
        ({"side": ["source"]}, "choose one of"),
        ({"token": {}}, "give a text"),
    ],
)
def test_invalid_requests_for_embeddings_are_rejected(options, expected_message):
    assert expected_message in refused(random_model(), "embeddings", **options)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"share_embeddings": True, "tie_output_embeddings": True, "output_bias": False},
        *VARIANTS[-3:],
    ],
)
def test_the_components_have_all_parameters_of_the_model(settings):
    subject = random_model(**settings)
    actual = render(subject, "parameters")
    assert actual["total"] == parameter_count(subject.transformer.config)
    assert sum(row["parameters"] for row in actual["components"]) == actual["total"]
    for row in actual["components"]:
        products = row["shapes"].replace("×", "*").replace(", ", "*")
        assert eval(products.replace("[", "(").replace("]", ")")) == row["parameters"]
    names = [row["component"] for row in actual["components"]]
    assert ("output layer" in names) == settings.get("output_bias", True)
    assert ("target token embedding" in names) == (not settings.get("share_embeddings"))


def test_shapes_of_a_component_are_counted_over_the_layers():
    components = render(random_model(), "parameters")["components"]
    shapes = {row["component"]: row["shapes"] for row in components}
    assert shapes["source token embedding"] == "[13, 16]"
    assert shapes["encoder self-attention"] == "8 × [16, 16] + 8 × [16]"
