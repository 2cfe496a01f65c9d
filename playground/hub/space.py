"""What a Hugging Face Space of the playground is made of: the files that it needs to run, and nothing else of the repository."""

from __future__ import annotations

import shutil
from pathlib import Path

from playground.runs.home import SHIPPED

HOUSE = Path(__file__).resolve().parents[2]
SINGLE = ("app.py", "requirements.txt", "README.md", "LICENSE")
PICTURE = "docs/images/train.png"  # the thumbnail
OWN = (
    "playground/",
    "docs/images/",  # which README.md shows
    *(f"checkpoints/{name}/" for name in SHIPPED),
)  # what else is in a Space is its owner's
AT_THE_END = "\n---\n"  # of the front matter


def space_files(house: Path = HOUSE) -> dict[str, Path]:
    """The files of a Space, by their path in it.

    Raises:
        FileNotFoundError: where this is no copy of the whole repository.
    """
    single = [house / name for name in (*SINGLE, PICTURE)]
    if missing := [path.name for path in single if not path.is_file()]:
        raise FileNotFoundError(
            f"{missing[0]} is missing beside the folder playground/; deploy from a copy of the repository"
        )
    inside = [path for name in OWN for path in (house / name).rglob("*")]
    kept = [
        path
        for path in inside
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    ]
    return {path.relative_to(house).as_posix(): path for path in sorted({*single, *kept})}


def build_space(folder: Path, url: str, house: Path = HOUSE) -> None:
    """Put the files of a Space into a folder. Its README.md names the picture at `url`, where the Space will be, as its thumbnail."""
    for name, path in space_files(house).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    card, _, text = readme.partition(AT_THE_END)
    thumbnail = f"\nthumbnail: {url}/resolve/main/{PICTURE}"
    (folder / "README.md").write_text(f"{card}{thumbnail}{AT_THE_END}{text}", encoding="utf-8")


def is_own(name: str) -> bool:
    """Whether a deployment put this file there, so that a later one may take it away."""
    return name.startswith(OWN)
