"""Who may do what, on every route, job kind and endpoint: a private dataset stays with its owner.

Each request of `REQUESTS` is sent by the owner of a run on a private dataset, by viewers with and
without the owner's consent, and by users who guess. A new route, kind or endpoint without an
entry there fails.
"""

import json
import re
import shutil

import pytest

from playground.pretrained.jobs import KINDS
from playground.runs.access import ModelRef, Right
from playground.runs.owner_keys import new_owner_key
from playground.runs.record import RunRecord
from playground.server.api_calls import ENDPOINTS, endpoint
from playground.server.jobs_api import RIGHTS_BY_KIND
from playground.server.routes import ROUTE_PREFIX, handler
from playground.server.schemas.base import OwnerRequest
from playground.server.schemas.responses import Done
from tests.support.page_client import zipped_small_checkpoint
from tests.support.private_run import (
    CALLS,
    CONSENT,
    DESTRUCTIVE,
    FORM,
    OTHER_ROUTES,
    PRIVATE,
    REQUESTS,
    ROWS,
    SMALL,
    SOURCE,
    TEXT,
    UNKNOWN,
    WORDS,
    Site,
    hash_requests,
    secrets_in,
    send_all,
    texts,
    with_hash,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        root = tmp_path_factory.mktemp("storage")
        monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(root))
        site = Site(root, monkeypatch)
        yield site
        site.close()


GUESSES = {  # references by which another user tries to get the run
    "its id": lambda run: f"run:{run.id}",
    "its id without a key": lambda run: f"run:{run.id}",
    "its share id as an id": lambda run: f"run:{run.share_id}",
    "its id as a share id": lambda run: f"watch:{run.id}",
    "its share id in another case": lambda run: f"watch:{run.share_id.swapcase()}",
    "its folder": lambda run: f"checkpoint:runs/{run.folder.name}/checkpoints/0000002-kept",
    "dots": lambda run: f"checkpoint:../{run.folder.parent.parent.name}/runs/{run.folder.name}",
    "nothing": lambda run: "",
}


def test_every_route_kind_and_endpoint_has_a_request_here(site):
    routes = {route.path for route in site.routes}
    listed = {ROUTE_PREFIX + name for name in REQUESTS} | OTHER_ROUTES
    assert routes == listed
    kinds = {request["kind"] for request in REQUESTS["jobs/submit"]} - {"unknown"}
    assert set(RIGHTS_BY_KIND) == kinds >= set(KINDS)
    assert set(ENDPOINTS) == set(CALLS)


def test_a_request_that_names_a_model_must_declare_its_right(site):
    for request_type, needs in ((ModelRef, None), (OwnerRequest, Right.USE)):
        with pytest.raises(TypeError, match="declares the right that it needs"):
            handler("runs/new", request_type, Done, needs)

    async def of_model(call, model): ...

    async def of_job(call, job): ...

    for function, needs in ((of_model, None), (of_job, Right.USE)):
        with pytest.raises(TypeError, match="declares its right"):
            endpoint(needs=needs)(function)
    fields = {"subject", "subjects", "base", "model", "checkpoint", "run"}
    for each in site.endpoints.handlers.values():
        request_type = each.func.request_type
        if fields & set(request_type.model_fields):
            assert hasattr(request_type, "require"), request_type


# What each viewer may do with the model; and what uses no model of this server.
WATCHED = r"runs/(poll|snapshot|curves|details) |inspect/view .*'view': 'heads|endpoint status "
USED = (
    WATCHED
    + r"|runs/(predict|model) |weights |inspect/view |endpoint (predict|attention|evaluate) "
)
WITHOUT_MODEL = (
    r"(form|session|datasets|lessons|class|replications|damaged)/|runs/list |"
    r"(jobs|hub)/(session|poll|cancel) |"
    r"experiments/(presets|poll|action|csv|json) |endpoint (settings|models|start|job|cancel) |"
    r"jobs/submit .*'(model-info|cached-models|inference|next-token|attention|translate|unknown|"
    r"account|gallery|repo_info|reproduce|pull|lesson|bug)'"
)


@pytest.mark.smoke
@pytest.mark.parametrize("requester", [PRIVATE, CONSENT])
def test_a_viewer_gets_no_row_or_hash_of_a_private_dataset(site, requester):
    site.registry.update_metadata(site.run, viewers_may_use=requester == CONSENT)
    allowed = site.allowed_rows() if requester == CONSENT else set()
    site.started.clear()
    subject, key = f"watch:{site.run.share_id}", new_owner_key()
    words = re.compile(rf"\b({WORDS.replace(' ', '|')})\b")
    for sent, response in send_all(site, subject, key):
        revealed = set(secrets_in(site, sent, response)) - allowed
        assert not revealed, f"{sent} reveals {revealed}: {str(response)[:300]}"
        assert str(site.root) not in json.dumps(response), sent
        if not re.match(f"{USED if requester == CONSENT else WATCHED}|{WITHOUT_MODEL}", sent):
            refusal = str(response.get("error", response.get("curves")))
            assert re.search(r"private|not yours|^\[\]$", refusal), f"{sent}: {response}"
        if requester == PRIVATE:
            visible = {*words.findall(json.dumps(response))} - {*words.findall(sent)}
            assert not visible, f"{sent} shows tokens {visible}: {str(response)[:300]}"
    used = [kind for kind, arguments in site.started if site.run.folder.name in str(arguments)]
    assert used == [], "jobs on the run of another owner"
    assert site.registry.list_for_owner(key) == []


def test_every_route_answers_its_owner(site):
    owner = {"owner": site.owner}
    send_all(site, f"run:{site.run.id}", site.owner, DESTRUCTIVE)
    experiment = {"experiment": site.post("experiments/submit", form=FORM, **owner)["experiment"]}
    claim = {"name": site.post("replications/list", **owner)["claims"][0]["name"]}
    job = {"job": site.post("jobs/submit", kind="cached-models", **owner)["job"]}
    classroom = {"code": site.post("class/open", **owner)["code"]}
    for route, fields in (
        ("experiments/poll", {"open": experiment["experiment"]}),
        ("experiments/csv", experiment),
        ("experiments/json", experiment),
        ("experiments/action", experiment | {"action": "delete"}),
        ("replications/start", claim),
        ("replications/outcome", claim),
        ("jobs/cancel", job),
        ("class/join", classroom),
        ("class/guess", classroom | {"lesson": "attention", "guess": 3}),
        ("class/poll", classroom),
        ("class/close", classroom),
    ):
        assert not site.post(route, **owner | fields).get("error")
    # the others have no bug that was measured, and no damaged record
    assert set(REQUESTS) - site.answered == {"lessons/guess", "damaged/remove"}


@pytest.mark.parametrize("guess", GUESSES)
def test_a_user_who_guesses_gets_nothing(site, guess):
    site.registry.update_metadata(site.run, viewers_may_use=True)
    key = "" if guess == "its id without a key" else new_owner_key()
    for sent, response in send_all(site, GUESSES[guess](site.run), key):
        assert not secrets_in(site, sent, response), (sent, response)
        assert str(site.root) not in json.dumps(response), sent
    assert "my run" not in str(site.post("runs/list", owner=new_owner_key()))


def test_the_owner_gets_everything_and_no_path(site):
    results = dict(send_all(site, f"run:{site.run.id}", site.owner, DESTRUCTIVE))
    for sent, response in results.items():
        assert str(site.root) not in json.dumps(response), sent
    text = json.dumps(results)
    assert site.sha256 in text
    rows = [target for target in ROWS.values() if any(target in each for each in texts(results))]
    assert len(rows) > 40  # those of the benchmark
    responses = {sent.split(" {")[0]: [] for sent in results}
    for sent, response in results.items():
        responses[sent.split(" {")[0]].append(response)
    (report,) = responses["runs/report"]
    assert site.sha256 in report["html"]
    (page,) = responses["runs/page"]
    assert WORDS.split()[0] in page["html"]
    assert site.sha256[:12] not in page["html"]
    assert responses["runs/predict"][0]["target"] == ROWS[SOURCE].split()
    assert "experiment" in responses["experiments/submit"][0]
    assert results["download"] == 200
    assert any("subject" in response for response in responses["runs/action"])
    assert responses["endpoint predict"][0]["target"] == ROWS[SOURCE].split()


def test_a_hash_opens_and_reveals_nothing(site, tmp_path):
    other_user = new_owner_key()
    archive = zipped_small_checkpoint(tmp_path, site.run.config)
    stored = hash_requests(site, other_user, site.sha256, archive)
    assert stored == hash_requests(site, other_user, UNKNOWN, with_hash(archive, UNKNOWN))
    assert all("on this server, or not yours" in text for text in stored[3:]), stored
    assert site.registry.list_for_owner(other_user) == []
    assert site.post("datasets/action", action="list", owner=other_user)["datasets"] == []
    own = hash_requests(site, site.owner, site.sha256, archive)
    # without the removal of the dataset, which the run of its owner still uses
    assert not [text for text in own if "not yours" in text], own


def test_who_uploads_the_same_pairs_owns_them_too(site):
    reader, known = new_owner_key(), []
    new = TEXT.replace("heron", "wren")  # pairs that are not stored yet
    for text in (TEXT, new):
        headers = {"x-owner": reader}
        report = site.client.post("/playground/datasets", content=text, headers=headers).json()
        used = site.post("datasets/action", action="use", owner=reader, sha256=report["sha256"])
        known.append([report.keys(), used])
    assert known[0] == known[1]
    listed = site.post("datasets/action", action="list", owner=reader)["datasets"]
    assert site.sha256 in [each["sha256"] for each in listed]
    settings = {"task": "dataset", "dataset_sha256": site.sha256, "min_length": 3, "max_length": 3}
    assert "run" in site.call("start", owner=reader, settings=settings | SMALL)


def test_consent_is_the_owners_choice_and_applies_at_once(site, trained_checkpoint):
    run = site.registry.import_checkpoint(
        shutil.copytree(trained_checkpoint, site.root / ".built-in"), site.owner, "built-in"
    )
    viewer = {"subject": f"watch:{run.share_id}", "owner": new_owner_key()}
    own = {"subject": f"run:{run.id}", "owner": site.owner}
    assert site.post("runs/details", **own)["viewers_may_use"]  # by default, of built-in tasks
    assert site.post("runs/predict", **viewer, text="1 2")["target"] == ["2", "1"]
    job = {"owner": viewer["owner"]}
    fields = {"kind": "benchmark", "request": {"n": 4}}
    job["job"] = site.post("jobs/submit", **viewer | fields)["job"]
    share = {"action": "share", "viewers_may_use": False}
    assert "only its owner" in site.post("runs/action", **viewer | share)["error"]
    assert site.post("runs/action", **own | share) == {}
    assert "no longer stored" in site.post("jobs/poll", **job)["error"]
    for route in ("runs/predict", "runs/report", "jobs/submit"):
        more = fields | {"text": "1 2"}
        assert "keeps its examples private" in site.post(route, **viewer | more)["error"]
    poll = site.post("runs/poll", **viewer)
    assert "keeps its examples private" in poll["private"]
    assert poll["scores"] == site.post("runs/poll", **own)["scores"]
    assert RunRecord.read(run.folder).viewers_may_use is False
    site.post("runs/action", **own | share | {"viewers_may_use": True})
    assert site.post("runs/predict", **viewer, text="1 2")["target"] == ["2", "1"]
    assert site.job_result(job["job"], job["owner"])["status"] == "done"
