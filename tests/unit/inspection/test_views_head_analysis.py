import dataclasses
import json

import pytest
import torch

from playground.inspection.ablation import (
    NUM_SEQUENCES,
    Ablation,
    AblationScore,
    describe_spared_heads,
)
from playground.inspection.head_patterns import PATTERN_SENTENCES, PATTERNS, HeadScore
from playground.inspection.hooks import Component, all_components, all_heads, component_groups
from playground.inspection.views.head_analysis import MIN_SEQUENCES, sequences_within_budget
from tests.support.handcrafted_models import (
    REVERSING_HEAD,
    random_model,
    redundant_heads_model,
    reversing_model,
    score_held_out,
)
from tests.support.inspectors import render_view

WORKING_HEAD = Component("cross", *REVERSING_HEAD)


@pytest.fixture(scope="module")
def handmade():
    """A model in which one cross-attention head does all the work."""
    return reversing_model()


@pytest.fixture(scope="module")
def doubled():
    return redundant_heads_model()


def rendered(subject, view, text="3 1 4 1 5", **options):
    """Return the response of a view as JSON."""
    answer = json.loads(
        json.dumps(render_view(subject, view, {"text": text} | options), allow_nan=False)
    )
    assert "error" not in answer, answer
    return answer


def by_name(rows, value):
    return {row["name"]: row[value] for row in rows}


def test_scores_of_heads_are_those_measured_on_256_held_out_sequences(mixed):
    data = rendered(mixed, "heads")
    assert data["sequences"] == 256
    assert data["lengths"] == [1, 10]
    assert list(data["patterns"]) == list(PATTERNS) == list(PATTERN_SENTENCES)
    for row, score in zip(data["heads"], score_held_out(mixed), strict=True):
        head = score.head
        assert (row["name"], row["layer"], row["head"]) == (
            head.name,
            head.layer + 1,
            head.head + 1,
        )
        assert row["entropy"] == pytest.approx(score.entropy, rel=1e-5)
        for name, share in score.patterns.items():
            assert row["patterns"][name] == (share and pytest.approx(share, rel=1e-5))
    assert all((row["aligned"] is None) == (row["kind"] != "cross") for row in data["heads"])


def test_working_head_is_described_by_position_from_the_end(handmade, one_head):
    descriptions = by_name(rendered(handmade, "heads")["heads"], "description")
    assert descriptions[WORKING_HEAD.name] == "attends to the mirrored position"
    assert rendered(one_head, "heads")["heads"][-1]["best"] == "anti-diagonal"


@pytest.mark.parametrize(
    ("shares", "expected_message"),
    [
        ({"previous": 0.9, "uniform": 0.3}, "attends to the previous position"),
        ({"previous": 0.2, "uniform": 0.95}, "attends uniformly"),
        ({"first": 0.6, "uniform": 0.8}, "attends to the first token"),
        ({"first": 0.54, "uniform": 0.5}, "no clear pattern; nearest: first"),  # 0.49 beyond chance
        ({"first": 0.4, "uniform": 0.5}, "no clear pattern; nearest: first"),
        ({"first": 0.12, "uniform": 0.5}, "no clear pattern"),
        (dict.fromkeys(PATTERNS) | {"uniform": 0.9}, "too few positions to compare"),
    ],
)
def test_a_head_is_described_by_most_of_its_attention(shares, expected_message):
    patterns = dict.fromkeys(PATTERNS) | dict.fromkeys(("diagonal", "previous", "first"), 0.01)
    chance = {name: None if name == "uniform" else 0.1 for name in PATTERNS}
    head = Component("decoder", 0, 0)
    score = HeadScore(head, patterns | shares, chance, 1.0, 2.0, None, None)
    assert score.description == expected_message


@pytest.mark.parametrize(("task", "flat"), [("parity", True), ("brackets", False)])
def test_a_head_with_two_patterns_gets_no_description(task, flat):
    subject = random_model(task=task, max_length=10, max_positions=12)
    if flat:
        with torch.no_grad():
            for layer in subject.transformer.decoder_layers:
                layer.self_attn.q_proj.weight.zero_()
                layer.self_attn.q_proj.bias.zero_()
    heads = rendered(subject, "heads", "( )" if task == "brackets" else "1 2")["heads"]
    rows = [row for row in heads if row["kind"] == "decoder"]
    assert rows
    sentences = set(PATTERN_SENTENCES.values()) - {"attends uniformly"}
    assert sentences.isdisjoint(row["description"] for row in rows)
    assert not {row["best"] for row in rows} & (set(PATTERNS) - {"uniform"})


def test_ranking_names_the_working_head_and_the_unneeded_heads(handmade):
    data = rendered(handmade, "ablation")
    assert (data["sequences"], data["is_reduced"]) == (NUM_SEQUENCES, False)
    assert (data["method"], data["set"]) == ("mean", "single")
    assert data["baseline"]["exact_match"] == 1
    exact = by_name(data["rows"], "exact_match")
    parts = {part.name for part in all_components(handmade.transformer.config)}
    assert set(exact) == parts | {"all 11 heads that cost less than 2 points each"}
    for head in all_heads(handmade.transformer.config):
        assert exact[head.name] == (head != WORKING_HEAD)
    lost = [data["baseline"]["log_probability"] - row["log_probability"] for row in data["rows"]]
    assert lost == sorted(lost, reverse=True)


def test_jointly_ablated_duplicate_heads_agree_with_redundancy(doubled):
    data = rendered(doubled, "ablation")
    exact = by_name(data["rows"], "exact_match")
    assert {exact[head.name] for head in all_heads(doubled.transformer.config)} == {1}
    assert exact["all 12 heads that cost less than 2 points each"] == 0
    # With a needed head of each type, the rest can be redundant.
    ablation = Ablation(doubled, 32)
    singles = [ablation.ablate([head]) for head in all_heads(doubled.transformer.config)]
    last_of_kind = {effect.components[0].kind: effect for effect in singles}
    nothing = AblationScore(exact_match=0.0, log_prob=-9.0)
    singles = [
        dataclasses.replace(effect, ablated=nothing) if effect in last_of_kind.values() else effect
        for effect in singles
    ]
    text = describe_spared_heads(ablation, singles)
    assert "9 of 12 heads have a negligible effect" in text
    assert "0.0 in all. Ablated together, the drop is 100.0" in text
    assert "consistent with heads that stand in for one another" in text


def test_groups_and_keep_only_are_ranked(handmade):
    data = rendered(handmade, "ablation", set="groups", method="mean")
    exact = by_name(data["rows"], "exact_match")
    assert set(exact) == set(component_groups(handmade.transformer.config))
    broken = {name for name, share in exact.items() if share < 1}
    assert broken == {"cross-attention, layer 1", "cross-attention, every layer"}
    remaining = by_name(rendered(handmade, "ablation", set="keep")["rows"], "exact_match")
    right = {WORKING_HEAD.name, "cross-attention, layer 1", "cross-attention, every layer"}
    assert {name for name, share in remaining.items() if share == 1} == right
    assert {name for name, share in remaining.items() if share == 0} == set(remaining) - right


def test_slow_evaluations_use_fewer_sequences(handmade):
    assert sequences_within_budget(handmade, 1, 1e9) == NUM_SEQUENCES
    assert sequences_within_budget(handmade, 10**9, 1.0) == MIN_SEQUENCES


def test_the_output_view_has_the_tokens_of_the_task(handmade):
    data = rendered(handmade, "output")
    assert data["source"] == [*"31415", "EOS"]
    assert data["prediction"] == data["target"] == [*"51413", "EOS"]
    assert data["vocabulary"] == list(handmade.task.vocabulary.symbols)


def test_patching_finds_the_working_head(handmade):
    data = rendered(handmade, "patch", source_position=1, replacement="7")
    assert (data["corrupted_source"], data["position"]) == ([*"37415"], 3)
    assert (data["clean_token"], data["corrupted_token"]) == ("1", "7")
    assert data["clean_logit_diff"] > 5 > -5 > data["corrupted_logit_diff"]
    for row in data["heads"]:
        is_working = row["name"] == WORKING_HEAD.name
        assert row["recovered_fraction"] == pytest.approx(float(is_working), abs=0.01)
    # the next one of the vocabulary, which ends at 9
    assert rendered(handmade, "patch", "90000", source_position=0)["replacement"] == "0"


def test_the_lens_ends_with_the_output_of_the_model():
    subject = random_model()
    batch = subject.encode_text("314")
    with torch.no_grad():
        logits_BTV = subject.transformer(batch.source_BS, batch.decoder_input_BT)
    probabilities_TV = logits_BTV[0].softmax(-1)
    data = rendered(subject, "lens", "314")
    assert data["layers"] == ["embedding", "layer 1", "layer 2"]
    assert data["decoder_input"] == ["SOS", *"413"]
    assert data["labels"] == [*"413", "EOS"]
    for t, candidates in enumerate(data["candidates"][-1]):
        values, tokens = probabilities_TV[t].topk(3)
        assert [name for name, _ in candidates] == subject.token_names(tokens.tolist())
        assert [p for _, p in candidates] == pytest.approx(values.tolist(), rel=1e-4)
        expected = float(probabilities_TV[t, batch.labels_BT[0, t]])
        assert data["target_probability"][-1][t] == pytest.approx(expected, rel=1e-4)


def test_attribution_view_sums_to_logit_and_defaults_to_runner_up(mixed):
    usual = rendered(mixed, "contributions", position=2)
    assert usual["labels"][usual["position"]] == "4"
    assert usual["token"] == "4"
    assert usual["baseline_token"] == usual["runner_up"] != "4"
    assert usual["sum"] == pytest.approx(usual["logit"], abs=1e-4)
    total = sum(part["logit"] for part in usual["contributions"])
    assert total == pytest.approx(usual["logit"], abs=1e-3)
    plain = rendered(mixed, "contributions", position=2, baseline_token="")
    assert plain["baseline_token"] is None
    at = {"position": 2, "token": usual["runner_up"]}
    other = rendered(mixed, "contributions", baseline_token="", **at)
    assert plain["logit"] - other["logit"] == pytest.approx(usual["logit"], abs=1e-3)
    assert rendered(mixed, "contributions", **at)["baseline_token"] == "4"


def test_a_post_norm_model_explains_missing_logit_attribution():
    subject = random_model(norm_placement="post")
    answer = render_view(subject, "contributions", {"text": "314"})
    assert "logit attribution needs a pre-norm model" in answer["error"]
    assert "use the logit lens, ablation or activation patching" in answer["error"]
    assert (answer["code"], "lens" in answer["views"]) == ("not-applicable", True)
    assert rendered(subject, "lens", "314")["layers"][-1] == "layer 2"


ODD = [None, True, -1, 99, 1.5, "half", [], [1], {}, "x" * 1000]


@pytest.mark.parametrize(
    "text", [None, 5, [], {"3": 1}, "", "x", "3 1 4 y", "1" * 3000, "12345678901234567890"]
)
def test_an_invalid_text_gets_an_error_message(one_head, text):
    for view in ("output", "patch", "lens", "contributions"):
        assert len(render_view(one_head, view, {"text": text})["error"]) > 10


OPTIONS = [("ablation", option) for option in ("method", "set")]
OPTIONS += [("patch", option) for option in ("source_position", "replacement")]
OPTIONS += [("contributions", option) for option in ("position", "token", "baseline_token")]


@pytest.mark.parametrize(("view", "option"), OPTIONS)
def test_unusual_options_get_an_error_or_a_result(one_head, view, option):
    for value in ODD:
        answer = render_view(one_head, view, {"text": "3 1 4", option: value})
        json.dumps(answer, allow_nan=False)
        harmless = value is None and option in ("replacement", "token", "baseline_token")
        harmless |= value == 99 and option == "position"  # the last one of this target
        assert ("error" not in answer) == harmless, (value, answer)
        if not harmless:
            assert any(text in answer["error"] for text in (option, "no 'half'", "not a token"))
