"""The documentation and the source code that the page links to."""

import re
from posixpath import dirname, join, normpath
from urllib.parse import urldefrag

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from playground.server.middleware import SecurityHeadersMiddleware
from playground.server.project_files import PACKAGE, ProjectFiles
from playground.ui.page import build_page
from tests.support.app_server import ROOT

FILES = "/playground/files/"
CSP = "content-security-policy"


def create_client(files: ProjectFiles) -> TestClient:
    return TestClient(
        Starlette(routes=[files.route()], middleware=[Middleware(SecurityHeadersMiddleware)])
    )


@pytest.fixture(scope="module")
def client():
    return create_client(ProjectFiles())


@pytest.fixture
def project(tmp_path):
    """A checkout with one document."""
    for name in ("app.py", "docs/api.md", "playground/models.py", "secret.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# API", encoding="utf-8")
    return tmp_path


def linked(page):
    return re.findall('(?:href|src)="([^"]*)"', page)


def header(space):
    page = build_page(ProjectFiles().links(), space)
    return page.partition("<nav")[2].partition("</nav")[0]


@pytest.mark.parametrize("space", ["", "owner/space"])
def test_the_header_links_documentation_source_and_api(client, space):
    links = dict(re.findall('href="([^"]+)"[^>]*>([^<]+)<', header(space)))
    addresses = {name: address for address, name in links.items()}
    assert {"Docs", "Source", "API", "Paper"} <= set(addresses)
    assert addresses["API"] == "api"
    if not space:
        for name in ("Docs", "Source"):
            response = client.get("/" + addresses[name])
            assert response.status_code == 200, name
            assert response.headers["content-type"] == "text/html; charset=utf-8", name
            assert "../../api" in linked(response.text), name


@pytest.mark.smoke
def test_the_index_has_a_line_for_each_document(client):
    index = client.get(FILES + "docs").text
    lines = [linked(item)[0] for item in re.findall("<li>.*?</li>", index)]
    expected = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert expected | {"README.md", "CHANGELOG.md", "benchmarks/RESULTS.md"} <= set(lines)
    assert len(set(lines)) == len(lines)


def test_every_link_of_the_documents_opens(client):
    pending, pages = [FILES + "docs"], {}
    for address in pending:
        response = client.get(address)
        assert response.status_code == 200, address
        is_page = response.headers["content-type"].startswith("text/html")
        pages[address] = response.text if is_page else ""
        for link in linked(pages[address]):
            target, _ = urldefrag(normpath(join(dirname(address), link)))
            if re.match("[a-z]+:", link) or not target.startswith(FILES):
                continue  # another site, or the page
            if target.endswith("/playground"):
                continue  # the source code
            if link and not link.startswith("#") and target not in pending:
                pending.append(target)
    assert len(pages) > 20
    for address, page in pages.items():
        for link in linked(page):
            file, anchor = urldefrag(link)
            target = normpath(join(dirname(address), file)) if file else address
            if anchor and target in pages:
                assert f'id="{anchor}"' in pages[target], f"{address} links {link}"


def test_listed_source_files_and_folders_open(client):
    for folder in ("playground", "playground/ui/static", "docs/images"):
        entries = linked(re.search("<ul.*</ul>", client.get(FILES + folder).text, re.DOTALL)[0])
        assert entries
        for entry in entries:
            address = normpath(join(dirname(FILES + folder), entry))
            assert client.get(address).status_code == 200, address
    source = client.get(FILES + "playground/models/attention.py")
    assert source.headers["content-type"] == "text/plain; charset=utf-8"
    assert source.headers[CSP] == "default-src 'none'; sandbox"
    assert source.text == (PACKAGE / "models" / "attention.py").read_text(encoding="utf-8")


def test_a_document_has_no_markup_and_scripts_of_its_text(project):
    text = (
        "---\nkey: value\n---\n# <b>Title</b>\n\n<script>alert(1)</script> "
        "[x](javascript:alert(1)) [secret](../secret.md) [source](../playground/models.py)\n"
    )
    (project / "docs" / "a.md").write_text(text, encoding="utf-8")
    response = create_client(ProjectFiles(project / "playground")).get(FILES + "docs/a.md")
    page = response.text
    assert "<title>&lt;b&gt;Title&lt;/b&gt; · " in page
    assert "&lt;script&gt;" in page
    assert "key: value" not in page
    for absent in ("<b>", "<script", 'href="javascript', "secret.md"):
        assert absent not in page, absent
    assert "../playground/models.py" in linked(page)
    policy = dict(each.partition(" ")[::2] for each in response.headers[CSP].split("; "))
    assert policy["default-src"] == "'none'"
    assert "script-src" not in policy
    assert "allow-scripts" not in policy["sandbox"]
    assert policy["frame-ancestors"] == "'none'"


def test_the_notebook_has_its_code_tables_and_figures(client):
    response = client.get("/" + ProjectFiles().notebook())
    assert "img-src 'self' data:;" in response.headers[CSP]
    page = response.text
    assert '<img src="data:image/png;base64,' in page
    assert "<details><summary>Code</summary><pre><code" in page
    assert re.search(r"<td>100,970,632</td>\s*<td>100,970,632</td>", page)


def test_a_changed_document_is_rendered_again(project):
    client = create_client(ProjectFiles(project / "playground"))
    path = project / "docs" / "api.md"
    assert '<h1 id="api">' in client.get(FILES + "docs/api.md").text
    path.write_text("# Twice\n\n# Twice", encoding="utf-8")
    page = client.get(FILES + "docs/api.md").text
    assert re.findall('<h1 id="(.+?)">', page) == ["twice", "twice-1"]


@pytest.mark.parametrize(
    "path",
    [
        *("", "checkpoints/reverse/model.safetensors", ".git/config", "benchmarks/__main__.py"),
        *("docs/%2e%2e/pyproject.toml", "docs/..%2fpyproject.toml"),
        *("playground/%2e%2e/%2e%2e/etc/passwd", "%2Fetc/passwd", "playground/missing.md"),
    ],
)
def test_other_files_are_not_public(client, path):
    assert client.get(FILES + path).status_code == 404


def test_installed_package_serves_its_source_only(tmp_path):
    package = tmp_path / "site-packages" / "playground"
    package.mkdir(parents=True)
    (package / "models.py").write_text("x = 1", encoding="utf-8")
    (package.parent / "docs").mkdir()  # belongs to another package
    (package.parent / "other.py").write_text("", encoding="utf-8")
    files = ProjectFiles(package)
    assert files.links() == {"API": "api", "Source": "playground/files/playground"}
    notebook = package / "bundled" / "docs" / "notebooks" / "sources.ipynb"
    notebook.parent.mkdir(parents=True)
    notebook.write_bytes((ROOT / "docs" / "notebooks" / "sources.ipynb").read_bytes())
    client = create_client(files)
    assert client.get(FILES + "playground/models.py").text == "x = 1"
    assert 'id="word-order"' in client.get("/" + files.notebook()).text
    assert client.get(FILES + "other.py").status_code == 404
    assert client.get(FILES + "docs").status_code == 404
