"""The page of the public API on a real server: its programs run as they are printed."""

import ast
import html
import json
import re
import subprocess
import sys

import pytest
from gradio_client import Client

from tests.support.app_server import AppServer


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    server = AppServer(tmp_path_factory.mktemp("app"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def programs(app):
    """The programs of the page, by the titles of their buttons."""
    page = app.get("/api")[1]
    blocks = re.findall(r'title="Copy: ([^"]+)".*?<code>(.*?)</code>', page, re.DOTALL)
    return {title: html.unescape(text) for title, text in blocks}


@pytest.fixture(scope="module")
def call(app):
    client = Client(app.url, verbose=False)
    yield client.predict
    client.close()


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_page_has_every_endpoint_of_the_schema(app, programs):
    names = [path[1:] for path in json.loads(app.get("/gradio_api/info")[1])["named_endpoints"]]
    assert [title[:-8] for title in programs if title.endswith(", Python")] == names
    assert [title[:-6] for title in programs if title.endswith(", curl")] == names


@pytest.mark.smoke
def test_python_programs_print_what_a_call_returns(programs, call):
    for name, arguments in {
        "settings": {},
        "models": {},
        "predict": {"model": "checkpoint:reverse", "sequence": "3 1 4"},
    }.items():
        printed = output(sys.executable, "-c", programs[f"{name}, Python"]).splitlines()[-1]
        assert ast.literal_eval(printed) == call(**arguments, api_name=f"/{name}"), name


def test_curl_programs_print_what_a_call_returns(programs, call):
    for name, arguments in {
        "models": {},
        "attention": {"model": "checkpoint:reverse", "sequence": "3 1 4", "layer": 0, "head": 0},
    }.items():
        events = output("sh", "-c", programs[f"{name}, curl"])
        assert events.startswith("event: complete\n")
        (result,) = json.loads(events.partition("data: ")[2])
        assert result == call(**arguments, api_name=f"/{name}"), name
