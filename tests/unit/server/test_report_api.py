"""The picture of a shared model with the tags of a link to it, and a report without a reader."""

import asyncio
import io
import re
import shutil
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.reports.card import render_card
from playground.runs import access
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server import report_api
from playground.server.app import page_route
from playground.server.report_api import Cards
from tests.support.coroutines import run_in_thread
from tests.support.fake_jobs import fake_processes


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    registry = Registry(tmp_path_factory.mktemp("cards"), idle_timeout_s=0, release_after_s=0)
    yield registry
    registry.shutdown()


@pytest.fixture(scope="module")
def run(registry, trained_checkpoint):
    sent = shutil.copytree(trained_checkpoint, registry.root / ".sent")
    return registry.import_checkpoint(sent, new_owner_key(), 'my "<b>run</b>"')


SNAPSHOT = {
    "snapshot": {
        "step": 12,
        "samples": [],
        "attention": {"cross": [[[1000, 0, 400, 600]]]},
        "probe": {"target": ["b", "a"], "predicted": ["b", "b"], "probability": [900, 500]},
        "contributions": {},
    },
    "probe_info": {"source": ["a"], "axes": {"cross": (["b", "a"], ["a", "EOS"])}},
}


@pytest.fixture
def drawn(monkeypatch, registry):
    """The data of each picture that a process draws, here in this process."""
    drawn = []

    async def draw(queue, kind, card, request=None):
        drawn.append(card)
        return render_card(card)

    def request_snapshot(kind, source, client):
        future = Future()
        future.set_result(SNAPSHOT)
        return future

    monkeypatch.setattr(report_api, "run_job", draw)
    monkeypatch.setattr(registry.snapshots, "request", request_snapshot)
    return drawn


@pytest.fixture
def cards(registry, drawn):
    return Cards(registry)


@pytest.fixture
def client(cards):
    app = Starlette(routes=[page_route(cards), cards.route()])
    app.root_path = ""  # of Gradio's app
    return TestClient(app)


def tags_of(page):
    """Return the tags of a page by name."""
    return dict(re.findall(r'<meta property="(og:\w+)" content="([^"]*)">', page))


def test_a_watch_link_has_tags_and_a_picture_that_other_sites_show(client, run):
    tags = tags_of(client.get("/", params={"model": f"watch:{run.share_id}"}).text)
    assert tags["og:title"] == "my &#34;&lt;b&gt;run&lt;/b&gt;&#34; · Transformer Playground"
    assert re.search(r"\d % of [\d,]+ unseen sequences right$", tags["og:description"])
    assert tags["og:image"] == f"http://testserver/playground/card?model=watch%3A{run.share_id}"
    answer = client.get(tags["og:image"])
    assert answer.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(answer.content)).size == (1200, 630)
    assert run.id not in str(tags)


@pytest.mark.parametrize("link", ["run:{run.id}", "watch:{run.id}", "none", "checkpoint:../x", ""])
def test_a_link_of_an_owner_or_to_nothing_has_neither(client, run, link):
    params = {"model": link.format(run=run)}
    assert tags_of(client.get("/", params=params).text) == {}
    answer = client.get(report_api.CARD_PATH, params=params)
    assert answer.status_code == 404
    assert run.name not in answer.text


def test_a_picture_has_no_token_without_the_owner_s_consent(client, drawn, registry, run):
    params = {"model": f"watch:{run.share_id}"}
    for may_use in (True, True, False):
        registry.update_metadata(run, viewers_may_use=may_use)
        assert client.get(report_api.CARD_PATH, params=params).status_code == 200
    with_tokens, without = drawn  # the second answer is the stored picture
    assert with_tokens["snapshot"]["probe"] == SNAPSHOT["snapshot"]["probe"]
    assert without["snapshot"]["probe"] is None
    assert without["probe_info"]["source"] == []
    assert without["probe_info"]["axes"] == {"cross": [["1", "2"], ["1", "2"]]}


def test_the_stored_pictures_are_limited(cards, client, drawn, run, registry, monkeypatch):
    monkeypatch.setattr(report_api, "MAX_STORED", 2)
    names = [f"name {i}" for i in range(3)]
    for name in (*names, names[2], names[0]):
        registry.update_metadata(run, name=name)
        client.get(report_api.CARD_PATH, params={"model": f"watch:{run.share_id}"})
    assert [card["name"] for card in drawn] == [*names, names[0]]


def test_work_for_a_disconnected_client_ends(monkeypatch):
    async def receive():
        return {"type": "http.disconnect"}

    started = fake_processes(monkeypatch)
    monkeypatch.setattr(access, "find_access", lambda *_: access.Access(access.Right.OWN))
    request = SimpleNamespace(scope={"path": "/playground/api/runs/report"}, receive=receive)
    report = report_api.ReportHandlers(SimpleNamespace()).handlers()["runs/report"]
    response = run_in_thread(asyncio.wait_for(report({"owner": "o" * 32}, request), 20))
    assert "error" in response
    assert [process.is_killed for process in started] == [True]
