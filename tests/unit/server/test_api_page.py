"""The page of the public API: its programs, its texts, and its policy."""

import ast
import html
import json
import re
import shlex

import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.common.format import source_hash
from playground.common.validation import parse
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server.api import Endpoints
from playground.server.api_calls import ENDPOINTS
from playground.server.api_page import (
    API_PAGE,
    example_arguments,
    python_program,
    shell_program,
)
from playground.server.rate_limit import LoadLimits
from tests.support.coroutines import run_in_thread


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    return Endpoints(Registry(tmp_path_factory.mktemp("runs")), {}, LoadLimits(0, 0))


@pytest.fixture(scope="module")
def client(endpoints):
    async def build():
        with gr.Blocks() as blocks:
            endpoints.register()
        return blocks

    blocks = run_in_thread(build())  # without an event loop, Gradio creates one
    app = Starlette(routes=[API_PAGE])
    app.get_blocks, app.root_path = lambda: blocks, ""
    return TestClient(app, base_url="http://localhost")


def test_the_policy_allows_the_style_and_the_script_and_nothing_else(client):
    response = client.get("/api")
    policy = dict(
        each.partition(" ")[::2] for each in response.headers["content-security-policy"].split("; ")
    )
    assert policy.pop("default-src") == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    for name in ("style", "script"):
        (text,) = re.findall(f"<{name}>(.*?)</{name}>", response.text, re.DOTALL)
        assert policy[f"{name}-src"] == source_hash(text)
    assert policy["img-src"] == "'self'"  # the icon
    assert not re.search(r'style="|<link|\son\w+=', response.text)


@pytest.mark.parametrize(
    ("root_path", "headers", "address"),
    [
        ("", {}, "http://localhost/"),
        ("", {"X-Forwarded-Proto": "https", "Host": "a-b.hf.space"}, "https://a-b.hf.space/"),
        ("/play", {"Host": "example.org"}, "http://example.org/play/"),
        ("https://example.org/play", {}, "https://example.org/play/"),
    ],
)
def test_programs_have_the_address_of_the_client(client, monkeypatch, root_path, headers, address):
    monkeypatch.setattr(client.app, "root_path", root_path)
    page = html.unescape(client.get("/api", headers=headers).text)
    assert page.count(f'Client("{address}")') == len(ENDPOINTS)
    assert page.count(f"curl -sN {address}gradio_api/call/") == len(ENDPOINTS)
    assert f'"url": "{address}gradio_api/mcp/"' in page
    assert {link for link in re.findall('href="([^"#]+)"', page) if not link.startswith("./")} == {
        "gradio_api/info"
    }


def test_the_page_of_a_space_describes_how_to_sign_in(client, monkeypatch):
    assert "Authorization: Bearer" not in html.unescape(client.get("/api").text)
    monkeypatch.setenv("SPACE_ID", "user/space")
    assert "Authorization: Bearer" in html.unescape(client.get("/api").text)


def test_mcp_is_described_only_where_it_is_served(client, monkeypatch):
    assert "mcpServers" in client.get("/api").text
    monkeypatch.setattr("playground.server.api_page.has_mcp", lambda: False)
    page = client.get("/api").text
    assert "mcp" not in page.lower()


def test_every_argument_and_every_result_has_a_description(client):
    page = client.get("/api").text
    sections = re.findall("<section>(.*?)</section>", page, re.DOTALL)
    assert len(sections) == len(ENDPOINTS)
    for section in sections:
        assert re.search(r"</h3>\s*<p>\w[^<]+\.</p>", section)
        assert re.search(r"<b>Returns</b> \w[^<]+\.</p>", section)
        for row in re.findall("<tr>(<td>.*?)</tr>|\n<tr>\n(.*?)</tr>", section, re.DOTALL):
            assert re.search(r"<td>\w[^<]+</td>\s*$", "".join(row)), row
    assert '<td>"cross", "encoder", "decoder"</td>' in html.unescape(page)
    assert "<td>list of string or null</td>" in page


def test_the_endpoints_accept_the_arguments_of_their_programs():
    values = {"OWNER": new_owner_key(), "JOB": "x", "TOKEN": "hf_x"}
    for method in ENDPOINTS.values():
        example = example_arguments(method)
        arguments = {
            key: values.get(value, value) if isinstance(value, str) else value
            for key, value in example.items()
        }
        parse(method, arguments)


def test_both_programs_send_the_arguments_unchanged():
    for name, method in ENDPOINTS.items():
        arguments = example_arguments(method)
        program = ast.parse(python_program("http://localhost/", name, arguments))
        call = program.body[2].value
        sent = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
        assert sent == arguments | {"api_name": f"/{name}"}
        command = shell_program("http://localhost/", name, arguments)
        words = shlex.split(command.partition("$(")[2].replace("\\\n", ""))
        assert json.loads(words[words.index("-d") + 1]) == arguments
