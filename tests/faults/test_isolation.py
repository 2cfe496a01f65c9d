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

ACTS = (
    *COMMANDS,
    "change",
    "extend",
    "rename",
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
SYMBOLS = 62  # letters too, so that no sequence of the one comes up with the other by chance
MOST_RUNS = 6  # of a user, so that two cores have time for the questions


class User:
    """A user with an owner key and texts that no other user may receive."""

    def __init__(self, registry, name, chance):
        self.registry, self.name, self.chance = registry, name, chance
        self.owner = new_owner_key()
        self.canary = f"canary{name}{chance.randrange(10**9)}"
        self.sequence = "".join(chance.sample(string.ascii_letters, 12))
        self.rate = round(chance.uniform(1e-4, 1e-3), 12)
        self.requested = {}  # the responses by request

    def begin(self, status):
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

    def words(self):
        """Texts that no other user may receive, even with a watch link."""
        return [
            self.owner,
            self.sequence,
            " ".join(self.sequence),
            *(run.id for run in self.runs),
            *(run.owner for run in self.runs),
        ]

    def secrets(self):
        """Texts that no user without a watch link may receive."""
        return [*self.words(), self.canary, repr(self.rate), *(run.share_id for run in self.runs)]

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

    def any_request(self, other):
        """Send a request as a page, or as a client that knows an id of another owner."""
        chance, mine, theirs = (
            self.chance,
            self.chance.choice(self.runs),
            self.chance.choice(other.runs),
        )
        endpoint = chance.choice(list(live_handlers(None)))
        subject = chance.choice(
            [
                f"run:{mine.id}",
                f"run:{mine.id}",
                f"run:{theirs.id}",
                f"watch:{theirs.share_id}",
                f"watch:{mine.share_id}",
                f"run:{theirs.share_id}",
                f"watch:{theirs.id}",
                f"checkpoint:runs/{theirs.folder.name}",
                f"checkpoint:../runs/{theirs.folder.name}",
                "run:",
                "watch:",
                f"run:{theirs.owner}",
            ]
        )
        owner = chance.choice(
            [self.owner] * 6
            + [theirs.owner, theirs.id, theirs.share_id, "", None, [other.canary], "\0"]
        )
        action = chance.choice(ACTS)
        if action in ("rerun", "branch") and len(self.runs) >= MOST_RUNS:
            action = "rename"
        return endpoint, {
            "owner": owner,
            "subject": subject,
            "action": action,
            "n_points": chance.choice([0, 3, -1, 10**9]),
            "series_id": -1,
            "snapshot_version": 0,
            "step": chance.choice([0, 1, 5]),
            "text": self.sequence,
            "setting": chance.choice(["learning_rate", "steps", "speed"]),
            "value": chance.choice([1e-3, 10**6, 50]),
            "name": f"{self.canary} renamed {chance.randrange(100)}",
            "checkpoint": f"{chance.choice([0, 5]):07d}",
            "subjects": [subject, f"run:{theirs.id}", f"run:{mine.id}"],
        }


def check(user, other, endpoint, request, answer):
    """Check that a response has nothing of the other user, except through a watch link."""
    text = json.dumps(answer, ensure_ascii=False)
    sent = [value for value in (*request.values(), *request["subjects"]) if isinstance(value, str)]
    linked = any(request["subject"] == f"watch:{run.share_id}" for run in other.runs)
    watching = linked and endpoint in (
        "runs/poll",
        "runs/snapshot",
        "runs/predict",
        "runs/curves",
        "runs/details",
    )
    for word in other.words() if watching else other.secrets():
        if not any(word in each for each in sent):  # a response may repeat the request
            assert word not in text, (
                f"{user.name} received {word!r} from {endpoint} {request}: {text[:300]}"
            )
    if linked:
        assert not {"share_id", "checkpoints", "ticket"} & set(answer) or endpoint == "runs/list"
        assert endpoint != "runs/action" or "error" in answer
        assert endpoint != "runs/poll" or answer["is_owner"] is False
    if request["owner"] != user.owner and request["subject"].startswith("run:"):
        assert (
            "error" in answer
            or answer.get("status") == "not-found"
            or endpoint in ("runs/list", "runs/curves")
        )


async def visit(first, second, count, chance):
    answers = 0
    for _ in range(count):
        user, other = chance.choice([(first, second), (second, first)])
        before = other.state()
        endpoint, request = user.any_request(other)
        answer = await live_handlers(user.registry)[endpoint](request)
        check(user, other, endpoint, request, answer)
        assert other.state() == before, (
            f"{user.name} changed a run of the other's by {endpoint} {request}"
        )
        answers += "error" not in answer
        for run in user.runs:  # restore deleted runs, so that there is always one to request
            if run.deleted_at is not None:
                user.registry.restore(run)
            if run.status == "waiting" and len(user.runs) > 3:
                user.registry.control(run, "stop")
    return answers


@repeat_counts(100, 5000)
def test_no_data_crosses_between_two_users(registries, tmp_path, count, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    chance = random.Random(count)
    registry = registries(slots=2)
    first, second = User(registry, "ada", chance), User(registry, "bob", chance)
    for user in (first, second):
        user.begin("done")
        user.begin("paused")
    answers = run_in_thread(visit(first, second, count, chance))
    assert answers > count / 4  # otherwise hardly any response could contain it
    printed = caplog.text + "".join(capfd.readouterr())
    for user in (first, second):
        for secret in (
            user.owner,
            *(word for run in user.runs for word in (run.id, run.share_id)),
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
    words = [word for run in runs for word in (run.id, run.share_id)]
    assert len({*words}) == len(words)
    assert min(map(len, words)) >= 22  # 128 bits
    assert all(word not in run.folder.name for word in words for run in runs)


@pytest.mark.smoke
def test_another_key_is_not_the_owner(registries):
    registry = registries()
    run = start_run(registry, "ada", max_steps=1)
    subject = f"run:{run.id}"
    for owner in ("", None, 3, [], {}, "ada\0", "ADA", " ada"):
        for action in ACTS:
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
    theirs = start_run(registry, "bob")
    wait_for(lambda: theirs.has_worker, 60, "a place for the other user")
