"""The files of a Hugging Face Space: those that the app needs at run time."""

from __future__ import annotations

import shutil
from pathlib import Path

from playground.runs.home import SHIPPED

HOUSE = Path(__file__).resolve().parents[2]
SINGLE = ("app.py", "requirements.txt", "README.md", "LICENSE")
PICTURE = "docs/images/train.png"  # the thumbnail
# The folders of a deployment. Other files in a Space belong to its owner.
OWN = (
    "playground/",
    "docs/images/",  # the images of README.md
    *(f"checkpoints/{name}/" for name in SHIPPED),
)
AT_THE_END = "\n---\n"  # ends the front matter


def space_files(house: Path = HOUSE) -> dict[str, Path]:
    """Return the files of a Space by their path in it.

    Raises:
        FileNotFoundError: if `house` is not a copy of the whole repository.
    """
    single = [house / name for name in (*SINGLE, PICTURE)]
    if missing := [path.name for path in single if not path.is_file()]:
        raise FileNotFoundError(
            f"{missing[0]} is missing next to the folder playground/; "
            "deploy from a copy of the repository"
        )
    inside = [path for name in OWN for path in (house / name).rglob("*")]
    kept = [
        path
        for path in inside
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    ]
    return {path.relative_to(house).as_posix(): path for path in sorted({*single, *kept})}


def build_space(folder: Path, url: str, house: Path = HOUSE) -> None:
    """Copy the files of a Space into a folder, for the Space at `url`.

    The front matter of its README.md gets the URL of the thumbnail.
    """
    for name, path in space_files(house).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    card, _, text = readme.partition(AT_THE_END)
    thumbnail = f"\nthumbnail: {url}/resolve/main/{PICTURE}"
    (folder / "README.md").write_text(f"{card}{thumbnail}{AT_THE_END}{text}", encoding="utf-8")


def is_own(name: str) -> bool:
    """Return whether a deployment wrote this file, so that a later one may delete it."""
    return name.startswith(OWN)
