"""The responses of the server have the declared fields and types, and so has the page."""

import functools
import json
import shutil

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.datasets.sources import ReadOptions, read_text
from playground.datasets.storage import store
from playground.experiments.service import ExperimentService
from playground.inspection.views import VIEWS, head_analysis
from playground.jobs.job import Job
from playground.runs.dataset_library import DatasetLibrary
from playground.runs.inspector_process import Inspector
from playground.runs.registry import Registry
from playground.server import dataset_reader
from playground.server.app import build_handlers
from playground.server.datasets_api import (
    DatasetErrors,
    DatasetHandlers,
    DatasetReport,
    PartialDataset,
    StoredDataset,
)
from playground.server.routes import ROUTE_PREFIX, build_routes
from playground.server.schemas import responses, views
from scripts import write_response_types
from tests.support.app_server import ROOT
from tests.support.handcrafted_models import recurrent_model
from tests.support.inspectors import InProcessInspector, render_view, respond
from tests.support.response_types import problems

OWNER = "A" * 32
REVERSE = {"subject": "checkpoint:reverse", "owner": OWNER}


def test_the_types_of_the_page_are_those_of_the_routes():
    assert write_response_types.FILE.read_text(encoding="utf-8") == write_response_types.render(), (
        "run `python -m scripts.write_response_types`"
    )


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    shutil.copytree(ROOT / "checkpoints" / "reverse", root / "reverse")
    registry = Registry(root)
    registry.snapshots.inspector = InProcessInspector()
    yield registry
    registry.shutdown()


@pytest.fixture(scope="module")
def request_json(registry):
    experiments = ExperimentService(registry)
    handlers = build_handlers(registry, experiments, public=False)
    routes = build_routes(handlers | DatasetHandlers(registry).handlers())
    with TestClient(Starlette(routes=routes)) as client:
        yield lambda route, **payload: client.post(ROUTE_PREFIX + route, json=payload).json()
    experiments.close()


def test_the_matcher_reports_each_kind_of_difference():
    valid = {"name": "a", "step": 1, "bytes": 2, "written": 3.5, "exact_match": None}
    valid |= {"is_pinned": True, "resumable": False}
    for changes, expected in (
        ({}, []),
        ({"extra": 1}, ["x.extra is not declared"]),
        ({"step": True}, ["x.step is True, not int"]),
        ({"step": 1.5}, ["x.step is 1.5, not int"]),
        ({"name": None}, ["x.name is None, not str"]),
    ):
        assert problems(valid | changes, responses.RunCheckpoint, "x") == expected
    assert problems({}, responses.LatestPoint, "x") == ["x.step is missing"]
    nested = dict[str, tuple[list[str], list[str]]]
    assert problems({"a": [["b"], [1]]}, nested, "x") == ["x.a[1][0] is 1, not str"]
    assert problems("asleep", responses.RunStatus, "x")


def test_bundled_checkpoints(request_json):
    """tests/support/private_run.py compares the responses about runs, of every route."""
    assert problems(request_json("runs/poll", **REVERSE), responses.ModelPoll, "poll") == []
    assert problems(request_json("runs/details", **REVERSE), responses.RunDetails, "details") == []
    assert problems(json.loads(json.dumps(Job("train").to_json())), responses.JobPoll, "job") == []


def read_file(tmp_path, text: str) -> dict:
    path = tmp_path / "examples.tsv"
    path.write_text(text)
    request = {"file": str(path), "name": path.name, "options": ReadOptions()}
    return respond(dataset_reader.read_dataset, request)


def test_datasets(registry, request_json, tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setattr(
        dataset_reader, "limit_memory_growth", lambda n: None
    )  # it would limit the test process
    text = "".join(f"{n:03}\t{n}\n" for n in range(200))
    report = read_file(tmp_path, text + "001\t1\n002\t3\n")
    assert report["conflict_lines"] == [202]
    assert problems(report, DatasetReport, "report") == []
    partial = read_file(tmp_path, "1\t2\n" + 3 * "no tab\n")
    assert partial["lines"]
    assert problems(partial, PartialDataset, "partial") == []
    assert problems(read_file(tmp_path, "no tab\n"), DatasetErrors, "errors") == []
    missing = request_json("datasets/action", owner=OWNER, action="show", sha256="0" * 64)
    assert problems(missing, DatasetErrors, "missing") == []
    monkeypatch.setattr(registry, "single_owner", OWNER)  # who owns every dataset
    DatasetLibrary(registry).store(OWNER, store(read_text(text)))
    stored = request_json("datasets/action", owner=OWNER, action="list")["datasets"]
    assert problems(stored, list[StoredDataset], "stored") == []
    assert len(stored) == 1


@functools.cache
def inspector() -> Inspector:
    return Inspector()


INSPECT_CASES = [
    (f"{name.title().replace('-', '')}View", {"view": name})
    for name in VIEWS
    if name != "gates"  # they exist for a recurrent model only
]


@pytest.mark.parametrize(("interface", "request_fields"), INSPECT_CASES)
def test_views_of_the_inspect_tab(monkeypatch, interface, request_fields):
    monkeypatch.setattr(head_analysis, "TIME_BUDGET", 0.0)
    model = {"checkpoint": str(ROOT / "checkpoints" / "reverse")}
    request = json.dumps(request_fields | {"text": "3 1 4"})
    response = inspector().dispatch("show", model, request)
    assert problems(json.loads(json.dumps(response)), getattr(views, interface), interface) == []


def test_the_view_of_gates():
    response = {
        "step": 1,
        "default_input": "5 3 9",
        **render_view(recurrent_model(), "gates", {"text": "5 3 9"}),
    }
    assert problems(json.loads(json.dumps(response)), views.GatesView, "gates") == []
