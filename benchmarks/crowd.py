"""Who uses the app during a soak (soak.py): sessions that watch, owners who keep a run training, visitors who come and go. Each is a
thread that speaks HTTP as a page does; what they meet is written down in the phase that is under way."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from playground.ui.visit import new_owner
from tests.support.app_server import AppServer
from tests.support.page_client import Page

A_SECOND = 4  # polls of a session
PAUSES_EVERY = 30  # seconds of an owner, on the average
GOING = ("starting", "training", "waiting")
VISITED: dict[str, Any] = {
    "steps": 300,
    "batch_size": 16,
    "max_length": 5,
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 32,
}
TOLD_NO = ("400", "503", "507")  # answers of the upload that say in a sentence why not
TROUBLE = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    http.client.HTTPException,
    zipfile.BadZipFile,
)


@dataclass
class Phase:
    """A stretch of the soak: what was done to the app in it, and what came of it."""

    kind: str
    memory: list[float] = field(
        default_factory=list
    )  # megabytes of the server, at the begin and at the end
    seconds: list[float] = field(default_factory=list)  # what the answers to polls took
    looked: list[float] = field(default_factory=list)  # likewise for Inspect and "Try it"
    errors: list[str] = field(default_factory=list)
    away: int = 0  # requests that met no server, because it was being started again
    recovered: float | None = (
        None  # seconds until every run went on; None: never, or nothing was done
    )


class Stage:
    """The app that runs now, and the phase under way. Its port stays, so that pages find the next server."""

    def __init__(self, start: Callable[[int], AppServer]) -> None:
        self.start, self.app = start, start(0)
        self.gone = False  # the server is not there, on purpose
        self.phase = Phase("calm")
        self.done: Counter[str] = Counter()  # what visitors did
        self.refused: Counter[str] = Counter()  # what they were told instead
        self.over = threading.Event()
        self.tracebacks = 0
        self.codes: list[int] = []  # with which the servers ended that were told to

    def page(self, owner: str, stays: bool = False) -> Page:
        return Page(self.app, owner, stays)

    def again(self) -> None:
        """The next server, on the same port."""
        self.tracebacks += self.app.log.read_text(errors="replace").count("Traceback")
        self.app = self.start(self.app.port)

    def met(self, error: Exception, was_gone: bool) -> None:
        """Take down what went wrong with a request that began when the server was there, or was not."""
        if self.gone or was_gone:
            self.phase.away += 1
        else:
            self.phase.errors.append(repr(error)[:300])


class Session(threading.Thread):
    """A page that has a run on show."""

    def __init__(self, stage: Stage, owner: str, subject: str) -> None:
        super().__init__(daemon=True)
        self.stage, self.page, self.subject = stage, stage.page(owner, stays=True), subject
        self.answers, self.doubled = 0, 0

    def run(self) -> None:
        known, epoch, looks, last, due = 0, -1, 0, 0, time.monotonic()
        while not self.stage.over.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / A_SECOND, time.monotonic())
            started, was_gone = time.monotonic(), self.stage.gone
            try:
                told = self.page.poll(self.subject, known, epoch, looks)
            except TROUBLE as error:
                self.page.close()
                self.stage.met(error, was_gone)
                continue
            self.answers += 1
            self.stage.phase.seconds.append(time.monotonic() - started)
            points = told["points"]
            last = 0 if points["whole"] or told["epoch"] != epoch else last
            for step in points["steps"]:
                self.doubled += step <= last
                last = step
            known, epoch, looks = points["count"], told["epoch"], told.get("looks", 0)
        self.page.close()


class Keeper(threading.Thread):
    """An owner who resumes a run whenever it has stopped, and remembers its newest checkpoint: it may never begin before that. Now
    and then the owner pauses it, and so lets one of those who wait have the place."""

    def __init__(self, stage: Stage, owner: str, subject: str) -> None:
        super().__init__(daemon=True)
        self.stage, self.page, self.subject = stage, stage.page(owner), subject
        self.saved, self.lost = (
            0,
            0,
        )  # the newest checkpoint's step; how often the run was seen before it
        self.status, self.step, self.seen_at = "", 0, 0.0
        self.leaving = threading.Event()
        self.chance = random.Random(subject)

    def run(self) -> None:
        while not self.leaving.wait(0.5):
            was_gone = self.stage.gone
            try:
                told = self.page.poll(self.subject, known=1_000_000)
                self.lost += told["step"] < self.saved
                self.status, self.step, self.seen_at = (
                    told["status"],
                    told["step"],
                    time.monotonic(),
                )
                if told["status"] not in GOING and told["status"] != "stopping":
                    self.page.call("do", subject=self.subject, do="resume")
                elif self.chance.random() < 0.5 / PAUSES_EVERY:
                    self.page.call("do", subject=self.subject, do="pause")
                saved = [
                    each["step"]
                    for each in self.page.call("about", subject=self.subject)["checkpoints"]
                ]
                self.saved = max([self.saved, *saved])
            except TROUBLE as error:
                self.stage.met(error, was_gone)


class Visitor(threading.Thread):
    """One visitor after the other: starts a run, does some of what one can do, and leaves, one way or another."""

    def __init__(self, stage: Stage, number: int, packed: bytes, token: str) -> None:
        super().__init__(daemon=True)
        self.stage, self.number, self.packed, self.token = stage, number, packed, token
        self.chance = random.Random(number)
        self.acts = (
            self.inspect,
            self.inspect,
            self.ask,
            self.ask,
            self.control,
            self.edit,
            self.upload,
            self.download,
            self.publish,
        )

    def run(self) -> None:
        while not self.stage.over.is_set():
            was_gone = self.stage.gone
            try:
                self.visit(self.stage.page(new_owner()))
                self.stage.done["visits"] += 1
            except TROUBLE as error:
                if any(f": {status} " in str(error) for status in TOLD_NO):
                    self.stage.refused["upload"] += 1
                else:
                    self.stage.met(error, was_gone)
                self.stage.over.wait(1)

    def visit(self, page: Page) -> None:
        page.get("/")
        subject = page.train(**VISITED, seed=self.chance.randrange(1000))
        if not subject.startswith("run:"):
            self.stage.refused["train"] += 1
            self.stage.over.wait(2)
            return
        self.stage.done["started"] += 1
        told = page.poll(subject)
        if told["status"] == "waiting" and told["place"]:
            self.stage.done["waited, with a place in line"] += 1
        for act in self.chance.choices(self.acts, k=self.chance.randrange(2, 7)):
            for _ in range(self.chance.randrange(1, 9)):
                page.poll(subject)
                if self.stage.over.wait(1 / A_SECOND):
                    return
            act(page, subject)
        leaving = self.chance.choice(("delete", "delete", "stop", ""))  # or just goes
        if leaving:
            self.told(leaving, page.call("do", subject=subject, do=leaving))

    def told(self, what: str, answer: dict[str, Any]) -> bool:
        """Count an answer; whether it was one."""
        counter = self.stage.refused if "error" in answer else self.stage.done
        counter[what] += 1
        return "error" not in answer

    def timed(self, what: str, ask: Callable[[], dict[str, Any]]) -> None:
        started = time.monotonic()
        if self.told(what, ask()):
            self.stage.phase.looked.append(time.monotonic() - started)

    def inspect(self, page: Page, subject: str) -> None:
        subject = self.chance.choice((subject, "checkpoint:reverse", "checkpoint:copy"))
        view = self.chance.choice(("attention", "steps", "symbols"))
        self.timed(
            "inspect", lambda: page.call("inspect", subject=subject, view=view, text=self.digits())
        )

    def ask(self, page: Page, subject: str) -> None:
        subject = self.chance.choice((subject, "checkpoint:reverse"))
        self.timed("try", lambda: page.call("try", subject=subject, text=self.digits()))

    def digits(self) -> str:
        return " ".join(str(self.chance.randrange(10)) for _ in range(self.chance.randrange(1, 6)))

    def control(self, page: Page, subject: str) -> None:
        for do in ("pause", "step", "keep", "resume"):
            self.told(do, page.call("do", subject=subject, do=do))
            time.sleep(0.2)

    def edit(self, page: Page, subject: str) -> None:
        self.told(
            "rename",
            page.call(
                "do", subject=subject, do="rename", name=f"visit {self.chance.randrange(100)}"
            ),
        )
        self.told(
            "change",
            page.call("do", subject=subject, do="change", setting="learning_rate", value=1e-3),
        )

    def upload(self, page: Page, subject: str) -> None:
        begun = page.upload(self.packed)
        self.stage.done["upload"] += 1
        self.told("delete", page.call("do", subject=begun, do="delete"))

    def download(self, page: Page, subject: str) -> None:
        for each in page.call("about", subject=subject).get("checkpoints", [])[:1]:
            answer = page.call("do", subject=subject, do="download", checkpoint=each["name"])
            if self.told("download", answer):
                connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
                connection.request("GET", f"/playground/checkpoint/{answer['ticket']}")
                sent = connection.getresponse().read()
                connection.close()
                with zipfile.ZipFile(BytesIO(sent)) as archive:
                    json.loads(archive.read("config.json"))

    def publish(self, page: Page, subject: str) -> None:
        """To the Hub that stands in for the real one, with a token that is typed; a model of this machine while one has none."""
        if not page.call("about", subject=subject).get("checkpoints"):
            subject = "checkpoint:reverse"
        repo = f"ada/visit-{self.chance.randrange(20)}"
        begun = page.call("hub-start", kind="push", repo=repo, subject=subject, token=self.token)
        if not self.told("publish", begun):
            return
        ends = time.monotonic() + 120
        while (job := page.call("hub-job", job=begun["job"]))[
            "status"
        ] == "working" and time.monotonic() < ends:
            if self.stage.over.wait(0.5):
                return
        counter = self.stage.done if job["status"] == "done" else self.stage.refused
        counter["published"] += 1
        if job["status"] == "working":
            self.stage.phase.errors.append(f"publishing took more than 120 s: {job['sentence']}")


class PassingVisitor(threading.Thread):
    """Opens the page again and again as a new visitor, and leaves it at once."""

    def __init__(self, stage: Stage, seconds: float = 1.0) -> None:
        super().__init__(daemon=True)
        self.stage, self.seconds = stage, seconds

    def run(self) -> None:
        while not self.stage.over.wait(self.seconds):
            was_gone = self.stage.gone
            try:
                page = self.stage.page(new_owner())
                page.get("/")
                if page.load():
                    self.stage.done["page loads"] += 1
            except TROUBLE as error:
                self.stage.met(error, was_gone)


def leave(page: Page, subject: str) -> None:
    """Stop a run for good."""
    with suppress(*TROUBLE):
        page.call("do", subject=subject, do="stop")
