"""What the questions of the tour ask, measured on trained runs. Each function returns plain JSON:

    answer    what a prediction is held against; None where there is nothing to measure
    told      the same in words
    says      one paragraph that explains it, with the figures of these very runs
    pictures  [{"kind": "curves" | "map" | "bars" | "answers", ...}]

Shapes: B batch, S source, T target, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from playground import statistics
from playground.evaluation import right_at
from playground.inspection.ablation import Ablation
from playground.inspection.components import heads
from playground.inspection.recording import record_forced
from playground.inspection.shown.proof import LEARNED, describe_spare_heads
from playground.inspection.subject import Subject, open_subject
from playground.runs.history import read_lines
from playground.tasks import EOS, PAD
from playground.training.config import RunConfig

Told = dict[str, Any]
GOAL = 0.99
APART = 10  # steps between two looks at held-out sequences
LAST = 20  # steps whose losses are compared
SCORED = 256  # held-out sequences
AT_A_LENGTH = 100
ENOUGH = 20  # held-out sequences of a length, fewer than which say nothing of it
SHOWN = 5  # answers that are written out


@dataclass(frozen=True)
class Trained:
    """A finished run: what it is called, its metrics step by step, its model."""

    label: str
    lines: list[dict[str, Any]]
    folder: Path

    @classmethod
    def of(cls, label: str, run: Path, checkpoint: Path) -> Trained:
        return cls(label, list(read_lines(run)), checkpoint)

    @cached_property
    def subject(self) -> Subject:
        return open_subject(self.folder)

    @property
    def config(self) -> RunConfig:
        return self.subject.config

    @property
    def scored(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("exact_match") is not None]

    def first_at(self, goal: float) -> dict[str, Any] | None:
        """The first look at which exact match was at least this."""
        return next((line for line in self.scored if line["exact_match"] >= goal), None)

    def last_loss(self) -> float:
        return mean(line["loss"] for line in self.lines[-LAST:])

    def curve(self, what: str = "exact_match") -> dict[str, Any]:
        lines = self.scored if what == "exact_match" else self.lines
        return {
            "label": self.label,
            "xs": [line["step"] for line in lines],
            "ys": [line[what] for line in lines],
        }


def percent(share: float) -> str:
    """As everywhere (`statistics.percent`), with a blank that does not break."""
    return statistics.percent(share).replace(" ", "\u00a0")


def exact_match_curves(runs: list[Trained]) -> dict[str, Any]:
    return {
        "kind": "curves",
        "title": "Exact match on held-out sequences",
        "what": "share",
        "series": [run.curve() for run in runs],
    }


def crossing(runs: list[Trained], options: Mapping[str, Any]) -> Told:
    """The first look at which half of the sequences were answered right."""
    run = runs[0]
    found, last = run.first_at(0.5), run.scored[-1]
    pictures = [exact_match_curves(runs)]
    if found is None:
        best = max(line["exact_match"] for line in run.scored)
        says = f"It never got there: the best of {len(run.scored)} looks was {percent(best)}. Seeds differ, and this one was not enough."
        return {"answer": None, "told": "at none", "says": says, "pictures": pictures}
    first = run.lines[0]["loss"]
    says = (
        f"At step {found['step']} exact match was {percent(found['exact_match'])} of {found['scored']} held-out sequences, while "
        f"{percent(found['token_accuracy'])} of the single symbols were right: a whole answer needs all of its symbols, so it comes late "
        f"and then quickly. The loss had fallen from {first:.2f} to {found['loss']:.2f}; at the end exact match was "
        f"{percent(last['exact_match'])}."
    )
    return {
        "answer": found["step"],
        "told": f"step {found['step']}",
        "says": says,
        "pictures": pictures,
    }


@torch.no_grad()
def first_look(runs: list[Trained], options: Mapping[str, Any]) -> Told:
    """Where the cross-attention heads look while the first symbol of the answer is written."""
    subject = runs[0].subject
    batch = subject.read(options["text"])
    cross_LHTS = record_forced(subject.family, batch).attention["cross"][:, 0]
    row_LHS = cross_LHTS[:, :, 0]
    mean_S = row_LHS.mean((0, 1))
    at = int(mean_S.argmax())
    source, target = (
        subject.names(tokens[0].tolist()) for tokens in (batch.source_BS, batch.labels_BT)
    )
    wanted = subject.task.alignment(len(source) - 1)
    n_heads, agreeing = row_LHS.shape[0] * row_LHS.shape[1], int((row_LHS.argmax(-1) == at).sum())
    right = "" if wanted is None else f" The right symbol stands at position {wanted[0] + 1}."
    heads_agree = (
        f"All {n_heads} heads have their largest weight there."
        if agreeing == n_heads
        else f"{agreeing} of {n_heads} heads have their largest weight there; the others look elsewhere, and the average hides it."
    )
    says = (
        f"On average {percent(float(mean_S[at]))} of the weight lies on position {at + 1} ({source[at]}); spread evenly it would be "
        f"{percent(1 / len(source))}.{right} {heads_agree}"
    )
    picture = {
        "kind": "map", "title": f"Cross-attention, mean of {n_heads} heads", "rows": target, "columns": source,
        "weights": rounded(cross_LHTS.mean((0, 1))), "chosen": [0, at], "written": True,
    }  # fmt: skip
    return {
        "answer": at + 1,
        "told": f"position {at + 1} ({source[at]})",
        "says": says,
        "pictures": [picture],
    }


@torch.no_grad()
def without_positions(runs: list[Trained], options: Mapping[str, Any]) -> Told:
    """What is left of the answers when no positions are told: their symbols, their order, or neither."""
    with_them, without = runs
    batch = without.subject.held_out(SCORED).batch
    written_BT = without.subject.model.solve(batch.source_BS, batch.labels_BT.shape[1])
    exact_B, symbols_B = (
        same(written_BT, batch.labels_BT),
        same_symbols(written_BT, batch.labels_BT),
    )
    exact, symbols, n = float(exact_B.float().mean()), float(symbols_B.float().mean()), len(exact_B)
    before = with_them.scored[-1]["exact_match"]
    answer = "nothing" if exact >= 0.5 else "order" if symbols >= 0.5 else "both"
    told = {
        "nothing": "as good as before",
        "order": "right symbols, wrong order",
        "both": "not even the right symbols",
    }[answer]
    says = (
        f"Of {n} held-out sequences {percent(exact)} are answered exactly right ({percent(before)} with positions), and {percent(symbols)} "
        "have exactly the right symbols in whatever order. The encoder without positions gives the decoder a bag of vectors: equal symbols "
        "get equal vectors wherever they stand. What is in the bag can be written down, and which came first cannot"
        + {
            "nothing": "; sequences that are this short hardly need to know.",
            "order": ".",
            "both": ". In so few steps this one has not even learned the former.",
        }[answer]
    )
    rows = [
        {
            "asked": words(without.subject, source),
            "right": words(without.subject, label),
            "given": words(without.subject, given),
        }
        for source, label, given in list(
            zip(batch.source_BS, batch.labels_BT, written_BT, strict=True)
        )[-SHOWN:]
    ]
    pictures = [
        exact_match_curves(runs),
        {"kind": "answers", "title": "Without positions", "rows": rows},
    ]
    return {"answer": answer, "told": told, "says": says, "pictures": pictures}


def sooner(runs: list[Trained], options: Mapping[str, Any]) -> Told:
    """Which of two runs reaches the goal first."""
    steps = {run.label: found["step"] if (found := run.first_at(GOAL)) else None for run in runs}
    reached = {label: step for label, step in steps.items() if step is not None}
    best = min(reached, key=lambda label: reached[label]) if reached else "same"
    close = len(reached) == 2 and abs(steps[runs[0].label] - steps[runs[1].label]) <= APART  # type: ignore[operator]
    answer = "same" if close or not reached else best
    sizes = {run.label: run.config.model.parameter_count() for run in runs}
    line = "; ".join(
        f"{run.label}: " + (f"step {steps[run.label]}" if steps[run.label] else f"not in {run.lines[-1]['step']} steps, "
        f"{percent(run.scored[-1]['exact_match'])} at the end") for run in runs
    )  # fmt: skip
    says = (
        (
            f"{line}. Both have {sizes[runs[0].label]:,} weights. "
            if len(set(sizes.values())) == 1
            else f"{line}. "
        )
        + "This is one seed of each, and seeds differ: the Lab tab trains both with several and says whether the difference holds."
    )
    told = "neither" if answer == "same" else answer
    return {"answer": answer, "told": told, "says": says, "pictures": [exact_match_curves(runs)]}


def lower_loss(runs: list[Trained], options: Mapping[str, Any]) -> Told:
    """Which of two runs ends with the lower loss."""
    losses = {run.label: run.last_loss() for run in runs}
    low, high = sorted(losses, key=lambda label: losses[label])
    answer = "same" if losses[low] > 0.9 * losses[high] else low
    rates = {run.label: run.lines[-1]["learning_rate"] for run in runs}
    told = {run.label: run.scored[-1]["exact_match"] for run in runs}
    says = (
        f"Mean loss of the last {LAST} steps: {losses[low]:.4f} with {low}, {losses[high]:.4f} with {high}, "
        f"{losses[high] / losses[low]:.1f} times as much. At the end their learning rates were {rates[low]:.2g} and {rates[high]:.2g}, and "
        f"exact match {percent(told[low])} and {percent(told[high])}. "
        + (
            "The rate decides how far every update overshoots once the model is nearly there."
            if rates[low] < rates[high] and answer != "same"
            else "A rate falls so that updates overshoot less once the model is nearly there; in these steps that does not show."
        )
    )
    loss = {
        "kind": "curves",
        "title": "Training loss",
        "what": "loss",
        "series": [run.curve("loss") for run in runs],
    }
    return {
        "answer": answer,
        "told": "neither" if answer == "same" else answer,
        "says": says,
        "pictures": [loss],
    }


def most_missed(runs: list[Trained], options: Mapping[str, Any]) -> Told:
    """The head without which the right answers lose most probability.

    Whether the others are redundant is measured by taking all of those that can be missed away together.
    """
    subject = runs[0].subject
    ablation = Ablation(subject, SCORED)
    effects = sorted(
        (ablation.without([head]) for head in heads(subject.config.model)),
        key=lambda each: -each.log_probability_lost,
    )
    first, kind = effects[0], effects[0].parts[0].kind
    before, after = first.before.exact_match, first.after.exact_match
    others = describe_spare_heads(ablation, effects, "zero").replace(" %", "\u00a0%")
    if before < LEARNED:
        others = f"The whole model gets only {percent(before)} right, so exact match has little to lose, and nothing follows for the others."
    elif not others:
        others = "The others do what nobody else here does."
    says = (
        f"Without {first.name} exact match falls from {percent(before)} to {percent(after)} of {len(ablation.batch.source_BS)} held-out "
        f"sequences, and the right answer loses {first.log_probability_lost:.1f} nats. {others} A picture of a head does not tell which "
        "kind it is."
    )
    bars = [
        {
            "label": each.name,
            "value": each.log_probability_lost,
            "note": percent(each.after.exact_match),
        }
        for each in effects
    ]
    picture = {
        "kind": "bars",
        "title": "Without each head: nats that the right answer loses · exact match",
        "bars": bars,
    }
    return {"answer": kind, "told": first.name, "says": says, "pictures": [picture]}


def falls_at(runs: list[Trained], options: Mapping[str, Any]) -> Told:
    """The shortest length of which less than half is answered right."""
    subject = runs[0].subject
    task, trained = subject.config.task, subject.config.task.max_length
    last = subject.model.config.max_positions - 1
    shares = {}
    for length in range(task.min_length, last + 1):
        right, n = right_at(subject.model, subject.task, length, AT_A_LENGTH)
        if n >= ENOUGH:
            shares[length] = right / n
    answer = next((length for length, share in shares.items() if share < 0.5), last + 1)
    at_end = shares[max(length for length in shares if length <= trained)]
    beyond = shares.get(trained + 1, 0.0)
    told = f"length {answer}" if answer <= last else f"at none up to {last}"
    says = (
        f"With positions {options['positions']}, {percent(at_end)} of the sequences of length {trained} are right, the longest it was "
        f"trained on, and {percent(beyond)} of those of length {trained + 1}, up to {AT_A_LENGTH} of each length. "
        + (
            "A learned position beyond the trained ones is a vector that no update has ever touched. "
            if options["positions"] == "learned"
            else "Nothing here was trained on positions beyond those, whatever formula makes them. "
        )
        + "Choose another way to tell positions and measure again."
    )
    series = [{"label": "answered exactly right", "xs": list(shares), "ys": list(shares.values())}]
    picture = {
        "kind": "curves",
        "title": "Exact match by length",
        "what": "share",
        "x": "length",
        "trained": trained,
        "series": series,
    }
    return {"answer": answer, "told": told, "says": says, "pictures": [picture]}


@torch.no_grad()
def sureness(runs: list[Trained], options: Mapping[str, Any]) -> Told:
    """How probable a model holds what it chooses, on average over the tokens of held-out answers."""
    sure = {}
    for run in runs:
        batch = run.subject.held_out(SCORED).batch
        top_BT = run.subject.family(batch.source_BS, batch.decoder_input_BT).softmax(-1).amax(-1)
        sure[run.label] = float(top_BT[batch.labels_BT != PAD].mean())
    plain, smooth = (sure[run.label] for run in runs)
    smoothing, vocabulary = (
        runs[1].config.training.label_smoothing,
        runs[1].config.model.target_vocabulary,
    )
    wanted = 1 - smoothing + smoothing / vocabulary
    exact = [run.scored[-1]["exact_match"] for run in runs]
    says = (
        f"{percent(smooth)} with smoothing, {percent(plain)} without. The smoothed target gives the right one of {vocabulary} tokens "
        f"1 - {smoothing:g} + {smoothing:g} / {vocabulary} = {percent(wanted)}, and a model that says more than that is punished for it. "
        f"Exact match was {percent(exact[1])} and {percent(exact[0])}: how sure a model is and how often it is right are two things."
    )
    bars = [
        {"label": run.label, "value": sure[run.label], "note": percent(sure[run.label])}
        for run in runs
    ]
    picture = {
        "kind": "bars",
        "title": "Probability of the chosen symbol, on average",
        "bars": bars,
        "most": 1,
    }
    return {
        "answer": round(100 * smooth, 1),
        "told": percent(smooth),
        "says": says,
        "pictures": [picture],
    }


def same(written_BT: Tensor, labels_BT: Tensor) -> Tensor:
    """Which answers are exactly right (B booleans)."""
    return ((written_BT == labels_BT) | (labels_BT == PAD)).all(1)


def same_symbols(written_BT: Tensor, labels_BT: Tensor) -> Tensor:
    """Which answers have the right symbols, in whatever order (B booleans). Either may be wider than the other."""
    width = max(written_BT.shape[1], labels_BT.shape[1])
    written_BT, labels_BT = (
        F.pad(symbols_alone(each), (0, width - each.shape[1])) for each in (written_BT, labels_BT)
    )
    return (written_BT.sort(1).values == labels_BT.sort(1).values).all(1)


def symbols_alone(tokens_BT: Tensor) -> Tensor:
    """EOS and what stands behind it as PAD."""
    return tokens_BT.masked_fill((tokens_BT == EOS).cumsum(1) > 0, PAD)


def words(subject: Subject, tokens: Tensor) -> str:
    return " ".join(subject.task.vocabulary.decode(tokens.tolist()))


def rounded(weights_QM: Tensor) -> list[list[float]]:
    return [[round(weight, 3) for weight in row] for row in weights_QM.tolist()]


MEASURES: dict[str, Callable[[list[Trained], Mapping[str, Any]], Told]] = {
    each.__name__: each
    for each in (crossing, first_look, without_positions, sooner, lower_loss, most_missed, falls_at, sureness)
}  # fmt: skip
