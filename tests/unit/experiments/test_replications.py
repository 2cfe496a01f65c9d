import json
from statistics import median

import pytest

from playground.architectures.parameter_groups import parameter_count
from playground.experiments import replications
from playground.experiments.presets import EXPERIMENT_PRESETS, spec
from playground.experiments.replications import (
    CLAIMS,
    metrics_of_run,
    outcome_of_experiment,
    outcome_of_lengths,
    outcome_of_seeds,
    stored_results,
)
from playground.experiments.spec import ExperimentSpec
from playground.models.config_fields import ConfigError
from playground.runs.record import RunRecord, owner_id
from playground.runs.state import Run
from playground.training.setting_changes import SettingChange
from playground.training.step import learning_rate_at
from tests.support.app_server import ROOT


def test_every_claim_has_source_criterion_and_deviations():
    for claim in CLAIMS.values():
        assert claim.source
        assert claim.criterion.endswith(".")
        assert claim.deviations
        assert all(each.endswith(".") for each in claim.deviations)


RESULTS = json.loads((ROOT / "benchmarks/results/published.json").read_text(encoding="utf-8"))


def test_stored_results_are_those_of_the_measurement(tmp_path, monkeypatch):
    row = next(each for each in RESULTS["rows"] if each["name"] == "mingpt-sort")
    assert stored_results()["mingpt-sort"] == {
        "text": row["result"],
        "passed": row["passed"],
        "date": row["measured"]["date"],
        "seeds": 3,
    }
    assert set(CLAIMS) >= set(stored_results())
    monkeypatch.setattr(replications, "STORED_RESULTS", tmp_path / "none.json")
    stored_results.cache_clear()
    assert stored_results() == {}
    stored_results.cache_clear()


@pytest.mark.parametrize("row", RESULTS["rows"], ids=lambda row: row["name"])
def test_stored_verdict_follows_from_the_claim_and_the_stored_values(row):
    claim, value = CLAIMS[row["name"]], row["value"]
    assert row["done"]
    if claim.measure == "order":
        lines = [{"label": key, "beyond": {"median": each}} for key, each in value.items()]
        rows = [line | {"n": row["seeds"], "planned": row["seeds"]} for line in lines]
        passed = outcome_of_lengths({"rows": rows}, row["name"])["passed"]
    elif claim.measure == "layers":
        passed = all(
            (each >= 0.95) if "n_layers 2" in key else (each <= 0.5) for key, each in value.items()
        )
    else:
        assert value == median(row["by_seed"])
        assert len(row["by_seed"]) == row["seeds"] >= 3
        is_upper = claim.measure in ("annotated_transformer_loss", "generalization_step")
        passed = value <= claim.threshold if is_upper else value >= claim.threshold
    assert row["passed"] is passed
    assert row["verdict"] == ("pass" if passed else "fail")


def replication_config(name, seed=0):
    (variant,) = CLAIMS[name].experiment.variants
    return variant.config(seed)


def outcome(name, metrics):
    return outcome_of_seeds(name, [metrics])


def test_sizes_of_the_models_are_the_published_ones():
    # minGPT counts weights without the output layer's; its tables have 3 tokens and 11 positions
    assert round(parameter_count(replication_config("mingpt-sort").model) / 1e6, 2) == 0.09
    assert round(parameter_count(replication_config("mingpt-addition").model) / 1e5) == 4


def test_the_settings_of_a_claim_are_the_published_ones():
    reversal, copying, sorting = map(
        replication_config, ("uva-reversal", "annotated-copy", "mingpt-sort")
    )
    assert (reversal.architecture, reversal.task.max_length) == ("encoder-only", 16)
    assert (reversal.task.n_training_sources, reversal.task.predict_eos) == (50_000, False)
    assert reversal.training.max_steps == 10 * (50_000 // 128)
    rates = [learning_rate_at(reversal.training, 32, step) for step in (25, 50, 1975, 3900)]
    assert rates == pytest.approx([2.5e-4, 5e-4, 2.5e-4, 0], rel=1e-3, abs=1e-9)
    model = copying.model
    noam = 512**-0.5 * 200 * 400**-1.5
    assert learning_rate_at(copying.training, 512, 200) == pytest.approx(noam)
    assert (model.dropout, model.attention_dropout, model.activation_dropout) == (0.1, 0.1, 0.1)
    assert (model.weight_init, parameter_count(model)) == ("xavier", 14_734_861)
    assert (sorting.task.held_out_one_in, sorting.training.weight_decay_on) == (4, "linear")
    assert not sorting.model.has_output_bias
    assert replication_config("mingpt-addition").training.max_steps == 50 * -(-9000 // 512)


def metrics(name, **values):
    config = replication_config(name)
    lines = [
        {"step": step, "loss": 2.0 - 0.01 * step, "seconds": 0.1 * step} for step in range(1, 101)
    ]
    lines[59]["exact_match"] = 0.5
    scores = {"exact_match": 1.0, "token_accuracy": 1.0, "n": 2000}
    return metrics_of_run(config, lines, scores) | values


def test_measurement_passes_or_fails_beside_the_published_value():
    good = outcome("uva-reversal", metrics("uva-reversal"))
    assert (good["passed"], good["measured"], good["published"]) == (True, 1.0, 1.0)
    assert "measured: 100.00 % of the tokens, on 2,000 held-out sequences; pass" in good["summary"]
    bad = outcome("uva-reversal", metrics("uva-reversal", token_accuracy=0.9998))
    assert (bad["passed"], "fail" in bad["summary"]) == (False, True)
    assert outcome("annotated-copy", metrics("annotated-copy", annotated_transformer_loss=0.4323))[
        "passed"
    ]
    assert not outcome(
        "annotated-copy", metrics("annotated-copy", annotated_transformer_loss=0.45)
    )["passed"]
    assert outcome("annotated-copy", metrics("annotated-copy"))["passed"] is None  # not measured
    assert outcome("mingpt-addition", metrics("mingpt-addition", exact_match=0.996))["passed"]


def test_median_of_several_seeds_is_compared():
    runs = [metrics("annotated-copy", annotated_transformer_loss=loss) for loss in (0.9, 0.3, 0.4)]
    result = outcome_of_seeds("annotated-copy", runs)
    assert (result["measured"], result["passed"], result["by_seed"]) == (0.4, True, [0.9, 0.3, 0.4])
    assert "median of 3 seeds: 0.9000, 0.3000, 0.4000" in result["measured_text"]
    scores = [metrics("mingpt-sort", exact_match=score) for score in (1.0, 0.9)]
    assert outcome_of_seeds("mingpt-sort", scores)["measured"] == pytest.approx(0.95)


def test_grokking_needs_late_generalization_and_early_memorization():
    def judge(generalized, memorized=100):
        values = {"generalization_step": generalized, "memorization_step": memorized}
        return outcome("grokking", metrics("grokking", **values))

    assert judge(1500)["passed"]
    assert judge(450)["passed"] is False
    assert judge(1500, 400)["passed"] is False
    assert judge(1500, None)["passed"] is False
    late = judge(None)
    assert (late["passed"], "not reached" in late["measured_text"]) == (False, True)
    lines = [{"step": step, "loss": 5 / step, "seconds": 0.0} for step in range(1, 101)]
    lines[49]["exact_match"] = 0.95
    actual = metrics_of_run(replication_config("grokking"), lines, None)
    assert (actual["memorization_step"], actual["generalization_step"]) == (51, 50)


def variant(values, exact_match, n=3):
    return {
        "label": str(values),
        "values": values,
        "n": n,
        "planned": 3,
        "exact_match": {"median": exact_match},
    }


def test_experiments_are_compared_by_variant():
    def judge(*scores):
        layers = zip((2, 1, 1), scores, strict=True)
        variants = [variant({"variant": {"n_layers": n}}, score) for n, score in layers]
        return outcome_of_experiment("two-layers", {"results": {"variants": variants}})

    assert judge(1.0, 0.2, 0.24)["passed"]
    assert judge(1.0, 0.2, 0.9)["passed"] is False
    assert judge(0.9, 0.2, 0.2)["passed"] is False
    unfinished = {"results": {"variants": [variant({"variant": {"n_layers": 2}}, 1.0, n=2)]}}
    layers = outcome_of_experiment("two-layers", unfinished)
    assert (layers["measured"], layers["summary"]) == (None, "not every run has finished yet")


def length_results(**medians):
    rows = [
        {"label": name, "planned": 3, "n": 3, "beyond": {"median": share}}
        for name, share in medians.items()
    ]
    return {"rows": rows}


def test_the_order_of_schemes_is_compared_by_groups():
    assert outcome_of_lengths(
        length_results(none=0.5, t5=0.6, alibi=0.5, rope=0.1, sinusoidal=0.2)
    )["passed"]
    assert not outcome_of_lengths(
        length_results(none=0.4, t5=0.6, alibi=0.5, rope=0.1, sinusoidal=0.2)
    )["passed"]
    nothing = outcome_of_lengths(length_results(none=0, t5=0, alibi=0, rope=0, sinusoidal=0))
    assert (nothing["passed"], "there is no order" in nothing["summary"]) == (False, True)
    assert outcome_of_lengths(length_results(none=0.5, t5=0.6))["passed"] is None


def test_unknown_preset_is_rejected_with_the_known_ones():
    with pytest.raises(ConfigError, match="choose one of positions"):
        spec("why")


def test_preset_experiments_are_questions_with_valid_runs():
    for name, preset in EXPERIMENT_PRESETS.items():
        assert preset.title.endswith("?")
        assert preset.why
        assert ExperimentSpec(**spec(name)).n_runs > 0
    assert ExperimentSpec(**spec("norm")).n_runs == 10


def test_run_whose_settings_changed_is_not_compared(tmp_path):
    config = replication_config("mingpt-sort")
    scores = {"exact_match": 1.0, "token_accuracy": 1.0, "n": 9}
    run = Run(RunRecord.new(config, owner_id("ada"), "replication"), tmp_path)
    rate = config.training.learning_rate
    changes = (SettingChange(5, "speed", 3.0), SettingChange(5, "learning_rate", rate))
    run.update(status="done", scores=scores, changes=changes)
    assert outcome_of_experiment("mingpt-sort", {}, [run])["passed"]
    later = (
        SettingChange(9, "learning_rate", 1e-3),
        SettingChange(9, "stop_at_exact_match", 0.5),
        SettingChange(20, "stop_at_exact_match", config.training.stop_at_exact_match),
    )
    run.update(changes=changes + later)
    result = outcome_of_experiment("mingpt-sort", {}, [run])
    assert result["passed"] is None
    assert "learning_rate, stop_at_exact_match changed during the training" in result["summary"]
