"""The table: a checkpoint, pretrained models and baselines, asked the same held-out sequences and scored the same way.

Rows as they are told, each with its "kind":

    settings   the questions: a note on them, the worked examples, the caption
    model      how a model stands (see sheet.COLUMNS), told anew after every item; `place` is its line, `over` whether it is done
    estimate   seconds that a model will take, from a measured forward pass, before it is asked
    item       an answer: prompt, tokens, raw output, what was read in it, right or wrong by symbol, candidates with their scores
    leak       what a masked model gains by being shown the other symbols of the right answer
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
RANKED = 10  # items, unless more are asked for: BERT reads one of ten symbols some 140 times for it
HOSTED_RANKED = 5  # at most, where strangers share the machine
FINE_TUNED = "fine-tuned.json"  # in a folder that fine-tuning here has left: {"from": name, "task": name, "steps": n}
KINDS = {"causal": "text-generation", "masked": "fill-mask"}


@dataclass(frozen=True)
class Asked:
    """What a table is made of.

    checkpoint   a folder; put here by the server or the command line, never by a browser
    name         what the checkpoint is called in the table
    models       names of models on the Hub, or of folders where those are allowed
    n            held-out sequences to ask
    shots        worked examples for pretrained models, as far as there are positions for them
    rank         how many of the items are ranked, too: a masked model needs a forward pass for each symbol of each candidate
    """

    checkpoint: str
    name: str
    models: tuple[str, ...]
    n: int
    shots: int
    rank: int

    @classmethod
    def of(cls, what: dict[str, Any]) -> Asked:
        """Raises Refused for what cannot be asked."""

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
    """Ask everybody. `what`: see Asked. A model that cannot be asked becomes a row that says why, and the others go on.

    Raises:
        Refused: for a checkpoint that cannot be used, or settings that cannot be.
        Cancelled: between two items at the latest; what was told stays true.
    """
    asked = Asked.of(what)
    tell.say(f"Loading {asked.name}")
    torch.set_num_threads(
        1
    )  # more only get into each other's way at this size; pretrained models take more (pretrained.py)
    manifest, family = load_model(Path(asked.checkpoint))
    settings = manifest.config.task
    task = settings.load()
    questions = draw_questions(task, asked.n, settings.min_length, settings.max_length)
    if not questions.items:
        raise Refused(
            f"no held-out sequence of {settings.max_length} symbols or fewer can be asked; choose a checkpoint of longer ones"
        )
    table = Table(asked, questions, settings, tuple(task.vocabulary.symbols), tell)
    scratch = Scratch(asked.name, task, family)
    tell.row({"kind": "settings", "note": questions.note, "caption": table.caption(scratch.parameters or 0),
              "examples": [[each.asked, each.right] for each in questions.examples[: asked.shots]], "asked": dataclasses.asdict(asked),
              "task": dataclasses.asdict(settings)})  # fmt: skip
    table.chance()
    for baseline in (Copy(), MostFrequent(), CommonestTarget(questions.items)):
        table.ask(baseline, told=False)
    table.ask(scratch)
    for name in asked.models:
        table.ask_model(name)
    return {"rows": table.rows, "leaks": table.leaks, "caption": table.caption(scratch.parameters or 0), "note": questions.note,
            "asked": dataclasses.asdict(asked), "task": dataclasses.asdict(settings)}  # fmt: skip


class Table:
    """The rows so far."""

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
        """What is compared with what, and what that does not say."""
        name, task = self.asked.name, self.task
        lengths = (
            f"{task.min_length} to {task.max_length}"
            if task.min_length < task.max_length
            else f"{task.max_length}"
        )
        return (
            f"{name} ({parameters:,} parameters) was trained on exactly this task, {task.task} of {lengths} symbols; pretrained models "
            f"were trained on text and get up to {self.asked.shots} worked examples, unless their row says fine-tuned. So this is no race "
            "between equals: it shows what training gives to a small model, and how far text alone takes a large one. An answer counts "
            "only as symbols with blanks between them; masked models are told how many. Brackets: 95 % intervals (Wilson), those of "
            f"symbols as if each were independent.{self.on_ranking()}"
        )

    def on_ranking(self) -> str:
        """How many items are ranked, and why no more."""
        if not self.asked.rank:
            return ""
        said = f" {len(self.ranked)} of the {len(self.items)} sequences are ranked, too: the right answer among others of its length"
        single = len(self.items) - len(self.rankable)
        return said + (f"; for {single} there is no other to choose from." if single else ".")

    # Lines

    def line(self, answerer: Any, **more: Any) -> dict[str, Any]:
        """The line of somebody who is asked, before the first item."""
        return {
            "kind": "model", "place": len(self.rows), "model": answerer.name, "what": answerer.what, "way": answerer.way,
            "note": getattr(answerer, "note", ""), "error": "", "parameters": getattr(answerer, "parameters", None),
            "examples": len(getattr(answerer, "examples", ())) or None, "weights_bytes": getattr(answerer, "weights", None),
            "grown_bytes": None, "over": False, **Tally().told(), **more,
        }  # fmt: skip

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
        """Ask every item; its scores, and the summed log-probability of the right answers where that was measured.

        Whatever goes wrong in between becomes part of the row, which keeps what had come.
        """
        tally, row = Tally(), self.line(answerer)
        self.rows.append(row)
        summed: float | None = 0.0
        self.tell.say(f"Asking {answerer.name}: {answerer.way}")
        try:
            if estimate := answerer.estimate(self.items, self.ranked):
                sentence = f"{answerer.name}: about {_duration(estimate[0])} for {len(self.items)} items ({estimate[1]})"
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
            "kind": "item", "number": number + 1, "question": item.asked, "answer": item.right, "prompt": answer.prompt,
            "tokens": answer.tokens, "ids": answer.ids, "raw": answer.raw, "read": answer.read and list(answer.read),
            "right": is_exact(answer.read, item.answer), "places": right_places(answer.read, item.answer), "seconds": seconds,
            "candidates": [], "rank": None,
        }  # fmt: skip
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
        """Find, open and ask one model; a sentence in its row where that cannot be."""
        found: Found | None = None
        try:
            found = find(name, self.tell)
            what = trained_on(found)
            pipe, kind = open_of_a_kind(found, self.tell)
            task = KINDS[kind]
            base = memory_used() - growth(task, found)
            shots = (
                0 if is_tuned(found) else self.asked.shots
            )  # it was trained on the bare question
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
            row = {"model": name, "what": trained_on(found) if found else "not asked", "way": ""}
            self.put(self.line(Chance) | row | {"error": str(in_words(error, name)), "over": True})

    def leak(
        self, name: str, at_once: tuple[Tally, float | None], one_by_one: tuple[Tally, float | None]
    ) -> None:
        """How much a masked model gains when all other symbols of the right answer are shown to it."""
        (hidden, log_hidden), (shown, log_shown) = at_once, one_by_one
        if not (hidden.n == shown.n == len(self.items)) or log_hidden is None or log_shown is None:
            return
        left_over = [right_places(by_elimination(item), item.answer) for item in self.items]
        guessed = sum(map(sum, left_over)) / shown.symbols
        before, after = hidden.right_symbols / hidden.symbols, shown.right_symbols / shown.symbols
        gained = (log_shown - log_hidden) / shown.symbols
        row = {
            "kind": "leak", "model": name, "at_once": before, "one_at_a_time": after, "gain": after - before,
            "nats_a_symbol": gained, "by_elimination": guessed, "n": shown.n, "symbols": shown.symbols,
            "sentence": f"{name}: with the other slots shown right it fills {100 * after:.1f} % of the slots, with all of them masked "
            f"{100 * before:.1f} %; each right symbol becomes {_times(gained)}. Shown the others, whoever writes down the one symbol of "
            f"the input left over fills {100 * guessed:.1f} % without knowing the rule: only the row with all slots masked compares with "
            "others.",
        }  # fmt: skip
        self.leaks.append(row)
        self.tell.row(row)


def is_tuned(found: Found) -> bool:
    """Whether a model is what fine-tuning here has left."""
    return found.where == "directory" and (Path(found.folder) / FINE_TUNED).is_file()


def trained_on(found: Found) -> str:
    """What a model was trained on, as far as it is known here."""
    if found.where != "directory":
        return "pretrained, never trained on this task"
    try:
        told = json.loads((Path(found.folder) / FINE_TUNED).read_text(encoding="utf-8"))
        return f"fine-tuned: {int(told['steps'])} steps on {str(told['task'])[:40]}, from {str(told['from'])[:100]}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "a folder; what it was trained on is not known here"


def open_of_a_kind(found: Found, tell: Tell) -> tuple[Any, str]:
    """A model as a pipeline, and whether it is causal or masked; where its config does not say, what loads decides.

    Raises:
        Refused: when it loads as neither.
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
        f"{found.name} neither writes on (causal) nor fills gaps (masked), so it cannot be asked; choose a model such as gpt2"
    )


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _times(nats: float) -> str:
    """A gain in log-probability in words."""
    if abs(nats) < 0.005:
        return "neither more nor less likely"
    factor = math.exp(min(abs(nats), 50.0))
    return f"{factor:.3g} times as likely" if nats >= 0 else f"{factor:.3g} times less likely"


def line_in_words(row: dict[str, Any]) -> str:
    """A line of the table for a terminal."""

    def share(name: str) -> str:
        if row[name] is None:
            return f"{'-':>19}"
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        return f"{percent(row[name]):>7} " + (
            f"[{low:4.0%}, {high:4.0%}]" if low is not None else " " * 12
        )

    shown = f"{row['model'][:34]:34} {share('exact_match')} {share('token_accuracy')} {share('rank_accuracy')}"
    shown += f" {row['parameters'] or 0:>13,}" if row["parameters"] else f" {'':>13}"
    return shown + (f"  {row['error']}" if row["error"] else f"  {row['way']}")
