"""The playground for programs and agents: named endpoints for gradio_client, plain HTTP and, where `gradio[mcp]` is installed, as MCP
tools. Each asks what the page asks (asked.py), so that what a visitor may see and do is decided in one place.

Whose: `start` returns the run's id and an owner's key, which nobody can guess; who has both may steer the run, as the browser does that
started one. A `model` is a run's id (with its owner's key), `watch:ID` as in a link to watch, or `checkpoint:NAME`. On a machine that
serves nobody else, a missing key stands for the machine's one owner.

Gradio reads names, types and explanations from the signatures and docstrings below; it does so without `from __future__ import
annotations`. Values are not checked before they come here. No endpoint passes through Gradio's queue, in whose line the page's own
buttons stand.
"""

import asyncio
import base64
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from importlib.util import find_spec
from typing import Any, Literal

import gradio as gr
from starlette.requests import Request

from playground.comparison.sheet import standing
from playground.families import FAMILIES
from playground.models.config import SettingError, shown
from playground.runs.registry import CLIENT_ADDRESS, Registry
from playground.runs.run import WORKING, Refused
from playground.statistics import wilson
from playground.tasks import ROWS, TASKS
from playground.training.config import RunConfig, field_owner, setting_of
from playground.training.devices import ZERO, on_zero
from playground.training.environment import env_number
from playground.training.manifest import CheckpointError
from playground.training.presets import PRESETS, family_config, preset_config

from .asked import Answerer
from .form import of_rows
from .hub import on_a_space
from .limits import Limits, Places, client_of
from .live import answer_of
from .origin import is_own_origin
from .subject import CHECKPOINT, RUN, WATCH, checkpoint_folder, client_on_show, run_on_show
from .visit import OWNER, new_owner

SETTLED_WITHIN = 10.0  # seconds that pause, resume and stop wait for the run to have heard it
LONGEST_WAIT = 240.0  # seconds that compare, push and job may wait for their end
POLLED_EVERY = 0.25
MOST_EVALUATED = 2000  # held-out sequences
EVALUATED_WITHIN = 280.0  # seconds
MOST_WEIGHTS = 200_000  # numbers in one answer
LOOKS_AT_ONCE = 4
WAITS_OF_A_CLIENT, WAITS_IN_ALL = 8, 64  # calls that wait for a job to end
LONGEST_NAME = 200
COMPARE, PUSH = "compare:", "push:"  # begin a job's id
SETTLED = {
    "pause": lambda status: status not in (*WORKING, "waiting"),
    "resume": lambda status: status not in ("paused", "stopped", "failed"),
    "stop": lambda status: status not in (*WORKING, "waiting", "paused"),
}


def has_mcp() -> bool:
    """Whether the endpoints can be served as MCP tools."""
    return find_spec("mcp") is not None


class Endpoints:
    """The endpoints over a registry and what the page's scripts may ask.

    Args:
        answers: the page's answerers by name.
        opened: others may come, so calls are counted.
    """

    def __init__(self, registry: Registry, answers: Mapping[str, Answerer], opened: bool) -> None:
        self.registry, self.answers = registry, answers
        self.limits = Limits.from_environment(opened)
        self.waiting = Counter[str]()  # calls that wait for a job, by client
        self.looking = Places(LOOKS_AT_ONCE, 4 * LOOKS_AT_ONCE)
        self.evaluating = Places(int(env_number("API_MAX_CONCURRENT")))  # of everybody together

    def place(self) -> None:
        """Make the endpoints part of the page that is being built."""
        if has_mcp():
            from . import mcp_server

            mcp_server.install()
        for endpoint in (
            self.settings,
            self.models,
            self.start,
            self.status,
            self.pause,
            self.resume,
            self.stop,
            self.predict,
            self.attention,
            self.evaluate,
            self.compare,
            self.push,
            self.job,
            self.cancel,
        ):
            gr.api(_in_words(endpoint), api_name=endpoint.__name__, queue=False)

    # What there is

    async def settings(self, request: gr.Request = None) -> dict[str, Any]:
        """List what a run can be started with: tasks, presets, model families, and every setting with its default, choices and meaning.

        Returns:
            tasks, presets and families by name with a sentence each, and settings by name: default, choices (if any), meaning, part.
        """
        self._counted(request)
        return {
            "tasks": {
                name: f"{task.sentence} {' -> '.join(task.example)}" for name, task in TASKS.items()
            },
            "presets": {name: preset.sentence for name, preset in PRESETS.items()},
            "families": {name: family.sentence for name, family in FAMILIES.items()},
            "settings": {
                name: {
                    "default": setting_of(name).default,
                    "choices": list(setting_of(name).metadata["choices"] or []),
                    "meaning": setting_of(name).metadata["help"],
                    "part": part,
                }
                for name, part in field_owner().items()
                if "help" in setting_of(name).metadata
            },
        }

    async def models(self, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """List the models that can be asked: checkpoints that everybody may use, and the runs of the owner whose key is given.

        Args:
            owner: the key that start returned; without one, only checkpoints are listed (on one's own machine also its runs).

        Returns:
            checkpoints and runs, each with the name to pass as model, its task, parameters, and best exact match (0 to 1).
        """
        self._counted(request)
        told = await self._asked("runs", {"owner": self._owner(owner)}, request)
        runs = [
            row | {"model": row["subject"].removeprefix(RUN)}
            for row in told["runs"]
            if not row["deleted"]
        ]
        return {
            "checkpoints": [
                _without(row | {"model": row["subject"]}, "subject") for row in told["checkpoints"]
            ],
            "runs": [_without(row, "subject", "hidden", "deleted") for row in runs],
        }

    # Runs

    async def start(
        self,
        settings: dict[str, Any] | None = None,
        preset: str = "",
        name: str = "",
        owner: str = "",
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Start training a small transformer from scratch. It trains in the background; ask status how it goes. A run that nobody asks
        about for some time saves and pauses itself.

        Args:
            settings: settings that differ from the defaults, by name, such as {"task": "reverse", "max_length": 8, "steps": 300}; the settings endpoint lists them.
            preset: a named starting point, fast when left out; the settings endpoint lists them.
            name: what the run is called.
            owner: the key of an earlier start, so that both runs belong together; without one, a new key is made.

        Returns:
            run: its id; owner: the key that steers it, to be kept secret; watch: a model name that may be shared, with which it can be looked at and nothing else; status, steps, parameters.
        """
        self._counted(request, "starts")
        key = self._owner(owner) or new_owner()
        try:
            given = _dictionary("settings", settings)
            given |= of_rows(given) if given.get("task") == ROWS else {}
            label = _text("name", name)
            config = _config(given, _text("preset", preset))
            if config.training.device == ZERO and on_zero():
                raise Refused(
                    "device is 'zero', but ZeroGPU lends a GPU only to an open page; take device auto or cpu"
                )
            run = await asyncio.to_thread(
                self.registry.start, config, key, name=" ".join(label.split())
            )
        except (Refused, ValueError, TypeError) as error:
            raise Refused(f"not started: {error}") from None
        return {
            "run": run.id,
            "owner": key,
            "watch": WATCH + run.watch_id,
            "name": run.name,
            "status": run.status,
            "steps": run.steps,
            "parameters": config.model.parameter_count(),
        }

    async def status(
        self, model: str, owner: str = "", curve: bool = False, request: gr.Request = None
    ) -> dict[str, Any]:
        """Tell how a run or checkpoint stands: status, step, loss, exact match on held-out sequences; with curve, the whole curve.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            owner: the key that start returned, for a run's id.
            curve: whether to add the loss by step and the scores, thinned to at most some 3000 points.

        Returns:
            status is waiting, starting, training, paused, stopping, done, stopped, failed or checkpoint; message says what went wrong; exact_match is the latest score (0 to 1), scores the final ones by length.
        """
        self._counted(request)
        return await self._status(self._subject(model, owner), curve is True, request)

    async def pause(self, run: str, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """Pause a run after its current step, and save a checkpoint.

        Args:
            run: the run's id.
            owner: the key that start returned.

        Returns:
            as status.
        """
        return await self._steered(run, owner, "pause", request)

    async def resume(self, run: str, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """Go on with a paused, stopped or failed run from where it was, or from its last checkpoint.

        Args:
            run: the run's id.
            owner: the key that start returned.

        Returns:
            as status.
        """
        return await self._steered(run, owner, "resume", request)

    async def stop(self, run: str, owner: str = "", request: gr.Request = None) -> dict[str, Any]:
        """End a run. It saves a checkpoint first and can be asked, and resumed, afterwards.

        Args:
            run: the run's id.
            owner: the key that start returned.

        Returns:
            as status.
        """
        return await self._steered(run, owner, "stop", request)

    # Asking a model

    async def predict(
        self, model: str, sequence: str, owner: str = "", step: int = -1, request: gr.Request = None
    ) -> dict[str, Any]:
        """Ask a model for its answer to a sequence. It is written symbol by symbol from the model's own earlier ones.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            sequence: symbols of the model's task, such as "3 1 4".
            owner: the key that start returned, for a run's id.
            step: of a run, with the weights of the recorded step nearest to this one; -1 for the latest.

        Returns:
            given: the model's answer; answer: the right one, or null where it is not known; right: whether they are equal; note.
        """
        self._counted(request)
        what = self._subject(model, owner) | {"text": _text("sequence", sequence, 2000)} | _at(step)
        async with self.looking.one():
            return await self._asked("try", what, request)

    async def attention(
        self,
        model: str,
        sequence: str,
        kind: Literal["cross", "encoder", "decoder"] = "cross",
        layer: int = -1,
        head: int = -1,
        owner: str = "",
        step: int = -1,
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Tell where every attention head looks while the model writes its answer to a sequence.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            sequence: symbols of the model's task, such as "3 1 4".
            kind: cross (what is written looks at the source), encoder (the source at itself) or decoder (what is written at what was before).
            layer: one layer, from 0 on; -1 for all.
            head: one head, from 0 on; -1 for all.
            owner: the key that start returned, for a run's id.
            step: of a run, with the weights of the recorded step nearest to this one; -1 for the latest.

        Returns:
            weights[layer][head][row][column] from 0 to 1, every row summing to 1 but for rounding to thousandths; rows and columns name the symbols; layers and heads say which were asked for.
        """
        self._counted(request)
        what = (
            self._subject(model, owner)
            | {"text": _text("sequence", sequence, 2000), "view": "attention"}
            | _at(step)
        )
        async with self.looking.one():
            told = await self._asked("inspect", what | {"options": {"kind": kind}}, request)
        layers = _chosen("layer", layer, told["layers"])
        heads = _chosen("head", head, told["heads"])
        rows, columns = len(told["rows"]), len(told["columns"])
        if len(layers) * len(heads) * rows * columns > MOST_WEIGHTS:
            raise Refused(
                f"these are more than {MOST_WEIGHTS:,} weights; ask for one layer or one head at a time"
            )
        thousandths = array("h", base64.b64decode(told["weights"]))

        def row(of_layer: int, of_head: int, at: int) -> list[float]:
            first = ((of_layer * told["heads"] + of_head) * rows + at) * columns
            return [weight / 1000 for weight in thousandths[first : first + columns]]

        return {
            "kind": told["kind"],
            "layers": layers,
            "heads": heads,
            "rows": told["rows"],
            "columns": told["columns"],
            "weights": [[[row(i, j, at) for at in range(rows)] for j in heads] for i in layers],
            "written": told["written"],
            "answer": told["answer"],
            "step": told.get("step"),
            "note": told["note"],
        }

    async def evaluate(
        self, model: str, n: int = 500, owner: str = "", step: int = -1, request: gr.Request = None
    ) -> dict[str, Any]:
        """Score a model on held-out sequences, which never trained it. An answer counts as it is written, symbol by symbol.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            n: how many sequences to ask, from 1 to 2000, spread over the lengths that the model was trained on.
            owner: the key that start returned, for a run's id.
            step: of a run, with the weights of the recorded step nearest to this one; -1 for the latest.

        Returns:
            n distinct sequences, exact_match and token_accuracy (0 to 1), interval (95 %, of exact_match), by_length, and the step.
        """
        self._counted(request, "heavy")
        subject, wanted = self._subject(model, owner), _number("n", n, 1, MOST_EVALUATED)
        run, own = run_on_show(self.registry, subject)
        at = _at(step).get("step")
        what = run or checkpoint_folder(self.registry, subject)
        if what is None:
            raise Refused(_gone(model))
        client = client_on_show(subject, own, _request(request))
        async with self.evaluating.one():
            told = await answer_of(
                await asyncio.to_thread(self.registry.evaluate, what, wanted, at, client),
                EVALUATED_WITHIN,
            )
        if "error" in told:
            raise Refused(told["error"])
        interval = (
            list(wilson(round(told["exact_match"] * told["n"]), told["n"])) if told["n"] else None
        )
        return told | {"interval": interval}

    # What takes longer

    async def compare(
        self,
        model: str,
        models: list[str] | None = None,
        n: int = 20,
        shots: int = 8,
        wait: float = 60,
        owner: str = "",
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Ask a model, plain baselines and pretrained models from the Hub the same held-out sequences, and score them the same way.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            models: up to 6 pretrained models on the Hub, such as ["gpt2", "bert-base-uncased"]; without any, only the baselines are asked.
            n: how many sequences to ask, from 1 to 500; up to 40 where others share the machine.
            shots: worked examples in a prompt, from 0 to 32.
            wait: seconds to wait for the end, up to 240; ask job afterwards.
            owner: the key that start returned; without one, a new key is made for the job.

        Returns:
            job and owner: what to ask job with; status is waiting, working, done, failed or cancelled; rows: a line for each model with exact_match and its 95 % interval; result when it is done.
        """
        self._counted(request, "heavy")
        names = models if models is not None else []
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise Refused(f"models is {shown(models)}; give a list of names on the Hub")
        what, seconds = (
            {
                "models": names,
                "n": _number("n", n, 1, 500),
                "shots": _number("shots", shots, 0, 32),
            },
            _seconds(wait),
        )
        subject = self._subject(model, owner)
        key = subject["owner"] or new_owner()
        begun = await self._asked(
            "compare-begin", subject | {"owner": key, "kind": "table", "what": what}, request
        )
        return await self._awaited(COMPARE + begun["job"], key, seconds, request)

    async def push(
        self,
        model: str,
        repo: str,
        token: str = "",
        private: bool = False,
        branch: str = "main",
        with_data: bool = False,
        wait: float = 60,
        owner: str = "",
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Publish a run's newest checkpoint, or a checkpoint, on the Hugging Face Hub as one commit, with a card.

        Args:
            model: a run's id, or checkpoint:NAME.
            repo: user/name on the Hub; it is made if it is not there.
            token: your token that may write, used for this push and kept nowhere; on your own machine, without one, what hf auth login left there.
            private: whether a new repository is private.
            branch: the branch that gets the commit.
            with_data: whether to publish the training set beside it.
            wait: seconds to wait for the end, up to 240; ask job afterwards.
            owner: the key that start returned; without one, a new key is made for the job.

        Returns:
            job and owner: what to ask job with; status is working, done or failed; result when it is done: where the model is.
        """
        self._counted(request, "heavy")
        subject = self._subject(model, owner)
        if on_a_space() and not _request(request).scope.get("session", {}).get("oauth_info"):
            raise Refused(
                "on a Space one publishes after signing in with Hugging Face, on the page's Hub tab; or fetch the checkpoint and push it "
                "from your own machine"
            )
        key, seconds = subject["owner"] or new_owner(), _seconds(wait)
        what = subject | {
            "owner": key,
            "kind": "push",
            "repo": _text("repo", repo),
            "token": token,
            "private": private is True,
            "revision": _text("branch", branch),
            "data": with_data is True,
        }
        begun = await self._asked("hub-start", what, request)
        return await self._awaited(PUSH + begun["job"], key, seconds, request)

    async def job(
        self, job: str, owner: str, wait: float = 0, request: gr.Request = None
    ) -> dict[str, Any]:
        """Tell how a comparison or a push goes. Results are kept for a quarter of an hour.

        Args:
            job: what compare or push returned as job.
            owner: what it returned as owner.
            wait: seconds to wait for the end, up to 240.

        Returns:
            as compare or push.
        """
        self._counted(request)
        return await self._awaited(job, self._owner(owner), _seconds(wait), request)

    async def cancel(self, job: str, owner: str, request: gr.Request = None) -> dict[str, Any]:
        """End a comparison or a push. A comparison keeps the rows that it has; of a push, the last sentence says what may be there.

        Args:
            job: what compare or push returned as job.
            owner: what it returned as owner.

        Returns:
            as compare or push.
        """
        self._counted(request)
        key = self._owner(owner)
        of, name = _job(job)
        await self._asked(
            "compare-cancel" if of == COMPARE else "hub-cancel",
            {"job": name, "owner": key},
            request,
        )
        return await self._awaited(job, key, 2.0 if of == PUSH else 0.0, request)

    # How it is done

    async def _asked(self, name: str, what: dict[str, Any], request: Any) -> dict[str, Any]:
        """What the page would be told. Raises Refused with the sentence where it is told what is wrong."""
        told = await self.answers[name](what, _request(request))
        if "error" in told:
            raise Refused(told["error"])
        return told

    async def _status(self, subject: dict[str, str], curve: bool, request: Any) -> dict[str, Any]:
        told = await self._asked("poll", subject | {"known": 0, "epoch": -1, "looks": 0}, request)
        if told["status"] == "gone":
            raise Refused(told["message"] or _gone(subject["subject"]))
        points, latest = told["points"], told.get("latest") or {}
        scored = points["scored"][-1] if points["scored"] else None
        answer = {
            "status": told["status"],
            "message": told["message"],
            "name": told["name"],
            "step": told["step"],
            "steps": told["steps"],
            "place": told.get("place"),
            "loss": latest.get("loss"),
            "steps_per_second": latest.get("steps_per_second"),
            "exact_match": scored[1] if scored else None,
            "scored_at": scored[0] if scored else None,
            "scores": told["scores"],
            "parameters": told["parameters"],
        }
        columns = ("steps", "loss", "learning_rate", "gradient_norm", "scored")
        return answer | ({"curve": {name: points[name] for name in columns}} if curve else {})

    async def _steered(self, run: str, owner: str, action: str, request: Any) -> dict[str, Any]:
        self._counted(request)
        subject = self._subject(run, owner)
        await self._asked("do", subject | {"do": action}, request)
        found, _ = run_on_show(self.registry, subject)
        await _until(lambda: found is None or SETTLED[action](found.status), SETTLED_WITHIN)
        return await self._status(subject, False, request)

    async def _awaited(self, job: str, owner: str, seconds: float, request: Any) -> dict[str, Any]:
        """How a job stands as soon as it is over, or after so many seconds."""
        of, name = _job(job)
        client = client_of(_request(request))
        deadline = time.monotonic() + seconds * self._may_wait(client)
        self.waiting[client] += 1
        try:
            while True:
                what = {"job": name, "owner": owner}
                told = await self._asked(
                    "compare-poll" if of == COMPARE else "hub-job", what, request
                )
                if told["status"] not in ("waiting", "working") or time.monotonic() >= deadline:
                    break
                await asyncio.sleep(POLLED_EVERY)
        finally:
            self.waiting -= Counter([client])
        answer = {
            "job": job,
            "owner": owner,
            "status": told["status"],
            "sentence": told["sentence"],
            "again": told["again"],
        }
        if of == COMPARE:
            answer |= {"done": told["done"], "total": told["total"], "rows": standing(told["rows"])}
        return answer | {"result": _unlike_files(told["result"])}

    def _may_wait(self, client: str) -> bool:
        """Whether one more call of a client may wait for a job; others get the job's status at once."""
        return self.waiting[client] < WAITS_OF_A_CLIENT and self.waiting.total() < WAITS_IN_ALL

    def _owner(self, owner: object) -> str:
        """The key that was given, else that of the machine's one owner, else none.

        Raises:
            Refused: for what is no key.
        """
        if owner == "" or owner is None:
            return self.registry.local_owner
        if not isinstance(owner, str) or not OWNER.fullmatch(owner):
            raise Refused(
                "owner is no key of this server: pass on what start returned as owner, or leave it out"
            )
        return owner

    def _subject(self, model: object, owner: object) -> dict[str, str]:
        """What a model's name stands for (subject.py). Raises Refused for what is not there, or is not the owner's."""
        name = _text("model", model).strip()
        subject = {
            "subject": name if name.startswith((RUN, WATCH, CHECKPOINT)) else RUN + name,
            "owner": self._owner(owner),
        }
        if (
            run_on_show(self.registry, subject)[0] is None
            and checkpoint_folder(self.registry, subject) is None
        ):
            raise Refused(_gone(name))
        return subject

    def _counted(self, request: Any, kind: str = "calls") -> None:
        """Count a call of this client. Raises Refused when there are too many, and for a page of another site, which may send such
        requests with the visitor's cookies."""
        client = client_of(_request(request))
        CLIENT_ADDRESS.set(client)  # Gradio runs some calls outside of the request
        if not is_own_origin(_request(request).headers):
            raise Refused(
                "pages of other sites may not ask here; ask from a program, or open the playground itself"
            )
        self.limits.take("calls", client)
        if kind != "calls":
            self.limits.take(kind, client)


def _in_words(
    endpoint: Callable[..., Awaitable[dict[str, Any]]],
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """An endpoint whose refusals reach the client as sentences; what nobody foresaw reaches it as such, without its text."""

    @wraps(endpoint)
    async def called(*values: Any, **named: Any) -> dict[str, Any]:
        try:
            return await endpoint(*values, **named)
        except (Refused, SettingError, CheckpointError) as error:
            raise gr.Error(str(error), print_exception=False) from None

    return called


def _request(request: Any) -> Request:
    """The request as the page's answerers take it: Gradio wraps it, its MCP server does not."""
    return request.request if isinstance(request, gr.Request) else request


def _config(given: dict[str, Any], preset: str) -> RunConfig:
    """The run that settings describe: laid over a preset, or else over what suits their family. Raises ValueError."""
    of_preset = PRESETS[preset].settings.get("family") if preset in PRESETS else None
    if of_preset and given.get("family", of_preset) != of_preset:
        raise ValueError(
            f"preset {preset} is of the family {of_preset}, but family is {shown(given['family'])}; leave one of them out"
        )
    if preset or "family" not in given:
        return preset_config(preset or "fast", given)
    return family_config(**given)


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition, so many seconds at most."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


def _gone(model: str) -> str:
    return (
        f"there is no model {shown(model)} for you: give a run's id with the key that start returned as owner, watch:ID, or "
        "checkpoint:NAME; the models endpoint lists them"
    )


def _job(job: object) -> tuple[str, str]:
    """Which of the two kinds of job, and its own name."""
    for of in (COMPARE, PUSH):
        if isinstance(job, str) and job.startswith(of):
            return of, job.removeprefix(of)
    raise Refused(f"job is {shown(job)}; give what compare or push returned as job")


def _text(name: str, value: object, longest: int = LONGEST_NAME) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise Refused(f"{name} is {shown(value)}; give a text of at most {longest:,} characters")
    return value


def _number(name: str, value: object, low: int, high: int) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not low <= value <= high
        or value != int(value)
    ):
        raise Refused(f"{name} is {shown(value)}; give a whole number from {low:,} to {high:,}")
    return int(value)


def _seconds(value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= LONGEST_WAIT
    ):
        raise Refused(
            f"wait is {shown(value)}; give a number of seconds from 0 to {LONGEST_WAIT:g}"
        )
    return float(value)


def _dictionary(name: str, value: object) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise Refused(
            f'{name} is {shown(value)}; give an object of names and values, such as {{"task": "copy"}}'
        )
    return dict(value or {})


def _at(step: object) -> dict[str, int]:
    """The wanted step as the page sends it; nothing for the latest."""
    at = _number("step", step, -1, 2**31 - 1)
    return {"step": at} if at >= 0 else {}


def _chosen(name: str, value: object, there: int) -> list[int]:
    """One of so many, or all of them for -1."""
    at = _number(name, value, -1, there - 1)
    return [at] if at >= 0 else list(range(there))


def _unlike_files(value: Any) -> Any:
    """The value with `file` for `path`: gradio_client takes a dictionary with a path for a file that it is to fetch."""
    if isinstance(value, dict):
        return {
            "file" if key == "path" else key: _unlike_files(each) for key, each in value.items()
        }
    return [_unlike_files(each) for each in value] if isinstance(value, list | tuple) else value


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
