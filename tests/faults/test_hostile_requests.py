"""Malformed requests get a response or an error message, never a server error.

A page with any cursor receives every point once.
"""

import json
import math
import shutil
import threading
from concurrent.futures import Future

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.architectures import ARCHITECTURES
from playground.checkpoints.checkpoint import (
    build_model,
    save_checkpoint,
)
from playground.errors import UserError
from playground.experiments.service import ExperimentService
from playground.inspection.ablation import NUM_SEQUENCES
from playground.inspection.views import VIEWS, ablation, head_scores
from playground.jobs.executors import ProcessPerJob, ResidentProcess
from playground.lessons.bugs import BUGS, RANDOM_BUG
from playground.lessons.lessons import LESSONS
from playground.runs.commands import COMMANDS
from playground.runs.inspector_process import Inspector
from playground.runs.metric_series import MetricSeries
from playground.runs.owner_keys import new_owner_key
from playground.runs.snapshot import SnapshotBuilder
from playground.server.app import build_handlers, launch_options
from playground.server.middleware import MAX_DATA_BODY_BYTES
from playground.server.routes import ROUTE_PREFIX
from playground.training.config import RunConfig
from playground.training.trainer import Trainer
from tests.support.small_runs import TINY_SETTINGS, repeat_counts, tiny_config

MAX_REQUESTS_PER_SUCCESS = 5  # at least one in five requests must succeed
STEPS = 6


class InProcessInspector:
    """Run the inspection process in this process; its errors fail the test."""

    def __init__(self):
        self.inspector = Inspector()

    def request(self, kind, target, text="", **_):
        future = Future()
        future.set_result(
            self.inspector.dispatch(
                kind, target if isinstance(target, dict) else {"checkpoint": str(target)}, text
            )
        )
        return future

    close = stop = warm_up = lambda self: None


def finish_immediately(executor, job):
    """End each job immediately; there is no network."""
    no_network = ("failed", "there is no network", False)
    results = {"report": {"zip": ""}, "check": {}}
    last = ("result", results[job.kind]) if job.kind in results else no_network
    threading.Thread(target=executor.on_end, args=(job, last, None)).start()
    return True


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    trainer = Trainer(tiny_config(max_steps=20))
    metrics = [trainer.train_step() for _ in range(STEPS)]
    folder = tmp_path_factory.mktemp("made") / "small"
    save_checkpoint(folder, trainer, metrics, trainer.evaluate(32))
    return folder


@pytest.fixture
def server(registries, checkpoint, tmp_path, monkeypatch):
    """Serve all routes of the page, with a checkpoint and a run of an owner.

    Nothing trains, and no process is started.
    """
    shutil.copytree(checkpoint, tmp_path / "small")
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setattr(ResidentProcess, "start", lambda executor, job: True)
    monkeypatch.setattr(ProcessPerJob, "start", finish_immediately)
    for module in (ablation, head_scores):
        monkeypatch.setattr(module, "TIME_BUDGET", 0.0)
    registry = registries()
    registry.scheduler.schedule = lambda: None
    registry.snapshots.inspector = registry.snapshots.slow_inspector = InProcessInspector()
    experiments = ExperimentService(registry)
    owner = new_owner_key()
    run = registry.import_checkpoint(
        shutil.copytree(checkpoint, tmp_path / ".sent"), owner, "my run"
    )
    routes = launch_options(
        registry, build_handlers(registry, experiments, public=False), None, 7910, share=False
    )["app_kwargs"]["routes"]
    with TestClient(Starlette(routes=routes)) as client:  # raises uncaught errors of the server
        yield client, registry, run, owner
    experiments.close()


NESTED = [
    json.loads(opened * depth + inner + closed * depth)
    for depth in (1, 40, 400)
    for opened, inner, closed in (("[", "", "]"), ('{"a":', "1", "}"))
]
HOSTILE_VALUES = st.one_of(
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=30),
    st.sampled_from(
        [
            None,
            True,
            False,
            10**400,
            -1,
            0,
            1,
            2**31,
            2**63,
            1e300,
            "",
            "\x00",
            "\ud800",
            "../../etc/passwd",
            "<script>",
            [],
            {},
            [1, "a"],
            {"a": 1},
            [[None]],
            ["../x"],
            {"": []},
            "x" * 3000,
            *NESTED,
        ]
    ),
)
SEQUENCE = st.one_of(st.text("0123456789", min_size=1, max_size=5), st.text(max_size=30))
OPTIONS = {
    "kind": st.sampled_from(["encoder", "decoder", "cross"]),
    "mode": st.sampled_from(["free-running", "teacher-forced", "sampled"]),
    "temperature": st.floats(0.1, 5),
    "seed": st.integers(0, 9),
    "layer": st.integers(0, 1),
    "head": st.integers(0, 1),
    "position": st.integers(0, 5),
    "corrupt": SEQUENCE,
    "other": SEQUENCE,
    "set": st.sampled_from(["single", "groups", "keep"]),
    "stage": st.sampled_from(["embedding", "attention"]),
    "off": HOSTILE_VALUES,
    "n": st.integers(1, NUM_SEQUENCES),
    "side": st.sampled_from(["source", "target"]),
}
VALUES_BY_FIELD = {
    "action": st.sampled_from(
        [
            *COMMANDS,
            "change",
            "rename",
            "tag",
            "hide",
            "show",
            "rerun",
            "branch",
            "download",
            "list",
            "use",
            "start",
            "x",
        ]
    ),
    "n_points": st.integers(0, 9),
    "series_id": st.integers(-1, 1),
    "snapshot_version": st.integers(0, 2),
    "step": st.integers(0, 9),
    "text": SEQUENCE,
    "view": st.sampled_from(sorted(VIEWS)),
    "options": st.fixed_dictionaries({}, optional=OPTIONS),
    "kind": st.sampled_from(
        [
            "account",
            "gallery",
            "repo_info",
            "pull",
            "reproduce",
            "preview",
            "plan",
            "push",
            "model-info",
            "cached-models",
            "benchmark",
            "inference",
            "finetune",
        ]
    ),
    "request": st.dictionaries(
        st.sampled_from(["n", "models", "model", "rows", "checkpoint", "owner"]),
        HOSTILE_VALUES,
        max_size=3,
    ),
    "name": st.text(max_size=20),
    "setting": st.sampled_from(["learning_rate", "max_steps", "speed", "stop_at_exact_match"]),
    "value": st.floats(0, 100),
    "checkpoint": st.just(f"{STEPS:07d}-kept"),
    "architectures": st.lists(st.sampled_from(sorted(ARCHITECTURES)), max_size=3),
    "min_length": st.integers(1, 3),
    "max_length": st.integers(3, 9),
    "job": st.just("task"),
    "cursor": st.integers(0, 9),
    "form": st.fixed_dictionaries(
        {"grid": st.just([["d_model", "8, 16"]]), "seeds": st.just("0, 1")},
        optional={
            "base": HOSTILE_VALUES,
            "name": HOSTILE_VALUES,
            "kind": st.sampled_from(["grid", "lengths"]),
            "times": HOSTILE_VALUES,
            "n": HOSTILE_VALUES,
        },
    ),
    "question": st.sampled_from(["heads", "positions", "x"]),
    "open": HOSTILE_VALUES,
    "experiment": HOSTILE_VALUES,
    "content": st.just("0" * 64),
    "repo": st.sampled_from(["ada/digits", "../x", ""]),
    "revision": st.sampled_from(["main", "..", "a/b"]),
    "token": st.just("hf_x"),
    "lesson": st.sampled_from([*LESSONS, "x"]),
    "prediction": st.integers(0, 100),
    "bug": st.sampled_from([*BUGS, RANDOM_BUG, "x"]),
    "seed": st.integers(0, 9),
    "steps": st.integers(20, 300),
    "line": st.integers(0, 99),
    "expected_parent": HOSTILE_VALUES,
    "is_main": st.booleans(),
    "private": st.booleans(),
}


FIELDS_BY_ROUTE = {  # what a page's script sends along, beside whose page it is and what is on show
    "runs/poll": ["n_points", "series_id", "snapshot_version"],
    "runs/snapshot": ["step"],
    "runs/predict": ["text", "step"],
    "runs/list": [],
    "runs/details": [],
    "runs/curves": ["subjects"],
    "runs/action": ["action", "setting", "value", "name", "step", "checkpoint"],
    "inspect/view": ["view", "options", "text", "step"],
    "datasets/action": ["action", "sha256"],
    "jobs/submit": ["kind", "request"],
    "jobs/poll": ["job", "cursor"],
    "architectures/matched": ["min_length", "max_length"],
    "architectures/train": ["architectures"],
    "architectures/curves": ["subjects"],
    "jobs/cancel": ["job"],
    "experiments/plan": ["form"],
    "experiments/submit": ["form"],
    "experiments/poll": ["open"],
    "experiments/action": ["experiment", "action"],
    "experiments/csv": ["experiment"],
    "replications/start": ["name"],
    "replications/outcome": ["name"],
    "hub/submit": ["kind", "repo", "revision", "token", "expected_parent"],
    "lessons/start": ["lesson", "prediction", "options"],
    "lessons/start-bug": ["bug", "seed", "steps"],
    "lessons/poll": [],
    "lessons/cancel": [],
    "lessons/guess": ["bug", "line"],
    "hub/poll": ["job"],
}


@st.composite
def requests(draw, name, subjects, owner, known_ids):
    """Generate requests: mostly valid ones with an odd value, sometimes any JSON."""
    if draw(st.integers(0, 9)) == 0:
        return draw(HOSTILE_VALUES)
    request = {"owner": owner, "subject": draw(st.sampled_from(subjects)), "subjects": subjects}
    request |= {
        field: draw(VALUES_BY_FIELD[field])
        for field in FIELDS_BY_ROUTE.get(name, [])
        if field in VALUES_BY_FIELD
    } | known_ids.get(name, {})
    if draw(st.booleans()):
        request[draw(st.sampled_from([*FIELDS_BY_ROUTE.get(name, []), "owner", "subject"]))] = draw(
            HOSTILE_VALUES
        )
    return request


def is_success(response):
    return (
        response.status_code == 200
        and "error" not in response.json()
        and response.json().get("status") not in ("not-found", "failed")
    )


def create_objects(client, owner):
    """Start a job, an experiment and a claim, for later requests; return their names."""

    def send(name, **more):
        return client.post(ROUTE_PREFIX + name, content=json.dumps({"owner": owner} | more)).json()

    job = {"job": send("jobs/submit", kind="cached-models", request={})["job"]}
    experiment = send("experiments/submit", form={"grid": [["d_model", "8, 16"]], "seeds": "0, 1"})[
        "experiment"
    ]
    claim = {"name": send("replications/list")["claims"][0]["name"]}
    experiment_fields = {"experiment": experiment, "action": "cancel"}
    measurement = {"id": send("lessons/start-bug", bug=RANDOM_BUG, seed=0, steps=60)["id"]}
    return {
        "experiments/action": experiment_fields,
        "experiments/csv": experiment_fields,
        "jobs/poll": job,
        "jobs/cancel": job,
        "hub/poll": {"job": send("hub/submit", kind="gallery").get("job")},
        "lessons/poll": measurement,
        "lessons/cancel": measurement,
        "lessons/guess": measurement,
        "experiments/poll": {"open": experiment},
        "replications/start": claim,
        "replications/outcome": claim,
    }


@repeat_counts(500, 20_000)
def test_every_input_gets_a_result_or_an_error_message(server, count):
    client, registry, run, owner = server
    names = sorted(
        route.path.removeprefix(ROUTE_PREFIX)
        for route in client.app.routes
        if route.path.startswith(ROUTE_PREFIX)
    )
    assert {
        "runs/poll",
        "runs/predict",
        "runs/action",
        "inspect/view",
        "datasets/action",
        "jobs/submit",
        "experiments/plan",
        "hub/submit",
    } <= set(names)
    subjects = [
        f"run:{run.id}",
        f"run:{run.id}",
        f"watch:{run.share_id}",
        "checkpoint:small",
        "checkpoint:../small",
        "run:",
    ]
    known_ids = create_objects(client, owner)
    successes = dict.fromkeys(names, 0)
    sent = []

    def send(name, data):
        request = data.draw(requests(name, subjects, owner, known_ids))
        response = client.post(ROUTE_PREFIX + name, content=json.dumps(request))
        assert response.status_code in (200, 400), (response.status_code, response.text[:300])
        assert "error" not in response.json() or isinstance(response.json()["error"], str)
        assert "Traceback" not in response.text
        successes[name] += is_success(response)
        sent.append(name)
        # stay below the limit of runs, which would reject later requests
        for other_run in registry.list_for_owner(owner):
            if other_run is not run:
                registry.scheduler._queue.clear()
                registry.remove(other_run)

    def send_random(names, n):
        run_examples = given(st.sampled_from(names), st.data())(send)
        settings(max_examples=n, suppress_health_check=list(HealthCheck))(run_examples)()

    send_random(names, count)
    assert len(sent) >= 0.8 * count
    assert sum(successes.values()) * MAX_REQUESTS_PER_SUCCESS >= len(sent)
    missing = [name for name in names if not successes[name] and name not in ALWAYS_REJECTED]
    if missing:  # routes without a successful random request
        send_random(missing, 200 * len(missing))
    assert [name for name in missing if not successes[name]] == []


# Hub tasks have no network, no experiment has finished, and no measurement runs. These routes
# reject every request with a message, or do so once the slots for measurements are in use.
ALWAYS_REJECTED = (
    "lessons/poll",
    "hub/poll",
    "datasets/action",
    "architectures/train",
    "lessons/guess",
    "lessons/start",
    "lessons/start-bug",
)


BODIES = {
    "nothing": b"",
    "no JSON": b"hello",
    "half": b'{"subject": "run',
    "NaN": b'{"n_points": NaN}',
    "endless": b'{"n_points": 1e999}',
    "bottomless": b"[" * 400_000,
    "bottomless object": b'{"a":' * 150_000,
    "twice": b'{"owner": 1, "owner": 2}',
    "not UTF-8": b'{"a": "\xff"}',
    "many digits": b'{"n_points": ' + b"9" * 5000 + b"}",
    "UTF-16": '{"n_points": 1}'.encode("utf-16"),
    "a megabyte": b'{"a": "' + b"x" * 999_000 + b'"}',
    "many lists": b'{"a": [' + b"[]," * 300_000 + b"[]]}",
}


@pytest.mark.smoke
def test_bodies_without_json_are_rejected(server):
    client = server[0]
    for name, body in BODIES.items():
        response = client.post(ROUTE_PREFIX + "runs/poll", content=body)
        assert response.status_code == 400 or response.json()["status"] == "not-found", name
    # longer bodies are rejected before they are received
    assert len(max(BODIES.values(), key=len)) <= MAX_DATA_BODY_BYTES


@pytest.mark.parametrize("depth", [900, 949, 998, 5000])
def test_deeply_nested_request_causes_no_server_error(server, depth):
    """Python parses JSON that is nested deeper than it can serialize."""
    client, _, run, owner = server
    body = "[" * depth + "]" * depth
    for name in ("inspect/view", "jobs/submit", "experiments/plan", "runs/poll"):
        body = (
            f'{{"owner": "{owner}", "subject": "run:{run.id}", "view": "attention", "text": '
            '"123", "kind": "inference", '
        )
        body += (
            f'"options": {{"kind": {body}}}, "request": {{"a": {body}}}, "form": {{"a": '
            f"{body}}}, "
            f'"n_points": {body}}}'
        )
        assert client.post(ROUTE_PREFIX + name, content=body).status_code in (200, 400)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://[",
        "http://testserver.evil.example",
    ],
)
def test_a_foreign_or_broken_origin_is_rejected(server, origin):
    assert (
        server[0]
        .post(ROUTE_PREFIX + "runs/poll", content=b"{}", headers={"origin": origin})
        .status_code
        == 403
    )


@pytest.fixture(scope="module")
def job_requests():
    """Return the request types of jobs with pretrained models."""
    from playground.comparison.benchmark import BenchmarkRequest
    from playground.finetuning.job import FinetuneRequest
    from playground.pretrained.inference import InferenceRequest
    from playground.probing.attention import AttentionRequest

    return (
        BenchmarkRequest,
        FinetuneRequest,
        InferenceRequest,
        AttentionRequest,
    )


@settings(max_examples=100)
@example(10**400)
@example(math.inf)
@example(math.nan)
@given(HOSTILE_VALUES)
def test_a_hostile_field_of_a_job_request_is_rejected_or_plain_json(job_requests, value):
    valid = {"checkpoint": "folder", "model": "gpt2", "text": "a text"}
    for request_type in job_requests:
        for name in request_type.model_fields:
            try:
                request = request_type.parse(valid | {name: value})
            except UserError as error:
                if not str(error):
                    raise
            else:
                json.dumps(request.model_dump(), allow_nan=False).encode()


# Cursors


class PollingPage:
    """A page that polls as static/shared/poller.js does, and the points that it has."""

    def __init__(self, send_poll, cursor, epoch):
        self.send_poll, self.known, self.epoch = send_poll, cursor, epoch
        self.steps = list(range(1, cursor + 1)) if type(cursor) is int and cursor < 10_000 else []

    def poll(self):
        result = self.send_poll(n_points=self.known, series_id=self.epoch)
        points = result["points"]
        if points["whole"]:
            self.steps = []
        self.steps += points["steps"]
        self.known, self.epoch = points["count"], result["series_id"]


def lines(start, stop):
    return [
        {"step": step, "loss": 1.0 / step, "learning_rate": 1e-3, "grad_norm": 1.0}
        for step in range(start, stop)
    ]


@repeat_counts(100, 6000)
def test_any_cursor_gets_every_point_once(server, count):
    client, _, run, owner = server
    cursors = st.one_of(st.integers(-3, 60), st.integers(), HOSTILE_VALUES)
    counts = {"valid": 0, "odd": 0}

    def send_poll(**fields):
        response = client.post(
            ROUTE_PREFIX + "runs/poll",
            content=json.dumps(
                {"owner": owner, "subject": f"run:{run.id}", "snapshot_version": 0} | fields
            ),
        )
        assert response.status_code == 200
        return response.json()

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(st.integers(0, 40), min_size=1, max_size=4),
        cursors,
        st.one_of(st.just(run.live.series_id), st.integers(-2, 2), HOSTILE_VALUES),
    )
    def follow(growth, cursor, epoch):
        run.update_live(points=MetricSeries())
        run.live.points.add(lines(1, growth[0] + 1))
        page = PollingPage(send_poll, cursor, epoch)
        page.poll()
        for n_new in growth[1:]:
            run.live.points.add(
                lines(run.live.points.last + 1, run.live.points.last + 1 + n_new)
                if len(run.live.points)
                else lines(1, 1 + n_new)
            )
            page.poll()
        page.poll()
        assert page.steps == list(range(1, sum(growth) + 1))
        is_valid = type(cursor) is int and 0 <= cursor <= growth[0]
        counts["valid" if is_valid else "odd"] += 1

    follow()
    assert min(counts.values()) * MAX_REQUESTS_PER_SUCCESS >= sum(counts.values())


# Checkpoints and sequences


HOSTILE_TEXTS = [
    "1" * 2000,
    "\ud800",
    "١٢٣",
    "1\x002",
    "１２",
    "1\u20282",
    "PAD",
    "<EOS>",
    "1;2",
    "e\u0301",
]


@repeat_counts(300, 6000)
def test_any_text_gets_a_prediction_or_an_error_message(count):
    config = RunConfig.from_flat(TINY_SETTINGS | {"max_steps": 50})
    view, family = (
        SnapshotBuilder(config.task.load(), config, torch.device("cpu")),
        build_model(config).eval(),
    )
    successes = []

    @settings(max_examples=count)
    @given(
        st.one_of(
            st.text("0123456789 ,", max_size=12),
            st.text(max_size=40),
            st.sampled_from(HOSTILE_TEXTS),
        )
    )
    def send(text):
        response = view.predict(family, text)
        json.dumps(response, allow_nan=False)
        successes.append("error" not in response)
        if successes[-1]:
            assert response["target"] == [*"".join(text.replace(",", " ").split())][::-1]
            # the model is untrained
            assert set(response["prediction"]) <= {*"0123456789", "PAD", "SOS"}
            assert response["correct"] == (response["prediction"] == response["target"])
        else:
            assert 5 < len(response["error"]) < 500

    send()
    assert sum(successes) * MAX_REQUESTS_PER_SUCCESS >= len(successes)
