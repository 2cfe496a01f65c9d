"""Make a release: `python scripts/release.py 0.3.0`.

The script writes the version into playground/__init__.py and CITATION.cff, dates the entries under
Unreleased in CHANGELOG.md, commits these files and tags the commit. It pushes nothing; its last
line shows the command. If a check fails, it changes nothing.
"""

import re
import subprocess
import time
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = ROOT / "playground" / "__init__.py"
CHANGELOG, CITATION = ROOT / "CHANGELOG.md", ROOT / "CITATION.cff"


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def check(version: str, current: str, log: str) -> None:
    """Raise a ClickException if `version` cannot be released now."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise click.ClickException(
            f"the version is {version!r}; it must be three numbers, such as 0.2.0 (semver.org)"
        )
    if f"v{version}" in git("tag").splitlines() or numbers(version) < numbers(current):
        raise click.ClickException(
            f"the version is {version}, but {current} is current or tagged; choose a higher one"
        )
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## \[|\Z)", log, re.M | re.S)
    if unreleased is None or not unreleased.group(1).strip():
        raise click.ClickException(
            "CHANGELOG.md has nothing under [Unreleased]; add a line for each change"
        )
    if git("status", "--porcelain"):
        raise click.ClickException("some changes are not committed; commit or stash them")


@click.command()
@click.argument("version")
def main(version: str) -> None:
    """Release the committed state as VERSION (three numbers, such as 0.2.0)."""
    code, log = VERSION_FILE.read_text(encoding="utf-8"), CHANGELOG.read_text(encoding="utf-8")
    [current] = re.findall(r'^__version__ = "(.+)"$', code, re.M)
    check(version, current, log)
    today = time.strftime("%Y-%m-%d")
    heading = f"## [Unreleased]\n\n## [{version}] - {today}\n"
    citation = CITATION.read_text(encoding="utf-8")
    citation = re.sub(r"^version: .*$", f"version: {version}", citation, flags=re.M)
    citation = re.sub(r"^date-released: .*$", f'date-released: "{today}"', citation, flags=re.M)
    files = {
        VERSION_FILE: code.replace(f'__version__ = "{current}"', f'__version__ = "{version}"'),
        CHANGELOG: log.replace("## [Unreleased]\n", heading, 1),
        CITATION: citation,
    }
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    git("commit", "--quiet", "--message", f"chore: release {version}", *map(str, files))
    git("tag", "--annotate", f"v{version}", "--message", f"Release {version}")
    click.echo(f"{version} is committed and tagged. Publish it with: git push --follow-tags")


if __name__ == "__main__":
    main()
