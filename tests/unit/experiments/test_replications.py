import dataclasses
import json

import pytest

from playground.experiments.presets import EXPERIMENT_PRESETS, list_presets, spec
from playground.experiments.replications import (
    CLAIMS,
    claims,
    differing_settings,
    evaluate_replication,
    metrics_of_run,
    outcome,
    outcome_of_lengths,
    replication_config,
)
from playground.models.config_fields import ConfigError
from playground.runs.record import RunRecord
from playground.runs.state import Run
from playground.training.lr_schedule import learning_rate_at
from playground.training.setting_changes import SettingChange


def test_every_claim_has_source_criterion_deviations_and_command():
    told = claims()
    json.dumps(told, allow_nan=False)
    assert [line["name"] for line in told] == list(CLAIMS)
    for line in told:
        assert line["source"]
        assert line["rule"]
        assert line["differs"]
        assert line["command"] == f"python -m playground published {line['name']} --seed 0"


def test_everything_that_a_claim_or_a_question_needs_is_here():
    assert [line["missing"] for line in claims() + list_presets()] == [""] * (
        len(CLAIMS) + len(EXPERIMENT_PRESETS)
    )


def test_a_claim_that_needs_what_is_not_here_says_what(monkeypatch):
    odd = dataclasses.replace(CLAIMS["uva-reversal"], settings={"wings": 2})
    monkeypatch.setitem(CLAIMS, "uva-reversal", odd)
    assert (
        claims()[0]["missing"]
        == "uva-reversal needs the setting wings, which is no setting of a run here"
    )


def test_the_tiny_gpt_has_as_many_parameters_as_published():
    assert round(replication_config("mingpt-sort").model.parameter_count() / 1e6, 2) == 0.09


def test_the_tutorial_on_reversal_is_trained_as_published():
    config = replication_config("uva-reversal", seed=3)
    assert (config.architecture, config.task.max_length, config.training.seed) == (
        "encoder-only",
        16,
        3,
    )
    assert config.training.max_steps == 10 * (50_000 // 128)
    rates = [learning_rate_at(config.training, 32, step) for step in (25, 50, 1950, 3900)]
    assert rates == pytest.approx([2.5e-4, 5e-4, 2.5e-4, 0], rel=1e-3, abs=1e-9)


def test_the_annotated_transformer_is_trained_as_published():
    config = replication_config("annotated-copy")
    assert learning_rate_at(config.training, 512, 200) == pytest.approx(512**-0.5 * 200 * 400**-1.5)
    assert (
        config.model.d_model,
        config.model.d_ff,
        config.model.n_layers,
        config.training.batch_size,
    ) == (512, 2048, 2, 30)


def test_the_benchmark_page_has_as_many_parameters_here():
    assert replication_config("benchmark-page").model.parameter_count() == 169_933


def facts(name, **more):
    config = replication_config(name)
    lines = [
        {"step": step, "loss": 2.0 - 0.01 * step, "seconds": 0.1 * step} for step in range(1, 101)
    ]
    lines[59]["exact_match"] = 0.5
    scores = {"exact_match": 1.0, "token_accuracy": 1.0, "n": 2000}
    return metrics_of_run(config, lines, scores) | more


def test_a_measurement_passes_or_fails_beside_the_published_figure():
    good = outcome("uva-reversal", facts("uva-reversal"))
    assert (good["passed"], good["ours"], good["published"]) == (True, 1.0, 1.0)
    assert "ours: 100.00% of the tokens of 2,000 held-out sequences; pass" in good["summary"]
    bad = outcome("uva-reversal", facts("uva-reversal", token_accuracy=0.9998))
    assert (bad["passed"], "fail" in bad["summary"]) == (False, True)
    assert outcome("annotated-copy", facts("annotated-copy", symbol_loss=0.2))["passed"]
    assert not outcome("annotated-copy", facts("annotated-copy", symbol_loss=0.2962))["passed"]
    assert outcome("annotated-copy", facts("annotated-copy"))["passed"] is None  # not measured
    ours = facts("benchmark-page")
    assert ours["training_loss"] == pytest.approx(2.0 - 0.01 * 95.5)
    assert outcome("benchmark-page", ours)["passed"]
    assert not outcome("benchmark-page", ours | {"training_loss": 1.33})["passed"]
    assert not outcome("benchmark-page", ours | {"parameters": 169_934})["passed"]


def test_a_first_figure_is_the_step_at_which_it_was_reached():
    reached = {"steps_to": 1200, "steps": 1200}
    assert outcome("x-transformers-copy", reached)["passed"]
    assert "at step 1,200" in outcome("x-transformers-copy", reached)["summary"]
    assert "reached: 99.9 % exact match" in outcome("x-transformers-copy", reached)["summary"]
    missed = outcome("x-transformers-copy", {"steps_to": None, "steps": 20_000})
    assert (missed["passed"], "not reached in 20,000 steps" in missed["summary"]) == (False, True)


def test_another_run_is_not_compared():
    wanted = replication_config("uva-reversal")
    assert differing_settings(wanted, wanted.replace(seed=9, num_threads=2, eval_every=7)) == []
    # a single sequence is soon right
    assert differing_settings(wanted, wanted.replace(eval_size=1)) == ["eval_size"]
    other = differing_settings(wanted, wanted.replace(max_steps=10, norm_placement="pre"))
    assert sorted(other) == ["max_steps", "norm_placement"]
    told = outcome("uva-reversal", facts("uva-reversal"), other)
    assert told["passed"] is None
    assert "it differs in norm_placement, max_steps" in told["summary"]


def found(**medians):
    rows = [
        {"label": name, "planned": 3, "n": 3, "beyond": {"median": share}}
        for name, share in medians.items()
    ]
    return {"rows": rows}


def test_the_order_of_schemes_is_compared_by_groups():
    assert outcome_of_lengths(found(none=0.5, t5=0.6, alibi=0.5, rope=0.1, sinusoidal=0.2))[
        "passed"
    ]
    assert not outcome_of_lengths(found(none=0.4, t5=0.6, alibi=0.5, rope=0.1, sinusoidal=0.2))[
        "passed"
    ]
    nothing = outcome_of_lengths(found(none=0, t5=0, alibi=0, rope=0, sinusoidal=0))
    assert (nothing["passed"], "there is no order" in nothing["summary"]) == (False, True)
    assert outcome_of_lengths(found(none=0.5, t5=0.6))["passed"] is None


def test_an_unknown_claim_or_question_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match="choose one of uva-reversal"):
        outcome("bert", {})
    with pytest.raises(ConfigError, match="takes an experiment"):
        replication_config("length-order")
    with pytest.raises(ConfigError, match="choose one of positions"):
        spec("why")


def test_preset_experiments_are_startable_or_state_what_is_missing():
    told = list_presets()
    json.dumps(told, allow_nan=False)
    assert [line["name"] for line in told] == list(EXPERIMENT_PRESETS)
    assert all(line["title"].endswith("?") and line["why"] for line in told)
    assert all((line["runs"] > 0) != bool(line["missing"]) for line in told)
    assert {line["runs"] for line in told if line["name"] == "norm"} == {6}


def test_a_run_that_is_not_finished_is_not_compared():
    class Unfinished:
        status = "training"

    assert (
        "the run is training" in evaluate_replication(None, "uva-reversal", Unfinished())["summary"]
    )


def test_a_run_whose_settings_changed_on_the_way_is_not_compared(tmp_path):
    config = replication_config("x-transformers-copy")
    record = RunRecord.new(config, "ada", "as published")
    run = Run(record, tmp_path)
    changes = (
        SettingChange(5, "speed", 3.0),
        SettingChange(5, "learning_rate", config.training.learning_rate),
    )
    scores = {"exact_match": 1.0, "token_accuracy": 1.0, "n": 9}
    run.update(status="done", scores=scores, changes=changes)
    assert (
        "99.9 % exact match not reached"
        in evaluate_replication(None, "x-transformers-copy", run)["summary"]
    )
    later = (
        SettingChange(9, "learning_rate", 1e-3),
        SettingChange(9, "stop_at_exact_match", 0.5),
        SettingChange(20, "stop_at_exact_match", config.training.stop_at_exact_match),
    )
    run.update(changes=changes + later)
    told = evaluate_replication(None, "x-transformers-copy", run)
    assert told["passed"] is None
    assert "learning_rate, stop_at_exact_match changed on the way" in told["summary"]


def test_evaluation_at_a_cut_does_not_count_as_reaching_the_target():
    config = replication_config("x-transformers-copy")
    lines = [
        {"step": step, "loss": 1.0, "seconds": 1.0, "exact_match": None} for step in range(1, 301)
    ]
    for step, exact in ((100, 0.5), (150, 1.0), (200, 1.0), (300, 1.0)):
        lines[step - 1]["exact_match"] = exact
    assert metrics_of_run(config, lines, None)["steps_to"] == 200
