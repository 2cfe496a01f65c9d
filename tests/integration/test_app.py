import json
import subprocess
import sys

import pytest

from playground.server.app import is_public
from tests.support.app_server import ROOT, AppServer


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    # a proxy that rejects local requests must not keep the app from starting
    proxy = dict.fromkeys(("HTTP_PROXY", "http_proxy"), "http://127.0.0.1:9")
    server = AppServer(tmp_path_factory.mktemp("app"), NO_PROXY="intranet.example", **proxy)
    yield server
    server.stop()


def test_behind_a_proxy_a_page_is_served_and_holds_no_connection(app):
    config = json.loads(app.get("/config")[1])
    assert config["connect_heartbeat"] is False
    assert config["analytics_enabled"] is False


@pytest.mark.smoke
def test_building_the_page_imports_neither_torch_nor_transformers():
    script = (
        "import sys, playground.server.app; print(*[m for m in ('torch', 'transformers', "
        "'datasets', 'matplotlib.pyplot') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("host", "space", "opened"),
    [
        (None, "", False),
        ("localhost", "", False),
        ("[::1]", "", False),
        ("0.0.0.0", "", True),
        (None, "a/b", True),
    ],
)
def test_a_space_a_foreign_address_or_a_link_opens_the_app_to_all(monkeypatch, host, space, opened):
    monkeypatch.delenv("SPACE_ID", raising=False)
    if space:
        monkeypatch.setenv("SPACE_ID", space)
    assert is_public(host) is opened
    assert is_public(host, share=True)
