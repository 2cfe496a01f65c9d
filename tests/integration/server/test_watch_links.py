"""A watch link shows a run, and nothing else of its owner."""

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
from playground.jobs.executors import ProcessPerJob
from playground.reports.report import render_report
from playground.runs.model_ref import ModelRef, resolve_config
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.runs.scheduler import Scheduler
from playground.server.app import build_handlers
from playground.training.config import RunConfig
from playground.training.trainer import Trainer
from tests.support.coroutines import run_in_thread

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
    """A registry with queued runs, the owner's run on a dataset, and all handlers."""
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setattr(Scheduler, "schedule", lambda self: None)
    content = store(from_text(TEXT))
    config = RunConfig.from_flat(TINY | load_pairs(content).task_settings())
    trainer = Trainer(config)
    metrics = list(trainer)
    save_checkpoint(tmp_path / ".sent", trainer, metrics, trainer.evaluate(8))
    registry, owner = Registry(tmp_path), new_owner_key()
    laboratory = ExperimentService(registry)
    run = registry.import_checkpoint(
        shutil.copytree(tmp_path / ".sent", tmp_path / ".copy"), owner, "mine"
    )
    yield registry, run, owner, content, build_handlers(registry, laboratory, public=True)
    laboratory.close()
    registry.shutdown()


def request():
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


FORM = {"name": "theirs", "grid": [["norm_placement", "pre, post"]], "seeds": "0", "kind": "grid"}
KINDS = [  # fields of requests beside the subject; each route reads its own
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
    registry, run, owner, content, routes = shared
    viewer, subject = new_owner_key(), f"watch:{run.share_id}"

    def start_here(executor, job):
        """Start a report in this process, and no other job.

        A fork server that an earlier test started has another folder of datasets.
        """
        if job.kind != "report":
            return False
        response = ("result", render_report(*job.arguments))
        threading.Thread(target=executor.on_end, args=(job, response, None)).start()
        return True

    monkeypatch.setattr(ProcessPerJob, "start", start_here)

    async def walk():
        result = {}
        for name, answerer in routes.items():
            for kind in KINDS:
                what = {
                    "subject": subject,
                    "subjects": [subject],
                    "base": subject,
                    "owner": viewer,
                    "form": FORM | {"base": subject},
                }
                answer = await asyncio.wait_for(answerer(what | kind, request()), 120)
                result[name] = result.get(name, "") + json.dumps(answer)
        return result

    result = run_in_thread(walk())
    assert "Settings" in result["runs/report"], result["runs/report"]  # it was written
    assert '"dataset"' in result["runs/details"]  # the task's name is no secret
    for name, answer in result.items():
        for secret in (content, owner, run.owner, run.id):
            assert secret not in answer, f"{name} reveals {secret!r} to a viewer: {answer[:300]}"
    assert [each.config.task.task for each in registry.list_for_owner(viewer)] == []


def test_only_its_owner_may_train_with_the_settings_of_a_run_on_rows(shared):
    registry, run, owner, content, _ = shared
    assert (
        resolve_config(registry, ModelRef(subject=f"run:{run.id}", owner=owner)).task.dataset_sha256
        == content
    )
    with pytest.raises(ValueError, match="only its owner may train on it"):
        resolve_config(registry, ModelRef(subject=f"watch:{run.share_id}", owner=new_owner_key()))
