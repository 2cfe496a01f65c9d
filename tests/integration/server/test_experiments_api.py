"""The routes of the Lab tab."""

import asyncio
import base64
import contextlib
import dataclasses
import io
import json
import zipfile
from concurrent.futures import Future, InvalidStateError
from types import SimpleNamespace

import pytest

from playground.experiments import claims, replications
from playground.experiments.service import ExperimentService
from playground.server.experiments_api import ExperimentHandlers
from playground.server.replications_api import ReplicationHandlers
from playground.server.variable_settings import VARIABLE_SETTINGS
from playground.training.config import RunConfig
from tests.support.app_server import ROOT, wait_for
from tests.support.coroutines import run_in_thread

OWNER, OTHER = "o" * 32, "x" * 32
SMALL = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 16,
    "batch_size": 8,
    "max_length": 4,
    "eval_size": 32,
    "eval_every": 10,
    "max_steps": 20,
}


@pytest.fixture
def registry(registry, tmp_path):
    (tmp_path / "reverse").symlink_to(ROOT / "checkpoints" / "reverse")
    return registry


class Lab:
    """The handlers of the Lab tab."""

    def __init__(self, registry, service):
        self.experiments, self.registry = service, registry
        self.own = ExperimentHandlers(registry, service)
        self.replications = ReplicationHandlers(registry, service)
        self.outcome = self.replications.outcome

    def handlers(self):
        return self.own.handlers() | self.replications.handlers()


@pytest.fixture
def page(registry):
    service = ExperimentService(registry)
    service.scheduler.stop()  # it starts no runs
    return Lab(registry, service)


@pytest.fixture
def busy(registry):
    page = Lab(registry, ExperimentService(registry))
    yield page
    page.experiments.close()


def send(page, route, owner=OWNER, **what):
    response = run_in_thread(page.handlers()[route]({"owner": owner, **what}, None))
    json.dumps(response, allow_nan=False)
    return response


def form(*grid, base="", seeds="0, 1", kind="grid", name="", **more):
    return {
        "base": base,
        "grid": [list(pair) for pair in grid],
        "seeds": seeds,
        "kind": kind,
        "name": name,
        **more,
    }


def trained(registry, **settings):
    run = registry.start(RunConfig.from_flat(SMALL | settings), OWNER)
    wait_for(lambda: run.status == "done", description="the end of a run")
    return run


@pytest.mark.smoke
def test_an_experiment_preset_lists_its_runs_and_status(page):
    response = send(page, "experiments/presets")
    norm = next(each for each in response["presets"] if each["name"] == "norm")
    assert (norm["runs"], norm["varied"], norm["unavailable_reason"], norm["experiment"]) == (
        6,
        "norm_placement: pre, post",
        "",
        None,
    )
    assert norm["estimate"]["seconds"] > 0
    assert not norm["estimate"]["is_measured"]
    begun = send(page, "experiments/submit", question="norm")["experiment"]
    assert {
        each["name"]: each["experiment"]
        for each in send(page, "experiments/presets")["presets"]
        if each["experiment"]
    } == {"norm": begun}
    assert not any(
        each["experiment"] for each in send(page, "experiments/presets", owner=OTHER)["presets"]
    )
    assert send(page, "experiments/presets")["settings"] == VARIABLE_SETTINGS
    assert {"architecture", "task", "norm_placement", "cell"} <= {
        each["name"] for each in VARIABLE_SETTINGS
    }


def test_custom_experiment_keeps_run_settings_except_seed_and_varied(page, registry):
    run = trained(registry, seed=7, norm_placement="post")
    base = f"run:{run.id}"
    response = send(
        page,
        "experiments/plan",
        form=form(["norm_placement", "pre, post"], ["n_heads", "1,2"], base=base),
    )
    first = response["variants"][0]
    assert (response["runs"], first["label"], first["steps"]) == (
        8,
        "norm_placement pre, n_heads 1",
        20,
    )
    requested = send(
        page,
        "experiments/submit",
        form=form(["norm_placement", "pre, post"], ["max_steps", "30"], base=base, seeds="3"),
    )["experiment"]
    experiment = page.experiments.find(requested, OWNER)
    assert (experiment.name, dict(experiment.grid), experiment.seeds) == (
        "norm_placement",
        {"norm_placement": ["pre", "post"]},
        (3,),
    )
    assert experiment.base["max_steps"] == 30  # one value does not vary
    assert experiment.base["d_model"] == 16
    assert not {"seed", "norm_placement"} & set(experiment.base)
    assert (
        "not yours"
        in send(
            page,
            "experiments/plan",
            owner=OTHER,
            form=form(["norm_placement", "pre, post"], base=base),
        )["error"]
    )
    response = send(
        page, "experiments/plan", form=form(["n_heads", "1, 2"], base="checkpoint:reverse")
    )
    assert response["variants"][0]["parameters"] == 171_597


@pytest.mark.parametrize(
    ("wrong", "field", "message"),
    [
        (form(["norm_placement", "pre, up"]), "norm_placement", "choose one of pre, post"),
        (form(["norm_placement", ""]), "norm_placement", "no values"),
        (form(["norm_placement", "pre, pre"]), "norm_placement", "occurs twice"),
        (form(["d_model", "many"]), "d_model", "a whole number"),
        (form(["n_heads", "1, 3"]), "n_heads", "n_heads 3: "),
        (
            form(["norm_placement", "pre, post"], ["norm_placement", "pre"]),
            "norm_placement",
            "occurs twice",
        ),
        (form(["wings", "1, 2"]), "grid", "not a setting"),
        (form(), "grid", "one or two settings"),
        (form(["norm_placement", "pre, post"], seeds="one"), "seeds", "whole numbers"),
        (form(["norm_placement", "pre, post"], seeds=""), "seeds", "seeds are empty; write"),
        (
            form(["norm_placement", "pre, post"], seeds=",".join(map(str, range(40)))),
            "seeds",
            "the maximum of one experiment is 60",
        ),
        (form(["norm_placement", "pre, post"], kind="lengths", times=99), "times", "from 1 to 20"),
        (form(["norm_placement", "pre, post"], kind="lengths", n=""), "n", "n is empty; write"),
        (form(["norm_placement", "pre, post"], kind="odd"), "kind", "choose one of"),
        (form(["norm_placement", "pre, post"], base="run:x"), "base", "select another"),
        (form(["norm_placement", "pre, post"], name="x" * 200), "name", "characters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_values_are_reported_with_their_field_and_nothing_starts(
    page, wrong, field, message
):
    for route in ("experiments/plan", "experiments/submit"):
        response = send(page, route, form=wrong)
        assert message in response["error"]
        assert response["field"] == field
    assert send(page, "experiments/poll")["experiments"] == []


@pytest.mark.smoke
def test_only_its_owner_hears_of_an_experiment(page):
    requested = send(page, "experiments/submit", question="norm")["experiment"]
    mine = send(page, "experiments/poll", open=requested)
    assert [row["id"] for row in mine["experiments"]] == [requested]
    assert mine["open"]["results"]["results"]["summary"] == "No run has finished yet."
    assert send(page, "experiments/poll", owner=OTHER, open=requested) == {
        "experiments": [],
        "open": None,
    }
    for route, what in (
        ("experiments/action", {"action": "delete"}),
        ("experiments/csv", {}),
        ("experiments/figures", {}),
    ):
        assert "not yours" in send(page, route, owner=OTHER, experiment=requested, **what)["error"]
    assert send(page, "experiments/action", experiment=requested, action="delete") == {}
    assert send(page, "experiments/poll", open=requested) == {"experiments": [], "open": None}


def test_results_are_sent_again_only_after_a_change(page):
    requested = send(page, "experiments/submit", question="norm")["experiment"]
    response = send(page, "experiments/poll", open=requested)["open"]
    assert response["results"] is not None
    assert (
        send(page, "experiments/poll", open=requested, version=response["version"])["open"][
            "results"
        ]
        is None
    )
    assert (
        send(page, "experiments/poll", open=requested, version="older")["open"]["results"]
        == response["results"]
    )
    assert [line["status"] for line in response["planned_runs"]] == ["planned"] * 6


def test_a_length_experiment_runs_to_its_end_with_files_and_figures(busy, registry):
    run = trained(registry)
    expected = form(
        ["position_type", "learned, sinusoidal"],
        base=f"run:{run.id}",
        seeds="0",
        kind="lengths",
        times=2,
        n=20,
    )
    requested = send(busy, "experiments/submit", form=expected)["experiment"]
    wait_for(
        lambda: send(busy, "experiments/poll")["experiments"][0]["state"] == "done",
        90,
        "the experiment",
    )
    response = send(busy, "experiments/poll", open=requested)
    assert response["experiments"][0]["share"] == 1
    actual = response["open"]["results"]
    assert [row["untrained"] for row in actual["lengths"]["rows"]] == [
        {"source": [5, 8], "target": [5, 8]},
        None,
    ]
    for variant in actual["results"]["variants"]:
        assert variant["loss"]["steps"] == variant["curve"]["steps"] == [10, 20]
        points = registry.find(variant["seeds"][0]["run"].removeprefix("run:"), OWNER).load_points()
        assert variant["loss"]["median"] == pytest.approx(
            [sum(points.columns["loss"][at : at + 10]) / 10 for at in (0, 10)]
        )
    assert send(busy, "experiments/csv", experiment=requested)["csv"].startswith(
        "scheme,seed,length,"
    )
    with zipfile.ZipFile(
        io.BytesIO(base64.b64decode(send(busy, "experiments/figures", experiment=requested)["zip"]))
    ) as archive:
        names = {
            f"{figure}.{kind}"
            for figure in ("experiment", "answers-by-length", "lengths-heatmap")
            for kind in ("png", "svg", "pdf")
        }
        assert set(archive.namelist()) == names
    assert (
        "nothing to draw"
        in send(
            busy,
            "experiments/figures",
            experiment=send(busy, "experiments/submit", question="size")["experiment"],
        )["error"]
    )
    for row in send(busy, "experiments/poll")["experiments"]:
        send(busy, "experiments/action", experiment=row["id"], action="cancel")


def test_claim_lists_its_matching_run_and_gets_a_verdict(page, registry, monkeypatch):
    lengths = {"min_length": 6, "max_length": 6}
    small = dict(claims.CLAIMS["mingpt-sort"].settings) | SMALL | lengths
    monkeypatch.setitem(
        claims.CLAIMS,
        "mingpt-sort",
        dataclasses.replace(claims.CLAIMS["mingpt-sort"], settings=small),
    )

    def claim(owner=OWNER):
        return next(
            each
            for each in send(page, "replications/list", owner=owner)["claims"]
            if each["name"] == "mingpt-sort"
        )

    assert (claim()["state"], claim()["run"]) == ("none", None)
    assert claim()["command"] == "python -m playground published mingpt-sort --seed 0"
    assert send(page, "replications/outcome", name="mingpt-sort")["summary"] == "not run yet"
    begun = send(page, "replications/start", name="mingpt-sort")["run"]
    wait_for(lambda: claim()["state"] == "done", description="the claim's run")
    assert (claim()["run"], claim()["step"], claim(OTHER)["state"]) == (begun, 20, "none")
    response = send(page, "replications/outcome", name="mingpt-sort")
    assert response["passed"] is False  # after 20 steps
    assert "of the sequences, on " in response["measured_text"]
    monkeypatch.setattr(
        "playground.server.replications_api.evaluate_replication",
        lambda *_: pytest.fail("it was compared already"),
    )
    assert send(page, "replications/outcome", name="mingpt-sort") == response


def test_a_claim_with_an_experiment_shows_its_result(page):
    begun = send(page, "replications/start", name="length-order")["experiment"]
    response = next(
        each for each in send(page, "replications/list")["claims"] if each["name"] == "length-order"
    )
    assert (response["experiment"], response["run"], response["step"]) == (begun, None, 0)
    assert (
        "not every position encoding"
        in send(page, "replications/outcome", name="length-order")["summary"]
    )


def test_figures_that_fail_to_start_do_not_block_others(page, monkeypatch):
    monkeypatch.setattr(page.own._figure_queue.executor, "start", lambda job: False)
    monkeypatch.setattr(page.own, "_figure_data", lambda *_: {})
    for _ in range(2):
        assert "could not be started" in send(page, "experiments/figures")["error"]


@pytest.fixture
def measured(page, registry, monkeypatch):
    """Runs of two owners whose outcome needs a pending measurement; yields its futures."""
    small = (
        dict(claims.CLAIMS["annotated-copy"].settings) | SMALL | {"max_steps": 5, "min_length": 4}
    )
    monkeypatch.setitem(
        claims.CLAIMS,
        "annotated-copy",
        dataclasses.replace(claims.CLAIMS["annotated-copy"], settings=small),
    )
    for owner in (OWNER, OTHER):
        run = registry.start(replications.replication_config("annotated-copy"), owner)
        wait_for(lambda run=run: run.status == "done", description="the end of a run")
    futures = []

    def prover(*_, **__):
        futures.append(Future())
        return futures[-1]

    monkeypatch.setattr(registry.snapshots.slow_inspector, "request", prover)
    yield futures
    for future in futures:
        with contextlib.suppress(InvalidStateError):
            future.set_result({"loss": 0.5})


class Page:
    """The parts of a request that a route reads."""

    def __init__(self, address):
        self.client, self.headers, self.scope = (
            SimpleNamespace(host=address),
            {},
            {"path": "/playground/api/replications/outcome"},
        )
        self.connected = True

    async def receive(self):
        while self.connected:
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def is_disconnected(self):
        return not self.connected


def in_a_loop(coroutine):
    return run_in_thread(coroutine)


def test_a_verdict_that_waits_for_a_model_keeps_no_other_one_waiting(page, measured):
    async def both():
        slow = asyncio.ensure_future(
            page.outcome({"owner": OWNER, "name": "annotated-copy"}, Page("10.0.0.1"))
        )
        while not measured:
            await asyncio.sleep(0.01)
        quick = asyncio.ensure_future(
            page.outcome({"owner": OTHER, "name": "length-order"}, Page("10.0.0.2"))
        )
        finished, _ = await asyncio.wait({quick}, timeout=10)
        measured[0].set_result({"loss": 0.25})
        return finished, (await quick)["summary"], await slow

    finished, quick, slow = in_a_loop(both())
    assert (len(finished), quick) == (1, "not run yet")
    assert slow["measured"] == 0.25


def test_waiting_verdicts_are_bounded_in_total_and_per_client(page, measured):
    async def crowd():
        pending = [
            asyncio.ensure_future(
                page.outcome({"owner": OWNER, "name": "annotated-copy"}, Page("10.0.0.1"))
            )
            for _ in range(40)
        ]
        refused, _ = await asyncio.wait(pending, timeout=2)
        other = asyncio.ensure_future(
            page.outcome({"owner": OTHER, "name": "annotated-copy"}, Page("10.0.0.2"))
        )
        waiting = len(measured)
        for _ in range(500):
            if len(measured) > waiting or other.done():
                break
            await asyncio.sleep(0.01)
        accepted = not other.done() and len(measured) > waiting
        for future in measured:
            future.set_result({"loss": 0.25})
        while not all(each.done() for each in (*pending, other)):
            for future in measured:
                if not future.done():
                    future.set_result({"loss": 0.25})
            await asyncio.sleep(0.01)
        return waiting, [each.result() for each in refused], accepted, other.result()

    waiting, refused, accepted, other = in_a_loop(crowd())
    assert 1 <= waiting <= 4
    assert len(refused) == 40 - waiting
    assert all(each["retryable"] and "try again" in each["error"] for each in refused)
    assert accepted
    assert other["measured"] == 0.25
    # those who were refused get it later
    assert send(page, "replications/outcome", name="annotated-copy")["measured"] == 0.25


def test_measurements_stop_when_the_page_closes(page, measured):
    async def leave():
        page_of_owner = Page("10.0.0.1")
        requested = asyncio.ensure_future(
            page.outcome({"owner": OWNER, "name": "annotated-copy"}, page_of_owner)
        )
        while not measured:
            await asyncio.sleep(0.01)
        page_of_owner.connected = False
        for _ in range(500):
            if measured[0].cancelled():
                break
            await asyncio.sleep(0.01)
        cancelled = measured[0].cancelled()
        with contextlib.suppress(InvalidStateError):
            measured[0].set_result({"loss": 0.25})
        await requested
        return cancelled

    assert in_a_loop(leave())


def polled(page, open, known=None):
    """Return a poll, the run configurations that it built, and the JSON that it sorted."""
    counted = {"configs": 0, "sorted": 0}
    make, dumps = RunConfig.from_flat, json.dumps

    def from_flat(*arguments):
        counted["configs"] += 1
        return make(*arguments)

    def dumped(*arguments, **more):
        counted["sorted"] += bool(more.get("sort_keys"))
        return dumps(*arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunConfig, "from_flat", from_flat)
        patch.setattr(json, "dumps", dumped)
        response = send(page, "experiments/poll", open=open, version=known)
    return response, counted


@pytest.mark.parametrize("kind", ["grid", "lengths"])
def test_a_poll_of_an_unchanged_experiment_computes_nothing(page, registry, kind):
    trained(registry, max_steps=25, eval_every=5)  # its speed is known
    expected = form(
        ["n_heads", "1, 2"],
        base="",
        seeds="0, 1, 2",
        kind=kind,
        **({"times": 2, "n": 20} if kind == "lengths" else {}),
    )
    requested = send(page, "experiments/submit", form=expected)["experiment"]
    first, _ = polled(page, requested)
    again, counted = polled(page, requested, first["open"]["version"])
    assert counted == {"configs": 0, "sorted": 0}
    assert first["open"]["results"]
    assert again["open"]["results"] is None
    assert again["open"]["estimate"] == first["open"]["estimate"]

    run = trained(registry, seed=1)  # as if the experiment had trained it
    going = page.experiments.store.states[requested]
    going.runs["0/1"] = run.id
    changed, counted = polled(page, requested, first["open"]["version"])
    assert changed["open"]["version"] != first["open"]["version"]
    assert [
        each["done"] for each in changed["open"]["results"]["results"]["variants"][0]["seeds"]
    ] == [
        False,
        True,
        False,
    ]
    final, counted = polled(page, requested, changed["open"]["version"])
    assert (counted, final["open"]["results"]) == ({"configs": 0, "sorted": 0}, None)


HOSTILE = [
    None,
    3,
    [],
    {},
    {"owner": "short"},
    {"owner": {}},
    {"owner": OWNER},
    {"owner": OWNER, "question": ["norm_placement"]},
    {"owner": OWNER, "form": 3},
    {"owner": OWNER, "form": {"grid": "norm"}},
    {"owner": OWNER, "form": {"grid": [["norm_placement"]]}},
    {"owner": OWNER, "form": {"grid": [[{}, []]]}},
    {"owner": OWNER, "form": form(["norm_placement", "pre"], seeds=[0])},
    {"owner": OWNER, "form": form(["norm_placement", "x" * 30_000])},
    {"owner": OWNER, "form": form(["norm_placement", "pre"], base={"a": 1})},
    {"owner": OWNER, "form": form(["norm_placement", "pre"], kind="lengths", times=True)},
    {"owner": OWNER, "name": "../x", "action": ["delete"]},
    {"owner": OWNER, "experiment": ["x"], "action": "__init__", "name": 5},
]


@pytest.mark.parametrize("what", HOSTILE, ids=lambda what: repr(what)[:60])
def test_a_hostile_request_gets_an_error_message(page, what):
    for route in (
        "experiments/plan",
        "experiments/submit",
        "experiments/action",
        "experiments/csv",
        "experiments/figures",
        "replications/start",
        "replications/outcome",
    ):
        response = run_in_thread(page.handlers()[route](what, None))
        assert isinstance(response["error"], str), route
        assert 10 < len(response["error"]) < 600
    assert page.experiments.list_for_owner(OWNER) == []
