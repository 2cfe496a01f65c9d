"""Who may have how many things at a time."""

import ast
import json

import pytest

from playground.common.env import EnvError
from playground.errors import UserError
from playground.jobs.admission import LIMITS, Admission, Client, limit
from tests.support.app_server import ROOT
from tests.support.command_runner import run_here

ADA, EVE = Client("10.0.0.1", "ada"), Client("10.0.0.1", "eve")


def others(n):
    return [Client(f"10.1.{number}.1", f"other {number}") for number in range(n)]


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_admits_as_many_as_its_number(name):
    admission = LIMITS[name]
    numbers = {admission.per_owner: [ADA], admission.of_address: [EVE], admission.total: others(1)}
    assert any(numbers)
    for number, clients in numbers.items():
        if number is None:
            continue
        present = clients * number if clients != others(1) else others(number)
        with pytest.raises(UserError, match=f"{number} {admission.nouns}, which is the maximum"):
            admission.admit(ADA, present)
    least = min(filter(None, (admission.per_owner, admission.of_address, admission.total)))
    admission.admit(ADA, [ADA] * (least - 1))


def test_the_tightest_limit_is_named():
    admission = Admission("runs", per_owner=2, total=8)
    assert admission.of_address == 4
    assert admission.exceeded(ADA, [ADA, ADA, *others(6)]) == "owner"
    assert admission.exceeded(ADA, [EVE] * 4) == "address"
    assert admission.exceeded(ADA, others(8)) == "total"
    # work without a client has the total only
    assert admission.exceeded(Client(), [Client()] * 7) == ""
    assert admission.exceeded(Client(), [Client()] * 8) == "total"


@pytest.mark.parametrize(
    ("address", "idle", "removed"),
    [
        ("c", "ab", "a"),  # the total is reached: the first idle one makes way
        ("b", "ab", "b"),  # the share of the address: only one of the same address does
        ("b", "a", None),
        ("c", "", None),
    ],
)
def test_an_idle_thing_makes_way(address, idle, removed):
    present, evicted = {name: Client(name) for name in "ab"}, []

    def remove(thing):
        evicted.append(thing)
        return 1

    def admit():
        Admission(per_address=1, total=2).admit_or_evict(Client(address), present, idle, remove)

    if removed is None:
        with pytest.raises(UserError, match="which is the maximum"):
            admit()
    else:
        admit()
    assert evicted == [removed] * (removed is not None)


def test_a_full_owner_evicts_nothing():
    with pytest.raises(UserError, match="you have 1 jobs"):
        Admission(per_owner=1, total=1).admit_or_evict(
            Client(owner="ada"), {"a": Client(owner="ada")}, "a", lambda thing: 1
        )


def test_what_ends_by_itself_is_requested_again_and_what_stays_is_not():
    for admission, is_retryable, end in (
        (Admission("runs", per_owner=0, remedy="delete some first"), False, "delete some first"),
        (Admission("jobs", per_owner=0), True, "cancel it, and try again"),
    ):
        with pytest.raises(UserError, match=end) as error:
            admission.admit(ADA, [])
        assert error.value.retryable is is_retryable


def test_a_variable_changes_the_numbers(monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "queued-runs.per-address=9, queued-runs.total=12,")
    changed = limit("queued-runs")
    assert (changed.per_owner, changed.of_address, changed.total) == (16, 9, 12)
    assert limit("uploads") == LIMITS["uploads"]
    document = json.loads(run_here("limits", "--json").stdout)
    assert document["limits"]["queued-runs"] == {"per-owner": 16, "per-address": 9, "total": 12}
    assert set(document["limits"]) == set(LIMITS)


@pytest.mark.parametrize(
    "text", ["runs", "runs.total", "runs.total=x", "runs.each=3", "no.total=1"]
)
def test_an_unknown_limit_is_rejected_with_what_is_accepted(monkeypatch, text):
    monkeypatch.setenv("PLAYGROUND_LIMITS", text)
    with pytest.raises(EnvError, match="limits"):
        limit("runs")


def test_the_command_prints_every_limit():
    printed = run_here("limits").stdout
    for name, admission in LIMITS.items():
        (line,) = (each for each in printed.splitlines() if each.split()[:1] == [name])
        assert line.endswith(admission.nouns)
    assert "PLAYGROUND_RUNS_TOTAL_MB" in printed


@pytest.mark.parametrize("name", ["submit", "admit", "evict"])
def test_one_definition_serves_all(name):
    definitions = [
        path.name
        for path in (ROOT / "playground").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
    assert len(definitions) == 1, definitions
