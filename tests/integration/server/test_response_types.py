"""The responses of the server have the fields and types that responses.d.ts declares."""

import functools
import json
import re
import shutil

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.datasets.sources import ReadOptions, read_text
from playground.datasets.storage import store
from playground.experiments.service import ExperimentService
from playground.inspection.views import VIEWS, component_ranking, head_scores, render_view
from playground.jobs.job import Job
from playground.runs.dataset_library import DatasetLibrary
from playground.runs.inspector_process import Inspector
from playground.runs.registry import Registry
from playground.server import dataset_reader
from playground.server.app import build_handlers
from playground.server.datasets_api import DatasetHandlers
from playground.server.routes import ROUTE_PREFIX, build_routes
from playground.ui.page import STATIC_DIR
from tests.support.app_server import ROOT
from tests.support.handcrafted_models import recurrent_model
from tests.support.inspectors import InProcessInspector

DECLARATIONS = STATIC_DIR / "shared" / "responses.d.ts"
OWNER = "A" * 32
REVERSE = {"subject": "checkpoint:reverse", "owner": OWNER}


@functools.cache
def declarations() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return the fields of each interface with their types, and the named types."""
    text = re.sub(r"/\*\*.*?\*/", "", DECLARATIONS.read_text(), flags=re.DOTALL)
    interfaces: dict[str, dict[str, str]] = {}
    for name, base, body in re.findall(
        r"export interface (\w+)(?: extends (\w+))? \{(.*?)\n\}", text, re.DOTALL
    ):
        fields = dict(re.findall(r"^  (\w+\??): ([^;]+);$", body, re.M))
        assert len(fields) == len(body.split(";")) - 1, f"{name} has a line that is no field"
        interfaces[name] = interfaces.get(base, {}) | fields
    types = dict(re.findall(r"export type (\w+) =\s+([^;]+);", text))
    return interfaces, types


def split(text: str, separator: str) -> list[str]:
    """Split at separators outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[<(") - (character in "]>)")
        if character == separator and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def problems(value, declared: str, path: str) -> list[str]:
    """Return where a JSON value differs from a declared type."""
    interfaces, types = declarations()
    options = split(types.get(declared, declared), "|")
    if len(options) > 1:
        differences = [problems(value, option, path) for option in options]
        return min(differences, key=len)
    option = options[0]
    if option.startswith("(") and option.endswith(")"):
        return problems(value, option[1:-1], path)
    if option == "any":
        return []
    if option in interfaces:
        return object_problems(value, interfaces[option], path)
    if option.endswith("[]"):
        if not isinstance(value, list):
            return [f"{path} is no list"]
        return [
            p for i, each in enumerate(value) for p in problems(each, option[:-2], f"{path}[{i}]")
        ]
    if option.startswith("["):
        members = split(option[1:-1], ",")
        if not isinstance(value, list) or len(value) != len(members):
            return [f"{path} is not {option}"]
        pairs = zip(value, members, strict=True)
        return [p for i, (each, t) in enumerate(pairs) for p in problems(each, t, f"{path}[{i}]")]
    if option.startswith("Record<"):
        if not isinstance(value, dict):
            return [f"{path} is no object"]
        member = split(option[7:-1], ",")[1]
        return [p for key, each in value.items() for p in problems(each, member, f"{path}.{key}")]
    accepts = {
        "string": isinstance(value, str),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
        "boolean": isinstance(value, bool),
        "null": value is None,
    }.get(option, isinstance(value, str) and option == f'"{value}"')
    return [] if accepts else [f"{path} is {value!r:.60}, not {option}"]


def object_problems(value, fields: dict[str, str], path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path} is no object"]
    names = {name.removesuffix("?"): declared for name, declared in fields.items()}
    missing = {name for name in fields if not name.endswith("?")} - set(value)
    return [
        *(f"{path}.{name} is missing" for name in sorted(missing)),
        *(f"{path}.{name} is not declared" for name in sorted(set(value) - set(names))),
        *(
            p
            for name in set(value) & set(names)
            for p in problems(value[name], names[name], f"{path}.{name}")
        ),
    ]


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    shutil.copytree(ROOT / "checkpoints" / "reverse", root / "reverse")
    registry = Registry(root)
    imported = shutil.copytree(root / "reverse", root / ".imported")
    registry.import_checkpoint(imported, OWNER, "my run")
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


@pytest.fixture(scope="module")
def run(registry):
    (run,) = registry.list_for_owner(OWNER)
    return {"subject": f"run:{run.id}", "owner": OWNER}


def test_the_matcher_reports_each_kind_of_difference():
    valid = {"name": "a", "step": 1, "bytes": 2, "written": 3.5, "exact_match": None}
    valid |= {"is_pinned": True, "resumable": False}
    assert problems(valid, "RunCheckpoint", "x") == []
    assert problems(valid | {"extra": 1}, "RunCheckpoint", "x") == ["x.extra is not declared"]
    assert problems(valid | {"step": True}, "RunCheckpoint", "x") == ["x.step is True, not number"]
    assert problems(valid | {"name": None}, "RunCheckpoint", "x") == ["x.name is None, not string"]
    assert problems({}, "LatestPoint", "x") == ["x.step is missing"]
    assert problems({"a": [["b"], [1]]}, "Record<string, [string[], string[]]>", "x") == [
        "x.a[1][0] is 1, not string"
    ]
    assert problems("asleep", "RunStatus", "x")


@pytest.mark.smoke
def test_the_list_of_runs(request_json):
    response = request_json("runs/list", owner=OWNER)
    assert response["runs"]
    assert response["checkpoints"]
    assert problems(response, "RunList", "response") == []


def test_polls(request_json, run):
    response = request_json("runs/poll", **run)
    assert response["points"]["steps"]
    assert problems(response, "RunPoll", "run") == []
    assert problems(request_json("runs/poll", **REVERSE), "ModelPoll", "checkpoint") == []
    missing = request_json("runs/poll", subject="run:none", owner=OWNER)
    assert problems(missing, "NotFoundPoll", "missing") == []
    assert problems(json.loads(json.dumps(Job("train").to_json())), "JobPoll", "job") == []


def test_details(request_json, run):
    assert problems(request_json("runs/details", **run), "RunDetails", "run") == []
    assert problems(request_json("runs/details", **REVERSE), "RunDetails", "checkpoint") == []


def test_the_form_of_the_lab(request_json):
    response = request_json("experiments/presets", owner=OWNER)
    assert response["presets"]
    assert response["settings"]
    assert problems(response, "ExperimentForm", "form") == []


def test_errors(request_json):
    assert problems(request_json("runs/details", subject="run:none"), "ErrorResponse", "e") == []
    unknown = request_json("experiments/plan", owner=OWNER, question="none")
    assert unknown["field"] == "question"
    assert problems(unknown, "ErrorResponse", "e") == []


def read_file(tmp_path, text: str) -> dict:
    path = tmp_path / "examples.tsv"
    path.write_text(text)
    return dataset_reader.read_dataset(
        {"file": str(path), "name": path.name, "options": ReadOptions()}
    )


def test_datasets(registry, request_json, tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setattr(
        dataset_reader, "_limit_memory", lambda: None
    )  # it would limit the test process
    text = "".join(f"{n:03}\t{n}\n" for n in range(200))
    report = read_file(tmp_path, text + "001\t1\n002\t3\n")
    assert report["conflict_lines"] == [202]
    assert problems(report, "DatasetReport", "report") == []
    partial = read_file(tmp_path, "1\t2\n" + 3 * "no tab\n")
    assert partial["lines"]
    assert problems(partial, "PartialDataset", "partial") == []
    assert problems(read_file(tmp_path, "no tab\n"), "DatasetErrors", "errors") == []
    missing = request_json("datasets/action", owner=OWNER, action="show", sha256="0" * 64)
    assert problems(missing, "DatasetErrors", "missing") == []
    monkeypatch.setattr(registry, "single_owner", OWNER)  # who owns every dataset
    DatasetLibrary(registry).store(OWNER, store(read_text(text)))
    stored = request_json("datasets/action", owner=OWNER, action="list")["datasets"]
    assert problems(stored, "StoredDataset[]", "stored") == []
    assert len(stored) == 1


@functools.cache
def inspector() -> Inspector:
    return Inspector()


CELLS = {
    "ProductCellView": "output/logits",
    "MixedCellView": "encoder self-attention, layer 1/weighted sum",
    "EquationCellView": "encoder self-attention, layer 1/softmax",
}
INSPECT_CASES = [
    *(
        (f"{name.title().replace('-', '')}View", {"view": name})
        for name in VIEWS
        # Weights of earlier steps exist for a run only, gates for a recurrent model only.
        if name not in ("heads-over-training", "trace-cell", "gates")
    ),
    *((interface, {"view": "trace-cell", "stage": stage}) for interface, stage in CELLS.items()),
]


@pytest.mark.parametrize(("interface", "request_fields"), INSPECT_CASES)
def test_views_of_the_inspect_tab(monkeypatch, interface, request_fields):
    for module in (component_ranking, head_scores):
        monkeypatch.setattr(module, "TIME_BUDGET", 0.0)
    model = {"checkpoint": str(ROOT / "checkpoints" / "reverse")}
    request = json.dumps(request_fields | {"text": "3 1 4"})
    response = inspector().dispatch("show", model, request)
    assert problems(json.loads(json.dumps(response)), interface, interface) == []


def test_the_view_of_gates():
    response = {
        "step": 1,
        "default_input": "5 3 9",
        **render_view(recurrent_model(), "gates", {"text": "5 3 9"}),
    }
    assert problems(json.loads(json.dumps(response)), "GatesView", "gates") == []
