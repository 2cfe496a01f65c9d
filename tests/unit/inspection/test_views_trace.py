import itertools
import json
import math

import pytest
import torch

from playground.architectures.parameter_groups import parameter_count
from playground.inspection.forward_trace import ForwardTrace
from playground.inspection.hooks import Component
from playground.inspection.views import render_view
from playground.inspection.views.request import MAX_COLUMNS, MAX_ROWS
from tests.support.app_server import ROOT
from tests.support.handcrafted_models import VARIANTS, random_model


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
    stage = render(subject, "trace")["stages"][0]
    render(subject, "trace-cell", stage=f"{stage['block']}/{stage['name']}", row=1)
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
        assert (ROOT / stages[i]["file"]).read_text().splitlines()[
            stages[i]["line"] - 1
        ].strip() == stages[i]["text"]
        head = subject.transformer.config.n_heads - 1
        chosen = render(subject, "trace", stage=f"{stage.block}/{stage.name}", head=head)["chosen"]
        expected = (stage.tensor[head] if stage.shape.startswith("H") else stage.tensor).float()
        assert chosen["stage"] == i
        assert chosen["heads"] == (
            subject.transformer.config.n_heads if stage.shape.startswith("H") else 0
        )
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
    source, inputs, symbols = (
        ["5", "3", "9", "EOS"],
        ["SOS", "9", "3", "5"],
        ["PAD", "SOS", "EOS", *"0123456789"],
    )
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
    chosen = render(random_model(), "trace", stage="decoder self-attention, layer 1/masked scores")[
        "chosen"
    ]
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
    product = render(
        random_model(d_model=160),
        "trace-cell",
        stage="encoder feed-forward, layer 1/up projection",
        row=0,
        column=0,
    )
    assert (len(product["products"]), product["terms"]) == (MAX_COLUMNS, 160)
    assert product["at"] == sorted(product["at"])


@pytest.mark.parametrize("overrides", VARIANTS)
def test_every_number_follows_from_the_displayed_inputs(overrides):
    """Each number is recomputed from the displayed inputs, without the model."""
    subject = random_model(**overrides)
    path = ForwardTrace(subject.encode_text("5 3 9"))
    head = subject.transformer.config.n_heads - 1
    kinds = set()
    for stage in path.stages:
        table = stage.tensor[head] if stage.shape.startswith("H") else stage.tensor
        for row, column in itertools.product((0, len(table) - 1), (0, table.shape[1] - 1)):
            origin = render(
                subject,
                "trace-cell",
                stage=f"{stage.block}/{stage.name}",
                head=head,
                row=row,
                column=column,
            )
            expected = float(table[row, column].detach())
            kinds.add(origin["kind"])
            if math.isinf(expected):
                assert (origin["value"], origin["attended"]) == (None, False)
                continue
            assert origin["value"] == close(expected)
            assert {"product": summed, "mixed": mixed_up, "parts": joined}[origin["kind"]](
                origin, column
            ) == close(expected)
    assert kinds == {"product", "mixed", "parts"}


@pytest.mark.parametrize("overrides", VARIANTS[-4:])
def test_attention_scores_are_those_of_the_stages(overrides):
    subject = random_model(**overrides)
    config = subject.transformer.config
    for kind, query in (("cross", 1), ("encoder", 0), ("decoder", 2)):
        at = {"head": config.n_heads - 1, "query": query}
        scores = render(subject, "attention-scores", kind=kind, layer=config.n_layers - 1, **at)
        block = Component(kind, config.n_layers - 1).name
        for key, weight in enumerate(scores["weights"]):
            cell = {"head": at["head"], "row": query, "column": key}
            origin = render(subject, "trace-cell", stage=f"{block}/softmax", **cell)
            score = origin["score"]
            assert weight == close(origin["value"])
            assert (scores["query"], scores["keys"][key]) == (
                [close(value) for value in score["left"]],
                [close(value) for value in score["right"]],
            )
            assert scores["products"][key] == close(score["sum"])
            assert scores["root"] == close(score["root"])
            assert (scores["bias"] or [None] * 9)[key] == (
                None if score["bias"] is None else close(score["bias"])
            )
            expected = score["value"]
            assert scores["scores"][key] == (None if expected is None else close(expected))


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


def summed(origin, _):
    assert origin["products"] == [
        close(a * b) for a, b in zip(origin["left"], origin["right"], strict=True)
    ]
    return sum(origin["products"]) / (origin["root"] or 1) + (origin["bias"] or 0)


def mixed_up(origin, column):
    for k, result in enumerate(origin["result"]):
        assert sum(row[k] for row in origin["terms"]) == close(result)
    if origin["weights"]:
        assert sum(origin["weights"]) == close(1)
    return origin["result"][column]


def joined(origin, column):
    """Return the equation of each kind of stage, applied to its inputs."""
    values = [value for _, value in origin["parts"]]
    if "score" in origin:
        assert origin["score"]["kind"] == "product"
    return {
        "exp(score − maximum) / sum": lambda a, b: a / b,
        "exp(logit − maximum) / sum": lambda a, b: a / b,
        "(x − mean) / deviation · weight + bias": lambda x, mean, deviation, gain, shift: (
            (x - mean) / deviation * gain + shift
        ),
        "(x − mean) / deviation · weight": lambda x, mean, deviation, gain: (
            (x - mean) / deviation * gain
        ),
        "x / RMS · weight": lambda x, root, gain: x / root * gain,
        "a · probability": lambda a, chance: a * chance,
        "g · sigmoid(g) · a": lambda g, sigmoid, a: g * sigmoid * a,
        "first · cosine − second · sine": lambda first, second, cosine, sine: (
            first * cosine - second * sine
        ),
        "second · cosine + first · sine": lambda first, second, cosine, sine: (
            second * cosine + first * sine
        ),
        "−slope · distance": lambda slope, separate: -slope * separate,
        "learned bias of this head for this bucket": lambda offset, bucket: origin["value"],
        "x + output": lambda x, result: x + result,
        "token embedding + position vector": lambda symbol, position: symbol + position,
        "max(0, a)": lambda a: max(0, a),
        "E · scale": lambda entry, root: entry * root,
        "1 where column ≤ row": lambda row, column: float(column <= row),
        "1 where the token is not PAD (id 0)": lambda token: float(token != 0),
        "learned, a row of the position table": lambda position: origin["value"],
        "factor · sin(2π · position / wavelength)": lambda f, i, wave: (
            f * math.sin(2 * math.pi * i / wave)
        ),
        "factor · cos(2π · position / wavelength)": lambda f, i, wave: (
            f * math.cos(2 * math.pi * i / wave)
        ),
    }[origin["equation"]](*values)


def test_an_output_of_more_tokens_than_displayed_adds_up():
    text, subject = " ".join("3141592653" * 9), random_model(max_length=90, max_positions=91)
    origin = render(
        subject,
        "trace-cell",
        text,
        stage="encoder self-attention, layer 1/weighted sum",
        row=0,
        column=2,
    )
    assert (len(origin["rows"]), origin["rows"][-1], origin["others"]) == (
        MAX_ROWS + 1,
        "the other 11",
        11,
    )
    assert mixed_up(origin, 2) == close(origin["value"])


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


@pytest.mark.parametrize(
    ("options", "expected_message"),
    [
        ({"stage": "output/color"}, "no stage 'output/color'"),
        ({"stage": "output/logits", "row": 4}, "no cell in row 5, column 1; logits is 4 x 13"),
        ({"stage": "output/logits", "column": 13}, "no cell"),
        ({"stage": "output/logits", "column": -1}, "column is -1"),
        ({"stage": "output/logits", "row": "0"}, "row is '0'; give a whole number"),
        ({"stage": "cross-attention, layer 1/scores", "head": 4}, "this model has 4 in each layer"),
    ],
)
def test_missing_numbers_are_rejected(options, expected_message):
    assert expected_message in refused(random_model(), "trace-cell", **options)


# Embeddings and parameters.


def test_positions_neighbors_and_map_use_the_requested_side():
    subject = random_model()
    with torch.no_grad():
        table = subject.transformer.target_embedding.token_embedding.weight
        table[6] = 2 * table[5]  # 2 and 3
    actual = render(subject, "embeddings", side="target", token="2")
    assert actual["nearest"][0] == ["3", close(1.0)]
    assert len(actual["nearest"]) == 11
    rendered = torch.tensor(actual["positions"]["weights"])
    torch.testing.assert_close(
        rendered,
        subject.transformer.target_embedding.position_embedding.detach(),
        rtol=1e-2,
        atol=1e-3,
    )
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
    assert (
        "counted from the end"
        not in render(ended, "embeddings", side="target")["positions"]["description"]
    )
    subject = random_model(position_type="randomized", randomized_range=27)
    actual = render(subject, "embeddings")["positions"]
    assert actual["of"] == [9, 16]
    torch.testing.assert_close(
        torch.tensor(actual["weights"]),
        subject.transformer.source_embedding.position_embedding.detach()[::3],
        rtol=1e-2,
        atol=1e-3,
    )


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


@pytest.mark.parametrize("view", ["trace", "embeddings", "parameters"])
def test_every_view_has_the_output_of_the_model(mixed, view):
    actual = render(mixed, view)
    assert actual["prediction"] == actual["target"] == ["9", "3", "5", "EOS"]


def test_the_range_of_a_stage_ignores_masked_values():
    subject = random_model()
    path = ForwardTrace(subject.encode_text("5 3 9"))
    for response, stage in zip(render(subject, "trace")["stages"], path.stages, strict=True):
        finite = stage.tensor[stage.tensor.isfinite()].float()
        assert (response["low"], response["high"]) == (
            close(float(finite.min().detach())),
            close(float(finite.max().detach())),
        )
