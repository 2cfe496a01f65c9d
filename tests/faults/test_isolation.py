"""Two users of a server, with requests in any order: each sees only their own data."""

import json
import logging
import random
import string

import pytest

from playground.runs.commands import COMMANDS
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server.live_api import live_handlers
from tests.support.coroutines import run_in_thread
from tests.support.fake_workers import FakeWorkers
from tests.support.small_runs import repeat_counts, start_run

ACTIONS = (
    *COMMANDS,
    *("change", "extend", "rename", "delete", "undelete", "rerun"),
    *("branch", "download", "remove", "explode"),
)
VIEWER_ENDPOINTS = (
    *("inspect/view", "runs/details", "runs/model", "runs/poll", "runs/snapshot", "runs/predict"),
    "runs/curves",
)
MAX_RUNS = 6  # of a user


@pytest.fixture
def workers(monkeypatch):
    return FakeWorkers(monkeypatch)


@pytest.fixture
def registry(tmp_path, workers):
    registry = Registry(tmp_path, slots=2)
    yield registry
    registry.shutdown()


class User:
    """A user with an owner key and texts that no other user may receive."""

    def __init__(self, registry, workers, name, rng):
        self.registry, self.name, self.rng = registry, name, rng
        self.owner = new_owner_key()
        self.canary = f"canary{name}{rng.randrange(10**9)}"
        self.sequence = "".join(rng.sample(string.ascii_letters, 12))
        self.rate = round(rng.uniform(1e-4, 1e-3), 12)
        for action in ("stop", "pause"):
            run = start_run(registry, self.owner, n_symbols=62, learning_rate=self.rate)
            registry.update_metadata(run, name=f"{self.canary} {run.name}")
            workers.train(run, 5)
            workers.control(registry, run, action)

    @property
    def runs(self):
        return self.registry.list_for_owner(self.owner)

    def private_texts(self):
        """Return texts that no other user may receive, even with a watch link."""
        ids = [text for run in self.runs for text in (run.id, run.owner)]
        return [self.owner, self.sequence, " ".join(self.sequence), *ids]

    def secrets(self):
        """Return texts that no user without a watch link may receive."""
        links = [text for run in self.runs for text in (run.share_id, run.folder.name)]
        return [*self.private_texts(), self.canary, repr(self.rate), *links]

    def state(self):
        """Return what no request of another user may change."""
        return {run.id: (run.record, run.folder, run.checkpoints()) for run in self.runs}

    def random_request(self, other):
        """Generate a request of a page, or of a client that knows an id of another owner."""
        rng, own, foreign = self.rng, self.rng.choice(self.runs), self.rng.choice(other.runs)
        subjects = [f"run:{own.id}", f"run:{foreign.id}", f"run:{foreign.share_id}", "run:"]
        subjects += [f"watch:{run_id}" for run_id in (own.share_id, foreign.share_id, foreign.id)]
        subjects += [f"checkpoint:{dots}runs/{foreign.folder.name}" for dots in ("", "../")]
        owners = [foreign.owner, foreign.id, foreign.share_id, "", None, [other.canary], "\0"]
        subject, action = rng.choice([*subjects, f"run:{foreign.owner}"]), rng.choice(ACTIONS)
        if action in ("rerun", "branch") and len(self.runs) >= MAX_RUNS:
            action = "rename"
        return rng.choice(list(live_handlers(None))), {
            "owner": rng.choice([self.owner] * 6 + owners),
            "subject": subject,
            "action": action,
            "n_points": rng.choice([0, 3, -1, 10**9]),
            "series_id": -1,
            "snapshot_version": 0,
            "step": rng.choice([0, 1, 5]),
            "text": self.sequence,
            "view": "attention",
            "setting": rng.choice(["learning_rate", "steps", "speed"]),
            "value": rng.choice([1e-3, 10**6, 50]),
            "name": f"{self.canary} renamed {rng.randrange(100)}",
            "checkpoint": f"{rng.choice([0, 5]):07d}",
            "subjects": [subject, f"run:{foreign.id}", f"run:{own.id}"],
        }


def check_response(user, other, endpoint, request, response):
    """Check that a response has nothing of the other user, except through a watch link."""
    body = json.dumps(response, ensure_ascii=False)
    sent = [value for value in (*request.values(), *request["subjects"]) if isinstance(value, str)]
    is_linked = request["subject"] in [f"watch:{run.share_id}" for run in other.runs]
    is_viewer = is_linked and endpoint in VIEWER_ENDPOINTS
    for text in other.private_texts() if is_viewer else other.secrets():
        if not any(text in each for each in sent):  # a response may repeat the request
            assert text not in body, f"{user.name} received {text!r} from {endpoint} {request}"
    if is_linked:
        assert not {"share_id", "checkpoints", "ticket"} & set(response) or endpoint == "runs/list"
        assert endpoint != "runs/action" or "error" in response
        assert endpoint != "runs/poll" or "error" in response or response["is_owner"] is False
    if request["owner"] != user.owner and request["subject"].startswith("run:"):
        assert (
            "error" in response
            or response.get("status") == "not-found"
            or endpoint in ("runs/list", "runs/curves")
        )


@pytest.mark.smoke
@repeat_counts(200, 5000)
def test_no_data_crosses_between_two_users(registry, workers, tmp_path, count, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    rng = random.Random(count)
    users = [User(registry, workers, name, rng) for name in ("ada", "bob")]
    handlers, n_responses = live_handlers(registry), 0
    for _ in range(count):
        user, other = rng.sample(users, 2)
        before = other.state()
        endpoint, request = user.random_request(other)
        response = run_in_thread(handlers[endpoint](request))
        check_response(user, other, endpoint, request, response)
        assert other.state() == before, f"{user.name} changed a run by {endpoint} {request}"
        n_responses += "error" not in response
        for run in user.runs:  # restore deleted runs, so that there is always one to request
            registry.restore(run)
        workers.deliver()
    assert n_responses > count / 4  # otherwise hardly any response could contain data of the other
    printed = caplog.text + "".join(capfd.readouterr())
    stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for user in users:
        ids = [text for run in user.runs for text in (run.id, run.share_id)]
        assert not [secret for secret in (user.owner, *ids) if secret in printed]
        assert not any(user.owner.encode() in data for data in stored)
