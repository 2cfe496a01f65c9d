"""The documentation and the source code that the page links to."""

import re

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.server.app import page_title
from playground.server.project_files import PACKAGE, ProjectFiles


def create_client(files: ProjectFiles) -> TestClient:
    return TestClient(Starlette(routes=[files.route()]))


@pytest.mark.parametrize("space", ["", "owner/space"])
def test_the_header_links_documentation_source_and_api(space):
    links = dict(re.findall('href="([^"]+)"[^>]*>([^<]+)<', page_title(space)))
    addresses = {name: address for address, name in links.items()}
    assert {"Docs", "Source", "API", "Paper"} <= set(addresses)
    if not space:
        client = create_client(ProjectFiles())
        for name in ("Docs", "Source"):
            assert client.get("/" + addresses[name]).status_code == 200, name


@pytest.mark.smoke
def test_listed_files_and_folders_open():
    client = create_client(ProjectFiles())
    page = client.get("/playground/files/docs")
    addresses = re.findall('href="([^"]+)"', page.text)
    assert {"README.md", "docs/api.md", "docs/images"} <= set(addresses)
    for address in addresses:
        response = client.get("/playground/files/" + address)
        assert response.status_code == 200, address
    source = client.get("/playground/files/playground/models/attention.py")
    assert source.headers["content-type"] == "text/plain; charset=utf-8"
    assert source.text == (PACKAGE / "models" / "attention.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "checkpoints/reverse/model.safetensors",
        "pyproject.toml",
        ".git/config",
        "docs/%2e%2e/pyproject.toml",
        "playground/%2e%2e/%2e%2e/etc/passwd",
        "%2Fetc/passwd",
        "playground/missing.py",
    ],
)
def test_other_files_are_not_public(path):
    assert create_client(ProjectFiles()).get("/playground/files/" + path).status_code == 404


def test_installed_package_serves_its_source_only(tmp_path):
    package = tmp_path / "site-packages" / "playground"
    package.mkdir(parents=True)
    (package / "models.py").write_text("x = 1", encoding="utf-8")
    (package.parent / "docs").mkdir()  # belongs to another package
    (package.parent / "other.py").write_text("", encoding="utf-8")
    files = ProjectFiles(package)
    assert files.links() == {"Source": "playground/files/playground"}
    client = create_client(files)
    assert client.get("/playground/files/playground/models.py").text == "x = 1"
    assert client.get("/playground/files/other.py").status_code == 404
    assert client.get("/playground/files/docs").status_code == 404
