import csv
import io
import json

import pytest
import torch

from playground.architectures.encoder_decoder import TransformerModel
from playground.cli.experiments import format_scheme
from playground.common.stats import wilson_interval
from playground.evaluation import annotated_transformer_loss, exact_match_at_length
from playground.experiments.length_generalization import (
    conclusion,
    max_reliable_length,
    mean_extrapolation_score,
    next_lengths,
    scores,
    summarize,
    summarize_scheme,
    to_csv,
)
from playground.experiments.presets import EXPERIMENT_PRESETS, spec
from playground.experiments.spec import parse_experiment
from playground.models.config import TransformerConfig
from playground.models.config_fields import ConfigError
from playground.tasks import PAD, load_task
from playground.tasks.held_out import build_held_out_set, is_held_out


class KnowsUpTo(TransformerModel):
    """Solves sequences up to a length, and longer ones with a small first token."""

    def __init__(self, longest: int, positions: int = 40) -> None:
        super().__init__(
            TransformerConfig(d_model=4, n_heads=1, n_layers=1, d_ff=4, max_positions=positions)
        )
        self.longest, self.seen = longest, []

    def exact_match_and_loss(self, batch, label_smoothing=0.0):
        length = (batch.source_BS != PAD).sum(1) - 1
        self.seen.append(batch.source_BS)
        return (length <= self.longest) | (batch.source_BS[:, 0] < 5), None


@pytest.mark.parametrize("length", [4, 12])
def test_lengths_are_scored_on_distinct_held_out_sequences(length):
    task, family = load_task("reverse"), KnowsUpTo(7)
    n_correct, n = exact_match_at_length(family, task, length, 60)
    requested = torch.cat(family.seen)[:, :length]
    assert n == 60 == len(requested.unique(dim=0))
    assert bool(is_held_out(requested, torch.full((n,), length)).all())
    assert n_correct == (60 if length <= 7 else int((requested[:, 0] < 5).sum()))
    assert length <= 7 or 0 < n_correct < 60


def test_short_lengths_have_fewer_sequences_and_long_ones_need_positions():
    task = load_task("reverse")
    n_correct, n = exact_match_at_length(KnowsUpTo(7), task, 2, 60)
    assert n_correct == n < 20
    with pytest.raises(
        ValueError, match="length 40 needs 41 positions, but the model has max_positions 40"
    ):
        exact_match_at_length(KnowsUpTo(7), task, 40, 60)


def test_published_loss_matches_torch_kl_divergence_without_eos():
    torch.manual_seed(0)
    family = TransformerModel(
        TransformerConfig(d_model=8, n_heads=1, n_layers=1, d_ff=8, dropout=0.5, max_positions=6)
    )
    held_out = build_held_out_set(load_task("copy"), 30, 4, 4)
    batch = held_out.batch
    with torch.no_grad():
        log_p = family.eval()(batch.source_BS, batch.decoder_input_BT).log_softmax(-1)[:, :4]
    labels = batch.labels_BT[:, :4]
    mean_nats = -log_p.gather(2, labels[..., None]).mean()
    assert annotated_transformer_loss(family.train(), held_out) == pytest.approx(
        float(mean_nats), rel=1e-5
    )
    assert family.training
    expected = torch.full_like(log_p, 0.1 / 11).scatter(2, labels[..., None], 0.9)
    expected[..., PAD] = 0
    divergence = torch.nn.KLDivLoss(reduction="sum")(log_p, expected) / labels.numel()
    assert annotated_transformer_loss(family, held_out, 0.1) == pytest.approx(
        float(divergence), rel=1e-5
    )


def counts(*rights, n=100):
    return [
        {"length": length, "right": n_correct, "n": n}
        for length, n_correct in enumerate(rights, start=1)
    ]


def scheme(name, *runs, trained=3):
    by_seed = [{"seed": seed, "scores": scores(each)} for seed, each in enumerate(runs)]
    return summarize_scheme(name, by_seed, trained)


def test_scores_carry_their_wilson_intervals():
    result = scores([{"length": 2, "right": 8, "n": 10}, {"length": 1, "right": 0, "n": 0}])
    assert (result[1]["low"], result[1]["high"]) == wilson_interval(8, 10)
    missing = dict.fromkeys(("exact_match", "low", "high"))
    assert result[0] == {"length": 1, "right": 0, "n": 0} | missing


def test_max_reliable_length_ends_at_the_first_failing_length():
    assert max_reliable_length(scores(counts(100, 100, 99, 98, 100))) == 3
    assert max_reliable_length(scores(counts(50, 100, 100))) == 0
    few = [{"length": 1, "right": 0, "n": 1}, *counts(0, 100, 99)[1:]]
    assert max_reliable_length(scores(few)) == 3  # a single sequence decides nothing
    assert mean_extrapolation_score(scores(counts(100, 100, 100, 50, 0)), 3) == 0.25


def test_scheme_is_summarized_by_median_and_range_per_length():
    shares = ((40, 0), (60, 20), (50, 0))
    row = scheme("learned", *(counts(100, 100, 100, *each, 0) for each in shares))
    assert (row["median"][3], row["low"][3], row["high"][3]) == (0.5, 0.4, 0.6)
    assert row["reach"]["median"] == 3


def test_the_line_of_a_scheme_names_its_reach():
    learned = format_scheme(scheme("learned", counts(100, 100, 100, 40, 0, 0)))
    assert "99 % exact match up to length 3 (range 3 to 3)" in learned
    assert "no run could be evaluated" in format_scheme(scheme("learned"))


def test_length_summary_states_reliable_lengths_and_significance():
    far = [counts(100, 100, 100, 100, top, 0) for top in (100, 99, 100)]
    near = [counts(100, 100, 100, 40, 0, 0)] * 3
    result = summarize([scheme("learned", *near), scheme("sinusoidal", *far)], [1, 3], 6)
    assert result == (
        "Trained on length 1–3 and evaluated up to 6, sinusoidal keeps 99 % exact match up to "
        "length 5, learned to 3 (median and range of 3 seeds). "
        "Beyond length 3, sinusoidal has the highest median exact match, 66.6 %, which has "
        "no test; a test is of the 99 % lengths only. "
        "These seeds cannot show a difference (smallest possible p = 0.1); use at least 4."
    )
    schemes = [scheme("learned", *near, *near), scheme("sinusoidal", *far, *far)]
    assert "p = 0.0022; if the variants did not differ" in conclusion(schemes)
    assert conclusion(schemes, "it is so") == "There is no test: it is so."
    assert "These seeds show no difference: " in conclusion([schemes[0]] * 2)


def test_length_summary_reports_what_is_missing():
    near = counts(100, 100, 100, 40, 0, 0)
    failing = scheme("learned", counts(10, 10, 10, 0, 0, 0))
    assert "nothing keeps 99 %" in summarize([failing], [1, 3], 6)
    waiting = {"seed": 1, "scores": []}
    partly = summarize_scheme("learned", [{"seed": 0, "scores": scores(near)}, waiting], 3)
    assert summarize([partly], [3, 3], 6).startswith(
        "So far, with 1 of 2 runs: trained on length 3 and evaluated"
    )
    nothing = summarize_scheme("learned", [waiting], 3)
    assert summarize([nothing], [1, 3], 6) == "No run has been evaluated yet."
    ended = [{"seed": 0, "scores": scores(near)}, waiting | {"out": True}]
    lost = summarize_scheme("learned", ended, 3)
    assert summarize([lost], [3, 3], 6).startswith("Trained on length 3 and evaluated")
    assert summarize([lost], [3, 3], 6).endswith(
        " Left out: 1 of 2 runs, which diverged or whose settings changed during training."
    )


def test_summary_omits_lengths_without_evaluation():
    far, near = counts(100, 100, 100, 100, 100, 0), counts(100, 100, 100)
    single = summarize([scheme("learned", near)], [1, 3], 3)
    assert single.endswith(
        "learned keeps 99 % exact match up to length 3 (1 seed). No length beyond 3 was evaluated."
    )
    both = summarize([scheme("learned", near, near), scheme("sinusoidal", near, near)], [1, 3], 3)
    assert both.count("No length beyond 3 was evaluated") == 1
    uneven = summarize([scheme("learned", near, near), scheme("sinusoidal", far, far)], [1, 3], 6)
    assert "learned to 3, evaluated up to 3 only" in uneven
    assert "Beyond length 3, exact match of sinusoidal is 66.6 %" in uneven


def test_the_table_has_a_row_for_each_scheme_seed_and_length():
    text = to_csv([scheme("learned", counts(100, 98), counts(100, 100))])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["scheme"], row["seed"], row["length"], row["right"]) for row in rows] == [
        ("learned", "0", "1", "100"),
        ("learned", "0", "2", "98"),
        ("learned", "1", "1", "100"),
        ("learned", "1", "2", "100"),
    ]
    json.dumps(scheme("learned", counts(100, 98)), allow_nan=False)


def test_large_models_use_fewer_lengths_per_request_or_are_rejected():
    assert next_lengths(list(range(1, 51)), 100_000, 200) == [1, 2, 3, 4, 5]
    assert next_lengths([40, 41, 42, 43, 44], 1_000_000, 200) == [40, 41]
    assert next_lengths([300, 301], 5_000_000, 200) == [300]
    wide = {"d_model": 512, "d_ff": 2048, "n_heads": 8, "max_length": 100}
    fields = {"name": "wide", "grid": {"position_type": ["rope"]}, "kind": "lengths", "times": 5}
    with pytest.raises(ConfigError, match="200 sequences of 500 tokens takes too long") as no:
        parse_experiment(fields | {"base": wide}, "ada").check_cost()
    assert no.value.field == "n"
    parse_experiment(fields | {"base": wide | {"max_length": 10}}, "ada").check_cost()
    for name in EXPERIMENT_PRESETS:
        parse_experiment(spec(name), "ada").check_cost()
