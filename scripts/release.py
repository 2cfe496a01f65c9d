"""Make a release: `python scripts/release.py 0.2.0`.

Writes the version into playground/__init__.py, gives what CHANGELOG.md has under Unreleased its name and day, commits both and tags the
commit. Nothing leaves the machine; the last line says how to push. Nothing is changed when something is not as it should be.
"""

import re
import subprocess
import time
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE, CHANGELOG = ROOT / "playground" / "__init__.py", ROOT / "CHANGELOG.md"


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@click.command()
@click.argument("version")
def main(version: str) -> None:
    """Make VERSION (three numbers, such as 0.2.0) out of what is committed."""
    code, log = VERSION_FILE.read_text(encoding="utf-8"), CHANGELOG.read_text(encoding="utf-8")
    [now] = re.findall(r'^__version__ = "(.+)"$', code, re.M)
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## \[|\Z)", log, re.M | re.S)
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise click.ClickException(
            f"the version is {version!r}; it must be three numbers, such as 0.2.0 (semver.org)"
        )
    if f"v{version}" in git("tag").splitlines() or numbers(version) < numbers(now):
        raise click.ClickException(
            f"the version is {version}, but {now} is here or tagged already; choose a higher one"
        )
    if unreleased is None or not unreleased.group(1).strip():
        raise click.ClickException(
            "CHANGELOG.md has nothing under [Unreleased]: write down what changes for whoever uses it"
        )
    if git("status", "--porcelain"):
        raise click.ClickException(
            "there are changes that are not committed; commit them or put them away"
        )
    VERSION_FILE.write_text(
        code.replace(f'__version__ = "{now}"', f'__version__ = "{version}"'), encoding="utf-8"
    )
    heading = f"## [Unreleased]\n\n## [{version}] - {time.strftime('%Y-%m-%d')}\n"
    CHANGELOG.write_text(log.replace("## [Unreleased]\n", heading, 1), encoding="utf-8")
    git("commit", "--quiet", "--message", f"Release {version}", str(VERSION_FILE), str(CHANGELOG))
    git("tag", "--annotate", f"v{version}", "--message", f"Release {version}")
    click.echo(f"{version} is committed and tagged. Publish it with: git push --follow-tags")


if __name__ == "__main__":
    main()
