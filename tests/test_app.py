import json
import subprocess
import sys

import pytest

from tests.servers import ROOT, AppServer


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    server = AppServer(tmp_path_factory.mktemp("app"))
    yield server
    server.stop()


def test_a_page_holds_no_connection(app):
    config = json.loads(app.get("/config")[1])
    assert config["connect_heartbeat"] is False
    assert config["analytics_enabled"] is False


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.nip.io"])
def test_a_foreign_host_is_refused(app, host):
    assert app.get("/", Host=host)[0] == 400
    assert app.get("/config", Host=host)[0] == 400


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost.evil.example", "null"])
def test_a_page_of_another_site_is_refused(app, origin):
    assert app.get("/config", Origin=origin)[0] == 400


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_this_machine_is_served(app, host):
    assert app.get("/", Host=f"{host}:{app.port}", Origin=f"http://{host}:{app.port}")[0] == 200


def test_building_the_page_imports_neither_torch_nor_transformers():
    script = (
        "import sys, playground.ui.app; print(*[m for m in ('torch', 'transformers', 'datasets', 'matplotlib.pyplot') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
