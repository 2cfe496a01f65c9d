"""Every dependency is pinned: packages by version, actions by commit."""

import importlib.metadata
import re
import shutil
import socket
import subprocess
from collections import ChainMap

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.app_server import ROOT

PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[a-z0-9,-]+\])?==[0-9][0-9A-Za-z.+!-]*")
ACTION = re.compile(r"uses:\s*(\S+)")
BY_COMMIT = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
REQUIREMENTS = sorted(ROOT.glob("requirements*.txt"))
HASHED = re.compile(PINNED.pattern + r" --hash=sha256:[0-9a-f]{64}")
DEPLOY = ROOT / ".github" / "requirements-deploy.txt"
DEPLOY_WORKFLOW = ROOT / ".github" / "workflows" / "sync-space.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))


def unpinned_requirements(text):
    """Return the lines of a requirements file without an exact version."""
    lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
    return [
        line
        for line in lines
        if line and not line.startswith(("#", "-r ", "-c ")) and not PINNED.fullmatch(line)
    ]


def unpinned_actions(text):
    """Return the actions of a workflow that are not pinned to a commit."""
    return [
        name
        for name in ACTION.findall(text)
        if not name.startswith("./") and not BY_COMMIT.fullmatch(name)
    ]


@pytest.mark.smoke
@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_every_requirement_has_one_version(path):
    text = path.read_text()
    assert unpinned_requirements(text) == []
    included = [line.removeprefix("-r ") for line in text.splitlines() if line.startswith("-r ")]
    assert all((ROOT / name).is_file() for name in included)


def requirements(path):
    """Return the packages of a requirements file by canonical name."""
    lines = [
        line for line in path.read_text().splitlines() if line and not line.startswith(("#", "-"))
    ]
    return {canonicalize_name(line.name): line for line in map(Requirement, lines)}


def installed_dependencies(expected):
    """Return the version of every installed package that these requirements need."""
    actual, visited = {}, set()
    pending = [(name, frozenset(requirement.extras)) for name, requirement in expected.items()]
    while pending:
        name, extras = pending.pop()
        if (name, extras) in visited:
            continue
        visited.add((name, extras))
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        actual[name] = distribution.version
        pending += [
            (canonicalize_name(requirement.name), frozenset(requirement.extras))
            for requirement in map(Requirement, distribution.requires or [])
            if requirement.marker is None
            or any(requirement.marker.evaluate({"extra": extra}) for extra in (*extras, ""))
        ]
    return actual


def test_every_indirect_dependency_has_one_version_in_the_constraints():
    direct = dict(ChainMap(*map(requirements, reversed(REQUIREMENTS))))
    installed = installed_dependencies(direct)
    indirect = installed.keys() - direct.keys() - {"pip", "setuptools"}
    assert len(indirect) > 50
    constraints = requirements(ROOT / "constraints.txt")
    missing = [f"{name}=={installed[name]}" for name in sorted(indirect - constraints.keys())]
    assert missing == [], "put these lines into constraints.txt:\n" + "\n".join(missing)
    assert unpinned_requirements((ROOT / "constraints.txt").read_text()) == []
    assert "-c constraints.txt" in (ROOT / "requirements-dev.txt").read_text().splitlines()


def test_the_deploy_job_installs_the_client_of_the_hub_only_by_hash():
    """Its last step has a token that may write to the Space."""
    job = yaml.safe_load(DEPLOY_WORKFLOW.read_text())["jobs"]["deploy"]
    installs = [step["run"] for step in job["steps"] if "pip install" in step.get("run", "")]
    assert len(installs) == 1
    assert "--require-hashes --only-binary :all: -r .github/requirements-deploy.txt" in installs[0]
    lines = [line for line in DEPLOY.read_text().splitlines() if not line.startswith("#")]
    assert all(HASHED.fullmatch(line) for line in lines)
    pinned = dict(line.partition(" ")[0].split("==") for line in lines)
    hub = {"huggingface-hub": Requirement("huggingface-hub")}
    assert pinned.keys() == installed_dependencies(hub).keys()
    known = requirements(ROOT / "constraints.txt") | requirements(ROOT / "requirements.txt")
    assert {name: f"=={version}" for name, version in pinned.items()} == {
        name: str(known[name].specifier) for name in pinned
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_checkouts_do_not_persist_credentials(path):
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.smoke
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit(path):
    assert ACTION.search(path.read_text())
    assert unpinned_actions(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    ["torch", "torch==2.*", "git+https://example.com/x.git", "--index-url https://example.com"],
)
def test_unpinned_requirement_is_detected(line):
    assert unpinned_requirements(f"# a comment\nnumpy==2.1.0\n\n{line}\n") == [line]


@pytest.mark.parametrize(
    "name", ["actions/checkout@v4", "actions/checkout@11bd719", "docker://x:1"]
)
def test_unpinned_action_is_detected(name):
    others = f"  - uses: a/b@{'0' * 40} # v1\n  - uses: ./local\n"
    assert unpinned_actions(f"steps:\n  - uses: {name} # v4\n{others}") == [name]


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    shutil.which("pip-audit") is None,
    reason="pip-audit is not installed; pip install pip-audit to look for vulnerabilities",
)
def test_no_requirement_is_known_to_be_vulnerable():
    try:
        socket.create_connection(("api.osv.dev", 443), 5).close()
    except OSError as error:
        pytest.skip(f"the list of known vulnerabilities (api.osv.dev) cannot be reached: {error}")
    audit = ["pip-audit", "--requirement", str(ROOT / "requirements-dev.txt"), "--disable-pip"]
    audit += ["--no-deps", "--vulnerability-service", "osv"]
    completed = subprocess.run(audit, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
