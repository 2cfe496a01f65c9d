"""Experiments that users of a Space train in jobs of the stand-in Hub, from the page's routes.

A job only writes results. The token of the Space's owner is in the environment, and no request may
contain it.
"""

import json
import logging
import time
from types import SimpleNamespace

import pytest

from playground.experiments.backends import hf_jobs
from playground.experiments.service import ExperimentService
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server.experiments_api import ExperimentHandlers
from playground.server.hub_token import narrow_sign_in
from tests.support.app_server import wait_for
from tests.support.coroutines import run_in_thread
from tests.support.shards import write_results, write_wheel

SCOPES = "openid profile contribute-repos jobs"
FORM = {"grid": [["n_heads", "1, 2"]], "seeds": "0, 1", "name": "heads"}
ON_JOBS = {"on": "hf-jobs", "form": FORM}


@pytest.fixture
def space(hub, tmp_path, monkeypatch):
    """Return the server of a Space, with several users and without a page."""
    hub.clear()
    hub.run_job = write_results
    values = {"SPACE_ID": "owner/space", "SYSTEM": "spaces", "OAUTH_CLIENT_ID": "client"}
    for name, value in (values | {"OAUTH_SCOPES": SCOPES, "HF_TOKEN": hub.OWNER}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(hf_jobs.HfJobs, "poll_interval_s", 0.05)
    monkeypatch.setattr(hf_jobs, "build_wheel", write_wheel)
    registry = Registry(tmp_path / "storage")
    service = ExperimentService(registry)
    yield SimpleNamespace(handlers=ExperimentHandlers(registry, service).handlers())
    followers = list(service.remote._threads.values())
    service.close()
    for thread in followers:  # its last request is no request of the next test
        thread.join(60)
    registry.shutdown(0)


class User:
    """A browser with an owner key and, after a sign-in, a session."""

    def __init__(self, token="", scope=SCOPES, seconds=3600):
        self.owner, self.session, self.responses = new_owner_key(), {}, []
        if token:
            self.session["oauth_info"] = {
                "access_token": token,
                "expires_at": time.time() + seconds,
                "scope": scope,
            }

    def send(self, server, route, **fields):
        request = SimpleNamespace(scope={"session": self.session}, state=SimpleNamespace())
        handler = server.handlers[f"experiments/{route}"]
        response = run_in_thread(handler({"owner": self.owner, **fields}, request))
        self.responses.append(json.dumps(response))
        return response


def wait_until_done(server, user, experiment):
    def poll():
        row = user.send(server, "poll", open=experiment)["open"]
        assert row["state"] in ("running", "done"), row["message"]
        return row["state"] == "done" and row

    return wait_for(poll, 60, "the end of the experiment")


def test_a_user_pays_and_no_token_leaves_their_requests(hub, space, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    ada, cy = User(hub.ADA), User(hub.CY)
    places = ada.send(space, "places", **ON_JOBS)
    assert (places["slurm"], places["hf_jobs"], places["jobs"]) == (False, "ready", 1)
    assert [(each["flavor"], each["hourly"]) for each in places["machines"]] == [
        ("cpu-basic", pytest.approx(0.01002)),
        ("cpu-upgrade", pytest.approx(0.03)),
    ]
    assert all(each["cost"] > 0 and each["seconds"] > 180 for each in places["machines"])
    options = {"flavor": "cpu-basic", "minutes": 7}
    started = ada.send(space, "submit", **ON_JOBS, options=options)
    row = wait_until_done(space, ada, started["experiment"])
    assert row["elsewhere"]["account"] == "ada"
    assert [each["n"] for each in row["results"]["results"]["variants"]] == [2, 2]
    (job,) = hub.jobs.values()
    assert (job.owner, job.spec["flavor"], job.spec["timeoutSeconds"]) == ("ada", "cpu-basic", 420)
    assert cy.send(space, "poll", open=started["experiment"]) == {"experiments": [], "open": None}
    texts = [*ada.responses, *cy.responses, caplog.text, json.dumps(job.spec)]
    texts += [str(path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in texts for token in hub.tokens if token in text]
    assert {hub.ADA} == {token for token in hub.tokens for each in hub.requests if token in each}


@pytest.mark.parametrize(
    ("session", "access"),
    [
        ({}, "sign-in"),
        ({"token": "ADA", "scope": "openid profile contribute-repos"}, "sign-in"),
        ({"token": "ADA", "seconds": -1}, "sign-in"),
    ],
)
def test_jobs_need_a_sign_in_with_access_to_jobs(hub, space, session, access):
    token = getattr(hub, session.get("token", ""), "")
    user = User(**session | {"token": token})
    places = user.send(space, "places", **ON_JOBS)
    assert (places["hf_jobs"], places["machines"]) == (access, [])
    typed = user.send(space, "submit", **ON_JOBS, token=hub.CY)
    assert typed["field"] == "on"
    assert "sign in" in typed["error"]
    assert not hub.requests


def test_an_owner_who_removes_the_scope_switches_jobs_off(hub, space, monkeypatch):
    monkeypatch.setenv("OAUTH_SCOPES", "openid profile contribute-repos")
    ada = User(hub.ADA)
    assert ada.send(space, "places", **ON_JOBS)["hf_jobs"] == "off"
    assert "error" in ada.send(space, "submit", **ON_JOBS)
    assert not hub.jobs


def test_a_space_starts_no_jobs_of_slurm(hub, space):
    user = User(hub.ADA)
    assert user.send(space, "submit", form=FORM, on="slurm")["field"] == "on"


def test_a_rejected_token_pauses_an_experiment_with_the_reason(hub, space):
    user = User(hub.ADA_READS)
    started = user.send(space, "submit", **ON_JOBS)

    def poll():
        row = user.send(space, "poll", open=started["experiment"])["open"]
        return row["state"] == "paused" and row

    row = wait_for(poll, 60, "the pause")
    assert "this token has no permission" in row["message"]
    assert user.send(space, "action", experiment=row["id"], action="delete") == {}


@pytest.mark.parametrize(
    ("query", "scope"),
    [
        ({}, "openid contribute-repos"),
        ({"scope": ["jobs"]}, "openid contribute-repos jobs"),
        ({"scope": ["jobs", "x"]}, "openid contribute-repos"),
    ],
)
def test_a_sign_in_requests_jobs_only_where_they_are_needed(query, scope):
    location = "https://hub.test/authorize?state=a%2Fb&scope=openid+contribute-repos+jobs"
    expected = f"https://hub.test/authorize?state=a%2Fb&scope={scope.replace(' ', '+')}"
    assert narrow_sign_in(location, query) == expected
