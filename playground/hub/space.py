"""The files of a Hugging Face Space: those that the app needs at run time."""

import shutil
from pathlib import Path

from playground.common.storage import BUNDLED_CHECKPOINTS

REPO_ROOT = Path(__file__).resolve().parents[2]
ROOT_FILES = ("app.py", "requirements.txt", "README.md", "LICENSE")
THUMBNAIL = "docs/images/train.png"  # the thumbnail
# The folders of a deployment. Other files in a Space belong to its owner.
DEPLOYED_PATHS = (
    "playground/",
    "docs/",  # the documents, and the images of README.md
    *(f"checkpoints/{name}/" for name in BUNDLED_CHECKPOINTS),
)
FRONT_MATTER_END = "\n---\n"  # ends the front matter


def space_files(root: Path = REPO_ROOT) -> dict[str, Path]:
    """Return the files of a Space by their path in it.

    Raises:
        FileNotFoundError: if `root` is not a copy of the whole repository.
    """
    single = [root / name for name in (*ROOT_FILES, THUMBNAIL)]
    if missing := [path.name for path in single if not path.is_file()]:
        raise FileNotFoundError(
            f"{missing[0]} is missing next to the folder playground/; "
            "deploy from a copy of the repository"
        )
    inside = [path for name in DEPLOYED_PATHS for path in (root / name).rglob("*")]
    files = [
        path
        for path in inside
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    ]
    return {path.relative_to(root).as_posix(): path for path in sorted({*single, *files})}


def build_space(folder: Path, url: str, root: Path = REPO_ROOT) -> None:
    """Copy the files of a Space into a folder, for the Space at `url`.

    The front matter of its README.md gets the URL of the thumbnail.
    """
    for name, path in space_files(root).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    card, _, text = readme.partition(FRONT_MATTER_END)
    thumbnail = f"\nthumbnail: {url}/resolve/main/{THUMBNAIL}"
    (folder / "README.md").write_text(
        f"{card}{thumbnail}{FRONT_MATTER_END}{text}", encoding="utf-8"
    )


def is_deployed_path(name: str) -> bool:
    """Return whether a deployment wrote this file, so that a later one may delete it."""
    return name.startswith(DEPLOYED_PATHS)
