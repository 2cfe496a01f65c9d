"""Lessons are measured on their runs, and what they measure can be guessed."""

import dataclasses
import itertools
import shutil
from types import SimpleNamespace

import pytest
import torch

from playground.checkpoints.checkpoint import save_checkpoint
from playground.errors import UserError
from playground.evaluation import exact_match_at_length
from playground.inspection.cross_attention_alignment import diagonal, score_alignment
from playground.inspection.inspected_model import load_inspected_model
from playground.inspection.probes import probe_layers
from playground.inspection.views.attention_maps import pack_uint16
from playground.lessons import interpretability_measurements
from playground.lessons.interpretability_measurements import (
    best_induction_head,
    falls_of_one_step,
    n_main_frequencies,
    symbol_power,
)
from playground.lessons.lessons import LESSONS, experiment, validate_options
from playground.lessons.measurements import MEASURES
from playground.lessons.trained_run import (
    EXAMPLES_PER_LENGTH,
    MAX_STEPS,
    TrainedRun,
    log_spaced,
    percent,
    same,
    same_multiset,
)
from playground.models.transformer import AttentionWeights
from playground.runs.weight_history import weights_path
from playground.tasks import EOS, PAD
from playground.training.presets import preset_config
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT
from tests.support.handcrafted_models import random_model, redundant_heads_model, reversing_model

SMALL = {"max_length": 3, "n_symbols": 10, "d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32}
SMALL |= {"batch_size": 64, "max_steps": 120, "lr_decay_steps": 120, "learning_rate": 1e-2}
SMALL |= {"eval_every": 10, "eval_size": 64}
SMALL_RECURRENT = {name: value for name, value in SMALL.items() if name not in ("n_heads", "d_ff")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of the small model, trained once for each of its settings."""
    runs = {}

    def train(label="the default model", **settings):
        base = SMALL_RECURRENT if "architecture" in settings else SMALL
        config = RunConfig.from_flat(base | settings)
        key = tuple(sorted(settings.items()))
        if key not in runs:
            folder = tmp_path_factory.mktemp("run") / "checkpoint"
            trainer = Trainer(config)
            save_checkpoint(folder, trainer, list(trainer))
            runs[key] = folder
        return TrainedRun.of(label, runs[key], runs[key])

    return train


def with_lines(run, label, exact):
    """Return the run with these scores, one every ten steps."""
    lines = [{"step": step, "loss": 1.0} for step in range(1, 10 * len(exact) + 1)]
    for at, score in enumerate(exact, start=1):
        lines[10 * at - 1] |= {"exact_match": score, "token_accuracy": score, "eval_size": 64}
    return dataclasses.replace(run, label=label, lines=lines)


def configs_of(lesson, options):
    """Return the configurations of the runs of a lesson."""
    return [variant.config(seed) for _, variant, seed in experiment(lesson, options).planned_runs()]


def test_every_lesson_has_a_known_measurement_and_valid_runs():
    assert len(LESSONS) == 15
    for lesson in LESSONS.values():
        assert lesson.measure in MEASURES
        assert configs_of(lesson, validate_options(lesson, {}))
        assert bool(lesson.choices) == (lesson.kind == "choice")
        assert lesson.kind == "choice" or lesson.low < lesson.high


def test_seeds_and_options_are_those_of_the_runs():
    lesson = LESSONS["lengths"]
    (config,) = configs_of(lesson, validate_options(lesson, {"positions": "rope", "seed": 7}))
    assert (config.model.position_type, config.model.max_positions) == ("rope", 21)
    assert (config.training.seed, config.task.max_length) == (7, 5)
    first, second = (configs_of(LESSONS[name], {"seed": 0})[0] for name in ("learning", "heads"))
    assert first == second == RunConfig()  # the tour trains it once


@pytest.mark.parametrize(
    ("name", "inputs", "field"),
    [
        ("lengths", {"positions": "none of them"}, "positions"),
        ("attention", {"text": "3 1 x"}, "text"),
        ("attention", {"text": ["3"]}, "text"),
        ("learning", {"seed": True}, "seed"),
    ],
)
def test_invalid_option_of_a_lesson_is_named(name, inputs, field):
    with pytest.raises(UserError) as error:
        validate_options(LESSONS[name], inputs)
    assert error.value.field == field


def agrees(lesson, result):
    """Check that the measured value, or the last measured line, can be guessed."""
    if lesson.kind == "choice":
        assert result["value"] in lesson.choices
    elif lesson.kind == "number":
        assert lesson.low <= result["value"] <= lesson.high
    else:
        line = next(each for each in result["figures"] if each["kind"] == "curves")["series"][-1]
        assert all(lesson.low <= x <= lesson.high for x in line["xs"])
        assert all(0 <= y <= 1 for y in line["ys"])
    assert result["explanation"]
    assert result["figures"]


def test_half_accuracy_step_is_the_first_evaluation_above_one_half(trained):
    run = trained()
    result = MEASURES["half_accuracy_step"]([run], {})
    steps = [line["step"] for line in run.lines if line.get("exact_match", 0) >= 0.5]
    assert result["value"] == steps[0]
    assert f"{run.evaluations[0]['eval_size']} held-out" in result["explanation"]
    agrees(LESSONS["learning"], result)
    never = MEASURES["half_accuracy_step"]([with_lines(run, "slow", [0.1, 0.4])], {})
    assert never["value"] is None
    assert "never reached one half" in never["explanation"]


def test_first_token_attends_to_the_largest_weight(trained):
    run = trained()
    result = MEASURES["first_token_attention"]([run], {"text": "3 1 4"})
    source = torch.tensor([[6, 4, 7, EOS]])
    record = AttentionWeights()
    run.subject.transformer(source, torch.tensor([[1]]), record)
    weights = torch.stack([each[0, :, 0] for each in record.cross]).mean((0, 1))
    assert result["value"] == int(weights.argmax()) + 1
    assert percent(float(weights.detach().max())) in result["explanation"]
    agrees(LESSONS["attention"], result)


def test_same_multiset_ignores_order():
    labels = torch.tensor([[3, 4, 5, EOS], [3, 4, EOS, PAD], [3, 4, 5, EOS], [3, 3, 4, EOS]])
    written = torch.tensor([[3, 4, 5, EOS], [4, 3, EOS, PAD], [3, 5, EOS, PAD], [3, 4, 4, EOS]])
    assert same(written, labels).tolist() == [True, False, False, False]
    assert same_multiset(written, labels).tolist() == [True, True, False, False]


def test_without_positions_the_order_is_lost(trained):
    with_them = trained("with positions")
    without = trained("without positions", position_type="none")
    result = MEASURES["without_positions"]([with_them, without], {})
    assert result["value"] in ("order", "both")
    assert ("not even learned to generate the right tokens" in result["explanation"]) == (
        result["value"] == "both"
    )
    agrees(LESSONS["no-positions"], result)
    assert MEASURES["without_positions"]([with_them, with_them], {})["value"] == "nothing"


@pytest.mark.parametrize(
    ("four", "one", "answer"),
    [
        ([0.5, 0.99, 1.0, 1.0], [0.1, 0.5, 0.9, 1.0], "four heads"),
        ([0.1, 0.5, 0.9, 1.0], [0.5, 0.99, 1.0, 1.0], "one head"),
        ([0.5, 0.99], [0.995, 1.0], "same"),
    ],
)
def test_faster_run_reaches_the_target_first(trained, four, one, answer):
    run = trained()
    runs = [with_lines(run, "four heads", four), with_lines(run, "one head", one)]
    result = MEASURES["faster_run"](runs, {})
    assert result["value"] == answer
    agrees(LESSONS["heads"], result)


def test_effects_of_the_three_ablations_are_compared(trained):
    result = MEASURES["compare_ablations"]([trained()], {})
    mean, zero, resample = (figure["bars"] for figure in result["figures"])
    assert len(mean) == len(zero) == len(resample) == 6  # three kinds, one layer, two heads
    effects = {bar["label"]: bar["value"] for bar in mean}
    share = effects[zero[0]["label"]] / zero[0]["value"]
    assert result["value"] == ("most" if share > 0.5 else "part" if share > 0.1 else "little")
    assert result["explanation"].startswith(zero[0]["label"])
    agrees(LESSONS["ablation"], result)


def test_the_bundled_model_loses_a_constant_under_zero_ablation():
    subject = load_inspected_model(ROOT / "checkpoints" / "reverse")
    result = MEASURES["compare_ablations"]([SimpleNamespace(subject=subject)], {})
    assert result["value"] == "little"
    assert result["explanation"].startswith("decoder self-attention, layer 1, head 2 has")
    agrees(LESSONS["ablation"], result)


def test_unneeded_heads_are_distinguished_from_heads_with_a_double():
    idle, doubled = (
        MEASURES["compare_ablations"]([SimpleNamespace(subject=build())], {})
        for build in (reversing_model, redundant_heads_model)
    )
    assert "11 of 12 heads have a negligible effect one at a time" in idle["explanation"]
    assert "consistent with heads that matter little" in idle["explanation"]
    assert "do not show which of them matter" in doubled["explanation"]
    assert "Ablated together, the drop is 100.0, and exact match 0\u00a0%" in doubled["explanation"]


def test_untrained_model_gets_no_statement_about_its_heads():
    result = MEASURES["compare_ablations"]([SimpleNamespace(subject=random_model())], {})
    assert "can fall only a little" in result["explanation"]
    assert "consistent with" not in result["explanation"]


def test_failure_length_is_the_first_below_one_half(trained):
    run = trained(max_positions=8)
    result = MEASURES["failure_length"]([run], {"positions": "learned"})
    shares = {}
    for length in range(1, 8):
        n_correct, n = exact_match_at_length(
            run.subject.model, run.subject.task, length, EXAMPLES_PER_LENGTH
        )
        if n >= 20:  # of length 1 one sequence is held out, of length 2 six
            shares[length] = n_correct / n
    assert list(shares) == [3, 4, 5, 6, 7]
    assert result["figures"][0]["series"][0]["ys"] == list(shares.values())
    assert result["value"] == next((length for length, share in shares.items() if share < 0.5), 8)
    assert result["value"] > 3
    agrees(LESSONS["lengths"], result)


def store_weights(run, step):
    """Store the weights of the end as those of a step."""
    weights = weights_path(run.history, step)
    weights.parent.mkdir(exist_ok=True)
    shutil.copy(run.folder / "model.safetensors", weights)


def test_a_step_on_one_batch_is_compared_with_its_effect_on_others(trained):
    run = trained()
    store_weights(run, 120)
    result = MEASURES["gradient_step"]([run], {})
    transfer, softmax = (figure["series"] for figure in result["figures"])
    assert transfer[0]["xs"] == [120]
    assert result["value"] == round(100 * transfer[0]["ys"][0])
    divided, plain = (series["ys"] for series in softmax)
    assert min(divided) > 0.3 > plain[-1]  # the dot products of 256 numbers saturate the softmax
    agrees(LESSONS["gradient-step"], result)


def test_a_step_changes_nothing_but_its_loss(trained):
    model = trained().subject.model
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    batch = trained().subject.held_out(32).batch
    own, other = falls_of_one_step(model, [batch, batch])
    assert own == pytest.approx(other, rel=1e-3)  # the same batch
    assert own == pytest.approx(1, abs=0.1)  # as the gradient predicts
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, before[name], rtol=1e-4, atol=1e-6)


def test_the_frequencies_of_an_embedding_are_counted_over_training(trained):
    settings = {"task": "modular-addition", "n_symbols": 13, "n_training_sources": 80}
    run = trained("one layer", architecture="decoder-only", max_steps=20, **settings)
    store_weights(run, 3)
    result = MEASURES["grokking_frequencies"]([run], {})
    power_F = symbol_power(run.subject.model)
    assert len(power_F) == 6
    assert result["value"] == n_main_frequencies(power_F, 0.9)
    assert result["figures"][2]["series"][0]["ys"] == [result["value"] / 6]
    assert "did not fall below 0.1" in result["explanation"]
    lines = [{**line, "loss": 0.05 if line["step"] >= 4 else 1.0} for line in run.lines]
    lines[-1] |= {"exact_match": 0.95}
    late = MEASURES["grokking_frequencies"]([dataclasses.replace(run, lines=lines)], {})
    expected = "below 0.1 at step 4; held-out exact match reached 90.0\u00a0% at step 20, 5 times"
    assert expected in late["explanation"]
    agrees(LESSONS["grokking"], result)


@pytest.mark.parametrize("quantile", [0, 1, 2])
def test_runs_with_an_induction_head_are_named(trained, monkeypatch, quantile):
    runs = []
    for label, n_layers in (("one layer", 1), ("two layers", 2)):
        settings = {"task": "repeat", "max_length": 8, "max_steps": 4, "n_layers": n_layers}
        run = trained(label, architecture="decoder-only", **settings)
        store_weights(run, 3)
        runs.append(run)
    scores = {
        run.label: best_induction_head(run.subject.model, run).prefix_matching for run in runs
    }
    low, high = sorted(scores.values())
    threshold = (0, (low + high) / 2, 1)[quantile]
    monkeypatch.setattr(interpretability_measurements, "INDUCTION_SCORE", threshold)
    result = MEASURES["induction_heads"](runs, {})
    assert result["value"] == ("both", max(scores, key=scores.get), "neither")[quantile]
    matching, _, _, attention = result["figures"]
    assert [series["xs"] for series in matching["series"]] == [[3], [3]]
    assert [series["ys"][0] for series in matching["series"]] == pytest.approx([*scores.values()])
    assert (len(attention["rows"]), len(attention["columns"])) == (8, 17)
    assert all(abs(sum(row) - 1) < 0.02 for row in attention["weights"])
    agrees(LESSONS["induction"], result)


def test_the_accuracy_of_a_probe_has_that_of_its_control_beside_it(trained):
    run = trained()
    result = MEASURES["probe_selectivity"]([run], {})
    score = probe_layers(run.subject)[0]
    assert (score.layer, score.feature) == (0, "token")
    assert result["value"] == pytest.approx(100 * score.control_accuracy, abs=0.05)
    token, position = (figure["bars"] for figure in result["figures"])
    assert token[0]["value"] == score.accuracy
    assert [bar["label"] for bar in position] == ["the embedding", "encoder layer 1"]
    agrees(LESSONS["probes"], result)


def recurrent(trained, attention, label="recurrent"):
    """A run of a small recurrent network."""
    return trained(label, architecture="recurrent", attention=attention)


def test_one_vector_stores_short_sequences_only(trained):
    run = recurrent(trained, "none")
    result = MEASURES["bottleneck_length"]([run], {"text": "3 1 4"})
    (series,) = result["figures"][0]["series"]
    below = [x for x, y in zip(series["xs"], series["ys"], strict=True) if y < 0.5]
    assert result["value"] == (below[0] if below else SMALL["max_length"] + 1)
    assert "axis begins at 3" in result["figures"][0]["note"]
    (row,) = result["figures"][1]["rows"]
    assert (row["input"], row["target"]) == ("recurrent", "4 1 3")
    agrees(LESSONS["one-vector"], result)


def test_attention_gain_is_measured_at_the_longest_length(trained):
    runs = [recurrent(trained, "none"), recurrent(trained, "additive", "with attention")]
    result = MEASURES["attention_gain"](runs, {"text": "3 1 4"})
    length, mapped, outputs = result["figures"]
    assert result["value"] == round(100 * length["series"][1]["ys"][-1], 1)
    assert (mapped["rows"], mapped["columns"]) == (["4", "1", "3", "EOS"], ["3", "1", "4", "EOS"])
    assert all(abs(sum(row) - 1) < 0.01 for row in mapped["weights"])
    assert [row["input"] for row in outputs["rows"]] == ["recurrent", "with attention"]
    assert "of 3; on the token after it" in result["explanation"]
    agrees(LESSONS["read-again"], result)


def test_recurrent_network_and_transformer_are_compared_by_steps(trained):
    first = recurrent(trained, "additive")
    slower = with_lines(first, "recurrent with attention", [0.5, 0.6, 0.9, 1.0])
    runs = [slower, with_lines(trained(), "transformer", [0.5, 1.0])]
    result = MEASURES["recurrent_or_transformer"](runs, {"text": "3 1 4"})
    assert result["value"] == "transformer"
    assert "the recurrent encoder computes 4 states" in result["explanation"]
    assert [each["kind"] for each in result["figures"]] == ["curves", "map", "map"]
    agrees(LESSONS["only-attention"], result)


def translation_of(weights_LHQM):
    """Return the result of a translation with these cross-attention weights."""
    n_layers, n_heads, n_queries, n_memory = weights_LHQM.shape
    tokens = [{"token": f"▁{i}", "word": f" {i}", "id": i} for i in range(n_memory)]
    return {
        "model": "google-t5/t5-small",
        "output": "0 1 2",
        "source": tokens,
        "generated": tokens[:n_queries],
        "attention": {
            "cross": {"layers": n_layers, "heads": n_heads, "weights": pack_uint16(weights_LHQM)}
        },
        "alignment": score_alignment(weights_LHQM, diagonal(n_queries, n_memory)),
    }


@pytest.mark.parametrize(("column", "value"), [(None, "aligned"), (-1, "last"), (0, "elsewhere")])
def test_pretrained_attention_is_compared_with_that_of_the_own_model(column, value):
    weights = torch.zeros(2, 2, 8, 8)
    if column is None:
        weights += torch.eye(8)
    else:
        weights[..., column] = 1
    weights[1, 1] = torch.eye(8)
    run = SimpleNamespace(subject=reversing_model())
    result = MEASURES["pretrained_alignment"]([run], {"pretrained_result": translation_of(weights)})
    assert result["value"] == value
    heads, own_heads, pretrained, own = result["figures"]
    assert heads["weights"][1][1] == 1
    # one of the four heads attends to the digit to copy, whose position is mirrored
    assert max(own_heads["weights"][0]) == pytest.approx(1, abs=1e-3)
    assert own["weights"][0][4] == pytest.approx(1, abs=1e-3)
    best = "layer 1, head 1" if column is None else "layer 2, head 2"
    assert pretrained["title"] == f"Best aligned head of t5-small: {best}"
    assert pretrained["weights"] == torch.eye(8).tolist()
    assert (pretrained["rows"][0], own["columns"][-1]) == ("0", "EOS")
    n_clear = 4 if column is None else 1
    assert f"{n_clear} of the 4 heads have at least 50.0\u00a0%" in result["explanation"]
    agrees(LESSONS["pretrained"], result)


def prediction_of(probabilities, sinks):
    words = ["a", "b\n", "c"]
    candidates = [
        {"word": word, "token": word, "id": i, "logit": 3.0 - i, "probability": probability}
        for i, (word, probability) in enumerate(zip(words, probabilities, strict=True))
    ]
    temperatures = [
        {"temperature": t, "probabilities": probabilities, "nucleus": n}
        for t, n in ((0.5, 1), (1.0, 2), (2.0, 3))
    ]
    return {
        "tokens": candidates[:2],
        "vocabulary": 50_257,
        "top_p": 0.9,
        "candidates": candidates,
        "temperatures": temperatures,
        "sinks": sinks,
        "uniform": sinks and 0.5,
    }


@pytest.mark.parametrize("has_chat", [False, True])
@pytest.mark.parametrize("sinks", [None, [[0.5, 1.0]]])
def test_the_next_token_is_described_with_what_the_model_has(has_chat, sinks):
    plain, chat = prediction_of([0.6, 0.3, 0.1], sinks), prediction_of([0.9, 0.1, 0.0], sinks)
    result = {"model": "ada/tiny", "plain": plain, "chat": chat if has_chat else None}
    run = SimpleNamespace(subject=reversing_model())
    measured = MEASURES["next_token_probability"]([run], {"pretrained_result": result})
    agrees(LESSONS["next-token"], measured)
    text, figures = measured["explanation"], measured["figures"]
    assert measured["value"] == 60
    assert "most probable next token is “a” with 60.0\u00a0% and the logit 3.0" in text
    assert ("next token is “a” with 90.0\u00a0%" in text) is has_chat
    assert ("has no chat template" in text) is not has_chat
    assert ("75.0\u00a0% of the attention" in text) is bool(sinks)
    assert figures[0]["bars"][1]["label"] == "“b⏎”"
    assert [each["kind"] for each in figures] == (
        ["bars"] + ["bars"] * has_chat + ["curves"] + ["map"] * bool(sinks)
    )
    assert "from 2 at 1 and from 3 at 2" in figures[1 + has_chat]["note"]


def test_the_model_of_lesson_1_is_the_preset_that_it_names():
    lesson = LESSONS["learning"]
    assert configs_of(lesson, {"seed": 0}) == [preset_config("adam", {"seed": 0})]
    assert "the preset Adam, under Advanced settings in the Train tab" in lesson.introduction


def test_log_spaced_steps_are_dense_early_and_include_both_ends():
    assert log_spaced([0, 5, 9], MAX_STEPS) == [0, 5, 9]
    steps = log_spaced(list(range(2001)), MAX_STEPS)
    assert len(steps) == len(set(steps)) == MAX_STEPS
    assert (steps[0], steps[-1]) == (0, 2000)
    gaps = [b - a for a, b in itertools.pairwise(steps)]
    assert gaps == sorted(gaps)
    assert steps[12] < 100
    crowded = log_spaced([*range(1000, 1040)], MAX_STEPS)
    assert (len(crowded), crowded[0], crowded[-1]) == (MAX_STEPS, 1000, 1039)
