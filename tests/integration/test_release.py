import re
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.support.app_server import ROOT

CHANGED = "# Changelog\n\n## [Unreleased]\n\n### Added\n- Something.\n"


@pytest.fixture
def repo(tmp_path):
    (tmp_path / "playground").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "playground" / "__init__.py").write_text('"""It."""\n\n__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGED)
    (tmp_path / "CITATION.cff").write_text('version: 0.1.0\ndate-released: "2026-01-01"\n')
    shutil.copy(ROOT / "scripts" / "release.py", tmp_path / "scripts")
    for words in (
        ("init", "-q"),
        ("config", "user.email", "a@b.c"),
        ("config", "user.name", "A"),
        ("add", "."),
        ("commit", "-qm", "It"),
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def release(repo, version):
    return subprocess.run(
        [sys.executable, "scripts/release.py", version],
        cwd=repo,
        capture_output=True,
        text=True,
        check=False,
    )


def git(repo, *words):
    return subprocess.run(
        ["git", *words], cwd=repo, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.smoke
def test_a_release_renames_the_unreleased_section_and_tags_it(repo):
    done = release(repo, "0.2.0")
    assert (done.returncode, done.stderr) == (0, "")
    assert '__version__ = "0.2.0"' in (repo / "playground" / "__init__.py").read_text()
    assert re.search(
        r"## \[Unreleased\]\n\n## \[0\.2\.0\] - \d{4}-\d\d-\d\d\n\n### Added\n- Something",
        (repo / "CHANGELOG.md").read_text(),
    )
    citation = yaml.safe_load((repo / "CITATION.cff").read_text())
    assert citation["version"] == "0.2.0"
    assert f"## [0.2.0] - {citation['date-released']}\n" in (repo / "CHANGELOG.md").read_text()
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "describe", "--exact-match").strip() == "v0.2.0"
    repeated = release(repo, "0.3.0")
    assert repeated.returncode == 1
    assert "nothing under [Unreleased]" in repeated.stderr


@pytest.mark.parametrize(
    ("version", "expected_message"),
    [("0.0.9", "choose a higher one"), ("1.2", "three numbers"), ("01.2.3", "three numbers")],
)
def test_an_invalid_next_version_is_rejected_without_changes(repo, version, expected_message):
    done = release(repo, version)
    assert done.returncode == 1
    assert expected_message in done.stderr
    assert git(repo, "status", "--porcelain") == git(repo, "tag") == ""


def test_uncommitted_changes_prevent_a_release(repo):
    (repo / "new.py").write_text("")
    done = release(repo, "0.2.0")
    assert "not committed" in done.stderr
    assert (repo / "CHANGELOG.md").read_text() == CHANGED


def test_the_changelog_can_be_released():
    assert re.search(r"^## \[Unreleased\]\n", (ROOT / "CHANGELOG.md").read_text(), re.M)
