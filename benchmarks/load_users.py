"""The users of a soak test (load_soak.py): viewing sessions, owners and background users.

Each user is a thread that sends the HTTP requests of a page. The current phase records the
responses.
"""

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

from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import AppServer
from tests.support.page_client import PageClient

POLLS_PER_SECOND = 4  # polls of a session
PAUSE_INTERVAL_S = 30  # mean seconds between two pauses of an owner's run
ACTIVE_STATUSES = ("starting", "training", "waiting")
USER_SETTINGS: dict[str, Any] = {
    "max_steps": 300,
    "batch_size": 16,
    "max_length": 5,
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 32,
}
REJECTION_STATUSES = ("400", "503", "507")  # responses of the upload with a reason
EXPECTED_ERRORS = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    http.client.HTTPException,
    zipfile.BadZipFile,
)


@dataclass
class Phase:
    """A part of the soak test: its fault, and the measurements."""

    kind: str
    # of the server in megabytes, at the start and at the end
    memory: list[float] = field(default_factory=list)
    poll_seconds: list[float] = field(default_factory=list)  # response times of polls
    # response times of Inspect and "Try it"
    inspection_seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    failed_connections: int = 0  # requests during a restart of the server
    recovery_seconds: float | None = None  # until every run resumed; None if one did not


class Scenario:
    """The running app and the current phase.

    The port stays the same, so that pages find the next server.
    """

    def __init__(self, start: Callable[[int], AppServer]) -> None:
        self.start, self.app = start, start(0)
        self.is_server_down = False  # while a fault stops the server
        self.phase = Phase("calm")
        self.finished_actions: Counter[str] = Counter()  # what users did
        self.rejections: Counter[str] = Counter()  # the messages of rejected requests
        self.stopped = threading.Event()
        self.tracebacks = 0
        self.exit_codes: list[int] = []  # of servers that were terminated

    def page(self, owner: str, stays: bool = False) -> PageClient:
        return PageClient(self.app, owner, stays)

    def restart(self) -> None:
        """Start the next server, on the same port."""
        self.tracebacks += self.app.log.read_text(errors="replace").count("Traceback")
        self.app = self.start(self.app.port)

    def record_error(self, error: Exception, was_server_down: bool) -> None:
        """Record a failed request.

        A request to a stopped server does not count as an error.
        """
        if self.is_server_down or was_server_down:
            self.phase.failed_connections += 1
        else:
            self.phase.errors.append(repr(error)[:300])


class Session(threading.Thread):
    """A page that displays a run."""

    def __init__(self, scenario: Scenario, owner: str, subject: str) -> None:
        super().__init__(daemon=True)
        self.scenario, self.page, self.subject = scenario, scenario.page(owner, stays=True), subject
        self.n_responses, self.duplicate_steps = 0, 0

    def run(self) -> None:
        n_points, series_id, snapshot_version, last, due = 0, -1, 0, 0, time.monotonic()
        while not self.scenario.stopped.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / POLLS_PER_SECOND, time.monotonic())
            started, was_server_down = time.monotonic(), self.scenario.is_server_down
            try:
                response = self.page.poll(self.subject, n_points, series_id, snapshot_version)
            except EXPECTED_ERRORS as error:
                self.page.close()
                self.scenario.record_error(error, was_server_down)
                continue
            self.n_responses += 1
            self.scenario.phase.poll_seconds.append(time.monotonic() - started)
            points = response["points"]
            last = 0 if points["whole"] or response["series_id"] != series_id else last
            for step in points["steps"]:
                self.duplicate_steps += step <= last
                last = step
            n_points, series_id, snapshot_version = (
                points["count"],
                response["series_id"],
                response.get("snapshot_version", 0),
            )
        self.page.close()


class RunOwner(threading.Thread):
    """An owner who resumes a run whenever it has stopped.

    The owner records the newest checkpoint, because the run must never resume from an earlier
    step. At times the owner pauses the run, which frees its slot for a queued one.
    """

    def __init__(self, scenario: Scenario, owner: str, subject: str) -> None:
        super().__init__(daemon=True)
        self.scenario, self.page, self.subject = scenario, scenario.page(owner), subject
        # the step of the newest checkpoint; how many polls found the run at an earlier step
        self.saved_steps, self.lost_checkpoints = 0, 0
        self.status, self.step, self.last_response_at = "", 0, 0.0
        self.stopping = threading.Event()
        self.rng = random.Random(subject)

    def run(self) -> None:
        while not self.stopping.wait(0.5):
            was_server_down = self.scenario.is_server_down
            try:
                response = self.page.poll(self.subject, n_points=1_000_000)
                self.lost_checkpoints += response["step"] < self.saved_steps
                self.status, self.step, self.last_response_at = (
                    response["status"],
                    response["step"],
                    time.monotonic(),
                )
                if response["status"] not in ACTIVE_STATUSES and response["status"] != "stopping":
                    self.page.call("runs/action", subject=self.subject, action="resume")
                elif self.rng.random() < 0.5 / PAUSE_INTERVAL_S:
                    self.page.call("runs/action", subject=self.subject, action="pause")
                saved = [
                    each["step"]
                    for each in self.page.call("runs/details", subject=self.subject)["checkpoints"]
                ]
                self.saved_steps = max([self.saved_steps, *saved])
            except EXPECTED_ERRORS as error:
                self.scenario.record_error(error, was_server_down)


class UserThread(threading.Thread):
    """A sequence of users.

    Each starts a run, performs some random actions, and leaves.
    """

    def __init__(self, scenario: Scenario, number: int, checkpoint_zip: bytes, token: str) -> None:
        super().__init__(daemon=True)
        self.scenario, self.checkpoint_zip, self.token = scenario, checkpoint_zip, token
        self.rng = random.Random(number)
        self.actions = (
            self.inspect,
            self.inspect,
            self.predict,
            self.predict,
            self.control,
            self.edit,
            self.upload,
            self.download,
            self.publish,
        )

    def run(self) -> None:
        while not self.scenario.stopped.is_set():
            was_server_down = self.scenario.is_server_down
            try:
                self.visit(self.scenario.page(new_owner_key()))
                self.scenario.finished_actions["visits"] += 1
            except EXPECTED_ERRORS as error:
                if any(f": {status} " in str(error) for status in REJECTION_STATUSES):
                    self.scenario.rejections["upload"] += 1
                else:
                    self.scenario.record_error(error, was_server_down)
                self.scenario.stopped.wait(1)

    def visit(self, page: PageClient) -> None:
        page.get("/")
        subject = page.train(**USER_SETTINGS, seed=self.rng.randrange(1000))
        if not subject.startswith("run:"):
            self.scenario.rejections["train"] += 1
            self.scenario.stopped.wait(2)
            return
        self.scenario.finished_actions["started"] += 1
        response = page.poll(subject)
        if response["status"] == "waiting" and response["queue_position"]:
            self.scenario.finished_actions["waited in the queue"] += 1
        for act in self.rng.choices(self.actions, k=self.rng.randrange(2, 7)):
            for _ in range(self.rng.randrange(1, 9)):
                page.poll(subject)
                if self.scenario.stopped.wait(1 / POLLS_PER_SECOND):
                    return
            act(page, subject)
        leaving = self.rng.choice(("delete", "delete", "stop", ""))  # "": leave the run as it is
        if leaving:
            self.check_response(leaving, page.call("runs/action", subject=subject, action=leaving))

    def check_response(self, action: str, response: dict[str, Any]) -> bool:
        """Count a response; return whether it was successful."""
        counter = (
            self.scenario.rejections if "error" in response else self.scenario.finished_actions
        )
        counter[action] += 1
        return "error" not in response

    def timed(self, action: str, call: Callable[[], dict[str, Any]]) -> None:
        started = time.monotonic()
        if self.check_response(action, call()):
            self.scenario.phase.inspection_seconds.append(time.monotonic() - started)

    def inspect(self, page: PageClient, subject: str) -> None:
        subject = self.rng.choice((subject, "checkpoint:reverse", "checkpoint:copy"))
        view = self.rng.choice(("attention", "lens", "embeddings"))
        self.timed(
            "inspect",
            lambda: page.call("inspect/view", subject=subject, view=view, text=self.digits()),
        )

    def predict(self, page: PageClient, subject: str) -> None:
        subject = self.rng.choice((subject, "checkpoint:reverse"))
        self.timed("try", lambda: page.call("runs/predict", subject=subject, text=self.digits()))

    def digits(self) -> str:
        return " ".join(str(self.rng.randrange(10)) for _ in range(self.rng.randrange(1, 6)))

    def control(self, page: PageClient, subject: str) -> None:
        for action in ("pause", "step", "keep", "resume"):
            self.check_response(action, page.call("runs/action", subject=subject, action=action))
            time.sleep(0.2)

    def edit(self, page: PageClient, subject: str) -> None:
        self.check_response(
            "rename",
            page.call(
                "runs/action",
                subject=subject,
                action="rename",
                name=f"visit {self.rng.randrange(100)}",
            ),
        )
        self.check_response(
            "change",
            page.call(
                "runs/action", subject=subject, action="change", setting="learning_rate", value=1e-3
            ),
        )

    def upload(self, page: PageClient, subject: str) -> None:
        uploaded = page.upload(self.checkpoint_zip)
        self.scenario.finished_actions["upload"] += 1
        self.check_response("delete", page.call("runs/action", subject=uploaded, action="delete"))

    def download(self, page: PageClient, subject: str) -> None:
        for each in page.call("runs/details", subject=subject).get("checkpoints", [])[:1]:
            response = page.call(
                "runs/action", subject=subject, action="download", checkpoint=each["name"]
            )
            if self.check_response("download", response):
                connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
                connection.request("GET", f"/playground/checkpoints/{response['ticket']}")
                body = connection.getresponse().read()
                connection.close()
                with zipfile.ZipFile(BytesIO(body)) as archive:
                    json.loads(archive.read("config.json"))

    def publish(self, page: PageClient, subject: str) -> None:
        """Publish to the fake Hub with the token of a user.

        A user without a run publishes a bundled model.
        """
        if not page.call("runs/details", subject=subject).get("checkpoints"):
            subject = "checkpoint:reverse"
        repo = f"ada/visit-{self.rng.randrange(20)}"
        request = {"repo": repo, "token": self.token}
        response = page.call("jobs/submit", kind="push", subject=subject, request=request)
        if not self.check_response("publish", response):
            return
        deadline = time.monotonic() + 120
        while (job := page.call("jobs/poll", job=response["job"]))["status"] in (
            "waiting",
            "working",
        ) and time.monotonic() < deadline:
            if self.scenario.stopped.wait(0.5):
                return
        counter = (
            self.scenario.finished_actions if job["status"] == "done" else self.scenario.rejections
        )
        counter["published"] += 1
        if job["status"] in ("waiting", "working"):
            self.scenario.phase.errors.append(f"publishing took more than 120 s: {job['message']}")


class BackgroundUser(threading.Thread):
    """A thread that repeatedly opens the page as a new user."""

    def __init__(self, scenario: Scenario, seconds: float = 1.0) -> None:
        super().__init__(daemon=True)
        self.scenario, self.seconds = scenario, seconds

    def run(self) -> None:
        while not self.scenario.stopped.wait(self.seconds):
            was_server_down = self.scenario.is_server_down
            try:
                page = self.scenario.page(new_owner_key())
                page.get("/")
                if page.load():
                    self.scenario.finished_actions["page loads"] += 1
            except EXPECTED_ERRORS as error:
                self.scenario.record_error(error, was_server_down)


def stop_run(page: PageClient, subject: str) -> None:
    """Stop a run; ignore errors."""
    with suppress(*EXPECTED_ERRORS):
        page.call("runs/action", subject=subject, action="stop")
