"""The benchmark: a checkpoint, pretrained models and baselines on the same held-out examples.

All get the same metrics. Rows as they are reported, each with its "kind":

    settings   a note on the examples, the few-shot examples, the caption
    model      the metrics of a model so far (see sheet.COLUMNS), reported after every example;
               `place` is its line, `over` whether it is done
    estimate   the expected seconds of a model, from a measured forward pass
    item       a prediction: prompt, tokens, raw output, parsed symbols, whether each is
               correct, candidates with their scores
    leak       the gain of a masked model if the other symbols of the target are shown
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from playground.statistics import percent
from playground.training.checkpoint import load_model
from playground.training.config import TaskConfig

from .answerers import (
    Answerer,
    Causal,
    Chance,
    CommonestTarget,
    Copy,
    Masked,
    MostFrequent,
    Scratch,
    by_elimination,
)
from .items import MOST_EXAMPLES, Item, Questions, candidates_for, draw_questions
from .pretrained import (
    Found,
    find,
    folders_allowed,
    growth,
    kind_of,
    memory_used,
    open_pipeline,
    read_config,
)
from .scoring import Tally, first_credit, is_exact, rank_of, right_places
from .work import Cancelled, Refused, Tell, in_words

MOST_ITEMS = 500
MOST_MODELS = 6
# examples to rank by default; BERT needs some 140 forward passes for each of ten symbols
RANKED = 10
HOSTED_RANKED = 5  # maximum on a shared instance
# in a folder written by fine-tuning: {"from": name, "task": name, "steps": n}
FINE_TUNED = "fine-tuned.json"
KINDS = {"causal": "text-generation", "masked": "fill-mask"}


@dataclass(frozen=True)
class Asked:
    """A benchmark request.

    checkpoint   a folder; set by the server or the command line, never by a browser
    name         the name of the checkpoint in the table
    models       names of models on the Hub, or of folders if those are allowed
    n            number of held-out examples
    shots        few-shot examples for pretrained models, at most as many as fit
    rank         number of examples to rank; a masked model needs a forward pass for each symbol
                 of each candidate
    """

    checkpoint: str
    name: str
    models: tuple[str, ...]
    n: int
    shots: int
    rank: int

    @classmethod
    def of(cls, what: dict[str, Any]) -> Asked:
        """Validate a request; raises Refused if it is invalid."""

        def number(name: str, default: int, low: int, high: int) -> int:
            value = what.get(name, default)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise Refused(
                    f"{name} is {str(value)[:40]}; give a whole number from {low} to {high}"
                )
            return value

        checkpoint, models = what.get("checkpoint"), what.get("models", [])
        if not isinstance(checkpoint, str) or not checkpoint:
            raise Refused("choose a checkpoint to compare with")
        if (
            not isinstance(models, list | tuple)
            or len(models) > MOST_MODELS
            or not all(isinstance(each, str) for each in models)
        ):
            raise Refused(f"models is {str(models)[:80]}; name up to {MOST_MODELS} models")
        n = number("n", 20, 1, MOST_ITEMS)
        most = MOST_ITEMS if folders_allowed() else HOSTED_RANKED
        rank = min(n, RANKED, most) if what.get("rank") is None else number("rank", n, 0, most)
        name = str(what.get("name") or Path(checkpoint).name)[:120]
        return cls(
            checkpoint,
            name,
            tuple(dict.fromkeys(models)),
            n,
            number("shots", 8, 0, MOST_EXAMPLES),
            rank,
        )


def table(what: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Run the benchmark. `what`: see Asked.

    A model that cannot be evaluated becomes a row with the error, and the others continue.

    Raises:
        Refused: for an unusable checkpoint or invalid settings.
        Cancelled: between two examples at the latest; the rows reported so far stay valid.
    """
    asked = Asked.of(what)
    tell.say(f"Loading {asked.name}")
    # more threads are slower at this size; pretrained models use more (pretrained.py)
    torch.set_num_threads(1)
    manifest, family = load_model(Path(asked.checkpoint))
    settings = manifest.config.task
    task = settings.load()
    questions = draw_questions(task, asked.n, settings.min_length, settings.max_length)
    if not questions.items:
        raise Refused(
            f"there is no held-out sequence of {settings.max_length} symbols or fewer; choose a "
            "checkpoint of longer ones"
        )
    table = Table(asked, questions, settings, tuple(task.vocabulary.symbols), tell)
    scratch = Scratch(asked.name, task, family)
    tell.row(
        {
            "kind": "settings",
            "note": questions.note,
            "caption": table.caption(scratch.parameters or 0),
            "examples": [[each.asked, each.right] for each in questions.examples[: asked.shots]],
            "asked": dataclasses.asdict(asked),
            "task": dataclasses.asdict(settings),
        }
    )
    table.chance()
    for baseline in (Copy(), MostFrequent(), CommonestTarget(questions.items)):
        table.ask(baseline, told=False)
    table.ask(scratch)
    for name in asked.models:
        table.ask_model(name)
    return {
        "rows": table.rows,
        "leaks": table.leaks,
        "caption": table.caption(scratch.parameters or 0),
        "note": questions.note,
        "asked": dataclasses.asdict(asked),
        "task": dataclasses.asdict(settings),
    }


class Table:
    """A benchmark in progress."""

    def __init__(
        self,
        asked: Asked,
        questions: Questions,
        task: TaskConfig,
        symbols: Sequence[str],
        tell: Tell,
    ) -> None:
        self.asked, self.questions, self.task, self.symbols, self.tell = (
            asked,
            questions,
            task,
            symbols,
            tell,
        )
        self.items = questions.items
        self.rankable = [item for item in self.items if len(candidates_for(item, self.items)) > 1]
        self.ranked = self.rankable[: asked.rank]
        self.rows: list[dict[str, Any]] = []
        self.leaks: list[dict[str, Any]] = []

    def caption(self, parameters: int) -> str:
        """Describe what is compared, and the limits of the comparison."""
        name, task = self.asked.name, self.task
        lengths = (
            f"{task.min_length} to {task.max_length}"
            if task.min_length < task.max_length
            else f"{task.max_length}"
        )
        return (
            f"{name} ({parameters:,} parameters) was trained on exactly this task, {task.task} "
            f"of {lengths} symbols. Pretrained models were trained on text and get up to "
            f"{self.asked.shots} few-shot examples, unless their row says fine-tuned. So the "
            "models do not compete on equal terms: the table shows what training on the task "
            "achieves with a small model, and how far pretraining on text carries a large one. "
            "An answer counts only as symbols separated by spaces; masked models are given its "
            "length. Brackets: 95 % intervals (Wilson), those of tokens as if each were "
            f"independent.{self.on_ranking()}"
        )

    def on_ranking(self) -> str:
        """Describe how many examples are ranked, and why not more."""
        if not self.asked.rank:
            return ""
        said = (
            f" {len(self.ranked)} of the {len(self.items)} sequences are also ranked: the "
            "target among other candidates of the same length"
        )
        single = len(self.items) - len(self.rankable)
        return said + (f"; {single} have no other candidate." if single else ".")

    # Rows

    def line(self, answerer: Any, **more: Any) -> dict[str, Any]:
        """Return the row of a model before its first example."""
        return {
            "kind": "model",
            "place": len(self.rows),
            "model": answerer.name,
            "what": answerer.what,
            "way": answerer.way,
            "note": getattr(answerer, "note", ""),
            "error": "",
            "parameters": getattr(answerer, "parameters", None),
            "examples": len(getattr(answerer, "examples", ())) or None,
            "weights_bytes": getattr(answerer, "weights", None),
            "grown_bytes": None,
            "over": False,
            **Tally().told(),
            **more,
        }

    def put(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self.tell.row(row)

    def chance(self) -> None:
        scores = Chance.scores(self.items, len(self.questions.target_symbols), self.ranked)
        more = {
            "n": len(self.items),
            "ranked": len(self.ranked),
            "rank_chance": scores["rank_accuracy"],
            "over": True,
        }
        self.put(self.line(Chance) | scores | more)

    def ask(
        self, answerer: Answerer, told: bool = True, grown: Callable[[], int] | None = None
    ) -> tuple[Tally, float | None]:
        """Evaluate a model on every example.

        Returns its metrics, and the summed log-probability of the targets if it was measured.
        An error is stored in the row, which keeps the metrics so far.
        """
        tally, row = Tally(), self.line(answerer)
        self.rows.append(row)
        summed: float | None = 0.0
        self.tell.say(f"Evaluating {answerer.name}: {answerer.way}")
        try:
            if estimate := answerer.estimate(self.items, self.ranked):
                sentence = (
                    f"{answerer.name}: about {_duration(estimate[0])} for {len(self.items)} "
                    f"items ({estimate[1]})"
                )
                self.tell.row(
                    {
                        "kind": "estimate",
                        "place": row["place"],
                        "model": answerer.name,
                        "seconds": estimate[0],
                        "sentence": sentence,
                    }
                )
                self.tell.say(sentence)
            for number, item in enumerate(self.items):
                self.tell.share(number, len(self.items), "questions")
                entry, log_probability = self.ask_item(answerer, item, number, tally)
                summed = (
                    None if summed is None or log_probability is None else summed + log_probability
                )
                row |= tally.told() | {"grown_bytes": grown() if grown else None}
                if told:
                    self.tell.row(
                        entry | {"place": row["place"], "model": answerer.name, "way": answerer.way}
                    )
                    self.tell.row(row)
            self.tell.share(len(self.items), len(self.items), "questions")
        except Cancelled:
            raise
        except Exception as error:
            row["error"] = str(in_words(error, answerer.name))
        row["over"] = True
        self.tell.row(row)
        return tally, summed if tally.n else None

    def ask_item(
        self, answerer: Answerer, item: Item, number: int, tally: Tally
    ) -> tuple[dict[str, Any], float | None]:
        started = time.perf_counter()
        answer = answerer.answer(item)
        seconds = time.perf_counter() - started
        tally.add(answer.read, item.answer, seconds)
        entry: dict[str, Any] = {
            "kind": "item",
            "number": number + 1,
            "question": item.asked,
            "answer": item.right,
            "prompt": answer.prompt,
            "tokens": answer.tokens,
            "ids": answer.ids,
            "raw": answer.raw,
            "read": answer.read and list(answer.read),
            "right": is_exact(answer.read, item.answer),
            "places": right_places(answer.read, item.answer),
            "seconds": seconds,
            "candidates": [],
            "rank": None,
        }
        if answerer.ranks and item in self.ranked:
            candidates = candidates_for(item, self.items)
            started = time.perf_counter()
            scores = answerer.scores(item, [each.symbols for each in candidates])
            right = [each.symbols for each in candidates].index(item.answer)
            entry["rank"] = rank_of(scores, right)
            tally.add_rank(
                first_credit(scores, right), len(candidates), time.perf_counter() - started
            )
            entry["candidates"] = [
                {
                    "symbols": " ".join(each.symbols),
                    "made": each.made,
                    "score": score,
                    "right": place == right,
                }
                for place, (each, score) in enumerate(zip(candidates, scores, strict=True))
            ]
        return entry, answer.log_probability

    # Pretrained models

    def ask_model(self, name: str) -> None:
        """Resolve, load and evaluate one model; an error is stored in its row."""
        found: Found | None = None
        try:
            found = find(name, self.tell)
            what = trained_on(found)
            pipe, kind = open_of_a_kind(found, self.tell)
            task = KINDS[kind]
            base = memory_used() - growth(task, found)
            # a fine-tuned model was trained on prompts without examples
            shots = 0 if is_tuned(found) else self.asked.shots
            asked = (
                found.name,
                what,
                pipe,
                self.symbols,
                self.tell,
                self.items,
                self.questions.examples,
                shots,
            )

            def grown() -> int:
                return memory_used() - base

            if kind == "causal":
                self.ask(Causal(*asked), grown=grown)
                return
            at_once = self.ask(Masked(*asked, at_once=True), grown=grown)
            one_by_one = self.ask(Masked(*asked, at_once=False), grown=grown)
            self.leak(found.name, at_once, one_by_one)
        except Cancelled:
            raise
        except Exception as error:
            row = {
                "model": name,
                "what": trained_on(found) if found else "not evaluated",
                "way": "",
            }
            self.put(self.line(Chance) | row | {"error": str(in_words(error, name)), "over": True})

    def leak(
        self, name: str, at_once: tuple[Tally, float | None], one_by_one: tuple[Tally, float | None]
    ) -> None:
        """Report how much a masked model gains if the other symbols of the target are shown."""
        (hidden, log_hidden), (shown, log_shown) = at_once, one_by_one
        if not (hidden.n == shown.n == len(self.items)) or log_hidden is None or log_shown is None:
            return
        left_over = [right_places(by_elimination(item), item.answer) for item in self.items]
        guessed = sum(map(sum, left_over)) / shown.symbols
        before, after = hidden.right_symbols / hidden.symbols, shown.right_symbols / shown.symbols
        gained = (log_shown - log_hidden) / shown.symbols
        row = {
            "kind": "leak",
            "model": name,
            "at_once": before,
            "one_at_a_time": after,
            "gain": after - before,
            "nats_a_symbol": gained,
            "by_elimination": guessed,
            "n": shown.n,
            "symbols": shown.symbols,
            "sentence": (
                f"{name}: with the target shown at the other positions, {100 * after:.1f} % of "
                f"the positions are correct, with all of them masked {100 * before:.1f} %; each "
                f"symbol of the target becomes {_times(gained)}. Choosing the one symbol of the "
                f"input that is left over gets {100 * guessed:.1f} % without knowing the rule: "
                "only the row with all positions masked is comparable with the other models."
            ),
        }
        self.leaks.append(row)
        self.tell.row(row)


def is_tuned(found: Found) -> bool:
    """Return whether a model was fine-tuned here."""
    return found.where == "directory" and (Path(found.folder) / FINE_TUNED).is_file()


def trained_on(found: Found) -> str:
    """Describe the training data of a model, as far as it is known."""
    if found.where != "directory":
        return "pretrained, never trained on this task"
    try:
        told = json.loads((Path(found.folder) / FINE_TUNED).read_text(encoding="utf-8"))
        return (
            f"fine-tuned: {int(told['steps'])} steps on {str(told['task'])[:40]}, from "
            f"{str(told['from'])[:100]}"
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "a folder; its training data is unknown"


def open_of_a_kind(found: Found, tell: Tell) -> tuple[Any, str]:
    """Load a model as a pipeline, and return whether it is causal or masked.

    If its config does not determine the kind, the class that loads decides.

    Raises:
        Refused: if it loads as neither.
    """
    said = kind_of(read_config(found.folder, found.name))
    if said:
        return open_pipeline(KINDS[said], found, tell), said
    for kind, task in KINDS.items():
        try:
            return open_pipeline(task, found, tell), kind
        except Refused as error:
            if error.again:
                raise
    raise Refused(
        f"{found.name} is neither a causal nor a masked language model, so it cannot be "
        "evaluated; choose a model such as gpt2"
    )


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _times(nats: float) -> str:
    """Describe a gain in log-probability as a ratio."""
    if abs(nats) < 0.005:
        return "neither more nor less likely"
    factor = math.exp(min(abs(nats), 50.0))
    return f"{factor:.3g} times as likely" if nats >= 0 else f"{factor:.3g} times less likely"


def line_in_words(row: dict[str, Any]) -> str:
    """Format a row of the table for a terminal."""

    def share(name: str) -> str:
        if row[name] is None:
            return f"{'-':>19}"
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        return f"{percent(row[name]):>7} " + (
            f"[{low:4.0%}, {high:4.0%}]" if low is not None else " " * 12
        )

    shown = f"{row['model'][:34]:34} {share('exact_match')} {share('token_accuracy')}"
    shown += f" {share('rank_accuracy')}"
    shown += f" {row['parameters'] or 0:>13,}" if row["parameters"] else f" {'':>13}"
    return shown + (f"  {row['error']}" if row["error"] else f"  {row['way']}")
