"""The files of a folder, as bytes."""

from pathlib import Path


def read_files(folder):
    """Return the content of each file by its path in the folder."""
    folder = Path(folder)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
