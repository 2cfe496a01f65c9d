"""Two users of a server, with requests in any order: each sees only their own data."""

import json
import logging
import random
import string

import pytest

from playground.errors import UserError
from playground.runs.commands import COMMANDS
from playground.runs.owner_keys import new_owner_key
from playground.runs.scheduler import MAX_QUEUED_PER_OWNER
from playground.server.live_api import live_handlers, poll_model
from playground.server.runs_api import list_runs, run_action
from tests.support.coroutines import run_in_thread
from tests.support.small_runs import pause_and_wait, repeat_counts, start_run, wait_for

ACTIONS = (
    *COMMANDS,
    "change",
    "extend",
    "rename",
    "tag",
    "hide",
    "show",
    "delete",
    "undelete",
    "rerun",
    "branch",
    "download",
    "remove",
    "explode",
)
SYMBOLS = 62  # includes letters, so that both users hardly have the same sequence by chance
MAX_RUNS = 6  # of a user, so that two cores have time for the requests


class User:
    """A user with an owner key and texts that no other user may receive."""

    def __init__(self, registry, name, rng):
        self.registry, self.name, self.rng = registry, name, rng
        self.owner = new_owner_key()
        self.canary = f"canary{name}{rng.randrange(10**9)}"
        self.sequence = "".join(rng.sample(string.ascii_letters, 12))
        self.rate = round(rng.uniform(1e-4, 1e-3), 12)
        self.requested = {}  # the responses by request

    def start_run(self, status):
        run = start_run(
            self.registry,
            self.owner,
            n_symbols=SYMBOLS,
            max_length=12,
            learning_rate=self.rate,
            max_steps=5 if status == "done" else 10**6,
        )
        self.registry.update_metadata(run, name=f"{self.canary} {run.name}")
        wait_for(lambda: run.step or run.status == "done", 60, "the first points")
        if status == "paused":
            pause_and_wait(self.registry, run)

    @property
    def runs(self):
        return self.registry.list_for_owner(self.owner)

    def private_texts(self):
        """Return texts that no other user may receive, even with a watch link."""
        return [
            self.owner,
            self.sequence,
            " ".join(self.sequence),
            *(run.id for run in self.runs),
            *(run.owner for run in self.runs),
        ]

    def secrets(self):
        """Return texts that no user without a watch link may receive."""
        return [
            *self.private_texts(),
            self.canary,
            repr(self.rate),
            *(run.share_id for run in self.runs),
        ]

    def state(self):
        """Return the state of a user's runs, except the progress of training."""
        return {
            run.id: (
                run.name,
                run.hidden,
                run.deleted_at,
                run.changes,
                run.folder,
                run.config,
                run.status in ("stopped", "stopping", "failed"),
                {path.name for path in (run.folder / "checkpoints").glob("*-kept")},
            )
            for run in self.runs
        }

    def random_request(self, other):
        """Generate a request of a page, or of a client that knows an id of another owner."""
        rng, own_run, other_run = (
            self.rng,
            self.rng.choice(self.runs),
            self.rng.choice(other.runs),
        )
        endpoint = rng.choice(list(live_handlers(None)))
        subject = rng.choice(
            [
                f"run:{own_run.id}",
                f"run:{own_run.id}",
                f"run:{other_run.id}",
                f"watch:{other_run.share_id}",
                f"watch:{own_run.share_id}",
                f"run:{other_run.share_id}",
                f"watch:{other_run.id}",
                f"checkpoint:runs/{other_run.folder.name}",
                f"checkpoint:../runs/{other_run.folder.name}",
                "run:",
                "watch:",
                f"run:{other_run.owner}",
            ]
        )
        owner = rng.choice(
            [self.owner] * 6
            + [other_run.owner, other_run.id, other_run.share_id, "", None, [other.canary], "\0"]
        )
        action = rng.choice(ACTIONS)
        if action in ("rerun", "branch") and len(self.runs) >= MAX_RUNS:
            action = "rename"
        return endpoint, {
            "owner": owner,
            "subject": subject,
            "action": action,
            "n_points": rng.choice([0, 3, -1, 10**9]),
            "series_id": -1,
            "snapshot_version": 0,
            "step": rng.choice([0, 1, 5]),
            "text": self.sequence,
            "setting": rng.choice(["learning_rate", "steps", "speed"]),
            "value": rng.choice([1e-3, 10**6, 50]),
            "tags": [f"{self.canary} tag"],
            "name": f"{self.canary} renamed {rng.randrange(100)}",
            "checkpoint": f"{rng.choice([0, 5]):07d}",
            "subjects": [subject, f"run:{other_run.id}", f"run:{own_run.id}"],
        }


def check_response(user, other, endpoint, request, response):
    """Check that a response has nothing of the other user, except through a watch link."""
    body = json.dumps(response, ensure_ascii=False)
    sent_texts = [
        value for value in (*request.values(), *request["subjects"]) if isinstance(value, str)
    ]
    linked = any(request["subject"] == f"watch:{run.share_id}" for run in other.runs)
    is_viewer = linked and endpoint in (
        "runs/poll",
        "runs/snapshot",
        "runs/predict",
        "runs/curves",
        "runs/details",
    )
    for text in other.private_texts() if is_viewer else other.secrets():
        if not any(text in sent for sent in sent_texts):  # a response may repeat the request
            assert text not in body, (
                f"{user.name} received {text!r} from {endpoint} {request}: {body[:300]}"
            )
    if linked:
        assert not {"share_id", "checkpoints", "ticket"} & set(response) or endpoint == "runs/list"
        assert endpoint != "runs/action" or "error" in response
        assert endpoint != "runs/poll" or response["is_owner"] is False
    if request["owner"] != user.owner and request["subject"].startswith("run:"):
        assert (
            "error" in response
            or response.get("status") == "not-found"
            or endpoint in ("runs/list", "runs/curves")
        )


async def send_random_requests(first, second, count, rng):
    n_responses = 0
    for _ in range(count):
        user, other = rng.choice([(first, second), (second, first)])
        before = other.state()
        endpoint, request = user.random_request(other)
        response = await live_handlers(user.registry)[endpoint](request)
        check_response(user, other, endpoint, request, response)
        assert other.state() == before, (
            f"{user.name} changed a run of the other user by {endpoint} {request}"
        )
        n_responses += "error" not in response
        for run in user.runs:  # restore deleted runs, so that there is always one to request
            if run.deleted_at is not None:
                user.registry.restore(run)
            if run.status == "waiting" and len(user.runs) > 3:
                user.registry.control(run, "stop")
    return n_responses


@repeat_counts(100, 5000)
def test_no_data_crosses_between_two_users(registries, tmp_path, count, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    rng = random.Random(count)
    registry = registries(slots=2)
    first, second = User(registry, "ada", rng), User(registry, "bob", rng)
    for user in (first, second):
        user.start_run("done")
        user.start_run("paused")
    n_responses = run_in_thread(send_random_requests(first, second, count, rng))
    assert n_responses > count / 4  # otherwise hardly any response could contain data of the other
    printed = caplog.text + "".join(capfd.readouterr())
    for user in (first, second):
        for secret in (
            user.owner,
            *(text for run in user.runs for text in (run.id, run.share_id)),
        ):
            assert secret not in printed
        assert not any(
            user.owner.encode() in path.read_bytes()
            for path in tmp_path.rglob("*")
            if path.is_file()
        )


def test_ids_are_unpredictable_and_unrelated(registries):
    registry = registries(slots=1)
    runs = [start_run(registry, "ada", max_steps=1) for _ in range(8)]
    texts = [text for run in runs for text in (run.id, run.share_id)]
    assert len({*texts}) == len(texts)
    assert min(map(len, texts)) >= 22  # 128 bits
    assert all(text not in run.folder.name for text in texts for run in runs)


@pytest.mark.smoke
def test_other_owner_key_has_no_access(registries):
    registry = registries()
    run = start_run(registry, "ada", max_steps=1)
    subject = f"run:{run.id}"
    for owner in ("", None, 3, [], {}, "ada\0", "ADA", " ada"):
        for action in ACTIONS:
            assert "error" in run_in_thread(
                run_action(registry, {"owner": owner, "subject": subject, "action": action})
            ), (owner, action)
        assert run_in_thread(list_runs(registry, {"owner": owner}))["runs"] == [], owner
        assert (
            run_in_thread(poll_model(registry, {"owner": owner, "subject": subject}))["status"]
            == "not-found"
        ), owner


def test_one_user_cannot_fill_the_queue(registries):
    registry = registries(slots=2, slots_per_owner=1)
    for _ in range(1 + MAX_QUEUED_PER_OWNER):
        start_run(registry, "ada")
    with pytest.raises(UserError, match="queued runs, which is the maximum"):
        start_run(registry, "ada")
    other_run = start_run(registry, "bob")
    wait_for(lambda: other_run.has_worker, 60, "a place for the other user")
