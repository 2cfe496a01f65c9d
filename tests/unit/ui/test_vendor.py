"""The third-party modules of the page are the files that vendor/README.md describes."""

import hashlib
import json
import re

from tests.support.app_server import ROOT

VENDOR = ROOT / "playground" / "ui" / "static" / "vendor"
README = (VENDOR / "README.md").read_text()
OWN_FILES = {"README.md", "LICENSES.txt", "preact.d.ts", "qr.d.ts", "uplot.d.ts"}


def test_every_file_has_the_recorded_hash():
    recorded = dict(re.findall(r"^\| (\S+) \| .* \| `([0-9a-f]{64})` \|$", README, re.M))
    assert set(recorded) == {path.name for path in VENDOR.iterdir()} - OWN_FILES
    hashes = {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for name in recorded}
    assert hashes == recorded


def test_versions_are_those_of_the_lock_file():
    recorded = dict(re.findall(r"^\| (\S+) \| ([\d.]+) \| [\w.-]+ \| \[", README, re.M))
    lock = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert len(recorded) == 5
    assert recorded == {name: lock[f"node_modules/{name}"]["version"] for name in recorded}


def test_every_package_has_its_license():
    licenses = (VENDOR / "LICENSES.txt").read_text()
    names = re.findall(r"^\| (\S+) \| [\d.]+ \|", README, re.M)
    assert all(f"{name}\n{'-' * len(name)}\n" in licenses for name in names)


def test_lock_file_names_no_registry_and_pins_every_package():
    lock = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    packages = {name: each for name, each in lock.items() if name}
    assert len(packages) > 50
    assert [name for name, each in packages.items() if "resolved" in each] == []
    assert [name for name, each in packages.items() if not each.get("integrity")] == []
    manifest = json.loads((ROOT / "package.json").read_text())
    assert "dependencies" not in manifest, "the app needs no npm package"
    versions = manifest["devDependencies"].values()
    assert [version for version in versions if not re.fullmatch(r"[\d.]+", version)] == []
