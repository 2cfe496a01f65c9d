"""The API for programs: a client of a shared instance."""

import html
import itertools
import json
import re
import subprocess
import sys
import urllib.request

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import ROOT, AppServer, wait_for
from tests.support.coroutines import run_in_thread
from tests.support.small_runs import TINY_SETTINGS

ENDPOINTS = (
    *("settings", "models", "start", "status", "pause", "resume", "stop", "predict", "attention"),
    *("evaluate", "compare", "push", "job", "cancel"),
)
REVERSE = "checkpoint:reverse-one-head"
SMALL = TINY_SETTINGS | {"max_steps": 100_000, "min_length": 1, "max_length": 4}


@pytest.fixture(scope="module")
def hub(served_hub):
    return served_hub


@pytest.fixture(scope="module")
def app(hub, tmp_path_factory):
    """Start a public server with a token of its owner that no user may use."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "home").mkdir()
    environment = hub.environment(
        folder / "home", token=hub.OWNER, HF_HUB_DISABLE_IMPLICIT_TOKEN="0"
    )
    server = AppServer(
        folder,
        **environment,
        GRADIO_SERVER_NAME="0.0.0.0",
        PLAYGROUND_ADDRESS_MS="0",
        PLAYGROUND_API_PROXIES="1",
    )
    yield server
    server.stop()


@pytest.fixture(scope="module")
def call_api(app):
    """Call an endpoint with the Gradio client."""
    client = Client(app.url, verbose=False)
    yield lambda endpoint, **values: client.predict(**values, api_name=f"/{endpoint}")
    client.close()


@pytest.fixture(scope="module")
def run(call_api):
    """Start a run through the API; return the response of `start`."""
    return call_api("start", settings=SMALL, preset="fast", name="started by a program")


@pytest.fixture(scope="module")
def own_model(call_api, run):
    wait_for(
        lambda: call_api("status", model=run["run"], owner=run["owner"])["step"] > 0,
        60,
        "the first step",
    )
    return {"model": run["run"], "owner": run["owner"]}


def test_settings_lists_tasks_presets_and_architectures(call_api):
    listed = call_api("settings")
    assert set(listed) == {"tasks", "presets", "architectures", "settings"}
    assert "recurrent" in listed["architectures"]


def test_every_endpoint_has_a_description_and_types(app):
    result = json.loads(app.get("/gradio_api/info")[1])
    # no endpoint of the page itself is listed
    assert tuple(result["named_endpoints"]) == tuple(f"/{name}" for name in ENDPOINTS)
    assert result["unnamed_endpoints"] == {}
    for name, endpoint in result["named_endpoints"].items():
        assert endpoint["description"], name
        assert endpoint["returns"][0]["type"]["type"] == "object", name
        for parameter in endpoint["parameters"]:
            assert parameter["type"], f"{name} {parameter}"


@pytest.mark.smoke
def test_a_run_is_started_controlled_and_evaluated(call_api, run, own_model):
    owned_run = {"run": run["run"], "owner": run["owner"]}
    assert call_api("pause", **owned_run)["status"] == "paused"
    paused = call_api("status", **own_model, curve=True)
    assert (paused["name"], paused["steps"]) == ("started by a program", SMALL["max_steps"])
    assert len(paused["curve"]["steps"]) == len(paused["curve"]["loss"]) == paused["step"]
    assert call_api("status", **own_model)["step"] == paused["step"]
    assert paused["queue_position"] is None
    # it may wait for a run of another test
    assert call_api("resume", **owned_run)["status"] in ("training", "waiting")
    wait_for(
        lambda: call_api("status", **own_model)["step"] > paused["step"],
        60,
        "a step after resuming",
    )
    result = call_api("predict", **own_model, sequence="3 1")
    assert result["target"] == ["1", "3"]
    assert result["correct"] == (result["prediction"] == result["target"])
    assert "forward_pass" not in result
    scores = call_api("evaluate", **own_model, n=40)
    assert scores["n"] == sum(line["n"] for line in scores["by_length"]) > 10
    assert scores["interval"][0] <= scores["exact_match"] <= scores["interval"][1]
    assert call_api("stop", **owned_run)["status"] == "stopped"
    assert call_api("predict", **own_model, sequence="3 1", step=0)["step"] < paused["step"]
    assert call_api("models", owner=run["owner"])["runs"][0]["model"] == run["run"]


def test_attention_is_returned_by_head_and_every_row_sums_to_one(call_api):
    result = call_api("attention", model="checkpoint:reverse", sequence="3 1 4")
    assert (result["rows"], result["columns"]) == (["4", "1", "3", "EOS"], ["3", "1", "4", "EOS"])
    assert (result["layers"], result["heads"]) == ([0, 1], [0, 1, 2, 3])
    assert result["prediction"] == result["target"] == ["4", "1", "3", "EOS"]
    assert all(
        abs(sum(row) - 1) < 0.01 for layer in result["weights"] for head in layer for row in head
    )
    one_head = call_api("attention", model="checkpoint:reverse", sequence="3 1 4", layer=1, head=2)
    assert one_head["weights"] == [[result["weights"][1][2]]]
    self_attention = call_api(
        "attention", model="checkpoint:reverse", sequence="3 1 4", kind="decoder", layer=0, head=0
    )["weights"][0][0]
    # no query attends to later positions
    assert all(weight == 0 for i, row in enumerate(self_attention) for weight in row[i + 1 :])


def test_unknown_owner_key_is_rejected_and_watch_link_is_read_only(call_api, run, own_model):
    foreign_models = itertools.cycle(
        [
            {"model": run["run"], "owner": new_owner_key()},
            {"model": run["run"]},
            {"model": "watch:" + run["run"]},
        ]
    )
    for name, arguments in (
        ("status", {}),
        ("predict", {"sequence": "1"}),
        ("attention", {"sequence": "1"}),
        ("evaluate", {}),
        ("compare", {}),
        ("push", {"repo": "a/b", "token": "hf_x"}),
    ):
        with pytest.raises(AppError, match="there is no model"):
            call_api(name, **next(foreign_models), **arguments)
    for name, credentials in (
        ("pause", {"run": run["run"], "owner": new_owner_key()}),
        ("resume", {"run": run["run"]}),
        ("stop", {"run": run["watch"], "owner": run["owner"]}),
    ):
        with pytest.raises(AppError, match=r"there is no model|not yours"):
            call_api(name, **credentials)
    assert call_api("models", owner=new_owner_key())["runs"] == call_api("models")["runs"] == []
    assert call_api("predict", model=run["watch"], sequence="3 1")["target"] == ["1", "3"]
    with pytest.raises(AppError, match="only its owner may"):
        call_api("push", model=run["watch"], repo="a/b", token="hf_x")


def test_a_comparison_is_a_job_of_its_owner(call_api):
    job = call_api("compare", model=REVERSE, n=3, wait=0)
    with pytest.raises(AppError, match="no longer stored"):
        call_api("job", job=job["job"], owner=new_owner_key())
    with pytest.raises(AppError, match="no longer stored"):
        call_api("cancel", job=job["job"], owner=new_owner_key())
    result = call_api("job", job=job["job"], owner=job["owner"], wait=60)
    assert result["status"] == "done", result
    own_row = next(row for row in result["rows"] if row["model"] == "reverse-one-head")
    assert (own_row["n"], own_row["finished"]) == (3, True)
    assert result["result"]["request"]["n"] == 3
    refused = call_api("compare", model=REVERSE, n=41)
    assert refused["status"] == "failed"
    assert "from 1 to 40" in refused["message"]
    second_job = call_api("compare", model=REVERSE, n=40, wait=0)
    assert call_api("cancel", job=second_job["job"], owner=second_job["owner"])["status"] in (
        "cancelled",
        "done",
    )


def test_a_push_uses_the_token_of_the_request_and_never_the_owners(hub, app, call_api):
    with hub.record_requests() as requests:
        with pytest.raises(AppError, match="needs a token with write access"):
            call_api("push", model=REVERSE, repo="ada/api")
        result = call_api("push", model=REVERSE, repo="ada/api", token=hub.ADA)
    assert result["status"] == "done", result
    files = hub.files("ada/api")
    assert "playground.json" in files
    assert not any(hub.ADA.encode() in data for data in files.values())
    assert {request.token for request in requests if request.host == hub.host} == {hub.ADA}
    assert hub.ADA not in json.dumps(result)
    # these are names; the client must not fetch them as files
    assert "README.md" in json.dumps(result["result"])
    assert not [
        path
        for path in app.log.parent.rglob("*")
        if path.is_file() and hub.ADA.encode() in path.read_bytes()
    ]


def test_the_example_runs_unchanged(app):
    completed = subprocess.run(
        [sys.executable, "playground/examples/api_client.py", app.url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr
    assert "3 1 4 -> 4 1 3" in completed.stdout
    assert f"{app.url}/?watch=" in completed.stdout


def test_agents_find_the_endpoints_as_tools(app):
    mcp = pytest.importorskip("mcp")
    from mcp.client.streamable_http import streamable_http_client

    async def call_tools():
        async with (
            streamable_http_client(f"{app.url}/gradio_api/mcp/") as (read_stream, write_stream, _),
            mcp.ClientSession(read_stream, write_stream) as session,
        ):
            await session.initialize()
            tools = (await session.list_tools()).tools
            valid = await session.call_tool(
                "playground_predict", {"model": REVERSE, "sequence": "3 1 4"}
            )
            invalid = await session.call_tool(
                "playground_predict", {"model": "unknown", "sequence": "3 1 4"}
            )
            return tools, valid, invalid

    tools, valid, invalid = run_in_thread(call_tools())
    assert [tool.name for tool in tools] == [f"playground_{name}" for name in ENDPOINTS]
    assert all(
        tool.description
        and all("description" in schema for schema in tool.inputSchema["properties"].values())
        for tool in tools
    )
    assert not valid.isError
    response = json.loads(valid.content[0].text)
    assert (response["prediction"], response["correct"]) == (["4", "1", "3"], True)
    assert valid.structuredContent == response
    assert invalid.structuredContent is None
    assert invalid.isError
    assert "there is no model" in invalid.content[0].text


def test_documented_curl_commands_work(app):
    page = (ROOT / "docs" / "api.md").read_text()
    command = re.search(r"^```\n(curl .*?)\n```", page, re.M | re.S)[1].replace(
        "http://127.0.0.1:7860", app.url
    )
    second, first = re.findall(rf"{app.url}/[\w/]+", command)
    data = re.search(r"-d '(.*?)'", command)[1].encode()
    request = urllib.request.Request(first, data, {"Content-Type": "application/json"})
    event = json.load(urllib.request.urlopen(request, timeout=60))["event_id"]
    response = urllib.request.urlopen(second + event, timeout=60).read().decode()
    assert json.loads(response.partition("data: ")[2].splitlines()[0])[0]["prediction"] == [
        "4",
        "1",
        "3",
    ]


def test_the_curl_program_of_the_page_prints_what_a_call_returns(app, call_api):
    blocks = re.findall(r'title="Copy: ([^"]+)".*?<code>(.*?)</code>', app.get("/api")[1], re.S)
    program = html.unescape(dict(blocks)["attention, curl"])
    printed = subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.startswith("event: complete\n")
    arguments = {"model": "checkpoint:reverse", "sequence": "3 1 4", "layer": 0, "head": 0}
    (result,) = json.loads(printed.stdout.partition("data: ")[2])
    assert result == call_api("attention", **arguments)
