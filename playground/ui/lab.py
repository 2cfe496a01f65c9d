"""Serve the Lab tab: prepared experiments, the owner's experiments, and replications.

The front end is lab.html, .css and the scripts in this folder. lab/laboratory.py runs the
experiments, and the page polls them. This module does not load torch.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import gradio as gr
from starlette.requests import Request

from playground.families import FAMILIES
from playground.lab.experiment import (
    GRID,
    LENGTHS,
    VARIANT,
    Cell,
    Experiment,
    plain_value,
    value_of,
)
from playground.lab.laboratory import Laboratory
from playground.lab.published import (
    CLAIMS,
    claims,
    compare_run,
    config_of,
    model_to_measure,
    other_settings,
    verdict_of_lengths,
)
from playground.lab.questions import questions, spec
from playground.models.config import SettingError, plain, shown
from playground.runs.eyes import resolve
from playground.runs.processes import Child
from playground.runs.registry import Registry
from playground.runs.run import Refused, Run, fingerprint
from playground.tasks import ROWS
from playground.training.config import field_owner, setting_of

from .acts import describe, settings_of
from .asked import Answerer, answer_owner
from .form import ADVANCED, FITTED, label_of
from .limits import FairPlaces, client_of
from .live import answer_of
from .subject import RUN, client_on_show, config_on_show
from .view import view

log = logging.getLogger(__name__)

SHELL = ("common.js", "elements.js", "paint.js", "lab.js", "lab_chart.js")
SCRIPTS = (*SHELL, "lab_asking.js", "lab_found.js", "lab_published.js", "lab_begin.js")
STYLES = ("common.css", "lab.css")
LONGEST_REQUEST = 20_000  # characters
OFFERED = 5  # values of a setting that the form suggests
FIGURES_WITHIN = 120  # seconds
MAX_WAITING_FIGURES = 4  # queued requests
VERDICT_WITHIN = 150
VERDICTS_A_CLIENT, VERDICTS_IN_ALL = 2, 16  # pending outcomes
MAX_VERDICTS = 256  # in memory
ENDED = "the process that draws ended"
NOT_DRAWN = "no process could be started on this machine to draw them; end a run and try again"
OF_LENGTHS = ("times", "n")


def lab_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key}."""
    return view("lab", STYLES, SCRIPTS)


class LabPage:
    """Handlers of the tab\'s requests."""

    def __init__(self, registry: Registry, laboratory: Laboratory) -> None:
        self.registry, self.laboratory = registry, laboratory
        self._verdicts: OrderedDict[tuple[str, str, int], dict[str, Any]] = (
            OrderedDict()
        )  # by claim, run and step
        self._judging: Counter[str] = Counter()  # pending outcomes by client
        self._drawing = FairPlaces(1, MAX_WAITING_FIGURES)  # each takes some seconds of one core

    def answerers(self) -> dict[str, Answerer]:
        routes = {
            "lab-questions": self.questions,
            "lab-poll": self.poll,
            "lab-plan": self.plan,
            "lab-begin": self.begin,
            "lab-do": self.act,
            "lab-csv": self.csv,
            "lab-claims": self.claims,
            "lab-claim": self.run_claim,
        }
        answerers = {name: self._route(answer) for name, answer in routes.items()}
        return answerers | {"lab-figures": self.figures, "lab-verdict": self.verdict}

    def _route(self, answer: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Answerer:
        async def serve(what: object, _: Request) -> dict[str, Any]:
            return await asyncio.to_thread(answer_owner, answer, what)

        return serve

    # Prepared and new experiments

    def questions(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Return the prepared experiments and the settings that a new experiment may vary.

        Each prepared experiment has its runs, an estimated duration, and the owner's experiment
        with the same settings, if there is one.
        """
        mine, told = self.laboratory.of_owner(owner), []
        for line in questions():
            asked = {key: line[key] for key in ("name", "title", "why", "runs", "missing")} | {
                "kind": line["spec"]["kind"]
            }
            asked |= {"varied": _varied(line["spec"]["grid"]), "estimate": None, "experiment": None}
            if not line["missing"]:
                wanted = Experiment(owner=fingerprint(owner), **line["spec"])
                asked["experiment"] = next((each.id for each in mine if each.same_as(wanted)), None)
                asked["estimate"] = self.laboratory.estimate(wanted, owner)
            told.append(asked)
        return {"questions": told, "settings": SETTINGS}

    def plan(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Return the cells, runs and estimate of an experiment without starting it."""
        return self.laboratory.plan(self._spec(owner, what), owner)

    def begin(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Start a prepared or a new experiment; return its id as `experiment`."""
        return {"experiment": self.laboratory.begin(self._spec(owner, what), owner).id}

    def _spec(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Return the experiment of a request.

        Raises:
            SettingError: naming the field of the form.
        """
        if "question" in what:
            return spec(_text(what["question"], "question"))
        form = what.get("form")
        if not isinstance(form, dict) or len(json.dumps(form)) > LONGEST_REQUEST:
            raise Refused("this page does not say what is to be tried; reload it and try again")
        given = _grid(form.get("grid"))
        grid = {name: values for name, values in given.items() if len(values) > 1} or given
        base = self._base(owner, form.get("base")) | {
            name: values[0] for name, values in given.items() if len(values) == 1
        }
        asked: dict[str, Any] = {
            "name": _text(form.get("name", ""), "name").strip()
            or " and ".join(grid)
            or "experiment",
            "base": {
                name: value for name, value in base.items() if name not in grid
            },  # a single value does not vary
            "grid": grid,
            "seeds": _whole_numbers(form.get("seeds"), "seeds"),
            "kind": form.get("kind", GRID),
        }
        if asked["kind"] == LENGTHS:
            asked |= {name: form[name] for name in OF_LENGTHS if name in form}
            if empty := next((name for name in OF_LENGTHS if form.get(name) == ""), None):
                raise SettingError(empty, f"{empty} is empty; write a whole number")
        return asked

    def _base(self, owner: str, subject: object) -> dict[str, Any]:
        """Return the fixed settings of a run or a checkpoint, without the seed.

        The result is {} for the defaults.
        """
        if not subject:
            return {}
        try:
            config = config_on_show(self.registry, {"subject": subject, "owner": owner})
        except ValueError as error:
            raise SettingError("base", str(error)) from None
        return {name: value for name, value in settings_of(config).items() if name != "seed"}

    # Experiments

    def poll(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Return the owner's experiments and the data of the one that is `open`.

        Results are included only if their `version` differs from `known`.
        """
        told: dict[str, Any] = {
            "experiments": [self._row(each, owner) for each in self.laboratory.of_owner(owner)],
            "open": None,
        }
        experiment = self.laboratory.find(what.get("open"), owner)
        if experiment:
            report = self.laboratory.report(experiment, owner)
            found = {
                name: report.pop(name) for name in ("results", "lengths", "spec") if name in report
            }
            told["open"] = report | {
                "found": None if what.get("known") == report["version"] else found
            }
        return told

    def _row(self, experiment: Experiment, owner: str) -> dict[str, Any]:
        row = self.laboratory.row(experiment, owner)
        at, of = self.laboratory.progress(experiment, owner) if row["state"] != "done" else (1, 1)
        return row | {"share": at / of if of else 0.0}

    def act(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Cancel, resume or delete an experiment."""
        acts = {
            "cancel": self.laboratory.cancel,
            "resume": self.laboratory.resume,
            "delete": self.laboratory.delete,
        }
        do = what.get("do")
        if not isinstance(do, str) or do not in acts:
            raise Refused(f"{shown(do)} is nothing that can be done with an experiment")
        acts[do](self._found(owner, what), owner)
        return {}

    def csv(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        return {"csv": self.laboratory.to_csv(self._found(owner, what), owner)}

    async def figures(self, what: object, request: Request | None) -> dict[str, Any]:
        """Return all figures of an experiment, for print: {"zip": base64}."""
        found = await asyncio.to_thread(answer_owner, self._to_draw, what)
        if "error" in found:
            return found
        try:
            async with self._drawing.one():
                return await self._draw(found, request)
        except Refused as error:
            return {"error": str(error), "again": True}

    async def _draw(self, found: dict[str, Any], request: Request | None) -> dict[str, Any]:
        future = Future[dict[str, Any]]()
        child = None
        try:
            child = Child(
                "playground.plots.drawn:work_lab",
                "figures",
                found,
                on_message=lambda answer: resolve(future, answer),
                on_end=lambda code: resolve(
                    future,
                    {
                        "error": NOT_DRAWN
                        if code is None
                        else f"{ENDED} (exit code {code}); try again"
                    },
                ),
            )
            return await answer_of(future, FIGURES_WITHIN, request)
        except (OSError, RuntimeError):  # no thread or file descriptor is free
            log.exception("The process that draws figures could not be started")
            return {"error": NOT_DRAWN}
        finally:
            if child:
                child.kill()

    def _to_draw(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        experiment = self._found(owner, what)
        learned = self.laboratory.results(experiment, owner)
        if not any(cell["n"] for cell in learned["cells"]):
            raise Refused("no run has finished yet, so there is nothing to draw")
        figures = {"experiment": learned}
        if experiment.kind == LENGTHS:
            asked = self.laboratory.lengths(experiment, owner)
            figures |= (
                {"answers-by-length": asked, "lengths-heatmap": asked}
                if any(row["n"] for row in asked["rows"])
                else {}
            )
        return figures

    def _found(self, owner: str, what: dict[str, Any]) -> Experiment:
        experiment = self.laboratory.find(what.get("experiment"), owner)
        if experiment is None:
            raise Refused("this experiment is no longer here, or not yours")
        return experiment

    # Replications

    def claims(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Return all claims with the status of the owner's replication."""
        return {
            "claims": [
                line | self._setting(line["name"]) | self._stands(owner, line["name"])
                for line in claims()
            ]
        }

    def _setting(self, name: str) -> dict[str, Any]:
        """Return a short description of a claim's training, and all its settings by name."""
        asked, settings = CLAIMS[name].experiment, dict(CLAIMS[name].settings)
        if asked is not None:
            base, grid = asked["base"], asked["grid"]
            lengths = f"{base['min_length']}–{base['max_length']}"
            told = (
                f"{base['family']}, {base['task']} {lengths}; {_varied(grid)}; "
                f"{base['steps']:,} updates, {len(asked['seeds'])} seeds"
            )
            return {"setting": told, "settings": {**base, **grid}, "experiment_asked": True}
        config = config_of(name)
        told = (
            f"{describe(config)}, d_model {config.model.d_model}; "
            f"{config.training.steps:,} updates of {config.training.batch_size}"
        )
        return {"setting": told, "settings": settings, "experiment_asked": False}

    def _stands(self, owner: str, name: str) -> dict[str, Any]:
        """Return the progress of the owner's replication of a claim."""
        stands: dict[str, Any] = {
            "experiment": None,
            "run": None,
            "state": "none",
            "step": 0,
            "steps": 0,
            "place": None,
            "message": "",
        }
        if CLAIMS[name].experiment is not None:
            experiment = self._experiment_of(owner, name)
            if experiment:
                step, steps = self.laboratory.progress(experiment, owner)
                stands |= {
                    "experiment": experiment.id,
                    "state": self.laboratory.state(experiment, owner),
                    "step": step,
                    "steps": steps,
                }
        elif run := self._run_of(owner, name):
            stands |= {
                "run": RUN + run.id,
                "state": run.status,
                "step": run.step,
                "steps": run.steps,
                "message": run.message,
            }
            stands["place"] = self.registry.place(run)
        return stands

    def _run_of(self, owner: str, name: str) -> Run | None:
        """Return the owner's newest run with the settings of a claim.

        Finished runs and runs without changed settings are preferred.
        """
        wanted = config_of(name)
        mine = [
            run
            for run in self.registry.of_owner(owner)
            if run.deleted_at is None and not other_settings(wanted, run.config)
        ]
        return max(
            mine, key=lambda run: (not run.changed, run.status == "done", run.created), default=None
        )

    def _experiment_of(self, owner: str, name: str) -> Experiment | None:
        wanted = Experiment(owner=fingerprint(owner), **(CLAIMS[name].experiment or {}))
        return next(
            (each for each in self.laboratory.of_owner(owner) if each.same_as(wanted)), None
        )

    def run_claim(self, owner: str, what: dict[str, Any]) -> dict[str, Any]:
        """Start the replication of a claim: a run or an experiment."""
        name = _claim(what)
        asked = CLAIMS[name].experiment
        if asked is not None:
            return {"experiment": self.laboratory.begin(asked, owner).id}
        return {
            "run": RUN
            + self.registry.start(config_of(name), owner, name=f"as published: {name}").id
        }

    async def verdict(self, what: object, request: Request | None) -> dict[str, Any]:
        """Compare a finished replication with the published figure.

        The number of pending comparisons is limited; a closed connection ends its wait.
        """
        found = await asyncio.to_thread(answer_owner, self._verdict, what)
        if "model" not in found:
            return found
        client = client_of(request) if request else ""
        if self._judging[client] >= VERDICTS_A_CLIENT or self._judging.total() >= VERDICTS_IN_ALL:
            return {
                "error": "the server is measuring other models; try again in a moment",
                "again": True,
            }
        self._judging[client] += 1
        try:
            future = self.registry.prover.ask(
                "loss", found["model"], client=client_on_show(what, True, request)
            )
            answer = await answer_of(future, VERDICT_WITHIN - 30, request)
        finally:
            self._judging[client] -= 1
            if not self._judging[client]:
                del self._judging[client]
        if "error" in answer:
            return answer
        return await asyncio.to_thread(
            answer_owner, lambda owner, what: self._verdict(owner, what, answer), what
        )

    def _verdict(
        self, owner: str, what: dict[str, Any], measured: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the outcome, or the `model` whose loss must be `measured` first."""
        name = _claim(what)
        if CLAIMS[name].experiment is not None:
            experiment = self._experiment_of(owner, name)
            return (
                verdict_of_lengths(self.laboratory.lengths(experiment, owner))
                if experiment
                else _not_run(name)
            )
        run = self._run_of(owner, name)
        if run is None:
            return _not_run(name)
        key = (name, run.id, run.step)
        if known := self._verdicts.get(key):
            return known
        if measured is None and (model := model_to_measure(self.registry, name, run)) is not None:
            return {"model": dict(model)}
        told = compare_run(self.registry, name, run, 0, measured or {})
        if told["passed"] is not None:  # an undecided outcome may change
            self._verdicts[key] = told
            while len(self._verdicts) > MAX_VERDICTS:
                self._verdicts.popitem(last=False)
        return told


def _not_run(name: str) -> dict[str, Any]:
    return {"name": name, "passed": None, "ours": None, "sentence": "not run yet"}


def _claim(what: Mapping[str, Any]) -> str:
    name = _text(what.get("name"), "name")
    if name not in CLAIMS:
        raise SettingError("name", f"claim is {shown(name)}; choose one of {', '.join(CLAIMS)}")
    return name


def _grid(given: object) -> dict[str, list[Any]]:
    """Parse the varied settings of the form, [[name, "value, value"], ...].

    Raises:
        SettingError: naming the setting.
    """
    if not isinstance(given, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in given
    ):
        raise SettingError("grid", "say which setting varies, and with which values")
    grid: dict[str, list[Any]] = {}
    for pair in given:
        name, text = (_text(each, "grid") for each in pair)
        if name in grid:
            raise SettingError(
                name,
                f"{name} occurs twice; select another setting, or type all values into one field",
            )
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise SettingError(name, f"{name} has no values; write some, separated by commas")
        grid[name] = [value_of(name, part) for part in parts]
    return grid


def _whole_numbers(text: object, field: str) -> list[int]:
    parts = [part.strip() for part in _text(text, field).split(",") if part.strip()]
    if not parts:
        raise SettingError(
            field, f"{field} are empty; write one whole number or more, separated by commas"
        )
    try:
        return [int(part) for part in parts]
    except ValueError:
        raise SettingError(
            field, f"{field} are {shown(text)}; write whole numbers, separated by commas"
        ) from None


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_REQUEST:
        raise SettingError(field, f"{field} is {shown(value)}; text is expected")
    return value


def _varied(grid: Mapping[str, list[Any]]) -> str:
    """Describe the varied settings, for example `positions: learned, rope`."""
    told = []
    for name, values in grid.items():
        if name == VARIANT:
            told.append(", ".join(Cell({name: each}, {}).short for each in values))
        else:
            told.append(f"{name}: {', '.join(plain_value(value) for value in values)}")
    return "; ".join(told)


def _setting(name: str, group: str) -> dict[str, Any]:
    """Return the help, the accepted values and the suggested values of a setting."""
    if name == "family":
        choices, default, help, low, high = (
            list(FAMILIES),
            "transformer",
            "Which model is trained.",
            0,
            0,
        )
    else:
        setting: Any = setting_of(name)
        default, (help, low, high) = (
            setting.default,
            (setting.metadata[key] for key in ("help", "low", "high")),
        )
        choices = [
            choice for choice in setting.metadata["choices"] if (name, choice) != ("task", ROWS)
        ]
    if choices:
        accepts, begin = "any of " + ", ".join(choices), ", ".join(choices[:OFFERED])
    elif isinstance(default, bool):
        accepts, begin = "on or off", "on, off"
    else:
        kind = "whole numbers" if isinstance(default, int) else "numbers"
        accepts, begin = f"{kind} from {plain(low)} to {plain(high)}", ""
    return {
        "name": name,
        "label": label_of(name),
        "group": group,
        "help": help,
        "accepts": accepts,
        "begin": begin,
        "default": plain_value(default),
    }


def _settings() -> list[dict[str, Any]]:
    grouped = {"First of all": ("family", "task", "min_length", "max_length"), **ADVANCED}
    listed = [(name, group) for group, names in grouped.items() for name in names]
    rest = [
        (name, "Of other families")
        for name in field_owner()
        if name not in {each for each, _ in listed}
    ]
    left_out = (*FITTED, "rows", "seed", "device", "threads")
    return [_setting(name, group) for name, group in (*listed, *rest) if name not in left_out]


SETTINGS = _settings()
