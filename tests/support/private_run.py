"""A shared instance with a run on a private dataset, and every request that may be sent to it."""

from __future__ import annotations

import io
import json
import random
import re
import shutil
import threading
import zipfile
from typing import get_args

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from playground.checkpoints.checkpoint import save_checkpoint
from playground.datasets.sources import read_text
from playground.datasets.storage import load_pairs, owned_datasets_dir, store
from playground.errors import UserError
from playground.experiments.service import ExperimentService
from playground.inspection.views import VIEWS
from playground.jobs.entry import last_message
from playground.jobs.executors import ProcessPerJob, ResidentProcess
from playground.jobs.progress import ProgressReporter
from playground.pretrained.benchmark.job import run_benchmark
from playground.pretrained.jobs import KINDS
from playground.reports.interactive_page import render_page
from playground.reports.report import render_report
from playground.runs.inspector_process import validate_checkpoint
from playground.runs.owner_keys import new_owner_key
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.runs.scheduler import RunScheduler
from playground.server.api import Endpoints
from playground.server.api_page import API_PAGE
from playground.server.app import build_handlers, launch_options
from playground.server.dataset_reader import read_dataset
from playground.server.jobs_api import RIGHTS_BY_KIND
from playground.server.rate_limit import LoadLimits
from playground.server.report_api import CARD_PATH
from playground.server.routes import ROUTE_PREFIX
from playground.server.runs_api import RunAction
from playground.server.static_files import static_route
from playground.server.weights_api import WEIGHTS_PATH
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from tests.support.app_server import wait_for
from tests.support.coroutines import run_in_thread
from tests.support.inspectors import InProcessInspector
from tests.support.response_types import route_problems

WORDS = "heron ibis kite lark merlin nutcracker osprey plover quail raven siskin tern"
DRAW = random.Random(7)
# Sources of three words, each with a target of six words that no model of two steps predicts.
ROWS = {
    " ".join(DRAW.sample(WORDS.split(), 3)): " ".join(DRAW.choices(WORDS.split(), k=6))
    for _ in range(400)
}
TEXT = "".join(f"{source}\t{target}\n" for source, target in ROWS.items())
SMALL = {"d_model": 8, "n_heads": 1, "n_layers": 1, "d_ff": 8, "batch_size": 8, "eval_size": 8}
SMALL |= {"max_steps": 2, "device": "cpu", "num_threads": 1}
UNKNOWN = "0" * 64  # the SHA-256 of a dataset that is not stored
OWNER, CONSENT, PRIVATE = "owner", "viewer with consent", "viewer without consent"


def run_here(started):
    """Return a replacement of `Executor.start`: the jobs that read a model run in this process."""

    def start(executor, job):
        started.append((job.kind, job.arguments))

        def run():
            reporter = ProgressReporter(lambda *message: executor.on_message(job, *message))
            functions = {
                "report": render_report,
                "page": render_page,
                "upload": read_dataset,
                "preview": read_dataset,
                "check": validate_checkpoint,
                "benchmark": lambda request: run_benchmark(request, reporter),
            }
            outcome = last_message(lambda: functions[job.kind](*job.arguments))
            executor.on_end(job, outcome, None)

        threading.Thread(target=run).start()
        return True

    return start


class Site:
    """A shared instance with a run on a private dataset, reached by HTTP and by its API."""

    def __init__(self, root, monkeypatch):
        self.root, self.started, self.owner = root, [], new_owner_key()
        self.answered = set()  # the routes that had a result, which has the declared type
        monkeypatch.setattr(RunScheduler, "schedule", lambda self: None)
        for executor in (ProcessPerJob, ResidentProcess):
            monkeypatch.setattr(executor, "start", run_here(self.started))
        monkeypatch.setattr("playground.server.dataset_reader.limit_memory_growth", lambda n: None)
        self.sha256 = store(read_text(TEXT))
        marker = owned_datasets_dir(owner_id(self.owner)) / self.sha256
        marker.parent.mkdir(parents=True)
        marker.touch()
        config = RunConfig.from_flat(SMALL | load_pairs(self.sha256).task_settings())
        trainer = Trainer(config)
        metrics = list(trainer)
        save_checkpoint(root / ".sent", trainer, metrics, trainer.evaluate(8))
        self.registry = Registry(root)
        self.registry.snapshots.inspector = InProcessInspector()
        self.registry.snapshots.slow_inspector = InProcessInspector()
        self.experiments = ExperimentService(self.registry)
        copy = shutil.copytree(root / ".sent", root / ".copy")
        self.run = self.registry.import_checkpoint(copy, self.owner, "my run")
        handlers = build_handlers(self.registry, self.experiments, public=True)
        load = LoadLimits(0, 0)  # no request is refused for its rate
        options = launch_options(self.registry, handlers, "0.0.0.0", None, load)
        self.routes = options["app_kwargs"]["routes"]
        self.endpoints = Endpoints(self.registry, handlers, load)
        self.client = TestClient(Starlette(routes=self.routes))

    def close(self):
        self.experiments.close()
        self.registry.shutdown()

    def post(self, route, **fields):
        response = self.client.post(ROUTE_PREFIX + route, json=fields).json()
        problems = route_problems(route, response)
        assert not problems, f"{route} {fields}: {problems[:3]}"
        if not response.get("error"):
            self.answered.add(route)
        return response

    def job_result(self, job, owner):
        """Return the last state of a job."""
        states = []

        def has_ended():
            states.append(self.post("jobs/poll", job=job, owner=owner, cursor=0))
            return states[-1].get("status") not in ("waiting", "working")

        wait_for(has_ended, 60)
        return states[-1]

    def call(self, name, **arguments):
        """Return the response of an endpoint, or its error."""
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "session": {}}
        request = Request(scope | {"client": ("10.0.0.9", 1)})
        try:
            return run_in_thread(self.endpoints.call(name, request, arguments))
        except (UserError, ValueError) as error:
            return {"error": str(error)}

    def allowed_rows(self):
        """Return the targets that the live view shows: of its samples and of its probe."""
        subject = {"subject": f"run:{self.run.id}", "owner": self.owner}
        self.post("runs/poll", **subject)
        snapshot = self.post("runs/poll", **subject)["snapshot"]
        probe = snapshot["probe"]["target"]
        probed = " ".join(token for token in probe if token != "EOS")
        return {" ".join(each["target"]) for each in snapshot["samples"]} | {probed}


FORM = {"name": "an experiment", "grid": [["norm_placement", "pre, post"]], "seeds": "0"}
FORM["kind"] = "grid"
SOURCE = next(iter(ROWS))
VIEW = {"text": SOURCE, "options": {"examples": True, "mode": "teacher-forced", "n": 400}}
# By route: the fields of each request besides subject and owner.
REQUESTS = {
    "session/open": [{"stored": ""}],
    "session/store": [{}],
    "form/check": [{"values": {}}],
    "form/fill": [{"settings": "{}"}],
    "form/start": [{"values": {"max_steps": 0}}],
    "runs/list": [{}],
    "runs/poll": [{}],
    "runs/snapshot": [{"step": 0}, {"step": 2}],
    "runs/predict": [{"text": text, "with_forward_pass": True} for text in [*ROWS][:20]]
    + [{"text": ""}, {"text": SOURCE, "step": 0}],
    "runs/model": [{}],
    "runs/curves": [{}],
    "runs/details": [{}],
    "runs/report": [{}],
    "runs/page": [{}],
    "runs/action": [
        {"action": action, "setting": "speed", "value": 5, "name": "n", "step": 1}
        | {"checkpoint": "0000002-kept", "viewers_may_use": True}
        for action in get_args(RunAction)
    ],
    "inspect/view": [VIEW | {"view": view} for view in (*VIEWS, "examples")]
    + [{"view": "attention", "text": text, "options": {"kind": "decoder"}} for text in [*ROWS][:9]],
    "jobs/submit": [
        {"kind": kind, "request": {"n": 40, "shots": 32, "models": [], "model": "gpt2"}}
        for kind in (*KINDS, "unknown")
    ]
    + [
        {"kind": kind, "request": {"repo": "eve/stolen", "token": "hf_x"}}
        for kind in RIGHTS_BY_KIND
        if kind not in KINDS
    ],
    "jobs/poll": [{"job": "x"}],
    "jobs/cancel": [{"job": "x"}],
    "experiments/presets": [{}],
    "experiments/plan": [{"form": FORM}],
    "experiments/places": [{"form": FORM}],
    "experiments/submit": [{"form": FORM}],
    "experiments/poll": [{}],
    "experiments/action": [{"action": "delete", "experiment": "x"}],
    "experiments/csv": [{"experiment": "x"}],
    "experiments/json": [{"experiment": "x"}],
    "damaged/list": [{}],
    "damaged/remove": [{"kind": "run", "name": "x"}],
    "replications/list": [{}],
    "replications/start": [{"name": "x"}],
    "replications/outcome": [{"name": "x"}],
    "hub/session": [{}],
    "lessons/catalog": [{}],
    "lessons/guess": [{"job": "x"}],
    "class/open": [{}],
    **{f"class/{name}": [{"code": "BCDFGH"}] for name in ("join", "guess", "poll", "close")},
    "datasets/action": [{"action": action} for action in ("list", "use", "show", "remove")],
}
OTHER_ROUTES = {  # that a test of its own sends, or that serve files of the program
    CARD_PATH,
    "/playground/checkpoints/{ticket}",
    "/playground/checkpoints",
    "/playground/datasets",
    WEIGHTS_PATH,
    static_route().path,
    "/playground/files/{path:path}",
    "/",
    API_PAGE.path,
}
CALLS = {  # by endpoint: its arguments besides the model and the owner
    "settings": None,
    "models": {},
    "start": {"settings": {"task": "dataset"}},
    "status": {"curve": True},
    "pause": {},
    "resume": {},
    "stop": {},
    "predict": {"sequence": SOURCE},
    "attention": {"sequence": SOURCE},
    "evaluate": {"n": 400},
    "compare": {"n": 40, "shots": 32, "wait": 0},
    "push": {"repo": "eve/stolen", "token": "hf_x", "wait": 0},
    "job": {"job": "x"},
    "cancel": {"job": "x"},
}

DESTRUCTIVE = ("delete", "remove", "undelete")  # actions that the owner does not take here


def send_all(site, subject, key, skipped=()):
    """Send every request about a model; return [what was sent, the response] for each."""
    results = []
    for route, requests in REQUESTS.items():
        for fields in requests:
            if fields.get("action") in skipped:
                continue
            named = {"subject": subject, "subjects": [subject], "owner": key}
            if "form" in fields:
                named["form"] = fields["form"] | {"base": subject}
            response = site.post(route, **fields | named)
            assert "too many requests" not in str(response), route
            results.append([f"{route} {fields} {subject}", response])
            if route == "jobs/submit" and "job" in response:
                results[-1][1] = site.job_result(response["job"], key)
            if "ticket" in response:
                answer = site.client.get(f"/playground/checkpoints/{response['ticket']}")
                results.append(["download", answer.status_code])
    query = {"subject": subject, "step": 2}
    answer = site.client.get(WEIGHTS_PATH, params=query, headers={"x-owner": key})
    is_error = answer.headers["content-type"] == "application/json"
    results.append([f"weights {subject}", answer.json() if is_error else answer.headers["etag"]])
    for name, arguments in CALLS.items():
        named = {"run" if name in ("pause", "resume", "stop") else "model": subject, "owner": key}
        if name == "settings":
            named = {}
        elif name in ("models", "start", "job", "cancel"):
            named = {"owner": key}
        response = site.call(name, **(arguments or {}) | named)
        results.append([f"endpoint {name} {arguments} {subject}", response])
    return results


def texts(value):
    """Yield the texts of a response; a list of tokens is also a text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from texts(each)
    elif isinstance(value, list | tuple):
        yield " ".join(each for each in value if isinstance(each, str))
        for each in value:
            yield from texts(each)


def secrets_in(site, sent, response):
    """Return what only the owner may receive in a response: hash, ids, and rows."""
    text = json.dumps(response)
    secrets = (site.sha256[:12], site.run.id, site.run.owner, site.owner, site.run.folder.name)
    ids = [secret for secret in secrets if secret in text and secret not in sent]
    parts = [*texts(response)]
    return ids + [target for target in ROWS.values() if any(target in each for each in parts)]


def hash_requests(site, key, sha256, archive):
    """Return the responses to requests that name a dataset by its SHA-256 only."""
    settings = {"task": "dataset", "dataset_sha256": sha256, "min_length": 3, "max_length": 3}
    texts = settings | {"dataset_symbols": WORDS, "max_target_length": 6}
    grid = [[name, str(value)] for name, value in texts.items()] + FORM["grid"]
    responses = [
        site.post("datasets/action", action=action, owner=key, sha256=sha256)
        for action in ("use", "show", "remove")
    ]
    responses += [
        site.post(f"experiments/{name}", owner=key, form=FORM | {"grid": grid})
        for name in ("plan", "submit")
    ]
    responses.append(site.call("start", owner=key, settings=settings | SMALL))
    headers = {"x-owner": key, "x-name": "uploaded"}
    answer = site.client.post("/playground/checkpoints", content=archive, headers=headers)
    responses.append(answer.json())
    responses += [
        site.post(f"form/{name}", owner=key, values=settings) for name in ("check", "start")
    ]
    return [re.sub(f"{sha256}|{sha256[:12]}", "HASH", str(each)) for each in responses]


def with_hash(archive_bytes, sha256):
    """Return a packed checkpoint whose settings name another dataset."""
    source, target = io.BytesIO(archive_bytes), io.BytesIO()
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(target, "w") as after:
        for name in before.namelist():
            data = before.read(name)
            if name == "config.json":
                content = json.loads(data)
                content["task"]["dataset_sha256"] = sha256
                data = json.dumps(content).encode()
            after.writestr(name, data)
    return target.getvalue()
