"""A watch link shows a run and reveals nothing that only its owner may use."""

import asyncio
import json
import shutil
import threading

import pytest
from starlette.requests import Request

from playground.checkpoints.checkpoint import save_checkpoint
from playground.datasets.sources import from_text
from playground.datasets.storage import load_pairs, store
from playground.experiments.service import ExperimentService
from playground.jobs.executors import ProcessPerJob, ResidentProcess
from playground.reports.report import render_report
from playground.runs.model_ref import ModelRef, resolve_config
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.runs.scheduler import Scheduler
from playground.server.app import build_handlers
from playground.training.config import RunConfig
from playground.training.trainer import Trainer
from tests.support.coroutines import run_in_thread
from tests.support.inspectors import InProcessInspector

TEXT = "".join(f"{a} {b}\t{b} {a}\n" for a in "abcdef" for b in "abcdef")
TINY = {
    "d_model": 8,
    "n_heads": 1,
    "n_layers": 1,
    "d_ff": 8,
    "batch_size": 8,
    "eval_size": 8,
    "max_steps": 2,
    "device": "cpu",
    "num_threads": 1,
}


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """Return a registry without training, a run on an owner's dataset, and all handlers."""
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setattr(Scheduler, "schedule", lambda self: None)
    content = store(from_text(TEXT))
    config = RunConfig.from_flat(TINY | load_pairs(content).task_settings())
    trainer = Trainer(config)
    metrics = list(trainer)
    save_checkpoint(tmp_path / ".sent", trainer, metrics, trainer.evaluate(8))
    registry, owner = Registry(tmp_path), new_owner_key()
    registry.snapshots.inspector = registry.snapshots.slow_inspector = InProcessInspector()
    monkeypatch.setattr(ResidentProcess, "start", lambda executor, job: True)
    experiments = ExperimentService(registry)
    run = registry.import_checkpoint(
        shutil.copytree(tmp_path / ".sent", tmp_path / ".copy"), owner, "my run"
    )
    yield registry, run, owner, content, build_handlers(registry, experiments, public=True)
    experiments.close()
    registry.shutdown()


def fake_request():
    return Request(
        {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": [],
            "client": ("10.0.0.9", 1),
            "session": {},
        }
    )


FORM = {
    "name": "an experiment",
    "grid": [["norm_placement", "pre, post"]],
    "seeds": "0",
    "kind": "grid",
}
KINDS = [  # request fields besides the subject; each route reads its own
    {
        "action": "download",
        "text": "a b",
        "view": "attention",
        "kind": "benchmark",
        "request": {"n": 4, "models": []},
        "n_points": 0,
        "series_id": -1,
    },
    {
        "action": "rerun",
        "text": "a b",
        "view": "steps",
        "architectures": ["transformer"],
        "kind": "finetune",
    },
    {
        "action": "branch",
        "text": "a b",
        "view": "parts",
        "step": 1,
        "kind": "push",
        "repo": "eve/stolen",
        "token": "hf_x",
    },
    {"action": "list", "view": "heads", "text": "a b", "kind": "attention"},
]


@pytest.mark.smoke
def test_no_route_reveals_the_owners_dataset_or_key_to_a_viewer(shared, monkeypatch):
    registry, run, owner, content, handlers = shared
    viewer, subject = new_owner_key(), f"watch:{run.share_id}"

    def start_in_this_process(executor, job):
        """Run reports in this process and no other job.

        The fork server of an earlier test uses another folder of datasets.
        """
        if job.kind != "report":
            return False
        response = ("result", render_report(*job.arguments))
        threading.Thread(target=executor.on_end, args=(job, response, None)).start()
        return True

    monkeypatch.setattr(ProcessPerJob, "start", start_in_this_process)

    async def request_all():
        responses = {}
        for name, handler in handlers.items():
            for kind in KINDS:
                fields = {
                    "subject": subject,
                    "subjects": [subject],
                    "base": subject,
                    "owner": viewer,
                    "form": FORM | {"base": subject},
                }
                response = await asyncio.wait_for(handler(fields | kind, fake_request()), 120)
                responses[name] = responses.get(name, "") + json.dumps(response)
        return responses

    responses = run_in_thread(request_all())
    assert "Settings" in responses["runs/report"], responses[
        "runs/report"
    ]  # the report was rendered
    assert '"dataset"' in responses["runs/details"]  # the name of the task is public
    for name, response in responses.items():
        for secret in (content, owner, run.owner, run.id):
            assert secret not in response, (
                f"{name} reveals {secret!r} to a viewer: {response[:300]}"
            )
    assert [run.config.task.task for run in registry.list_for_owner(viewer)] == []


def test_only_its_owner_trains_on_the_dataset_of_a_run(shared):
    registry, run, owner, sha256, _ = shared
    assert (
        resolve_config(registry, ModelRef(subject=f"run:{run.id}", owner=owner)).task.dataset_sha256
        == sha256
    )
    with pytest.raises(ValueError, match="only its owner may train on it"):
        resolve_config(registry, ModelRef(subject=f"watch:{run.share_id}", owner=new_owner_key()))
