"""Records on disk that cannot be read, and why; their owner can delete them."""

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from playground.common.atomic_write import remove_dir
from playground.common.storage import directory_size
from playground.common.strict_json import read_json
from playground.errors import error_text

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Damaged:
    """A folder or a file with a damaged record.

    `reason` is a sentence, and `owner` the fingerprint of its owner, empty if it is unknown.
    """

    path: Path
    reason: str
    owner: str
    n_bytes: int

    def remove(self) -> None:
        """Remove the folder or the file. Raises OSError; then it is still there."""
        if self.path.is_dir() and not self.path.is_symlink():
            remove_dir(self.path)
        else:
            self.path.unlink(missing_ok=True)


def describe_damage(path: Path, record: Path, error: Exception) -> Damaged:
    """Log and return a damaged record, which is `path` or a file below it."""
    log.warning("%s is not listed: %s", path, error)
    owner, n_bytes = "", 0
    with suppress(ValueError, AttributeError, TypeError):
        owner = str(read_json(record).get("owner", ""))
    with suppress(OSError):
        n_bytes = directory_size(path) if path.is_dir() else path.lstat().st_size
    return Damaged(path, error_text(error), owner, n_bytes)
