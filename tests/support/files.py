"""The files of a folder, and zip files."""

import io
import zipfile
from pathlib import Path


def read_files(folder):
    """Return the content of each file by its path in the folder."""
    folder = Path(folder)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def zip_files(
    files: dict[str, bytes], prefix: str = "", method: int = zipfile.ZIP_DEFLATED, **more: bytes
) -> bytes:
    """Return a zip file of these files."""
    archive_bytes = io.BytesIO()
    with zipfile.ZipFile(archive_bytes, "w", method, compresslevel=1) as archive:
        for name, data in (files | more).items():
            archive.writestr(prefix + name, data)
    return archive_bytes.getvalue()
