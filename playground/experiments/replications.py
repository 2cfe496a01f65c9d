"""Define replications of published claims: settings, published value and criterion.

Each published value has its source. This file contains no values measured here.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from playground.common.stats import quantile
from playground.models.config_fields import ConfigError
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.training.config import RunConfig, section_of_field

from .analysis import first_step_reaching, percent
from .spec import LENGTHS, parse_experiment

LOSS_WINDOW = 10  # updates over which the final training loss is averaged
# settings that a reproduction may choose
MACHINE_SETTINGS = ("seed", "device", "num_threads", "eval_every")
NEAR_PERFECT = 0.999
# as published, best first; those in one group are about equal
EXPECTED_ORDER = (("none", "t5"), ("alibi",), ("rope", "sinusoidal"))


@dataclass(frozen=True)
class Claim:
    """A published claim.

    measure    the compared metric: token_accuracy, exact_match, symbol_loss, steps_to,
               training_loss or order
    published  the published value, or None
    rule       the criterion as text; `_meets_criterion` implements it
    differs    the deviations from the original, and their reasons
    """

    title: str
    source: str
    measure: str
    statement: str
    published: float | None
    rule: str
    differs: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    experiment: Mapping[str, Any] | None = None


NOTE_FRESH_BATCHES = (
    "every batch is drawn afresh, where the original goes through a fixed set again and again"
)
NOTE_HELD_OUT = (
    "scored on distinct sequences that never trained; the original scores what it "
    "drew, which may repeat"
)
NOTE_EOS = (
    "sources and answers end in EOS, which counts as a token; the original has fixed "
    "lengths and no EOS"
)
PLAIN_ADAM = {"adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8}

CLAIMS = {
    "uva-reversal": Claim(
        "Reversal with the encoder alone",
        "UvA Deep Learning Tutorial 6, Transformers and Multi-Head Attention (P. Lippe), section "
        "Sequence to Sequence",
        "token_accuracy",
        "100 % of tokens, validation and test",
        1.0,
        "token accuracy on 2,000 held-out sequences is 100.00 %, as printed to two decimals",
        (
            NOTE_FRESH_BATCHES
            + "; 10 epochs of 50,000 in batches of 128, the last one dropped, are 3,900 updates",
            NOTE_EOS,
            "symbols enter by a table of vectors instead of a linear layer, and leave by one "
            "linear layer instead of two",
            "the learning rate's warm-up and cosine are the original's, one update earlier: its "
            "first update has a rate of zero",
        ),
        {
            "architecture": "encoder-only",
            "task": "reverse",
            "n_symbols": 10,
            "min_length": 16,
            "max_length": 16,
            "d_model": 32,
            "n_heads": 1,
            "n_layers": 1,
            "d_ff": 64,
            "dropout": 0.0,
            "norm_placement": "post",
            "position_type": "sinusoidal",
            "max_steps": 3900,
            "batch_size": 128,
            "learning_rate": 5e-4,
            "lr_schedule": "cosine",
            "warmup_steps": 50,
            "lr_decay_steps": 3900,
            "min_lr_ratio": 0.0,
            "max_grad_norm": 5.0,
            "eval_every": 100,
            **PLAIN_ADAM,
        },
    ),
    "mingpt-sort": Claim(
        "Sorting with a tiny GPT",
        "minGPT, demo.ipynb (A. Karpathy)",
        "exact_match",
        "5000 of 5000 right, train and test",
        1.0,
        "every distinct held-out sequence is answered exactly right",
        (
            NOTE_HELD_OUT
            + ": of the 729 sequences of 6 digits out of 3, 48 are held out, so all right means at "
            "least 92.6 % (95 %)",
            "questions are held out, answers are not: there are 28, and each answer to one of the "
            "48 also answers some training sequence",
            NOTE_EOS,
            NOTE_FRESH_BATCHES + "; the original also draws sequences with many repeats more often",
            "dropout after embeddings and sublayers, the original also on attention weights; "
            "weight decay on every weight, the original on matrices only",
        ),
        {
            "architecture": "decoder-only",
            "task": "sort",
            "n_symbols": 3,
            "min_length": 6,
            "max_length": 6,
            "d_model": 48,
            "n_heads": 3,
            "n_layers": 3,
            "d_ff": 192,
            "dropout": 0.1,
            "norm_placement": "pre",
            "activation": "gelu",
            "position_type": "learned",
            "max_steps": 2000,
            "batch_size": 64,
            "learning_rate": 5e-4,
            "lr_schedule": "constant",
            "warmup_steps": 0,
            "optimizer": "adamw",
            "weight_decay": 0.1,
            "adam_beta1": 0.9,
            "adam_beta2": 0.95,
            "adam_eps": 1e-8,
            "max_grad_norm": 1.0,
            "eval_every": 50,
        },
    ),
    "annotated-copy": Claim(
        "Copying, as in The Annotated Transformer",
        "The Annotated Transformer (A. Rush 2018), section A First Example",
        "symbol_loss",
        "an evaluation loss of 0.2962 after 10 epochs of 20 batches",
        0.2962,
        "the same loss on held-out sequences is below 0.2962",
        (
            "the loss is its own: Kullback-Leibler divergence to the right answer smoothed by 0, "
            "in nats per token, given the right answer "
            "so far, dropout off; EOS is left out, since its sequences have none",
            "ten symbols are written, the original writes nine behind a first one that is always "
            "the same",
            NOTE_HELD_OUT,
            "token vectors begin with a standard deviation of d_model^-0.5, the original draws all "
            "matrices by Xavier's rule",
        ),
        {
            "architecture": "transformer",
            "task": "copy",
            "n_symbols": 10,
            "min_length": 10,
            "max_length": 10,
            "d_model": 512,
            "n_heads": 8,
            "n_layers": 2,
            "d_ff": 2048,
            "dropout": 0.1,
            "norm_placement": "pre",
            "position_type": "sinusoidal",
            "share_embeddings": False,
            "max_steps": 200,
            "batch_size": 30,
            "learning_rate": 1.0,
            "lr_schedule": "noam",
            "warmup_steps": 400,
            "adam_beta1": 0.9,
            "adam_beta2": 0.98,
            "adam_eps": 1e-9,
            "label_smoothing": 0.0,
            "max_grad_norm": 0.0,
            "eval_every": 20,
        },
    ),
    "x-transformers-copy": Claim(
        "Copying twice, as in x-transformers",
        "x-transformers, train_copy.py (P. Wang)",
        "steps_to",
        "no figure; the script prints samples for 100,000 batches",
        None,
        "99.9 % exact match is reached; the step is the first figure for it",
        (
            NOTE_HELD_OUT,
            NOTE_EOS,
            "token vectors of source and target are two tables, the original ties them; its "
            "positions are learned and scaled, ours learned",
        ),
        {
            "architecture": "transformer",
            "task": "duplicate",
            "n_symbols": 16,
            "min_length": 32,
            "max_length": 32,
            "d_model": 128,
            "n_heads": 8,
            "d_k": 64,
            "d_v": 64,
            "n_layers": 3,
            "d_ff": 512,
            "dropout": 0.0,
            "norm_placement": "pre",
            "activation": "gelu",
            "attention_bias": False,
            "position_type": "learned",
            "max_steps": 20_000,
            "batch_size": 32,
            "learning_rate": 3e-4,
            "lr_schedule": "constant",
            "warmup_steps": 0,
            "max_grad_norm": 0.0,
            "eval_every": 100,
            "stop_at_exact_match": NEAR_PERFECT,
            **PLAIN_ADAM,
        },
    ),
    "benchmark-page": Claim(
        "Reversal with 169,933 parameters",
        "transformers-benchmark page",
        "training_loss",
        "a loss of 1.33 after 100 epochs over 10,000 sequences in under 5 s on a CPU, which is not "
        "solved",
        1.33,
        "as many parameters, and a training loss below 1.33 after 100 updates (mean of the last "
        "10)",
        (
            "neither length, batch size nor optimiser are given: here 10 symbols, 128 sequences, "
            "Adam at 0.001",
            "100 passes over 10,000 sequences would be a million sequences in 5 s; here an epoch "
            "is one update of 128",
            NOTE_FRESH_BATCHES,
        ),
        {
            "architecture": "transformer",
            "task": "reverse",
            "n_symbols": 10,
            "min_length": 10,
            "max_length": 10,
            "d_model": 64,
            "n_heads": 4,
            "n_layers": 2,
            "d_ff": 128,
            "dropout": 0.0,
            "norm_placement": "post",
            "position_type": "sinusoidal",
            "share_embeddings": False,
            "max_steps": 100,
            "batch_size": 128,
            "learning_rate": 1e-3,
            "lr_schedule": "constant",
            "warmup_steps": 0,
            "eval_every": 20,
            **PLAIN_ADAM,
        },
    ),
    "length-order": Claim(
        "Which positions generalise to longer sequences",
        "Kazemnejad et al. 2023, The Impact of Positional Encoding on Length Generalization (arXiv "
        "2305.19466)",
        "order",
        "decoder alone, trained to length 20, evaluated to 40: none and T5's about equal, then "
        "ALiBi, then RoPE and sine waves",
        None,
        "by median exact match over lengths 21 to 40, each of none and t5 is at least as good as "
        "alibi, and alibi as each of rope and sinusoidal",
        (
            "one task, copying, where the paper takes ten; a model of two layers, where it takes "
            "twelve",
            "sine waves stand for its absolute positions",
        ),
        experiment={
            "name": "length-order",
            "question": "Which positions generalise to longer sequences?",
            "base": {
                "architecture": "decoder-only",
                "task": "copy",
                "min_length": 1,
                "max_length": 20,
                "max_steps": 2000,
                "lr_decay_steps": 2000,
                "eval_every": 100,
            },
            "grid": {"position_type": ["none", "t5", "alibi", "rope", "sinusoidal"]},
            "kind": LENGTHS,
            "times": 2,
            "seeds": [0, 1, 2],
        },
    ),
}


def replication_config(name: str, seed: int = 0) -> RunConfig:
    """Return the configuration of the run that reproduces a claim.

    Raises:
        ConfigError: when the claim or one of its settings is unknown, or it needs an experiment.
    """
    claim = _claim(name)
    if claim.experiment is not None:
        raise ConfigError("name", f"{name} takes an experiment of several runs, not one")
    unknown = sorted(set(claim.settings) - set(section_of_field()) - {"architecture"})
    if unknown:
        raise ConfigError(
            unknown[0], f"{name} needs the setting {unknown[0]}, which is no setting of a run here"
        )
    return RunConfig.from_flat(dict(claim.settings) | {"seed": seed})


def claims() -> list[dict[str, Any]]:
    """Return every claim for JSON, with the command that reproduces it.

    `missing` is "" when the claim can run, otherwise the reason why it cannot.
    """
    rows = []
    for name, claim in CLAIMS.items():
        line = {each.name: getattr(claim, each.name) for each in dataclasses.fields(claim)}
        line |= {
            "name": name,
            "seed": 0,
            "command": f"python -m playground published {name} --seed 0",
            "missing": "",
        }
        line |= {"differs": list(claim.differs), "settings": dict(claim.settings)}
        try:
            if claim.experiment is None:
                line["parameters"] = replication_config(name).model.parameter_count()
            else:
                parse_experiment(claim.experiment, owner="")
        except ConfigError as error:
            line["missing"] = str(error)
        rows.append(line)
    return rows


def metrics_of_run(
    config: RunConfig, lines: Sequence[Mapping[str, Any]], scores: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the metrics of a run from its log and its final scores."""
    scored = [
        (line["step"], line["exact_match"]) for line in lines if line.get("exact_match") is not None
    ]
    last = [line["loss"] for line in lines[-LOSS_WINDOW:]]
    return {
        "exact_match": scores["exact_match"] if scores else None,
        "token_accuracy": scores["token_accuracy"] if scores else None,
        "n": scores["n"] if scores else None,
        "steps": lines[-1]["step"] if lines else 0,
        "steps_to": first_step_reaching(scored, NEAR_PERFECT, config.training.eval_every),
        "training_loss": sum(last) / len(last) if last else None,
        "seconds": lines[-1]["seconds"] if lines else 0.0,
        "parameters": config.model.parameter_count(),
        "symbol_loss": None,
    }


def unmeasured_model(registry: Registry, name: str, run: Run) -> Mapping[str, Any] | None:
    """Return the model for the loss measurement, or None when the claim needs no loss."""
    is_measured = (
        _claim(name).measure == "symbol_loss" and run.status == "done" and not run.modified_settings
    )
    return registry.snapshots.model_ref(run, run.step) if is_measured else None


def evaluate_replication(
    registry: Registry,
    name: str,
    run: Run,
    seconds: float = 120.0,
    measured: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Compare a run with a claim; see `verdict`. This call blocks during the evaluation.

    Args:
        measured: the response of the inspection process, if available; otherwise requested here.

    Raises:
        ConfigError: when the claim is unknown or needs an experiment.
    """
    from playground.runs.weight_history import read_lines

    required = replication_config(name)
    if run.status != "done":
        return {
            "name": name,
            "passed": None,
            "ours": None,
            "summary": f"the run is {run.status}; a claim is compared with a finished one",
        }
    if run.modified_settings:
        summary = (
            "this run does not have the settings of the claim: "
            f"{', '.join(run.modified_settings)} changed on the way; run it again"
        )
        return {"name": name, "passed": None, "ours": None, "summary": summary}
    facts = metrics_of_run(run.config, list(read_lines(run.folder)), run.scores)
    if measured is None and (what := unmeasured_model(registry, name, run)) is not None:
        measured = registry.snapshots.slow_inspector.request("loss", dict(what)).result(seconds)
    if measured is not None:
        facts["symbol_loss"] = measured.get("loss")
    return outcome(name, facts, differing_settings(required, run.config))


def differing_settings(required: RunConfig, actual: RunConfig) -> list[str]:
    """Return the settings that differ from the claim, except those of the machine."""
    ours, theirs = actual.to_flat(), required.to_flat()
    return [
        name for name in theirs if name not in MACHINE_SETTINGS and ours.get(name) != theirs[name]
    ]


def outcome(name: str, facts: Mapping[str, Any], other: Sequence[str] = ()) -> dict[str, Any]:
    """Compare a measurement with the published value.

    The result has `ours`, `passed` and a summary. `passed` is None when there is no measurement or
    when settings differ.

    Raises:
        ConfigError: when the claim is unknown.
    """
    claim = _claim(name)
    ours = facts.get(claim.measure)
    result = {
        "name": name,
        "published": claim.published,
        "statement": claim.statement,
        "rule": claim.rule,
        "ours": ours,
    }
    if other:
        summary = (
            f"this run does not have the settings of the claim: it differs in {', '.join(other)}"
        )
        return result | {"passed": None, "summary": summary}
    if ours is None and claim.measure != "steps_to":
        return result | {"passed": None, "summary": f"{claim.measure} was not measured"}
    passed = _meets_criterion(claim, facts)
    written = _summary(claim, facts)
    # which no figure can contradict
    word = "fail" if not passed else "pass" if claim.published is not None else "reached"
    summary = f"published: {claim.statement}; ours: {written}; {word}: {claim.rule}"
    return result | {"passed": passed, "word": word, "written": written, "summary": summary}


def outcome_of_lengths(results: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the published order of position encodings with `ExperimentService.lengths`."""
    claim = CLAIMS["length-order"]
    result = {
        "name": "length-order",
        "published": None,
        "statement": claim.statement,
        "rule": claim.rule,
    }
    beyond = {row["label"]: row["beyond"] for row in results["rows"]}
    if any(beyond.get(scheme) is None for group in EXPECTED_ORDER for scheme in group) or any(
        row["n"] < row["planned"] for row in results["rows"]
    ):
        return result | {
            "ours": None,
            "passed": None,
            "summary": "not every scheme has been measured yet",
        }
    medians = {scheme: beyond[scheme]["median"] for group in EXPECTED_ORDER for scheme in group}
    groups = [[medians[scheme] for scheme in group] for group in EXPECTED_ORDER]
    passed = all(min(one) >= max(next_one) for one, next_one in itertools.pairwise(groups))
    ours = ", ".join(
        f"{scheme} {percent(share)}"
        for scheme, share in sorted(medians.items(), key=lambda each: -each[1])
    )
    if quantile(list(medians.values()), 1) == 0:
        passed, ours = (
            False,
            f"{ours}: nothing is right beyond the trained lengths, so there is no order",
        )
    summary = (
        f"published: {claim.statement}; ours, median exact match beyond length 20: {ours}; "
        f"{'pass' if passed else 'fail'}: {claim.rule}"
    )
    return result | {"ours": medians, "passed": passed, "written": ours, "summary": summary}


def _meets_criterion(claim: Claim, facts: Mapping[str, Any]) -> bool:
    ours = facts[claim.measure]
    if claim.measure == "steps_to":
        return ours is not None
    if claim.measure == "training_loss":
        return facts["parameters"] == 169_933 and ours < claim.published
    if claim.measure == "symbol_loss":
        return ours < claim.published
    return ours >= (0.99995 if claim.measure == "token_accuracy" else 1.0)


def _summary(claim: Claim, facts: Mapping[str, Any]) -> str:
    ours = facts[claim.measure]
    if claim.measure == "steps_to":
        return (
            f"99.9 % exact match at step {ours:,}"
            if ours
            else f"99.9 % exact match not reached in {facts['steps']:,} steps"
        )
    if claim.measure == "training_loss":
        return (
            f"a training loss of {ours:.3f} with {facts['parameters']:,} parameters in "
            f"{facts['seconds']:.1f} s"
        )
    if claim.measure == "symbol_loss":
        return f"{ours:.4f} after {facts['steps']:,} updates"
    what = "tokens" if claim.measure == "token_accuracy" else "answers"
    return f"{ours:.2%} of the {what} of {facts['n']:,} held-out sequences"


def _claim(name: str) -> Claim:
    if name not in CLAIMS:
        raise ConfigError("name", f"claim is {name!r}; choose one of {', '.join(CLAIMS)}")
    return CLAIMS[name]
