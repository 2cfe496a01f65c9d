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
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.architectures import ARCHITECTURES
from playground.checkpoints.checkpoint import (
    build_model,
    load_model,
    resume_trainer,
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
from playground.runs.metric_series import MAX_DELTA_POINTS, MetricSeries
from playground.runs.owner_keys import new_owner_key
from playground.runs.snapshot import SnapshotBuilder
from playground.server.app import build_handlers, launch_options
from playground.server.middleware import MAX_DATA_BODY_BYTES
from playground.server.routes import ROUTE_PREFIX
from playground.training.config import RunConfig
from playground.training.trainer import Trainer
from tests.support.small_runs import TINY_SETTINGS, repeat_counts, tiny_config

FEWEST_ANSWERED = 5  # one request in so many must be answered
STEPS = 6


class Here:
    """Run the inspection process in this process; its errors fail the test."""

    def __init__(self):
        self.inspector = Inspector()

    def request(self, kind, what, text="", **_):
        future = Future()
        future.set_result(
            self.inspector.dispatch(
                kind, what if isinstance(what, dict) else {"checkpoint": str(what)}, text
            )
        )
        return future

    close = stop = warm_up = lambda self: None


def finish_at_once(executor, job):
    """End each job immediately; there is no network."""
    no_network = ("failed", "there is no network here", False)
    results = {"figures": {"zip": ""}, "report": {"zip": ""}, "check": {}}
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
    """All handlers of the page, with a checkpoint and a run of an owner.

    Nothing trains, and no process is started.
    """
    shutil.copytree(checkpoint, tmp_path / "small")
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setattr(ResidentProcess, "start", lambda executor, job: True)
    monkeypatch.setattr(ProcessPerJob, "start", finish_at_once)
    for module in (ablation, head_scores):
        monkeypatch.setattr(module, "TIME_BUDGET", 0.0)
    registry = registries()
    registry.scheduler.schedule = lambda: None
    registry.snapshots.inspector = registry.snapshots.slow_inspector = Here()
    laboratory = ExperimentService(registry)
    owner = new_owner_key()
    run = registry.import_checkpoint(shutil.copytree(checkpoint, tmp_path / ".sent"), owner, "mine")
    routes = launch_options(
        registry, build_handlers(registry, laboratory, public=False), None, 7910, share=False
    )["app_kwargs"]["routes"]
    with TestClient(Starlette(routes=routes)) as client:  # an uncaught error is raised here
        yield client, registry, run, owner
    laboratory.close()


NESTED = [
    json.loads(opened * depth + inner + closed * depth)
    for depth in (1, 40, 400)
    for opened, inner, closed in (("[", "", "]"), ('{"a":', "1", "}"))
]
ODD = st.one_of(
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
    "off": ODD,
    "n": st.integers(1, NUM_SEQUENCES),
    "side": st.sampled_from(["source", "target"]),
}
PLAUSIBLE = {
    "action": st.sampled_from(
        [
            *COMMANDS,
            "change",
            "rename",
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
            "about",
            "finetune",
        ]
    ),
    "request": st.dictionaries(
        st.sampled_from(["n", "models", "model", "rows", "checkpoint", "owner"]), ODD, max_size=3
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
            "base": ODD,
            "name": ODD,
            "kind": st.sampled_from(["grid", "lengths"]),
            "times": ODD,
            "n": ODD,
        },
    ),
    "question": st.sampled_from(["heads", "positions", "x"]),
    "open": ODD,
    "experiment": ODD,
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
    "interval_minutes": st.integers(1, 9),
    "expected_parent": ODD,
    "is_main": st.booleans(),
    "private": st.booleans(),
    "include_dataset": st.booleans(),
}


REQUESTED = {  # what a page's script sends along, beside whose page it is and what is on show
    "runs/poll": ["n_points", "series_id", "snapshot_version"],
    "runs/snapshot": ["step"],
    "runs/predict": ["text", "step"],
    "runs/list": [],
    "runs/details": [],
    "runs/curves": ["subjects"],
    "runs/action": ["action", "setting", "value", "name", "step", "checkpoint"],
    "inspect/view": ["view", "options", "text", "step"],
    "inspect/figures": ["text", "step"],
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
    "experiments/figures": ["experiment"],
    "replications/start": ["name"],
    "replications/outcome": ["name"],
    "hub/submit": ["kind", "repo", "revision", "token", "expected_parent"],
    "lessons/start": ["lesson", "prediction", "options"],
    "lessons/start-bug": ["bug", "seed", "steps"],
    "lessons/poll": [],
    "lessons/cancel": [],
    "lessons/guess": ["bug", "line"],
    "hub/poll": ["job"],
    "hub/auto-publish": ["action", "repo", "token", "interval_minutes"],
}


@st.composite
def requests(draw, name, subjects, owner, begun):
    """Generate requests: mostly valid ones with an odd value, sometimes any JSON."""
    if draw(st.integers(0, 9)) == 0:
        return draw(ODD)
    request = {"owner": owner, "subject": draw(st.sampled_from(subjects)), "subjects": subjects}
    request |= {
        each: draw(PLAUSIBLE[each]) for each in REQUESTED.get(name, []) if each in PLAUSIBLE
    } | begun.get(name, {})
    if draw(st.booleans()):
        request[draw(st.sampled_from([*REQUESTED.get(name, []), "owner", "subject"]))] = draw(ODD)
    return request


def is_answered(answer):
    return (
        answer.status_code == 200
        and "error" not in answer.json()
        and answer.json().get("status") not in ("not-found", "failed")
    )


def begin_something(client, owner):
    """Start a job, an experiment and a claim, for later requests; return their names."""

    def requested(name, **more):
        return client.post(ROUTE_PREFIX + name, content=json.dumps({"owner": owner} | more)).json()

    job = {"job": requested("jobs/submit", kind="cached-models", request={})["job"]}
    experiment = requested(
        "experiments/submit", form={"grid": [["d_model", "8, 16"]], "seeds": "0, 1"}
    )["experiment"]
    claim = {"name": requested("replications/list")["claims"][0]["name"]}
    mine = {"experiment": experiment, "action": "cancel"}
    question = {"id": requested("lessons/start-bug", bug=RANDOM_BUG, seed=0, steps=60)["id"]}
    return {
        "experiments/action": mine,
        "experiments/csv": mine,
        "experiments/figures": mine,
        "jobs/poll": job,
        "jobs/cancel": job,
        "hub/poll": {"job": requested("hub/submit", kind="gallery").get("job")},
        "lessons/poll": question,
        "lessons/cancel": question,
        "lessons/guess": question,
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
    begun = begin_something(client, owner)
    answered = dict.fromkeys(names, 0)
    tried = []

    def send(name, data):
        request = data.draw(requests(name, subjects, owner, begun))
        answer = client.post(ROUTE_PREFIX + name, content=json.dumps(request))
        assert answer.status_code in (200, 400), (answer.status_code, answer.text[:300])
        assert "error" not in answer.json() or isinstance(answer.json()["error"], str)
        assert "Traceback" not in answer.text
        answered[name] += is_answered(answer)
        tried.append(name)
        # as many as are allowed would end the questions about runs
        for other in registry.list_for_owner(owner):
            if other is not run:
                registry.scheduler._queue.clear()
                registry.remove(other)

    def send_random(names, n):
        run_examples = given(st.sampled_from(names), st.data())(send)
        settings(max_examples=n, suppress_health_check=list(HealthCheck))(run_examples)()

    send_random(names, count)
    assert len(tried) >= 0.8 * count
    assert sum(answered.values()) * FEWEST_ANSWERED >= len(tried)
    rest = [name for name in names if not answered[name] and name not in NEVER_ANSWERED]
    if rest:  # a route that few random requests reached
        send_random(rest, 50 * len(rest))
    assert [name for name in rest if not answered[name]] == []


# No hub task reaches the Hub here, no experiment has finished, and no measurement runs. These
# routes reject every request with a message,
# or do so once the slots for measurements are in use.
NEVER_ANSWERED = (
    "lessons/poll",
    "hub/poll",
    "experiments/figures",
    "datasets/action",
    "hub/auto-publish",
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
        answer = client.post(ROUTE_PREFIX + "runs/poll", content=body)
        assert answer.status_code == 400 or answer.json()["status"] == "not-found", name
    # what is longer is refused before it has come
    assert len(max(BODIES.values(), key=len)) <= MAX_DATA_BODY_BYTES


@pytest.mark.parametrize("depth", [*range(900, 1000, 7), 5000])
def test_a_question_nested_nearly_too_deep_is_no_error_of_the_server(server, depth):
    """Python parses JSON that is nested deeper than it can serialize."""
    client, _, run, owner = server
    deep = "[" * depth + "]" * depth
    for name in ("inspect/view", "jobs/submit", "experiments/plan", "runs/poll"):
        body = (
            f'{{"owner": "{owner}", "subject": "run:{run.id}", "view": "attention", "text": '
            '"123", "kind": "inference", '
        )
        body += (
            f'"options": {{"kind": {deep}}}, "request": {{"a": {deep}}}, "form": {{"a": '
            f"{deep}}}, "
            f'"n_points": {deep}}}'
        )
        assert client.post(ROUTE_PREFIX + name, content=body).status_code in (200, 400)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://[",
        "http://[::1",
        "//",
        "http://evil.example",
        "http://testserver.evil.example",
        "\x7f",
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
    from playground.finetuning.classifier import ClassifierRequest
    from playground.finetuning.job import FinetuneRequest
    from playground.pretrained.inference import InferenceRequest
    from playground.pretrained.model_facts import ModelSizesRequest
    from playground.probing.attention import AttentionRequest
    from playground.probing.embeddings import AnalogyRequest, WordInContextRequest
    from playground.probing.tokenizer_mismatch import MismatchRequest

    return (
        BenchmarkRequest,
        ClassifierRequest,
        FinetuneRequest,
        InferenceRequest,
        ModelSizesRequest,
        AttentionRequest,
        AnalogyRequest,
        WordInContextRequest,
        MismatchRequest,
    )


@settings(max_examples=100)
@example(10**400)
@example(math.inf)
@example(math.nan)
@given(ODD)
def test_a_hostile_field_of_a_job_request_is_rejected_or_plain_json(job_requests, value):
    valid = {"checkpoint": "folder", "model": "gpt2", "text": "a text", "csv": "text,label"}
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


class Followed:
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
    cursors = st.one_of(st.integers(-3, 60), st.integers(), ODD)
    seen = {"within": 0, "odd": 0}

    def send_poll(**polled):
        answer = client.post(
            ROUTE_PREFIX + "runs/poll",
            content=json.dumps(
                {"owner": owner, "subject": f"run:{run.id}", "snapshot_version": 0} | polled
            ),
        )
        assert answer.status_code == 200
        return answer.json()

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(st.integers(0, 40), min_size=1, max_size=4),
        cursors,
        st.one_of(st.just(run.live.series_id), st.integers(-2, 2), ODD),
    )
    def follow(growth, cursor, epoch):
        run.update_live(points=MetricSeries())
        run.live.points.add(lines(1, growth[0] + 1))
        page = Followed(send_poll, cursor, epoch)
        page.poll()
        for more in growth[1:]:
            run.live.points.add(
                lines(run.live.points.last + 1, run.live.points.last + 1 + more)
                if len(run.live.points)
                else lines(1, 1 + more)
            )
            page.poll()
        page.poll()
        assert page.steps == list(range(1, sum(growth) + 1))
        within = type(cursor) is int and 0 <= cursor <= growth[0]
        seen["within" if within else "odd"] += 1

    follow()
    assert min(seen.values()) * FEWEST_ANSWERED >= sum(seen.values())


@settings(max_examples=60)
@given(st.integers(0, 3 * MAX_DELTA_POINTS), st.integers(-(2**40), 2**40), st.integers(0, 5))
def test_a_gap_too_long_for_one_answer_shows_no_point_twice(length, cursor, more):
    points = MetricSeries(lines(1, length + 1))
    assume(cursor >= 0)
    drawn = list(range(1, min(cursor, length) + 1))
    result = points.delta_since(cursor)
    drawn = result["steps"] if result["whole"] else drawn + result["steps"]
    points.add(lines(points.last + 1, points.last + 1 + more))
    drawn += points.delta_since(result["count"])["steps"]
    assert drawn == sorted(set(drawn))
    assert not drawn or drawn[-1] == length + more


# Checkpoints and sequences


SMALL = {
    "task": st.sampled_from(["reverse", "copy", "sort", "duplicate"]),
    "n_symbols": st.integers(10, 40),
    "max_length": st.integers(4, 9),
    "n_heads": st.sampled_from([1, 2, 4]),
    "d_ff": st.integers(1, 12),
    "norm_placement": st.sampled_from(["pre", "post"]),
    "norm_type": st.sampled_from(["layer", "rms"]),
    "activation": st.sampled_from(["relu", "gelu", "swiglu"]),
    "position_type": st.sampled_from(
        ["learned", "sinusoidal", "none", "rope", "alibi", "t5", "learned-from-end", "randomized"]
    ),
    "tie_output_embeddings": st.booleans(),
    "attention_bias": st.booleans(),
    "bias": st.booleans(),
    "learning_rate": st.floats(1e-5, 1e-2),
    "optimizer": st.sampled_from(["adam", "adamw", "sgd", "muon"]),
    "weight_averaging": st.booleans(),
    "lr_schedule": st.sampled_from(["constant", "cosine", "noam"]),
    "seed": st.integers(0, 2**31 - 1),
    "max_grad_norm": st.floats(0, 5),
    "label_smoothing": st.floats(0, 0.5),
}


@repeat_counts(15, 500)
def test_save_and_load_is_a_round_trip(tmp_path_factory, count):
    folder = tmp_path_factory.mktemp("saved")

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(st.fixed_dictionaries({}, optional=SMALL), st.integers(0, 2))
    def there_and_back(values, steps):
        config = RunConfig.from_flat(TINY_SETTINGS | {"max_steps": 50, "d_model": 8} | values)
        trainer = Trainer(config)
        metrics = [trainer.train_step() for _ in range(steps)]
        written = save_checkpoint(folder / "a", trainer, metrics)
        manifest, family = load_model(folder / "a")
        again, result = resume_trainer(folder / "a")
        assert manifest == written or manifest.seconds == round(written.seconds, 3)
        assert manifest.config == again.config == config
        for name, weight in trainer.eval_model.named_parameters():
            assert torch.equal(weight, dict(family.named_parameters())[name])
        before, after = trainer.state_dict(), again.state_dict()
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)
        save_checkpoint(folder / "b", again, result)
        for name in ("model.safetensors", "training.safetensors", "metrics.jsonl"):
            assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()

    there_and_back()


ODD_TEXTS = [
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
    answered = []

    @settings(max_examples=count)
    @given(
        st.one_of(
            st.text("0123456789 ,", max_size=12), st.text(max_size=40), st.sampled_from(ODD_TEXTS)
        )
    )
    def send(text):
        answer = view.predict(family, text)
        json.dumps(answer, allow_nan=False)
        answered.append("error" not in answer)
        if answered[-1]:
            assert answer["target"] == [*"".join(text.replace(",", " ").split())][::-1]
            # it has learned nothing
            assert set(answer["prediction"]) <= {*"0123456789", "PAD", "SOS"}
            assert answer["correct"] == (answer["prediction"] == answer["target"])
        else:
            assert 5 < len(answer["error"]) < 500

    send()
    assert sum(answered) * FEWEST_ANSWERED >= len(answered)
