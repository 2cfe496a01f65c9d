import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from playground.common.env import ENV_NUMBERS, TAG
from playground.pretrained.loading.model_names import CANONICAL_NAMES
from playground.server.project_files import notebook_to_markdown
from tests.support.app_server import BUNDLED_CHECKPOINTS, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
REQUIREMENTS = (ROOT / "requirements.txt").read_text()


def front_matter() -> dict[str, Any]:
    block = re.match(r"---\n(.*?)\n---\n", README, re.S)
    assert block, "README.md begins with the Space's front matter"
    return yaml.safe_load(block.group(1))


def test_the_space_runs_the_pinned_gradio():
    pinned = re.search(r"^gradio\[oauth\]==(.+)$", REQUIREMENTS, re.M)
    assert front_matter()["sdk_version"] == pinned.group(1)
    assert front_matter()["app_file"] == "app.py"
    assert front_matter()["python_version"].strip('"') == "3.11"


def test_a_space_may_only_create_repositories_for_its_user():
    card = front_matter()
    # none that reads or deletes
    assert (card["hf_oauth"], card["hf_oauth_scopes"]) == (True, ["contribute-repos", "jobs"])
    assert TAG in card["tags"]


def test_the_space_preloads_the_models_that_compare_proposes():
    preloaded = [line.split()[0] for line in front_matter()["preload_from_hub"]]
    assert preloaded == front_matter()["models"] == list(CANONICAL_NAMES.values())


def test_only_tested_commits_of_main_update_the_space():
    workflow = yaml.safe_load((ROOT / ".github/workflows/sync-space.yml").read_text())
    after = workflow[True]["workflow_run"]  # YAML 1.1 reads `on` as true
    assert (after["workflows"], after["branches"], after["types"]) == (
        ["tests"],
        ["main"],
        ["completed"],
    )
    assert yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["name"] == "tests"
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert "conclusion == 'success'" in job["if"]
    assert "event == 'push'" in job["if"]
    assert job["steps"][0]["with"]["ref"] == "${{ github.event.workflow_run.head_sha }}"
    run = job["steps"][-1]
    assert run["run"].startswith('hf upload "$SPACE" . --repo-type space ')
    # no other step sees it
    assert [step for step in job["steps"] if "HF_TOKEN" in str(step)] == [run]


def test_the_two_commands_are_in_the_readme_and_ci_runs_the_second():
    assert "pip install -r requirements.txt && python app.py" in README
    assert "pip install -r requirements-dev.txt && pytest" in README
    assert re.search(
        r"pip install .*-r requirements-dev\.txt && pytest", (ROOT / ".ci/run").read_text()
    )
    assert re.search(r"bash \.ci/run", (ROOT / ".github/workflows/tests.yml").read_text())


def test_readme_has_at_most_700_words():
    assert len(README.split("\n---\n", 1)[1].split()) <= 700


PROSE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PROSE += sorted((ROOT / "docs").glob("*.md"))
MAX_WORDS = 26


def sentences(text):
    """The sentences and table cells of a document, without front matter and code."""
    text = re.sub(r"\A---\n.*?\n---\n|^```.*?^```", "", text, flags=re.S | re.M)
    for part in re.split(r"\n\s*\n|\n(?=\s*[-|#\d])|\|", text):
        yield from re.split(r"(?<=[.!?:;])\s+", part.strip())


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.name)
def test_sentences_of_the_documents_are_short(path):
    actual = [
        each
        for each in sentences(path.read_text(encoding="utf-8"))
        if len(each.split()) > MAX_WORDS
    ]
    assert actual == []


@pytest.mark.parametrize("name", BUNDLED_CHECKPOINTS)
def test_the_command_that_made_each_shipped_checkpoint_is_named(name):
    assert f"--out checkpoints/{name}\n" in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    size = sum(path.stat().st_size for path in (ROOT / "checkpoints" / name).iterdir())
    assert size < 3_000_000


def test_no_large_file_is_tracked():
    def ours(path: Path) -> bool:
        parts = path.relative_to(ROOT).parts
        return (
            path.is_file()
            and not {"runs", "rows", "node_modules", "coverage"} & set(parts)
            and not any(p.startswith(".") and p != ".github" for p in parts)
        )

    stored = [path for path in ROOT.rglob("*") if ours(path)]
    assert len(stored) > 50
    assert [str(path) for path in stored if path.stat().st_size > 1_000_000] == []


def anchors(path):
    """The anchors that GitHub gives to the headings of a document."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = notebook_to_markdown(text)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_in_the_documents_leads_somewhere():
    documents = (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / ".github").glob("*.md"),
    )
    assert len(documents) > 10
    for document in documents:
        for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
            if target.startswith(("https://", "http://127.0.0.1:7860/")):
                continue
            file, _, anchor = target.partition("#")
            path = document.parent / file if file else document
            assert path.exists(), f"{document.name} links {target}"
            assert not anchor or anchor in anchors(path), f"{document.name} links {target}"


def test_every_environment_variable_is_documented():
    """The documented variables are exactly those that the code reads."""
    hosting = (ROOT / "docs" / "hosting.md").read_text(encoding="utf-8")
    result = set(re.findall(r"^\| `(PLAYGROUND_\w+)`", hosting, re.M))
    read = {f"PLAYGROUND_{name}" for name in ENV_NUMBERS}
    for path in (ROOT / "playground").rglob("*.py"):
        read |= set(re.findall(r"PLAYGROUND_[A-Z_]+[A-Z]", path.read_text(encoding="utf-8")))
    assert read - result == set()
    assert result - read == set()
