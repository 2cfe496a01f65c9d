"""Steps and seconds to 99.9 % exact match: ours and the reference models.

All train on the same batches, and are evaluated on the same held-out sequences. Ours uses the fast
preset. A reference model has the same batches, Adam, clipping, warm-up, a cosine schedule, a
budget of 600 steps, and its own learning rate: of five rates, with the cosine over 480 steps, the
one that needs the fewest steps (or scores highest at the end). Then that rate is tried with the
shorter cosine of the preset adam, and the better one is used. Each reference model without dropout
also trains with the optimizer, averaging and schedule of the fast preset, at the best of three
rates: that row compares architecture and engine alone. The sweep has its own seed. A run of the
sweep ends as soon as it cannot win. Seconds are CPU seconds of one thread, so other processes
do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, cast

from playground.common.format import format_count
from playground.evaluation import EvalResult
from playground.models.config import TransformerConfig
from playground.training.presets import preset_config
from playground.training.run_config import RunConfig
from playground.training.step import TrainingDivergedError
from playground.training.trainer import FINAL_EVAL_SIZE, Trainer

from ._results import load_unfinished, save_results
from .accuracy import LONGER, TARGET_SCORE
from .reference_models import BART, BEST, CANDIDATES, OURS, TUTORIAL, X, reference_versions

MAX_STEPS = 600  # steps of a run of a reference model
# The most probable winner first, because a run ends as soon as it cannot win.
LEARNING_RATES = (2e-3, 4e-3, 1e-3, 8e-3, 5e-4)
FAST_LEARNING_RATES = (3e-3, 1.5e-3, 6e-3)  # that of the fast preset, half and double
SWEEP_SEED = 100
SEEDS = 3


@dataclass(frozen=True)
class Reference:
    """A reference model, and the preset whose optimizer and schedule train it.

    Without a `learning_rate`, a search finds it.
    """

    model: str
    preset: str = "adam"
    learning_rate: float | None = None

    @property
    def name(self) -> str:
        if self.preset == "fast":
            return f"{self.model}, trained like ours"
        rate = f", learning rate {self.learning_rate:g}" if self.learning_rate else ""
        return self.model + rate


LARGER = {**LONGER, "max_length": 50, "d_model": 128, "d_ff": 256}
REFERENCES = (
    *(Reference(name) for name in (BEST, BART, X)),
    *(Reference(name, "fast") for name in (BEST, BART, X)),
    Reference(TUTORIAL),
)
LONG_REFERENCES = (
    *(Reference(name, learning_rate=rate) for name in (BEST, BART) for rate in (2e-3, 6e-3)),
    *(Reference(name, "fast", learning_rate=3e-3) for name in (BEST, BART)),
)


class TimedTrainer(Trainer):
    """A Trainer that measures the CPU seconds of its evaluations."""

    evaluation_seconds = 0.0

    def score(self, n: int = FINAL_EVAL_SIZE) -> tuple[EvalResult, float | None]:
        started = time.process_time()
        scores = super().score(n)
        self.evaluation_seconds += time.process_time() - started
        return scores


@dataclass(frozen=True)
class Setting:
    """A task, as changes to the fast preset."""

    name: str
    fields: dict[str, Any]

    def own_config(self, seed: int) -> RunConfig:
        return preset_config(
            "fast",
            {**self.fields, "seed": seed, "stop_at_exact_match": TARGET_SCORE, "device": "cpu"},
        )

    def reference_configs(
        self, seed: int, rate: float, decay: int, budget: int = MAX_STEPS, preset: str = "adam"
    ) -> RunConfig:
        """Return the run of a reference model: by default Adam, as in its users' scripts."""
        settings = {"seed": seed, "stop_at_exact_match": TARGET_SCORE, "device": "cpu"}
        tuned = {"learning_rate": rate, "lr_decay_steps": decay, "max_steps": budget}
        return preset_config(preset, {**self.fields, **settings, **tuned})


def train_until(
    name: str, config: RunConfig, seconds: float, beaten_at: int | None = None
) -> dict[str, Any]:
    """Train one run; return its end and the reason.

    The run ends at the goal, at its budget, after `seconds`, or at the step at which it cannot win.
    """
    sizes = cast(TransformerConfig, config.model)
    trainer = TimedTrainer(config, model=CANDIDATES[name].build_model(sizes, config.training.seed))
    end_reason, score, started = "budget", None, time.process_time()
    try:
        for metrics in trainer:
            score = metrics.exact_match
            if trainer.stopped_early:
                end_reason = "goal"
            elif beaten_at is not None and trainer.step_count >= beaten_at:
                end_reason = "beaten"
            elif time.process_time() - started > seconds and trainer.should_continue():
                end_reason = "time"
            if end_reason != "budget":
                break
    except TrainingDivergedError:
        end_reason = "diverged"
    training = time.process_time() - started - trainer.evaluation_seconds
    run = {
        "end_reason": end_reason,
        "steps": trainer.step_count,
        "seconds": round(training, 3),
        "scoring": round(trainer.evaluation_seconds, 3),
    }
    return run | {
        "score": score if end_reason in ("goal", "beaten") else trainer.evaluate().exact_match
    }


def sort_key(run: dict[str, Any]) -> tuple[int, float]:
    """Return the sort key of a run of a sweep.

    Fewer steps to the goal are better, then a higher score.
    """
    return (0, -run["steps"]) if run["end_reason"] == "goal" else (-1, run["score"] or 0.0)


class Measurement:
    """The finished runs of a comparison: each is stored at once, and not trained again."""

    def __init__(self, name: str, conditions: dict[str, Any]) -> None:
        self.name = name
        conditions = conditions | {"versions": reference_versions()}
        unfinished = load_unfinished(name)
        same = (
            unfinished is not None
            and {key: value for key, value in unfinished.items() if key != "runs"} == conditions
        )
        self.rows: dict[str, Any] = unfinished if same else conditions | {"runs": []}

    def run(self, key: dict[str, Any], train: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        for run in self.rows["runs"]:
            if all(run.get(name) == value for name, value in key.items()):
                return run
        run = key | train()
        self.rows["runs"].append(run)
        save_results(self.name, self.rows, unfinished=True)
        result = ", ".join(
            f"{value:g}" if isinstance(value, float) else str(value) for value in key.values()
        )
        score = "" if run["score"] is None else f", {run['score']:.2%}"
        print(
            f"{result}: {run['end_reason']} at step {run['steps']}, {run['seconds']:.1f} s + "
            f"{run['scoring']:.1f} s scoring{score}",
            flush=True,
        )
        return run


@dataclass(frozen=True)
class Comparison:
    """A subset of the benchmarks.

    `name` is the name of its file; `seconds` limits one run, including evaluation.
    """

    name: str
    settings: tuple[Setting, ...]
    seconds: float
    seeds: int = SEEDS
    rates: tuple[float, ...] = LEARNING_RATES
    budget: int = MAX_STEPS
    references: tuple[Reference, ...] = REFERENCES

    def measure(self) -> dict[str, Any]:
        """Run the sweeps of the reference models, then all models seed by seed."""
        measurement = Measurement(
            self.name, {"seeds": self.seeds, "limit": self.seconds, "budget": self.budget}
        )
        # what torch does only once must not count for any model
        for name in (OURS, *dict.fromkeys(each.model for each in self.references)):
            train_until(
                name,
                self.settings[0].reference_configs(SWEEP_SEED, 1e-4, 10, budget=3),
                self.seconds,
            )
        for setting in self.settings:
            best = {each: self.sweep(measurement, setting, each) for each in self.references}
            for seed in range(self.seeds):
                self.train_once(measurement, setting, OURS, OURS, setting.own_config(seed))
                for each in self.references:
                    config = setting.reference_configs(
                        seed, *best[each], self.budget, preset=each.preset
                    )
                    self.train_once(measurement, setting, each.name, each.model, config)
        return measurement.rows

    def train_once(
        self, measurement: Measurement, setting: Setting, name: str, model: str, config: RunConfig
    ) -> None:
        """Train one seed of a model, unless its run is stored."""
        training = config.training
        key = {"part": "seeds", "setting": setting.name, "model": name, "seed": training.seed}
        key |= {"rate": training.learning_rate, "decay": training.lr_decay_steps}
        measurement.run(key, partial(train_until, model, config, self.seconds))

    def sweep(
        self, measurement: Measurement, setting: Setting, reference: Reference
    ) -> tuple[float, int]:
        """Return the best learning rate and decay length of a reference model for a task.

        Of equal results the first one wins.
        """
        preset = preset_config(reference.preset, setting.fields).training
        if reference.learning_rate:
            return reference.learning_rate, preset.lr_decay_steps
        attempts: list[dict[str, Any]] = []

        def attempt(rate: float, decay: int) -> None:
            best = max(attempts, key=sort_key, default=None)
            beaten_at = best["steps"] if best and best["end_reason"] == "goal" else None
            config = setting.reference_configs(
                SWEEP_SEED, rate, decay, self.budget, preset=reference.preset
            )
            key = {
                "part": "sweep",
                "setting": setting.name,
                "model": reference.name,
                "seed": SWEEP_SEED,
                "rate": rate,
                "decay": decay,
            }
            train = partial(train_until, reference.model, config, self.seconds, beaten_at)
            attempts.append(measurement.run(key, train))

        if reference.preset == "fast":
            for rate in FAST_LEARNING_RATES:
                attempt(rate, preset.lr_decay_steps)
        else:
            for rate in self.rates:
                attempt(rate, self.budget * 4 // 5)
            attempt(max(attempts, key=sort_key)["rate"], preset.lr_decay_steps)
        best = max(attempts, key=sort_key)
        return best["rate"], best["decay"]

    def table(self, rows: dict[str, Any]) -> str:
        """Format the rows as Markdown: the seeds, then the sweeps."""
        runs = rows["runs"]
        lines = [
            "| task | model | learning rate, falling over | seeds that reach it | steps: median "
            "(maximum) | seconds of training: median (maximum) | with evaluation | training "
            "seconds / ours, seed by seed: median (range) | lowest exact match at the end |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for setting in self.settings:
            of_setting = [
                run for run in runs if run["setting"] == setting.name and run["part"] == "seeds"
            ]
            ours = {run["seed"]: run for run in of_setting if run["model"] == OURS}
            for name in (OURS, *(each.name for each in self.references)):
                runs_of_model = [run for run in of_setting if run["model"] == name]
                if runs_of_model:
                    lines.append(
                        f"| {setting.name} | {name} | {_result_row(name, runs_of_model, ours)} |"
                    )
        if any(run["part"] == "sweep" for run in runs):
            lines += self._sweep_lines(runs)
        limit = (
            f"A run ends after {rows['budget']:,} steps (ours: those of the preset) or "
            f"{rows['limit']:g} seconds, including evaluation"
        )
        return "\n".join(
            [*lines, "", f"{limit}. {format_count(rows['seeds'], 'seed')}; {rows['versions']}."]
        )

    def _sweep_lines(self, runs: list[dict[str, Any]]) -> list[str]:
        lines = [
            "",
            "The search for the learning rate, with one seed that is not among those above; with "
            "another, a neighboring rate may be the best. A run ends when it can no longer be the "
            "best (not by step ...):",
            "",
            "| task | model | runs |",
            "|---|---|---|",
        ]
        for setting in self.settings:
            for each in self.references:
                key = ("sweep", setting.name, each.name)
                attempts = [
                    run for run in runs if (run["part"], run["setting"], run["model"]) == key
                ]
                if attempts:
                    cell = "; ".join(map(_sweep_cell, attempts))
                    lines.append(f"| {setting.name} | {each.name} | {cell} |")
        return lines


def _result_row(
    name: str, runs_of_model: list[dict[str, Any]], ours: dict[int, dict[str, Any]]
) -> str:
    """Format the runs of a model with several seeds.

    A model with another dropout has no ratio.
    """
    reached = [run for run in runs_of_model if run["end_reason"] == "goal"]
    cells = [
        f"{runs_of_model[0]['rate']:g}, {runs_of_model[0]['decay']} steps",
        f"{len(reached)} of {len(runs_of_model)}",
    ]
    if reached:
        steps, seconds = [run["steps"] for run in reached], [run["seconds"] for run in reached]
        both = [run["seconds"] + run["scoring"] for run in reached]
        cells += [
            f"{median(steps):g} ({max(steps)})",
            f"{median(seconds):.2f} ({max(seconds):.2f})",
            f"{median(both):.2f}",
        ]
    else:
        cells += [
            f"not in {max(run['steps'] for run in runs_of_model)}",
            f"more than {min(run['seconds'] for run in runs_of_model):.1f}",
            "",
        ]
    pairs = [
        run["seconds"] / ours[run["seed"]]["seconds"]
        for run in reached
        if ours.get(run["seed"], {}).get("end_reason") == "goal"
    ]
    compared = bool(pairs) and name not in (OURS, TUTORIAL)
    cells.append(f"{median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f})" if compared else "")
    return " | ".join([*cells, f"{min(run['score'] or 0.0 for run in runs_of_model):.2%}"])


def _sweep_cell(run: dict[str, Any]) -> str:
    """Format one run of a sweep."""
    ended = {
        "goal": f"step {run['steps']}",
        "beaten": f"not by step {run['steps']}",
        "budget": f"{run['score'] or 0:.1%} at the end",
        "time": f"{run['score'] or 0:.1%} at step {run['steps']}, out of time",
        "diverged": f"diverged at step {run['steps']}",
    }
    return f"{run['rate']:g} over {run['decay']}: {ended[run['end_reason']]}"


SHORT = Comparison(
    "peers",
    (
        Setting("reverse, length 10", {"min_length": 10}),
        Setting("reverse, lengths 1 to 10", {}),
        Setting("copy, length 10", {"task": "copy", "min_length": 10}),
        Setting("copy, lengths 1 to 10", {"task": "copy"}),
    ),
    seconds=120,
)
LONG = Comparison(
    "peers-long",
    (
        Setting("reverse, length 50, d_model 128", {**LARGER, "min_length": 50}),
        Setting("reverse, lengths 1 to 50, d_model 128", LARGER),
    ),
    seconds=420,
    seeds=1,
    references=LONG_REFERENCES,
)
