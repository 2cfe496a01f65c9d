"""The routes of experiments; nothing trains in another process."""

import asyncio
import json
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from playground.checkpoints.checkpoint import save_checkpoint
from playground.experiments.replications import CLAIMS
from playground.experiments.service import ExperimentService
from playground.experiments.spec import ExperimentSpec
from playground.runs.registry import Registry
from playground.server.experiments_api import ExperimentHandlers
from playground.server.replications_api import ReplicationHandlers
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT
from tests.support.coroutines import run_in_thread, until
from tests.support.small_runs import SMALL_SETTINGS

OWNER, OTHER = "o" * 32, "x" * 32
SMALL = SMALL_SETTINGS | {"max_length": 4, "eval_every": 10, "max_steps": 20}


@pytest.fixture
def registry(tmp_path):
    """A registry that starts no run."""
    (tmp_path / "reverse").symlink_to(ROOT / "checkpoints" / "reverse")
    registry = Registry(tmp_path)
    registry.scheduler.schedule = lambda: None
    yield registry
    registry.shutdown()


@pytest.fixture
def lab(registry):
    """The experiments of a server, and their handlers."""
    service = ExperimentService(registry)
    service.runner.stop()  # start no runs
    replications = ReplicationHandlers(registry, service)
    handlers = ExperimentHandlers(registry, service).handlers() | replications.handlers()
    return SimpleNamespace(experiments=service, handlers=handlers, outcome=replications.outcome)


def send(lab, route, owner=OWNER, **fields):
    response = run_in_thread(lab.handlers[route]({"owner": owner, **fields}, FakeRequest()))
    json.dumps(response, allow_nan=False)
    return response


def form(*grid, seeds="0, 1", kind="grid", **options):
    return {"grid": [list(pair) for pair in grid], "seeds": seeds, "kind": kind} | options


def trained_run(registry, owner=OWNER, **settings):
    """Train a checkpoint in this process, and import it as a finished run."""
    trainer = Trainer(RunConfig.from_flat(SMALL | settings))
    metrics, folder = list(trainer), registry.root / ".sent"
    save_checkpoint(folder, trainer, metrics, trainer.evaluate(32))
    return registry.import_checkpoint(folder, owner, "my run")


def test_an_experiment_preset_lists_its_runs_and_status(lab):
    def presets(owner=OWNER):
        return {each["name"]: each for each in send(lab, "experiments/presets", owner)["presets"]}

    norm = presets()["norm"]
    assert (norm["runs"], norm["varied"]) == (10, "norm_placement: pre, post")
    verdicts = {each["verdict"] for each in presets().values()}
    assert "These seeds show no difference between the best two." in verdicts
    assert "0.0005 needed 2.5 times as many steps as 0.006." in verdicts
    assert all(each.count(" ") <= 10 for each in verdicts)
    assert norm["estimate"]["seconds"] > 0
    assert not norm["estimate"]["is_measured"]
    experiment = send(lab, "experiments/submit", question="norm")["experiment"]
    for owner, own in ((OWNER, {"norm": experiment}), (OTHER, {})):
        listed = {name: each["experiment"] for name, each in presets(owner).items()}
        assert {name: each for name, each in listed.items() if each} == own
    names = {entry["name"] for entry in send(lab, "experiments/presets")["settings"]}
    assert {"architecture", "task", "norm_placement", "cell"} <= names


def test_custom_experiment_keeps_run_settings_except_seed_and_varied(lab, registry):
    run, norm = (
        trained_run(registry, seed=7, norm_placement="post"),
        ["norm_placement", "pre, post"],
    )
    base = f"run:{run.id}"
    plan = send(lab, "experiments/plan", form=form(norm, ["n_heads", "1,2"], base=base))
    first = plan["variants"][0]
    assert (plan["runs"], first["steps"]) == (8, 20)
    assert first["label"] == "norm_placement pre, n_heads 1"
    custom = form(norm, ["max_steps", "30"], base=base, seeds="3")
    experiment_id = send(lab, "experiments/submit", form=custom)["experiment"]
    experiment = lab.experiments.store.find(experiment_id, OWNER)
    assert (experiment.name, experiment.seeds) == ("Norm placement", (3,))
    assert dict(experiment.grid) == {"norm_placement": ["pre", "post"]}
    assert experiment.base["max_steps"] == 30  # a single value is no variable
    assert experiment.base["d_model"] == 16
    assert not {"seed", "norm_placement"} & set(experiment.base)
    assert "not yours" in send(lab, "experiments/plan", OTHER, form=custom)["error"]
    of_checkpoint = form(["n_heads", "1, 2"], base="checkpoint:reverse")
    plan = send(lab, "experiments/plan", form=of_checkpoint)
    assert plan["variants"][0]["parameters"] == 171_597


@pytest.mark.parametrize(
    ("invalid_form", "field", "message"),
    [
        (form(["norm_placement", "pre, up"]), "norm_placement", "choose one of pre, post"),
        (form(["wings", "1, 2"]), "grid", "not a setting"),
        (form(), "grid", "1 to 8 settings"),
        (form(["norm_placement", "pre, post"], seeds="one"), "seeds", "whole numbers"),
        (form(["norm_placement", "pre, post"], kind="lengths", n=""), "n", "n is empty; write"),
        (form(["norm_placement", "pre, post"], base="run:x"), "base", "select another"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_values_are_reported_with_their_field_and_nothing_starts(
    lab, invalid_form, field, message
):
    for route in ("experiments/plan", "experiments/submit"):
        response = send(lab, route, form=invalid_form)
        assert message in response["error"]
        assert response["field"] == field
    assert send(lab, "experiments/poll")["experiments"] == []


def test_experiment_is_visible_to_its_owner_only(lab):
    experiment = send(lab, "experiments/submit", question="norm")["experiment"]
    response = send(lab, "experiments/poll", open=experiment)
    assert [row["id"] for row in response["experiments"]] == [experiment]
    assert response["open"]["results"]["results"]["summary"] == "No run has finished yet."
    nothing = {"experiments": [], "open": None}
    assert send(lab, "experiments/poll", OTHER, open=experiment) == nothing
    text = send(lab, "experiments/csv", experiment=experiment)["csv"]
    assert text.startswith("norm_placement,")
    delete = {"experiment": experiment, "action": "delete"}
    for name in ("action", "csv", "json"):
        assert "not yours" in send(lab, f"experiments/{name}", OTHER, **delete)["error"]
    assert send(lab, "experiments/action", **delete) == {}
    assert send(lab, "experiments/poll", open=experiment) == nothing


def test_a_large_experiment_sends_lines_and_runs_of_few_variants(lab, monkeypatch):
    monkeypatch.setattr("playground.server.experiments_api.MAX_ROWS", 14)
    monkeypatch.setattr("playground.server.experiments_api.MAX_LISTED_RUNS", 20)
    spec = {"name": "many", "seeds": [0, 1], "samples": 15}
    spec |= {"grid": {"learning_rate": {"low": 1e-4, "high": 1e-2}}}
    experiment = lab.experiments.start(spec, OWNER)

    def poll(**more):
        return send(lab, "experiments/poll", open=experiment.id, **more)["open"]

    answer = poll()
    results = answer["results"]["results"]
    assert (len(answer["planned_runs"]), answer["runs"]) == (20, 30)
    assert (len(results["variants"]), results["n_variants"]) == (14, 15)
    drawn = [each["label"] for each in results["variants"] if each["seeds"]]
    assert len(drawn) == 5
    assert drawn == results["drawn"]
    assert poll(version=answer["version"], drawn=drawn[::-1])["results"] is None
    fewer = poll(version=answer["version"], drawn=drawn[:2])["results"]["results"]
    assert [len(each["seeds"]) for each in fewer["variants"] if each["seeds"]] == [2, 2]
    parts = lab.experiments.to_json(experiment, OWNER)
    variants = json.loads("".join(parts))["results"]["variants"]
    assert [len(each["seeds"]) for each in variants] == [2] * 15


def change_claim(monkeypatch, name, **settings):
    """Make the experiment of a claim small, and return the settings of its run."""
    claim = CLAIMS[name]
    base = {**claim.experiment.base, **SMALL, **settings}
    spec = ExperimentSpec(**claim.experiment.model_dump() | {"base": base})
    monkeypatch.setitem(CLAIMS, name, claim.model_copy(update={"experiment": spec}))
    return spec.variants[0].settings


def finish_replication(lab, registry, name, settings, owner=OWNER):
    """Start the experiment of a claim and train its run, as if the experiment had done so."""
    experiment = send(lab, "replications/start", owner=owner, name=name)["experiment"]
    run = trained_run(registry, owner, **settings)
    lab.experiments.store.states[experiment].runs["0/0"] = run.id
    return experiment


def claim_of(lab, name, owner=OWNER):
    claims = send(lab, "replications/list", owner)["claims"]
    return next(each for each in claims if each["name"] == name)


def test_claim_lists_its_experiment_and_gets_a_verdict(lab, registry, monkeypatch):
    name = "mingpt-sort"
    settings = change_claim(monkeypatch, name, min_length=6, max_length=6)
    claim = claim_of(lab, name)
    assert (claim["state"], claim["experiment"]) == ("none", None)
    assert claim["command"] == "python -m benchmarks published --only mingpt-sort"
    assert claim["settings"]["architecture"] == ["decoder-only"]
    assert send(lab, "replications/outcome", name=name)["summary"] == "not run yet"
    experiment = finish_replication(lab, registry, name, settings)
    claim = claim_of(lab, name)
    assert (claim["experiment"], claim["state"], claim["step"]) == (experiment, "done", 20)
    assert claim_of(lab, name, OTHER)["state"] == "none"
    response = send(lab, "replications/outcome", name=name)
    assert response["passed"] is False  # after 20 steps
    assert "of the sequences, on " in response["measured_text"]


def test_a_claim_with_an_experiment_shows_its_result(lab):
    experiment = send(lab, "replications/start", name="length-order")["experiment"]
    claim = claim_of(lab, "length-order")
    assert (claim["experiment"], claim["step"]) == (experiment, 0)
    summary = send(lab, "replications/outcome", name="length-order")["summary"]
    assert "not every position encoding" in summary


@pytest.fixture
def pending_evaluations(lab, registry, monkeypatch):
    """Finish a replication; yield the pending futures of its loss evaluations."""
    settings = change_claim(monkeypatch, "annotated-copy", max_steps=5, min_length=4)
    finish_replication(lab, registry, "annotated-copy", settings)
    futures = []

    def request_evaluation(*_, **__):
        futures.append(Future())
        return futures[-1]

    monkeypatch.setattr(registry.snapshots.slow_inspector, "request", request_evaluation)
    return futures


class FakeRequest:
    """Provide what a route reads of a request; `leave` closes its connection."""

    def __init__(self):
        self.client, self.headers = SimpleNamespace(host="10.0.0.1"), {}
        self.state = SimpleNamespace()
        self.scope = {"path": "/playground/api/replications/outcome"}
        self.leave = asyncio.Event()

    async def receive(self):
        await self.leave.wait()
        return {"type": "http.disconnect"}


ANNOTATED = {"owner": OWNER, "name": "annotated-copy"}


def test_the_loss_of_a_model_is_measured_once(lab, pending_evaluations):
    async def answer():
        response = asyncio.ensure_future(lab.outcome(ANNOTATED, FakeRequest()))
        await until(lambda: pending_evaluations)
        pending_evaluations[0].set_result({"loss": 0.25})
        return await response

    assert run_in_thread(asyncio.wait_for(answer(), 60))["measured"] == 0.25
    assert send(lab, "replications/outcome", **ANNOTATED)["measured"] == 0.25
    assert len(pending_evaluations) == 1


def test_measurements_stop_when_the_page_closes(lab, pending_evaluations):
    async def disconnect():
        request = FakeRequest()
        task = asyncio.ensure_future(lab.outcome(ANNOTATED, request))
        await until(lambda: pending_evaluations)
        request.leave.set()
        await task
        return pending_evaluations[0].cancelled()

    assert run_in_thread(asyncio.wait_for(disconnect(), 60))


def poll_and_count(lab, open, known=None):
    """Poll; return the response and the numbers of configs built and JSON objects sorted."""
    counts = {"configs": 0, "sorted": 0}
    original_from_flat, original_dumps = RunConfig.from_flat, json.dumps

    def count_configs(*arguments):
        counts["configs"] += 1
        return original_from_flat(*arguments)

    def count_dumps(*arguments, **options):
        counts["sorted"] += bool(options.get("sort_keys"))
        return original_dumps(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunConfig, "from_flat", count_configs)
        patch.setattr(json, "dumps", count_dumps)
        response = send(lab, "experiments/poll", open=open, version=known)
    return response, counts


@pytest.mark.parametrize(
    ("kind", "options"), [("grid", {}), ("lengths", {"times": 2, "n": 20})], ids=["grid", "lengths"]
)
def test_a_poll_of_an_unchanged_experiment_computes_nothing(lab, registry, kind, options):
    trained_run(registry)  # its speed is measured
    new, nothing = form(["n_heads", "1, 2"], seeds="0, 1, 2", kind=kind, **options), (0, 0)
    experiment_id = send(lab, "experiments/submit", form=new)["experiment"]
    first = poll_and_count(lab, experiment_id)[0]["open"]
    second, counts = poll_and_count(lab, experiment_id, first["version"])
    assert tuple(counts.values()) == nothing
    assert first["results"]
    assert {line["status"] for line in first["planned_runs"]} == {"planned"}
    assert second["open"]["results"] is None
    assert second["open"]["estimate"] == first["estimate"]

    run = trained_run(registry, seed=1)  # as if the experiment had trained it
    lab.experiments.store.states[experiment_id].runs["0/1"] = run.id
    changed = poll_and_count(lab, experiment_id, first["version"])[0]["open"]
    assert changed["version"] != first["version"]
    seeds = changed["results"]["results"]["variants"][0]["seeds"]
    assert [each["done"] for each in seeds] == [False, True, False]
    final, counts = poll_and_count(lab, experiment_id, changed["version"])
    assert (tuple(counts.values()), final["open"]["results"]) == (nothing, None)


@pytest.mark.parametrize("lookup", ["find", "list_for_owner"])
def test_an_experiment_deleted_at_any_moment_gets_an_answer(lab, monkeypatch, lookup):
    """The lookup of each route is followed by the deletion in another tab."""
    store, look_up = lab.experiments.store, getattr(lab.experiments.store, lookup)
    deleted = []

    def delete_after_lookup(*arguments):
        result = look_up(*arguments)
        for state in list(store.states.values()):
            deleted.append(state.experiment.id)
            store.remove(state.experiment)
        return result

    for route, fields in (
        ("experiments/poll", {}),
        *(
            ("experiments/action", {"action": action})
            for action in ("pause", "cancel", "resume", "delete")
        ),
        ("experiments/csv", {}),
        ("experiments/presets", {}),
        ("replications/list", {}),
        ("replications/outcome", {"name": "length-order"}),
    ):
        experiment = send(lab, "experiments/submit", question="norm")["experiment"]
        send(lab, "replications/start", name="length-order")
        with monkeypatch.context() as patch:
            patch.setattr(store, lookup, delete_after_lookup)
            response = send(lab, route, experiment=experiment, open=experiment, **fields)
        assert "KeyError" not in response.get("error", "")
        assert response.get("open") is None
        for each in list(store.states.values()):
            store.remove(each.experiment)
        assert list(store.folder.glob("*.json")) == []
    assert deleted
